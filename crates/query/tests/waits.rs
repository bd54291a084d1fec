//! Queries about one row whose shard is between two leaders.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcError, RpcHandler, ServerId};
use datum::Datum;
use parking_lot::Mutex;
use rekindle_query::{PointAnswer, QueryServer};
use reql::EvalError;
use serde_json::Map;
use support::{ASKER, House, block_on, query};

/// What a node says that does not have what it is asked for, nor knows who does.
const MOVED: &[u8] = &[2, 0];

/// A query gives up the search for its shard after so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Says of some rows, so many times, that they are elsewhere.
struct Moving {
    desk: QueryServer,
    moves: Mutex<BTreeMap<&'static str, usize>>,
}

impl RpcClient for Moving {
    fn call(&self, server: ServerId, question: Bytes, _patience: Duration, answered: OnResponse) {
        let is_about = |name: &str| question.windows(name.len()).any(|bytes| bytes == name.as_bytes());
        for (name, left) in self.moves.lock().iter_mut() {
            if is_about(name) && *left > 0 {
                *left -= 1;
                return answered(Ok(Bytes::from_static(MOVED)));
            }
        }
        let refused = move |why| RpcError::Refused { server, why };
        self.desk.handle(ASKER, question, Box::new(move |answer| answered(answer.map_err(refused))));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// Whoever leads is gone.
struct Gone;

impl RpcClient for Gone {
    fn call(&self, server: ServerId, _question: Bytes, _patience: Duration, answered: OnResponse) {
        answered(Err(RpcError::NotConnected(server)));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        false
    }
}

/// A table whose rows named in `moves` are, so many times, not where they are looked for.
fn house(moves: &[(&'static str, usize)]) -> House {
    let moves = Mutex::new(moves.iter().copied().collect());
    let house = House::asking(|desk| Arc::new(Moving { desk, moves }));
    let term = |term: &str| syntax::to_wire(term).unwrap();
    house.run("admin", term("r.table_create(\"t\")"), Map::new()).unwrap();
    house
}

fn begin(house: &House, term: &str) -> Pin<Box<dyn Future<Output = Result<Datum, EvalError>>>> {
    let term = syntax::to_wire(term).unwrap();
    let answer = house.session("admin").point(&Arc::new(query(term, Map::new()).unwrap()));
    house.service.flush();
    match answer {
        Some(PointAnswer::RemoteRead(read)) => Box::pin(read),
        Some(PointAnswer::Write(write)) => Box::pin(write),
        _ => panic!("this is answered at once, or the long way"),
    }
}

#[test]
fn queries_that_wait_for_a_leader_hold_up_no_others() {
    let house = house(&[("lost", usize::MAX), ("late", 3)]);
    let began = Instant::now();
    // More than there are threads for any purpose.
    let mut lost: Vec<_> = (0..200).map(|_| begin(&house, "r.table(\"t\").get(\"lost\")")).collect();
    let mut context = Context::from_waker(Waker::noop());
    assert!(lost.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending()));
    let written = block_on(begin(&house, "r.table(\"t\").insert({id: \"late\"})")).unwrap();
    assert!(written.to_json_string().contains("\"inserted\":1"), "{}", written.to_json_string());
    let read = block_on(begin(&house, "r.table(\"t\").get(\"late\")")).unwrap();
    assert_eq!(read.to_json_string(), "{\"id\":\"late\"}");
    let still_wait = lost.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending());
    assert!(still_wait || began.elapsed() > PATIENCE, "they wait on");
}

#[test]
fn who_waits_for_a_leader_that_never_comes_is_told() {
    let house = house(&[("lost", usize::MAX)]);
    let queries = ["r.table(\"t\").get(\"lost\")", "r.table(\"t\").get(\"lost\").delete()"];
    let mut answers = queries.map(|query| begin(&house, query));
    // Both wait at the same time.
    let mut context = Context::from_waker(Waker::noop());
    assert!(answers.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending()));
    let errors = answers.map(|answer| block_on(answer).unwrap_err().to_string());
    let sentence =
        |what: &str| format!("Cannot perform {what}: primary replica for shard [\"\", +inf) not available");
    assert_eq!(errors, [sentence("read"), sentence("write")]);
}

#[test]
fn a_leader_that_is_gone_is_looked_for_at_length_by_the_first_query_only() {
    let house = House::asking(|_| Arc::new(Gone));
    let run = |term: &str| match house.run("admin", syntax::to_wire(term).unwrap(), Map::new()) {
        Ok(_) => panic!("{term} was answered"),
        Err(error) => error.to_string(),
    };
    house.run("admin", syntax::to_wire("r.table_create(\"t\")").unwrap(), Map::new()).unwrap();
    let (read, write) = ["read", "write"]
        .map(|what| format!("Cannot perform {what}: primary replica for shard [\"\", +inf) not available"))
        .into();
    let began = Instant::now();
    assert_eq!(run("r.table(\"t\").get(1)"), read);
    assert!(began.elapsed() >= PATIENCE, "an election may be under way");
    for (term, expected) in [
        ("r.table(\"t\").get(1)", &read),
        ("r.table(\"t\").insert({id: 1})", &write),
        ("r.table(\"t\").insert([{id: 1}, {id: 2}])", &write),
        ("r.table(\"t\").count()", &read),
        ("r.table(\"t\").sum(\"n\")", &read),
        ("r.table(\"t\").limit(1)", &read),
        ("r.table(\"t\").update({n: 1})", &read),
    ] {
        let began = Instant::now();
        assert_eq!(&run(term), expected, "{term}");
        assert!(began.elapsed() < PATIENCE, "{term} took {:?}", began.elapsed());
    }
}
