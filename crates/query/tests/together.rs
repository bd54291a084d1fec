//! Reads of rows on another node that are begun before the same turn travel together.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcError, RpcHandler, ServerId};
use parking_lot::Mutex;
use rekindle_query::{PointAnswer, QueryServer, RemotePoint};
use serde_json::Map;
use support::{ASKER, House, block_on, query};

/// The second byte of a question for rows.
const GET: u8 = 1;

/// What is answered to a question for rows before anybody looks at it.
type Trick = fn(&Bytes) -> Option<Result<Bytes, RpcError>>;

/// Counts the questions for rows.
struct Counting {
    desk: QueryServer,
    asked: Arc<Mutex<usize>>,
    trick: Trick,
}

impl RpcClient for Counting {
    fn call(&self, server: ServerId, question: Bytes, _patience: Duration, answered: OnResponse) {
        if question[1] == GET {
            *self.asked.lock() += 1;
            if let Some(answer) = (self.trick)(&question) {
                return answered(answer);
            }
        }
        let refused = move |why| RpcError::Refused { server, why };
        self.desk.handle(ASKER, question, Box::new(move |answer| answered(answer.map_err(refused))));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// A house that asks another one for the even ones of 80 rows, and what counts its questions.
fn house(trick: Trick) -> (House, Arc<Mutex<usize>>) {
    let asked = Arc::<Mutex<usize>>::default();
    let counted = asked.clone();
    let house = House::asking(|desk| Arc::new(Counting { desk, asked: counted, trick }));
    let rows =
        "r.table(\"t\").insert(r.range(40).map(row => ({id: row.mul(2), n: row})).coerce_to(\"array\"))";
    for term in ["r.table_create(\"t\")", rows] {
        house.run("admin", syntax::to_wire(term).unwrap(), Map::new()).unwrap();
    }
    *asked.lock() = 0;
    (house, asked)
}

fn begin(house: &House, key: usize) -> RemotePoint {
    let term = syntax::to_wire(&format!("r.table(\"t\").get({key})")).unwrap();
    match house.session("admin").point(&Arc::new(query(term, Map::new()).unwrap())) {
        Some(PointAnswer::RemoteRead(read)) => read,
        _ => panic!("every row is elsewhere"),
    }
}

/// Reads rows 0 to `count`, all begun before one turn, and checks each; how many questions that took.
fn read(house: &House, asked: &Mutex<usize>, count: usize) -> usize {
    read_these(house, asked, 0..count)
}

fn read_these(house: &House, asked: &Mutex<usize>, keys: impl Iterator<Item = usize>) -> usize {
    let reads: Vec<(usize, RemotePoint)> = keys.map(|key| (key, begin(house, key))).collect();
    house.service.flush();
    for (key, read) in reads {
        let wanted = match key % 2 {
            0 => format!("{{\"id\":{key},\"n\":{}}}", key / 2),
            _ => "null".to_owned(),
        };
        assert_eq!(block_on(read).unwrap().to_json_string(), wanted);
    }
    std::mem::take(&mut *asked.lock())
}

#[test]
fn reads_of_one_turn_are_one_question_for_sixteen_of_them() {
    let (house, asked) = house(|_| None);
    assert_eq!([1, 16, 17, 40].map(|count| read(&house, &asked, count)), [1, 1, 2, 3]);
}

#[test]
fn a_row_that_many_read_in_one_turn_is_asked_for_once() {
    let (house, asked) = house(|_| None);
    let of = |rows: usize| (0..1000).map(move |read| (read * 7) % rows);
    assert_eq!([1, 2, 15, 17].map(|rows| read_these(&house, &asked, of(rows))), [1, 1, 1, 63]);
}

#[test]
fn rows_that_are_asked_for_together_need_not_be_of_one_table_or_as_fresh() {
    let (house, asked) = house(|_| None);
    house.run("admin", syntax::to_wire("r.table_create(\"u\")").unwrap(), Map::new()).unwrap();
    let terms =
        ["r.table(\"t\").get(2)", "r.table(\"u\").get(2)", "r.table(\"t\", read_mode: \"outdated\").get(2)"];
    let reads = terms.map(|term| {
        let query = query(syntax::to_wire(term).unwrap(), Map::new()).unwrap();
        match house.session("admin").point(&Arc::new(query)) {
            Some(PointAnswer::RemoteRead(read)) => read,
            _ => panic!("every row is elsewhere"),
        }
    });
    house.service.flush();
    let rows = reads.map(|read| block_on(read).unwrap().to_json_string());
    assert_eq!(rows, ["{\"id\":2,\"n\":1}", "null", "{\"id\":2,\"n\":1}"]);
    assert_eq!(*asked.lock(), 3);
}

/// Whether a question asks for more than one row, as these keys are.
fn is_for_many(question: &Bytes) -> bool {
    question.len() > 60
}

#[test]
fn what_cannot_be_answered_together_is_asked_alone() {
    const MOVED: &[u8] = &[2, 0];
    const NO_ROWS: &[u8] = &[0, 0];
    const DAMAGED: &[u8] = &[77];
    let tricks: [Trick; 3] = [
        |question| is_for_many(question).then_some(Ok(Bytes::from_static(MOVED))),
        |question| is_for_many(question).then_some(Ok(Bytes::from_static(NO_ROWS))),
        |question| is_for_many(question).then_some(Ok(Bytes::from_static(DAMAGED))),
    ];
    for trick in tricks {
        let (house, asked) = house(trick);
        assert_eq!(read(&house, &asked, 1), 1);
        assert_eq!(read(&house, &asked, 10), 1 + 10);
    }
}

#[test]
fn a_question_that_is_lost_is_asked_again_for_each() {
    let (house, asked) =
        house(|question| is_for_many(question).then_some(Err(RpcError::NoAnswer(support::ANSWERER))));
    assert_eq!(read(&house, &asked, 10), 1 + 10);
}
