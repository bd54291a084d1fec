//! Groups that have ended here, and of which that is not durable yet: a power loss would bring them back.

use std::collections::{BTreeMap, BTreeSet};

use super::Runner;
use crate::lsn::GroupId;
use crate::store::Store;

/// What is still needed of groups whose last word is not durable.
#[derive(Default)]
pub(super) struct Endings(BTreeMap<GroupId, Ending>);

struct Ending {
    /// The append with the last word.
    append: u64,
    /// Everything up to here was applied and durable in the log.
    settled: u64,
}

impl Endings {
    /// Up to where the engine has the rows of each, when the log is durable up to an append.
    pub fn settled(&mut self, synced: u64) -> impl Iterator<Item = (GroupId, u64)> {
        self.forget(synced);
        self.0.iter().map(|(group, ending)| (*group, ending.settled))
    }

    /// Those whose entries may be needed again.
    pub fn groups(&mut self, synced: u64) -> BTreeSet<GroupId> {
        self.forget(synced);
        self.0.keys().copied().collect()
    }

    fn forget(&mut self, synced: u64) {
        self.0.retain(|_, ending| ending.append > synced);
    }
}

impl<S: Store> Runner<S> {
    /// A group is about to end.
    pub(super) fn note_ending(&mut self, id: GroupId) {
        let settled = self.driver.group(id).map_or(0, |group| group.settled());
        self.endings.0.insert(id, Ending { append: self.driver.next_append(), settled });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_needed_until_its_last_word_is_durable() {
        let (one, other) = (GroupId(3), GroupId(4));
        let mut endings = Endings::default();
        endings.0.insert(one, Ending { append: 7, settled: 40 });
        endings.0.insert(other, Ending { append: 8, settled: 50 });
        assert_eq!(endings.groups(6), BTreeSet::from([one, other]));
        assert_eq!(endings.settled(6).collect::<Vec<_>>(), [(one, 40), (other, 50)]);
        assert_eq!(endings.settled(7).collect::<Vec<_>>(), [(other, 50)], "its append is durable");
        assert_eq!(endings.groups(7), BTreeSet::from([other]));
        assert!(endings.groups(8).is_empty());
    }
}
