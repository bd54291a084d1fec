//! How far the logs of groups reach on the servers that have replicas of them. All who are connected are asked at the
//! same time, and each once about all of its groups: it takes as long as the slowest, not as long as all together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use log::{GroupId, GroupStatus, PeerId};

use crate::answer::{EndResponse, decode_ends};
use crate::most_complete::everyone;
use crate::node::Core;
use crate::request::Request;
use crate::{ReplicaConfig, ServerId, ShardConfig};

/// One request is about so many groups at most: it is answered in one turn of a log.
const GROUPS_MAX: usize = 4096;

/// What servers said of their replicas that have rows.
#[derive(Default)]
pub(crate) struct Ends {
    said: BTreeMap<GroupId, Vec<(ServerId, EndResponse)>>,
    /// Those that were asked and did not answer.
    pub(crate) silent: BTreeSet<ServerId>,
}

impl Ends {
    /// What was said of a shard's replicas by those who have them.
    pub(crate) fn of_shard(&self, shard: &ShardConfig) -> Vec<(ReplicaConfig, EndResponse)> {
        let said = |replica: &ReplicaConfig| {
            Some((*replica, self.of(shard.group, replica.server, replica.peer)?.clone()))
        };
        everyone(shard).filter_map(said).collect()
    }

    /// What a server said of that replica, if it has it.
    pub(crate) fn of(&self, group: GroupId, server: ServerId, peer: PeerId) -> Option<&EndResponse> {
        let ends = self.said.get(&group).map_or(&[][..], Vec::as_slice);
        ends.iter().find(|(by, end)| *by == server && end.own == peer).map(|(_, end)| end)
    }

    /// Keeps what a server said of those groups.
    pub(crate) fn note(&mut self, server: ServerId, groups: &[GroupId], said: Vec<Option<EndResponse>>) {
        for (group, end) in groups.iter().zip(said) {
            self.said.entry(*group).or_default().extend(end.map(|end| (server, end)));
        }
    }

    /// Forgets what was said by servers that are not as `keeps` says.
    pub(crate) fn retain(&mut self, keeps: impl Fn(ServerId) -> bool) {
        self.said.values_mut().for_each(|ends| ends.retain(|(server, _)| keeps(*server)));
    }
}

impl Core {
    /// Asks the servers that are connected of the replicas of these shards. Who does not answer within `patience`
    /// has said nothing.
    pub(crate) fn ask_ends<'a>(
        &self,
        shards: impl Iterator<Item = &'a ShardConfig>,
        patience: Duration,
    ) -> Ends {
        let mut asked: BTreeMap<ServerId, Vec<GroupId>> = BTreeMap::new();
        for shard in shards {
            for replica in everyone(shard).filter(|replica| self.is_connected(replica.server)) {
                asked.entry(replica.server).or_default().push(shard.group);
            }
        }
        self.ask_ends_of(asked, patience)
    }

    /// The same of these groups on each of those servers.
    pub(crate) fn ask_ends_of(
        &self,
        mut asked: BTreeMap<ServerId, Vec<GroupId>>,
        patience: Duration,
    ) -> Ends {
        let own = self.identity.server;
        let here = asked.remove(&own).unwrap_or_default();
        let parts: Vec<(ServerId, &[GroupId])> = asked
            .iter()
            .flat_map(|(server, groups)| groups.chunks(GROUPS_MAX).map(|some| (*server, some)))
            .collect();
        let request = |(server, groups): &(ServerId, &[GroupId])| {
            (*server, Request::Ends { groups: groups.to_vec() }.encode())
        };
        let answers = self.ask_all(parts.iter().map(request).collect(), patience);
        let mut ends = Ends::default();
        for ((server, groups), answer) in parts.into_iter().zip(answers) {
            match answer.and_then(decode_ends).filter(|ends| ends.len() == groups.len()) {
                Some(said) => ends.note(server, groups, said),
                None => drop(ends.silent.insert(server)),
            }
        }
        if !here.is_empty() {
            ends.note(own, &here, self.ends_here(&here));
        }
        ends
    }

    /// How far the log of this node's replica reaches, if it has rows.
    pub(crate) fn end_here(&self, group: GroupId) -> Option<EndResponse> {
        self.ends_here(&[group]).pop().flatten()
    }

    /// The same of all these groups.
    pub(crate) fn ends_here(&self, groups: &[GroupId]) -> Vec<Option<EndResponse>> {
        let end = |status: Option<GroupStatus>| {
            let GroupStatus { own, last_term, last, members, .. } =
                status.filter(|status| !status.needs_rows)?;
            Some(EndResponse { own, last_term, last, members })
        };
        if self.takes_no_turn() {
            return vec![None; groups.len()];
        }
        match self.log.group_statuses(groups) {
            Ok(statuses) => statuses.into_iter().map(end).collect(),
            Err(_) => vec![None; groups.len()],
        }
    }
}
