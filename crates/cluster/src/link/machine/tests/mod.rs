//! One machine by hand: what it says to what it is told.

use std::collections::BTreeMap;

use io::sim::SimRandom;
use io::{Endpoints, TLS_FAULT};

use super::*;
use crate::link::frame::{self, VERSIONS, Versions};

mod arrivals;
mod founding;

/// Machines, two of them mostly, whose connections never fail.
struct Bench<const N: usize = 2> {
    machines: [Machine; N],
    happened: [Vec<NetworkEvent>; N],
    notes: [Vec<String>; N],
    connected: [Vec<PeerInfo>; N],
    far_ends: BTreeMap<(usize, ConnectionId), (usize, ConnectionId)>,
    accepted_next: u64,
    /// A place that is no address of any of them, and whom who dials it finds there: by the number of the
    /// machine and of the dial.
    front: Option<(&'static str, Behind)>,
    /// Whoever dials this is told that nobody is there.
    nobody_at: Option<&'static str>,
    may_adopt: Result<(), String>,
    founded: usize,
    now: Nanos,
}

type Behind = fn(usize, u64) -> usize;

fn machine(number: u128, cluster: Option<u128>, join: &[&str]) -> Machine {
    let me = Me {
        cluster: cluster.map(Uuid::from_u128),
        server: ServerId(Uuid::from_u128(number)),
        name: format!("n{number}"),
        tags: Vec::new(),
        addresses: vec![format!("n{number}:1")],
        canonical: Vec::new(),
        port: 1,
        is_proxy: false,
    };
    Machine::new(Beginning {
        me,
        join: join.iter().map(|address| (*address).to_owned()).collect(),
        book: Book::default(),
        timings: LinkTimings::default(),
        limits: QueueLimits::default(),
        random: Arc::new(SimRandom::new(number as u64)),
        now: Nanos::default(),
        started_ms: 1,
    })
}

/// The ends of a connection that somebody at `there` dialed.
fn from(there: &str) -> Endpoints {
    Endpoints { local: "n1:1".to_owned(), remote: there.to_owned() }
}

fn bench(one: Machine, other: Machine) -> Bench {
    bench_of([one, other])
}

fn bench_of<const N: usize>(machines: [Machine; N]) -> Bench<N> {
    Bench {
        machines,
        happened: std::array::from_fn(|_| Vec::new()),
        notes: std::array::from_fn(|_| Vec::new()),
        connected: std::array::from_fn(|_| Vec::new()),
        far_ends: BTreeMap::new(),
        accepted_next: 0,
        front: None,
        nobody_at: None,
        may_adopt: Ok(()),
        founded: 0,
        now: Nanos::default(),
    }
}

impl<const N: usize> Bench<N> {
    /// Lets `wait` pass, in small steps, and everything happen.
    fn run(&mut self, wait: Duration) {
        let end = self.now.after(wait);
        while self.now < end {
            self.now = self.now.after(Duration::from_millis(50));
            while (0..N).fold(false, |is_busy, i| self.step(i) | is_busy) {}
        }
    }

    fn step(&mut self, i: usize) -> bool {
        let may_adopt = self.may_adopt.clone();
        let (now, mut wanted, mut effects) = (self.now, Vec::new(), Vec::new());
        let happened = &mut self.happened[i];
        self.machines[i].step(now, happened, &mut wanted, &|_, _| may_adopt.clone(), &mut effects);
        for effect in effects {
            match effect {
                Effect::Note(_, text) => self.notes[i].push(text),
                Effect::Connected(info, _) => self.connected[i].push((*info).clone()),
                Effect::Found(cluster) => {
                    self.founded += 1;
                    self.machines[i].wanted(Command::Founded(Ok(cluster)));
                }
                _ => {}
            }
        }
        let mut orders = Vec::new();
        self.machines[i].orders(&mut orders);
        let is_busy = !orders.is_empty();
        orders.into_iter().for_each(|order| self.carry_out(i, order));
        is_busy
    }

    fn carry_out(&mut self, i: usize, order: NetworkCommand) {
        match order {
            NetworkCommand::Connect(id, address) if self.nobody_at == Some(&*address) => {
                self.happened[i].push(NetworkEvent::Closed(id, "nobody is there".to_owned()));
            }
            NetworkCommand::Connect(id, address) => {
                // Each machine is where its name says, the next one at all other places; a machine may dial itself.
                let named = self.machines.iter().position(|machine| machine.me.addresses[0] == address);
                self.accepted_next += 1;
                let (to, here) = match self.front {
                    Some((front, behind)) if front == address => {
                        let to = behind(i, self.accepted_next);
                        (to, self.machines[to].me.addresses[0].clone())
                    }
                    _ => (named.unwrap_or((i + 1) % N), address.clone()),
                };
                let accepted = ConnectionId::accepted(self.accepted_next);
                self.far_ends.insert((i, id), (to, accepted));
                self.far_ends.insert((to, accepted), (i, id));
                let from = format!("10.0.0.{i}:999");
                let seen = Endpoints { local: here, remote: from.clone() };
                self.happened[to].push(NetworkEvent::Accepted(accepted, seen));
                self.happened[i]
                    .push(NetworkEvent::Connected(id, Endpoints { local: from, remote: address }));
            }
            NetworkCommand::Send { connection, bytes, .. } => {
                let Some((to, far)) = self.far_ends.get(&(i, connection)).copied() else { return };
                self.happened[to].extend(bytes.into_iter().map(|bytes| NetworkEvent::Arrived(far, bytes)));
            }
            NetworkCommand::Close(id) => {
                let Some((to, far)) = self.far_ends.remove(&(i, id)) else { return };
                self.happened[to].push(NetworkEvent::Closed(far, "closed".to_owned()));
            }
        }
    }

    #[track_caller]
    fn both_say(&self, text: &str) {
        for (i, notes) in self.notes.iter().enumerate() {
            let count = notes.iter().filter(|note| note.contains(text)).count();
            assert_eq!(count, 1, "machine {i} says it so often: {notes:?}");
        }
        assert!(self.connected.iter().all(Vec::is_empty));
    }
}

const A_WHILE: Duration = Duration::from_secs(25);

#[test]
fn both_dial_at_once_and_have_one_link() {
    let mut bench = bench(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &["n1:1"]));
    bench.run(A_WHILE);
    assert_eq!((bench.connected[0].len(), bench.connected[1].len()), (1, 1), "{:?}", bench.notes);
    assert_eq!(bench.machines.each_ref().map(|machine| machine.sessions.len()), [1, 1]);
    assert_eq!(bench.connected[0][0].name, "n2");
    assert!(
        bench.notes[1]
            .contains(&"Connected to server \"n1\" 00000000-0000-0000-0000-000000000001".to_owned())
    );
}

#[test]
fn a_server_is_called_what_the_cluster_calls_it() {
    let mut bench = bench(machine(1, Some(9), &[]), machine(2, Some(9), &["n1:1"]));
    let (first, second) = (bench.machines[0].me.server, bench.machines[1].me.server);
    // The first knows what the other was renamed to, and the second what itself was.
    bench.machines[0].wanted(Command::Name(second, "ada".to_owned()));
    bench.machines[1].wanted(Command::Name(first, "bob".to_owned()));
    bench.run(A_WHILE);
    bench.machines[0].wanted(Command::Name(first, "bob".to_owned()));
    assert_eq!(bench.notes[0], [format!("Connected to server \"ada\" {second}")]);
    assert_eq!(bench.notes[1], [format!("Connected to server \"bob\" {first}")]);
    assert_eq!((&*bench.machines[0].me.name, &*bench.machines[1].me.name), ("bob", "n2"));
}

#[test]
fn a_proxy_dials_all_servers_and_nobody_remembers_it() {
    let machines = [machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]), machine(3, None, &["n1:1"])];
    let mut bench = bench_of(machines);
    bench.machines[2].me.is_proxy = true;
    bench.nobody_at = Some("n3:1");
    bench.run(A_WHILE);
    assert_eq!(bench.connected.each_ref().map(Vec::len), [2, 2, 2], "{:?}", bench.notes);
    for (&(from, id), _) in
        bench.far_ends.clone().iter().filter(|((from, _), (to, _))| *from == 2 || *to == 2)
    {
        bench.happened[from].push(NetworkEvent::Closed(id, "the cable was cut".to_owned()));
    }
    bench.run(A_WHILE);
    assert_eq!(
        bench.connected.each_ref().map(Vec::len),
        [3, 3, 4],
        "it came back to both: {:?}",
        bench.notes
    );
    for machine in &bench.machines {
        assert!(machine.book.entry(ServerId(Uuid::from_u128(3))).is_none());
    }
    assert_eq!(bench.machines[2].book.entries().count(), 2);
}

#[test]
fn servers_of_two_clusters_both_say_why_they_are_not_linked_and_say_it_once() {
    let mut bench = bench(machine(1, Some(8), &["n2:1"]), machine(2, Some(9), &[]));
    bench.run(A_WHILE);
    // Each names itself first.
    bench.both_say("cluster 00000000-0000-0000-0000-000000000008");
    bench.both_say("to cluster 00000000-0000-0000-0000-000000000009");
    bench.both_say(
        "servers of two clusters cannot be linked, only one that has never held data joins a cluster",
    );
}

#[test]
fn a_newcomer_takes_the_cluster_of_whom_it_finds_or_both_say_why_not() {
    let willing = || bench(machine(1, None, &["n2:1"]), machine(2, Some(9), &[]));
    let mut joins = willing();
    joins.run(A_WHILE);
    assert_eq!(joins.machines[0].me.cluster, Some(Uuid::from_u128(9)));
    assert_eq!((joins.connected[0].len(), joins.connected[1].len()), (1, 1));
    let mut refuses = willing();
    refuses.may_adopt = Err("its directory has held data".to_owned());
    refuses.run(A_WHILE);
    assert_eq!(refuses.machines[0].me.cluster, None);
    refuses.both_say(
        "server \"n1\" cannot join cluster 00000000-0000-0000-0000-000000000009: its directory has held data",
    );
}

#[test]
fn two_newcomers_wait_for_a_third() {
    let mut bench = bench(machine(1, None, &["n2:1"]), machine(2, None, &[]));
    bench.run(A_WHILE);
    bench.both_say("belongs to a cluster yet");
}

#[test]
fn a_server_is_not_linked_to_itself_and_does_not_try_again() {
    let mut bench = bench(machine(1, Some(9), &["n1:1"]), machine(2, Some(9), &[]));
    bench.run(A_WHILE);
    assert!(bench.connected[0].is_empty() && bench.machines[0].sessions.is_empty());
    assert_eq!(bench.accepted_next, 1, "one look was enough");
}

#[test]
fn a_copied_directory_is_found_out() {
    let mut bench = bench(machine(1, Some(9), &["elsewhere:1"]), machine(1, Some(9), &[]));
    bench.machines[1].incarnation ^= 1;
    bench.run(A_WHILE);
    bench.both_say("have the same identity 00000000-0000-0000-0000-000000000001");
}

#[test]
fn another_release_is_told_from_here_and_tells_itself() {
    let mut bench = bench(machine(1, Some(9), &[]), machine(2, Some(9), &[]));
    let id = ConnectionId::accepted(77);
    let future = Versions { least: VERSIONS.most + 1, most: VERSIONS.most + 3 };
    bench.happened[0].push(NetworkEvent::Accepted(id, from("10.0.0.5:7")));
    bench.happened[0].push(NetworkEvent::Arrived(id, frame::preface(future, b"in words of the future")));
    bench.step(0);
    assert_eq!(bench.notes[0].len(), 1);
    assert!(
        bench.notes[0][0].starts_with("Refused a server at 10.0.0.5:7: server \"n1\" speaks versions 2 to 2")
    );
    assert!(bench.machines[0].sessions.is_empty());
    // As the one who dialed, this side finds out by itself from the other's preface.
    bench.machines[0].wanted(Command::Join("n2:1".to_owned()));
    bench.step(0);
    let dialed = ConnectionId::dialed(1);
    bench.happened[0].push(NetworkEvent::Arrived(dialed, frame::preface(future, b"")));
    bench.step(0);
    assert!(
        bench.notes[0][1].contains("Cannot link to the server at n2:1: server \"n1\" speaks versions 2 to 2")
    );
}

#[test]
fn bytes_of_somebody_else_end_the_connection() {
    let mut bench = bench(machine(1, Some(9), &[]), machine(2, Some(9), &[]));
    let id = ConnectionId::accepted(77);
    bench.happened[0].push(NetworkEvent::Accepted(id, from("10.0.0.5:7")));
    let http = Bytes::from_static(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    bench.happened[0].push(NetworkEvent::Arrived(id, http));
    let mut orders = Vec::new();
    let happened = &mut bench.happened[0];
    bench.machines[0].step(Nanos(1), happened, &mut Vec::new(), &|_, _| Ok(()), &mut Vec::new());
    bench.machines[0].orders(&mut orders);
    assert_eq!(orders, [NetworkCommand::Close(id)]);
}

#[test]
fn whom_tls_refuses_is_named_once() {
    let mut bench = bench(machine(1, Some(9), &[]), machine(2, Some(9), &[]));
    for (number, port) in [(77, 7), (78, 8)] {
        let id = ConnectionId::accepted(number);
        bench.happened[0].push(NetworkEvent::Accepted(id, from(&format!("10.0.0.5:{port}"))));
        bench.happened[0].push(NetworkEvent::Closed(id, format!("{TLS_FAULT}peer sent no certificates")));
        bench.step(0);
    }
    // Who only looks whether somebody listens is refused nothing.
    let id = ConnectionId::accepted(79);
    bench.happened[0].push(NetworkEvent::Accepted(id, from("10.0.0.6:9")));
    bench.happened[0].push(NetworkEvent::Closed(id, "the other side closed the connection".to_owned()));
    bench.step(0);
    assert_eq!(bench.notes[0], ["Refused a server at 10.0.0.5:7: TLS: peer sent no certificates"]);
    assert!(bench.machines[0].sessions.is_empty());
}

#[test]
fn of_several_bad_servers_behind_one_host_each_is_told_once() {
    let mut bench = bench(machine(1, Some(9), &["vip:1"]), machine(2, Some(9), &[]));
    let mut orders = Vec::new();
    for dial in 1..=60 {
        let why = format!("{TLS_FAULT}certificate {}", dial % 3);
        let id = ConnectionId::accepted(dial);
        bench.happened[0].push(NetworkEvent::Accepted(id, from(&format!("10.0.0.5:{dial}"))));
        bench.happened[0].push(NetworkEvent::Closed(id, why.clone()));
        for order in orders.drain(..) {
            let NetworkCommand::Connect(dialed, _) = order else { continue };
            bench.happened[0].push(NetworkEvent::Closed(dialed, why.clone()));
        }
        bench.now = bench.now.after(Duration::from_secs(4));
        let mut effects = Vec::new();
        let happened = &mut bench.happened[0];
        bench.machines[0].step(bench.now, happened, &mut Vec::new(), &|_, _| Ok(()), &mut effects);
        bench.machines[0].orders(&mut orders);
        bench.notes[0].extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Note(_, text) => Some(text),
            _ => None,
        }));
    }
    for said in ["Refused a server at 10.0.0.5", "Cannot link to the server at vip:1"] {
        let count = bench.notes[0].iter().filter(|note| note.starts_with(said)).count();
        assert_eq!(count, 3, "{:?}", bench.notes[0]);
    }
}

#[test]
fn whoever_speaks_tls_to_a_server_in_the_clear_is_told_apart() {
    let mut bench = bench(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    bench.machines[0].wanted(Command::Join("n2:1".to_owned()));
    bench.step(0);
    // An alert, to what this side has said; and the first words of somebody else.
    bench.happened[0]
        .push(NetworkEvent::Arrived(ConnectionId::dialed(1), Bytes::from_static(&[21, 3, 3, 0, 2, 2, 10])));
    let id = ConnectionId::accepted(78);
    bench.happened[0].push(NetworkEvent::Accepted(id, from("10.0.0.5:7")));
    bench.happened[0].push(NetworkEvent::Arrived(id, Bytes::from_static(&[22, 3, 1, 0, 200, 1, 0, 0])));
    bench.step(0);
    assert!(bench.notes[0][0].starts_with("Cannot link to the server at n2:1: the other side uses TLS and"));
    assert!(
        bench.notes[0][1].starts_with("Refused a server at 10.0.0.5:7: the other side uses TLS and this")
    );
}

#[test]
fn what_waits_for_a_server_after_several_steps_leaves_together() {
    let mut bench = bench(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    bench.run(A_WHILE);
    let machine = &mut bench.machines[0];
    let to = *machine.peers.keys().next().unwrap();
    for request in [b"one", b"two"] {
        let (request, on_response): (_, crate::OnResponse) = (Bytes::from_static(request), Box::new(|_| ()));
        let mut wanted = vec![Command::Call { to, request, timeout: A_WHILE, on_response }];
        machine.step(bench.now, &mut Vec::new(), &mut wanted, &|_, _| Ok(()), &mut Vec::new());
    }
    let mut orders = Vec::new();
    machine.orders(&mut orders);
    assert!(matches!(orders[..], [NetworkCommand::Send { .. }]), "{orders:?}");
}

#[test]
fn an_incarnation_that_was_replaced_stays_away() {
    let mut bench = bench(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    bench.run(A_WHILE);
    let old = bench.machines[1].incarnation;
    let dismissed: Vec<_> = bench.machines[1].sessions.keys().copied().collect();
    dismissed.into_iter().for_each(|id| bench.carry_out(1, NetworkCommand::Close(id)));
    bench.machines[1] = machine(2, Some(9), &[]);
    bench.machines[1].incarnation = old + 1;
    bench.run(A_WHILE);
    assert_eq!(bench.connected[0].iter().map(|info| info.incarnation).collect::<Vec<_>>(), [old, old + 1]);
    let current: Vec<_> = bench.machines[1].sessions.keys().copied().collect();
    current.into_iter().for_each(|id| bench.carry_out(1, NetworkCommand::Close(id)));
    bench.machines[1] = machine(2, Some(9), &[]);
    bench.machines[1].incarnation = old;
    bench.run(A_WHILE);
    assert_eq!(bench.connected[0].len(), 2, "an older process of the same server was let in");
    assert!(
        bench.notes[0].iter().any(|note| note.contains("was started again since")),
        "{:?}",
        bench.notes[0]
    );
}

#[test]
fn the_last_words_of_a_process_that_is_gone_do_not_keep_the_next_one_away() {
    let mut bench = bench(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    let gone = bench.machines[1].incarnation;
    // The next process is heard first, then the one before it, then the next one dials again.
    for (incarnation, started_ms) in [(gone + 1, 5), (gone, 4), (gone + 1, 5)] {
        let dismissed: Vec<_> = bench.machines[1].sessions.keys().copied().collect();
        dismissed.into_iter().for_each(|id| bench.carry_out(1, NetworkCommand::Close(id)));
        bench.machines[1] = machine(2, Some(9), &[]);
        bench.machines[1].incarnation = incarnation;
        bench.machines[1].started_ms = started_ms;
        bench.run(A_WHILE);
    }
    let connected: Vec<u64> = bench.connected[0].iter().map(|info| info.incarnation).collect();
    assert_eq!(connected, [gone + 1, gone, gone + 1], "{:?}", bench.notes[0]);
}
