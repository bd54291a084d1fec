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
use super::next_change::{Wanted, next_change, waits_for};
use crate::catalog::{CatalogClient, Handles, display_names};
use crate::config::ServerId;
use crate::routing::ReplicaTransport;

/// How long a member may take to respond to a probe. The change is tried again soon.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a response counts, from the probe on: the changes before may have taken their time.
const PROBE_LIFETIME: Duration = Duration::from_secs(1);

/// How long a group waits for the same members before that is logged again.
const WAITING_LOG_INTERVAL: Duration = Duration::from_secs(600);

/// The responses to the probes of one pass over all groups.
#[derive(Default)]
pub(crate) struct Probes {
    sent_at: Option<Instant>,
    /// The groups that were probed.
    groups: BTreeSet<GroupId>,
    positions: LogPositions,
    /// The servers that did not respond once: none is waited for a second time.
    silent: BTreeSet<ServerId>,
}

impl Probes {
    /// Whether the responses count for a group.
    fn count(&self, group: GroupId, now: Instant) -> bool {
        // A change before this one may have made it due only after the probes were sent.
        self.sent_at.is_some_and(|at| now < at + PROBE_LIFETIME) && self.groups.contains(&group)
    }

    /// Begins a new round of probes at `now`: which servers to ask about which of the groups whose voters would change.
    fn begin<'a>(
        &mut self,
        due: impl Iterator<Item = (&'a Wanted, GroupStatus)>,
        server_of: impl Fn(PeerId) -> Option<ServerId>,
        now: Instant,
    ) -> BTreeMap<ServerId, Vec<GroupId>> {
        let mut asked: BTreeMap<ServerId, Vec<GroupId>> = BTreeMap::new();
        (self.sent_at, self.groups) = (Some(now), BTreeSet::new());
        for (wanted, status) in due {
            if !next_change(&status, wanted).changes_votes(&status.members) {
                continue;
            }
            self.groups.insert(wanted.group);
            let counted = status.peers.iter().filter(|known| known.active);
            let servers = counted.filter_map(|known| server_of(known.peer));
            for server in servers.filter(|server| !self.silent.contains(server)) {
                asked.entry(server).or_default().push(wanted.group);
            }
        }
        asked
    }
}

/// The members that groups wait for before their voters change, as they were logged last, and when.
#[derive(Default)]
pub(crate) struct WaitingLog(HashMap<GroupId, (BTreeSet<PeerId>, Instant)>);

impl WaitingLog {
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.0.remove(&group);
    }

    /// Whether it is worth logging that a group waits for those members: not for the same ones again within the interval,
    /// even if other voters change in between.
    fn is_due(&mut self, group: GroupId, silent: BTreeSet<PeerId>, now: Instant) -> bool {
        let known = self.0.get(&group);
        if silent.is_empty()
            || known.is_some_and(|(said, at)| *said == silent && now < *at + WAITING_LOG_INTERVAL)
        {
            return false;
        }
        self.0.insert(group, (silent, now));
        true
    }
}

/// Probes members, and logs for which members a change waits.
pub(crate) struct Liveness {
    transport: Arc<ReplicaTransport>,
    log: Arc<dyn Log>,
    catalog: Arc<CatalogClient>,
    positions: Arc<PositionLookup>,
}

impl Liveness {
    pub(crate) fn new(handles: &Handles, positions: Arc<PositionLookup>) -> Liveness {
        Liveness {
            transport: handles.transport.clone(),
            log: handles.log.clone(),
            catalog: handles.catalog.clone(),
            positions,
        }
    }

    /// The `status` of a group, with members marked as inactive whose servers do not respond now. Earlier responses count if
    /// they are new enough; else all servers are probed again, about this group and those of the `others` whose voters would
    /// change as well.
    pub(crate) fn with_probed<'a>(
        &self,
        wanted: &'a Wanted,
        mut status: GroupStatus,
        others: impl Iterator<Item = &'a Wanted>,
        probes: &mut Probes,
    ) -> GroupStatus {
        if !probes.count(wanted.group, task::now()) {
            let due: Vec<&Wanted> = std::iter::once(wanted).chain(others).collect();
            self.probe(&due, probes);
        }
        for known in &mut status.peers {
            let server = self.transport.server_of(known.peer);
            known.active &=
                server.is_some_and(|server| probes.positions.of(wanted.group, server, known.peer).is_some());
        }
        status
    }

    /// Asks each server once about all of those groups whose voters would change. Takes as long as the slowest,
    /// [`PROBE_TIMEOUT`] at most.
    fn probe(&self, due: &[&Wanted], probes: &mut Probes) {
        let groups: Vec<GroupId> = due.iter().map(|wanted| wanted.group).collect();
        let statuses = self.log.group_statuses(&groups).unwrap_or_default();
        let known = due
            .iter()
            .zip(statuses)
            .filter_map(|(wanted, status)| Some((*wanted, self.transport.with_connected(status?))));
        let asked = probes.begin(known, |peer| self.transport.server_of(peer), task::now());
        probes.positions = self.positions.of_groups(asked, PROBE_TIMEOUT);
        probes.silent.extend(&probes.positions.silent);
    }

    /// Logs for which members a change of voters waits, when they differ from those that were logged last.
    pub(crate) fn log_waiting(&self, wanted: &Wanted, status: &GroupStatus, waiting: &mut WaitingLog) {
        let silent = waits_for(status, wanted);
        let catalog = self.catalog.shown();
        let name = |peer: &PeerId| display_names::replica(&catalog, *peer, self.transport.server_of(*peer));
        let names: Vec<String> = silent.iter().map(name).collect();
        if waiting.is_due(wanted.group, silent, task::now()) {
            let of = display_names::group(&catalog, wanted.group);
            tracing::info!("A change of the voters of {of} waits for a response of {}", names.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{LAST, known, led, wanted};
    use super::*;
    use crate::config::fixture::server;

    #[test]
    fn a_probe_counts_for_a_moment() {
        let (now, group) = (task::now(), GroupId(3));
        assert!(!Probes::default().count(group, now), "no server was probed");
        let probes = Probes { sent_at: Some(now), groups: [group].into(), ..Probes::default() };
        assert!(probes.count(group, now + PROBE_TIMEOUT), "as long as responses take");
        assert!(!probes.count(group, now + PROBE_LIFETIME));
    }

    #[test]
    fn waiting_is_logged_once_in_a_while() {
        let (mut waiting, now, group) = (WaitingLog::default(), task::now(), GroupId(3));
        let mut is_due =
            |peers: &[u64], now| waiting.is_due(group, peers.iter().map(|peer| PeerId(*peer)).collect(), now);
        assert!(is_due(&[2], now));
        assert!(!is_due(&[2], now));
        assert!(!is_due(&[], now), "another voter changes in between");
        assert!(!is_due(&[2], now), "the same one still");
        assert!(is_due(&[2, 4], now));
        assert!(is_due(&[2, 4], now + WAITING_LOG_INTERVAL));
    }

    #[test]
    fn responses_count_for_the_groups_that_were_probed() {
        // A learner of each may vote when it has everything; the second one's has not.
        let due = [(3, LAST), (4, 17)].map(|(group, matched)| {
            let mut status = led(&[1], &[known(2, matched, true)]);
            status.members.learners = vec![PeerId(2)];
            (Wanted { group: GroupId(group), ..wanted(&[1, 2]) }, status)
        });
        let (mut probes, now) = (Probes::default(), task::now());
        let server_of = |peer: PeerId| Some(server(peer.0));
        let asked = probes.begin(due.iter().map(|(wanted, status)| (wanted, status.clone())), server_of, now);
        assert_eq!(asked, [(server(2), vec![GroupId(3)])].into());
        assert!(probes.count(GroupId(3), now));
        assert!(!probes.count(GroupId(4), now), "the first group's change may make it due");
    }
}
