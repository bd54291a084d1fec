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

use self::running::{RequestKey, RunningRequest, RunningRequests};
use crate::context::{Cx, EvalParams};
use crate::remote::{LeaderConfirmations, Request, Response, TableRanges, Target, joined_ranges};
use crate::routing::{BATCH_KEYS_MAX, ReadMode};
use crate::service::Service;
use crate::system;
use crate::table::{Identifiers, KeyOrder, StoredTable};

/// A longer question is read on a thread of its own.
const INLINE_BYTES: usize = 32 << 10;
/// Answers what other nodes ask. Made for one service, given to the links.
#[derive(Clone)]
pub struct QueryServer(Arc<Inner>);

struct Inner {
    service: Arc<Service>,
    /// What is being answered and can be stopped.
    running: Arc<RunningRequests>,
}

impl QueryServer {
    /// Answers with the tables of `service`.
    #[must_use]
    pub fn new(service: Arc<Service>) -> QueryServer {
        QueryServer(Arc::new(Inner { service, running: Arc::default() }))
    }
}

impl RpcHandler for QueryServer {
    fn serve(&self, from: ServerId, request: Bytes, reply: Responder) {
        let inner = self.0.clone();
        if request.len() > INLINE_BYTES {
            let running = inner.running(from, Request::number_of(&request));
            self.0.service.request_threads.run(move || inner.read(from, request, running, reply));
        } else {
            inner.read(from, request, None, reply);
        }
    }

    /// Stops what runs for `server` and ends its cursors.
    fn gone(&self, server: ServerId) {
        self.0.running.stop_all(server);
        self.0.service.cursors.forget(server);
    }
}

impl Inner {
    fn read(
        self: Arc<Self>,
        from: ServerId,
        request: Bytes,
        running: Option<RunningRequest>,
        reply: Responder,
    ) {
        match Request::from_bytes(request) {
            Ok(request) => self.answer(from, request, running, reply),
            Err(invalid) => reply(Err(invalid.to_string())),
        }
    }

    fn answer(
        self: Arc<Self>,
        from: ServerId,
        request: Request,
        running: Option<RunningRequest>,
        reply: Responder,
    ) {
        match request {
            // To confirm who leads may take a while.
            Request::Get { table, mode, keys }
                if keys.len() <= BATCH_KEYS_MAX && mode != ReadMode::Majority =>
            {
                reply(Ok(self.get(table, mode, &keys)));
            }
            Request::Write(write) if self.is_brief(&write) => self.write_one(&write, reply),
            Request::Next { cursor } => self.next((from, cursor), reply),
            Request::Close { cursor: number } | Request::Cancel { ticket: number } => {
                self.stop((from, number));
                reply(Ok(done()));
            }
            Request::StopJob { id } => {
                self.service.jobs.stop(id);
                reply(Ok(done()));
            }
            long => {
                let inner = self.clone();
                // What is done at once is over before anybody could stop it.
                let running = running.or_else(|| self.running(from, long.number()));
                self.service.request_threads.run(move || reply(Ok(inner.answer_accounted(long, running))));
            }
        }
    }

    /// Stops a question and ends its cursor, wherever it is by now: being answered, waiting for the next question, or
    /// still on its way.
    fn stop(&self, key: RequestKey) {
        let is_running = self.running.stop(key);
        // In this order: what is still being read is kept before it is running no more.
        let is_kept = self.service.cursors.take(key).is_some();
        if !is_running && !is_kept {
            self.running.stop_early(key);
        }
    }

    /// From now on a question with a number can be stopped.
    fn running(&self, from: ServerId, number: Option<u64>) -> Option<RunningRequest> {
        number.map(|number| self.running.enter((from, number), Arc::new(Cancel::new())))
    }

    /// What an answer takes is drawn from the node's memory, and given back once it is bytes. A cursor has an
    /// account for as long as it is open.
    fn answer_accounted(&self, request: Request, running: Option<RunningRequest>) -> Bytes {
        match (request, running) {
            (Request::Open { part, eval_params, steps, .. }, Some(running)) => {
                self.open(&running, &part, eval_params, steps)
            }
            (other, running) => {
                let account = Account::new(self.service.memory.clone());
                let _counting = account.enter();
                match running {
                    Some(running) => self.answer_stoppable(other, &running.cancel),
                    None => self.answer_long(other),
                }
            }
        }
    }

    fn answer_stoppable(&self, request: Request, cancel: &Arc<Cancel>) -> Bytes {
        let _cancel_scope = cancel::scope(Some(cancel.clone()));
        match request {
            // Never told as moved: what of it was done already would be done once more.
            Request::Write(write) => self.write(write, cancel.clone()),
            Request::Count { part, .. } => unless_cancelled(cancel, || self.count(&part, cancel.clone())),
            Request::Few { part, .. } => unless_cancelled(cancel, || self.few(&part)),
            Request::Gather { part, eval_params, pipeline, .. } => {
                unless_cancelled(cancel, || self.gather(&part, eval_params, pipeline, cancel.clone()))
            }
            other => self.answer_long(other),
        }
    }

    fn answer_long(&self, request: Request) -> Bytes {
        match request {
            Request::Get { table, mode, keys } => self.get(table, mode, &keys),
            Request::Sync { table, ranges } => self.sync(table, &ranges),
            Request::System { table, identifiers, user } => self.system(&table, identifiers, user),
            _ => done(),
        }
    }

    fn cx(&self, eval_params: EvalParams, cancel: Arc<Cancel>) -> Arc<Cx> {
        Cx::served(self.service.clone(), Text::from_static("admin"), eval_params, cancel)
    }

    /// The table of this id; it is elsewhere as long as this node has not heard of it.
    fn table(&self, table: TableId, mode: ReadMode) -> Response<StoredTable> {
        match self.service.node().catalog_guard().table_by_id(table) {
            Some(handle) => Response::Done(StoredTable { handle: handle.clone(), read_mode: mode }),
            None => Response::NotHere(None),
        }
    }

    /// What is here of a part, all of it or nothing, as `make` makes it.
    fn parts<P>(
        &self,
        part: &TableRanges,
        make: impl Fn(&StoredTable, &Shard, KeyRange) -> Response<P>,
    ) -> Response<Vec<P>> {
        self.table(part.table, part.mode).and_then(|table| {
            let mut parts = Vec::new();
            let mut confirmations = LeaderConfirmations::new(part.mode);
            let ranges = joined_ranges(&part.ranges);
            for (shard, range) in ranges.iter().flat_map(|range| table.handle.covering(range)) {
                match self.service.reader(shard, part.mode) {
                    Some(Target::Local(shard)) if !confirmations.may_read(shard) => {
                        return Response::NotHere(None);
                    }
                    Some(Target::Local(shard)) => {
                        let generation = shard.rows_generation();
                        match make(&table, shard, range) {
                            // Looked at afterwards: rows that are taken away meanwhile are not missing.
                            Response::Done(_) if !shard.is_current(generation) => {
                                return Response::NotHere(None);
                            }
                            Response::Done(part) => parts.push(part),
                            Response::Failed(error) => return Response::Failed(error),
                            Response::NotHere(leader) => return Response::NotHere(leader),
                        }
                    }
                    Some(Target::Remote(server)) => return Response::NotHere(Some(server)),
                    None => return Response::NotHere(None),
                }
            }
            if part.order == KeyOrder::Descending {
                parts.reverse();
            }
            Response::Done(parts)
        })
    }

    fn system(&self, table: &str, identifiers: Identifiers, user: Text) -> Bytes {
        let cx = Cx::served(self.service.clone(), user, EvalParams::none(), Arc::default());
        let rows = match system::table(table) {
            Some(table) => table.rows(&cx, identifiers),
            None => Err(EvalError::internal(format!("there is no system table {table}"))),
        };
        Response::from(rows).to_bytes(Codec::pack)
    }
}

/// Does `work`. What was stopped halfway is lost, not failed: whoever still wants it, because only the link was
/// gone, looks for it anew.
fn unless_cancelled(cancel: &Cancel, work: impl FnOnce() -> Bytes) -> Bytes {
    let lost = || Response::<()>::NotHere(None).to_bytes(|(), _| ());
    if cancel.is_set() {
        return lost();
    }
    let answer = work();
    if cancel.is_set() { lost() } else { answer }
}

/// That something was done which has no result.
fn done() -> Bytes {
    Response::Done(true).to_bytes(Codec::pack)
}
