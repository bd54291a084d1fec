//! Whom to dial, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use io::{ConnectionId, Nanos, Random};

use super::contract::LinkTimings;
use super::said::Said;
use crate::ServerId;

/// Pause after a server has refused the link: it will not change its mind soon.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// Every place that may be dialed.
#[derive(Default)]
pub(super) struct Dialer {
    targets: BTreeMap<String, Target>,
    /// Addresses of this node itself.
    own: BTreeSet<String>,
    connection_next: u64,
}

struct Target {
    server: Option<ServerId>,
    /// Asked for by name: dialed until it succeeds, whoever lives there.
    is_join: bool,
    failures: u32,
    next_at: Nanos,
    /// Dialed for this long without success, if it was ever reached.
    lost_at: Nanos,
    dialing: Option<ConnectionId>,
    said: Said,
}

impl Dialer {
    /// A place the operator has named.
    pub(super) fn join(&mut self, address: &str, now: Nanos) {
        self.target(address, now).is_join = true;
    }

    /// A place where `server` is said to be.
    pub(super) fn server_at(&mut self, address: &str, server: ServerId, now: Nanos) {
        if !self.own.contains(address) {
            self.target(address, now).server = Some(server);
        }
    }

    /// A place that is an address of this node itself: it is dialed no more.
    pub(super) fn is_self(&mut self, address: &str) {
        self.targets.remove(address);
        self.own.insert(address.to_owned());
    }

    /// `server` is dialed no more.
    pub(super) fn forget(&mut self, server: ServerId) {
        self.targets.retain(|_, target| target.server != Some(server));
    }

    /// `server` was linked until now: dial it soon.
    pub(super) fn lost(&mut self, server: ServerId, now: Nanos, pause: Duration) {
        for target in self.targets.values_mut().filter(|target| target.server == Some(server)) {
            target.failures = 0;
            target.lost_at = now;
            target.next_at = now.after(pause);
        }
    }

    /// The places to dial now, with the ids of the connections to be made.
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
            // One place of a server at a time.
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

    /// When the next place is due.
    pub(super) fn next_at(
        &self,
        now: Nanos,
        timings: &LinkTimings,
        is_linked: impl Fn(ServerId) -> bool,
    ) -> Option<Nanos> {
        // What waits for another dial to the same server is due once that has ended, which is heard of.
        let busy = self.busy();
        let is_free = |target: &&Target| !target.server.is_some_and(|server| busy.contains(&server));
        let wanted = self.targets.values().filter(|target| target.is_wanted(now, timings, &is_linked));
        wanted.filter(is_free).map(|target| target.next_at).min()
    }

    /// The dialed connection came to nothing.
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
        let most = if was_refused { timings.redial_most.max(REFUSED_PAUSE) } else { timings.redial_most };
        let least = if was_refused { most } else { timings.redial_least };
        let pause = least.saturating_mul(1 << target.failures.min(16)).min(most);
        target.failures = target.failures.saturating_add(1);
        target.next_at = now.after(jittered(pause, random));
    }

    /// Whether it is news that a dialed connection came to nothing for this reason.
    pub(super) fn is_news(&mut self, address: &str, why: &str) -> bool {
        self.targets.get_mut(address).is_some_and(|target| target.said.is_news(why))
    }

    /// The dialed connection found `server`.
    pub(super) fn found(&mut self, address: &str, server: ServerId) {
        if let Some(target) = self.targets.get_mut(address) {
            target.server = Some(server);
        }
    }

    /// The dialed connection has ended without blame, for another is in its place.
    pub(super) fn done(&mut self, address: &str, now: Nanos, timings: &LinkTimings) {
        if let Some(target) = self.targets.get_mut(address) {
            target.dialing = None;
            target.failures = 0;
            target.said.clear();
            target.next_at = now.after(timings.redial_least);
        }
    }

    fn target(&mut self, address: &str, now: Nanos) -> &mut Target {
        self.targets.entry(address.to_owned()).or_insert_with(|| Target {
            server: None,
            is_join: false,
            failures: 0,
            next_at: now,
            lost_at: now,
            dialing: None,
            said: Said::default(),
        })
    }
}

impl Target {
    fn is_wanted(&self, now: Nanos, timings: &LinkTimings, is_linked: impl Fn(ServerId) -> bool) -> bool {
        let is_given_up = !self.is_join && now.since(self.lost_at) > timings.reconnect_timeout;
        self.dialing.is_none() && !is_given_up && !self.server.is_some_and(is_linked)
    }
}

/// Between three and five quarters of `pause`: nodes that were cut off together do not come back in step.
pub(super) fn jittered(pause: Duration, random: &dyn Random) -> Duration {
    let permille = 750 + random.next_u64() % 501;
    pause.mul_f64(permille as f64 / 1000.0)
}
