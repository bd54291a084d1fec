//! Copies whose rows include entries that are not known to be committed.

use super::*;
use crate::store::StoredEntry;
use crate::{LogBase, LogError, Members, Term};

const OWN: PeerId = PeerId(1);

fn restoring(files: &SimFiles, clock: &SimClock) -> Runner<FileStore> {
    let mut runner =
        runner_of(files, clock, &InitialConfig::Joining { own: OWN }, Arc::new(Unsent::default()));
    runner.begin_restore(GROUP).unwrap();
    runner
}

/// The log base of rows that are committed up to 5, with later entries of these terms.
fn base(terms: &[u64]) -> LogBase {
    let kind = EntryKind::Proposed(Durability::Soft);
    let ahead = terms.iter().zip(6..).map(|(term, index)| StoredEntry {
        index,
        term: *term,
        kind,
        payload: Bytes::from_static(b"a row"),
    });
    let members = Members::first(vec![OWN, PeerId(2)]);
    LogBase { at: Lsn(5), term: Term(1), members, ahead: ahead.collect() }
}

#[test]
fn entries_ahead_are_in_the_log_and_applied_and_not_committed() {
    let (files, clock) = (SimFiles::new(1), SimClock::new());
    let mut runner = restoring(&files, &clock);
    runner.finish_restore(GROUP, &base(&[1, 2])).unwrap();
    let status = runner.group_status(GROUP).unwrap();
    assert!(!status.needs_rows, "{status:?}");
    assert_eq!((status.start, status.committed, status.applied), (Lsn(5), Lsn(5), Lsn(7)));
    assert_eq!((status.last, status.last_term), (Lsn(7), Term(2)));
    assert_eq!(status.role, Role::Follower { term: Term(2), leader: None }, "no entry is of a later term");
    drop(runner);
    files.crash();
    let store = store_of(&files, StoreOptions::default());
    let entries = store.read(GROUP, 5, 1 << 20).unwrap();
    assert_eq!(entries, base(&[1, 2]).ahead, "as durable as the copy");
}

#[test]
fn a_copy_is_not_taken_where_the_log_has_other_entries() {
    let (files, clock) = (SimFiles::new(1), SimClock::new());
    let mut runner = restoring(&files, &clock);
    runner.finish_restore(GROUP, &base(&[1, 2])).unwrap();
    runner.begin_restore(GROUP).unwrap();
    for other in [&[2][..], &[1, 3], &[1, 3, 3]] {
        let refused = runner.finish_restore(GROUP, &base(other));
        assert!(matches!(refused, Err(LogError::OtherEntries(GROUP))), "{other:?}: {refused:?}");
        assert!(runner.group_status(GROUP).unwrap().needs_rows, "there is no copy yet");
    }
    for same in [&[1][..], &[1, 2], &[1, 2, 2]] {
        runner.begin_restore(GROUP).unwrap();
        runner.finish_restore(GROUP, &base(same)).unwrap();
        let status = runner.group_status(GROUP).unwrap();
        assert_eq!(status.applied, base(same).rows_lsn());
        assert_eq!(status.last, Lsn(5 + same.len().max(2) as u64), "what was there stays");
    }
}

#[test]
fn entries_of_a_copy_on_a_full_disk_are_acknowledged_when_they_are_durable() {
    let (files, clock, transport) = (SimFiles::new(1), SimClock::new(), Arc::new(Unsent::default()));
    let mut runner =
        runner_of(&files, &clock, &InitialConfig::Joining { own: OWN }, Arc::clone(&transport) as _);
    runner.begin_restore(GROUP).unwrap();
    files.fill(true);
    runner.finish_restore(GROUP, &base(&[1, 2])).unwrap();
    assert!(runner.full_since().is_some(), "the entries wait for space");
    files.fill(false);
    clock.advance(POLICY.soft_wait);
    runner.core.retry_full();
    assert!(runner.full_since().is_none(), "they are written, and not fsynced");
    transport.take();
    // The leader of their term probes for them here.
    let heartbeat = |commit| {
        let mut message = RaftMessage { term: 2, commit, ..RaftMessage::default() };
        message.set_msg_type(MessageType::MsgHeartbeat);
        message
    };
    let append = || {
        let mut message = RaftMessage { term: 2, log_term: 2, index: 7, commit: 5, ..RaftMessage::default() };
        message.set_msg_type(MessageType::MsgAppend);
        message
    };
    let message = |message| Message {
        group: GROUP,
        from: PeerId(2),
        to: OWN,
        body: Content::Consensus { message, payloads: Vec::new(), soft: 0 }.encode(),
    };
    let confirmed = |runner: &mut Runner<FileStore>| {
        runner.receive(&mut vec![message(heartbeat(5)), message(append())]);
        let answers = transport.take().into_iter().filter_map(|message| Content::decode(&message.body));
        answers
            .filter_map(|content| match content {
                Content::Consensus { message, .. }
                    if message.get_msg_type() == MessageType::MsgAppendResponse =>
                {
                    Some(message.index)
                }
                _ => None,
            })
            .max()
    };
    assert_eq!(confirmed(&mut runner), None, "a power loss could erase them");
    pass(&mut runner, &clock, 3);
    transport.take();
    assert_eq!(confirmed(&mut runner), Some(7));
}
