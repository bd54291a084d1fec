//! Runs the operations of clients on the leader of their document, local or remote, like a small `query` crate.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use cluster::{Core, Node, Responder, Route, RpcError, RpcHandler, ServerId, TableHandle};
use datum::Object;
use io::task;
use log::Refusal;
use shard::{Decision, Shard, WriteError, WriteRefusal};

use crate::history::{Document, Kind, Mode, Op, Outcome, field, row};

/// How long an operation is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const RPC_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Serves the operations that other nodes forward.
pub struct Executor(Weak<Node>);

enum Attempt {
    Finished(Outcome),
    /// Not executed: the leader is another server, if known.
    NotHere(Option<ServerId>),
}

impl Executor {
    #[must_use]
    pub fn new(node: &Arc<Node>) -> Executor {
        Executor(Arc::downgrade(node))
    }
}

impl RpcHandler for Executor {
    fn handle(&self, _from: ServerId, request: Bytes, reply: Responder) {
        let Some(node) = self.0.upgrade() else { return };
        let work = move || {
            let response = match decode(&request) {
                Some(op) => encode_attempt(&here(&node, &op)),
                None => return reply(Err("no operation".to_owned())),
            };
            reply(Ok(response));
        };
        // Without a thread there is no response.
        drop(task::spawn("operation", work));
    }
}

/// Runs `op` for a client of `node`.
pub fn perform(node: &Core, op: &Op) -> Outcome {
    let deadline = task::now() + RETRY_TIMEOUT;
    loop {
        node.await_change();
        let catalog = node.catalog();
        let Some(table) = catalog.table("test", &op.document.table).cloned() else {
            return Outcome::Refused("there is no such table".to_owned());
        };
        match attempt(node, &table, op) {
            Attempt::Finished(outcome) => return outcome,
            Attempt::NotHere(_) if task::now() > deadline => {
                return Outcome::Refused("no leader".to_owned());
            }
            Attempt::NotHere(_) => {}
        }
        drop(catalog);
        task::sleep(RETRY_INTERVAL);
        node.leaders().find_leaders(&table.shards().iter().collect::<Vec<_>>());
    }
}

fn attempt(node: &Core, table: &TableHandle, op: &Op) -> Attempt {
    let handle = table.shard(&op.document.key());
    tracing::trace!("operation {} finds {:?} leading", op.number, handle.known_leader().leader());
    let route = match op.kind {
        Kind::Read(Mode::Outdated) => handle.nearest(|server| node.is_connected(server)),
        _ => handle.leader(),
    };
    match route {
        None => Attempt::NotHere(None),
        Some(Route::Local(shard)) => execute(node, shard, op),
        Some(Route::Remote(server)) => {
            let Some(wire) = node.query_client() else { return Attempt::NotHere(None) };
            let (sender, receiver) = task::channel();
            let on_response = Box::new(move |response| drop(sender.send(response)));
            wire.call(server, encode(op), RPC_TIMEOUT, on_response);
            let attempt = match receiver.recv() {
                Ok(Ok(bytes)) => match decode_attempt(&bytes) {
                    Some(done) => done,
                    None => Attempt::Finished(Outcome::Unknown("malformed response".to_owned())),
                },
                Ok(Err(RpcError::NotConnected(_) | RpcError::Refused { .. })) => Attempt::NotHere(None),
                Ok(Err(RpcError::NoResponse(_))) | Err(task::Disconnected) => match op.kind {
                    Kind::Read(_) => Attempt::NotHere(None),
                    _ => Attempt::Finished(Outcome::Unknown("no response".to_owned())),
                },
            };
            match (&attempt, op.kind) {
                (Attempt::Finished(_), _) | (_, Kind::Read(Mode::Outdated)) => {}
                (Attempt::NotHere(leader), _) => handle.report_not_leader(server, *leader),
            }
            attempt
        }
    }
}

/// Runs it if the local replica of the document may.
fn here(node: &Core, op: &Op) -> Attempt {
    let catalog = node.catalog();
    let Some(table) = catalog.table("test", &op.document.table) else { return Attempt::NotHere(None) };
    let handle = table.shard(&op.document.key());
    match (handle.local(), op.kind) {
        (Some(near), Kind::Read(Mode::Outdated)) if !near.is_recovering() => execute(node, near, op),
        (Some(near), _) if near.is_leader() => execute(node, near, op),
        _ => Attempt::NotHere(handle.known_leader().leader()),
    }
}

fn execute(node: &Core, shard: &Shard, op: &Op) -> Attempt {
    match op.kind {
        Kind::Read(mode) => {
            if mode == Mode::Majority
                && let Err(why) = shard.confirm().wait()
            {
                tracing::trace!("operation {} is not confirmed: {why}", op.number);
                return Attempt::NotHere(None);
            }
            match shard.get(&op.document.key()) {
                Ok(row) => Attempt::Finished(Outcome::Done(Some(field(row.as_ref(), "value")))),
                Err(_) => Attempt::NotHere(None),
            }
        }
        Kind::Put | Kind::Swap | Kind::Add => write(node, shard, op),
    }
}

fn write(node: &Core, shard: &Shard, op: &Op) -> Attempt {
    let durability = node.catalog().table("test", &op.document.table).map(|table| table.config.durability);
    let durability = durability.unwrap_or(log::Durability::Hard);
    let decide = |old: Option<&Object>| {
        let (value, count) = (field(old, "value"), field(old, "count"));
        let new = match op.kind {
            Kind::Add => row(&op.document, value, count + 1),
            _ => row(&op.document, op.number, count),
        };
        (Decision::Put(new), value)
    };
    let written = shard.write(&op.document.key(), durability, decide);
    let outcome = written.and_then(|(old, ticket)| ticket.wait().map(|_| old));
    match outcome {
        Ok(old) => Attempt::Finished(Outcome::Done((op.kind == Kind::Swap).then_some(old))),
        Err(WriteError::Indeterminate { cause }) => Attempt::Finished(Outcome::Unknown(cause.to_string())),
        Err(WriteError::Definite { cause: WriteRefusal::Log(Refusal::NotLeader { leader }) }) => {
            Attempt::NotHere(leader.and_then(|peer| node.server_of(peer)))
        }
        // Report some refusals at once: the history check then proves that the write took no effect.
        Err(WriteError::Definite { cause }) if op.number.is_multiple_of(4) => {
            Attempt::Finished(Outcome::Refused(cause.to_string()))
        }
        // No effect: a retry is invisible to the client.
        Err(WriteError::Definite { .. }) => Attempt::NotHere(None),
    }
}

fn encode(op: &Op) -> Bytes {
    let kind = match op.kind {
        Kind::Read(Mode::Majority) => "m",
        Kind::Read(Mode::Single) => "s",
        Kind::Read(Mode::Outdated) => "o",
        Kind::Put => "p",
        Kind::Swap => "w",
        Kind::Add => "a",
    };
    Bytes::from(format!("{} {kind} {} {}", op.number, op.document.number, op.document.table))
}

fn decode(bytes: &[u8]) -> Option<Op> {
    let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
    let number = words.next()?.parse().ok()?;
    let kind = match words.next()? {
        "m" => Kind::Read(Mode::Majority),
        "s" => Kind::Read(Mode::Single),
        "o" => Kind::Read(Mode::Outdated),
        "p" => Kind::Put,
        "w" => Kind::Swap,
        "a" => Kind::Add,
        _ => return None,
    };
    let (document, table) = (words.next()?.parse().ok()?, words.next()?.to_owned());
    Some(Op { number, document: Document { table, number: document }, kind })
}

fn encode_attempt(attempt: &Attempt) -> Bytes {
    Bytes::from(match attempt {
        Attempt::Finished(Outcome::Done(value)) => {
            format!("d {}", value.map_or_else(String::new, |v| v.to_string()))
        }
        Attempt::Finished(Outcome::Refused(why)) => format!("r {why}"),
        Attempt::Finished(Outcome::Unknown(why)) => format!("u {why}"),
        Attempt::NotHere(leader) => format!("e {}", leader.map_or_else(String::new, |s| s.to_string())),
    })
}

fn decode_attempt(bytes: &[u8]) -> Option<Attempt> {
    let (kind, rest) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    Some(match kind {
        "d" => Attempt::Finished(Outcome::Done(rest.parse().ok())),
        "r" => Attempt::Finished(Outcome::Refused(rest.to_owned())),
        "u" => Attempt::Finished(Outcome::Unknown(rest.to_owned())),
        "e" => Attempt::NotHere(uuid::Uuid::parse_str(rest).ok().map(ServerId)),
        _ => return None,
    })
}
