//! Queries that were asked of a server that hangs while another one leads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcError, RpcHandler, ServerId};
use rekindle_query::QueryServer;
use serde_json::Map;
use support::{ASKER, House, Outcome};

/// A server that hangs would be given up after so long.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// So much earlier everybody has an answer, with time for a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// How long a server that is slow takes.
const SLOW: Duration = Duration::from_secs(4);

/// The second byte of a question that is answered by who does nothing else.
const NEXT: u8 = 6;
/// What the questions are about that are not answered as any other.
const NAME: &[u8] = b"special";

/// The other server, which leads nothing as far as the asker can see.
struct Other {
    desk: QueryServer,
    /// So many of those questions have no answer. While there were some, the server hangs.
    lost: AtomicU8,
    hangs: bool,
}

impl Other {
    /// After how long the question arrives; `None` if it never does.
    fn delay(&self, question: &[u8]) -> Option<Duration> {
        let is_special = question.windows(NAME.len()).any(|bytes| bytes == NAME);
        if !self.hangs {
            return Some(if is_special { SLOW } else { Duration::ZERO });
        }
        let less = |left: u8| left.checked_sub(1);
        let is_lost =
            is_special && self.lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        (!is_lost && question[1] != NEXT).then_some(Duration::ZERO)
    }
}

impl RpcClient for Other {
    fn call(&self, server: ServerId, question: Bytes, patience: Duration, answered: OnResponse) {
        let (desk, delay) = (self.desk.clone(), self.delay(&question));
        std::thread::spawn(move || match delay {
            None => {
                std::thread::sleep(patience.min(HEARTBEAT));
                answered(Err(RpcError::NoAnswer(server)));
            }
            Some(delay) => {
                std::thread::sleep(delay);
                let refused = move |why| RpcError::Refused { server, why };
                desk.handle(ASKER, question, Box::new(move |answer| answered(answer.map_err(refused))));
            }
        });
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// A house with a table of one row.
fn house(hangs: bool, lost: u8) -> House {
    let house = House::asking(|desk| Arc::new(Other { desk, hangs, lost: AtomicU8::new(lost) }));
    run(&house, "r.table_create(\"t\")");
    run(&house, "r.table(\"t\").insert({id: \"row\", n: 7})");
    house
}

fn run(house: &House, term: &str) -> String {
    match house.run("admin", syntax::to_wire(term).unwrap(), Map::new()) {
        Ok(Outcome::Atom(datum)) => datum.to_json_string(),
        Ok(Outcome::Stream(_)) => "a stream".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(house: &House, term: &str, expected: &str) {
    let began = Instant::now();
    assert_eq!(run(house, term), expected);
    assert!(began.elapsed() < SOON, "after {:?}", began.elapsed());
}

const IN_DOUBT: &str = "Cannot perform write: lost contact with primary replica";

#[test]
fn a_read_of_one_row_is_asked_again_when_another_leads() {
    check(&house(true, 2), "r.table(\"t\").get(\"special\")", "null");
}

#[test]
fn a_read_of_many_rows_is_asked_again_when_another_leads() {
    check(&house(true, 1), "r.table(\"t\").sum(x => x[\"n\"].add(x[\"special\"].default(7)))", "14");
    check(&house(true, 1), "r.table(\"t\").get_all(\"special\", \"row\").count()", "1");
}

#[test]
fn a_write_is_in_doubt_when_another_leads() {
    check(&house(true, 1), "r.table(\"t\").get(\"special\").replace({id: \"special\"})", IN_DOUBT);
    check(
        &house(true, 1),
        "r.table(\"t\").insert([{id: \"special\"}, {id: \"other\"}])[\"inserted\"]",
        IN_DOUBT,
    );
}

#[test]
fn a_server_that_is_slow_is_waited_for() {
    let house = house(false, 0);
    check(&house, "r.table(\"t\").insert({id: \"special\"})[\"inserted\"]", "1");
    check(
        &house,
        "r.table(\"t\").insert([{id: \"special\"}, {id: 1}], conflict: \"replace\")[\"unchanged\"]",
        "1",
    );
    check(&house, "r.table(\"t\").get(\"special\")", "{\"id\":\"special\"}");
}
