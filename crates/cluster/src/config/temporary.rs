//! Replicas that a shard has only while its table is resharded: members of the group like all others, but none of those
//! that the table is to have. A reshard that succeeds leaves them behind with the old group; one that is given up removes them.
//! A move of the table's replicas meanwhile says where all of them are to be, and none is temporary after that.
//! Decision 0024.

use log::{GroupId, PeerId};

use super::{ReplicaConfig, ServerId, ShardConfig, TableConfig};

/// What a shard has for the sake of a division, and was not to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Temporary {
    /// The replica on that server.
    Replica(ServerId),
    /// The vote of the replica on that server.
    Vote(ServerId),
}

impl Temporary {
    /// Where it is.
    #[must_use]
    pub fn server(self) -> ServerId {
        match self {
            Temporary::Replica(server) | Temporary::Vote(server) => server,
        }
    }
}

impl ShardConfig {
    /// Where the replicas are to be that the table is to have, and whether they vote: without what was added.
    pub fn permanent_replicas(&self) -> impl Iterator<Item = (ServerId, bool)> {
        self.replicas.iter().filter(|replica| !self.is_temporary(Temporary::Replica(replica.server))).map(
            |replica| (replica.server, replica.voting && !self.is_temporary(Temporary::Vote(replica.server))),
        )
    }

    /// The voting replicas that the table is to have.
    pub(crate) fn permanent_voters(&self) -> impl Iterator<Item = &ReplicaConfig> {
        self.replicas.iter().filter(|replica| {
            let is_temporary = self.added.iter().any(|added| added.server() == replica.server);
            replica.voting && !is_temporary
        })
    }

    fn is_temporary(&self, added: Temporary) -> bool {
        self.added.contains(&added)
    }

    /// Gives the shard a voting replica on a server for as long as a division needs it; whether it had none. One that
    /// is on its way out there goes first.
    pub(crate) fn add_temporary(&mut self, server: ServerId, new_peer: impl FnOnce() -> PeerId) -> bool {
        if self.leaving.iter().any(|replica| replica.server == server) {
            return false;
        }
        match self.replicas.iter_mut().find(|replica| replica.server == server) {
            Some(replica) if replica.voting => return false,
            Some(replica) => {
                replica.voting = true;
                self.added.push(Temporary::Vote(server));
            }
            None => {
                self.replicas.push(ReplicaConfig { server, peer: new_peer(), voting: true });
                self.added.push(Temporary::Replica(server));
            }
        }
        true
    }

    /// Takes away again what was added on those servers and is still that, if `is_there` is so for each voter that the
    /// table is to have. Its leader lets a replica go when the others can do without: if one of them is away it may
    /// stay on its way out for ever, and could not be had in the place of that one.
    fn remove_temporary(
        &mut self,
        servers: impl Fn(ServerId) -> bool,
        is_there: impl Fn(&ReplicaConfig) -> bool,
    ) {
        // What is needed is none of what was added.
        self.prune_temporary();
        if !self.permanent_voters().all(is_there) {
            return;
        }
        let (gone, kept) = self.added.iter().copied().partition(|added| servers(added.server()));
        self.added = kept;
        for added in gone {
            let at = self.replicas.iter().position(|replica| replica.server == added.server());
            match (added, at) {
                (Temporary::Replica(_), Some(at)) => self.leaving.push(self.replicas.remove(at)),
                // The group keeps it as a voter if it is one by now, as when somebody moves the replicas.
                (Temporary::Vote(_), Some(at)) => self.replicas[at].voting = false,
                (_, None) => {}
            }
        }
    }

    /// Forgets that replicas were added which have gone otherwise. If those that the table is to have cannot
    /// do without the others any more, because a server was removed for example, all of them are the table's.
    pub(crate) fn prune_temporary(&mut self) {
        let replicas = &self.replicas;
        self.added.retain(|added| replicas.iter().any(|replica| replica.server == added.server()));
        let has_primary = self.permanent_replicas().any(|own| own == (self.primary, true));
        if !has_primary {
            self.added.clear();
        }
    }
}

impl TableConfig {
    /// Takes away what was added on those servers to the shards of those groups, as far as it is still that. Nothing
    /// from a shard whose own voters are not all there, as far as `is_there` knows.
    pub(crate) fn remove_temporary(
        &mut self,
        added: &[(GroupId, ServerId)],
        is_there: impl Fn(GroupId, &ReplicaConfig) -> bool,
    ) {
        for shard in &mut self.shards {
            let group = shard.group;
            if added.iter().any(|(of, _)| *of == group) {
                shard.remove_temporary(
                    |server| added.contains(&(group, server)),
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

    /// A shard on 1 and 2, where 3 has no vote, and what is added on 3 and 4.
    fn added() -> (ShardConfig, ShardConfig) {
        let mut before = shard(3, b"", &[1, 2, 3]);
        before.replicas[2].voting = false;
        let mut after = before.clone();
        assert!(after.add_temporary(server(3), || unreachable!("it has one")));
        assert!(after.add_temporary(server(4), || peer(3, 4)));
        (before, after)
    }

    #[test]
    fn what_is_added_is_not_where_the_table_is_to_be() {
        let (before, mut after) = added();
        assert_eq!(after.replicas.iter().filter(|replica| replica.voting).count(), 4);
        assert_eq!(places_of(&[after.clone()]), places_of(&[before]));
        let mut again = after.clone();
        for n in 1..=4 {
            assert!(!again.add_temporary(server(n), || unreachable!("it has one")), "{n}");
        }
        assert_eq!(again, after);
        let there = after.replicas.pop();
        again.replicas.pop();
        again.leaving.extend(there);
        assert!(!again.add_temporary(server(4), || unreachable!("it goes first")));
    }

    #[test]
    fn what_was_added_is_taken_away_and_nothing_else() {
        let (before, after) = added();
        let without = |added: &[(u64, u64)]| {
            let mut config = table(vec![after.clone()]);
            let added: Vec<_> = added.iter().map(|(group, n)| (GroupId(*group), server(*n))).collect();
            config.remove_temporary(&added, |_, _| true);
            config.shards.remove(0)
        };
        let mut all = before.clone();
        all.leaving.push(after.replicas[3]);
        assert_eq!(without(&[(3, 3), (3, 4), (3, 1), (4, 2)]), all);
        assert_eq!(without(&[(3, 1), (3, 2), (4, 3), (4, 4)]), after, "it was added elsewhere");
        let one = without(&[(3, 4)]);
        assert_eq!((&one.added[..], one.leaving.len()), (&[Temporary::Vote(server(3))][..], 1));
    }

    #[test]
    fn what_was_added_stays_while_one_of_the_tables_own_voters_is_away() {
        let (_, after) = added();
        let all = [(GroupId(3), server(3)), (GroupId(3), server(4))];
        for (away, stays) in [(1, true), (2, true), (3, false), (4, false)] {
            let mut config = table(vec![after.clone()]);
            config.remove_temporary(&all, |group, replica| replica.peer != peer(group.0, away));
            assert_eq!(config.shards[0] == after, stays, "{away}");
        }
    }

    #[test]
    fn the_catalog_keeps_what_was_added() {
        let (before, after) = added();
        for config in [table(vec![before]), table(vec![after])] {
            let read = CatalogRow::from_object(&CatalogRow::Table(config.clone()).to_object());
            assert_eq!(read.unwrap(), CatalogRow::Table(config));
        }
    }

    #[test]
    fn what_was_added_stays_where_nothing_else_is_left() {
        let (_, after) = added();
        let all = [(GroupId(3), server(3)), (GroupId(3), server(4))];
        // The servers of both who vote are removed, and those who are left lead.
        let mut config = table(vec![after]);
        config.shards[0].replicas.drain(..2);
        config.shards[0].primary = server(4);
        let left = config.shards[0].replicas.clone();
        config.remove_temporary(&all, |_, _| true);
        assert_eq!((&config.shards[0].replicas, &config.shards[0].added[..]), (&left, &[][..]));
        assert_eq!(config.shards[0].leaving, []);
        // What has gone meanwhile is not remembered.
        let (_, mut after) = added();
        after.replicas.retain(|replica| replica.server != server(4));
        after.prune_temporary();
        assert_eq!(after.added, [Temporary::Vote(server(3))]);
    }
}
