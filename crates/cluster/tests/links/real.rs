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
    Book, LinkOptions, LinkTimings, Links, Me, Message, PeerId, PeerInfo, QueueLimits, Receiver,
};
use rekindle_cluster::{GroupId, Responder, RpcClient, RpcError, RpcHandler, ServerId};
use uuid::Uuid;

/// Longer than anything here takes; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Hall {
    state: Mutex<HallState>,
    changed: Condvar,
}

#[derive(Default)]
struct HallState {
    connected: BTreeSet<ServerId>,
    silences: usize,
    log_messages: Vec<Message>,
    book: String,
}

impl Hall {
    #[track_caller]
    fn wait_for(&self, what: &str, is_so: impl Fn(&HallState) -> bool) {
        let state = self.state.lock().unwrap();
        let (_state, waited) = self.changed.wait_timeout_while(state, LONG, |state| !is_so(state)).unwrap();
        assert!(!waited.timed_out(), "waited in vain for {what}");
    }

    fn change(&self, change: impl FnOnce(&mut HallState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl RpcHandler for Hall {
    /// The question is how long an answer is wanted.
    fn handle(&self, _from: ServerId, question: Bytes, reply: Responder) {
        let wanted = std::str::from_utf8(&question).ok().and_then(|text| text.parse().ok());
        reply(wanted.map(|len: usize| Bytes::from(vec![7; len])).ok_or("not a number".to_owned()));
    }
}

impl Receiver for Hall {
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

    fn keep_book(&self, text: &str) {
        self.change(|state| text.clone_into(&mut state.book));
    }
}

struct Node {
    server: ServerId,
    address: String,
    links: Links,
    hall: Arc<Hall>,
    _thread: NetworkThread,
}

struct Wish<'a> {
    number: u128,
    cluster: Option<u128>,
    join: &'a [&'a str],
    tls: Option<Tls>,
    timings: LinkTimings,
    thread: &'a str,
}

fn wish(number: u128) -> Wish<'static> {
    let timings = LinkTimings { heartbeat_timeout: Duration::from_secs(30), ..LinkTimings::default() };
    Wish { number, cluster: Some(1), join: &[], tls: None, timings, thread: "links" }
}

fn links(wish: &Wish<'_>, port: u16) -> Links {
    Links::new(LinkOptions {
        me: Me {
            cluster: wish.cluster.map(Uuid::from_u128),
            server: ServerId(Uuid::from_u128(wish.number)),
            name: format!("n{}", wish.number),
            tags: Vec::new(),
            addresses: Vec::new(),
            canonical: Vec::new(),
            port,
            is_proxy: false,
        },
        join: wish.join.iter().map(|address| (*address).to_owned()).collect(),
        book: Book::default(),
        timings: wish.timings,
        limits: QueueLimits::default(),
        clock: Arc::new(RealClock::new()),
        random: Arc::new(RealRandom),
    })
}

fn node(wish: Wish<'_>) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    let server = ServerId(Uuid::from_u128(wish.number));
    let links = links(&wish, place.port());
    let clock = Arc::new(RealClock::new());
    let hall = Arc::new(Hall::default());
    let party = links.party(hall.clone()).unwrap();
    let thread =
        NetworkThread::start(wish.thread, party, links.loop_waker(), vec![listener], wish.tls, clock)
            .unwrap();
    Node { server, address: place.to_string(), links, hall, _thread: thread }
}

impl Node {
    fn ask(&self, whom: &Node, question: &str) -> Result<Bytes, RpcError> {
        let (sender, receiver) = channel();
        let on_response = Box::new(move |result| drop(sender.send(result)));
        self.links.call(whom.server, Bytes::from(question.to_owned()), LONG, on_response);
        receiver.recv_timeout(LONG * 2).expect("every question is answered")
    }

    #[track_caller]
    fn meets(&self, other: &Node) {
        self.hall.wait_for("a link", |state| state.connected.contains(&other.server));
        other.hall.wait_for("a link", |state| state.connected.contains(&self.server));
    }
}

fn tls(key: &str, chain: &str, authority: &str) -> Tls {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../io/testdata/tls");
    Tls::mutual(&folder.join(key), &folder.join(chain), &folder.join(authority)).unwrap()
}

fn talk(one: &Node, other: &Node) {
    one.meets(other);
    assert_eq!(one.ask(other, "5").unwrap(), vec![7; 5]);
    assert_eq!(other.ask(one, "300000").unwrap().len(), 300_000);
    assert!(matches!(one.ask(other, "x"), Err(RpcError::Refused { why, .. }) if why == "not a number"));
    let body = Bytes::from(vec![9; 200_000]);
    let log_message = Message { group: GroupId(1), from: PeerId(2), to: PeerId(3), body };
    one.links.send(other.server, vec![log_message.clone()]);
    other.hall.wait_for("a log_message", |state| state.log_messages == [log_message.clone()]);
}

#[test]
fn two_servers_talk() {
    let first = node(wish(1));
    let second = node(Wish { join: &[&first.address], ..wish(2) });
    talk(&first, &second);
    let stats = &first.links.stats()[0].2;
    assert!(stats.bytes_out.load(std::sync::atomic::Ordering::Relaxed) > 300_000);
}

#[test]
fn what_is_asked_aside_leaves_with_the_turn() {
    // So long that nobody has anything to do before the test is over.
    let timings = LinkTimings { heartbeat_timeout: LONG * 1000, ..LinkTimings::default() };
    let first = node(Wish { timings, ..wish(1) });
    let second = node(Wish { join: &[&first.address], timings, ..wish(2) });
    first.meets(&second);
    let (sender, receiver) = channel();
    for _ in 0..3 {
        let sender = sender.clone();
        let on_response = Box::new(move |result| drop(sender.send(result)));
        first.links.call_buffered(second.server, Bytes::from("7"), LONG, on_response);
    }
    first.links.flush();
    for _ in 0..3 {
        assert_eq!(receiver.recv_timeout(LONG * 2).unwrap().unwrap(), vec![7; 7]);
    }
}

#[test]
fn the_bell_is_rung_once_for_what_was_asked_aside() {
    let (links, nobody) = (links(&wish(1), 1), ServerId(Uuid::from_u128(2)));
    let (sender, receiver) = channel();
    let call_buffered = || {
        let sender = sender.clone();
        links.call_buffered(nobody, Bytes::new(), LONG, Box::new(move |result| drop(sender.send(result))));
    };
    let loop_waker = links.loop_waker();
    links.flush();
    call_buffered();
    call_buffered();
    assert!(!loop_waker.take_wake(), "woken before the flush");
    links.flush();
    assert!(loop_waker.take_wake());
    links.flush();
    assert!(!loop_waker.take_wake(), "nothing lies aside any more");
    drop(links.party(Arc::new(Hall::default())));
    call_buffered();
    for _ in 0..3 {
        assert!(matches!(receiver.try_recv().unwrap(), Err(RpcError::NotConnected(_))));
    }
    links.flush();
    assert!(!loop_waker.take_wake(), "there is no party any more");
}

#[test]
fn two_servers_talk_inside_tls() {
    let mutual = || Some(tls("node.key", "node.pem", "authority.pem"));
    let first = node(Wish { tls: mutual(), ..wish(1) });
    let second = node(Wish { tls: mutual(), join: &[&first.address], ..wish(2) });
    talk(&first, &second);
    assert_eq!(first.ask(&second, "5000000").unwrap().len(), 5_000_000);
}

#[test]
fn whom_the_authority_has_not_signed_stays_outside() {
    let first = node(Wish { tls: Some(tls("node.key", "node.pem", "authority.pem")), ..wish(1) });
    let foreign = Some(tls("foreign.key", "foreign.pem", "authority.pem"));
    let unsigned = node(Wish { tls: foreign, join: &[&first.address], ..wish(2) });
    let distrusting = Some(tls("node.key", "node.pem", "other-authority.pem"));
    let distrusting = node(Wish { tls: distrusting, join: &[&first.address], ..wish(3) });
    let plain = node(Wish { join: &[&first.address], ..wish(4) });
    let friend = Some(tls("node.key", "node.pem", "authority.pem"));
    let friend = node(Wish { tls: friend, join: &[&first.address], ..wish(5) });
    friend.meets(&first);
    for stranger in [&unsigned, &distrusting, &plain] {
        assert!(matches!(first.ask(stranger, "1"), Err(RpcError::NotConnected(_))));
        assert!(matches!(stranger.ask(&first, "1"), Err(RpcError::NotConnected(_))));
    }
}

#[test]
fn a_server_of_another_cluster_or_with_data_of_its_own_is_no_peer() {
    let first = node(wish(1));
    let stranger = node(Wish { cluster: Some(2), join: &[&first.address], ..wish(2) });
    let unwilling = node(Wish { cluster: None, join: &[&first.address], ..wish(3) });
    let friend = node(Wish { join: &[&first.address], ..wish(4) });
    friend.meets(&first);
    assert!(!first.links.is_connected(stranger.server) && !first.links.is_connected(unwilling.server));
    assert!(stranger.links.peers().is_empty() && unwilling.links.peers().is_empty());
}

#[test]
fn a_long_answer_keeps_nobody_waiting() {
    // A heartbeat each 375 ms, silence after 1.5 s: what must get through beside 64 MB.
    let timings = LinkTimings { heartbeat_timeout: Duration::from_secs(6), ..LinkTimings::default() };
    let first = node(Wish { timings, ..wish(1) });
    let second = node(Wish { timings, join: &[&first.address], ..wish(2) });
    first.meets(&second);
    let (sender, receiver) = channel();
    let ask = |question: &'static str| {
        let sender = sender.clone();
        let on_response = Box::new(move |result: Result<Bytes, RpcError>| {
            drop(sender.send((question, result.map(|answer| answer.len()))));
        });
        first.links.call(second.server, Bytes::from_static(question.as_bytes()), LONG, on_response);
    };
    ask("67108864");
    ask("10");
    let (early, result) = receiver.recv_timeout(LONG).unwrap();
    assert_eq!((early, result.unwrap()), ("10", 10), "the short answer waits for the long one");
    assert_eq!(receiver.recv_timeout(LONG).unwrap().1.unwrap(), 64 << 20);
    let silences = |node: &Node| node.hall.state.lock().unwrap().silences;
    assert_eq!((silences(&first), silences(&second)), (0, 0), "a heartbeat came late");
}

#[test]
fn a_server_that_stops_is_missed_at_once() {
    let first = node(wish(1));
    let second = node(Wish { join: &[&first.address], ..wish(2) });
    first.meets(&second);
    let gone = second.server;
    drop(second);
    first.hall.wait_for("silence", |state| !state.connected.contains(&gone));
    let (sender, receiver) = channel();
    let on_response = Box::new(move |result: Result<Bytes, RpcError>| drop(sender.send(result)));
    first.links.call(gone, Bytes::from_static(b"1"), LONG, on_response);
    assert!(matches!(receiver.recv_timeout(LONG).unwrap(), Err(RpcError::NotConnected(_))));
}

/// Processor time, in hundredths of a second, of the threads of this process called `name`.
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
fn sixteen_servers_in_one_process_are_meshed_and_idle() {
    let timings = LinkTimings { heartbeat_timeout: Duration::from_secs(10), ..LinkTimings::default() };
    let first = node(Wish { timings, thread: "idle-links", ..wish(100) });
    let join = first.address.clone();
    let mut nodes = vec![first];
    for number in 101..116 {
        nodes.push(node(Wish { timings, thread: "idle-links", join: &[&join], ..wish(number) }));
    }
    for node in &nodes {
        node.hall.wait_for("fifteen links", |state| state.connected.len() == 15);
    }
    let before = thread_ticks("idle-links");
    // The passing of time is what is measured here.
    std::thread::sleep(Duration::from_secs(4));
    let ticks = thread_ticks("idle-links") - before;
    eprintln!("sixteen idle nodes: {:.2} % of a core", ticks as f64 / 4.0);
    assert!(ticks < 20, "{ticks} hundredths of a second of processor time in four seconds");
}
