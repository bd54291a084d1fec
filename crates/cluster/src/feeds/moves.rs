//! Moves subscriptions from sealed groups to the groups that continue them.

use std::collections::HashSet;
use std::sync::Arc;

use datum::KeyRange;
use log::GroupId;

use super::position::FeedPosition;
use super::streams::Streams;
use super::subscription::{FeedEnd, Segment, Subscription};
use super::successors::{Continuation, continuation};
use crate::catalog::Catalog;
use crate::config::TableConfig;

/// The next step of a subscription that has reached a seal.
enum Step {
    /// It stays: a group that it follows is not at its end yet, or its reshard is not completed.
    Stay,
    /// The catalog no longer knows the successors.
    End,
    Move(Move),
}

/// A subscription leaves sealed groups for their successors.
struct Move {
    from: Vec<GroupId>,
    to: Vec<Segment>,
    kept: Vec<Segment>,
}

/// Moves all subscriptions that can be moved. Returns how many that were.
pub(super) fn move_on(streams: &mut Streams, catalog: &Catalog) -> u64 {
    let (mut moved, mut left) = (Vec::new(), HashSet::new());
    for subscription in streams.at_seals() {
        let Some(table) = catalog.table_by_id(subscription.table) else { continue };
        match next_step(streams, &subscription, &table.config) {
            Step::Stay => {}
            Step::End => {
                subscription.close();
                subscription.subscriber.ended(FeedEnd::Gone);
            }
            Step::Move(step) => {
                left.extend(step.from.iter().map(|group| (Arc::as_ptr(&subscription), *group)));
                moved.push((subscription, step));
            }
        }
    }
    if moved.is_empty() {
        return 0;
    }
    streams.remove(|subscription, group| left.contains(&(Arc::as_ptr(subscription), group)));
    let count = moved.len() as u64;
    for (subscription, Move { from, to, mut kept }) in moved {
        let groups: Vec<GroupId> = to.iter().map(|segment| segment.group).collect();
        subscription.subscriber.moved(&from, &groups);
        kept.extend(to.iter().cloned());
        subscription.set_segments(kept);
        streams.follow_all(&subscription, to);
    }
    count
}

/// A successor may take over several groups, so a subscription moves once it has reached the ends of all of its sealed groups.
fn next_step(streams: &Streams, subscription: &Subscription, table: &TableConfig) -> Step {
    let (mut from, mut to, mut kept) = (Vec::new(), Vec::<Segment>::new(), Vec::new());
    for segment in subscription.segments() {
        match continuation(table, segment.group, &segment.range) {
            Continuation::Present => kept.push(segment),
            Continuation::Unknown => return Step::End,
            Continuation::Successors { epoch, parts } => {
                if !streams.has_reached_seal(&segment, epoch) {
                    return Step::Stay;
                }
                from.push(segment.group);
                for (group, range) in parts {
                    match to.iter_mut().find(|known| known.group == group) {
                        Some(known) => known.range = hull(&known.range, range),
                        None => to.push(Segment::new(group, range, FeedPosition::default())),
                    }
                }
            }
        }
    }
    // A successor may have no row of interest.
    to.retain(|segment| subscription.interest.within(&segment.range).is_some());
    if from.is_empty() { Step::Stay } else { Step::Move(Move { from, to, kept }) }
}

/// The range from the start of the lower to the end of the higher of two ranges that touch.
fn hull(a: &KeyRange, b: KeyRange) -> KeyRange {
    match a.end == datum::KeyBound::Unbounded || touches(&b, a) {
        true => KeyRange { start: b.start, end: a.end.clone() },
        false => KeyRange { start: a.start.clone(), end: b.end },
    }
}

/// Whether `upper` begins where `lower` ends.
fn touches(lower: &KeyRange, upper: &KeyRange) -> bool {
    match (&lower.end, &upper.start) {
        (datum::KeyBound::Excluded(end), datum::KeyBound::Included(start)) => end == start,
        _ => false,
    }
}
