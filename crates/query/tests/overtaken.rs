//! Questions that arrive after the word that nobody wants their answer any more: long ones leave in parts, which
//! short ones overtake.

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
use support::{ASKER, House, query};

/// The second bytes of questions: that gather, that open a cursor, read on in it and close it, that stop another.
const GATHER: u8 = 4;
const OPEN: u8 = 5;
const NEXT: u8 = 6;
const CLOSE: u8 = 7;
const CANCEL: u8 = 11;
/// The first byte of an answer that says that there is nothing here.
const MOVED: u8 = 2;

const SOON: Duration = Duration::from_secs(30);

/// The way to the other server, on which long questions arrive behind the word that they are not wanted any more.
struct Overtaking {
    desk: QueryServer,
    held: Mutex<Option<Bytes>>,
    /// Told when a long question was asked.
    asked: Sender<()>,
    /// A question that arrived late, and its answer.
    late: Sender<(Bytes, Bytes)>,
}

impl RpcClient for Overtaking {
    fn call(&self, _server: ServerId, question: Bytes, _patience: Duration, answered: OnResponse) {
        let kind = question[1];
        if matches!(kind, GATHER | OPEN) {
            *self.held.lock().unwrap() = Some(question);
            return self.asked.send(()).unwrap();
        }
        self.desk.handle(ASKER, question, Box::new(move |answer| answered(Ok(answer.unwrap()))));
        let held = matches!(kind, CLOSE | CANCEL).then(|| self.held.lock().unwrap().take()).flatten();
        if let Some(held) = held {
            let (late, question) = (self.late.clone(), held.clone());
            let tell = move |answer: Result<Bytes, String>| late.send((question, answer.unwrap())).unwrap();
            self.desk.handle(ASKER, held, Box::new(tell));
        }
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// The question of `term` that arrives after it was stopped, its answer, and who answered.
fn overtaken(term: &str) -> (Bytes, Bytes, House) {
    let ((asked, was_asked), (late, arrived)) = (channel(), channel());
    let house = House::asking(|desk| Arc::new(Overtaking { desk, held: Mutex::default(), asked, late }));
    let run = |term: &str| house.run_long(syntax::to_wire(term).unwrap(), Map::new()).map(drop).unwrap();
    run("r.table_create(\"t\")");
    run("r.table(\"t\").insert(r.range(5000).map(i => ({id: i, pad: \"0123456789\"})))");
    let (cancel, session) = (Arc::new(Cancel::new()), house.session("admin"));
    let query = query(syntax::to_wire(term).unwrap(), Map::new()).unwrap();
    std::thread::scope(|scope| {
        let stopped = cancel.clone();
        scope.spawn(move || {
            was_asked.recv_timeout(SOON).unwrap();
            stopped.set();
        });
        let answer = session.run(&query, cancel).map(|answered| match answered.answer {
            Answer::Stream(mut cursor) => drop(cursor.next_batch()),
            Answer::Atom(_) => {}
        });
        drop(answer);
    });
    let (question, answer) = arrived.recv_timeout(SOON).unwrap();
    (question, answer, house)
}

#[test]
fn a_cursor_that_was_closed_before_it_was_opened_is_not_kept() {
    let (question, answer, house) = overtaken("r.table(\"t\").map(x => x[\"id\"])");
    assert_eq!(answer[0], MOVED);
    let number = question.iter().skip(2).take_while(|byte| **byte >= 0x80).count() + 1;
    let next = [&[question[0], NEXT], &question[2..2 + number]].concat();
    let (told, answer) = channel();
    house.desk.unwrap().handle(ASKER, next.into(), Box::new(move |answer| told.send(answer).unwrap()));
    assert_eq!(answer.recv_timeout(SOON).unwrap().unwrap()[0], MOVED);
}

#[test]
fn what_was_stopped_before_it_was_asked_is_not_worked_out() {
    let (_, answer, _) = overtaken("r.table(\"t\").map(x => x[\"id\"]).sum()");
    assert_eq!(answer[0], MOVED);
}
