//! Requests that arrive after their cancellation: long requests are sent in parts, and short ones overtake them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcHandler, ServerId};
use rekindle_query::{Answer, QueryServer};
use reql::Cancel;
use serde_json::Map;
use support::{SENDER, TestNode, query};

/// The second bytes of requests that gather, open a cursor, read its next batch, close it, and cancel a request.
const GATHER: u8 = 4;
const OPEN: u8 = 5;
const NEXT: u8 = 6;
const CLOSE: u8 = 7;
const CANCEL: u8 = 11;
/// The first byte of a response of a node that does not have the shard.
const NOT_HERE: u8 = 2;

const SOON: Duration = Duration::from_secs(30);

/// A client on which long requests arrive after their cancellation.
struct OvertakingClient {
    server: QueryServer,
    held: Mutex<Option<Bytes>>,
    /// Notified when a long request was sent.
    asked: Sender<()>,
    /// A late request, and its response.
    late: Sender<(Bytes, Bytes)>,
}

impl RpcClient for OvertakingClient {
    fn call(&self, _server: ServerId, request: Bytes, _timeout: Duration, on_response: OnResponse) {
        let kind = request[1];
        if matches!(kind, GATHER | OPEN) {
            *self.held.lock().unwrap() = Some(request);
            return self.asked.send(()).unwrap();
        }
        self.server.handle(SENDER, request, Box::new(move |answer| on_response(Ok(answer.unwrap()))));
        let held = matches!(kind, CLOSE | CANCEL).then(|| self.held.lock().unwrap().take()).flatten();
        if let Some(held) = held {
            let (late, request) = (self.late.clone(), held.clone());
            let tell = move |answer: Result<Bytes, String>| late.send((request, answer.unwrap())).unwrap();
            self.server.handle(SENDER, held, Box::new(tell));
        }
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// The request of `term` that arrives after it was cancelled, its response, and the node.
fn overtaken(term: &str) -> (Bytes, Bytes, TestNode) {
    let ((asked, was_asked), (late, arrived)) = (channel(), channel());
    let test_node = TestNode::with_client(|server| {
        Arc::new(OvertakingClient { server, held: Mutex::default(), asked, late })
    });
    let run =
        |term: &str| test_node.run_slow_path(syntax::to_wire(term).unwrap(), Map::new()).map(drop).unwrap();
    run("r.table_create(\"t\")");
    run("r.table(\"t\").insert(r.range(5000).map(i => ({id: i, pad: \"0123456789\"})))");
    let (cancel, session) = (Arc::new(Cancel::new()), test_node.session("admin"));
    let query = query(syntax::to_wire(term).unwrap(), Map::new()).unwrap();
    std::thread::scope(|scope| {
        let stopped = cancel.clone();
        scope.spawn(move || {
            was_asked.recv_timeout(SOON).unwrap();
            stopped.set();
        });
        let answer = session.run(&query, cancel).map(|on_response| match on_response.answer {
            Answer::Stream(mut cursor) => drop(cursor.next_batch()),
            Answer::Atom(_) => {}
        });
        drop(answer);
    });
    let (request, answer) = arrived.recv_timeout(SOON).unwrap();
    (request, answer, test_node)
}

#[test]
fn a_cursor_closed_before_its_opening_is_not_kept() {
    let (request, answer, test_node) = overtaken("r.table(\"t\").map(x => x[\"id\"])");
    assert_eq!(answer[0], NOT_HERE);
    let number = request.iter().skip(2).take_while(|byte| **byte >= 0x80).count() + 1;
    let next = [&[request[0], NEXT], &request[2..2 + number]].concat();
    let (told, answer) = channel();
    test_node.server.unwrap().handle(SENDER, next.into(), Box::new(move |answer| told.send(answer).unwrap()));
    assert_eq!(answer.recv_timeout(SOON).unwrap().unwrap()[0], NOT_HERE);
}

#[test]
fn a_request_cancelled_before_its_arrival_is_not_evaluated() {
    let (_, answer, _) = overtaken("r.table(\"t\").map(x => x[\"id\"]).sum()");
    assert_eq!(answer[0], NOT_HERE);
}
