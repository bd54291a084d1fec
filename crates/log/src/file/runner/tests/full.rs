//! A runner whose disk is full.

use super::*;
use crate::record::Record;
use crate::{LogBase, LogError, Members, Term};

#[test]
fn a_disk_is_full_until_the_waiting_records_are_written() {
    let (files, clock) = (SimFiles::new(1), SimClock::new());
    let mut runner = runner(&files, &clock);
    files.fill(true);
    let began = clock.now();
    propose(&mut runner, 1);
    for _ in 0..20 {
        pass(&mut runner, &clock, 1);
        assert_eq!(runner.full_since(), Some(began), "however often it is tried");
    }
    let answer = Arc::new(Mutex::new(None));
    let (work, slot) = (Work::Entry(Bytes::from_static(b"more"), Durability::Soft), Arc::clone(&answer));
    let done = Box::new(move |result: Result<Lsn, ProposeError>| *slot.lock().unwrap() = Some(result));
    runner.step(&mut vec![Proposal { group: GROUP, term: None, work, done }]);
    let refusal = answer.lock().unwrap().take();
    assert!(
        refusal.is_some_and(|result| result.is_err_and(|error| error.is_definite())),
        "nothing more is taken in"
    );
    files.fill(false);
    pass(&mut runner, &clock, 2);
    assert_eq!(runner.full_since(), None);
    assert!(runner.failure().is_none());
}

#[test]
fn a_log_that_fails_while_the_disk_is_full_is_not_full_any_more_and_stays_failed() {
    let (files, clock) = (SimFiles::new(1), SimClock::new());
    let mut runner = runner(&files, &clock);
    propose(&mut runner, 1);
    clock.advance(POLICY.soft_wait);
    let syncing = runner.begin_sync().expect("an entry waits for it");
    files.fill(true);
    propose(&mut runner, 1);
    assert!(runner.full_since().is_some());
    runner.end_sync(syncing, Err(std::io::Error::other("injected")));
    assert_eq!(runner.full_since(), None, "space is not the problem");
    files.fill(false);
    pass(&mut runner, &clock, 20);
    assert!(runner.failure().is_some() && runner.due().is_none());
}

#[test]
fn a_majority_read_needs_no_space() {
    let (files, clock, answers) = (SimFiles::new(1), SimClock::new(), Answers::default());
    let mut runner = runner(&files, &clock);
    pass(&mut runner, &clock, 2);
    files.fill(true);
    runner.step(&mut vec![proposal(1, entry(), &answers)]);
    assert!(runner.full_since().is_some());
    runner.step(&mut vec![proposal(2, Work::Read, &answers), proposal(3, entry(), &answers)]);
    let answers = answers.lock().unwrap();
    let outcomes: Vec<_> = answers.iter().map(|(number, answer)| (*number, answer.is_ok())).collect();
    assert_eq!(outcomes, [(3, false), (2, true)], "writes are refused or wait, reads are answered");
}

#[test]
fn a_leader_with_a_full_disk_is_confirmed_by_its_followers() {
    let (own, other) = (PeerId(1), PeerId(2));
    let (files, clock, transport) = (SimFiles::new(1), SimClock::new(), Arc::new(Unsent::default()));
    let mut runner = runner_of(&files, &clock, &InitialConfig::Single, Arc::clone(&transport) as _);
    let own = PeerId(runner.group_status(GROUP).unwrap().own.0.max(own.0));
    for change in [MemberChange::AddLearner(other), MemberChange::Promote(other)] {
        runner.step(&mut vec![Proposal {
            group: GROUP,
            term: None,
            work: Work::Change(change),
            done: Box::new(|_| {}),
        }]);
        pass(&mut runner, &clock, 1);
    }
    let status = runner.group_status(GROUP).unwrap();
    let Role::Leader { term } = status.role else { panic!("it led alone") };
    let said = |kind, index, context: Vec<u8>| {
        let mut message =
            RaftMessage { term: term.0, index, commit: index, context, ..RaftMessage::default() };
        message.set_msg_type(kind);
        let body = Content::Consensus { message, payloads: Vec::new(), soft: 0 }.encode();
        Message { group: GROUP, from: other, to: own, body }
    };
    runner.receive(&mut vec![said(MessageType::MsgAppendResponse, status.last.0, Vec::new())]);
    pass(&mut runner, &clock, 1);
    files.fill(true);
    let answers = Answers::default();
    runner.step(&mut vec![proposal(1, entry(), &answers)]);
    assert!(runner.full_since().is_some());
    transport.take();
    runner.step(&mut vec![proposal(2, Work::Read, &answers)]);
    let heartbeats =
        transport.take().into_iter().filter_map(|message| match Content::decode(&message.body) {
            Some(Content::Consensus { message, .. }) => Some(message),
            _ => None,
        });
    let heartbeats: Vec<RaftMessage> = heartbeats.collect();
    assert!(
        matches!(&heartbeats[..], [one] if one.get_msg_type() == MessageType::MsgHeartbeat),
        "no unwritten entry is sent: {heartbeats:?}"
    );
    assert!(answers.lock().unwrap().is_empty(), "no follower has confirmed it yet");
    let context = heartbeats[0].context.clone();
    runner.receive(&mut vec![said(MessageType::MsgHeartbeatResponse, 0, context)]);
    assert!(matches!(&answers.lock().unwrap()[..], [(2, Ok(_))]));
    // A message that requires a write is ignored.
    let mut vote = RaftMessage { term: term.0 + 1, ..RaftMessage::default() };
    vote.set_msg_type(MessageType::MsgRequestVote);
    let body = Content::Consensus { message: vote, payloads: Vec::new(), soft: 0 }.encode();
    runner.receive(&mut vec![Message { group: GROUP, from: other, to: own, body }]);
    assert!(matches!(runner.group_status(GROUP).unwrap().role, Role::Leader { .. }));
}

/// The log base for a replica that waits for its rows.
fn joiner(files: &SimFiles, clock: &SimClock) -> Runner<FileStore> {
    let mut runner =
        runner_of(files, clock, &InitialConfig::Joining { own: PeerId(1) }, Arc::new(Unsent::default()));
    runner.begin_restore(GROUP).unwrap();
    runner
}

fn base() -> LogBase {
    LogBase {
        at: Lsn(5),
        term: Term(1),
        members: Members::first(vec![PeerId(1), PeerId(2)]),
        ahead: Vec::new(),
    }
}

#[test]
fn a_replica_continues_from_a_copy_that_is_complete_on_a_full_disk() {
    let (files, clock) = (SimFiles::new(1), SimClock::new());
    let mut runner = joiner(&files, &clock);
    files.fill(true);
    runner.finish_restore(GROUP, &base()).unwrap();
    let status = runner.group_status(GROUP).expect("it is not left closed");
    assert!(!status.needs_rows && status.start == Lsn(5), "{status:?}");
    assert!(runner.full_since().is_some());
    files.fill(false);
    pass(&mut runner, &clock, 2);
    assert!(runner.full_since().is_none() && runner.failure().is_none());
    assert_eq!(runner.group_status(GROUP).unwrap().start, Lsn(5));
}

#[test]
fn a_group_closed_on_a_full_disk_is_reported_only_once_that_is_written() {
    let close: fn(&mut Runner<FileStore>) -> _ = |runner| runner.close_group(GROUP);
    let leave: fn(&mut Runner<FileStore>) -> _ = |runner| runner.leave_group(GROUP);
    for end in [close, leave] {
        let (files, clock) = (SimFiles::new(1), SimClock::new());
        let mut runner = runner(&files, &clock);
        pass(&mut runner, &clock, 2);
        files.fill(true);
        for _ in 0..3 {
            assert!(matches!(end(&mut runner), Err(LogError::TombstonePending(GROUP))));
        }
        files.fill(false);
        assert!(matches!(end(&mut runner), Err(LogError::NotOpen(GROUP))), "now it is written");
        drop(runner);
        files.crash();
        assert!(store_of(&files, StoreOptions::default()).group(GROUP).is_none(), "the last word is durable");
    }
}

#[test]
fn members_are_not_reset_on_a_full_disk_and_can_be_when_there_is_space() {
    let (files, clock) = (SimFiles::new(1), SimClock::new());
    let mut runner = joiner(&files, &clock);
    runner.finish_restore(GROUP, &base()).unwrap();
    files.fill(true);
    let named = Members::first(vec![PeerId(1), PeerId(3)]);
    assert!(matches!(runner.reset_members(GROUP, named.clone()), Err(LogError::Stopped)));
    let members = |runner: &Runner<FileStore>| runner.group_status(GROUP).map(|status| status.members.voters);
    assert_eq!(members(&runner).unwrap(), [PeerId(1), PeerId(2)], "nothing is changed");
    files.fill(false);
    pass(&mut runner, &clock, 2);
    runner.reset_members(GROUP, named).unwrap();
    assert_eq!(members(&runner).unwrap(), [PeerId(1), PeerId(3)]);
}

#[test]
fn unwritten_records_are_not_read_with_written_ones() {
    let (files, random) = (Arc::new(SimFiles::new(1)), Arc::new(SimRandom::new(1)));
    let mut store =
        FileStore::open(files.clone(), random, Path::new("/log"), StoreOptions::default()).unwrap();
    let kind = EntryKind::Proposed(Durability::Hard);
    let entry = |index| Record::Entry { group: GROUP, index, term: 1, kind, payload: &b"row"[..] };
    let read = |store: &FileStore| -> Vec<u64> {
        store.read(GROUP, 0, 1 << 20).unwrap().iter().map(|entry| entry.index).collect()
    };
    let members = Members::first(vec![PeerId(1)]);
    store.push(&Record::Member { group: GROUP, peer: 1, members });
    store.push(&entry(1));
    store.write().unwrap();
    files.fill(true);
    store.push(&entry(2));
    store.write().unwrap_err();
    assert_eq!(read(&store), [1]);
    files.fill(false);
    store.write().unwrap();
    assert_eq!(read(&store), [1, 2]);
}
