//! Which addresses are dialed, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use io::{ConnectionId, Nanos, Random};

use super::contract::LinkTimings;
use super::log_once::LogOnce;
use crate::ServerId;

/// The wait before an address is dialed again after the server there has refused the link: it is not likely to accept
/// soon.
const REFUSED_REDIAL_INTERVAL: Duration = Duration::from_secs(10);

/// All addresses that may be dialed.
#[derive(Default)]
pub(super) struct Dialer {
    targets: BTreeMap<String, Target>,
    /// Addresses of this node itself, which are not dialed.
    own: BTreeSet<String>,
    connection_next: u64,
}

struct Target {
    server: Option<ServerId>,
    /// The operator has named this address: it is dialed until a server answers, whichever server that is.
    is_join: bool,
    failures: u32,
    next_at: Nanos,
    /// When the last link to the server ended, or the address was added: the address is dialed for a limited time.
    unreachable_since: Nanos,
    dialing: Option<ConnectionId>,
    log_once: LogOnce,
}

impl Dialer {
    /// Adds an address that the operator has named.
    pub(super) fn join(&mut self, address: &str, now: Nanos) {
        self.target(address, now).is_join = true;
    }

    /// Adds an address at which `server` may be reached.
    pub(super) fn server_at(&mut self, address: &str, server: ServerId, now: Nanos) {
        if !self.own.contains(address) {
            self.target(address, now).server = Some(server);
        }
    }

    /// `address` is an address of this node itself: it is not dialed again.
    pub(super) fn add_own(&mut self, address: &str) {
        self.targets.remove(address);
        self.own.insert(address.to_owned());
    }

    /// Stops dialing `server`.
    pub(super) fn forget(&mut self, server: ServerId) {
        self.targets.retain(|_, target| target.server != Some(server));
    }

    /// The link to `server` has ended: it is dialed again after `interval`.
    pub(super) fn disconnected(&mut self, server: ServerId, now: Nanos, interval: Duration) {
        for target in self.targets.values_mut().filter(|target| target.server == Some(server)) {
            target.failures = 0;
            target.unreachable_since = now;
            target.next_at = now.after(interval);
        }
    }

    /// The addresses to dial now, each with the id of the connection to open.
    pub(super) fn due(
        &mut self,
        now: Nanos,
        timings: &LinkTimings,
        is_linked: impl Fn(ServerId) -> bool,
    ) -> Vec<(ConnectionId, String)> {
        let mut busy = self.busy();
        let mut due = Vec::new();
        for (address, target) in &mut self.targets {
            if !target.is_wanted(now, timings, &is_linked) || target.next_at > now {
                continue;
            }
            // Dial one address of a server at a time.
            if target.server.is_some_and(|server| !busy.insert(server)) {
                continue;
            }
            self.connection_next += 1;
            let id = ConnectionId::dialed(self.connection_next);
            target.dialing = Some(id);
            due.push((id, address.clone()));
        }
        due
    }

    /// Servers that are being dialed.
    fn busy(&self) -> BTreeSet<ServerId> {
        let dialing = self.targets.values().filter(|target| target.dialing.is_some());
        dialing.filter_map(|target| target.server).collect()
    }

    /// When the next address is due.
    pub(super) fn next_at(
        &self,
        now: Nanos,
        timings: &LinkTimings,
        is_linked: impl Fn(ServerId) -> bool,
    ) -> Option<Nanos> {
        // An address that waits for another dial to the same server is due when that dial has ended, which is an
        // event.
        let busy = self.busy();
        let is_free = |target: &&Target| !target.server.is_some_and(|server| busy.contains(&server));
        let wanted = self.targets.values().filter(|target| target.is_wanted(now, timings, &is_linked));
        wanted.filter(is_free).map(|target| target.next_at).min()
    }

    /// A dialed connection has failed, or ended before it became a link.
    pub(super) fn failed(
        &mut self,
        address: &str,
        was_refused: bool,
        now: Nanos,
        timings: &LinkTimings,
        random: &dyn Random,
    ) {
        let Some(target) = self.targets.get_mut(address) else { return };
        target.dialing = None;
        let interval_max = if was_refused {
            timings.redial_interval_max.max(REFUSED_REDIAL_INTERVAL)
        } else {
            timings.redial_interval_max
        };
        let interval_min = if was_refused { interval_max } else { timings.redial_interval_min };
        let interval = interval_min.saturating_mul(1 << target.failures.min(16)).min(interval_max);
        target.failures = target.failures.saturating_add(1);
        target.next_at = now.after(jittered(interval, random));
    }

    /// Whether the failure `why` at `address` is to be logged: each reason once.
    pub(super) fn should_log(&mut self, address: &str, why: &str) -> bool {
        self.targets.get_mut(address).is_some_and(|target| target.log_once.should_log(why))
    }

    /// The connection that was dialed at `address` has reached `server`.
    pub(super) fn found(&mut self, address: &str, server: ServerId) {
        if let Some(target) = self.targets.get_mut(address) {
            target.server = Some(server);
        }
    }

    /// A dialed connection has become the link, or has ended because another connection is the link.
    pub(super) fn done(&mut self, address: &str, now: Nanos, timings: &LinkTimings) {
        if let Some(target) = self.targets.get_mut(address) {
            target.dialing = None;
            target.failures = 0;
            target.log_once.clear();
            target.next_at = now.after(timings.redial_interval_min);
        }
    }

    fn target(&mut self, address: &str, now: Nanos) -> &mut Target {
        self.targets.entry(address.to_owned()).or_insert_with(|| Target {
            server: None,
            is_join: false,
            failures: 0,
            next_at: now,
            unreachable_since: now,
            dialing: None,
            log_once: LogOnce::default(),
        })
    }
}

impl Target {
    fn is_wanted(&self, now: Nanos, timings: &LinkTimings, is_linked: impl Fn(ServerId) -> bool) -> bool {
        let is_abandoned = !self.is_join && now.since(self.unreachable_since) > timings.reconnect_timeout;
        self.dialing.is_none() && !is_abandoned && !self.server.is_some_and(is_linked)
    }
}

/// Between three and five quarters of `interval`: nodes that were disconnected together do not all dial at the same
/// moment.
pub(super) fn jittered(interval: Duration, random: &dyn Random) -> Duration {
    let permille = 750 + random.next_u64() % 501;
    interval.mul_f64(permille as f64 / 1000.0)
}
