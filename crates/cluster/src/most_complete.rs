//! Whose replica of a group has most of its log: the one that the group goes on with where its majority is gone.

use std::time::Duration;

use log::{GroupId, Members};

use crate::answer::EndResponse;
use crate::node::Core;
use crate::request::Request;
use crate::{ReplicaConfig, ServerId, ShardConfig};

/// How long a replica may take to say how far its log reaches.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The same where nothing is set by force because of what it says: who is silent has said nothing.
pub(crate) const SHORT_PATIENCE: Duration = Duration::from_secs(2);

/// The replica of a group whose log reaches farthest, of those that answer and have rows.
pub(crate) struct MostComplete {
    pub(crate) replica: ReplicaConfig,
    /// The members that it knows.
    pub(crate) members: Members,
    /// How many of those who vote then answered.
    pub(crate) voters_heard: usize,
}

impl MostComplete {
    /// Of those that said so. Where several reach as far, the first that votes: it is the one that the table is to have.
    pub(crate) fn of(ends: Vec<(ReplicaConfig, EndResponse)>) -> Option<MostComplete> {
        let reach = |end: &EndResponse| (end.last_term, end.last, end.members.voters.contains(&end.own));
        let farthest = ends.iter().map(|(_, end)| reach(end)).max()?;
        let (replica, end) = ends.iter().find(|(_, end)| reach(end) == farthest)?;
        let members = end.members.clone();
        let voters_heard = ends.iter().filter(|(replica, _)| members.voters.contains(&replica.peer)).count();
        Some(MostComplete { replica: *replica, members, voters_heard })
    }

    /// Whether those who vote and answered are a majority: whatever was acknowledged is with one of them.
    pub(crate) fn majority_was_heard(&self) -> bool {
        self.voters_heard * 2 > self.members.voters.len()
    }
}

impl Core {
    /// Asks each of `replicas`, all at the same time, how far its log of a group reaches.
    pub(crate) fn most_complete<'a>(
        &self,
        group: GroupId,
        replicas: impl Iterator<Item = &'a ReplicaConfig>,
        patience: Duration,
    ) -> Option<MostComplete> {
        let (own, replicas) = (self.identity.server, replicas.collect::<Vec<_>>());
        let far = replicas.iter().map(|replica| replica.server).filter(|server| *server != own);
        let requests = far.map(|server| (server, Request::End { group }.encode())).collect();
        let mut answers = self.ask_all(requests, patience).into_iter();
        let end = |replica: &'a ReplicaConfig| {
            let end = match replica.server == own {
                true => self.end_here(group),
                false => answers.next()?.and_then(EndResponse::decode),
            };
            end.filter(|end| end.own == replica.peer).map(|end| (*replica, end))
        };
        MostComplete::of(replicas.into_iter().filter_map(end).collect())
    }

    /// How far the log of a group reaches on a server; none if that has no rows of it, or does not say.
    pub(crate) fn end_on(&self, server: ServerId, group: GroupId) -> Option<EndResponse> {
        if server == self.identity.server {
            return self.end_here(group);
        }
        self.ask(server, Request::End { group }.encode(), PATIENCE).ok().and_then(EndResponse::decode)
    }
}

/// The replicas of a shard, those on their way out too.
pub(crate) fn everyone(shard: &ShardConfig) -> impl Iterator<Item = &ReplicaConfig> {
    shard.replicas.iter().chain(&shard.leaving)
}
