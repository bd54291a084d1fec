//! Which refused and failed connections are logged.

use std::collections::BTreeMap;
use std::time::Duration;

use io::Nanos;

use super::bootstrap::Bootstrap;
use super::fault::Reason;
use super::identity::Identity;
use super::output::{LogLevel, Output};
use super::session::{Origin, Session};
use crate::ServerId;
use crate::link::log_once::LogOnce;

/// For how many servers and hosts the logged texts are remembered.
const REFUSED_MAX: usize = 256;
/// How long after this node became a member, or was started, it expects connections of servers without a cluster:
/// within this time they find the cluster at the addresses that they dial.
const JOIN_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// The refusals that were logged.
#[derive(Default)]
pub(super) struct Refusals {
    /// By server or host.
    logged: BTreeMap<String, LogOnce>,
}

impl Refusals {
    /// Logs that a server that dialed was refused, unless that text was logged.
    pub(super) fn log(&mut self, session: &Session, text: &str, output: &mut Output) {
        let Origin::Accepted(from) = &session.origin else { return };
        let host = from.rsplit_once(':').map_or(from.as_str(), |(host, _)| host);
        let peer = session.server().map_or_else(|| host.to_owned(), |server| server.to_string());
        let line = format!("Refused a server at {from}: {text}");
        if self.logged.len() >= REFUSED_MAX && !self.logged.contains_key(&peer) {
            self.logged.clear();
        }
        if self.logged.entry(peer).or_default().should_log(text) {
            output.log(LogLevel::Warning, line);
        }
    }

    /// Forgets the refusals of `server`, which is linked now.
    pub(super) fn forget(&mut self, server: ServerId) {
        self.logged.remove(&server.to_string());
    }
}

/// Whether dialing again soon would fail for the same reason.
pub(super) fn is_lasting(reason: Reason, own: &Identity) -> bool {
    match reason {
        Reason::Stranger | Reason::Version | Reason::Removed | Reason::Replaced | Reason::NotAdopted => true,
        // While this server looks for a cluster, the address may lead to another server the next time.
        Reason::Itself => own.cluster().is_some(),
        _ => false,
    }
}

/// Whether `reason` is not worth logging. A server without a cluster looks for others like it, and for a while after
/// it has found a cluster, or was started, others are still looking.
pub(super) fn is_expected(reason: Reason, own: &Identity, bootstrap: &Bootstrap, now: Nanos) -> bool {
    let is_looking = match own.cluster() {
        Some(_) => now.since(own.member_since()) < JOIN_GRACE_PERIOD,
        None => bootstrap.is_allowed(),
    };
    reason == Reason::NoCluster && is_looking
}
