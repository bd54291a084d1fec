//! Which tokens of a connection are in use, and what CONTINUE, STOP and NOREPLY_WAIT mean now.
//!
//! Pure bookkeeping: no socket, no thread. Source: docs/reql-spec.md section 1.6.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use protocol::Token;
use reql::Cancel;

use super::stream::Stream;

/// One piece of work, told apart from earlier ones of the same token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job(u64);

/// Whether a query's answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is.
    Wanted,
    /// It is not, not even an error.
    Unwanted,
    /// Nobody has looked yet; treated as a noreply query by those who wait for them.
    Unknown,
}

/// Why a running query that turns out to be a stream has a flag.
const STREAM_HAS_CANCEL: &str = "invariant: only what looks at its flag answers with a stream";

/// A query that is running.
struct Running {
    job: Job,
    /// None of one that does not look at it.
    cancel: Option<Arc<Cancel>>,
    /// CONTINUEs that wait for their turn.
    waiting: usize,
    reply: Reply,
}

enum Active {
    Running(Running),
    /// A stream between two batches.
    Idle(Stream, Arc<Cancel>),
}

/// The tokens of one connection.
#[derive(Default)]
pub struct TokenTable {
    active: HashMap<Token, Active, RandomState>,
    last_job: u64,
    /// Jobs on a thread or on their way to the log, stopped ones included until they end.
    jobs: usize,
    noreply: BTreeSet<Job>,
    /// NOREPLY_WAITs and the last job each waits for.
    waits: Vec<(Token, Job)>,
}

/// What a CONTINUE leads to.
pub enum ContinueStep {
    /// No stream has this token.
    UnknownToken,
    /// It waits behind the batch that is being fetched.
    Queued,
    /// Fetch the next batch.
    Fetch(Fetch),
}

/// A batch to fetch.
pub struct Fetch {
    /// The stream.
    pub stream: Stream,
    /// Which piece of work this is.
    pub job: Job,
}

/// What a STOP leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum StopStep {
    /// No query has this token.
    UnknownToken,
    /// The query is over. Send this many empty sequences: one for the STOP and one for each
    /// START or CONTINUE that is still owed an answer.
    Stopped {
        /// At least one.
        answers: usize,
    },
}

/// What the end of a job leads to.
pub enum DoneStep {
    /// Its query was stopped: the answer was given already.
    Forget,
    /// Send the answer, then refuse this many CONTINUEs that waited for a stream that ended.
    Send {
        /// Usually none.
        refuse: usize,
    },
    /// Send the answer, then fetch the batch a waiting CONTINUE asked for.
    SendAndFetch(Fetch),
}

impl TokenTable {
    /// Whether `token` belongs to a query that has not ended.
    pub fn in_use(&self, token: Token) -> bool {
        !self.active.is_empty() && self.active.contains_key(&token)
    }

    /// Jobs that have not ended.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// A START whose answer is not there yet. The token must not be in use.
    pub fn start(&mut self, token: Token, reply: Reply) -> (Job, Arc<Cancel>) {
        let cancel = Arc::new(Cancel::new());
        (self.run(token, reply, Some(cancel.clone())), cancel)
    }

    /// The same for one that does not look whether it is stopped. Its answer is a value.
    pub fn start_brief(&mut self, token: Token, reply: Reply) -> Job {
        self.run(token, reply, None)
    }

    fn run(&mut self, token: Token, reply: Reply, cancel: Option<Arc<Cancel>>) -> Job {
        let job = self.next_job();
        if reply != Reply::Wanted {
            self.noreply.insert(job);
        }
        self.active.insert(token, Active::Running(Running { job, cancel, waiting: 0, reply }));
        job
    }

    /// A START that was answered at once with the first batch of a stream.
    pub fn keep(&mut self, token: Token, stream: Stream) {
        self.active.insert(token, Active::Idle(stream, Arc::new(Cancel::new())));
    }

    /// A CONTINUE.
    pub fn resume(&mut self, token: Token) -> ContinueStep {
        match self.active.remove(&token) {
            None => ContinueStep::UnknownToken,
            Some(Active::Running(mut running)) => {
                running.waiting += 1;
                self.active.insert(token, Active::Running(running));
                ContinueStep::Queued
            }
            Some(Active::Idle(stream, cancel)) => ContinueStep::Fetch(self.fetch(token, stream, cancel, 0)),
        }
    }

    /// A STOP.
    pub fn stop(&mut self, token: Token) -> StopStep {
        match self.active.remove(&token) {
            None => StopStep::UnknownToken,
            Some(Active::Running(running)) => {
                running.cancel.iter().for_each(|cancel| cancel.set());
                let owed = usize::from(running.reply != Reply::Unwanted) + running.waiting;
                StopStep::Stopped { answers: 1 + owed }
            }
            Some(Active::Idle(_, cancel)) => {
                cancel.set();
                StopStep::Stopped { answers: 1 }
            }
        }
    }

    /// A job ended, with its stream if more may follow.
    pub fn done(&mut self, token: Token, job: Job, stream: Option<Stream>) -> DoneStep {
        self.jobs -= 1;
        self.noreply.remove(&job);
        let running = match self.active.remove(&token) {
            Some(Active::Running(running)) if running.job == job => running,
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
                self.active.insert(token, Active::Idle(stream, running.cancel.expect(STREAM_HAS_CANCEL)));
                DoneStep::Send { refuse: 0 }
            }
            None => DoneStep::Send { refuse: running.waiting },
        }
    }

    /// A NOREPLY_WAIT: [`TokenTable::waits_over`] tells when it is answered.
    pub fn wait(&mut self, token: Token) {
        self.waits.push((token, Job(self.last_job)));
    }

    /// NOREPLY_WAITs whose queries have all ended since.
    pub fn waits_over(&mut self) -> Vec<Token> {
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

    /// Tells every running query to stop; nothing more will be sent.
    pub fn cancel_all(&mut self) {
        for active in self.active.values() {
            match active {
                Active::Running(running) => running.cancel.iter().for_each(|cancel| cancel.set()),
                Active::Idle(_, cancel) => cancel.set(),
            }
        }
    }

    fn fetch(&mut self, token: Token, stream: Stream, cancel: Arc<Cancel>, waiting: usize) -> Fetch {
        let job = self.next_job();
        let running = Running { job, cancel: Some(cancel), waiting, reply: Reply::Wanted };
        self.active.insert(token, Active::Running(running));
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
    fn a_stop_answers_everyone_who_waits() {
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
        assert_eq!(tokens.waits_over(), [Token(2)], "queries with a reply are not waited for");
        let (before, _) = tokens.start(Token(3), Reply::Unwanted);
        let (unread, _) = tokens.start(Token(4), Reply::Unknown);
        tokens.wait(Token(5));
        let (after, _) = tokens.start(Token(6), Reply::Unwanted);
        tokens.wait(Token(7));
        assert_eq!(tokens.waits_over(), []);
        tokens.done(Token(3), before, None);
        assert_eq!(tokens.waits_over(), []);
        tokens.stop(Token(4));
        assert_eq!(tokens.waits_over(), [], "a stopped query may still write");
        tokens.done(Token(4), unread, None);
        assert_eq!(tokens.waits_over(), [Token(5)]);
        tokens.done(Token(6), after, None);
        assert_eq!(tokens.waits_over(), [Token(7)]);
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
