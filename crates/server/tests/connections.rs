//! Connections from a driver's point of view: which queries are answered, when, and with what.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use io::memory::{Budget, Owner};
use protocol::{Token, frame};
use rekindle_server::service::Client;
use support::{Echo, TestClient, TestNode, start, start_with, start_with_links};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

const EMPTY: &str = r#"{"t":2,"r":[],"n":[]}"#;

fn saying(text: &str) -> String {
    format!(r#"{{"t":1,"r":["{text}"]}}"#)
}

#[test]
fn a_slow_query_does_not_hold_up_the_next() {
    let shared = start(1);
    let mut client = shared.client();
    client.send(1, r#"[1,["think","a"],{}]"#);
    client.send(2, r#"[1,["log","b"],{}]"#);
    assert_eq!(client.ask(3, r#"[1,["say","c"],{}]"#), saying("c"));
    shared.gates.open("b");
    assert_eq!(client.next(), (2, saying("b")));
    shared.gates.open("a");
    assert_eq!(client.next(), (1, saying("a")));
}

#[test]
fn a_client_that_does_not_finish_its_handshake_is_disconnected() {
    let shared = start_with(1, |shared| shared.handshake_timeout = Duration::from_millis(100));
    let mut known = shared.client();
    let mut silent = TestClient::raw(shared.address);
    let mut halfway = TestClient::raw(shared.address);
    halfway.stream.write_all(&0x34c2_bdc3_u32.to_le_bytes()).unwrap();
    assert!(silent.is_closed());
    halfway.skip_to_end();
    assert_eq!(known.ask(1, r#"[1,["say","still here"],{}]"#), saying("still here"));
}

#[test]
fn queries_sent_together_are_all_answered() {
    let shared = start(2);
    let mut client = shared.client();
    let mut bytes = Vec::new();
    for token in 0..5000 {
        protocol::frame::write(&mut bytes, protocol::Token(token), br#"[1,["say","x"],{}]"#).unwrap();
    }
    let mut writer = client.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    for token in 0..5000 {
        assert_eq!(client.next(), (token, saying("x")));
    }
    writing.join().unwrap();
}

#[test]
fn a_long_query_is_read_completely_and_answered() {
    let shared = start(1);
    let mut client = shared.client();
    for megabytes in [1, 20] {
        let text = "z".repeat(megabytes << 20);
        assert!(client.ask(1, &format!(r#"[1,["say","{text}"],{{}}]"#)) == saying(&text), "{megabytes} MB");
    }
}

#[test]
fn the_service_is_driven_for_writes_that_wait_for_the_log() {
    // A long query is parsed on a thread of the pool.
    for spaces in [0, 100 << 10] {
        let shared = start(1);
        let mut client = shared.client();
        let query = format!(r#"[1,["log","driven"],{{}}{}]"#, " ".repeat(spaces));
        assert_eq!(client.ask(1, &query), saying("driven"));
    }
}

#[test]
fn a_token_in_use_is_refused() {
    let shared = start(1);
    let mut client = shared.client();
    client.send(7, r#"[1,["think","a"],{}]"#);
    let refusal = r#"{"t":16,"r":["ERROR: duplicate token 7"],"b":[]}"#;
    assert_eq!(client.ask(7, r#"[1,["say","x"],{}]"#), refusal);
    shared.gates.open("a");
    assert_eq!(client.next(), (7, saying("a")));
    assert_eq!(client.ask(7, r#"[1,["say","x"],{}]"#), saying("x"));
}

#[test]
fn a_stream_comes_in_batches_until_it_ends() {
    let shared = start(1);
    let mut client = shared.client();
    assert_eq!(client.ask(1, r#"[1,["count",3],{}]"#), r#"{"t":3,"r":[0],"n":[]}"#);
    shared.gates.open("next 1");
    assert_eq!(client.ask(1, "[2]"), r#"{"t":3,"r":[1],"n":[]}"#);
    client.send(1, "[2]");
    client.send(1, "[2]");
    shared.gates.open("next 2");
    assert_eq!(client.next(), (1, r#"{"t":2,"r":[2],"n":[]}"#.into()));
    let gone = r#"{"t":16,"r":["Token 1 not in stream cache."],"b":[]}"#;
    assert_eq!(client.next(), (1, gone.into()));
    assert_eq!(client.ask(1, "[3]"), gone);
}

#[test]
fn a_stop_also_answers_the_continue_that_is_outstanding() {
    let shared = start(1);
    let mut client = shared.client();
    client.ask(1, r#"[1,["count",3],{}]"#);
    client.send(1, "[2]");
    client.send(1, "[3]");
    assert_eq!(client.next(), (1, EMPTY.into()));
    assert_eq!(client.next(), (1, EMPTY.into()));
    assert_eq!(client.ask(1, r#"[1,["count",1],{}]"#), r#"{"t":2,"r":[0],"n":[]}"#);
    client.ask(2, r#"[1,["count",3],{}]"#);
    assert_eq!(client.ask(2, "[3]"), EMPTY);
}

#[test]
fn a_stop_also_answers_a_start_that_is_still_running() {
    let shared = start(1);
    let mut client = shared.client();
    client.send(1, r#"[1,["think","never"],{}]"#);
    client.send(1, "[3]");
    assert_eq!(client.next(), (1, EMPTY.into()));
    assert_eq!(client.next(), (1, EMPTY.into()));
    shared.gates.wait_for("never stopped");
}

#[test]
fn noreply_queries_are_not_answered_but_can_be_waited_for() {
    let shared = start(1);
    let mut client = shared.client();
    client.send(1, r#"[1,["fail","a"],{"noreply":true}]"#);
    client.send(2, r#"[1,["think","b"],{"noreply":true}]"#);
    client.send(3, r#"[1,["log","c"],{"noreply":true}]"#);
    client.send(4, "[4]");
    assert_eq!(client.ask(5, "[5]"), r#"{"t":5,"r":[{"id":"id","name":"puppet","proxy":false}]}"#);
    shared.gates.open("b");
    shared.gates.open("c");
    assert_eq!(client.next(), (4, r#"{"t":4,"r":[]}"#.into()));
    assert_eq!(client.ask(6, "[4]"), r#"{"t":4,"r":[]}"#);
}

#[test]
fn a_lost_client_stops_its_queries() {
    let shared = start(1);
    let mut client = shared.client();
    client.send(1, r#"[1,["think","lost"],{}]"#);
    client.ask(2, r#"[1,["say","x"],{}]"#);
    drop(client);
    shared.gates.wait_for("lost stopped");
}

#[test]
fn a_panic_fails_only_its_query() {
    let shared = start(1);
    let mut client = shared.client();
    let answer = client.ask(1, r#"[1,["panic",""],{}]"#);
    assert!(answer.starts_with(r#"{"t":18,"e":1000000,"r":["The server failed"#), "{answer}");
    assert_eq!(client.ask(1, r#"[1,["say","x"],{}]"#), saying("x"));
}

#[test]
fn a_panic_while_the_service_is_driven_does_not_end_it() {
    let echo = Echo::start();
    for shared in [start(1), start_with_links(echo.thread.lend().unwrap())] {
        shared.gates.open("fault");
        let mut client = shared.client();
        assert_eq!(client.ask(1, r#"[1,["log","drive that panicked"],{}]"#), saying("drive that panicked"));
        assert_eq!(client.ask(2, r#"[1,["log","driven"],{}]"#), saying("driven"));
    }
    assert_eq!(echo.round_trip(b"still there"), b"still there");
}

#[test]
fn a_thread_that_serves_drivers_drives_the_links_until_it_ends() {
    let echo = Echo::start();
    let shared = start_with_links(echo.thread.lend().unwrap());
    let mut client = shared.client();
    for round in 0..100 {
        assert_eq!(echo.round_trip(b"over a link"), b"over a link", "round {round}");
        assert_eq!(client.ask(1, r#"[1,["log","driven"],{}]"#), saying("driven"), "round {round}");
    }
    // Wakes the loop explicitly; nothing else makes this thread poll the links.
    assert_eq!(echo.unprompted(b"by itself"), b"by itself");
    shared.shut_down();
    assert_eq!(echo.round_trip(b"from its own thread"), b"from its own thread");
}

#[test]
fn v0_3_runs_one_query_at_a_time() {
    let shared = start(1);
    let mut client = TestClient::old(shared.address, 0x5f75_e83e);
    client.send(1, r#"[1,["think","a"],{}]"#);
    client.send(2, r#"[1,["say","b"],{}]"#);
    shared.gates.open("a");
    assert_eq!(client.next(), (1, saying("a")));
    assert_eq!(client.next(), (2, saying("b")));
    let mut client = TestClient::old(shared.address, 0x400c_2d20);
    client.send(1, r#"[1,["think","z"],{}]"#);
    assert_eq!(client.ask(2, r#"[1,["say","b"],{}]"#), saying("b"));
}

#[test]
fn a_full_connection_waits_and_then_goes_on() {
    let shared = start(1);
    let mut client = shared.client();
    for token in 0..1100 {
        client.send(token, r#"[1,["log","gate"],{}]"#);
    }
    client.send(5000, r#"[1,["say","last"],{}]"#);
    shared.gates.open("gate");
    let mut tokens: Vec<u64> = (0..1101).map(|_| client.next().0).collect();
    tokens.sort_unstable();
    let expected: Vec<u64> = (0..1100).chain([5000]).collect();
    assert_eq!(tokens, expected);
}

#[test]
fn an_oversized_query_ends_its_connection_only() {
    let shared = start(1);
    let mut other = shared.client();
    let mut client = shared.client();
    let mut header = 9u64.to_le_bytes().to_vec();
    header.extend_from_slice(&134_217_728u32.to_le_bytes());
    client.stream.write_all(&header).unwrap();
    let refusal = r#"{"t":16,"r":["Query size (134217728) greater than maximum (134217727)."],"b":[]}"#;
    assert_eq!(client.next(), (9, refusal.into()));
    assert!(client.is_closed());
    assert_eq!(other.ask(1, r#"[1,["say","x"],{}]"#), saying("x"));
}

#[test]
fn malformed_queries_leave_the_connection_usable() {
    let shared = start(1);
    let mut client = shared.client();
    for body in ["", "nonsense", "[", "{}", "[17]", "[1", "[1,[\"\u{1}\"]]"] {
        let answer = client.ask(3, body);
        assert!(answer.starts_with(r#"{"t":16,"#), "{body:?} was answered {answer}");
    }
    assert_eq!(client.ask(3, r#"[1,["say","x"],{}]"#), saying("x"));
}

#[test]
fn a_refused_handshake_gets_the_reason() {
    let shared = start(1);
    let mut client = TestClient::raw(shared.address);
    client.stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut client.stream, &mut answer).unwrap();
    assert!(answer.starts_with("ERROR: Received an unsupported protocol version."), "{answer}");
}

#[test]
fn a_client_that_does_not_read_does_not_fill_the_memory() {
    let shared = start(1);
    let mut lazy = shared.client();
    let text = "y".repeat(1000);
    let body = format!(r#"[1,["say","{text}"],{{}}]"#);
    let mut bytes = Vec::new();
    for token in 0..1000 {
        protocol::frame::write(&mut bytes, protocol::Token(token), body.as_bytes()).unwrap();
    }
    // The socket buffers hold some megabytes; after that writing must block.
    lazy.stream.set_write_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    let mut sent = 0usize;
    while let Ok(count) = lazy.stream.write(&bytes[sent % bytes.len()..]) {
        sent += count;
        assert!(sent < 200 << 20, "the server takes everything and sends nothing");
    }
    assert_eq!(shared.client().ask(1, r#"[1,["say","x"],{}]"#), saying("x"));
    for count in 0..sent / (bytes.len() / 1000) {
        assert_eq!(lazy.next().0, count as u64 % 1000);
    }
}

#[test]
fn responses_long_queries_and_cursors_without_room_are_refused() {
    let shared = start_with(1, |shared| shared.memory = Budget::new(3 << 20));
    let memory = shared.shared.memory.clone();
    let mut client = shared.client();
    let is_refused = |response: String| response.contains("more memory than is left: ");
    assert!(is_refused(client.ask(1, r#"[1,["repeat",2000000],{}]"#)), "a third is for connections");
    assert_eq!(client.ask(2, r#"[1,["repeat",500000],{}]"#), saying(&"x".repeat(500_000)));

    let is_cursor = |response: String| response.contains(r#""t":3"#);
    assert!(is_cursor(client.ask(3, r#"[1,["count",2],{}]"#)));
    memory.reserve_unchecked(Owner::Cursors, (1 << 20) + 1);
    assert!(is_refused(client.ask(4, r#"[1,["count",2],{}]"#)));
    assert!(client.ask(5, r#"[1,["count",1],{}]"#).contains(r#""t":2"#), "it leaves no cursor");
    shared.gates.open("next 1");
    assert!(client.ask(3, "[2]").contains(r#""t":2"#), "an open cursor goes on");

    memory.reserve_unchecked(Owner::Queries, 2 << 20);
    let long = "y".repeat(100_000);
    client.send(6, &format!(r#"[1,["say","{long}"],{{"noreply":true}}]"#));
    assert!(is_refused(client.ask(7, &format!(r#"[1,["say","{long}"],{{}}]"#))));
    assert_eq!(client.ask(8, r#"[1,["say","short"],{}]"#), saying("short"));
    memory.release(Owner::Queries, 2 << 20);
    assert_eq!(client.ask(9, &format!(r#"[1,["say","{long}"],{{}}]"#)), saying(&long));
}

#[test]
fn shutting_down_answers_running_queries_and_closes() {
    let shared = start(2);
    let mut client = shared.client();
    let mut idle = shared.client();
    client.send(1, r#"[1,["log","late"],{}]"#);
    client.ask(2, r#"[1,["say","x"],{}]"#);
    let gates = shared.gates.clone();
    let stopping = std::thread::spawn(move || shared.shut_down());
    assert!(idle.is_closed());
    gates.open("late");
    assert_eq!(client.next(), (1, saying("late")));
    assert!(client.is_closed());
    stopping.join().unwrap();
}

#[test]
fn shutting_down_cancels_queries_that_do_not_end() {
    let shared = start(1);
    let mut client = shared.client();
    client.send(1, r#"[1,["think","forever"],{}]"#);
    client.ask(2, r#"[1,["say","x"],{}]"#);
    shared.shut_down();
    assert_eq!(client.next(), (1, saying("forever")));
    assert!(client.is_closed());
}

/// A response that does not come within this time fails the test.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

fn open_session(node: &TestNode) -> DuplexStream {
    let (page, connection) = tokio::io::duplex(256);
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    node.workers.assign_session(connection, Client { user: "admin".to_owned(), address });
    page
}

async fn send_frame(page: &mut DuplexStream, token: u64, body: &str) {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, Token(token), body.as_bytes()).unwrap();
    timeout(RESPONSE_TIMEOUT, page.write_all(&bytes)).await.unwrap().unwrap();
}

async fn next_frame(page: &mut DuplexStream) -> (u64, String) {
    let mut header = [0; frame::HEADER_BYTES];
    timeout(RESPONSE_TIMEOUT, page.read_exact(&mut header)).await.unwrap().unwrap();
    let (token, length) = frame::read_header(&header);
    let mut body = vec![0; length];
    page.read_exact(&mut body).await.unwrap();
    (token.0, String::from_utf8(body).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_begins_with_queries_and_is_closed_like_any_connection() {
    let node = start(2);
    let mut page = open_session(&node);
    // Longer than the pipe.
    let long = "x".repeat(10_000);
    for token in 1..20 {
        send_frame(&mut page, token, &format!(r#"[1,["say","{long}"],{{}}]"#)).await;
        assert_eq!(next_frame(&mut page).await, (token, format!(r#"{{"t":1,"r":["{long}"]}}"#)));
    }
    let open: i64 = node.workers.counters().iter().map(|one| one.connections.load(Relaxed)).sum();
    assert_eq!(open, 1);
    node.shut_down();
    assert_eq!(page.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_that_goes_cancels_its_queries() {
    let node = start(1);
    let mut page = open_session(&node);
    send_frame(&mut page, 1, r#"[1,["think","endless"],{}]"#).await;
    send_frame(&mut page, 2, r#"[1,["say","hello"],{}]"#).await;
    assert_eq!(next_frame(&mut page).await.0, 2);
    drop(page);
    node.gates.wait_for("endless stopped");
    node.shut_down();
}
