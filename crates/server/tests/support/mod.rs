//! A service that does what its queries say, and a client for it.

mod echo;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io::real::BorrowedLoop;
use protocol::handshake::{ClientHandshake, ClientStep};
use protocol::response::ServerInfo;
use protocol::scram::PasswordRecord;
use protocol::{Failure, Token, frame};
use rekindle_server::service::{
    Answer, Batch, Client, Cursor, ParsedQuery, QueryKind, QueryService, Session, Work,
};
use rekindle_server::{Shared, Workers, accept_drivers, bind};
use reql::ErrorClass;
use serde_json::Value;

pub use echo::Echo;

/// Gates that tests open, by name.
#[derive(Default)]
pub struct Gates {
    open: Mutex<Vec<String>>,
    wakers: Mutex<Vec<Waker>>,
    changed: Condvar,
}

impl Gates {
    pub fn open(&self, name: &str) {
        self.open.lock().unwrap().push(name.to_owned());
        self.changed.notify_all();
        for waker in self.wakers.lock().unwrap().drain(..) {
            waker.wake();
        }
    }

    fn is_open(&self, name: &str) -> bool {
        self.open.lock().unwrap().iter().any(|open| open == name)
    }

    /// Waits until the gate opens or the query is cancelled; returns whether it opened.
    fn pass(&self, name: &str, cancel: &reql::Cancel) -> bool {
        let mut open = self.open.lock().unwrap();
        loop {
            if open.iter().any(|open| open == name) {
                return true;
            }
            if cancel.is_set() {
                return false;
            }
            // A cancel flag has no condition variable, so it is polled.
            open = self.changed.wait_timeout(open, Duration::from_millis(2)).unwrap().0;
        }
    }

    /// Waits until the gate `name` opens; the service opens gates to notify the test.
    pub fn wait_for(&self, name: &str) {
        assert!(self.pass(name, &reql::Cancel::new()));
    }
}

/// Queries are `[1, [what, argument], {"noreply": …}]`, not ReQL.
pub struct ScriptedService(pub Arc<Gates>);

impl QueryService for ScriptedService {
    fn password(&self, user: &str) -> Option<PasswordRecord> {
        (user == "admin").then(|| PasswordRecord::empty([1; 16]))
    }

    fn server_info(&self) -> ServerInfo {
        ServerInfo { id: "id".into(), name: "puppet".into(), is_proxy: false }
    }

    fn drive(&self) {
        if self.0.is_open("fault") && !self.0.is_open("drive that panicked") {
            self.0.open("drive that panicked");
            panic!("as asked");
        }
        self.0.open("driven");
    }

    fn session(&self, client: Client) -> Arc<dyn Session> {
        assert_eq!(client.user, "admin");
        Arc::new(ScriptedSession(self.0.clone()))
    }
}

struct ScriptedSession(Arc<Gates>);

impl Session for ScriptedSession {
    fn begin(&self, body: bytes::Bytes) -> ParsedQuery {
        let Ok((_, (what, argument), options)) =
            serde_json::from_slice::<(u8, (String, Value), Value)>(&body)
        else {
            let work = Work::Done(Err(Failure::client("unreadable")));
            return ParsedQuery { noreply: false, kind: QueryKind::Malformed, work };
        };
        let noreply = options["noreply"] == Value::Bool(true);
        let gates = self.0.clone();
        let name = argument.as_str().unwrap_or_default().to_owned();
        let work = match what.as_str() {
            "say" => Work::Done(Ok(atom(&name))),
            "repeat" => Work::Done(Ok(atom(&"x".repeat(argument.as_u64().unwrap_or_default() as usize)))),
            "fail" => Work::Done(Err(Failure::runtime(ErrorClass::User, name))),
            "log" => Work::Pending(Box::pin(std::future::poll_fn(move |cx| poll_gate(&gates, &name, cx)))),
            "think" => Work::Blocking(Box::new(move |cancel| {
                if !gates.pass(&name, &cancel) {
                    gates.open(&format!("{name} stopped"));
                }
                Ok(atom(&name))
            })),
            "panic" => Work::Blocking(Box::new(|_| panic!("as asked"))),
            "count" => {
                let to = argument.as_u64().unwrap_or_default();
                Work::Blocking(Box::new(move |cancel| {
                    let mut cursor = Counting { next: 0, to, gates, cancel };
                    let batch = cursor.next_batch()?;
                    Ok(Answer::Stream { batch, cursor: Some(Box::new(cursor)) })
                }))
            }
            other => Work::Done(Err(Failure::client(format!("no {other}")))),
        };
        ParsedQuery { noreply, kind: QueryKind::Read, work }
    }
}

fn atom(text: &str) -> Answer {
    Answer::Atom { value: datum::Datum::from(text), profile: None }
}

fn poll_gate(gates: &Gates, name: &str, cx: &mut Context<'_>) -> Poll<Result<Answer, Failure>> {
    gates.wakers.lock().unwrap().push(cx.waker().clone());
    if gates.is_open(name) { Poll::Ready(Ok(atom(name))) } else { Poll::Pending }
}

/// Yields one number per batch; before each but the first it waits for the gate "next <number>".
struct Counting {
    next: u64,
    to: u64,
    gates: Arc<Gates>,
    cancel: Arc<reql::Cancel>,
}

impl Cursor for Counting {
    fn next_batch(&mut self) -> Result<Batch, Failure> {
        if self.next > 0 {
            self.gates.pass(&format!("next {}", self.next), &self.cancel);
        }
        let items = vec![datum::Datum::from(self.next as f64)];
        self.next += 1;
        Ok(Batch { items, done: self.next >= self.to, notes: vec![], profile: None })
    }
}

/// The connections of a node, with a scripted service instead of a node.
pub struct TestNode {
    pub address: SocketAddr,
    pub gates: Arc<Gates>,
    pub shared: Arc<Shared>,
    pub workers: Arc<Workers>,
    runtime: tokio::runtime::Runtime,
}

pub fn start(worker_count: usize) -> TestNode {
    start_with(worker_count, |_| {})
}

/// Like [`start`], with shared state modified by `change`.
pub fn start_with(worker_count: usize, change: impl FnOnce(&mut Shared)) -> TestNode {
    start_all(worker_count, change, None)
}

/// Starts one worker thread that also drives `links`.
pub fn start_with_links(links: BorrowedLoop) -> TestNode {
    start_all(1, |_| {}, Some(links))
}

fn start_all(worker_count: usize, change: impl FnOnce(&mut Shared), links: Option<BorrowedLoop>) -> TestNode {
    let gates = Arc::<Gates>::default();
    let service = Arc::new(ScriptedService(gates.clone()));
    let random = Arc::new(io::real::RealRandom);
    let mut shared = Shared::new(service, random, "2.4.4".into()).unwrap();
    change(&mut shared);
    let shared = Arc::new(shared);
    let workers = Arc::new(Workers::start(&shared, worker_count, links).unwrap());
    let bound = bind(&[IpAddr::V4(Ipv4Addr::LOCALHOST)], 0).unwrap();
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), bound.port);
    let listener = bound.listen().unwrap().remove(0);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(accept_drivers(listener, workers.clone()));
    TestNode { address, gates, shared, workers, runtime }
}

impl TestNode {
    pub fn client(&self) -> TestClient {
        TestClient::new(self.address)
    }

    /// Shuts down in the order of a real node.
    pub fn shut_down(self) {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.runtime.shutdown_background();
        self.workers.shut_down();
    }
}

/// A blocking client. Every read has a timeout, so that a missing response fails the test.
pub struct TestClient {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl TestClient {
    pub fn raw(address: SocketAddr) -> TestClient {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        TestClient { stream, buffer: Vec::new() }
    }

    pub fn new(address: SocketAddr) -> TestClient {
        let mut client = TestClient::raw(address);
        let mut out = Vec::new();
        let mut handshake = ClientHandshake::start("admin", "", "nonce", &mut out);
        loop {
            client.stream.write_all(&out).unwrap();
            out.clear();
            client.fill();
            let (used, step) = handshake.advance(&client.buffer, &mut out).unwrap();
            client.buffer.drain(..used);
            if step != ClientStep::NeedMore {
                return client;
            }
        }
    }

    pub fn old(address: SocketAddr, magic: u32) -> TestClient {
        let mut client = TestClient::raw(address);
        let mut hello = magic.to_le_bytes().to_vec();
        hello.extend_from_slice(&0u32.to_le_bytes());
        hello.extend_from_slice(&0x7e69_70c7_u32.to_le_bytes());
        client.stream.write_all(&hello).unwrap();
        while client.buffer.len() < 8 {
            client.fill();
        }
        assert_eq!(client.buffer.drain(..8).collect::<Vec<u8>>(), b"SUCCESS\0");
        client
    }

    fn fill(&mut self) {
        let mut chunk = [0; 65536];
        let count = self.stream.read(&mut chunk).unwrap();
        assert!(
            count > 0,
            "the server closed the connection; left over: {:?}",
            String::from_utf8_lossy(&self.buffer)
        );
        self.buffer.extend_from_slice(&chunk[..count]);
    }

    pub fn send(&mut self, token: u64, body: &str) {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, Token(token), body.as_bytes()).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next response, for whichever query.
    pub fn next(&mut self) -> (u64, String) {
        loop {
            if let Some((header, rest)) = self.buffer.split_first_chunk() {
                let (token, length) = frame::read_header(header);
                if let Some(body) = rest.get(..length) {
                    let answer = (token.0, String::from_utf8(body.to_vec()).unwrap());
                    self.buffer.drain(..12 + length);
                    return answer;
                }
            }
            self.fill();
        }
    }

    pub fn ask(&mut self, token: u64, body: &str) -> String {
        self.send(token, body);
        let (answered, body) = self.next();
        assert_eq!(answered, token);
        body
    }

    /// Reads until the server closes the connection.
    pub fn skip_to_end(&mut self) {
        self.stream.read_to_end(&mut self.buffer).unwrap();
    }

    /// Whether the server has closed the connection and all its data was read.
    pub fn is_closed(&mut self) -> bool {
        assert!(self.buffer.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.buffer));
        let mut byte = [0];
        matches!(self.stream.read(&mut byte), Ok(0))
    }
}
