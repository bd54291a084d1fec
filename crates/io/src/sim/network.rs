//! A network of seeded faults, under the test's hand: one thread, no waiting.
//!
//! Nodes are hosts with one address each. Whoever drives a simulation asks [`SimNetwork::next_at`] when
//! something happens next, moves the clock there, takes it with [`SimNetwork::deliver`], steps the
//! party it happened to, and hands the party's orders to [`SimNetwork::carry_out`].
//!
//! What holds on a real network holds here, and no more: bytes of one direction arrive in order and
//! once, cut anywhere; a direction that is cut holds them back until it is mended, as TCP would by
//! sending again, or loses the connection; the end of a connection is news that must travel, too, so
//! that one side may believe in a connection the other has long forgotten.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{SimClock, SimRandom};
use crate::network::{ConnectionId, Ends, Happening, Order};
use crate::{Clock, Nanos};

/// A node on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub usize);

/// How fast and how reliable the network is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Least time from one host to another.
    pub delay_least: Duration,
    /// Most time from one host to another.
    pub delay_most: Duration,
    /// A connection breaks once in so many deliveries; never if zero.
    pub breaks_one_in: u64,
    /// Bytes are cut into pieces at most this long on their way.
    pub piece_bytes_max: usize,
    /// Bytes under way in one direction before the sender hears nothing more of room.
    pub window_bytes: usize,
    /// How long a dialer waits for a host that cannot be reached before it hears so.
    pub unreachable_after: Duration,
}

impl Default for Weather {
    fn default() -> Weather {
        Weather {
            delay_least: Duration::from_micros(100),
            delay_most: Duration::from_millis(2),
            breaks_one_in: 0,
            piece_bytes_max: 64 << 10,
            window_bytes: 256 << 10,
            unreachable_after: Duration::from_secs(60),
        }
    }
}

/// Hosts, the connections between them, and what is wrong today.
pub struct SimNetwork {
    clock: SimClock,
    random: SimRandom,
    weather: Weather,
    hosts: Vec<HostState>,
    /// Directions in which nothing passes.
    cuts: BTreeSet<(Host, Host)>,
    cables: BTreeMap<u64, Cable>,
    cable_next: u64,
    accepted_next: u64,
    /// News of the own host, which need not travel.
    ready: Vec<(Host, Happening)>,
}

struct HostState {
    address: String,
    is_up: bool,
    /// Stopped (SIGSTOP): hears nothing until it goes on.
    is_stalled: bool,
    ends: BTreeMap<ConnectionId, (u64, Side)>,
}

/// Which end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Dialer,
    Accepter,
}

struct Cable {
    dialer: End,
    accepter: End,
}

/// One end of a connection, and what is under way to it.
struct End {
    host: Host,
    id: ConnectionId,
    /// Whether the party there still knows of it.
    is_open: bool,
    coming: VecDeque<(Nanos, Travelling)>,
    /// Bytes under way to this end.
    coming_bytes: usize,
    /// The other end wants to hear when all of them are here.
    tell: bool,
}

enum Travelling {
    Dial,
    Stands,
    Bytes(Bytes),
    End(String),
}

impl SimNetwork {
    /// A network with nobody on it.
    #[must_use]
    pub fn new(clock: SimClock, random: SimRandom) -> SimNetwork {
        SimNetwork {
            clock,
            random,
            weather: Weather::default(),
            hosts: Vec::new(),
            cuts: BTreeSet::new(),
            cables: BTreeMap::new(),
            cable_next: 0,
            accepted_next: 0,
            ready: Vec::new(),
        }
    }

    /// A new host that listens at `address`.
    pub fn add_host(&mut self, address: &str) -> Host {
        let state =
            HostState { address: address.to_owned(), is_up: true, is_stalled: false, ends: BTreeMap::new() };
        self.hosts.push(state);
        Host(self.hosts.len() - 1)
    }

    /// From now on the network is like this.
    pub fn set_weather(&mut self, weather: Weather) {
        self.weather = weather;
    }

    /// Nothing passes from `from` to `to` any more; what is under way waits.
    pub fn cut(&mut self, from: Host, to: Host) {
        self.cuts.insert((from, to));
    }

    /// Things pass again from `from` to `to`.
    pub fn mend(&mut self, from: Host, to: Host) {
        self.cuts.remove(&(from, to));
    }

    /// Things pass everywhere again.
    pub fn heal_cuts(&mut self) {
        self.cuts.clear();
    }

    /// Things pass everywhere, and nobody is stopped.
    pub fn heal(&mut self) {
        self.heal_cuts();
        for host in &mut self.hosts {
            host.is_stalled = false;
        }
    }

    /// Stops a host: it hears nothing until it goes on.
    pub fn stall(&mut self, host: Host) {
        self.hosts[host.0].is_stalled = true;
    }

    /// Lets a stopped host go on.
    pub fn go_on(&mut self, host: Host) {
        self.hosts[host.0].is_stalled = false;
    }

    /// Whether the host is stopped: its party must not be stepped.
    #[must_use]
    pub fn is_stalled(&self, host: Host) -> bool {
        self.hosts[host.0].is_stalled
    }

    /// Ends the process on `host`: its connections end, nobody can dial it.
    pub fn crash(&mut self, host: Host) {
        self.hosts[host.0].is_up = false;
        self.ready.retain(|(to, _)| *to != host);
        let ends = std::mem::take(&mut self.hosts[host.0].ends);
        for (cable, side) in ends.into_values() {
            self.hang_up(cable, side, "the process at the other end is gone");
        }
    }

    /// Starts a new process on `host`.
    pub fn start(&mut self, host: Host) {
        self.hosts[host.0].is_up = true;
        self.hosts[host.0].is_stalled = false;
    }

    /// Ends every connection between two hosts, as a router that forgets would.
    pub fn break_between(&mut self, one: Host, other: Host) {
        let between = |cable: &Cable| {
            let hosts = (cable.dialer.host, cable.accepter.host);
            hosts == (one, other) || hosts == (other, one)
        };
        let broken: Vec<u64> = self.cables.iter().filter(|(_, c)| between(c)).map(|(n, _)| *n).collect();
        for cable in broken {
            self.break_cable(cable);
        }
    }

    /// When something happens next, if nobody does anything.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        if self.ready.iter().any(|(host, _)| !self.is_stalled(*host)) {
            return Some(self.clock.now());
        }
        let ends = self
            .cables
            .values()
            .flat_map(|cable| [(&cable.dialer, cable.accepter.host), (&cable.accepter, cable.dialer.host)]);
        let coming = ends.filter(|(end, from)| self.passes(*from, end.host) && end.is_open);
        coming.filter_map(|(end, _)| end.coming.front()).map(|(at, _)| *at).min()
    }

    /// Takes what happens now, one thing for each direction of a connection at most.
    pub fn deliver(&mut self) -> Vec<(Host, Happening)> {
        let now = self.clock.now();
        let ready = std::mem::take(&mut self.ready);
        let (mut happened, stalled): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|(host, _)| !self.is_stalled(*host));
        self.ready = stalled;
        let cables: Vec<u64> = self.cables.keys().copied().collect();
        for number in cables {
            for side in [Side::Dialer, Side::Accepter] {
                if let Some(one) = self.deliver_to(number, side, now) {
                    happened.push(one);
                }
            }
            if self.cables.get(&number).is_some_and(|cable| !cable.dialer.is_open && !cable.accepter.is_open)
            {
                self.cables.remove(&number);
            }
        }
        happened
    }

    /// Does what the party on `host` wants.
    pub fn carry_out(&mut self, host: Host, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Connect(id, address) => self.dial(host, id, &address),
                Order::Send { connection, bytes, tell } => self.send(host, connection, bytes, tell),
                Order::Close(id) => {
                    if let Some((cable, side)) = self.hosts[host.0].ends.remove(&id) {
                        self.hang_up(cable, side, "the other side closed the connection");
                    }
                }
            }
        }
    }

    fn passes(&self, from: Host, to: Host) -> bool {
        !self.cuts.contains(&(from, to)) && !self.hosts[to.0].is_stalled
    }

    fn delay(&self) -> Duration {
        let (least, most) = (self.weather.delay_least.as_nanos(), self.weather.delay_most.as_nanos());
        let spread = u64::try_from(most.saturating_sub(least)).unwrap_or(u64::MAX);
        self.weather.delay_least + Duration::from_nanos(self.random.below(spread.saturating_add(1)))
    }

    fn dial(&mut self, host: Host, id: ConnectionId, address: &str) {
        let now = self.clock.now();
        let number = self.cable_next;
        self.cable_next += 1;
        self.hosts[host.0].ends.insert(id, (number, Side::Dialer));
        let end = |host, id, is_open| End {
            host,
            id,
            is_open,
            coming: VecDeque::new(),
            coming_bytes: 0,
            tell: false,
        };
        let found = self.hosts.iter().position(|state| state.address == address).map(Host);
        let mut cable = Cable { dialer: end(host, id, true), accepter: end(host, id, false) };
        let answer = now.after(self.delay() + self.delay());
        match found {
            Some(other) if self.hosts[other.0].is_up => {
                if self.cuts.contains(&(host, other)) || self.cuts.contains(&(other, host)) {
                    // No packet that is sent again gets through: the dialer is told, in the end.
                    let at = now.after(self.weather.unreachable_after);
                    cable.dialer.coming.push_back((at, Travelling::End("no route".to_owned())));
                } else {
                    let accepted = ConnectionId::accepted(self.accepted_next);
                    self.accepted_next += 1;
                    cable.accepter = end(other, accepted, true);
                    cable.accepter.coming.push_back((now.after(self.delay()), Travelling::Dial));
                    cable.dialer.coming.push_back((answer, Travelling::Stands));
                }
            }
            _ => {
                let refused = Travelling::End("connection refused".to_owned());
                cable.dialer.coming.push_back((answer, refused));
            }
        }
        self.cables.insert(number, cable);
    }

    fn send(&mut self, host: Host, id: ConnectionId, bytes: Vec<Bytes>, tell: bool) {
        let Some((number, side)) = self.hosts[host.0].ends.get(&id).copied() else { return };
        let (delay, now) = (self.delay(), self.clock.now());
        let window_bytes = self.weather.window_bytes;
        let Some(cable) = self.cables.get_mut(&number) else { return };
        let (_, far) = cable.ends(side);
        let mut whole = BytesMut::new();
        bytes.iter().for_each(|piece| whole.extend_from_slice(piece));
        far.coming_bytes += whole.len();
        if !whole.is_empty() && far.is_open {
            let last = far.coming.back().map_or(now, |(at, _)| *at);
            far.coming.push_back((last.max(now.after(delay)), Travelling::Bytes(whole.freeze())));
        }
        if tell && far.coming_bytes <= window_bytes {
            self.ready.push((host, Happening::Drained(id)));
        } else if tell {
            far.tell = true;
        }
    }

    /// The party at `side` has let go of the connection; the other end hears of it in time.
    fn hang_up(&mut self, number: u64, side: Side, why: &str) {
        let (delay, now) = (self.delay(), self.clock.now());
        let Some(cable) = self.cables.get_mut(&number) else { return };
        let (own, far) = cable.ends(side);
        own.is_open = false;
        own.coming.clear();
        let last = far.coming.back().map_or(now, |(at, _)| *at);
        far.coming.push_back((last.max(now.after(delay)), Travelling::End(why.to_owned())));
    }

    /// Both ends lose the connection and what is under way on it.
    fn break_cable(&mut self, number: u64) {
        let now = self.clock.now();
        let Some(cable) = self.cables.get_mut(&number) else { return };
        for end in [&mut cable.dialer, &mut cable.accepter] {
            end.coming.clear();
            end.coming.push_back((now, Travelling::End("connection reset".to_owned())));
        }
    }

    fn ends_between(&self, here: Host, there: Host) -> Ends {
        let [here, there] = [here, there].map(|host| self.hosts[host.0].address.clone());
        Ends { here, there }
    }

    fn deliver_to(&mut self, number: u64, side: Side, now: Nanos) -> Option<(Host, Happening)> {
        let cable = self.cables.get_mut(&number)?;
        let (end, far) = cable.ends(side);
        let (host, id, from) = (end.host, end.id, far.host);
        if !end.is_open {
            return None;
        }
        let (at, _) = end.coming.front()?;
        if *at > now || !self.passes(from, host) {
            return None;
        }
        if self.weather.breaks_one_in > 0 && self.random.one_in(self.weather.breaks_one_in) {
            self.break_cable(number);
        }
        let piece_bytes = 1 + self.random.below(self.weather.piece_bytes_max.max(1) as u64) as usize;
        let window_bytes = self.weather.window_bytes;
        let (end, far) = self.cables.get_mut(&number)?.ends(side);
        let (at, what) = end.coming.pop_front()?;
        let happening = match what {
            Travelling::Dial => {
                self.hosts[host.0].ends.insert(id, (number, side));
                Happening::Accepted(id, self.ends_between(host, from))
            }
            Travelling::Stands => Happening::Connected(id, self.ends_between(host, from)),
            Travelling::Bytes(mut bytes) => {
                let piece = bytes.split_to(piece_bytes.min(bytes.len()));
                if !bytes.is_empty() {
                    end.coming.push_front((at, Travelling::Bytes(bytes)));
                }
                end.coming_bytes = end.coming_bytes.saturating_sub(piece.len());
                if end.tell && end.coming_bytes <= window_bytes {
                    end.tell = false;
                    self.ready.push((from, Happening::Drained(far.id)));
                }
                Happening::Arrived(id, piece)
            }
            Travelling::End(why) => {
                end.is_open = false;
                self.hosts[host.0].ends.remove(&id);
                Happening::Closed(id, why)
            }
        };
        Some((host, happening))
    }
}

impl Cable {
    /// The end at `side`, and the other one.
    fn ends(&mut self, side: Side) -> (&mut End, &mut End) {
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
        net.carry_out(hosts[0], vec![Order::Connect(id, "b:1".to_owned())]);
        Pair { clock, net, hosts, id }
    }

    impl Pair {
        /// Everything that happens until nothing does.
        fn settle(&mut self) -> Vec<(Host, Happening)> {
            let mut happened = Vec::new();
            while let Some(at) = self.net.next_at() {
                self.clock.advance(at.since(self.clock.now()));
                happened.extend(self.net.deliver());
            }
            happened
        }

        fn send(&mut self, text: &'static [u8]) {
            let order =
                Order::Send { connection: self.id, bytes: vec![Bytes::from_static(text)], tell: false };
            self.net.carry_out(self.hosts[0], vec![order]);
        }
    }

    fn text(happened: &[(Host, Happening)]) -> Vec<u8> {
        let bytes = happened.iter().filter_map(|(_, happening)| match happening {
            Happening::Arrived(_, bytes) => Some(bytes.to_vec()),
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
        pair.net.carry_out(one, vec![Order::Close(pair.id)]);
        assert!(pair.settle().is_empty(), "nothing passes, not even the end");
        pair.net.mend(one, other);
        let happened = pair.settle();
        assert_eq!(text(&happened), b"first second");
        assert!(matches!(happened.last(), Some((host, Happening::Closed(..))) if *host == other));
    }

    #[test]
    fn nobody_at_an_address_refuses_and_a_cut_takes_long() {
        let mut pair = pair();
        pair.settle();
        let [one, other] = pair.hosts;
        let id = ConnectionId::dialed(2);
        pair.net.carry_out(one, vec![Order::Connect(id, "c:1".to_owned())]);
        assert!(matches!(&pair.settle()[..], [(_, Happening::Closed(closed, _))] if *closed == id));
        pair.net.cut(other, one);
        let (before, id) = (pair.clock.now(), ConnectionId::dialed(3));
        pair.net.carry_out(one, vec![Order::Connect(id, "b:1".to_owned())]);
        pair.net.mend(other, one);
        pair.settle();
        assert_eq!(pair.clock.now().since(before), Weather::default().unreachable_after);
    }

    #[test]
    fn a_process_that_crashes_ends_its_connections() {
        let mut pair = pair();
        pair.settle();
        let [one, other] = pair.hosts;
        pair.net.crash(other);
        assert!(matches!(&pair.settle()[..], [(host, Happening::Closed(..))] if *host == one));
        pair.net.carry_out(one, vec![Order::Connect(ConnectionId::dialed(2), "b:1".to_owned())]);
        assert!(matches!(&pair.settle()[..], [(_, Happening::Closed(..))]));
    }
}
