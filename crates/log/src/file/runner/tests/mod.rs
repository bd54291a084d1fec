//! The runner with a simulated disk, clock and transport.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::Clock;
use io::sim::{Fault, SimClock, SimFiles, SimRandom};
use raft::eraftpb::{Message as RaftMessage, MessageType};

mod copies;
mod full;
mod release;

use super::{Environment, FlushPolicy, Runner};
use crate::contract::{Applier, Entry, Message, Noop, Transport};
use crate::driver::TICK;
use crate::error::{ApplyError, LogError, ProposeError};
use crate::file::store::{FileStore, StoreOptions};
use crate::lsn::{Durability, GroupId, Lsn};
use crate::member::{InitialConfig, MemberChange, Members, PeerId, Role};
use crate::message::{Content, Payload, empty_entry};
use crate::proposal::{Proposal, Request, Work};
use crate::record::EntryKind;
use crate::store::Store;

const GROUP: GroupId = GroupId(1);
const FSYNC: Duration = Duration::from_micros(200);
const POLICY: FlushPolicy = FlushPolicy {
    soft_wait: Duration::from_millis(100),
    log_bytes_max: 1 << 20,
    replay_bytes_max: 1 << 20,
    flush_interval: std::time::Duration::from_secs(1),
};

/// An engine without rows.
struct Nothing;

impl Applier for Nothing {
    fn apply(&self, _: &[Entry]) -> Result<(), ApplyError> {
        Ok(())
    }

    fn applied(&self, _: GroupId) -> Lsn {
        Lsn(0)
    }

    fn flush(&self) -> Result<(), ApplyError> {
        Ok(())
    }
}

/// A transport that keeps all messages.
#[derive(Default)]
struct Unsent(Mutex<Vec<Message>>);

impl Transport for Unsent {
    fn send(&self, messages: Vec<Message>) {
        self.0.lock().unwrap().extend(messages);
    }
}

impl Unsent {
    fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn runner(files: &SimFiles, clock: &SimClock) -> Runner<FileStore> {
    runner_of(files, clock, &InitialConfig::Single, Arc::new(Noop))
}

fn store_of(files: &SimFiles, options: StoreOptions) -> FileStore {
    let (files, random) = (Arc::new(files.clone()), Arc::new(SimRandom::new(1)));
    FileStore::open(files, random, Path::new("/log"), options).unwrap()
}

fn runner_of(
    files: &SimFiles,
    clock: &SimClock,
    initial: &InitialConfig,
    transport: Arc<dyn Transport>,
) -> Runner<FileStore> {
    runner_on(store_of(files, StoreOptions::default()), clock, initial, transport, POLICY)
}

fn runner_on(
    store: FileStore,
    clock: &SimClock,
    initial: &InitialConfig,
    transport: Arc<dyn Transport>,
    policy: FlushPolicy,
) -> Runner<FileStore> {
    let mut runner = unsynced_runner_on(store, clock, initial, transport, policy);
    runner.sync_now();
    runner
}

fn unsynced_runner_on(
    store: FileStore,
    clock: &SimClock,
    initial: &InitialConfig,
    transport: Arc<dyn Transport>,
    policy: FlushPolicy,
) -> Runner<FileStore> {
    let random = Arc::new(SimRandom::new(1));
    let observer = Arc::new(Noop);
    let environment = Environment {
        applier: Arc::new(Nothing),
        clock: Arc::new(clock.clone()),
        random,
        transport,
        observer,
    };
    let mut runner = Runner::new(store, environment, policy);
    runner.open_group(GROUP, Lsn(0), initial).unwrap();
    runner
}

fn propose(runner: &mut Runner<FileStore>, count: usize) {
    let hard = || Work::Entry(Bytes::from_static(b"entry"), Durability::Hard);
    let proposal = |_| Proposal { group: GROUP, term: None, work: hard(), done: Box::new(|_| {}) };
    runner.step(&mut (0..count).map(proposal).collect());
}

/// Three writers shared an fsync, so the next one waits for three.
fn runner_that_expects_three_writers(files: &SimFiles) -> Runner<FileStore> {
    let clock = SimClock::new();
    let mut runner = runner(files, &clock);
    propose(&mut runner, 3);
    clock.advance(POLICY.soft_wait);
    let syncing = runner.begin_sync().expect("three wait for an fsync");
    clock.advance(FSYNC);
    let result = syncing.run();
    runner.end_sync(syncing, result);
    propose(&mut runner, 1);
    runner
}

#[test]
fn the_wait_for_more_entries_is_limited() {
    let runner = runner_that_expects_three_writers(&SimFiles::new(1));
    assert_eq!(runner.hard_proposals_per_step(), 2);
    assert!(runner.due().is_some(), "the wait has an end");
}

#[test]
fn a_failed_log_does_not_wait() {
    let files = SimFiles::new(1);
    let mut runner = runner_that_expects_three_writers(&files);
    files.inject(Fault::Append);
    propose(&mut runner, 1);
    assert!(runner.failure().is_some());
    assert_eq!(runner.due(), None);
    assert_eq!(
        runner.hard_proposals_per_step(),
        1,
        "with nothing due, every proposal must be refused when it arrives"
    );
}

/// Advances the clock of an idle log, and ends every fsync that is due.
fn pass(runner: &mut Runner<FileStore>, clock: &SimClock, ticks: u32) {
    for _ in 0..ticks {
        clock.advance(TICK);
        runner.tick();
        while let Some(syncing) = runner.begin_sync() {
            let result = syncing.run();
            runner.end_sync(syncing, result);
        }
    }
}

/// A message of term 5 from `from` to `to`.
fn message(from: PeerId, to: PeerId, kind: MessageType, commit: u64, payloads: Vec<Payload>) -> Message {
    let mut message = RaftMessage { term: 5, commit, ..RaftMessage::default() };
    message.set_msg_type(kind);
    let numbered = (1..).zip(&payloads);
    message.entries = numbered.map(|(index, (kind, _))| empty_entry(index, 5, *kind)).collect();
    let body = Content::Consensus { message, payloads, soft: 0 }.encode();
    Message { group: GROUP, from, to, body }
}

#[test]
fn the_last_voter_elects_itself_after_its_leader_was_removed() {
    let (leader, own) = (PeerId(1), PeerId(2));
    let clock = SimClock::new();
    let initial = InitialConfig::Bootstrap { own, voters: vec![leader, own] };
    let mut runner = runner_of(&SimFiles::new(1), &clock, &initial, Arc::new(Noop));
    // The last message of the leader commits its own removal.
    let change = (EntryKind::Members, MemberChange::Remove(leader).encode());
    runner.receive(&mut vec![message(leader, own, MessageType::MsgAppend, 0, vec![change])]);
    pass(&mut runner, &clock, 1);
    runner.receive(&mut vec![message(leader, own, MessageType::MsgHeartbeat, 1, Vec::new())]);
    assert_eq!(runner.group_status(GROUP).unwrap().members.voters, [own]);
    pass(&mut runner, &clock, 30);
    let role = runner.group_status(GROUP).unwrap().role;
    assert!(matches!(role, Role::Leader { .. }), "{role:?}");
}

#[test]
fn a_first_member_without_rows_votes_and_does_not_stand() {
    let (own, other) = (PeerId(1), PeerId(2));
    let (clock, transport) = (SimClock::new(), Arc::new(Unsent::default()));
    let initial = InitialConfig::BootstrapEmpty { own, voters: vec![own, other] };
    let mut runner = runner_of(&SimFiles::new(1), &clock, &initial, Arc::clone(&transport) as _);
    pass(&mut runner, &clock, 100);
    let status = runner.group_status(GROUP).unwrap();
    assert!(status.needs_rows && status.members.voters == [own, other]);
    assert!(matches!(status.role, Role::Follower { leader: None, .. }), "{:?}", status.role);
    let ballots =
        |transport: &Unsent| transport.take().into_iter().filter(|message| message.to == other).count();
    assert_eq!(ballots(&transport), 0, "it requests no vote");
    runner.receive(&mut vec![message(other, own, MessageType::MsgRequestVote, 0, Vec::new())]);
    pass(&mut runner, &clock, 1);
    assert_eq!(ballots(&transport), 1, "it responds to a request");
}

#[test]
fn a_first_member_whose_engine_lost_its_rows_is_opened_without_them() {
    let (own, other) = (PeerId(1), PeerId(2));
    let (files, clock) = (SimFiles::new(1), SimClock::new());
    let with_rows = InitialConfig::Bootstrap { own, voters: vec![own, other] };
    let runner = runner_of(&files, &clock, &with_rows, Arc::new(Noop));
    assert!(!runner.group_status(GROUP).unwrap().needs_rows);
    drop(runner);
    // A power loss took the group's rows from the engine, but not the synced records of the log.
    let without_rows = InitialConfig::BootstrapEmpty { own, voters: vec![own, other] };
    for initial in [without_rows, with_rows] {
        let runner = runner_of(&files, &clock, &initial, Arc::new(Noop));
        assert!(runner.group_status(GROUP).unwrap().needs_rows, "{initial:?}");
    }
}

#[test]
fn a_replica_that_learns_of_its_removal_has_a_durable_tombstone_when_it_is_closed() {
    let (leader, own) = (PeerId(1), PeerId(2));
    let (files, clock) = (SimFiles::new(1), SimClock::new());
    let initial = InitialConfig::Bootstrap { own, voters: vec![leader, own] };
    let mut runner = runner_of(&files, &clock, &initial, Arc::new(Noop));
    let change = (EntryKind::Members, MemberChange::Remove(own).encode());
    runner.receive(&mut vec![message(leader, own, MessageType::MsgAppend, 0, vec![change])]);
    runner.receive(&mut vec![message(leader, own, MessageType::MsgHeartbeat, 1, Vec::new())]);
    assert!(matches!(runner.close_group(GROUP), Err(LogError::NotOpen(_))));
    drop(runner);
    files.crash();
    assert!(
        store_of(&files, StoreOptions::default()).is_removed(GROUP, own.0),
        "it would be opened again, without its rows"
    );
}

#[test]
fn a_follower_of_a_forced_single_voter_invalidates_its_rows() {
    let (survivor, own) = (PeerId(1), PeerId(2));
    let initial = InitialConfig::Bootstrap { own, voters: vec![survivor, own, PeerId(3)] };
    let mut runner = runner_of(&SimFiles::new(1), &SimClock::new(), &initial, Arc::new(Noop));
    let entry = (EntryKind::Proposed(Durability::Hard), Bytes::from_static(b"of a leader before"));
    runner.receive(&mut vec![message(PeerId(3), own, MessageType::MsgAppend, 0, vec![entry])]);
    let members =
        Members { at: Lsn(9), voters: vec![survivor], removed: vec![PeerId(3)], ..Members::default() };
    runner.reset_members(GROUP, members).unwrap();
    let status = runner.group_status(GROUP).unwrap();
    assert_eq!((status.last, status.applied, status.needs_rows), (Lsn(1), Lsn(0), true));
}

#[test]
fn a_single_voter_sends_again_to_a_learner_that_did_not_respond() {
    let (clock, transport, learner) = (SimClock::new(), Arc::new(Unsent::default()), PeerId(9));
    let mut runner =
        runner_of(&SimFiles::new(1), &clock, &InitialConfig::Single, Arc::clone(&transport) as _);
    let work = Work::Change(MemberChange::AddLearner(learner));
    runner.step(&mut vec![Proposal { group: GROUP, term: None, work, done: Box::new(|_| {}) }]);
    pass(&mut runner, &clock, 3);
    assert_eq!(runner.group_status(GROUP).unwrap().members.learners, [learner]);
    transport.take();
    pass(&mut runner, &clock, 3);
    assert!(transport.take().iter().any(|message| message.to == learner), "its first message was lost");
}

#[test]
fn a_single_voter_sends_nothing_in_a_term_that_is_not_durable() {
    let (files, clock, learner) = (SimFiles::new(1), SimClock::new(), PeerId(9));
    let mut runner = runner(&files, &clock);
    let work = Work::Change(MemberChange::AddLearner(learner));
    runner.step(&mut vec![Proposal { group: GROUP, term: None, work, done: Box::new(|_| {}) }]);
    pass(&mut runner, &clock, 3);
    drop(runner);
    let transport = Arc::new(Unsent::default());
    let store = store_of(&files, StoreOptions::default());
    let mut runner =
        unsynced_runner_on(store, &clock, &InitialConfig::Single, Arc::clone(&transport) as _, POLICY);
    propose(&mut runner, 1);
    for _ in 0..20 {
        clock.advance(TICK);
        runner.tick();
    }
    let has_sent = |transport: &Unsent| transport.take().iter().any(|message| message.to == learner);
    assert!(matches!(runner.group_status(GROUP).unwrap().role, Role::Leader { .. }));
    assert!(!has_sent(&transport), "its term is not durable yet");
    pass(&mut runner, &clock, 3);
    assert!(has_sent(&transport), "it is now");
}

#[test]
fn a_learner_that_lacks_compacted_entries_needs_a_copy() {
    let (clock, learner) = (SimClock::new(), PeerId(9));
    let store = store_of(&SimFiles::new(1), StoreOptions { segment_bytes: 4096 });
    let policy = FlushPolicy { log_bytes_max: 4096, ..POLICY };
    let mut runner = runner_on(store, &clock, &InitialConfig::Single, Arc::new(Noop), policy);
    let work = Work::Change(MemberChange::AddLearner(learner));
    runner.step(&mut vec![Proposal { group: GROUP, term: None, work, done: Box::new(|_| {}) }]);
    let status = |runner: &Runner<FileStore>| runner.group_status(GROUP).unwrap();
    propose(&mut runner, 200);
    pass(&mut runner, &clock, 1);
    propose(&mut runner, 1);
    pass(&mut runner, &clock, 1);
    let flushing = runner.begin_flush().expect("the log has grown");
    runner.end_flush(&flushing, Ok(()));
    assert!(status(&runner).start > Lsn(1), "{:?}", status(&runner));
    let Role::Leader { term } = status(&runner).role else { panic!("it votes alone") };
    let start = status(&runner).start.0;
    for (index, needs_rows) in [(start - 1, true), (start, false)] {
        let mut message = RaftMessage { term: term.0, index, ..RaftMessage::default() };
        message.set_msg_type(MessageType::MsgAppendResponse);
        let body = Content::Consensus { message, payloads: Vec::new(), soft: 0 }.encode();
        runner.receive(&mut vec![Message { group: GROUP, from: learner, to: status(&runner).own, body }]);
        let peers = status(&runner).peers;
        assert_eq!((peers[0].matched, peers[0].needs_rows), (Lsn(index), needs_rows));
    }
}

/// The answers, by the number of the proposal.
type Answers = Arc<Mutex<Vec<(u32, Result<Lsn, ProposeError>)>>>;

fn proposal(number: u32, work: Work, answers: &Answers) -> Proposal {
    let answers = Arc::clone(answers);
    let done = Box::new(move |answer| answers.lock().unwrap().push((number, answer)));
    Proposal { group: GROUP, term: None, work, done }
}

fn entry() -> Work {
    Work::Entry(Bytes::from_static(b"entry"), Durability::Hard)
}

#[test]
fn a_sync_does_not_wait_for_refused_proposals() {
    let (clock, answers, other) = (SimClock::new(), Answers::default(), PeerId(9));
    let mut runner = runner(&SimFiles::new(1), &clock);
    for change in [MemberChange::AddLearner(other), MemberChange::Promote(other)] {
        runner.step(&mut vec![proposal(0, Work::Change(change), &answers)]);
        pass(&mut runner, &clock, 1);
    }
    assert_eq!(runner.group_status(GROUP).unwrap().members.voters.len(), 2);
    // A leader that hands over refuses proposals.
    runner.request(Request::Transfer(GROUP, other));
    answers.lock().unwrap().clear();
    runner.step(&mut vec![proposal(1, entry(), &answers), proposal(2, Work::Sync, &answers)]);
    pass(&mut runner, &clock, 1);
    let answers = answers.lock().unwrap();
    assert!(matches!(&answers[..], [(1, Err(_)), (2, Ok(_))]), "{answers:?}");
}

#[test]
fn a_sync_waits_for_proposals_that_a_membership_change_has_overtaken() {
    let (clock, answers) = (SimClock::new(), Answers::default());
    let mut runner = runner(&SimFiles::new(1), &clock);
    let change = Work::Change(MemberChange::AddLearner(PeerId(9)));
    runner.step(&mut vec![
        proposal(1, entry(), &answers),
        proposal(2, Work::Sync, &answers),
        proposal(3, change, &answers),
    ]);
    pass(&mut runner, &clock, 1);
    let answers = answers.lock().unwrap();
    let position = |number: u32| {
        let answer = answers.iter().find(|(of, _)| *of == number).map(|(_, answer)| answer);
        *answer.expect("it is answered").as_ref().unwrap()
    };
    assert!(position(3) < position(1), "the change was ordered at once");
    assert_eq!(position(2), position(1));
}

/// The types of the messages sent to `to`.
fn kinds(transport: &Unsent, to: PeerId) -> Vec<MessageType> {
    let messages = transport.take();
    let kind = |message: &Message| match Content::decode(&message.body) {
        Some(Content::Consensus { message, .. }) => Some(message.get_msg_type()),
        _ => None,
    };
    messages.iter().filter(|message| message.to == to).filter_map(kind).collect()
}

#[test]
fn a_heartbeat_response_does_not_wait_for_the_disk() {
    let (clock, transport, leader, own) =
        (SimClock::new(), Arc::new(Unsent::default()), PeerId(1), PeerId(2));
    let initial = InitialConfig::Bootstrap { own, voters: vec![leader, own] };
    let mut runner = runner_of(&SimFiles::new(1), &clock, &initial, Arc::clone(&transport) as _);
    let heartbeat = || message(leader, own, MessageType::MsgHeartbeat, 0, Vec::new());
    runner.receive(&mut vec![heartbeat()]);
    assert_eq!(kinds(&transport, leader), [], "no response in a term that is not durable");
    pass(&mut runner, &clock, 1);
    assert_eq!(kinds(&transport, leader), [MessageType::MsgHeartbeatResponse]);

    let entry = (EntryKind::Proposed(Durability::Hard), Bytes::from_static(b"entry"));
    runner.receive(&mut vec![message(leader, own, MessageType::MsgAppend, 0, vec![entry])]);
    runner.receive(&mut vec![heartbeat()]);
    assert_eq!(
        kinds(&transport, leader),
        [MessageType::MsgHeartbeatResponse],
        "the entry is not durable yet"
    );
    pass(&mut runner, &clock, 1);
    assert_eq!(kinds(&transport, leader), [MessageType::MsgAppendResponse]);
}
