//! Groups that were closed here, until that is durable: a power loss before would bring them back.

use std::collections::{BTreeMap, BTreeSet};

use crate::lsn::GroupId;

/// Groups whose closing record is not durable yet.
#[derive(Default)]
pub(super) struct RemovedGroups {
    groups: BTreeMap<GroupId, RemovedGroup>,
    /// Replicas that were removed by their group, in order, whose owner is not notified yet.
    unreported: Vec<Unreported>,
}

struct RemovedGroup {
    /// The append with the closing record.
    append: u64,
    /// The last position that was applied and durable in the log.
    settled: u64,
}

struct Unreported {
    group: GroupId,
    /// The append with the closing record.
    append: u64,
}

impl RemovedGroups {
    /// A group that is settled up to a position is about to be closed by a record in `append`.
    pub fn add(&mut self, group: GroupId, append: u64, settled: u64) {
        self.groups.insert(group, RemovedGroup { append, settled });
    }

    /// The owner of `group` is to be notified once `append` is durable.
    pub fn report_later(&mut self, group: GroupId, append: u64) {
        self.unreported.push(Unreported { group, append });
    }

    /// The groups whose owners are to be notified now, when appends up to `synced` are durable.
    pub fn take_reports(&mut self, synced: u64) -> Vec<GroupId> {
        let due = self.unreported.extract_if(.., |unreported| unreported.append <= synced);
        due.map(|unreported| unreported.group).collect()
    }

    /// The settled positions of the groups, when appends up to `synced` are durable.
    pub fn settled(&mut self, synced: u64) -> impl Iterator<Item = (GroupId, u64)> {
        self.drop_durable(synced);
        self.groups.iter().map(|(group, removed)| (*group, removed.settled))
    }

    /// The groups whose entries may be needed again, when appends up to `synced` are durable.
    pub fn groups(&mut self, synced: u64) -> BTreeSet<GroupId> {
        self.drop_durable(synced);
        self.groups.keys().copied().collect()
    }

    fn drop_durable(&mut self, synced: u64) {
        self.groups.retain(|_, removed| removed.append > synced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_group_is_kept_until_its_closing_record_is_durable() {
        let (one, other) = (GroupId(3), GroupId(4));
        let mut removed = RemovedGroups::default();
        removed.add(one, 7, 40);
        removed.add(other, 8, 50);
        assert_eq!(removed.groups(6), BTreeSet::from([one, other]));
        assert_eq!(removed.settled(6).collect::<Vec<_>>(), [(one, 40), (other, 50)]);
        assert_eq!(removed.settled(7).collect::<Vec<_>>(), [(other, 50)], "its append is durable");
        assert_eq!(removed.groups(7), BTreeSet::from([other]));
        assert!(removed.groups(8).is_empty());
    }
}
