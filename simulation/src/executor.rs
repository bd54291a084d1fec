//! How a client's operation is carried out: where its document is led from, near or far, as queries do
//! it, in as few words as that takes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use cluster::{Core, Node, Responder, Route, RpcError, RpcHandler, ServerId, TableHandle};
use datum::Object;
use io::task;
use log::Refusal;
use shard::{Decision, Shard, WriteError, WriteRefusal};

use crate::history::{Document, Kind, Mode, Op, Outcome, field, row};

/// How long a document is looked for.
const SEARCH: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Answers the operations that other nodes send on.
pub struct Executor(Weak<Node>);

/// One attempt.
enum Tried {
    Is(Outcome),
    /// Not here, nothing happened; perhaps there.
    Elsewhere(Option<ServerId>),
}

impl Executor {
    /// The site of a node.
    #[must_use]
    pub fn new(node: &Arc<Node>) -> Executor {
        Executor(Arc::downgrade(node))
    }
}

impl RpcHandler for Executor {
    fn serve(&self, _from: ServerId, question: Bytes, reply: Responder) {
        let Some(node) = self.0.upgrade() else { return };
        let work = move || {
            let answer = match decode(&question) {
                Some(op) => encode_tried(&here(&node, &op)),
                None => return reply(Err("no operation".to_owned())),
            };
            reply(Ok(answer));
        };
        // No thread, no answer.
        drop(task::spawn("operation", work));
    }
}

/// Carries out `op` for a client of `node`.
pub fn perform(node: &Core, op: &Op) -> Outcome {
    let deadline = task::now() + SEARCH;
    loop {
        node.await_change();
        let catalog = node.catalog();
        let Some(table) = catalog.table("test", &op.document.table).cloned() else {
            return Outcome::Refused("the table is not there".to_owned());
        };
        match attempt(node, &table, op) {
            Tried::Is(outcome) => return outcome,
            Tried::Elsewhere(_) if task::now() > deadline => {
                return Outcome::Refused("nobody leads".to_owned());
            }
            Tried::Elsewhere(_) => {}
        }
        drop(catalog);
        task::sleep(PAUSE);
        node.find_leaders(&table.shards().iter().collect::<Vec<_>>());
    }
}

fn attempt(node: &Core, table: &TableHandle, op: &Op) -> Tried {
    let handle = table.shard(&op.document.key());
    tracing::trace!("operation {} finds {:?} leading", op.number, handle.lead().leader());
    let route = match op.kind {
        Kind::Read(Mode::Outdated) => handle.nearest(|server| node.is_connected(server)),
        _ => handle.leader(),
    };
    match route {
        None => Tried::Elsewhere(None),
        Some(Route::Local(shard)) => carry_out(node, shard, op),
        Some(Route::Remote(server)) => {
            let Some(wire) = node.query_wire() else { return Tried::Elsewhere(None) };
            let (sender, receiver) = task::channel();
            let answered = Box::new(move |answer| drop(sender.send(answer)));
            wire.ask(server, encode(op), PATIENCE, answered);
            let tried = match receiver.recv() {
                Ok(Ok(bytes)) => match decode_tried(&bytes) {
                    Some(done) => done,
                    None => Tried::Is(Outcome::Unknown("nonsense".to_owned())),
                },
                Ok(Err(RpcError::NotConnected(_) | RpcError::Refused { .. })) => Tried::Elsewhere(None),
                Ok(Err(RpcError::NoAnswer(_))) | Err(task::Disconnected) => match op.kind {
                    Kind::Read(_) => Tried::Elsewhere(None),
                    _ => Tried::Is(Outcome::Unknown("no answer".to_owned())),
                },
            };
            match (&tried, op.kind) {
                (Tried::Is(_), _) | (_, Kind::Read(Mode::Outdated)) => {}
                (Tried::Elsewhere(leader), _) => handle.not_led_by(server, *leader),
            }
            tried
        }
    }
}

/// Carries it out if the document's replica here may.
fn here(node: &Core, op: &Op) -> Tried {
    let catalog = node.catalog();
    let Some(table) = catalog.table("test", &op.document.table) else { return Tried::Elsewhere(None) };
    let handle = table.shard(&op.document.key());
    match (handle.near(), op.kind) {
        (Some(near), Kind::Read(Mode::Outdated)) if !near.is_recovering() => carry_out(node, near, op),
        (Some(near), _) if near.is_leader() => carry_out(node, near, op),
        _ => Tried::Elsewhere(handle.lead().leader()),
    }
}

fn carry_out(node: &Core, shard: &Shard, op: &Op) -> Tried {
    match op.kind {
        Kind::Read(mode) => {
            if mode == Mode::Majority
                && let Err(why) = shard.confirm().wait()
            {
                tracing::trace!("operation {} is not confirmed: {why}", op.number);
                return Tried::Elsewhere(None);
            }
            match shard.get(&op.document.key()) {
                Ok(row) => Tried::Is(Outcome::Done(Some(field(row.as_ref(), "value")))),
                Err(_) => Tried::Elsewhere(None),
            }
        }
        Kind::Put | Kind::Swap | Kind::Add => write(node, shard, op),
    }
}

fn write(node: &Core, shard: &Shard, op: &Op) -> Tried {
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
        Ok(old) => Tried::Is(Outcome::Done((op.kind == Kind::Swap).then_some(old))),
        Err(WriteError::Indeterminate { cause }) => Tried::Is(Outcome::Unknown(cause.to_string())),
        Err(WriteError::Definite { cause: WriteRefusal::Log(Refusal::NotLeader { leader }) }) => {
            Tried::Elsewhere(leader.and_then(|peer| node.server_of(peer)))
        }
        // Some clients hear of it at once; it must be true.
        Err(WriteError::Definite { cause }) if op.number.is_multiple_of(4) => {
            Tried::Is(Outcome::Refused(cause.to_string()))
        }
        // Nothing happened: it may be tried again, which a client of a query would not notice.
        Err(WriteError::Definite { .. }) => Tried::Elsewhere(None),
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

fn encode_tried(tried: &Tried) -> Bytes {
    Bytes::from(match tried {
        Tried::Is(Outcome::Done(value)) => format!("d {}", value.map_or_else(String::new, |v| v.to_string())),
        Tried::Is(Outcome::Refused(why)) => format!("r {why}"),
        Tried::Is(Outcome::Unknown(why)) => format!("u {why}"),
        Tried::Elsewhere(leader) => format!("e {}", leader.map_or_else(String::new, |s| s.to_string())),
    })
}

fn decode_tried(bytes: &[u8]) -> Option<Tried> {
    let (kind, rest) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    Some(match kind {
        "d" => Tried::Is(Outcome::Done(rest.parse().ok())),
        "r" => Tried::Is(Outcome::Refused(rest.to_owned())),
        "u" => Tried::Is(Outcome::Unknown(rest.to_owned())),
        "e" => Tried::Elsewhere(uuid::Uuid::parse_str(rest).ok().map(ServerId)),
        _ => return None,
    })
}
