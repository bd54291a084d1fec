//! A cluster of links in one thread: nodes, a simulated network, and a ledger of what was promised.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::sim::{Host, SimClock, SimNetwork, SimRandom};
use io::{Clock, Nanos, NetworkEvent, NetworkHandler, Random};
use rekindle_cluster::link::{
    Book, LinkOptions, LinkParty, LinkTimings, Links, Me, Message, PeerId, PeerInfo, QueueLimits, Receiver,
};
use rekindle_cluster::{GroupId, Responder, RpcClient, RpcError, RpcHandler, ServerId};
use uuid::Uuid;

pub const CLUSTER: Uuid = Uuid::from_u128(0xc1u128);

/// What became of everything, by the number in its first eight bytes.
#[derive(Default)]
pub struct Ledger {
    pub asked: u64,
    pub open: BTreeSet<u64>,
    pub on_response: u64,
    pub not_connected: BTreeSet<u64>,
    pub no_answer: u64,
    pub refused: BTreeSet<u64>,
    pub carried_out: BTreeSet<u64>,
    pub letters_sent: BTreeMap<u64, usize>,
    pub letters_seen: BTreeSet<u64>,
    /// A digest of everything that was told, in order.
    pub trace: u64,
}

impl Ledger {
    pub fn note(&mut self, words: &[u64]) {
        for word in words {
            self.trace = (self.trace ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }
}

/// What a question or log_message of this number holds after the number.
pub fn filling(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    let mut state = number ^ 0x9e37_79b9_7f4a_7c15;
    while bytes.len() < len.max(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.push((state >> 56) as u8);
    }
    bytes
}

pub fn number_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// What the answer to a question is.
pub fn answer_to(question: &[u8], len: usize) -> Vec<u8> {
    filling(!number_of(question), len)
}

/// Receives for one node.
pub struct RpcServer {
    pub server: ServerId,
    random: SimRandom,
    ledger: Arc<Mutex<Ledger>>,
    pub state: Mutex<DeskState>,
}

#[derive(Default)]
pub struct DeskState {
    pub cluster: Option<Uuid>,
    pub heard: BTreeMap<ServerId, bool>,
    pub incarnations: BTreeMap<ServerId, u64>,
    pub later: Vec<(Bytes, Responder)>,
    pub book: String,
    pub was_removed: bool,
}

impl RpcHandler for RpcServer {
    fn handle(&self, from: ServerId, question: Bytes, reply: Responder) {
        let number = number_of(&question);
        assert_eq!(question, filling(number, question.len()), "question {number} was changed");
        {
            let mut ledger = self.ledger.lock().unwrap();
            ledger.note(&[1, from.0.as_u128() as u64, number]);
        }
        match self.random.below(20) {
            0 => drop(reply),
            1 => reply(Err("no".to_owned())),
            2..6 => self.state.lock().unwrap().later.push((question, reply)),
            _ => self.answer(&question, reply),
        }
    }
}

impl RpcServer {
    pub fn answer(&self, question: &[u8], reply: Responder) {
        let number = number_of(question);
        let is_new = self.ledger.lock().unwrap().carried_out.insert(number);
        assert!(is_new, "question {number} was carried out twice");
        let len = if self.random.one_in(40) { self.random.below(700_000) } else { self.random.below(300) };
        reply(Ok(Bytes::from(answer_to(question, len as usize))));
    }
}

impl Receiver for RpcServer {
    fn log_messages(&self, from: ServerId, log_messages: Vec<Message>) {
        let mut ledger = self.ledger.lock().unwrap();
        for log_message in log_messages {
            let number = number_of(&log_message.body);
            assert_eq!(
                log_message.body,
                filling(number, log_message.body.len()),
                "log_message {number} was changed"
            );
            assert_eq!(
                Some(&log_message.body.len()),
                ledger.letters_sent.get(&number),
                "log_message {number} was cut"
            );
            assert_eq!((log_message.group, log_message.from), (GroupId(number % 7), PeerId(number)));
            assert_eq!(
                log_message.to,
                PeerId(self.server.0.as_u128() as u64),
                "log_message {number} went astray"
            );
            assert!(ledger.letters_seen.insert(number), "log_message {number} came twice");
            ledger.note(&[2, from.0.as_u128() as u64, number]);
        }
    }

    fn connected(&self, info: &PeerInfo) {
        let mut state = self.state.lock().unwrap();
        assert_ne!(state.heard.insert(info.server, true), Some(true), "connected twice without silence");
        state.incarnations.insert(info.server, info.incarnation);
        self.ledger.lock().unwrap().note(&[3, info.server.0.as_u128() as u64]);
    }

    fn silent(&self, server: ServerId) {
        let was = self.state.lock().unwrap().heard.insert(server, false);
        assert_eq!(was, Some(true), "silent without having been heard");
        self.ledger.lock().unwrap().note(&[4, server.0.as_u128() as u64]);
    }

    fn back(&self, server: ServerId) {
        let was = self.state.lock().unwrap().heard.insert(server, true);
        assert_eq!(was, Some(false), "back without having been silent");
        self.ledger.lock().unwrap().note(&[5, server.0.as_u128() as u64]);
    }

    fn may_adopt(&self, cluster: Uuid, _by: &PeerInfo) -> Result<(), String> {
        self.state.lock().unwrap().cluster = Some(cluster);
        Ok(())
    }

    fn removed(&self) {
        self.state.lock().unwrap().was_removed = true;
    }

    fn keep_book(&self, text: &str) {
        self.state.lock().unwrap().book = text.to_owned();
    }
}

pub struct Node {
    pub host: Host,
    pub links: Links,
    pub desk: Arc<RpcServer>,
    party: Option<LinkParty>,
    wake_at: Nanos,
    happened: Vec<NetworkEvent>,
}

pub struct World {
    pub clock: SimClock,
    pub random: SimRandom,
    pub net: SimNetwork,
    pub nodes: Vec<Node>,
    pub ledger: Arc<Mutex<Ledger>>,
}

pub fn server(number: usize) -> ServerId {
    // Not in the order of the nodes, so that choosers and others mix.
    ServerId(Uuid::from_u128((number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)))
}

pub fn address(number: usize) -> String {
    format!("node-{number}:29015")
}

impl World {
    /// `count` nodes; the first has a cluster, the others join it through any of the earlier ones.
    pub fn new(seed: u64, count: usize) -> World {
        let (clock, random) = (SimClock::new(), SimRandom::new(seed));
        let mut net = SimNetwork::new(clock.clone(), random.clone());
        let hosts: Vec<Host> = (0..count).map(|number| net.add_host(&address(number))).collect();
        let mut world = World { clock, random, net, nodes: Vec::new(), ledger: Arc::default() };
        for (number, host) in hosts.into_iter().enumerate() {
            let join =
                if number == 0 { vec![] } else { vec![address(world.random.below(number as u64) as usize)] };
            let state = DeskState { cluster: (number == 0).then_some(CLUSTER), ..DeskState::default() };
            let node = world.start(number, host, join, state);
            world.nodes.push(node);
        }
        world
    }

    fn start(&self, number: usize, host: Host, join: Vec<String>, state: DeskState) -> Node {
        let me = Me {
            cluster: state.cluster,
            server: server(number),
            name: format!("n{number}"),
            tags: vec!["default".to_owned()],
            addresses: vec![address(number)],
            canonical: Vec::new(),
            port: 29015,
            is_proxy: false,
        };
        let book =
            if state.book.is_empty() { Book::default() } else { Book::parse(state.book.as_bytes()).unwrap() };
        let desk = Arc::new(RpcServer {
            server: me.server,
            random: self.random.clone(),
            ledger: self.ledger.clone(),
            state: Mutex::new(state),
        });
        let links = Links::new(LinkOptions {
            me,
            join,
            book,
            timings: LinkTimings::default(),
            limits: QueueLimits {
                questions_bytes_max: 1 << 20,
                letters_bytes_max: 1 << 20,
                answers_bytes_max: 2 << 20,
            },
            clock: Arc::new(self.clock.clone()),
            random: Arc::new(self.random.clone()),
        });
        let party = links.party(desk.clone());
        Node { host, links, desk, party, wake_at: self.clock.now(), happened: Vec::new() }
    }

    /// Ends the process of a node, and starts it anew with what it had on disk.
    pub fn restart(&mut self, number: usize) {
        let host = self.nodes[number].host;
        let old = {
            let desk = self.nodes[number].desk.clone();
            // What it owed is lost with it.
            self.nodes[number].party = None;
            desk.state.lock().unwrap().later.clear();
            let state = desk.state.lock().unwrap();
            DeskState { cluster: state.cluster, book: state.book.clone(), ..DeskState::default() }
        };
        self.net.crash(host);
        self.net.start(host);
        let join = if old.book.is_empty() && number > 0 { vec![address(0)] } else { vec![] };
        self.nodes[number] = self.start(number, host, join, old);
    }

    /// Asks a question of `len` bytes and enters into the ledger what comes of it.
    pub fn ask(&self, from: usize, to: usize, len: usize, timeout: Duration) -> u64 {
        let number = {
            let mut ledger = self.ledger.lock().unwrap();
            ledger.asked += 1;
            let number = ledger.asked;
            ledger.open.insert(number);
            number
        };
        let ledger = self.ledger.clone();
        let to = server(to);
        let on_response = move |result: Result<Bytes, RpcError>| {
            let mut ledger = ledger.lock().unwrap();
            assert!(ledger.open.remove(&number), "question {number} was on_response twice");
            let kind = match result {
                Ok(answer) => {
                    assert_eq!(answer, filling(!number, answer.len()), "the answer to {number} was changed");
                    assert!(ledger.carried_out.contains(&number), "{number} was on_response by nobody");
                    ledger.on_response += 1;
                    6
                }
                Err(RpcError::NotConnected(who)) => {
                    assert_eq!(who, to);
                    ledger.not_connected.insert(number);
                    7
                }
                Err(RpcError::NoAnswer(_)) => {
                    ledger.no_answer += 1;
                    8
                }
                Err(RpcError::Refused { .. }) => {
                    ledger.refused.insert(number);
                    9
                }
            };
            ledger.note(&[kind, number]);
        };
        let question = Bytes::from(filling(number, len));
        let links = &self.nodes[from].links;
        if self.random.one_in(3) {
            links.call_buffered(to, question, timeout, Box::new(on_response));
            links.flush();
        } else {
            links.call(to, question, timeout, Box::new(on_response));
        }
        number
    }

    pub fn send(&self, from: usize, to: usize, len: usize) {
        let number = self.random.next_u64();
        let body = Bytes::from(filling(number, len));
        self.ledger.lock().unwrap().letters_sent.insert(number, body.len());
        let to = server(to);
        let log_message = Message {
            group: GroupId(number % 7),
            from: PeerId(number),
            to: PeerId(to.0.as_u128() as u64),
            body,
        };
        self.nodes[from].links.send(to, vec![log_message]);
    }

    /// Answers questions that were put aside, some of them.
    pub fn answer_later(&self, node: usize) {
        let desk = &self.nodes[node].desk;
        let later = std::mem::take(&mut desk.state.lock().unwrap().later);
        for (question, reply) in later {
            desk.answer(&question, reply);
        }
    }

    /// Lets time pass until `until`.
    pub fn run_until(&mut self, until: Nanos) {
        loop {
            self.step_all();
            let net = self.net.next_at();
            let wakes =
                self.nodes.iter().filter(|node| !self.net.is_stalled(node.host)).map(|node| node.wake_at);
            let Some(next) = wakes.chain(net).min().filter(|next| *next <= until) else { break };
            let now = self.clock.now();
            self.clock.advance(next.since(now));
            for (host, happening) in self.net.deliver() {
                self.nodes[host.0].happened.push(happening);
            }
        }
        let now = self.clock.now();
        self.clock.advance(until.since(now));
    }

    pub fn run_for(&mut self, wait: Duration) {
        self.run_until(self.clock.now().after(wait));
    }

    fn step_all(&mut self) {
        let now = self.clock.now();
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            if self.net.is_stalled(node.host) {
                continue;
            }
            let Some(party) = &mut node.party else { continue };
            let mut steps = 0;
            while node.links.loop_waker().take_wake() || !node.happened.is_empty() || node.wake_at <= now {
                let mut orders = Vec::new();
                node.wake_at = party.step(now, &mut node.happened, &mut orders);
                steps += 1;
                assert!(steps < 100, "a party that always wants to be called at once");
                self.net.execute(node.host, orders);
            }
        }
    }

    /// Whether every node has a link with every other, heard on both ends.
    pub fn is_meshed(&self) -> bool {
        (0..self.nodes.len()).all(|one| {
            (0..self.nodes.len()).all(|other| one == other || self.nodes[one].links.is_heard(server(other)))
        })
    }
}
