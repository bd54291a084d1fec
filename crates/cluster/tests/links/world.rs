//! A cluster of links in one thread: nodes, a simulated network, and a ledger of the outcomes of requests and messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::sim::{Host, SimClock, SimNetwork, SimRandom};
use io::{Clock, Nanos, NetworkEvent, NetworkHandler, Random};
use rekindle_cluster::link::{
    AddressBook, LinkHandler, LinkOptions, LinkTimings, Links, LocalServer, Message, PeerId, PeerInfo,
    QueueLimits, Receiver,
};
use rekindle_cluster::{GroupId, Responder, RpcClient, RpcError, RpcHandler, ServerId};
use uuid::Uuid;

pub const CLUSTER: Uuid = Uuid::from_u128(0xc1u128);

/// The outcomes of all requests and messages, by the number in their first eight bytes.
#[derive(Default)]
pub struct Ledger {
    pub requests_sent: u64,
    pub open: BTreeSet<u64>,
    pub answered: u64,
    pub not_connected: BTreeSet<u64>,
    pub no_response: u64,
    pub refused: BTreeSet<u64>,
    pub carried_out: BTreeSet<u64>,
    pub log_messages_sent: BTreeMap<u64, usize>,
    pub log_messages_received: BTreeSet<u64>,
    /// A digest of all events, in order.
    pub trace: u64,
}

impl Ledger {
    pub fn note(&mut self, event: &[u64]) {
        for word in event {
            self.trace = (self.trace ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }
}

/// The content of the request or message with this number: the number, then pseudorandom bytes.
pub fn content(number: u64, len: usize) -> Vec<u8> {
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

pub fn response_to(request: &[u8], len: usize) -> Vec<u8> {
    content(!number_of(request), len)
}

/// Receives the events, requests and messages of one node.
pub struct TestReceiver {
    pub server: ServerId,
    random: SimRandom,
    ledger: Arc<Mutex<Ledger>>,
    pub state: Mutex<ReceiverState>,
}

#[derive(Default)]
pub struct ReceiverState {
    pub cluster: Option<Uuid>,
    pub is_connected: BTreeMap<ServerId, bool>,
    pub incarnations: BTreeMap<ServerId, u64>,
    pub deferred: Vec<(Bytes, Responder)>,
    pub address_book: String,
    pub was_removed: bool,
}

impl RpcHandler for TestReceiver {
    fn handle(&self, from: ServerId, request: Bytes, respond: Responder) {
        let number = number_of(&request);
        assert_eq!(request, content(number, request.len()), "request {number} was changed");
        {
            let mut ledger = self.ledger.lock().unwrap();
            ledger.note(&[1, from.0.as_u128() as u64, number]);
        }
        match self.random.below(20) {
            0 => drop(respond),
            1 => respond(Err("no".to_owned())),
            2..6 => self.state.lock().unwrap().deferred.push((request, respond)),
            _ => self.answer(&request, respond),
        }
    }
}

impl TestReceiver {
    pub fn answer(&self, request: &[u8], respond: Responder) {
        let number = number_of(request);
        let is_new = self.ledger.lock().unwrap().carried_out.insert(number);
        assert!(is_new, "request {number} was carried out twice");
        let len = if self.random.one_in(40) { self.random.below(700_000) } else { self.random.below(300) };
        respond(Ok(Bytes::from(response_to(request, len as usize))));
    }
}

impl Receiver for TestReceiver {
    fn log_messages(&self, from: ServerId, log_messages: Vec<Message>) {
        let mut ledger = self.ledger.lock().unwrap();
        for log_message in log_messages {
            let number = number_of(&log_message.body);
            assert_eq!(
                log_message.body,
                content(number, log_message.body.len()),
                "message {number} was changed"
            );
            assert_eq!(
                Some(&log_message.body.len()),
                ledger.log_messages_sent.get(&number),
                "message {number} was truncated"
            );
            assert_eq!((log_message.group, log_message.from), (GroupId(number % 7), PeerId(number)));
            assert_eq!(
                log_message.to,
                PeerId(self.server.0.as_u128() as u64),
                "message {number} was delivered to another server"
            );
            assert!(ledger.log_messages_received.insert(number), "message {number} was delivered twice");
            ledger.note(&[2, from.0.as_u128() as u64, number]);
        }
    }

    fn connected(&self, info: &PeerInfo) {
        let mut state = self.state.lock().unwrap();
        assert_ne!(
            state.is_connected.insert(info.server, true),
            Some(true),
            "connected twice without silence"
        );
        state.incarnations.insert(info.server, info.incarnation);
        self.ledger.lock().unwrap().note(&[3, info.server.0.as_u128() as u64]);
    }

    fn silent(&self, server: ServerId) {
        let was = self.state.lock().unwrap().is_connected.insert(server, false);
        assert_eq!(was, Some(true), "silent without having been connected");
        self.ledger.lock().unwrap().note(&[4, server.0.as_u128() as u64]);
    }

    fn back(&self, server: ServerId) {
        let was = self.state.lock().unwrap().is_connected.insert(server, true);
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

    fn store_address_book(&self, text: &str) {
        self.state.lock().unwrap().address_book = text.to_owned();
    }
}

pub struct Node {
    pub host: Host,
    pub links: Links,
    pub receiver: Arc<TestReceiver>,
    handler: Option<LinkHandler>,
    wake_at: Nanos,
    events: Vec<NetworkEvent>,
}

pub struct World {
    pub clock: SimClock,
    pub random: SimRandom,
    pub net: SimNetwork,
    pub nodes: Vec<Node>,
    pub ledger: Arc<Mutex<Ledger>>,
}

pub fn server(number: usize) -> ServerId {
    // Not in the order of the nodes, so that each node is the chooser of some links.
    ServerId(Uuid::from_u128((number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)))
}

pub fn address(number: usize) -> String {
    format!("node-{number}:29015")
}

impl World {
    /// `count` nodes. The first belongs to a cluster; each other one joins it through an earlier one.
    pub fn new(seed: u64, count: usize) -> World {
        let (clock, random) = (SimClock::new(), SimRandom::new(seed));
        let mut net = SimNetwork::new(clock.clone(), random.clone());
        let hosts: Vec<Host> = (0..count).map(|number| net.add_host(&address(number))).collect();
        let mut world = World { clock, random, net, nodes: Vec::new(), ledger: Arc::default() };
        for (number, host) in hosts.into_iter().enumerate() {
            let join =
                if number == 0 { vec![] } else { vec![address(world.random.below(number as u64) as usize)] };
            let state =
                ReceiverState { cluster: (number == 0).then_some(CLUSTER), ..ReceiverState::default() };
            let node = world.start(number, host, join, state);
            world.nodes.push(node);
        }
        world
    }

    fn start(&self, number: usize, host: Host, join: Vec<String>, state: ReceiverState) -> Node {
        let local = LocalServer {
            cluster: state.cluster,
            server: server(number),
            name: format!("n{number}"),
            tags: vec!["default".to_owned()],
            addresses: vec![address(number)],
            canonical: Vec::new(),
            port: 29015,
            is_proxy: false,
        };
        let address_book = if state.address_book.is_empty() {
            AddressBook::default()
        } else {
            AddressBook::parse(state.address_book.as_bytes()).unwrap()
        };
        let receiver = Arc::new(TestReceiver {
            server: local.server,
            random: self.random.clone(),
            ledger: self.ledger.clone(),
            state: Mutex::new(state),
        });
        let links = Links::new(LinkOptions {
            local,
            join,
            address_book,
            timings: LinkTimings::default(),
            limits: QueueLimits {
                requests_bytes_max: 1 << 20,
                log_messages_bytes_max: 1 << 20,
                responses_bytes_max: 2 << 20,
            },
            clock: Arc::new(self.clock.clone()),
            random: Arc::new(self.random.clone()),
        });
        let handler = links.handler(receiver.clone());
        Node { host, links, receiver, handler, wake_at: self.clock.now(), events: Vec::new() }
    }

    /// Restarts the process of a node with the data that it had on disk.
    pub fn restart(&mut self, number: usize) {
        let host = self.nodes[number].host;
        let old = {
            let receiver = self.nodes[number].receiver.clone();
            // Responses that it has not sent are lost.
            self.nodes[number].handler = None;
            receiver.state.lock().unwrap().deferred.clear();
            let state = receiver.state.lock().unwrap();
            ReceiverState {
                cluster: state.cluster,
                address_book: state.address_book.clone(),
                ..ReceiverState::default()
            }
        };
        self.net.crash(host);
        self.net.start(host);
        let join = if old.address_book.is_empty() && number > 0 { vec![address(0)] } else { vec![] };
        self.nodes[number] = self.start(number, host, join, old);
    }

    /// Sends a request of `len` bytes and enters its outcome into the ledger.
    pub fn call(&self, from: usize, to: usize, len: usize, timeout: Duration) -> u64 {
        let number = {
            let mut ledger = self.ledger.lock().unwrap();
            ledger.requests_sent += 1;
            let number = ledger.requests_sent;
            ledger.open.insert(number);
            number
        };
        let ledger = self.ledger.clone();
        let to = server(to);
        let on_response = move |result: Result<Bytes, RpcError>| {
            let mut ledger = ledger.lock().unwrap();
            assert!(ledger.open.remove(&number), "request {number} has two outcomes");
            let kind = match result {
                Ok(response) => {
                    assert_eq!(
                        response,
                        content(!number, response.len()),
                        "the response to {number} was changed"
                    );
                    assert!(
                        ledger.carried_out.contains(&number),
                        "{number} has a response but was not carried out"
                    );
                    ledger.answered += 1;
                    6
                }
                Err(RpcError::NotConnected(server)) => {
                    assert_eq!(server, to);
                    ledger.not_connected.insert(number);
                    7
                }
                Err(RpcError::NoResponse(_)) => {
                    ledger.no_response += 1;
                    8
                }
                Err(RpcError::Refused { .. }) => {
                    ledger.refused.insert(number);
                    9
                }
            };
            ledger.note(&[kind, number]);
        };
        let request = Bytes::from(content(number, len));
        let links = &self.nodes[from].links;
        if self.random.one_in(3) {
            links.call_buffered(to, request, timeout, Box::new(on_response));
            links.flush();
        } else {
            links.call(to, request, timeout, Box::new(on_response));
        }
        number
    }

    pub fn send(&self, from: usize, to: usize, len: usize) {
        let number = self.random.next_u64();
        let body = Bytes::from(content(number, len));
        self.ledger.lock().unwrap().log_messages_sent.insert(number, body.len());
        let to = server(to);
        let log_message = Message {
            group: GroupId(number % 7),
            from: PeerId(number),
            to: PeerId(to.0.as_u128() as u64),
            body,
        };
        self.nodes[from].links.send(to, vec![log_message]);
    }

    /// Answers the deferred requests of a node.
    pub fn answer_deferred(&self, node: usize) {
        let receiver = &self.nodes[node].receiver;
        let deferred = std::mem::take(&mut receiver.state.lock().unwrap().deferred);
        for (request, respond) in deferred {
            receiver.answer(&request, respond);
        }
    }

    /// Runs the simulation until `until`.
    pub fn run_until(&mut self, until: Nanos) {
        loop {
            self.step_all();
            let net = self.net.next_at();
            let wake_times =
                self.nodes.iter().filter(|node| !self.net.is_stalled(node.host)).map(|node| node.wake_at);
            let Some(next) = wake_times.chain(net).min().filter(|next| *next <= until) else { break };
            let now = self.clock.now();
            self.clock.advance(next.since(now));
            for (host, event) in self.net.deliver() {
                self.nodes[host.0].events.push(event);
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
            let Some(handler) = &mut node.handler else { continue };
            let mut steps = 0;
            while node.links.loop_waker().take_wake() || !node.events.is_empty() || node.wake_at <= now {
                let mut network_commands = Vec::new();
                node.wake_at = handler.step(now, &mut node.events, &mut network_commands);
                steps += 1;
                assert!(steps < 100, "the handler always asks for another step at once");
                self.net.execute(node.host, network_commands);
            }
        }
    }

    /// Whether every node has a link with every other node, and none is silent.
    pub fn is_meshed(&self) -> bool {
        (0..self.nodes.len()).all(|one| {
            (0..self.nodes.len())
                .all(|other| one == other || self.nodes[one].links.is_responding(server(other)))
        })
    }
}
