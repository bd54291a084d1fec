//! The repair of one shard in an emergency repair, and the shard's configuration after it.

use log::PeerId;

use crate::config::{ReplicaConfig, ShardConfig};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShardRepair {
    /// It stays unchanged.
    Keep,
    /// The replica with most of its log becomes the only voter.
    ForceSurvivor(ReplicaConfig),
    /// An interrupted repair has forced this survivor already, and has removed these peers, which the table still
    /// lists.
    AlreadyForced(ReplicaConfig, Vec<PeerId>),
    /// No live replica has rows: it begins anew, empty.
    Erase,
}

impl ShardRepair {
    /// The same if the mode does not allow to erase shards.
    pub(super) fn without_erasing(self) -> ShardRepair {
        if self == ShardRepair::Erase { ShardRepair::Keep } else { self }
    }
}

/// Whether the shards are still as they were assessed. Shards that the repair does not change may have been moved
/// meanwhile.
pub(super) fn are_as_assessed(
    present: &[ShardConfig],
    assessed: &[ShardConfig],
    repairs: &[ShardRepair],
) -> bool {
    let is_as_assessed = |((now, then), repair): ((&ShardConfig, &ShardConfig), &ShardRepair)| {
        now == then || *repair == ShardRepair::Keep && now.group == then.group
    };
    present.len() == assessed.len() && present.iter().zip(assessed).zip(repairs).all(is_as_assessed)
}

/// Removes the lost replicas from a shard that continues with `survivor`. Temporary replicas become permanent, since no
/// others may be left.
pub(super) fn keep_survivor(
    shard: &mut ShardConfig,
    survivor: &ReplicaConfig,
    is_lost: impl Fn(&ReplicaConfig) -> bool,
) {
    shard.temporary.clear();
    shard.leaving.retain(|replica| replica.peer != survivor.peer);
    if !shard.replicas.iter().any(|replica| replica.peer == survivor.peer) {
        shard.replicas.push(*survivor);
    }
    remove_replicas(shard, survivor, is_lost);
}

/// Removes the lost replicas from a shard. If no voter is left, all remaining replicas vote; if no replica is left,
/// `survivor` stays.
pub(super) fn remove_replicas(
    shard: &mut ShardConfig,
    survivor: &ReplicaConfig,
    is_lost: impl Fn(&ReplicaConfig) -> bool,
) {
    shard.replicas.retain(|replica| !is_lost(replica));
    shard.leaving.retain(|replica| !is_lost(replica));
    if shard.replicas.is_empty() {
        shard.leaving.retain(|replica| replica.peer != survivor.peer);
        shard.replicas.push(*survivor);
    }
    if !shard.replicas.iter().any(|replica| replica.voting) {
        shard.replicas.iter_mut().for_each(|replica| replica.voting = true);
    }
    let is_primary = |replica: &ReplicaConfig| replica.server == shard.primary && replica.voting;
    if !shard.replicas.iter().any(is_primary) {
        let voter = shard.replicas.iter().find(|replica| replica.voting);
        shard.primary = voter.map_or(survivor.server, |voter| voter.server);
    }
}
