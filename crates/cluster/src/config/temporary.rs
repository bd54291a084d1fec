//! Temporary replicas: members of a shard's group that exist only while the table is resharded, and are not part of the
//! table's configured placement. A reshard that succeeds leaves them behind with the old group; one that is abandoned
//! removes them. If the table's replicas are moved meanwhile, that placement covers all of them, and none is temporary
//! after it. Decision 0044.

use log::{GroupId, PeerId};

use super::{ReplicaConfig, ServerId, ShardConfig, TableConfig};

/// A replica, or a vote, that a shard has only for a reshard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Temporary {
    /// The whole replica on this server.
    Replica(ServerId),
    /// The vote of the replica on this server, which otherwise does not vote.
    Vote(ServerId),
}

impl Temporary {
    /// The server of the replica.
    #[must_use]
    pub fn server(self) -> ServerId {
        match self {
            Temporary::Replica(server) | Temporary::Vote(server) => server,
        }
    }
}

impl ShardConfig {
    /// The servers of the permanent replicas, and whether each votes: the configuration without temporary replicas and
    /// votes.
    pub fn permanent_replicas(&self) -> impl Iterator<Item = (ServerId, bool)> {
        self.replicas.iter().filter(|replica| !self.is_temporary(Temporary::Replica(replica.server))).map(
            |replica| (replica.server, replica.voting && !self.is_temporary(Temporary::Vote(replica.server))),
        )
    }

    pub(crate) fn permanent_voters(&self) -> impl Iterator<Item = &ReplicaConfig> {
        self.replicas.iter().filter(|replica| {
            let is_temporary = self.temporary.iter().any(|temporary| temporary.server() == replica.server);
            replica.voting && !is_temporary
        })
    }

    fn is_temporary(&self, temporary: Temporary) -> bool {
        self.temporary.contains(&temporary)
    }

    /// Adds a temporary voter on `server`, for a reshard. Returns false if the server already has a voter, or a replica
    /// that is still being removed: the new one has to wait for that.
    pub(crate) fn add_temporary(&mut self, server: ServerId, new_peer: impl FnOnce() -> PeerId) -> bool {
        if self.leaving.iter().any(|replica| replica.server == server) {
            return false;
        }
        match self.replicas.iter_mut().find(|replica| replica.server == server) {
            Some(replica) if replica.voting => return false,
            Some(replica) => {
                replica.voting = true;
                self.temporary.push(Temporary::Vote(server));
            }
            None => {
                self.replicas.push(ReplicaConfig { server, peer: new_peer(), voting: true });
                self.temporary.push(Temporary::Replica(server));
            }
        }
        true
    }

    /// Removes temporary replicas and votes from `servers`, but only if `is_there` holds for each permanent voter. The
    /// leader completes a removal only when the other voters suffice. If one of those is missing, the replica could
    /// stay half removed for ever, and could not replace the missing one either.
    fn remove_temporary(
        &mut self,
        servers: impl Fn(ServerId) -> bool,
        is_there: impl Fn(&ReplicaConfig) -> bool,
    ) {
        // A temporary replica that the table cannot do without becomes permanent first.
        self.prune_temporary();
        if !self.permanent_voters().all(is_there) {
            return;
        }
        let (removed, kept) =
            self.temporary.iter().copied().partition(|temporary| servers(temporary.server()));
        self.temporary = kept;
        for temporary in removed {
            let at = self.replicas.iter().position(|replica| replica.server == temporary.server());
            match (temporary, at) {
                (Temporary::Replica(_), Some(at)) => self.leaving.push(self.replicas.remove(at)),
                // Only the catalog takes the vote back: the group counts it until the replica leaves (decision 0044).
                (Temporary::Vote(_), Some(at)) => self.replicas[at].voting = false,
                (_, None) => {}
            }
        }
    }

    /// Removes entries for temporary replicas that no longer exist. If the permanent replicas no longer include the
    /// primary as a voter, for example because a server was removed, all temporary replicas become permanent.
    pub(crate) fn prune_temporary(&mut self) {
        let replicas = &self.replicas;
        self.temporary
            .retain(|temporary| replicas.iter().any(|replica| replica.server == temporary.server()));
        let has_primary = self.permanent_replicas().any(|own| own == (self.primary, true));
        if !has_primary {
            self.temporary.clear();
        }
    }
}

impl TableConfig {
    /// Removes the temporary replicas and votes that `added` names by group and server, as far as they still are temporary.
    /// A shard keeps them while `is_there` does not hold for one of its permanent voters.
    pub(crate) fn remove_temporary(
        &mut self,
        temporary: &[(GroupId, ServerId)],
        is_there: impl Fn(GroupId, &ReplicaConfig) -> bool,
    ) {
        for shard in &mut self.shards {
            let group = shard.group;
            if temporary.iter().any(|(of, _)| *of == group) {
                shard.remove_temporary(
                    |server| temporary.contains(&(group, server)),
                    |replica| is_there(group, replica),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crate::catalog::placement::places_of;
    use crate::catalog::row::CatalogRow;
    use crate::config::fixture::{peer, server, shard, table};

    /// A shard with voters on 1 and 2 and a replica without a vote on 3; then the same with temporary voters on 3 and 4.
    fn before_and_after() -> (ShardConfig, ShardConfig) {
        let mut before = shard(3, b"", &[1, 2, 3]);
        before.replicas[2].voting = false;
        let mut after = before.clone();
        assert!(after.add_temporary(server(3), || unreachable!("the server has a replica")));
        assert!(after.add_temporary(server(4), || peer(3, 4)));
        (before, after)
    }

    #[test]
    fn temporary_replicas_are_not_part_of_the_placement() {
        let (before, mut after) = before_and_after();
        assert_eq!(after.replicas.iter().filter(|replica| replica.voting).count(), 4);
        assert_eq!(places_of(&[after.clone()]), places_of(&[before]));
        let mut again = after.clone();
        for n in 1..=4 {
            assert!(!again.add_temporary(server(n), || unreachable!("the server has a replica")), "{n}");
        }
        assert_eq!(again, after);
        let there = after.replicas.pop();
        again.replicas.pop();
        again.leaving.extend(there);
        assert!(!again.add_temporary(server(4), || unreachable!("the old replica is still being removed")));
    }

    #[test]
    fn only_temporary_replicas_are_removed() {
        let (before, after) = before_and_after();
        let without = |temporary: &[(u64, u64)]| {
            let mut config = table(vec![after.clone()]);
            let temporary: Vec<_> =
                temporary.iter().map(|(group, n)| (GroupId(*group), server(*n))).collect();
            config.remove_temporary(&temporary, |_, _| true);
            config.shards.remove(0)
        };
        let mut all = before.clone();
        all.leaving.push(after.replicas[3]);
        assert_eq!(without(&[(3, 3), (3, 4), (3, 1), (4, 2)]), all);
        assert_eq!(without(&[(3, 1), (3, 2), (4, 3), (4, 4)]), after, "no temporary replica is named");
        let one = without(&[(3, 4)]);
        assert_eq!((&one.temporary[..], one.leaving.len()), (&[Temporary::Vote(server(3))][..], 1));
    }

    #[test]
    fn temporary_replicas_stay_while_a_permanent_voter_is_missing() {
        let (_, after) = before_and_after();
        let all = [(GroupId(3), server(3)), (GroupId(3), server(4))];
        for (away, stays) in [(1, true), (2, true), (3, false), (4, false)] {
            let mut config = table(vec![after.clone()]);
            config.remove_temporary(&all, |group, replica| replica.peer != peer(group.0, away));
            assert_eq!(config.shards[0] == after, stays, "{away}");
        }
    }

    #[test]
    fn temporary_replicas_survive_a_round_trip_through_the_catalog() {
        let (before, after) = before_and_after();
        for config in [table(vec![before]), table(vec![after])] {
            let read = CatalogRow::from_object(&CatalogRow::Table(config.clone()).to_object());
            assert_eq!(read.unwrap(), CatalogRow::Table(config));
        }
    }

    #[test]
    fn temporary_replicas_become_permanent_when_no_others_are_left() {
        let (_, after) = before_and_after();
        let all = [(GroupId(3), server(3)), (GroupId(3), server(4))];
        // The servers of both permanent voters are removed; a temporary replica is the primary.
        let mut config = table(vec![after]);
        config.shards[0].replicas.drain(..2);
        config.shards[0].primary = server(4);
        let remaining = config.shards[0].replicas.clone();
        config.remove_temporary(&all, |_, _| true);
        assert_eq!((&config.shards[0].replicas, &config.shards[0].temporary[..]), (&remaining, &[][..]));
        assert_eq!(config.shards[0].leaving, []);
        // The entry of a replica that no longer exists is removed.
        let (_, mut after) = before_and_after();
        after.replicas.retain(|replica| replica.server != server(4));
        after.prune_temporary();
        assert_eq!(after.temporary, [Temporary::Vote(server(3))]);
    }
}
