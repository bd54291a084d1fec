//! One machine by hand: what it says to what it is told.

use std::collections::BTreeMap;

use io::TLS_FAULT;
use io::sim::SimRandom;

use super::*;
use crate::link::frame::{self, VERSIONS, Versions};

/// Two machines whose connections never fail.
struct Bench {
    machines: [Machine; 2],
    happened: [Vec<Happening>; 2],
    notes: [Vec<String>; 2],
    connected: [Vec<PeerInfo>; 2],
    far_ends: BTreeMap<(usize, ConnectionId), ConnectionId>,
    accepted_next: u64,
    /// Whoever dials this is told that nobody is there.
    nobody_at: Option<&'static str>,
    may_adopt: Result<(), String>,
    founded: usize,
    now: Nanos,
}

fn machine(number: u128, cluster: Option<u128>, join: &[&str]) -> Machine {
    let me = Me {
        cluster: cluster.map(Uuid::from_u128),
        server: ServerId(Uuid::from_u128(number)),
        name: format!("n{number}"),
        tags: Vec::new(),
        addresses: vec![format!("n{number}:1")],
        port: 1,
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

fn bench(one: Machine, other: Machine) -> Bench {
    Bench {
        machines: [one, other],
        happened: Default::default(),
        notes: Default::default(),
        connected: Default::default(),
        far_ends: BTreeMap::new(),
        accepted_next: 0,
        nobody_at: None,
        may_adopt: Ok(()),
        founded: 0,
        now: Nanos::default(),
    }
}

impl Bench {
    /// Lets `wait` pass, in small steps, and everything happen.
    fn run(&mut self, wait: Duration) {
        let end = self.now.after(wait);
        while self.now < end {
            self.now = self.now.after(Duration::from_millis(50));
            while self.step(0) | self.step(1) {}
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
                Effect::Connected(info, _) => self.connected[i].push(info),
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

    fn carry_out(&mut self, i: usize, order: Order) {
        let other = 1 - i;
        match order {
            Order::Connect(id, address) if self.nobody_at == Some(&*address) => {
                self.happened[i].push(Happening::Closed(id, "nobody is there".to_owned()));
            }
            Order::Connect(id, address) => {
                // Each machine is where its name says; a machine may dial itself.
                let to = if address == self.machines[i].me.addresses[0] { i } else { other };
                self.accepted_next += 1;
                let accepted = ConnectionId::accepted(self.accepted_next);
                self.far_ends.insert((i, id), accepted);
                self.far_ends.insert((to, accepted), id);
                self.happened[to].push(Happening::Accepted(accepted, format!("10.0.0.{i}:999")));
                self.happened[i].push(Happening::Connected(id));
            }
            Order::Send { connection, bytes, .. } => {
                let Some(far) = self.far_ends.get(&(i, connection)).copied() else { return };
                let to = if self.far_ends.contains_key(&(other, far)) { other } else { i };
                self.happened[to].extend(bytes.into_iter().map(|bytes| Happening::Arrived(far, bytes)));
            }
            Order::Close(id) => {
                let Some(far) = self.far_ends.remove(&(i, id)) else { return };
                let to = if self.far_ends.contains_key(&(other, far)) { other } else { i };
                self.happened[to].push(Happening::Closed(far, "closed".to_owned()));
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

/// Two servers that belong to no cluster, whose operators named these to join.
fn newcomers(one: &[&str], other: &[&str]) -> Bench {
    let mut bench = bench(machine(1, None, one), machine(2, None, other));
    bench.machines.iter_mut().for_each(|machine| machine.wanted(Command::MayFound(true)));
    bench.run(A_WHILE);
    bench
}

#[test]
fn newcomers_that_name_each_other_make_one_cluster() {
    for both in [["n1:1", "n2:1"], ["n2:1", "n1:1"]] {
        for (one, other) in [(&both[..], &both[..]), (&["n2:1"], &["n1:1"]), (&both[..], &["n1:1"])] {
            let bench = newcomers(one, other);
            assert_eq!(bench.founded, 1, "{:?}", bench.notes);
            let clusters = bench.machines.each_ref().map(|machine| machine.me.cluster);
            assert!(clusters[0].is_some() && clusters[0] == clusters[1], "{clusters:?}");
            assert_eq!((bench.connected[0].len(), bench.connected[1].len()), (1, 1), "{:?}", bench.notes);
            assert!(
                bench.notes[0].iter().any(|note| note.ends_with("to be joined by \"n2\"")),
                "{:?}",
                bench.notes
            );
        }
    }
}

#[test]
fn a_newcomer_that_names_only_itself_makes_a_cluster() {
    let bench = newcomers(&["n1:1"], &["n1:1"]);
    assert_eq!(bench.founded, 1);
    assert_eq!(bench.machines[0].me.cluster, bench.machines[1].me.cluster);
}

#[test]
fn newcomers_wait_for_whom_they_cannot_reach_and_say_so_once() {
    // The third is where nobody answers.
    let mut bench = bench(machine(1, None, &["n2:1", "n3:1"]), machine(2, None, &["n1:1", "n3:1"]));
    bench.nobody_at = Some("n3:1");
    bench.machines.iter_mut().for_each(|machine| machine.wanted(Command::MayFound(true)));
    bench.run(A_WHILE);
    assert_eq!(bench.founded, 0);
    bench.both_say(
        "every server of --join has answered; missing: n3:1. To begin at once, start one of them without",
    );
    let lines: Vec<usize> = bench.notes.iter().map(Vec::len).collect();
    assert_eq!(lines, [2, 2], "that, and that nobody answers at n3: {:?}", bench.notes);
}

#[test]
fn newcomers_that_expect_different_servers_make_no_cluster() {
    // Whoever is the third to one of them may be in a cluster that the other does not know of.
    let mut bench = bench(machine(1, None, &["n2:1"]), machine(2, None, &["n1:1", "n3:1"]));
    bench.nobody_at = Some("n3:1");
    bench.machines.iter_mut().for_each(|machine| machine.wanted(Command::MayFound(true)));
    bench.run(A_WHILE);
    assert_eq!(bench.founded, 0);
    assert!(bench.notes[0].iter().any(|note| note.contains("not so: \"n2\"")), "{:?}", bench.notes);
}

#[test]
fn who_expected_another_to_make_the_cluster_makes_none_soon_after() {
    let mut bench = newcomers(&["n2:1"], &["n1:1"]);
    let mut second = machine(2, None, &["n2:1"]);
    second.wanted(Command::MayFound(true));
    second.now = bench.now;
    second.founding.expected = Some([1, 2].map(|n| ServerId(Uuid::from_u128(n))).into());
    assert_eq!(second.expects().map(|servers| servers.len()), Some(2));
    bench.machines[1] = second;
    let before = bench.founded;
    bench.run(A_WHILE);
    assert_eq!(bench.founded, before, "for half a minute");
    bench.run(A_WHILE);
    assert_eq!(bench.founded, before + 1);
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
    bench.happened[0].push(Happening::Accepted(id, "10.0.0.5:7".to_owned()));
    bench.happened[0].push(Happening::Arrived(id, frame::preface(future, b"in words of the future")));
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
    bench.happened[0].push(Happening::Arrived(dialed, frame::preface(future, b"")));
    bench.step(0);
    assert!(
        bench.notes[0][1].contains("Cannot link to the server at n2:1: server \"n1\" speaks versions 2 to 2")
    );
}

#[test]
fn bytes_of_somebody_else_end_the_connection() {
    let mut bench = bench(machine(1, Some(9), &[]), machine(2, Some(9), &[]));
    let id = ConnectionId::accepted(77);
    bench.happened[0].push(Happening::Accepted(id, "10.0.0.5:7".to_owned()));
    let http = Bytes::from_static(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    bench.happened[0].push(Happening::Arrived(id, http));
    let mut orders = Vec::new();
    let happened = &mut bench.happened[0];
    bench.machines[0].step(Nanos(1), happened, &mut Vec::new(), &|_, _| Ok(()), &mut Vec::new());
    bench.machines[0].orders(&mut orders);
    assert_eq!(orders, [Order::Close(id)]);
}

#[test]
fn whom_tls_refuses_is_named_once() {
    let mut bench = bench(machine(1, Some(9), &[]), machine(2, Some(9), &[]));
    for (number, port) in [(77, 7), (78, 8)] {
        let id = ConnectionId::accepted(number);
        bench.happened[0].push(Happening::Accepted(id, format!("10.0.0.5:{port}")));
        bench.happened[0].push(Happening::Closed(id, format!("{TLS_FAULT}peer sent no certificates")));
        bench.step(0);
    }
    // Who only looks whether somebody listens is refused nothing.
    let id = ConnectionId::accepted(79);
    bench.happened[0].push(Happening::Accepted(id, "10.0.0.6:9".to_owned()));
    bench.happened[0].push(Happening::Closed(id, "the other side closed the connection".to_owned()));
    bench.step(0);
    assert_eq!(bench.notes[0], ["Refused a server at 10.0.0.5:7: TLS: peer sent no certificates"]);
    assert!(bench.machines[0].sessions.is_empty());
}

#[test]
fn whoever_speaks_tls_to_a_server_in_the_clear_is_told_apart() {
    let mut bench = bench(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    bench.machines[0].wanted(Command::Join("n2:1".to_owned()));
    bench.step(0);
    // An alert, to what this side has said; and the first words of somebody else.
    bench.happened[0]
        .push(Happening::Arrived(ConnectionId::dialed(1), Bytes::from_static(&[21, 3, 3, 0, 2, 2, 10])));
    let id = ConnectionId::accepted(78);
    bench.happened[0].push(Happening::Accepted(id, "10.0.0.5:7".to_owned()));
    bench.happened[0].push(Happening::Arrived(id, Bytes::from_static(&[22, 3, 1, 0, 200, 1, 0, 0])));
    bench.step(0);
    assert!(bench.notes[0][0].starts_with("Cannot link to the server at n2:1: the other side uses TLS and"));
    assert!(
        bench.notes[0][1].starts_with("Refused a server at 10.0.0.5:7: the other side uses TLS and this")
    );
}

#[test]
fn an_incarnation_that_was_replaced_stays_away() {
    let mut bench = bench(machine(1, Some(9), &["n2:1"]), machine(2, Some(9), &[]));
    bench.run(A_WHILE);
    let old = bench.machines[1].incarnation;
    let dismissed: Vec<_> = bench.machines[1].sessions.keys().copied().collect();
    dismissed.into_iter().for_each(|id| bench.carry_out(1, Order::Close(id)));
    bench.machines[1] = machine(2, Some(9), &[]);
    bench.machines[1].incarnation = old + 1;
    bench.run(A_WHILE);
    assert_eq!(bench.connected[0].iter().map(|info| info.incarnation).collect::<Vec<_>>(), [old, old + 1]);
    let current: Vec<_> = bench.machines[1].sessions.keys().copied().collect();
    current.into_iter().for_each(|id| bench.carry_out(1, Order::Close(id)));
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
        dismissed.into_iter().for_each(|id| bench.carry_out(1, Order::Close(id)));
        bench.machines[1] = machine(2, Some(9), &[]);
        bench.machines[1].incarnation = incarnation;
        bench.machines[1].started_ms = started_ms;
        bench.run(A_WHILE);
    }
    let connected: Vec<u64> = bench.connected[0].iter().map(|info| info.incarnation).collect();
    assert_eq!(connected, [gone + 1, gone, gone + 1], "{:?}", bench.notes[0]);
}
