//! How far the client of a feed has come.

use cluster::{FeedPosition, GroupId};
use datum::PrimaryKey;

/// How far the client has come in one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupPosition {
    pub feed: FeedPosition,
    /// How many elements of the next change are delivered: a change of a row that is in the sequence several times has as many
    /// elements.
    pub elements: u32,
}

/// The position in each group, and where the initial values continue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClientPosition {
    pub groups: Vec<(GroupId, GroupPosition)>,
    /// The next initial values; `None` if there are no more.
    pub initial: Option<InitialPosition>,
}

/// The place at which the initial values continue: a key in a group. The groups after that one follow.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InitialPosition {
    /// The group, by its place among the groups.
    pub group: usize,
    pub after: Option<PrimaryKey>,
    /// How many of these elements are delivered: a row can be in the sequence several times.
    pub elements: u32,
}

/// Moves of the client's position without an element.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// As [`Queued::Moved`](super::queue::Queued::Moved).
    pub(super) moves: Vec<(Vec<GroupId>, Vec<GroupId>)>,
    /// The positions after changes that have cancelled each other out. Without them a feed that is resumed would deliver the
    /// second of two such changes, but not the first.
    pub(super) cancelled: Vec<(GroupId, GroupPosition)>,
}

impl GroupPosition {
    /// The position after whole changes.
    pub fn of(feed: FeedPosition) -> GroupPosition {
        GroupPosition { feed, elements: 0 }
    }
}

impl ClientPosition {
    /// A change of `group` up to this position is delivered or dropped.
    pub fn advance(&mut self, group: GroupId, position: GroupPosition) {
        if let Some((_, known)) = self.groups.iter_mut().find(|(known, _)| *known == group) {
            *known = position;
        }
    }

    /// The changes of `group` up to `reached` are of no interest. No change was delivered in part.
    pub fn pass_by(&mut self, group: GroupId, reached: FeedPosition) {
        let known = self.groups.iter_mut().find(|(known, _)| *known == group);
        if let Some((_, known)) = known.filter(|(_, known)| known.feed.entry.lsn < reached.entry.lsn) {
            *known = GroupPosition::of(reached);
        }
    }

    /// As [`ClientPosition::advance`], of several groups.
    pub fn advance_all(&mut self, positions: Vec<(GroupId, GroupPosition)>) {
        positions.into_iter().for_each(|(group, position)| self.advance(group, position));
    }

    /// Of the next change of `group` this many elements are delivered.
    pub fn set_elements(&mut self, group: GroupId, elements: u32) {
        if let Some((_, known)) = self.groups.iter_mut().find(|(known, _)| *known == group) {
            known.elements = elements;
        }
    }

    /// Moves that follow the last entry of a queue.
    pub fn settle(&mut self, Settled { moves, cancelled }: Settled) {
        moves.iter().for_each(|(from, to)| self.move_to(from, to));
        self.advance_all(cancelled);
    }

    /// The positions as the cluster knows them.
    pub fn feeds(&self) -> impl Iterator<Item = (GroupId, FeedPosition)> {
        self.groups.iter().map(|(group, at)| (*group, at.feed))
    }

    /// The feed goes on in other groups.
    pub fn move_to(&mut self, from: &[GroupId], to: &[GroupId]) {
        self.groups.retain(|(group, _)| !from.contains(group));
        self.groups.extend(to.iter().map(|group| (*group, GroupPosition::default())));
    }
}
