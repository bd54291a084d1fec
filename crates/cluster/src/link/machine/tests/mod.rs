//! Tests of the state machine of links, step by step.

use std::collections::BTreeMap;
use std::time::Duration;

use io::sim::SimRandom;
use io::{Endpoints, TLS_FAULT};
use uuid::Uuid;

use super::*;
use crate::link::contract::{BootstrapPermission, PeerInfo};
use crate::link::frame::{self, VERSIONS, Versions};
use crate::link::log_message::Message;

mod bootstrap;
mod inbound;

/// Two or more machines with connections between them that never fail.
struct TestNetwork<const N: usize = 2> {
    machines: [Machine; N],
    network_events: [Vec<NetworkEvent>; N],
    lines: [Vec<String>; N],
    connected: [Vec<PeerInfo>; N],
    remote_ends: BTreeMap<(usize, ConnectionId), (usize, ConnectionId)>,
    accepted_next: u64,
    /// An address that belongs to none of the machines, and a function from the dialing machine and the number of the
    /// dial to the machine that is reached.
    load_balancer: Option<(&'static str, Backend)>,
    /// An address at which dials fail.
    closed_address: Option<&'static str>,
    may_adopt: Result<(), String>,
    bootstrapped: usize,
    now: Nanos,
}

type Backend = fn(usize, u64) -> usize;

fn machine(number: u128, cluster: Option<u128>, join: &[&str]) -> Machine {
    let local = LocalServer {
        cluster: cluster.map(Uuid::from_u128),
        server: ServerId(Uuid::from_u128(number)),
        name: format!("n{number}"),
        tags: Vec::new(),
        addresses: vec![format!("n{number}:1")],
        canonical: Vec::new(),
        port: 1,
        is_proxy: false,
    };
    Machine::new(MachineOptions {
        local,
        join: join.iter().map(|address| (*address).to_owned()).collect(),
        address_book: AddressBook::default(),
        timings: LinkTimings::default(),
        limits: QueueLimits::default(),
        random: Arc::new(SimRandom::new(number as u64)),
        now: Nanos::default(),
        started_ms: 1,
    })
}

/// The endpoints of a connection that was dialed from `there`.
fn from(there: &str) -> Endpoints {
    Endpoints { local: "n1:1".to_owned(), remote: there.to_owned() }
}

fn pair(one: Machine, other: Machine) -> TestNetwork {
    network_of([one, other])
}

fn network_of<const N: usize>(machines: [Machine; N]) -> TestNetwork<N> {
    TestNetwork {
        machines,
        network_events: std::array::from_fn(|_| Vec::new()),
        lines: std::array::from_fn(|_| Vec::new()),
        connected: std::array::from_fn(|_| Vec::new()),
        remote_ends: BTreeMap::new(),
        accepted_next: 0,
        load_balancer: None,
        closed_address: None,
        may_adopt: Ok(()),
        bootstrapped: 0,
        now: Nanos::default(),
    }
}

impl<const N: usize> TestNetwork<N> {
    /// Advances the time by `wait` in small steps, and handles all events.
    fn run(&mut self, wait: Duration) {
        let end = self.now.after(wait);
        while self.now < end {
            self.now = self.now.after(Duration::from_millis(50));
            while (0..N).fold(false, |is_busy, i| self.step(i) | is_busy) {}
        }
    }

    fn step(&mut self, i: usize) -> bool {
        let may_adopt = self.may_adopt.clone();
        let (now, mut commands, mut effects) = (self.now, Vec::new(), Vec::new());
        let network_events = &mut self.network_events[i];
        self.machines[i].step(now, network_events, &mut commands, &|_, _| may_adopt.clone(), &mut effects);
        for effect in effects {
            match effect {
                Effect::Log(_, text) => self.lines[i].push(text),
                Effect::Connected(info, _) => self.connected[i].push((*info).clone()),
                Effect::Bootstrap(cluster) => {
                    self.bootstrapped += 1;
                    self.machines[i].handle_command(Command::Bootstrapped(Ok(cluster)));
                }
                _ => {}
            }
        }
        let mut network_commands = Vec::new();
        self.machines[i].network_commands(&mut network_commands);
        let is_busy = !network_commands.is_empty();
        network_commands.into_iter().for_each(|command| self.execute(i, command));
        is_busy
    }

    fn execute(&mut self, i: usize, command: NetworkCommand) {
        match command {
            NetworkCommand::Connect(id, address) if self.closed_address == Some(&*address) => {
                self.network_events[i].push(NetworkEvent::Closed(id, "connection refused".to_owned()));
            }
            NetworkCommand::Connect(id, address) => {
                // The address of each machine follows from its name. Other addresses lead to the next machine. A
                // machine may dial itself.
                let named =
                    self.machines.iter().position(|machine| machine.identity.local.addresses[0] == address);
                self.accepted_next += 1;
                let (to, here) = match self.load_balancer {
                    Some((load_balancer, backend)) if load_balancer == address => {
                        let to = backend(i, self.accepted_next);
                        (to, self.machines[to].identity.local.addresses[0].clone())
                    }
                    _ => (named.unwrap_or((i + 1) % N), address.clone()),
                };
                let accepted = ConnectionId::accepted(self.accepted_next);
                self.remote_ends.insert((i, id), (to, accepted));
                self.remote_ends.insert((to, accepted), (i, id));
                let from = format!("10.0.0.{i}:999");
                let seen = Endpoints { local: here, remote: from.clone() };
                self.network_events[to].push(NetworkEvent::Accepted(accepted, seen));
                self.network_events[i]
                    .push(NetworkEvent::Connected(id, Endpoints { local: from, remote: address }));
            }
            NetworkCommand::Send { connection, bytes, .. } => {
                let Some((to, remote)) = self.remote_ends.get(&(i, connection)).copied() else { return };
                self.network_events[to]
                    .extend(bytes.into_iter().map(|bytes| NetworkEvent::Arrived(remote, bytes)));
            }
            NetworkCommand::Close(id) => {
                let Some((to, remote)) = self.remote_ends.remove(&(i, id)) else { return };
                self.network_events[to].push(NetworkEvent::Closed(remote, "closed".to_owned()));
            }
        }
    }

    #[track_caller]
    fn assert_both_log(&self, text: &str) {
        for (i, lines) in self.lines.iter().enumerate() {
            let count = lines.iter().filter(|note| note.contains(text)).count();
            assert_eq!(count, 1, "machine {i} logs it {count} times: {lines:?}");
        }
        assert!(self.connected.iter().all(Vec::is_empty));
    }
}

const RUN_TIME: Duration = Duration::from_secs(25);

#[test]
fn two_servers_that_dial_at_once_have_one_link() {
    let mut network = pair(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &["n1:1"]));
    network.run(RUN_TIME);
    assert_eq!((network.connected[0].len(), network.connected[1].len()), (1, 1), "{:?}", network.lines);
    assert_eq!(network.machines.each_ref().map(|machine| machine.sessions.ids().len()), [1, 1]);
    assert_eq!(network.connected[0][0].name, "n2");
    assert!(
        network.lines[1]
            .contains(&"Connected to server \"n1\" 00000000-0000-0000-0000-000000000001".to_owned())
    );
}

#[test]
fn the_name_in_the_catalog_takes_precedence() {
    let mut network = pair(machine(1, Some(9), &[]), machine(2, Some(9), &["n1:1"]));
    let (first, second) = (network.machines[0].identity.server(), network.machines[1].identity.server());
    // Each machine receives the other's new name, and the first one its own after they are linked.
    network.machines[0].handle_command(Command::Name(second, "ada".to_owned()));
    network.machines[1].handle_command(Command::Name(first, "bob".to_owned()));
    network.run(RUN_TIME);
    network.machines[0].handle_command(Command::Name(first, "bob".to_owned()));
    assert_eq!(network.lines[0], [format!("Connected to server \"ada\" {second}")]);
    assert_eq!(network.lines[1], [format!("Connected to server \"bob\" {first}")]);
    assert_eq!(network.machines.each_ref().map(|machine| machine.identity.name()), ["bob", "n2"]);
}

#[test]
fn a_proxy_dials_all_servers_and_is_in_no_address_book() {
    let machines = [machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]), machine(3, None, &["n1:1"])];
    let mut network = network_of(machines);
    network.machines[2].identity.local.is_proxy = true;
    network.closed_address = Some("n3:1");
    network.run(RUN_TIME);
    assert_eq!(network.connected.each_ref().map(Vec::len), [2, 2, 2], "{:?}", network.lines);
    for (&(from, id), _) in
        network.remote_ends.clone().iter().filter(|((from, _), (to, _))| *from == 2 || *to == 2)
    {
        network.network_events[from].push(NetworkEvent::Closed(id, "the cable was cut".to_owned()));
    }
    network.run(RUN_TIME);
    assert_eq!(
        network.connected.each_ref().map(Vec::len),
        [3, 3, 4],
        "it came back to both: {:?}",
        network.lines
    );
    for machine in &network.machines {
        assert!(machine.known.address_book.entry(ServerId(Uuid::from_u128(3))).is_none());
    }
    assert_eq!(network.machines[2].known.address_book.entries().count(), 2);
}

#[test]
fn servers_of_two_clusters_both_log_the_reason_once() {
    let mut network = pair(machine(1, Some(8), &["n2:1"]), machine(2, Some(9), &[]));
    network.run(RUN_TIME);
    // Both name the same clusters, in a different order.
    network.assert_both_log("cluster 00000000-0000-0000-0000-000000000008");
    network.assert_both_log("to cluster 00000000-0000-0000-0000-000000000009");
    network.assert_both_log(
        "servers of two clusters cannot be linked, only one that has never held data joins a cluster",
    );
}

#[test]
fn a_joining_server_joins_the_cluster_it_finds_or_both_log_the_reason() {
    let start = || pair(machine(1, None, &["n2:1"]), machine(2, Some(9), &[]));
    let mut joins = start();
    joins.run(RUN_TIME);
    assert_eq!(joins.machines[0].identity.local.cluster, Some(Uuid::from_u128(9)));
    assert_eq!((joins.connected[0].len(), joins.connected[1].len()), (1, 1));
    let mut refuses = start();
    refuses.may_adopt = Err("its directory has held data".to_owned());
    refuses.run(RUN_TIME);
    assert_eq!(refuses.machines[0].identity.local.cluster, None);
    refuses.assert_both_log(
        "server \"n1\" cannot join cluster 00000000-0000-0000-0000-000000000009: its directory has held data",
    );
}

#[test]
fn two_joining_servers_without_permission_to_bootstrap_wait() {
    let mut network = pair(machine(1, None, &["n2:1"]), machine(2, None, &[]));
    network.run(RUN_TIME);
    network.assert_both_log("belongs to a cluster yet");
}

#[test]
fn a_server_is_not_linked_to_itself_and_does_not_try_again() {
    let mut network = pair(machine(1, Some(9), &["n1:1"]), machine(2, Some(9), &[]));
    network.run(RUN_TIME);
    assert!(network.connected[0].is_empty() && network.machines[0].sessions.ids().is_empty());
    assert_eq!(network.accepted_next, 1, "dialed once");
}

#[test]
fn a_copied_data_directory_is_detected() {
    let mut network = pair(machine(1, Some(9), &["elsewhere:1"]), machine(1, Some(9), &[]));
    network.machines[1].identity.incarnation ^= 1;
    network.run(RUN_TIME);
    network.assert_both_log("have the same identity 00000000-0000-0000-0000-000000000001");
}

#[test]
fn incompatible_versions_are_logged_on_both_sides() {
    let mut network = pair(machine(1, Some(9), &[]), machine(2, Some(9), &[]));
    let id = ConnectionId::accepted(77);
    let future = Versions { lowest: VERSIONS.highest + 1, highest: VERSIONS.highest + 3 };
    network.network_events[0].push(NetworkEvent::Accepted(id, from("10.0.0.5:7")));
    network.network_events[0].push(NetworkEvent::Arrived(id, frame::preface(future, b"a future format")));
    network.step(0);
    assert_eq!(network.lines[0].len(), 1);
    assert!(
        network.lines[0][0]
            .starts_with("Refused a server at 10.0.0.5:7: server \"n1\" supports versions 2 to 2")
    );
    assert!(network.machines[0].sessions.ids().is_empty());
    // As the dialing side, this machine finds the mismatch in the other's preface.
    network.machines[0].handle_command(Command::Join("n2:1".to_owned()));
    network.step(0);
    let dialed = ConnectionId::dialed(1);
    network.network_events[0].push(NetworkEvent::Arrived(dialed, frame::preface(future, b"")));
    network.step(0);
    assert!(
        network.lines[0][1]
            .contains("Cannot link to the server at n2:1: server \"n1\" supports versions 2 to 2")
    );
}

#[test]
fn bytes_of_another_protocol_end_the_connection() {
    let mut network = pair(machine(1, Some(9), &[]), machine(2, Some(9), &[]));
    let id = ConnectionId::accepted(77);
    network.network_events[0].push(NetworkEvent::Accepted(id, from("10.0.0.5:7")));
    let http = Bytes::from_static(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    network.network_events[0].push(NetworkEvent::Arrived(id, http));
    let mut network_commands = Vec::new();
    let network_events = &mut network.network_events[0];
    network.machines[0].step(Nanos(1), network_events, &mut Vec::new(), &|_, _| Ok(()), &mut Vec::new());
    network.machines[0].network_commands(&mut network_commands);
    assert_eq!(network_commands, [NetworkCommand::Close(id)]);
}

#[test]
fn a_client_that_tls_refuses_is_logged_once() {
    let mut network = pair(machine(1, Some(9), &[]), machine(2, Some(9), &[]));
    for (number, port) in [(77, 7), (78, 8)] {
        let id = ConnectionId::accepted(number);
        network.network_events[0].push(NetworkEvent::Accepted(id, from(&format!("10.0.0.5:{port}"))));
        network.network_events[0]
            .push(NetworkEvent::Closed(id, format!("{TLS_FAULT}peer sent no certificates")));
        network.step(0);
    }
    // A port scan is not prefix as a refusal.
    let id = ConnectionId::accepted(79);
    network.network_events[0].push(NetworkEvent::Accepted(id, from("10.0.0.6:9")));
    network.network_events[0]
        .push(NetworkEvent::Closed(id, "the other side closed the connection".to_owned()));
    network.step(0);
    assert_eq!(network.lines[0], ["Refused a server at 10.0.0.5:7: TLS: peer sent no certificates"]);
    assert!(network.machines[0].sessions.ids().is_empty());
}

#[test]
fn several_refused_servers_behind_one_host_are_each_logged_once() {
    let mut network = pair(machine(1, Some(9), &["vip:1"]), machine(2, Some(9), &[]));
    let mut network_commands = Vec::new();
    for dial in 1..=60 {
        let why = format!("{TLS_FAULT}certificate {}", dial % 3);
        let id = ConnectionId::accepted(dial);
        network.network_events[0].push(NetworkEvent::Accepted(id, from(&format!("10.0.0.5:{dial}"))));
        network.network_events[0].push(NetworkEvent::Closed(id, why.clone()));
        for command in network_commands.drain(..) {
            let NetworkCommand::Connect(dialed, _) = command else { continue };
            network.network_events[0].push(NetworkEvent::Closed(dialed, why.clone()));
        }
        network.now = network.now.after(Duration::from_secs(4));
        let mut effects = Vec::new();
        let network_events = &mut network.network_events[0];
        network.machines[0].step(network.now, network_events, &mut Vec::new(), &|_, _| Ok(()), &mut effects);
        network.machines[0].network_commands(&mut network_commands);
        network.lines[0].extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Log(_, text) => Some(text),
            _ => None,
        }));
    }
    for prefix in ["Refused a server at 10.0.0.5", "Cannot link to the server at vip:1"] {
        let count = network.lines[0].iter().filter(|note| note.starts_with(prefix)).count();
        assert_eq!(count, 3, "{:?}", network.lines[0]);
    }
}

#[test]
fn tls_to_a_server_without_tls_is_detected() {
    let mut network = pair(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    network.machines[0].handle_command(Command::Join("n2:1".to_owned()));
    network.step(0);
    // A TLS alert in response to the hello, and the beginning of a TLS handshake.
    network.network_events[0]
        .push(NetworkEvent::Arrived(ConnectionId::dialed(1), Bytes::from_static(&[21, 3, 3, 0, 2, 2, 10])));
    let id = ConnectionId::accepted(78);
    network.network_events[0].push(NetworkEvent::Accepted(id, from("10.0.0.5:7")));
    network.network_events[0]
        .push(NetworkEvent::Arrived(id, Bytes::from_static(&[22, 3, 1, 0, 200, 1, 0, 0])));
    network.step(0);
    assert!(
        network.lines[0][0].starts_with("Cannot link to the server at n2:1: the other side uses TLS and")
    );
    assert!(
        network.lines[0][1].starts_with("Refused a server at 10.0.0.5:7: the other side uses TLS and this")
    );
}

#[test]
fn data_queued_in_several_steps_is_sent_together() {
    let mut network = pair(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    network.run(RUN_TIME);
    let machine = &mut network.machines[0];
    let to = ServerId(Uuid::from_u128(2));
    for request in [b"one", b"two"] {
        let (request, on_response): (_, crate::OnResponse) = (Bytes::from_static(request), Box::new(|_| ()));
        let mut commands = vec![Command::Call(Call { to, request, timeout: RUN_TIME, on_response })];
        machine.step(network.now, &mut Vec::new(), &mut commands, &|_, _| Ok(()), &mut Vec::new());
    }
    let mut network_commands = Vec::new();
    machine.network_commands(&mut network_commands);
    assert!(matches!(network_commands[..], [NetworkCommand::Send { .. }]), "{network_commands:?}");
}

#[test]
fn a_replaced_incarnation_is_refused() {
    let mut network = pair(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    network.run(RUN_TIME);
    let old = network.machines[1].identity.incarnation;
    let dismissed = network.machines[1].sessions.ids();
    dismissed.into_iter().for_each(|id| network.execute(1, NetworkCommand::Close(id)));
    network.machines[1] = machine(2, Some(9), &[]);
    network.machines[1].identity.incarnation = old + 1;
    network.run(RUN_TIME);
    assert_eq!(network.connected[0].iter().map(|info| info.incarnation).collect::<Vec<_>>(), [old, old + 1]);
    let current = network.machines[1].sessions.ids();
    current.into_iter().for_each(|id| network.execute(1, NetworkCommand::Close(id)));
    network.machines[1] = machine(2, Some(9), &[]);
    network.machines[1].identity.incarnation = old;
    network.run(RUN_TIME);
    assert_eq!(network.connected[0].len(), 2, "an older process of the same server was accepted");
    assert!(
        network.lines[0].iter().any(|note| note.contains("was started again since")),
        "{:?}",
        network.lines[0]
    );
}

#[test]
fn late_data_of_an_ended_process_does_not_keep_its_successor_away() {
    let mut network = pair(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    let ended = network.machines[1].identity.incarnation;
    // The successor connects first, then a connection of the ended process arrives, then the successor dials again.
    for (incarnation, started_ms) in [(ended + 1, 5), (ended, 4), (ended + 1, 5)] {
        let dismissed = network.machines[1].sessions.ids();
        dismissed.into_iter().for_each(|id| network.execute(1, NetworkCommand::Close(id)));
        network.machines[1] = machine(2, Some(9), &[]);
        network.machines[1].identity.incarnation = incarnation;
        network.machines[1].identity.started_ms = started_ms;
        network.run(RUN_TIME);
    }
    let connected: Vec<u64> = network.connected[0].iter().map(|info| info.incarnation).collect();
    assert_eq!(connected, [ended + 1, ended, ended + 1], "{:?}", network.lines[0]);
}
