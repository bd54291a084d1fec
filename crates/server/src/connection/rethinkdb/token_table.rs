//! Which tokens of a connection are in use, and what CONTINUE, STOP and NOREPLY_WAIT mean now.
//!
//! Pure bookkeeping: no socket, no thread. Source: docs/reql-spec.md section 1.6.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use protocol::Token;
use reql::Cancel;

use super::stream::Stream;

/// One unit of work; a token that is used again has a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job(u64);

/// Whether the client expects a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Wanted,
    /// It does not, not even to an error.
    Unwanted,
    /// The query is not parsed yet. NOREPLY_WAIT treats it as a noreply query.
    Unknown,
}

/// Why a running query that turns out to be a stream has a cancel flag.
const STREAM_HAS_CANCEL: &str = "invariant: only a query with a cancel flag answers with a stream";

/// A query that is running.
struct Running {
    job: Job,
    /// `None` for a query that never checks it.
    cancel: Option<Arc<Cancel>>,
    /// CONTINUEs that are queued behind it.
    waiting: usize,
    reply: Reply,
}

enum ActiveQuery {
    Running(Running),
    /// A stream between two batches.
    Idle(Stream, Arc<Cancel>),
    /// A changefeed with a CONTINUE that waits for an element, and this many further ones.
    Parked {
        stream: Stream,
        cancel: Arc<Cancel>,
        waiting: usize,
    },
}

/// The tokens of one connection.
#[derive(Default)]
pub struct TokenTable {
    active: HashMap<Token, ActiveQuery, RandomState>,
    last_job: u64,
    /// Jobs on a pool thread or waiting for the log. A stopped job counts until it ends.
    jobs: usize,
    noreply: BTreeSet<Job>,
    /// NOREPLY_WAITs and the last job each waits for.
    waits: Vec<(Token, Job)>,
}

/// What to do after a CONTINUE.
pub enum ContinueStep {
    /// No stream has this token.
    UnknownToken,
    /// It is queued behind the batch that is being fetched.
    Queued,
    /// Fetch the next batch.
    Fetch(Fetch),
}

/// A batch to fetch.
pub struct Fetch {
    pub stream: Stream,
    /// The job of fetching it.
    pub job: Job,
}

/// What to do after a STOP.
#[derive(Debug, PartialEq, Eq)]
pub enum StopStep {
    /// No query has this token.
    UnknownToken,
    /// The query is over. Send this many empty sequences: one for the STOP and one for each START or CONTINUE that is
    /// not answered yet.
    Stopped {
        /// At least one.
        answers: usize,
    },
}

/// What to do after a job has ended.
pub enum DoneStep {
    /// Nothing: its query was stopped, and the client already has its response.
    Forget,
    /// Send the response, then fail this many CONTINUEs that were queued behind a stream that has ended.
    Send {
        /// Usually none.
        refuse: usize,
    },
    /// Send the response, then fetch the batch for a queued CONTINUE.
    SendAndFetch(Fetch),
}

impl TokenTable {
    /// Whether `token` belongs to a query that has not ended.
    pub fn in_use(&self, token: Token) -> bool {
        !self.active.is_empty() && self.active.contains_key(&token)
    }

    /// How many jobs have not ended.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// Registers a START that is not answered yet. The token must not be in use.
    pub fn start(&mut self, token: Token, reply: Reply) -> (Job, Arc<Cancel>) {
        let cancel = Arc::new(Cancel::new());
        (self.run(token, reply, Some(cancel.clone())), cancel)
    }

    /// Like [`TokenTable::start`], for a query that never checks whether it is cancelled. Its answer is a value.
    pub fn start_brief(&mut self, token: Token, reply: Reply) -> Job {
        self.run(token, reply, None)
    }

    fn run(&mut self, token: Token, reply: Reply, cancel: Option<Arc<Cancel>>) -> Job {
        let job = self.next_job();
        if reply != Reply::Wanted {
            self.noreply.insert(job);
        }
        self.active.insert(token, ActiveQuery::Running(Running { job, cancel, waiting: 0, reply }));
        job
    }

    /// Registers a START that was answered at once with the first batch of a stream.
    pub fn keep(&mut self, token: Token, stream: Stream) {
        self.active.insert(token, ActiveQuery::Idle(stream, Arc::new(Cancel::new())));
    }

    /// Registers a CONTINUE.
    pub fn resume(&mut self, token: Token) -> ContinueStep {
        match self.active.remove(&token) {
            None => ContinueStep::UnknownToken,
            Some(ActiveQuery::Running(mut running)) => {
                running.waiting += 1;
                self.active.insert(token, ActiveQuery::Running(running));
                ContinueStep::Queued
            }
            Some(ActiveQuery::Parked { stream, cancel, waiting }) => {
                let waiting = waiting + 1;
                self.active.insert(token, ActiveQuery::Parked { stream, cancel, waiting });
                ContinueStep::Queued
            }
            Some(ActiveQuery::Idle(stream, cancel)) => {
                ContinueStep::Fetch(self.fetch(token, stream, cancel, 0))
            }
        }
    }

    /// Registers a STOP.
    pub fn stop(&mut self, token: Token) -> StopStep {
        match self.active.remove(&token) {
            None => StopStep::UnknownToken,
            Some(ActiveQuery::Running(running)) => {
                running.cancel.iter().for_each(|cancel| cancel.set());
                let owed = usize::from(running.reply != Reply::Unwanted) + running.waiting;
                StopStep::Stopped { answers: 1 + owed }
            }
            Some(ActiveQuery::Idle(_, cancel)) => {
                cancel.set();
                StopStep::Stopped { answers: 1 }
            }
            Some(ActiveQuery::Parked { cancel, waiting, .. }) => {
                cancel.set();
                StopStep::Stopped { answers: 2 + waiting }
            }
        }
    }

    /// The batch of a changefeed that was to be fetched is not there yet: its job has ended.
    pub fn park(&mut self, token: Token, fetch: Fetch) {
        self.jobs -= 1;
        self.noreply.remove(&fetch.job);
        if let Some(ActiveQuery::Running(running)) = self.active.remove(&token) {
            let (cancel, waiting) = (running.cancel.expect(STREAM_HAS_CANCEL), running.waiting);
            self.active.insert(token, ActiveQuery::Parked { stream: fetch.stream, cancel, waiting });
        }
    }

    /// The batch that a parked changefeed waits for, as a new job; `None` if the query is not parked any more.
    pub fn unpark(&mut self, token: Token) -> Option<Fetch> {
        match self.active.remove(&token)? {
            ActiveQuery::Parked { stream, cancel, waiting } => {
                Some(self.fetch(token, stream, cancel, waiting))
            }
            other => {
                self.active.insert(token, other);
                None
            }
        }
    }

    /// The queries whose changefeeds are parked.
    pub fn parked(&self) -> Vec<Token> {
        let is_parked = |active: &ActiveQuery| matches!(active, ActiveQuery::Parked { .. });
        self.active.iter().filter(|(_, active)| is_parked(active)).map(|(token, _)| *token).collect()
    }

    /// Registers the end of a job, with its stream if more batches may follow.
    pub fn done(&mut self, token: Token, job: Job, stream: Option<Stream>) -> DoneStep {
        self.jobs -= 1;
        self.noreply.remove(&job);
        let running = match self.active.remove(&token) {
            Some(ActiveQuery::Running(running)) if running.job == job => running,
            Some(other) => {
                self.active.insert(token, other);
                return DoneStep::Forget;
            }
            None => return DoneStep::Forget,
        };
        match stream {
            Some(stream) if running.waiting > 0 => {
                let cancel = running.cancel.expect(STREAM_HAS_CANCEL);
                DoneStep::SendAndFetch(self.fetch(token, stream, cancel, running.waiting - 1))
            }
            Some(stream) => {
                self.active
                    .insert(token, ActiveQuery::Idle(stream, running.cancel.expect(STREAM_HAS_CANCEL)));
                DoneStep::Send { refuse: 0 }
            }
            None => DoneStep::Send { refuse: running.waiting },
        }
    }

    /// Registers the end of a job that has not found a batch for the client, which still waits for one.
    pub fn done_without_batch(&mut self, token: Token, job: Job, stream: Option<Stream>) -> DoneStep {
        if let Some(ActiveQuery::Running(running)) = self.active.get_mut(&token)
            && running.job == job
        {
            running.waiting += 1;
        }
        self.done(token, job, stream)
    }

    /// Registers a NOREPLY_WAIT. [`TokenTable::take_finished_waits`] returns its token when it can be answered.
    pub fn wait(&mut self, token: Token) {
        self.waits.push((token, Job(self.last_job)));
    }

    /// Removes and returns the NOREPLY_WAITs for which all earlier noreply queries have ended.
    pub fn take_finished_waits(&mut self) -> Vec<Token> {
        if self.waits.is_empty() {
            return Vec::new();
        }
        let oldest = self.noreply.first().copied();
        let over = |last: Job| oldest.is_none_or(|oldest| last < oldest);
        let (done, waiting) = self.waits.drain(..).partition(|(_, last)| over(*last));
        self.waits = waiting;
        let done: Vec<(Token, Job)> = done;
        done.into_iter().map(|(token, _)| token).collect()
    }

    /// Cancels every running query and idle stream.
    pub fn cancel_all(&mut self) {
        for active in self.active.values() {
            match active {
                ActiveQuery::Running(running) => running.cancel.iter().for_each(|cancel| cancel.set()),
                ActiveQuery::Idle(_, cancel) | ActiveQuery::Parked { cancel, .. } => cancel.set(),
            }
        }
    }

    fn fetch(&mut self, token: Token, stream: Stream, cancel: Arc<Cancel>, waiting: usize) -> Fetch {
        let job = self.next_job();
        let running = Running { job, cancel: Some(cancel), waiting, reply: Reply::Wanted };
        self.active.insert(token, ActiveQuery::Running(running));
        Fetch { stream, job }
    }

    fn next_job(&mut self) -> Job {
        self.last_job += 1;
        self.jobs += 1;
        Job(self.last_job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::{Batch, Cursor};
    use ::io::memory::{Account, Budget};

    struct Endless;

    impl Cursor for Endless {
        fn next_batch(&mut self) -> Result<Batch, protocol::Failure> {
            Ok(Batch { items: vec![], done: false, notes: vec![], profile: None })
        }
    }

    const TOKEN: Token = Token(5);

    fn endless() -> Option<Stream> {
        Some(Stream::idle(Box::new(Endless), Account::new(Budget::unlimited())))
    }

    #[test]
    fn a_value_frees_its_token() {
        let mut tokens = TokenTable::default();
        let (job, _) = tokens.start(TOKEN, Reply::Wanted);
        assert!(tokens.in_use(TOKEN));
        assert!(matches!(tokens.done(TOKEN, job, None), DoneStep::Send { refuse: 0 }));
        assert!(!tokens.in_use(TOKEN));
        assert_eq!(tokens.jobs(), 0);
        assert!(matches!(tokens.resume(TOKEN), ContinueStep::UnknownToken));
        assert_eq!(tokens.stop(TOKEN), StopStep::UnknownToken);
    }

    #[test]
    fn a_second_continue_waits_for_the_first() {
        let mut tokens = TokenTable::default();
        let (start, _) = tokens.start(TOKEN, Reply::Wanted);
        assert!(matches!(tokens.done(TOKEN, start, endless()), DoneStep::Send { refuse: 0 }));
        let ContinueStep::Fetch(first) = tokens.resume(TOKEN) else { panic!("not fetched") };
        assert!(matches!(tokens.resume(TOKEN), ContinueStep::Queued));
        assert!(matches!(tokens.resume(TOKEN), ContinueStep::Queued));
        let DoneStep::SendAndFetch(second) = tokens.done(TOKEN, first.job, endless()) else {
            panic!("not fetched")
        };
        assert!(matches!(tokens.done(TOKEN, second.job, None), DoneStep::Send { refuse: 1 }));
        assert!(!tokens.in_use(TOKEN));
    }

    #[test]
    fn a_stop_answers_all_waiting_requests() {
        let mut tokens = TokenTable::default();
        let (start, cancel) = tokens.start(TOKEN, Reply::Wanted);
        assert!(matches!(tokens.resume(TOKEN), ContinueStep::Queued));
        assert_eq!(tokens.stop(TOKEN), StopStep::Stopped { answers: 3 });
        assert!(cancel.is_set());
        assert!(!tokens.in_use(TOKEN));
        assert_eq!(tokens.jobs(), 1, "it still takes a thread");
        let (again, _) = tokens.start(TOKEN, Reply::Wanted);
        assert!(matches!(tokens.done(TOKEN, start, endless()), DoneStep::Forget));
        assert!(tokens.in_use(TOKEN), "the late end of the first did not end the second");
        assert!(matches!(tokens.done(TOKEN, again, None), DoneStep::Send { .. }));
        assert_eq!(tokens.jobs(), 0);
    }

    #[test]
    fn a_stop_between_batches_answers_itself() {
        let mut tokens = TokenTable::default();
        let (job, cancel) = tokens.start(TOKEN, Reply::Wanted);
        tokens.done(TOKEN, job, endless());
        assert_eq!(tokens.stop(TOKEN), StopStep::Stopped { answers: 1 });
        assert!(cancel.is_set());
    }

    #[test]
    fn a_noreply_query_is_owed_no_answer() {
        let mut tokens = TokenTable::default();
        tokens.start_brief(TOKEN, Reply::Unwanted);
        assert_eq!(tokens.stop(TOKEN), StopStep::Stopped { answers: 1 });
    }

    #[test]
    fn a_wait_ends_when_the_noreply_queries_before_it_have() {
        let mut tokens = TokenTable::default();
        let (wanted, _) = tokens.start(Token(1), Reply::Wanted);
        tokens.wait(Token(2));
        assert_eq!(tokens.take_finished_waits(), [Token(2)], "queries with a reply are not waited for");
        let (before, _) = tokens.start(Token(3), Reply::Unwanted);
        let (unread, _) = tokens.start(Token(4), Reply::Unknown);
        tokens.wait(Token(5));
        let (after, _) = tokens.start(Token(6), Reply::Unwanted);
        tokens.wait(Token(7));
        assert_eq!(tokens.take_finished_waits(), []);
        tokens.done(Token(3), before, None);
        assert_eq!(tokens.take_finished_waits(), []);
        tokens.stop(Token(4));
        assert_eq!(tokens.take_finished_waits(), [], "a stopped query may still write");
        tokens.done(Token(4), unread, None);
        assert_eq!(tokens.take_finished_waits(), [Token(5)]);
        tokens.done(Token(6), after, None);
        assert_eq!(tokens.take_finished_waits(), [Token(7)]);
        tokens.done(Token(1), wanted, None);
    }

    #[test]
    fn a_lost_client_stops_everything() {
        let mut tokens = TokenTable::default();
        let (_, running) = tokens.start(Token(1), Reply::Wanted);
        let (job, idle) = tokens.start(Token(2), Reply::Wanted);
        tokens.done(Token(2), job, endless());
        tokens.cancel_all();
        assert!(running.is_set() && idle.is_set());
    }
}
