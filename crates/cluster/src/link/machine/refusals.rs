//! Which refused and failed connections are logged.

use std::time::Duration;

use io::ConnectionId;

use super::fault::Reason;
use super::session::Origin;
use super::{LogLevel, Machine};

/// For how many servers and hosts the logged texts are remembered.
const REFUSED_MAX: usize = 256;
/// How long after this node became a member, or was started, it expects connections of servers without a cluster:
/// within this time they find the cluster at the addresses that they dial.
const JOIN_GRACE_PERIOD: Duration = Duration::from_secs(60);

impl Machine {
    /// Logs that a server that dialed was refused, unless that text was logged.
    pub(super) fn log_refused(&mut self, id: ConnectionId, text: &str) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Origin::Accepted(from) = &session.origin else { return };
        let host = from.rsplit_once(':').map_or(from.as_str(), |(host, _)| host);
        let peer = session.server().map_or_else(|| host.to_owned(), |server| server.to_string());
        let line = format!("Refused a server at {from}: {text}");
        if self.refused.len() >= REFUSED_MAX && !self.refused.contains_key(&peer) {
            self.refused.clear();
        }
        if self.refused.entry(peer).or_default().should_log(text) {
            self.log(LogLevel::Warning, line);
        }
    }

    /// Whether dialing again soon would fail for the same reason.
    pub(super) fn is_lasting(&self, reason: Reason) -> bool {
        match reason {
            Reason::Stranger | Reason::Version | Reason::Removed | Reason::Replaced | Reason::NotAdopted => {
                true
            }
            // While this server looks for a cluster, the address may lead to another server the next time.
            Reason::Itself => self.local.cluster.is_some(),
            _ => false,
        }
    }

    /// Whether `reason` is not worth logging. A server without a cluster looks for others like it, and for a while
    /// after it has found a cluster, or was started, others are still looking.
    pub(super) fn is_expected(&self, reason: Reason) -> bool {
        let is_looking = match self.local.cluster {
            Some(_) => self.now.since(self.member_since) < JOIN_GRACE_PERIOD,
            None => self.bootstrap.is_allowed(),
        };
        reason == Reason::NoCluster && is_looking
    }
}
