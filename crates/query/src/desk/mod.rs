//! Answers the questions of other nodes, with the code that serves this node's own queries.
//!
//! What takes no more than a look at a row, or a write of one, is done on the thread that brought
//! the question; everything else on threads of its own. Whether the user may ask was checked where
//! the query came in.

mod cursors;
mod reads;
mod running;
mod writes;

use std::sync::Arc;

use bytes::Bytes;
use cluster::{Responder, RpcHandler, ServerId};
use datum::{KeyRange, Text, cancel};
use io::memory::Account;
use reql::codec::Codec;
use reql::{Cancel, EvalError};
use shard::Shard;
use storage::TableId;

use self::running::{Entered, Key, Running};
use crate::context::{Cx, Surroundings};
use crate::far::{Fitness, Outcome, Part, Question, Site, all_joined};
use crate::gets::TOGETHER_MAX;
use crate::order::KeyOrder;
use crate::read_mode::ReadMode;
use crate::service::Service;
use crate::system;
use crate::table::{Identifiers, StoredTable};

/// A longer question is read on a thread of its own.
const INLINE_BYTES: usize = 32 << 10;
/// Answers what other nodes ask. Made for one service, given to the links.
#[derive(Clone)]
pub struct QuestionDesk(Arc<Inner>);

struct Inner {
    service: Arc<Service>,
    /// What is being answered and can be stopped.
    running: Arc<Running>,
}

impl QuestionDesk {
    /// Answers with the tables of `service`.
    #[must_use]
    pub fn new(service: Arc<Service>) -> QuestionDesk {
        QuestionDesk(Arc::new(Inner { service, running: Arc::default() }))
    }
}

impl RpcHandler for QuestionDesk {
    fn serve(&self, from: ServerId, question: Bytes, reply: Responder) {
        let inner = self.0.clone();
        if question.len() > INLINE_BYTES {
            let entered = inner.entered(from, Question::number_of(&question));
            self.0.service.carriers.run(move || inner.read(from, question, entered, reply));
        } else {
            inner.read(from, question, None, reply);
        }
    }

    /// Stops what runs for `server` and ends its cursors.
    fn gone(&self, server: ServerId) {
        self.0.running.stop_all(server);
        self.0.service.cursors.forget(server);
    }
}

impl Inner {
    fn read(self: Arc<Self>, from: ServerId, question: Bytes, entered: Option<Entered>, reply: Responder) {
        match Question::from_bytes(question) {
            Ok(question) => self.answer(from, question, entered, reply),
            Err(invalid) => reply(Err(invalid.to_string())),
        }
    }

    fn answer(
        self: Arc<Self>,
        from: ServerId,
        question: Question,
        entered: Option<Entered>,
        reply: Responder,
    ) {
        match question {
            // To confirm who leads may take a while.
            Question::Get { table, mode, keys }
                if keys.len() <= TOGETHER_MAX && mode != ReadMode::Majority =>
            {
                reply(Ok(self.get(table, mode, &keys)));
            }
            Question::Write(write) if self.is_brief(&write) => self.write_one(&write, reply),
            Question::Next { cursor } => self.next((from, cursor), reply),
            Question::Close { cursor: number } | Question::Cancel { ticket: number } => {
                self.stop((from, number));
                reply(Ok(done()));
            }
            Question::StopJob { id } => {
                self.service.jobs.stop(id);
                reply(Ok(done()));
            }
            long => {
                let inner = self.clone();
                // What is done at once is over before anybody could stop it.
                let entered = entered.or_else(|| self.entered(from, long.number()));
                self.service.carriers.run(move || reply(Ok(inner.answer_accounted(long, entered))));
            }
        }
    }

    /// Stops a question and ends its cursor, wherever it is by now: being answered, waiting for the next question, or
    /// still on its way.
    fn stop(&self, key: Key) {
        let is_running = self.running.stop(key);
        // In this order: what is still being read is kept before it is running no more.
        let is_kept = self.service.cursors.take(key).is_some();
        if !is_running && !is_kept {
            self.running.stop_early(key);
        }
    }

    /// From now on a question with a number can be stopped.
    fn entered(&self, from: ServerId, number: Option<u64>) -> Option<Entered> {
        number.map(|number| self.running.enter((from, number), Arc::new(Cancel::new())))
    }

    /// What an answer takes is drawn from the node's memory, and given back once it is bytes. A cursor has an
    /// account for as long as it is open.
    fn answer_accounted(&self, question: Question, entered: Option<Entered>) -> Bytes {
        match (question, entered) {
            (Question::Open { part, around, steps, .. }, Some(entered)) => {
                self.open(&entered, &part, around, steps)
            }
            (other, entered) => {
                let account = Account::new(self.service.memory.clone());
                let _counting = account.enter();
                match entered {
                    Some(entered) => self.answer_stoppable(other, &entered.cancel),
                    None => self.answer_long(other),
                }
            }
        }
    }

    fn answer_stoppable(&self, question: Question, cancel: &Arc<Cancel>) -> Bytes {
        let _cancel_scope = cancel::scope(Some(cancel.clone()));
        match question {
            // Never told as moved: what of it was done already would be done once more.
            Question::Write(write) => self.write(write, cancel.clone()),
            Question::Count { part, .. } => unless_stopped(cancel, || self.count(&part, cancel.clone())),
            Question::Few { part, .. } => unless_stopped(cancel, || self.few(&part)),
            Question::Gather { part, around, pipeline, .. } => {
                unless_stopped(cancel, || self.gather(&part, around, pipeline, cancel.clone()))
            }
            other => self.answer_long(other),
        }
    }

    fn answer_long(&self, question: Question) -> Bytes {
        match question {
            Question::Get { table, mode, keys } => self.get(table, mode, &keys),
            Question::Sync { table, ranges } => self.sync(table, &ranges),
            Question::System { table, identifiers, user } => self.system(&table, identifiers, user),
            _ => done(),
        }
    }

    fn cx(&self, around: Surroundings, cancel: Arc<Cancel>) -> Arc<Cx> {
        Cx::served(self.service.clone(), Text::from_static("admin"), around, cancel)
    }

    /// The table of this id; it is elsewhere as long as this node has not heard of it.
    fn table(&self, table: TableId, mode: ReadMode) -> Outcome<StoredTable> {
        match self.service.node().catalog_guard().table_by_id(table) {
            Some(handle) => Outcome::Done(StoredTable { handle: handle.clone(), read_mode: mode }),
            None => Outcome::Moved(None),
        }
    }

    /// What is here of a part, all of it or nothing, as `make` makes it.
    fn parts<P>(
        &self,
        part: &Part,
        make: impl Fn(&StoredTable, &Shard, KeyRange) -> Outcome<P>,
    ) -> Outcome<Vec<P>> {
        self.table(part.table, part.mode).and_then(|table| {
            let mut parts = Vec::new();
            let mut fitness = Fitness::new(part.mode);
            let ranges = all_joined(&part.ranges);
            for (shard, range) in ranges.iter().flat_map(|range| table.handle.covering(range)) {
                match self.service.reader(shard, part.mode) {
                    Some(Site::Near(shard)) if !fitness.allows(shard) => return Outcome::Moved(None),
                    Some(Site::Near(shard)) => {
                        let generation = shard.rows_generation();
                        match make(&table, shard, range) {
                            // Looked at afterwards: rows that are taken away meanwhile are not missing.
                            Outcome::Done(_) if !shard.is_current(generation) => return Outcome::Moved(None),
                            Outcome::Done(part) => parts.push(part),
                            Outcome::Failed(error) => return Outcome::Failed(error),
                            Outcome::Moved(leader) => return Outcome::Moved(leader),
                        }
                    }
                    Some(Site::Far(server)) => return Outcome::Moved(Some(server)),
                    None => return Outcome::Moved(None),
                }
            }
            if part.order == KeyOrder::Descending {
                parts.reverse();
            }
            Outcome::Done(parts)
        })
    }

    fn system(&self, table: &str, identifiers: Identifiers, user: Text) -> Bytes {
        let cx = Cx::served(self.service.clone(), user, Surroundings::none(), Arc::default());
        let rows = match system::table(table) {
            Some(table) => table.rows(&cx, identifiers),
            None => Err(EvalError::internal(format!("there is no system table {table}"))),
        };
        Outcome::from(rows).to_bytes(Codec::pack)
    }
}

/// Does `work`. What was stopped halfway is lost, not failed: whoever still wants it, because only the link was
/// gone, looks for it anew.
fn unless_stopped(cancel: &Cancel, work: impl FnOnce() -> Bytes) -> Bytes {
    let lost = || Outcome::<()>::Moved(None).to_bytes(|(), _| ());
    if cancel.is_set() {
        return lost();
    }
    let answer = work();
    if cancel.is_set() { lost() } else { answer }
}

/// That something was done which has no result.
fn done() -> Bytes {
    Outcome::Done(true).to_bytes(Codec::pack)
}
