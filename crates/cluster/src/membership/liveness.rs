//! Probes group members for liveness before a change of voters.
//!
//! A leader notices a network partition late: a quiesced group sends no heartbeats, and a link counts as alive until its
//! heartbeat is overdue. A change of voters meanwhile could leave a group without a quorum on either side of the partition.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::task;
use log::{GroupId, GroupStatus, Log, PeerId};

use super::log_positions::{LogPositions, PositionLookup};
use super::next_change::{DesiredMembers, next_change, waits_for};
use crate::catalog::{CatalogClient, display_names};
use crate::config::ServerId;
use crate::routing::ReplicaTransport;

/// How long a member may take to respond to a probe. A change that fails for want of responses is tried again in the next
/// pass.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a response counts, from the sending of the probe: changes made since may have taken long.
const PROBE_LIFETIME: Duration = Duration::from_secs(1);

/// How long a group waits for the same members before the wait is logged again.
const WAITING_LOG_INTERVAL: Duration = Duration::from_secs(600);

/// The responses to the probes of one pass over all groups.
#[derive(Default)]
pub(crate) struct Probes {
    sent_at: Option<Instant>,
    /// The groups whose members were probed.
    groups: BTreeSet<GroupId>,
    positions: LogPositions,
    /// The servers that did not respond to a probe of this pass. They are not probed again.
    silent: BTreeSet<ServerId>,
}

impl Probes {
    /// Whether the responses count for a group.
    fn count(&self, group: GroupId, now: Instant) -> bool {
        // A group that became due because of a change made after the probes were sent was not probed.
        self.sent_at.is_some_and(|at| now < at + PROBE_LIFETIME) && self.groups.contains(&group)
    }

    /// Begins a new round of probes at `now`. Returns the groups to ask each server about: the `due` groups whose voters
    /// would change.
    fn begin<'a>(
        &mut self,
        due: impl Iterator<Item = (&'a DesiredMembers, GroupStatus)>,
        server_of: impl Fn(PeerId) -> Option<ServerId>,
        now: Instant,
    ) -> BTreeMap<ServerId, Vec<GroupId>> {
        let mut to_ask: BTreeMap<ServerId, Vec<GroupId>> = BTreeMap::new();
        (self.sent_at, self.groups) = (Some(now), BTreeSet::new());
        for (desired, status) in due {
            if !next_change(&status, desired).changes_votes(&status.members) {
                continue;
            }
            self.groups.insert(desired.group);
            let active = status.peers.iter().filter(|peer| peer.active);
            let servers = active.filter_map(|peer| server_of(peer.peer));
            for server in servers.filter(|server| !self.silent.contains(server)) {
                to_ask.entry(server).or_default().push(desired.group);
            }
        }
        to_ask
    }
}

/// The members that each group waits for before its voters change, as logged last, and the time of that line.
#[derive(Default)]
pub(crate) struct WaitingLog(HashMap<GroupId, (BTreeSet<PeerId>, Instant)>);

impl WaitingLog {
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.0.remove(&group);
    }

    /// Whether to log that a group waits for `silent`. The same members are not logged again within the interval, even if
    /// the group's voters change in between.
    fn is_due(&mut self, group: GroupId, silent: BTreeSet<PeerId>, now: Instant) -> bool {
        let last = self.0.get(&group);
        if silent.is_empty()
            || last.is_some_and(|(logged, at)| *logged == silent && now < *at + WAITING_LOG_INTERVAL)
        {
            return false;
        }
        self.0.insert(group, (silent, now));
        true
    }
}

/// Probes members, and logs which members a change waits for.
pub(crate) struct Liveness {
    transport: Arc<ReplicaTransport>,
    log: Arc<dyn Log>,
    catalog: Arc<CatalogClient>,
    positions: Arc<PositionLookup>,
}

impl Liveness {
    pub(crate) fn new(
        transport: Arc<ReplicaTransport>,
        log: Arc<dyn Log>,
        catalog: Arc<CatalogClient>,
        positions: Arc<PositionLookup>,
    ) -> Liveness {
        Liveness { transport, log, catalog, positions }
    }

    /// The `status` of a group, with the members marked inactive whose servers do not respond to a probe. Responses of this
    /// pass count for [`PROBE_LIFETIME`]. After that all servers are probed again, about this group and any of the `others`
    /// whose voters would change as well.
    pub(crate) fn with_probed<'a>(
        &self,
        desired: &'a DesiredMembers,
        mut status: GroupStatus,
        others: impl Iterator<Item = &'a DesiredMembers>,
        probes: &mut Probes,
    ) -> GroupStatus {
        if !probes.count(desired.group, task::now()) {
            let due: Vec<&DesiredMembers> = std::iter::once(desired).chain(others).collect();
            self.probe(&due, probes);
        }
        for peer in &mut status.peers {
            let server = self.transport.server_of(peer.peer);
            peer.active &=
                server.is_some_and(|server| probes.positions.of(desired.group, server, peer.peer).is_some());
        }
        status
    }

    /// Sends each server one probe for all of the `due` groups whose voters would change. Takes as long as the slowest
    /// response, [`PROBE_TIMEOUT`] at most.
    fn probe(&self, due: &[&DesiredMembers], probes: &mut Probes) {
        let groups: Vec<GroupId> = due.iter().map(|desired| desired.group).collect();
        let statuses = self.log.group_statuses(&groups).unwrap_or_default();
        let known = due
            .iter()
            .zip(statuses)
            .filter_map(|(desired, status)| Some((*desired, self.transport.with_connected(status?))));
        let to_ask = probes.begin(known, |peer| self.transport.server_of(peer), task::now());
        probes.positions = self.positions.of_groups(to_ask, PROBE_TIMEOUT);
        probes.silent.extend(&probes.positions.silent);
    }

    /// Logs which members a change of voters waits for, unless the same ones were logged lately.
    pub(crate) fn log_waiting(
        &self,
        desired: &DesiredMembers,
        status: &GroupStatus,
        waiting: &mut WaitingLog,
    ) {
        let silent = waits_for(status, desired);
        let catalog = self.catalog.shown();
        let name = |peer: &PeerId| display_names::replica(&catalog, *peer, self.transport.server_of(*peer));
        let names: Vec<String> = silent.iter().map(name).collect();
        if waiting.is_due(desired.group, silent, task::now()) {
            let of = display_names::group(&catalog, desired.group);
            tracing::info!("A change of the voters of {of} waits for a response from {}", names.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{LAST, desired, known, led};
    use super::*;
    use crate::config::fixture::server;

    #[test]
    fn a_probe_counts_for_a_limited_time() {
        let (now, group) = (task::now(), GroupId(3));
        assert!(!Probes::default().count(group, now), "no server was probed");
        let probes = Probes { sent_at: Some(now), groups: [group].into(), ..Probes::default() };
        assert!(probes.count(group, now + PROBE_TIMEOUT), "a response may take that long");
        assert!(!probes.count(group, now + PROBE_LIFETIME));
    }

    #[test]
    fn waiting_for_the_same_members_is_logged_once_per_interval() {
        let (mut waiting, now, group) = (WaitingLog::default(), task::now(), GroupId(3));
        let mut is_due =
            |peers: &[u64], now| waiting.is_due(group, peers.iter().map(|peer| PeerId(*peer)).collect(), now);
        assert!(is_due(&[2], now));
        assert!(!is_due(&[2], now));
        assert!(!is_due(&[], now), "another voter changes in between");
        assert!(!is_due(&[2], now), "still the same member");
        assert!(is_due(&[2, 4], now));
        assert!(is_due(&[2, 4], now + WAITING_LOG_INTERVAL));
    }

    #[test]
    fn responses_count_for_the_groups_that_were_probed() {
        // Each group has a learner, which may vote once it has the whole log. That of the second group does not have it.
        let due = [(3, LAST), (4, 17)].map(|(group, matched)| {
            let mut status = led(&[1], &[known(2, matched, true)]);
            status.members.learners = vec![PeerId(2)];
            (DesiredMembers { group: GroupId(group), ..desired(&[1, 2]) }, status)
        });
        let (mut probes, now) = (Probes::default(), task::now());
        let server_of = |peer: PeerId| Some(server(peer.0));
        let to_ask =
            probes.begin(due.iter().map(|(desired, status)| (desired, status.clone())), server_of, now);
        assert_eq!(to_ask, [(server(2), vec![GroupId(3)])].into());
        assert!(probes.count(GroupId(3), now));
        assert!(!probes.count(GroupId(4), now), "it may become due after the change of the first group");
    }
}
