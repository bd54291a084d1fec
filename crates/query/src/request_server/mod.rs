//! The server for requests of other nodes. It uses the code that serves this node's own queries.
//!
//! Reads and writes of one row run on the thread that received the request if the row is in memory, else on a reader
//! thread; all other requests on threads of a pool.
//! The sending node has checked the permissions of the user.

mod cursors;
mod local_shards;
mod reads;
mod running;
mod writes;

use std::sync::Arc;

use bytes::Bytes;
use cluster::{Responder, RpcHandler, ServerId};
use datum::{Text, cancel};
use io::memory::Account;
use reql::codec::Codec;
use reql::{Cancel, EvalError};
use storage::Reach;

use self::local_shards::LocalShards;
use self::running::{RequestKey, RunningRequest, RunningRequests};
use crate::context::{Cx, EvalParams};
use crate::remote::{Request, Response};
use crate::routing::{BATCH_KEYS_MAX, ReadMode};
use crate::service::Service;
use crate::system;
use crate::table::Identifiers;

/// A longer request is decoded on a thread of the pool.
const INLINE_BYTES: usize = 32 << 10;
/// Serves requests of other nodes.
#[derive(Clone)]
pub struct QueryServer(Arc<Inner>);

struct Inner {
    shards: LocalShards,
    /// Running requests that can be cancelled.
    requests: Arc<RunningRequests>,
}

impl QueryServer {
    /// Serves the tables of `service`.
    #[must_use]
    pub fn new(service: Arc<Service>) -> QueryServer {
        QueryServer(Arc::new(Inner { shards: LocalShards { service }, requests: Arc::default() }))
    }
}

impl RpcHandler for QueryServer {
    fn handle(&self, from: ServerId, request: Bytes, reply: Responder) {
        let inner = self.0.clone();
        if request.len() > INLINE_BYTES {
            let running = inner.register(from, Request::number_of(&request));
            self.0.shards.service.request_threads.run(move || inner.read(from, request, running, reply));
        } else {
            inner.read(from, request, None, reply);
        }
    }

    /// Cancels the requests of `server` and closes its cursors.
    fn disconnected(&self, server: ServerId) {
        self.0.requests.cancel_all(server);
        self.0.shards.service.cursors.forget(server);
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
            Ok(request) => self.dispatch(from, request, running, reply),
            Err(invalid) => reply(Err(invalid.to_string())),
        }
    }

    fn dispatch(
        self: Arc<Self>,
        from: ServerId,
        request: Request,
        running: Option<RunningRequest>,
        reply: Responder,
    ) {
        match request {
            // The confirmation of the leader may take a while.
            Request::Get { table, mode, keys }
                if keys.len() <= BATCH_KEYS_MAX && mode != ReadMode::Majority =>
            {
                match reads::get_in_memory(&self.shards, table, mode, &keys) {
                    Some(response) => reply(Ok(response)),
                    None => {
                        let shards = self.shards.clone();
                        let read = move || reply(Ok(reads::get_from_disk(&shards, table, mode, &keys)));
                        self.shards.service.readers.run(read);
                    }
                }
            }
            Request::Write(write) if writes::is_brief(&self.shards, &write) => {
                writes::write_one(&self.shards, write, Reach::Memory, reply)
            }
            Request::Next { cursor } => cursors::next(&self.shards, &self.requests, (from, cursor), reply),
            Request::Close { cursor: number } | Request::Cancel { ticket: number } => {
                self.stop((from, number));
                reply(Ok(done()));
            }
            Request::StopJob { id } => {
                self.shards.service.jobs.stop(id);
                reply(Ok(done()));
            }
            long => {
                let inner = self.clone();
                // Requests that run at once are done before they could be cancelled.
                let running = running.or_else(|| self.register(from, long.number()));
                self.shards
                    .service
                    .request_threads
                    .run(move || reply(Ok(inner.respond_accounted(long, running))));
            }
        }
    }

    /// Cancels a request and closes its cursor: it may be running, kept for the next request, or not arrived yet.
    fn stop(&self, key: RequestKey) {
        let is_running = self.requests.cancel(key);
        // The order matters: a cursor that is being read is kept before it stops running.
        let is_kept = self.shards.service.cursors.take(key).is_some();
        if !is_running && !is_kept {
            self.requests.cancel_early(key);
        }
    }

    /// Registers a request with a number, so that it can be cancelled.
    fn register(&self, from: ServerId, number: Option<u64>) -> Option<RunningRequest> {
        number.map(|number| self.requests.register((from, number), Arc::new(Cancel::new())))
    }

    /// Responds with memory from the node's budget, which is given back once the response is encoded. A cursor has an
    /// account while it is open.
    fn respond_accounted(&self, request: Request, running: Option<RunningRequest>) -> Bytes {
        match (request, running) {
            (Request::Open { part, eval_params, steps, .. }, Some(running)) => {
                cursors::open(&self.shards, &running, &part, eval_params, steps)
            }
            (other, running) => {
                let account = Account::new(self.shards.service.memory.clone());
                let _counting = account.enter();
                match running {
                    Some(running) => self.respond_cancellable(other, &running.cancel),
                    None => self.respond(other),
                }
            }
        }
    }

    fn respond_cancellable(&self, request: Request, cancel: &Arc<Cancel>) -> Bytes {
        let _cancel_scope = cancel::scope(Some(cancel.clone()));
        match request {
            // Not `unless_cancelled`: its response lets the sender repeat the request, and with it the writes that were
            // done before the cancellation.
            Request::Write(write) => writes::write(&self.shards, write, cancel.clone()),
            Request::Count { part, .. } => {
                unless_cancelled(cancel, || reads::count(&self.shards, &part, cancel.clone()))
            }
            Request::Few { part, .. } => unless_cancelled(cancel, || reads::few(&self.shards, &part)),
            Request::Gather { part, eval_params, pipeline, .. } => unless_cancelled(cancel, || {
                reads::gather(&self.shards, &part, eval_params, pipeline, cancel.clone())
            }),
            other => self.respond(other),
        }
    }

    fn respond(&self, request: Request) -> Bytes {
        match request {
            Request::Get { table, mode, keys } => {
                let response = reads::get_in_memory(&self.shards, table, mode, &keys);
                response.unwrap_or_else(|| reads::get_from_disk(&self.shards, table, mode, &keys))
            }
            Request::Sync { table, ranges } => writes::sync(&self.shards, table, &ranges),
            Request::System { table, identifiers, user } => self.system(&table, identifiers, user),
            _ => done(),
        }
    }

    fn system(&self, table: &str, identifiers: Identifiers, user: Text) -> Bytes {
        let cx = Cx::served(self.shards.service.clone(), user, EvalParams::none(), Arc::default());
        let rows = match system::table(table) {
            Some(table) => table.rows(&cx, identifiers),
            None => Err(EvalError::internal(format!("there is no system table {table}"))),
        };
        Response::from(rows).to_bytes(Codec::pack)
    }
}

/// Runs `work`. The response to a cancelled request is that the shard is not here: if the sender still wants it,
/// because only the link was closed, it tries again.
fn unless_cancelled(cancel: &Cancel, work: impl FnOnce() -> Bytes) -> Bytes {
    let not_here = || Response::<()>::NotHere(None).to_bytes(|(), _| ());
    if cancel.is_set() {
        return not_here();
    }
    let answer = work();
    if cancel.is_set() { not_here() } else { answer }
}

/// The response of a request without a result.
fn done() -> Bytes {
    Response::Done(true).to_bytes(Codec::pack)
}
