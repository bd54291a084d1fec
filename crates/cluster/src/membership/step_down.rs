//! Steps down from groups that other servers can lead while the log of this node makes no progress: the disk is full or
//! hangs, or the log has stopped. Such a server is alive and responds, but nothing that it leads can be written, and it does not
//! learn which server leads instead.
//!
//! It reports the stall to the other servers, whose groups elect another leader where they have a quorum without it. Once
//! enough of them have responded that their logs are well, this node steps down from the groups that they can lead, from
//! those of which one of them knows a later term, and from those of which no quorum says that it knows none; until its log
//! makes progress and a quorum has confirmed that it still leads. Decision 0037.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io::{Clock, Nanos};
use log::{GroupId, Log, Stall, StallCause, Term};

use crate::catalog::{CatalogClient, Handles};
use crate::config::ServerId;
use crate::notifier::Notifier;
use crate::routing::disk_stalls::Check;
use crate::routing::{DiskStalls, Leadership, ReplicaTransport};
use crate::rpc::{Peers, Request, RpcError, response};

/// How long another server may take to respond to the report of a stall.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The health of this node's log, and of those of other servers.
pub struct LogHealth {
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

impl LogHealth {
    pub(crate) fn new(handles: &Handles) -> LogHealth {
        LogHealth {
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

    /// Looks whether the log of this node gets on. To be called about twice a second; does not wait.
    pub fn check(&self) {
        let now = self.clock.now();
        let check = self.stalls.check(self.log.stall(), now);
        match check {
            Check::Well => {}
            Check::Stalled { stall, .. } => {
                self.leadership.step_down(&self.led_without_me(now));
                self.report(Some(stall.cause));
            }
            Check::Over { is_news } => {
                if is_news {
                    self.leadership.resume();
                    // Those who sleep have heard nothing of others who lead now.
                    self.log.peers_reachable(self.transport.replicas());
                }
                self.report(None);
            }
        }
        self.confirm_leaderships();
        // At the end: the log file may be on that disk.
        self.check_sync(now);
        match check {
            Check::Stalled { stall, is_news: true } => tracing::error!(
                "The log does not get on: {}. What other servers hold, too, is led by those.",
                in_words(stall.cause)
            ),
            Check::Over { is_news: true } => tracing::info!("The log gets on again."),
            _ => {}
        }
    }

    /// Looks whether an fsync hangs by itself. Others have what the log appends meanwhile, so nothing is given up.
    fn check_sync(&self, now: Nanos) {
        match self.stalls.check_sync(self.log.sync_since(), now) {
            (None, Some(_)) => tracing::error!(
                "The disk does not finish what it was told to make durable. Hard writes that need this disk wait."
            ),
            (Some(_), None) => tracing::info!("The disk has made durable what it was told to."),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Tells the others how the own log is. They say how theirs are, and the newest terms that they know of what is led here
    /// still.
    fn report(&self, cause: Option<StallCause>) {
        for server in self.catalog.connected_servers() {
            let (stalls, leadership) = (Arc::clone(&self.stalls), Arc::clone(&self.leadership));
            let answered = move |answer: Result<Bytes, RpcError>| {
                if let Some(theirs) = answer.ok().and_then(response::decode_cause) {
                    let step_down = |well: &_| leadership.step_down(&leadership.with_quorum_on(well));
                    stalls.answered(server, theirs, step_down);
                }
            };
            self.peers.send(server, Request::Stalled { cause }.encode(), REPORT_TIMEOUT, Box::new(answered));
            let led = self.leadership.led_with(server);
            if cause.is_none() || led.is_empty() {
                continue;
            }
            let (stalls, leadership) = (Arc::clone(&self.stalls), Arc::clone(&self.leadership));
            let clock = Arc::clone(&self.clock);
            let request = Request::Terms { groups: led.clone() }.encode();
            let answered = move |answer: Result<Bytes, RpcError>| {
                let there = answer.ok().and_then(|bytes| response::decode_terms(&bytes)).unwrap_or_default();
                let Verdict { confirmed, lost } = compare(&led, &there, &leadership.terms(&led));
                stalls.confirmed(server, confirmed, clock.now(), || leadership.step_down(&lost));
            };
            self.peers.send(server, request, REPORT_TIMEOUT, Box::new(answered));
        }
    }

    /// What the log says that it leads is led here again only when a majority has said so since the log gets on: another
    /// may have been elected, of whom it has not heard.
    fn confirm_leaderships(&self) {
        for (group, unconfirmed) in self.leadership.unconfirmed() {
            let leadership = Arc::clone(&self.leadership);
            let confirmed = move |answer: Result<log::Lsn, log::ProposeError>| {
                if answer.is_ok() {
                    leadership.confirm(group, unconfirmed);
                }
            };
            self.log.read_index(group, Box::new(confirmed));
        }
    }

    /// The log of `server` does not get on, or gets on again. Says how the own one is; does not wait.
    pub(crate) fn take_report(&self, server: ServerId, cause: Option<StallCause>) -> Bytes {
        let is_news = self.stalls.heard(server, cause);
        let peers = self.transport.replicas_on(server);
        match cause {
            // Those who sleep under it would not notice.
            Some(_) => self.log.peers_unreachable(peers),
            None if is_news => self.log.peers_reachable(peers),
            None => {}
        }
        if is_news {
            self.state_changes.notify();
        }
        response::encode_cause(self.stalls.doubt(self.log.stall(), self.clock.now()))
    }

    /// What keeps the log of this server from getting on.
    #[must_use]
    pub fn own_stall(&self) -> Option<Stall> {
        self.stalls.own()
    }

    /// Since when an fsync of this server has not returned, while its log goes on.
    #[must_use]
    pub fn hung_sync(&self) -> Option<Nanos> {
        self.stalls.sync()
    }

    /// Whether `server` has said lately that its log does not get on.
    #[must_use]
    pub fn is_stalled(&self, server: ServerId) -> bool {
        self.stalls.of(server)
    }

    /// The groups that a majority of others can lead, as those say, and those that no majority says it knows no later term
    /// of: whoever answers nothing, or knows nothing, may have helped to elect another.
    fn led_without_me(&self, now: Nanos) -> BTreeSet<GroupId> {
        let led = self.leadership.with_quorum_on(&self.stalls.well());
        let Some(confirmed) = self.stalls.confirmed_lately(now) else { return led };
        let own = self.own;
        let is_for = |group, server| server == own || confirmed.contains(&(group, server));
        &led | &self.leadership.without_quorum_of(is_for)
    }
}

/// What a server's answer means for groups that are led here.
#[derive(Default)]
struct Verdict {
    /// It has a replica that knows no later term.
    confirmed: Vec<GroupId>,
    /// It knows a later term: another was elected, or tried to be.
    lost: BTreeSet<GroupId>,
}

/// Compares the newest terms of groups that are known there, as far as the answer goes, with those that are known here.
fn compare(groups: &[GroupId], there: &[Term], here: &[Term]) -> Verdict {
    let mut verdict = Verdict::default();
    for ((group, there), here) in groups.iter().zip(there).zip(here) {
        match (there.0, here.0) {
            // Nothing is known.
            (0, _) | (_, 0) => {}
            (there, here) if there > here => drop(verdict.lost.insert(*group)),
            _ => verdict.confirmed.push(*group),
        }
    }
    verdict
}

/// Why a log does not get on, for people.
fn in_words(cause: StallCause) -> &'static str {
    match cause {
        StallCause::Stopped => "it has stopped",
        StallCause::Full => "the disk is full",
        StallCause::Slow => "the disk, or the storage engine, does not answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_of_a_group_confirms_nothing() {
        let groups: Vec<GroupId> = (1..=5).map(GroupId).collect();
        let compare = |there: &[u64], here: &[u64]| {
            let terms = |terms: &[u64]| terms.iter().copied().map(Term).collect::<Vec<_>>();
            let Verdict { confirmed, lost } = super::compare(&groups, &terms(there), &terms(here));
            let numbers = |groups: Vec<GroupId>| groups.iter().map(|group| group.0).collect::<Vec<_>>();
            (numbers(confirmed), numbers(lost.into_iter().collect()))
        };
        assert_eq!(compare(&[4, 5, 6, 0, 7], &[5; 5]), (vec![1, 2], vec![3, 5]));
        assert_eq!(compare(&[5, 6], &[5; 5]), (vec![1], vec![2]), "an answer that ends early");
        assert_eq!(compare(&[], &[5; 5]), (vec![], vec![]), "no answer");
        assert_eq!(compare(&[6; 5], &[0; 5]), (vec![], vec![]), "none of them is here any more");
    }
}
