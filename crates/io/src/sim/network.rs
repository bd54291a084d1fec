//! A simulated network with seeded faults, controlled by the test: single-threaded and non-blocking.
//!
//! Nodes are hosts with one address each. A simulation asks [`SimNetwork::next_at`] for the time of the next event,
//! moves the clock there, takes the events from [`SimNetwork::deliver`], steps the handlers of their hosts, and passes
//! their commands to [`SimNetwork::execute`].
//!
//! It has the guarantees of a real network, and no more. Bytes of one direction arrive in order and once, in arbitrary
//! chunks. A direction that is cut holds them back until it is mended, as TCP would by retransmission, or loses the
//! connection. The end of a connection must also be transmitted, so that one side may believe in a connection that the
//! other has long dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{SimClock, SimRandom};
use crate::network::{ConnectionId, Endpoints, NetworkCommand, NetworkEvent};
use crate::{Clock, Nanos};

/// A host of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub usize);

/// The speed and reliability of the network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkConditions {
    /// The minimum time from one host to another.
    pub delay_min: Duration,
    /// The maximum time from one host to another.
    pub delay_max: Duration,
    /// A connection breaks once in this many deliveries; never if zero.
    pub breaks_one_in: u64,
    /// The maximum size of the chunks in which bytes are delivered.
    pub chunk_bytes_max: usize,
    /// Bytes in flight in one direction above which the sender gets no [`NetworkEvent::Drained`].
    pub window_bytes: usize,
    /// How long dialing an unreachable host takes to fail.
    pub unreachable_after: Duration,
}

impl Default for NetworkConditions {
    fn default() -> NetworkConditions {
        NetworkConditions {
            delay_min: Duration::from_micros(100),
            delay_max: Duration::from_millis(2),
            breaks_one_in: 0,
            chunk_bytes_max: 64 << 10,
            window_bytes: 256 << 10,
            unreachable_after: Duration::from_secs(60),
        }
    }
}

/// Hosts, their connections, and the present faults.
pub struct SimNetwork {
    clock: SimClock,
    random: SimRandom,
    conditions: NetworkConditions,
    hosts: Vec<HostState>,
    /// Directions that are cut.
    cuts: BTreeSet<(Host, Host)>,
    connections: BTreeMap<u64, SimConnection>,
    connection_next: u64,
    accepted_next: u64,
    /// Events that need no transmission, because they come from the receiving host itself.
    ready: Vec<(Host, NetworkEvent)>,
}

struct HostState {
    address: String,
    is_up: bool,
    /// Stopped (SIGSTOP): receives nothing until it is resumed.
    is_stalled: bool,
    ends: BTreeMap<ConnectionId, (u64, Side)>,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Dialer,
    Accepter,
}

struct SimConnection {
    dialer: ConnectionEnd,
    accepter: ConnectionEnd,
}

/// One end of a connection, and the data in flight to it.
struct ConnectionEnd {
    host: Host,
    id: ConnectionId,
    /// Whether the handler there still knows the connection.
    is_open: bool,
    in_flight: VecDeque<(Nanos, InFlight)>,
    /// Bytes in flight to this end.
    in_flight_bytes: usize,
    /// Whether the other end must be notified when all bytes have arrived.
    notify_drained: bool,
}

enum InFlight {
    Dial,
    Connected,
    Bytes(Bytes),
    Closed(String),
}

impl SimNetwork {
    /// A network without hosts.
    #[must_use]
    pub fn new(clock: SimClock, random: SimRandom) -> SimNetwork {
        SimNetwork {
            clock,
            random,
            conditions: NetworkConditions::default(),
            hosts: Vec::new(),
            cuts: BTreeSet::new(),
            connections: BTreeMap::new(),
            connection_next: 0,
            accepted_next: 0,
            ready: Vec::new(),
        }
    }

    /// Adds a host that listens at `address`.
    pub fn add_host(&mut self, address: &str) -> Host {
        let (address, ends) = (address.to_owned(), BTreeMap::new());
        self.hosts.push(HostState { address, is_up: true, is_stalled: false, ends });
        Host(self.hosts.len() - 1)
    }

    pub fn set_conditions(&mut self, conditions: NetworkConditions) {
        self.conditions = conditions;
    }

    /// Cuts the direction from `from` to `to`; data in flight waits.
    pub fn cut(&mut self, from: Host, to: Host) {
        self.cuts.insert((from, to));
    }

    /// Mends the direction from `from` to `to`.
    pub fn mend(&mut self, from: Host, to: Host) {
        self.cuts.remove(&(from, to));
    }

    /// Mends all directions.
    pub fn heal_cuts(&mut self) {
        self.cuts.clear();
    }

    /// Mends all directions and resumes all hosts.
    pub fn heal(&mut self) {
        self.heal_cuts();
        for host in &mut self.hosts {
            host.is_stalled = false;
        }
    }

    /// Stops a host: it receives nothing until it is resumed.
    pub fn stall(&mut self, host: Host) {
        self.hosts[host.0].is_stalled = true;
    }

    /// Resumes a stopped host.
    pub fn resume(&mut self, host: Host) {
        self.hosts[host.0].is_stalled = false;
    }

    /// Whether the host is stopped: its handler must not be stepped.
    #[must_use]
    pub fn is_stalled(&self, host: Host) -> bool {
        self.hosts[host.0].is_stalled
    }

    /// Ends the process on `host`: its connections end, and dialing it fails.
    pub fn crash(&mut self, host: Host) {
        self.hosts[host.0].is_up = false;
        self.ready.retain(|(to, _)| *to != host);
        let ends = std::mem::take(&mut self.hosts[host.0].ends);
        for (connection, side) in ends.into_values() {
            self.close_from(connection, side, "the process at the other end is gone");
        }
    }

    /// Starts a new process on `host`.
    pub fn start(&mut self, host: Host) {
        self.hosts[host.0].is_up = true;
        self.hosts[host.0].is_stalled = false;
    }

    /// Resets every connection between two hosts, like a router that loses its state.
    pub fn break_between(&mut self, one: Host, other: Host) {
        let between = |connection: &SimConnection| {
            let hosts = (connection.dialer.host, connection.accepter.host);
            hosts == (one, other) || hosts == (other, one)
        };
        let broken: Vec<u64> = self.connections.iter().filter(|(_, c)| between(c)).map(|(n, _)| *n).collect();
        for connection in broken {
            self.reset_connection(connection);
        }
    }

    /// The time of the next event, without further commands.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        if self.ready.iter().any(|(host, _)| !self.is_stalled(*host)) {
            return Some(self.clock.now());
        }
        let ends = self.connections.values().flat_map(|connection| {
            [(&connection.dialer, connection.accepter.host), (&connection.accepter, connection.dialer.host)]
        });
        let in_flight = ends.filter(|(end, from)| self.passes(*from, end.host) && end.is_open);
        in_flight.filter_map(|(end, _)| end.in_flight.front()).map(|(at, _)| *at).min()
    }

    /// Takes the events of the present time, at most one per direction of a connection.
    pub fn deliver(&mut self) -> Vec<(Host, NetworkEvent)> {
        let now = self.clock.now();
        let ready = std::mem::take(&mut self.ready);
        let (mut network_events, stalled): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|(host, _)| !self.is_stalled(*host));
        self.ready = stalled;
        let connections: Vec<u64> = self.connections.keys().copied().collect();
        for number in connections {
            for side in [Side::Dialer, Side::Accepter] {
                if let Some(one) = self.deliver_to(number, side, now) {
                    network_events.push(one);
                }
            }
            if self
                .connections
                .get(&number)
                .is_some_and(|connection| !connection.dialer.is_open && !connection.accepter.is_open)
            {
                self.connections.remove(&number);
            }
        }
        network_events
    }

    /// Executes the commands of the handler on `host`.
    pub fn execute(&mut self, host: Host, commands: Vec<NetworkCommand>) {
        for command in commands {
            match command {
                NetworkCommand::Connect(id, address) => self.dial(host, id, &address),
                NetworkCommand::Send { connection, bytes, notify_drained } => {
                    self.send(host, connection, bytes, notify_drained)
                }
                NetworkCommand::Close(id) => {
                    if let Some((connection, side)) = self.hosts[host.0].ends.remove(&id) {
                        self.close_from(connection, side, "the other side closed the connection");
                    }
                }
            }
        }
    }

    fn passes(&self, from: Host, to: Host) -> bool {
        !self.cuts.contains(&(from, to)) && !self.hosts[to.0].is_stalled
    }

    fn delay(&self) -> Duration {
        let (least, most) = (self.conditions.delay_min.as_nanos(), self.conditions.delay_max.as_nanos());
        let spread = u64::try_from(most.saturating_sub(least)).unwrap_or(u64::MAX);
        self.conditions.delay_min + Duration::from_nanos(self.random.below(spread.saturating_add(1)))
    }

    fn dial(&mut self, host: Host, id: ConnectionId, address: &str) {
        let now = self.clock.now();
        let number = self.connection_next;
        self.connection_next += 1;
        self.hosts[host.0].ends.insert(id, (number, Side::Dialer));
        let end = |host, id, is_open| {
            let (in_flight, in_flight_bytes, notify_drained) = (VecDeque::new(), 0, false);
            ConnectionEnd { host, id, is_open, in_flight, in_flight_bytes, notify_drained }
        };
        let found = self.hosts.iter().position(|state| state.address == address).map(Host);
        let mut connection = SimConnection { dialer: end(host, id, true), accepter: end(host, id, false) };
        let answer = now.after(self.delay() + self.delay());
        match found {
            Some(other) if self.hosts[other.0].is_up => {
                if self.cuts.contains(&(host, other)) || self.cuts.contains(&(other, host)) {
                    // Retransmission does not help: dialing fails after a timeout.
                    let at = now.after(self.conditions.unreachable_after);
                    connection.dialer.in_flight.push_back((at, InFlight::Closed("no route".to_owned())));
                } else {
                    let accepted = ConnectionId::accepted(self.accepted_next);
                    self.accepted_next += 1;
                    connection.accepter = end(other, accepted, true);
                    connection.accepter.in_flight.push_back((now.after(self.delay()), InFlight::Dial));
                    connection.dialer.in_flight.push_back((answer, InFlight::Connected));
                }
            }
            _ => {
                let refused = InFlight::Closed("connection refused".to_owned());
                connection.dialer.in_flight.push_back((answer, refused));
            }
        }
        self.connections.insert(number, connection);
    }

    fn send(&mut self, host: Host, id: ConnectionId, bytes: Vec<Bytes>, notify_drained: bool) {
        let Some((number, side)) = self.hosts[host.0].ends.get(&id).copied() else { return };
        let (delay, now) = (self.delay(), self.clock.now());
        let window_bytes = self.conditions.window_bytes;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (_, remote) = connection.ends(side);
        let mut whole = BytesMut::new();
        bytes.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        remote.in_flight_bytes += whole.len();
        if !whole.is_empty() && remote.is_open {
            let last = remote.in_flight.back().map_or(now, |(at, _)| *at);
            remote.in_flight.push_back((last.max(now.after(delay)), InFlight::Bytes(whole.freeze())));
        }
        if notify_drained && remote.in_flight_bytes <= window_bytes {
            self.ready.push((host, NetworkEvent::Drained(id)));
        } else if notify_drained {
            remote.notify_drained = true;
        }
    }

    /// The handler at `side` has closed the connection; the other end learns it after a delay.
    fn close_from(&mut self, number: u64, side: Side, why: &str) {
        let (delay, now) = (self.delay(), self.clock.now());
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (own, remote) = connection.ends(side);
        own.is_open = false;
        own.in_flight.clear();
        let last = remote.in_flight.back().map_or(now, |(at, _)| *at);
        remote.in_flight.push_back((last.max(now.after(delay)), InFlight::Closed(why.to_owned())));
    }

    /// Resets the connection: both ends lose it and the data in flight.
    fn reset_connection(&mut self, number: u64) {
        let now = self.clock.now();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        for end in [&mut connection.dialer, &mut connection.accepter] {
            end.in_flight.clear();
            end.in_flight.push_back((now, InFlight::Closed("connection reset".to_owned())));
        }
    }

    fn endpoints_between(&self, local: Host, remote: Host) -> Endpoints {
        let [local, remote] = [local, remote].map(|host| self.hosts[host.0].address.clone());
        Endpoints { local, remote }
    }

    fn deliver_to(&mut self, number: u64, side: Side, now: Nanos) -> Option<(Host, NetworkEvent)> {
        let connection = self.connections.get_mut(&number)?;
        let (end, remote) = connection.ends(side);
        let (host, id, from) = (end.host, end.id, remote.host);
        if !end.is_open {
            return None;
        }
        let (at, _) = end.in_flight.front()?;
        if *at > now || !self.passes(from, host) {
            return None;
        }
        if self.conditions.breaks_one_in > 0 && self.random.one_in(self.conditions.breaks_one_in) {
            self.reset_connection(number);
        }
        let chunk_bytes = 1 + self.random.below(self.conditions.chunk_bytes_max.max(1) as u64) as usize;
        let window_bytes = self.conditions.window_bytes;
        let (end, remote) = self.connections.get_mut(&number)?.ends(side);
        let (at, what) = end.in_flight.pop_front()?;
        let event = match what {
            InFlight::Dial => {
                self.hosts[host.0].ends.insert(id, (number, side));
                NetworkEvent::Accepted(id, self.endpoints_between(host, from))
            }
            InFlight::Connected => NetworkEvent::Connected(id, self.endpoints_between(host, from)),
            InFlight::Bytes(mut bytes) => {
                let chunk = bytes.split_to(chunk_bytes.min(bytes.len()));
                if !bytes.is_empty() {
                    end.in_flight.push_front((at, InFlight::Bytes(bytes)));
                }
                end.in_flight_bytes = end.in_flight_bytes.saturating_sub(chunk.len());
                if end.notify_drained && end.in_flight_bytes <= window_bytes {
                    end.notify_drained = false;
                    self.ready.push((from, NetworkEvent::Drained(remote.id)));
                }
                NetworkEvent::Arrived(id, chunk)
            }
            InFlight::Closed(why) => {
                end.is_open = false;
                self.hosts[host.0].ends.remove(&id);
                NetworkEvent::Closed(id, why)
            }
        };
        Some((host, event))
    }
}

impl SimConnection {
    /// The end at `side`, and the opposite one.
    fn ends(&mut self, side: Side) -> (&mut ConnectionEnd, &mut ConnectionEnd) {
        match side {
            Side::Dialer => (&mut self.dialer, &mut self.accepter),
            Side::Accepter => (&mut self.accepter, &mut self.dialer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pair {
        clock: SimClock,
        net: SimNetwork,
        hosts: [Host; 2],
        id: ConnectionId,
    }

    /// Two hosts; the first dials the second.
    fn pair() -> Pair {
        let clock = SimClock::new();
        let mut net = SimNetwork::new(clock.clone(), SimRandom::new(1));
        let hosts = [net.add_host("a:1"), net.add_host("b:1")];
        let id = ConnectionId::dialed(1);
        net.execute(hosts[0], vec![NetworkCommand::Connect(id, "b:1".to_owned())]);
        Pair { clock, net, hosts, id }
    }

    impl Pair {
        /// All events until there are no more.
        fn settle(&mut self) -> Vec<(Host, NetworkEvent)> {
            let mut network_events = Vec::new();
            while let Some(at) = self.net.next_at() {
                self.clock.advance(at.since(self.clock.now()));
                network_events.extend(self.net.deliver());
            }
            network_events
        }

        fn send(&mut self, text: &'static [u8]) {
            let command = NetworkCommand::Send {
                connection: self.id,
                bytes: vec![Bytes::from_static(text)],
                notify_drained: false,
            };
            self.net.execute(self.hosts[0], vec![command]);
        }
    }

    fn text(network_events: &[(Host, NetworkEvent)]) -> Vec<u8> {
        let bytes = network_events.iter().filter_map(|(_, event)| match event {
            NetworkEvent::Arrived(_, bytes) => Some(bytes.to_vec()),
            _ => None,
        });
        bytes.flatten().collect()
    }

    #[test]
    fn a_cut_holds_bytes_back_and_hides_the_end() {
        let mut pair = pair();
        assert_eq!(pair.settle().len(), 2, "one end has dialed, the other accepted");
        let [one, other] = pair.hosts;
        pair.net.cut(one, other);
        pair.send(b"first ");
        pair.send(b"second");
        pair.net.execute(one, vec![NetworkCommand::Close(pair.id)]);
        assert!(pair.settle().is_empty(), "nothing passes, not even the end");
        pair.net.mend(one, other);
        let network_events = pair.settle();
        assert_eq!(text(&network_events), b"first second");
        assert!(matches!(network_events.last(), Some((host, NetworkEvent::Closed(..))) if *host == other));
    }

    #[test]
    fn an_unused_address_refuses_and_a_cut_times_out() {
        let mut pair = pair();
        pair.settle();
        let [one, other] = pair.hosts;
        let id = ConnectionId::dialed(2);
        pair.net.execute(one, vec![NetworkCommand::Connect(id, "c:1".to_owned())]);
        assert!(matches!(&pair.settle()[..], [(_, NetworkEvent::Closed(closed, _))] if *closed == id));
        pair.net.cut(other, one);
        let (before, id) = (pair.clock.now(), ConnectionId::dialed(3));
        pair.net.execute(one, vec![NetworkCommand::Connect(id, "b:1".to_owned())]);
        pair.net.mend(other, one);
        pair.settle();
        assert_eq!(pair.clock.now().since(before), NetworkConditions::default().unreachable_after);
    }

    #[test]
    fn a_process_that_crashes_ends_its_connections() {
        let mut pair = pair();
        pair.settle();
        let [one, other] = pair.hosts;
        pair.net.crash(other);
        assert!(matches!(&pair.settle()[..], [(host, NetworkEvent::Closed(..))] if *host == one));
        pair.net.execute(one, vec![NetworkCommand::Connect(ConnectionId::dialed(2), "b:1".to_owned())]);
        assert!(matches!(&pair.settle()[..], [(_, NetworkEvent::Closed(..))]));
    }
}
