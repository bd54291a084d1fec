//! Steps down from groups that other servers can lead while the log of this node makes no progress: the disk is full or
//! hangs, or the log has stopped. Such a server is alive and responds, but nothing that it leads can be written, and its own
//! log does not learn of a new leader.
//!
//! This node reports the stall to the other servers. A group that has a quorum on them elects another leader. This node
//! steps down from a group when
//!
//! - servers that report a healthy log hold a quorum of the group,
//! - one server knows a later term of the group, or
//! - fewer servers than a quorum, this one included, have confirmed lately that this node's term is the newest they know.
//!
//! It leads a group again when its log makes progress and a quorum has confirmed its leadership. Decision 0037.
//!
//! # Why servers are asked for terms
//!
//! An earlier version asked for the leader. The leader may be unknown: it may have lost its quorum since, or be
//! unreachable. Its voters know its term. They are a quorum without this node, so every quorum with this node has one of
//! them. A voter may have forgotten the term: its replica was removed, or its log was not loaded since a start on a full
//! disk. Such a voter says nothing, so silence counts against the leader. A candidate that loses raises the term too, so
//! this node may step down from a group that no other server leads, as if its log had seen the term.
//!
//! # Why a quorum confirms each leadership after a stall
//!
//! Messages of another leader may be on their way. A confirmation is needed even if all servers that could lead have
//! disappeared: without it this node might answer reads from rows that others have overwritten.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io::{Clock, Nanos};
use log::{GroupId, Log, Stall, StallCause, Term};

use crate::catalog::{CatalogClient, Handles};
use crate::config::ServerId;
use crate::events::Notifier;
use crate::routing::disk_stalls::Check;
use crate::routing::{DiskStalls, Leadership, ReplicaTransport};
use crate::rpc::{Peers, Request, RpcError, response};

/// How long another server may take to respond to the report of a stall.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The health of this node's log, and of the logs of other servers.
pub struct StallMonitor {
    own: ServerId,
    peers: Arc<Peers>,
    transport: Arc<ReplicaTransport>,
    leadership: Arc<Leadership>,
    log: Arc<dyn Log>,
    catalog: Arc<CatalogClient>,
    stalls: Arc<DiskStalls>,
    clock: Arc<dyn Clock>,
    state_changes: Arc<Notifier>,
}

impl StallMonitor {
    pub(crate) fn new(handles: &Handles) -> StallMonitor {
        StallMonitor {
            own: handles.own,
            peers: handles.peers.clone(),
            transport: handles.transport.clone(),
            leadership: handles.leadership.clone(),
            log: handles.log.clone(),
            catalog: handles.catalog.clone(),
            stalls: handles.stalls.clone(),
            clock: handles.clock.clone(),
            state_changes: handles.state_changes.clone(),
        }
    }

    /// Checks whether the log of this node makes progress. Call it about twice a second. Does not wait.
    pub fn check(&self) {
        let now = self.clock.now();
        let check = self.stalls.check(self.log.stall(), now);
        match check {
            Check::Healthy => {}
            Check::Stalled { stall, .. } => {
                self.leadership.step_down(&self.led_without_me(now));
                self.report(Some(stall.cause));
            }
            Check::Recovered { is_new } => {
                if is_new {
                    self.leadership.resume();
                    // Quiesced groups have received no message of leaders that were elected meanwhile.
                    self.log.peers_reachable(self.transport.replicas());
                }
                self.report(None);
            }
        }
        self.confirm_leaderships();
        // Log lines come last: the log file may be on the disk that hangs.
        self.check_sync(now);
        match check {
            Check::Stalled { stall, is_new: true } => tracing::error!(
                "the log makes no progress: {}; other servers take over the leadership of shards that they hold too",
                cause_text(stall.cause)
            ),
            Check::Recovered { is_new: true } => tracing::info!("the log makes progress again"),
            _ => {}
        }
    }

    /// Checks whether an fsync hangs while the log makes progress. Other replicas receive the entries appended meanwhile, so
    /// this node does not step down.
    fn check_sync(&self, now: Nanos) {
        match self.stalls.check_sync(self.log.sync_since(), now) {
            (None, Some(_)) => tracing::error!(
                "an fsync does not return; writes with hard durability that need this disk wait for it"
            ),
            (Some(_), None) => tracing::info!("the fsync that did not return has completed"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Reports the health of the own log to the connected servers. They respond with the health of theirs. While the log
    /// makes no progress, also asks them for the newest terms that they know of the groups that are still led here.
    fn report(&self, cause: Option<StallCause>) {
        for server in self.catalog.connected_servers() {
            let (stalls, leadership) = (Arc::clone(&self.stalls), Arc::clone(&self.leadership));
            let on_response = move |result: Result<Bytes, RpcError>| {
                if let Some(theirs) = result.ok().and_then(response::decode_cause) {
                    let step_down = |well: &_| leadership.step_down(&leadership.with_quorum_on(well));
                    stalls.take_response(server, theirs, step_down);
                }
            };
            let request = Request::Stalled { cause }.encode();
            self.peers.send(server, request, REPORT_TIMEOUT, Box::new(on_response));
            let led = self.leadership.led_groups_with_voters_on(server);
            if cause.is_none() || led.is_empty() {
                continue;
            }
            let (stalls, leadership) = (Arc::clone(&self.stalls), Arc::clone(&self.leadership));
            let clock = Arc::clone(&self.clock);
            let request = Request::Terms { groups: led.clone() }.encode();
            let on_response = move |result: Result<Bytes, RpcError>| {
                let there = result.ok().and_then(|bytes| response::decode_terms(&bytes)).unwrap_or_default();
                let Verdict { confirmed, lost } = compare(&led, &there, &leadership.terms(&led));
                stalls.take_confirmation(server, confirmed, clock.now(), || leadership.step_down(&lost));
            };
            self.peers.send(server, request, REPORT_TIMEOUT, Box::new(on_response));
        }
    }

    /// Asks a quorum of each group that the log claims to lead to confirm that, after the log has made progress again:
    /// another leader may have been elected without the log having learned of it. The group is led here again only then.
    fn confirm_leaderships(&self) {
        for (group, unconfirmed) in self.leadership.unconfirmed() {
            let leadership = Arc::clone(&self.leadership);
            let confirmed = move |result: Result<log::Lsn, log::ProposeError>| {
                if result.is_ok() {
                    leadership.confirm(group, unconfirmed);
                }
            };
            self.log.read_index(group, Box::new(confirmed));
        }
    }

    /// Takes the report of `server` that its log makes no progress, or makes progress again. Responds with the health of
    /// the own log. Does not wait.
    pub(crate) fn take_report(&self, server: ServerId, cause: Option<StallCause>) -> Bytes {
        let is_new = self.stalls.take_report(server, cause);
        let peers = self.transport.replicas_on(server);
        match cause {
            // Quiesced groups that the server leads would not notice by themselves.
            Some(_) => self.log.peers_unreachable(peers),
            None if is_new => self.log.peers_reachable(peers),
            None => {}
        }
        if is_new {
            self.state_changes.notify();
        }
        response::encode_cause(self.stalls.stall_or_doubt(self.log.stall(), self.clock.now()))
    }

    /// Why the log of this server makes no progress; `None` while it does.
    #[must_use]
    pub fn own_stall(&self) -> Option<Stall> {
        self.stalls.own()
    }

    /// Since when an fsync of this server has not returned, while its log makes progress.
    #[must_use]
    pub fn hung_sync(&self) -> Option<Nanos> {
        self.stalls.sync()
    }

    /// Whether `server` has reported lately that its log makes no progress.
    #[must_use]
    pub fn is_stalled(&self, server: ServerId) -> bool {
        self.stalls.has_reported(server)
    }

    /// The groups to step down from: the ones that a quorum of servers with healthy logs can lead without this one, and the
    /// ones in which no quorum confirms that it knows no later term. A server that does not respond, or does not know the
    /// group, may have voted for another leader.
    fn led_without_me(&self, now: Nanos) -> BTreeSet<GroupId> {
        let led = self.leadership.with_quorum_on(&self.stalls.healthy_servers());
        let Some(confirmed) = self.stalls.recently_confirmed(now) else { return led };
        let own = self.own;
        let is_for = |group, server| server == own || confirmed.contains(&(group, server));
        &led | &self.leadership.without_quorum_of(is_for)
    }
}

/// The meaning of a server's response for groups that are led here.
#[derive(Default)]
struct Verdict {
    /// The server has a replica that knows no later term.
    confirmed: Vec<GroupId>,
    /// The server knows a later term: another leader was elected, or a replica stood for election.
    lost: BTreeSet<GroupId>,
}

/// Compares the newest terms of `groups` that a server knows (`there`, which may be shorter) with those known here.
fn compare(groups: &[GroupId], there: &[Term], here: &[Term]) -> Verdict {
    let mut verdict = Verdict::default();
    for ((group, there), here) in groups.iter().zip(there).zip(here) {
        match (there.0, here.0) {
            // One of the two has no replica of the group.
            (0, _) | (_, 0) => {}
            (there, here) if there > here => drop(verdict.lost.insert(*group)),
            _ => verdict.confirmed.push(*group),
        }
    }
    verdict
}

/// Why a log makes no progress, for the log line.
fn cause_text(cause: StallCause) -> &'static str {
    match cause {
        StallCause::Stopped => "it has stopped",
        StallCause::Full => "the disk is full",
        StallCause::Slow => "the disk or the storage engine does not respond",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_a_known_term_is_neither_confirmed_nor_lost() {
        let groups: Vec<GroupId> = (1..=5).map(GroupId).collect();
        let compare = |there: &[u64], here: &[u64]| {
            let terms = |terms: &[u64]| terms.iter().copied().map(Term).collect::<Vec<_>>();
            let Verdict { confirmed, lost } = super::compare(&groups, &terms(there), &terms(here));
            let numbers = |groups: Vec<GroupId>| groups.iter().map(|group| group.0).collect::<Vec<_>>();
            (numbers(confirmed), numbers(lost.into_iter().collect()))
        };
        assert_eq!(compare(&[4, 5, 6, 0, 7], &[5; 5]), (vec![1, 2], vec![3, 5]));
        assert_eq!(compare(&[5, 6], &[5; 5]), (vec![1], vec![2]), "a response that ends early");
        assert_eq!(compare(&[], &[5; 5]), (vec![], vec![]), "no response");
        assert_eq!(compare(&[6; 5], &[0; 5]), (vec![], vec![]), "this node has no replicas of them any more");
    }
}
