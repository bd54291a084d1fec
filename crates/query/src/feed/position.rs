//! How far the client of a feed has come.

use cluster::{FeedPosition, GroupId};
use datum::PrimaryKey;

/// The position in each group, and where the initial values continue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClientPosition {
    pub groups: Vec<(GroupId, FeedPosition)>,
    /// The group with the next initial value, by its place among the groups, and the last delivered key of it; `None` once all
    /// initial values are delivered.
    pub initial: Option<(usize, Option<PrimaryKey>)>,
}

impl ClientPosition {
    /// A change of `group` up to this position is delivered or dropped.
    pub fn advance(&mut self, group: GroupId, position: FeedPosition) {
        if let Some((_, known)) = self.groups.iter_mut().find(|(known, _)| *known == group) {
            *known = position;
        }
    }

    /// The feed goes on in other groups.
    pub fn move_to(&mut self, from: &[GroupId], to: &[GroupId]) {
        self.groups.retain(|(group, _)| !from.contains(group));
        self.groups.extend(to.iter().map(|group| (*group, FeedPosition::default())));
    }
}
