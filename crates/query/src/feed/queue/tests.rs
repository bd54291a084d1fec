//! Tests of the queue of a feed.

use std::sync::Arc;

use cluster::FeedPosition;
use datum::Bytes;
use io::memory::Budget;
use io::sim::Chance;

use super::*;

const GROUP: GroupId = GroupId(1);

fn queue_with(squash: Squash) -> ChangeQueue {
    let memory = QueueMemory::new(Budget::new(1 << 20), Arc::default(), Arc::default());
    ChangeQueue::new(squash, 100, memory)
}

fn queue() -> ChangeQueue {
    queue_with(Squash::WhileWaiting)
}

fn position(rows: u32) -> GroupPosition {
    GroupPosition::of(FeedPosition { rows, ..FeedPosition::default() })
}

fn change(key: &'static [u8], values: (Option<bool>, Option<bool>), rows: u32) -> Queued {
    let datum = |value: Option<bool>| value.map(Datum::Bool);
    Queued::Change(Change {
        key: (PrimaryKey(Bytes::from_static(key)), 0),
        can_be_combined: true,
        old: datum(values.0),
        new: datum(values.1),
        group: GROUP,
        position: position(rows),
        bytes: 1,
        since: task::now(),
    })
}

#[test]
fn a_feed_is_not_resumed_between_changes_that_cancelled_each_other_out() {
    let queue = queue();
    queue.push(change(b"a", (None, Some(true)), 1));
    queue.push(change(b"b", (None, Some(true)), 2));
    queue.push(change(b"a", (Some(true), None), 3));
    queue.push(Queued::Moved { from: vec![GROUP], to: vec![GroupId(2)] });
    let taken = queue.pop(None).unwrap().unwrap();
    assert!(matches!(taken.entry, Queued::Change(Change { new: Some(_), .. })));
    let settled = taken.settled.unwrap();
    assert_eq!(settled.cancelled, [(GROUP, position(3))]);
    assert_eq!(settled.moves, [(vec![GROUP], vec![GroupId(2)])]);
    assert!(queue.pop(None).unwrap().is_none());
}

#[test]
fn changes_are_counted_until_the_reader_has_seen_that_some_were_dropped() {
    let queue = queue_with(Squash::No);
    let other = GroupId(2);
    for rows in 1..=150 {
        queue.push(change(b"a", (None, Some(true)), rows));
        queue.push(change(b"b", (None, Some(true)), rows));
    }
    queue.push(Queued::Moved { from: vec![GROUP], to: vec![other] });
    let Queued::Change(moved) = change(b"c", (None, Some(true)), 7) else { unreachable!() };
    queue.push(Queued::Change(Change { group: other, ..moved }));
    let taken = queue.pop(None).unwrap().unwrap();
    assert!(matches!(taken.entry, Queued::Moved { .. }), "the groups of later positions are known first");
    let Queued::Skipped { count, mut positions } = queue.pop(None).unwrap().unwrap().entry else { panic!() };
    positions.sort_by_key(|(group, _)| *group);
    assert_eq!((count, positions), (301, vec![(GROUP, position(150)), (other, position(7))]));
    queue.push(change(b"a", (None, Some(true)), 151));
    let taken = queue.pop(None).unwrap().unwrap();
    assert!(matches!(taken.entry, Queued::Change(Change { new: Some(_), .. })));
}

#[test]
fn only_the_last_change_that_waits_can_be_resumed_after() {
    let queue = queue();
    queue.push(change(b"a", (None, Some(true)), 1));
    queue.push(change(b"a", (Some(true), None), 2));
    queue.push(change(b"b", (None, Some(true)), 3));
    queue.push(change(b"c", (None, Some(true)), 4));
    assert!(queue.pop(None).unwrap().unwrap().settled.is_none());
    // A later change of the group waits: the position after it is later, too.
    assert!(queue.pop(None).unwrap().unwrap().settled.unwrap().cancelled.is_empty());
}

#[test]
fn the_last_change_that_is_taken_can_be_resumed_after_though_later_ones_cancel_each_other_out() {
    let queue = queue();
    queue.push(change(b"a", (None, Some(true)), 1));
    queue.push(change(b"b", (None, Some(true)), 2));
    assert!(queue.pop(None).unwrap().unwrap().settled.is_none());
    queue.push(change(b"b", (Some(true), None), 3));
    let values = |taken: Option<Taken>| match taken.map(|taken| (taken.entry, taken.settled.is_some())) {
        Some((Queued::Change(change), is_settled)) => {
            (change.old.is_some(), change.new.is_some(), is_settled)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(values(queue.pop(None).unwrap()), (false, true, false));
    assert_eq!(values(queue.pop(None).unwrap()), (true, false, true));
    assert!(queue.pop(None).unwrap().is_none());
}

/// Changes are taken at random times. What is taken is a row's changes without a gap, and the last of it can be resumed after.
#[test]
fn taken_changes_follow_each_other_and_end_at_a_position() {
    let mut chance = Chance::new(7);
    for _ in 0..2000 {
        let queue = queue();
        let (mut stored, mut seen) = ([None; 3], [None; 3]);
        let mut last_is_settled = true;
        let take = |seen: &mut [Option<bool>; 3]| {
            let taken = queue.pop(None).unwrap()?;
            let Queued::Change(Change { key, old, new, .. }) = taken.entry else { panic!("a change") };
            let row = usize::from(key.0.as_bytes()[0] - b'a');
            assert_eq!(old, seen[row].map(Datum::Bool));
            seen[row] = new.map(|new| new == Datum::Bool(true));
            Some(taken.settled.is_some())
        };
        for rows in 1..30 {
            let row = chance.below(3);
            let value = [None, Some(true), Some(false)][chance.below(3)];
            if value != stored[row] {
                queue.push(change([b"a", b"b", b"c"][row], (stored[row], value), rows));
                stored[row] = value;
            }
            if chance.once_in(3) {
                last_is_settled = take(&mut seen).unwrap_or(last_is_settled);
            }
        }
        while let Some(is_settled) = take(&mut seen) {
            last_is_settled = is_settled;
        }
        assert_eq!(seen, stored);
        assert!(last_is_settled);
    }
}
