//! Links over real sockets of this machine.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::real::{NetworkThread, RealClock, RealRandom, Tls};
use rekindle_cluster::link::{
    AddressBook, LinkOptions, LinkTimings, Links, LocalServer, Message, PeerId, PeerInfo, QueueLimits,
    Receiver,
};
use rekindle_cluster::{GroupId, Responder, RpcClient, RpcError, RpcHandler, ServerId};
use uuid::Uuid;

/// Longer than anything here takes: a test that waits this long has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct TestReceiver {
    state: Mutex<ReceiverState>,
    changed: Condvar,
}

#[derive(Default)]
struct ReceiverState {
    connected: BTreeSet<ServerId>,
    silences: usize,
    log_messages: Vec<Message>,
    address_book: String,
}

impl TestReceiver {
    #[track_caller]
    fn wait_for(&self, what: &str, condition: impl Fn(&ReceiverState) -> bool) {
        let state = self.state.lock().unwrap();
        let (_state, waited) =
            self.changed.wait_timeout_while(state, TIMEOUT, |state| !condition(state)).unwrap();
        assert!(!waited.timed_out(), "timed out while waiting for {what}");
    }

    fn change(&self, change: impl FnOnce(&mut ReceiverState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl RpcHandler for TestReceiver {
    /// The request is the wanted length of the response.
    fn handle(&self, _from: ServerId, request: Bytes, respond: Responder) {
        let wanted = std::str::from_utf8(&request).ok().and_then(|text| text.parse().ok());
        respond(wanted.map(|len: usize| Bytes::from(vec![7; len])).ok_or("not a number".to_owned()));
    }
}

impl Receiver for TestReceiver {
    fn log_messages(&self, _from: ServerId, log_messages: Vec<Message>) {
        self.change(|state| state.log_messages.extend(log_messages));
    }

    fn connected(&self, info: &PeerInfo) {
        self.change(|state| {
            state.connected.insert(info.server);
        });
    }

    fn silent(&self, server: ServerId) {
        self.change(|state| {
            state.silences += 1;
            state.connected.remove(&server);
        });
    }

    fn back(&self, server: ServerId) {
        self.change(|state| {
            state.connected.insert(server);
        });
    }

    fn may_adopt(&self, _cluster: Uuid, _by: &PeerInfo) -> Result<(), String> {
        Err("this directory has held data".to_owned())
    }

    fn store_address_book(&self, text: &str) {
        self.change(|state| text.clone_into(&mut state.address_book));
    }
}

struct Node {
    server: ServerId,
    address: String,
    links: Links,
    receiver: Arc<TestReceiver>,
    _thread: NetworkThread,
}

struct NodeOptions<'a> {
    number: u128,
    cluster: Option<u128>,
    join: &'a [&'a str],
    tls: Option<Tls>,
    timings: LinkTimings,
    thread: &'a str,
}

fn options(number: u128) -> NodeOptions<'static> {
    let timings = LinkTimings { heartbeat_timeout: Duration::from_secs(30), ..LinkTimings::default() };
    NodeOptions { number, cluster: Some(1), join: &[], tls: None, timings, thread: "links" }
}

fn links(options: &NodeOptions<'_>, port: u16) -> Links {
    Links::new(LinkOptions {
        local: LocalServer {
            cluster: options.cluster.map(Uuid::from_u128),
            server: ServerId(Uuid::from_u128(options.number)),
            name: format!("n{}", options.number),
            tags: Vec::new(),
            addresses: Vec::new(),
            canonical: Vec::new(),
            port,
            is_proxy: false,
        },
        join: options.join.iter().map(|address| (*address).to_owned()).collect(),
        address_book: AddressBook::default(),
        timings: options.timings,
        limits: QueueLimits::default(),
        clock: Arc::new(RealClock::new()),
        random: Arc::new(RealRandom),
    })
}

fn node(options: NodeOptions<'_>) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = ServerId(Uuid::from_u128(options.number));
    let links = links(&options, address.port());
    let clock = Arc::new(RealClock::new());
    let receiver = Arc::new(TestReceiver::default());
    let handler = links.handler(receiver.clone()).unwrap();
    let thread =
        NetworkThread::start(options.thread, handler, links.loop_waker(), vec![listener], options.tls, clock)
            .unwrap();
    Node { server, address: address.to_string(), links, receiver, _thread: thread }
}

impl Node {
    fn call(&self, to: &Node, request: &str) -> Result<Bytes, RpcError> {
        let (sender, receiver) = channel();
        let on_response = Box::new(move |result| drop(sender.send(result)));
        self.links.call(to.server, Bytes::from(request.to_owned()), TIMEOUT, on_response);
        receiver.recv_timeout(TIMEOUT * 2).expect("every request has an outcome")
    }

    #[track_caller]
    fn await_link(&self, other: &Node) {
        self.receiver.wait_for("a link", |state| state.connected.contains(&other.server));
        other.receiver.wait_for("a link", |state| state.connected.contains(&self.server));
    }
}

fn tls(key: &str, chain: &str, authority: &str) -> Tls {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../io/testdata/tls");
    Tls::mutual(&folder.join(key), &folder.join(chain), &folder.join(authority)).unwrap()
}

fn exchange_data(one: &Node, other: &Node) {
    one.await_link(other);
    assert_eq!(one.call(other, "5").unwrap(), vec![7; 5]);
    assert_eq!(other.call(one, "300000").unwrap().len(), 300_000);
    assert!(matches!(one.call(other, "x"), Err(RpcError::Refused { why, .. }) if why == "not a number"));
    let body = Bytes::from(vec![9; 200_000]);
    let log_message = Message { group: GroupId(1), from: PeerId(2), to: PeerId(3), body };
    one.links.send(other.server, vec![log_message.clone()]);
    other.receiver.wait_for("a replication message", |state| state.log_messages == [log_message.clone()]);
}

#[test]
fn two_servers_exchange_data() {
    let first = node(options(1));
    let second = node(NodeOptions { join: &[&first.address], ..options(2) });
    exchange_data(&first, &second);
    let stats = &first.links.stats()[0].2;
    assert!(stats.bytes_out.load(std::sync::atomic::Ordering::Relaxed) > 300_000);
}

#[test]
fn buffered_requests_are_sent_by_a_flush() {
    // No timer expires during the test.
    let timings = LinkTimings { heartbeat_timeout: TIMEOUT * 1000, ..LinkTimings::default() };
    let first = node(NodeOptions { timings, ..options(1) });
    let second = node(NodeOptions { join: &[&first.address], timings, ..options(2) });
    first.await_link(&second);
    let (sender, receiver) = channel();
    for _ in 0..3 {
        let sender = sender.clone();
        let on_response = Box::new(move |result| drop(sender.send(result)));
        first.links.call_buffered(second.server, Bytes::from("7"), TIMEOUT, on_response);
    }
    first.links.flush();
    for _ in 0..3 {
        assert_eq!(receiver.recv_timeout(TIMEOUT * 2).unwrap().unwrap(), vec![7; 7]);
    }
}

#[test]
fn a_flush_wakes_the_loop_once_for_all_buffered_requests() {
    let (links, unknown) = (links(&options(1), 1), ServerId(Uuid::from_u128(2)));
    let (sender, receiver) = channel();
    let call_buffered = || {
        let sender = sender.clone();
        links.call_buffered(
            unknown,
            Bytes::new(),
            TIMEOUT,
            Box::new(move |result| drop(sender.send(result))),
        );
    };
    let loop_waker = links.loop_waker();
    links.flush();
    call_buffered();
    call_buffered();
    assert!(!loop_waker.take_wake(), "woken before the flush");
    links.flush();
    assert!(loop_waker.take_wake());
    links.flush();
    assert!(!loop_waker.take_wake(), "nothing is buffered any more");
    drop(links.handler(Arc::new(TestReceiver::default())));
    call_buffered();
    for _ in 0..3 {
        assert!(matches!(receiver.try_recv().unwrap(), Err(RpcError::NotConnected(_))));
    }
    links.flush();
    assert!(!loop_waker.take_wake(), "there is no handler any more");
}

#[test]
fn two_servers_exchange_data_inside_tls() {
    let mutual = || Some(tls("node.key", "node.pem", "authority.pem"));
    let first = node(NodeOptions { tls: mutual(), ..options(1) });
    let second = node(NodeOptions { tls: mutual(), join: &[&first.address], ..options(2) });
    exchange_data(&first, &second);
    assert_eq!(first.call(&second, "5000000").unwrap().len(), 5_000_000);
}

#[test]
fn a_server_without_a_trusted_certificate_is_not_linked() {
    let first = node(NodeOptions { tls: Some(tls("node.key", "node.pem", "authority.pem")), ..options(1) });
    let foreign = Some(tls("foreign.key", "foreign.pem", "authority.pem"));
    let unsigned = node(NodeOptions { tls: foreign, join: &[&first.address], ..options(2) });
    let distrusting = Some(tls("node.key", "node.pem", "other-authority.pem"));
    let distrusting = node(NodeOptions { tls: distrusting, join: &[&first.address], ..options(3) });
    let plain = node(NodeOptions { join: &[&first.address], ..options(4) });
    let trusted = Some(tls("node.key", "node.pem", "authority.pem"));
    let trusted = node(NodeOptions { tls: trusted, join: &[&first.address], ..options(5) });
    trusted.await_link(&first);
    for stranger in [&unsigned, &distrusting, &plain] {
        assert!(matches!(first.call(stranger, "1"), Err(RpcError::NotConnected(_))));
        assert!(matches!(stranger.call(&first, "1"), Err(RpcError::NotConnected(_))));
    }
}

#[test]
fn a_server_of_another_cluster_or_with_data_is_not_linked() {
    let first = node(options(1));
    let stranger = node(NodeOptions { cluster: Some(2), join: &[&first.address], ..options(2) });
    let unwilling = node(NodeOptions { cluster: None, join: &[&first.address], ..options(3) });
    let trusted = node(NodeOptions { join: &[&first.address], ..options(4) });
    trusted.await_link(&first);
    assert!(!first.links.is_connected(stranger.server) && !first.links.is_connected(unwilling.server));
    assert!(stranger.links.peers().is_empty() && unwilling.links.peers().is_empty());
}

#[test]
fn a_long_response_does_not_delay_short_ones() {
    // A heartbeat every 375 ms and silence after 1.5 s: heartbeats must be sent between the parts of 64 MB.
    let timings = LinkTimings { heartbeat_timeout: Duration::from_secs(6), ..LinkTimings::default() };
    let first = node(NodeOptions { timings, ..options(1) });
    let second = node(NodeOptions { timings, join: &[&first.address], ..options(2) });
    first.await_link(&second);
    let (sender, receiver) = channel();
    let call = |request: &'static str| {
        let sender = sender.clone();
        let on_response = Box::new(move |result: Result<Bytes, RpcError>| {
            drop(sender.send((request, result.map(|response| response.len()))));
        });
        first.links.call(second.server, Bytes::from_static(request.as_bytes()), TIMEOUT, on_response);
    };
    call("67108864");
    call("10");
    let (first_request, result) = receiver.recv_timeout(TIMEOUT).unwrap();
    assert_eq!((first_request, result.unwrap()), ("10", 10), "the short response waits for the long one");
    assert_eq!(receiver.recv_timeout(TIMEOUT).unwrap().1.unwrap(), 64 << 20);
    let silences = |node: &Node| node.receiver.state.lock().unwrap().silences;
    assert_eq!((silences(&first), silences(&second)), (0, 0), "a heartbeat came late");
}

#[test]
fn a_server_that_stops_is_reported_silent_at_once() {
    let first = node(options(1));
    let second = node(NodeOptions { join: &[&first.address], ..options(2) });
    first.await_link(&second);
    let stopped = second.server;
    drop(second);
    first.receiver.wait_for("silence", |state| !state.connected.contains(&stopped));
    let (sender, receiver) = channel();
    let on_response = Box::new(move |result: Result<Bytes, RpcError>| drop(sender.send(result)));
    first.links.call(stopped, Bytes::from_static(b"1"), TIMEOUT, on_response);
    assert!(matches!(receiver.recv_timeout(TIMEOUT).unwrap(), Err(RpcError::NotConnected(_))));
}

/// The processor time of the threads called `name` in this process, in hundredths of a second.
fn thread_ticks(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stat =
        |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.unwrap().path().join("stat"));
    let ticks = |stat: String| {
        let (head, rest) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let own = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        head.ends_with(&format!("({name}")).then_some(own)
    };
    tasks.filter_map(|task| ticks(stat(task).ok()?)).sum()
}

#[test]
fn sixteen_servers_in_one_process_are_all_linked_and_idle() {
    let timings = LinkTimings { heartbeat_timeout: Duration::from_secs(10), ..LinkTimings::default() };
    let first = node(NodeOptions { timings, thread: "idle-links", ..options(100) });
    let join = first.address.clone();
    let mut nodes = vec![first];
    for number in 101..116 {
        nodes.push(node(NodeOptions { timings, thread: "idle-links", join: &[&join], ..options(number) }));
    }
    for node in &nodes {
        node.receiver.wait_for("fifteen links", |state| state.connected.len() == 15);
    }
    let before = thread_ticks("idle-links");
    // The test measures processor time over real time.
    std::thread::sleep(Duration::from_secs(4));
    let ticks = thread_ticks("idle-links") - before;
    eprintln!("sixteen idle nodes: {:.2} % of a core", ticks as f64 / 4.0);
    assert!(ticks < 20, "{ticks} hundredths of a second of processor time in four seconds");
}
