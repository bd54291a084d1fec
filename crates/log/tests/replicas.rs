//! Three logs with their threads and a real clock: leaders are elected, entries reach all replicas, a lost leader is
//! replaced, and idle groups send no messages.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use io::real::RealClock;
use io::sim::SimFiles;
use rekindle_log::file::{FileLog, FileLogOptions};
use rekindle_log::{
    Acks, Applier, ApplyError, Durability, Entry, GroupId, GroupObserver, InitialConfig, Log, LogError, Lsn,
    Members, Message, PeerId, Role, Transport,
};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Engine(Mutex<BTreeMap<(GroupId, Lsn), Bytes>>);

impl Applier for Engine {
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError> {
        let entries = entries.iter().map(|entry| ((entry.group, entry.lsn), entry.payload.clone()));
        self.0.lock().unwrap().extend(entries);
        Ok(())
    }

    fn applied(&self, _group: GroupId) -> Lsn {
        Lsn(0)
    }

    fn flush(&self) -> Result<(), ApplyError> {
        Ok(())
    }
}

/// Delivers messages at once to the log of the receiver.
#[derive(Default)]
struct Network {
    logs: OnceLock<Vec<Mutex<Option<Arc<FileLog>>>>>,
    messages: AtomicU64,
    /// The nodes that are cut off, a bit each.
    cut: AtomicU64,
}

impl Transport for Network {
    fn send(&self, messages: Vec<Message>) {
        self.messages.fetch_add(messages.len() as u64, Ordering::Relaxed);
        let cut = self.cut.load(Ordering::Relaxed);
        let is_cut = |peer: PeerId| cut >> (peer.0 % 10) & 1 == 1;
        for message in messages.into_iter().filter(|message| !is_cut(message.from) && !is_cut(message.to)) {
            // The last digit of a peer id is the number of its node.
            let node = (message.to.0 % 10) as usize;
            let log = self.logs.get().and_then(|logs| logs[node].lock().unwrap().clone());
            if let Some(log) = log {
                log.receive(message);
            }
        }
    }
}

#[derive(Default)]
struct Roles(Mutex<BTreeMap<GroupId, Role>>);

impl GroupObserver for Roles {
    fn role_changed(&self, id: GroupId, role: Role) {
        self.0.lock().unwrap().insert(id, role);
    }
    fn snapshot_needed(&self, _id: GroupId, _to: PeerId) {}
    fn rows_needed(&self, _id: GroupId) {}
    fn removed(&self, _id: GroupId) {}
}

struct Fleet {
    network: Arc<Network>,
    engines: Vec<Arc<Engine>>,
    roles: Vec<Arc<Roles>>,
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < WAIT_TIMEOUT, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Fleet {
    fn of_groups(count: u64) -> Fleet {
        let network = Arc::new(Network::default());
        let (mut engines, mut roles, mut logs) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..3 {
            let (engine, role) = (Arc::new(Engine::default()), Arc::new(Roles::default()));
            let options = FileLogOptions {
                transport: Arc::clone(&network) as Arc<dyn Transport>,
                observer: Arc::clone(&role) as Arc<dyn GroupObserver>,
                ..FileLogOptions::default()
            };
            let (files, clock) = (Arc::new(SimFiles::new(node)), Arc::new(RealClock::new()));
            let applier = Arc::clone(&engine) as Arc<dyn Applier>;
            let log = FileLog::open(files, clock, Path::new("/log"), applier, options).unwrap();
            logs.push(Mutex::new(Some(Arc::new(log))));
            engines.push(engine);
            roles.push(role);
        }
        assert!(network.logs.set(logs).is_ok());
        let fleet = Fleet { network, engines, roles };
        for group in 0..count {
            let peers: Vec<PeerId> = (0..3).map(|node| PeerId((group + 1) * 10 + node)).collect();
            for node in 0..3 {
                let initial = InitialConfig::Bootstrap { own: peers[node], voters: peers.clone() };
                fleet.log(node).unwrap().open_group(GroupId(group), Lsn(0), initial).unwrap();
            }
            fleet.log((group % 3) as usize).unwrap().campaign(GroupId(group));
        }
        fleet
    }

    fn log(&self, node: usize) -> Option<Arc<FileLog>> {
        self.network.logs.get().unwrap()[node].lock().unwrap().clone()
    }

    fn leader(&self, group: GroupId) -> Option<usize> {
        let leads =
            |roles: &Arc<Roles>| matches!(roles.0.lock().unwrap().get(&group), Some(Role::Leader { .. }));
        (0..3).find(|node| self.log(*node).is_some() && leads(&self.roles[*node]))
    }

    fn wait_for_leader(&self, group: GroupId) -> usize {
        wait_until("a leader", || self.leader(group).is_some());
        self.leader(group).unwrap()
    }

    /// Proposes until a leader has accepted the entry.
    fn write(&self, group: GroupId, payload: &str, durability: Durability) -> Lsn {
        loop {
            let leader = self.wait_for_leader(group);
            let (tell, told) = mpsc::channel();
            let done = Box::new(move |result| drop(tell.send(result)));
            let Some(log) = self.log(leader) else { continue };
            log.propose(group, Bytes::copy_from_slice(payload.as_bytes()), durability, done);
            match told.recv().unwrap() {
                Ok(lsn) => return lsn,
                Err(cause) => assert!(cause.is_definite(), "{cause}"),
            }
        }
    }

    fn has_everywhere(&self, group: GroupId, lsn: Lsn) -> bool {
        let has = |node: &usize| self.engines[*node].0.lock().unwrap().contains_key(&(group, lsn));
        (0..3).filter(|node| self.log(*node).is_some()).all(|node| has(&node))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for node in 0..3 {
            let log = self.network.logs.get().unwrap()[node].lock().unwrap().take();
            drop(log);
        }
    }
}

#[test]
fn entries_reach_all_replicas_and_outlive_their_leader() {
    let fleet = Fleet::of_groups(1);
    let group = GroupId(0);
    let mut last = Lsn(0);
    for nth in 0..50 {
        let durability = if nth % 2 == 0 { Durability::Hard } else { Durability::Soft };
        let lsn = fleet.write(group, &nth.to_string(), durability);
        assert!(lsn > last);
        last = lsn;
    }
    wait_until("the last entry everywhere", || fleet.has_everywhere(group, last));

    let leader = fleet.wait_for_leader(group);
    drop(fleet.network.logs.get().unwrap()[leader].lock().unwrap().take());
    let lsn = fleet.write(group, "after", Durability::Hard);
    wait_until("the entry of the next leader", || fleet.has_everywhere(group, lsn));
    let survivor = fleet.wait_for_leader(group);
    assert_ne!(survivor, leader);
    let rows = fleet.engines[survivor].0.lock().unwrap();
    assert_eq!(rows.values().filter(|payload| *payload != "after").count(), 50);
}

#[test]
fn idle_groups_send_no_messages() {
    const GROUPS: u64 = 100;
    let fleet = Fleet::of_groups(GROUPS);
    for group in 0..GROUPS {
        fleet.write(GroupId(group), "entry", Durability::Hard);
    }
    let messages = || fleet.network.messages.load(Ordering::Relaxed);
    // Eight heartbeats of any group would show in the counter.
    wait_until("rest", || {
        let before = messages();
        std::thread::sleep(Duration::from_millis(800));
        messages() == before
    });
    // A proposal wakes its group.
    let lsn = fleet.write(GroupId(7), "another", Durability::Hard);
    wait_until("the entry everywhere", || fleet.has_everywhere(GroupId(7), lsn));
}

#[test]
fn a_quiesced_leader_steps_down_when_its_majority_is_unreachable() {
    let fleet = Fleet::of_groups(1);
    let group = GroupId(0);
    let lsn = fleet.write(group, "entry", Durability::Hard);
    wait_until("the entry everywhere", || fleet.has_everywhere(group, lsn));
    let messages = || fleet.network.messages.load(Ordering::Relaxed);
    let wait_for_rest = || {
        wait_until("rest", || {
            let before = messages();
            std::thread::sleep(Duration::from_millis(800));
            messages() == before
        });
    };
    wait_for_rest();
    let leader = fleet.wait_for_leader(group);
    let log = fleet.log(leader).unwrap();
    let own = log.group_status(group).unwrap().own;
    let others: Vec<PeerId> =
        log.group_status(group).unwrap().members.voters.into_iter().filter(|peer| *peer != own).collect();
    let leads = || matches!(log.group_status(group).unwrap().role, Role::Leader { .. });

    // With one of the two it has a quorum, and stays quiesced.
    fleet.network.cut.store(1 << (others[0].0 % 10), Ordering::Relaxed);
    let before = messages();
    log.peers_unreachable(vec![others[0]]);
    assert!(leads());
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(messages(), before, "the group is quiesced");
    fleet.network.cut.store(1 << leader, Ordering::Relaxed);
    log.peers_unreachable(vec![others[1]]);
    wait_until("it leads no more", || !leads());
}

/// The outcome of a write to which no other replica responds.
fn write_alone(acks: Acks, durability: Durability) -> &'static str {
    let fleet = Fleet::of_groups(1);
    let group = GroupId(0);
    (0..3).for_each(|node| fleet.log(node).unwrap().set_acks(group, acks));
    loop {
        fleet.network.cut.store(0, Ordering::Relaxed);
        fleet.write(group, "together", durability);
        let leader = fleet.wait_for_leader(group);
        fleet.network.cut.store(0b111, Ordering::Relaxed);
        let (tell, told) = mpsc::channel();
        let done = Box::new(move |result| drop(tell.send(result)));
        fleet.log(leader).unwrap().propose(group, Bytes::from_static(b"alone"), durability, done);
        match told.recv().unwrap() {
            Ok(lsn) => {
                assert_eq!(fleet.engines[leader].0.lock().unwrap()[&(group, lsn)], "alone");
                return "acknowledged";
            }
            // It had stepped down by then.
            Err(cause) if cause.is_definite() => {}
            Err(_) => return "in doubt",
        }
    }
}

#[test]
fn where_one_replica_is_enough_the_leader_does_not_wait_for_others() {
    for durability in [Durability::Hard, Durability::Soft] {
        assert_eq!(write_alone(Acks::One, durability), "acknowledged");
        assert_eq!(write_alone(Acks::Majority, durability), "in doubt");
    }
}

#[test]
fn entries_that_only_a_lost_leader_had_are_discarded_when_it_returns() {
    let fleet = Fleet::of_groups(1);
    let group = GroupId(0);
    (0..3).for_each(|node| fleet.log(node).unwrap().set_acks(group, Acks::One));
    let lsn = fleet.write(group, "together", Durability::Hard);
    wait_until("the entry everywhere", || fleet.has_everywhere(group, lsn));
    let leader = fleet.wait_for_leader(group);
    fleet.network.cut.store(1 << leader, Ordering::Relaxed);
    let (tell, told) = mpsc::channel();
    let done = Box::new(move |result| drop(tell.send(result)));
    fleet.log(leader).unwrap().propose(group, Bytes::from_static(b"alone"), Durability::Hard, done);
    assert!(told.recv().unwrap().is_ok());
    let others = || (0..3).filter(|node| *node != leader);
    let leads =
        |node: usize| matches!(fleet.roles[node].0.lock().unwrap().get(&group), Some(Role::Leader { .. }));
    wait_until("another leader", || others().any(leads));
    fleet.network.cut.store(0, Ordering::Relaxed);
    let status = || fleet.log(leader).unwrap().group_status(group).unwrap();
    wait_until("the rows are invalid", || status().needs_rows);
    assert!(!matches!(status().role, Role::Leader { .. }));
    let has_alone = |node: usize| fleet.engines[node].0.lock().unwrap().values().any(|row| row == "alone");
    assert!(!others().any(has_alone));
}

#[test]
fn a_replica_that_lost_its_majority_can_be_forced_to_continue_alone() {
    let fleet = Fleet::of_groups(1);
    let group = GroupId(0);
    let lsn = fleet.write(group, "before", Durability::Hard);
    wait_until("the entry everywhere", || fleet.has_everywhere(group, lsn));
    let survivor = (fleet.wait_for_leader(group) + 1) % 3;
    let lost: Vec<usize> = (0..3).filter(|node| *node != survivor).collect();
    fleet.network.cut.store(lost.iter().map(|node| 1 << node).sum(), Ordering::Relaxed);
    let log = fleet.log(survivor).unwrap();
    let own = log.group_status(group).unwrap().own;
    let removed = log.group_status(group).unwrap().members.voters;
    let removed = removed.into_iter().filter(|peer| *peer != own).collect();
    let members = Members { voters: vec![own], removed, ..Members::default() };
    let members = log.reset_members(group, members).unwrap();
    assert_eq!((members.voters, members.removed.len()), (vec![own], 2));
    let leads = || matches!(log.group_status(group).unwrap().role, Role::Leader { .. });
    wait_until("it leads", leads);
    let (tell, told) = mpsc::channel();
    let done = Box::new(move |result| drop(tell.send(result)));
    log.propose(group, Bytes::from_static(b"after"), Durability::Hard, done);
    assert!(told.recv().unwrap().is_ok());
    // The other replicas come back, learn that they were removed, and change nothing.
    fleet.network.cut.store(0, Ordering::Relaxed);
    for node in lost {
        let has_left = || matches!(fleet.log(node).unwrap().group_status(group), Err(LogError::NotOpen(_)));
        wait_until("the lost replica leaves", has_left);
    }
    assert!(leads());
    let rows = fleet.engines[survivor].0.lock().unwrap();
    assert_eq!(rows.values().filter(|row| *row == "before" || *row == "after").count(), 2);
}
