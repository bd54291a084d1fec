//! What is said in the log of connections that come to nothing, and what is not.

use std::time::Duration;

use io::ConnectionId;

use super::fault::Reason;
use super::session::Origin;
use super::{Machine, Note};

/// Of so many servers and hosts it is remembered what was said.
const REFUSED_MAX: usize = 256;
/// Within this time newcomers find a cluster that they look for where its servers are.
const NEWCOMERS_TAKE: Duration = Duration::from_secs(60);

impl Machine {
    /// Says that somebody who dialed was refused, unless that was said.
    pub(super) fn say_refused(&mut self, id: ConnectionId, text: &str) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Origin::Accepted(from) = &session.origin else { return };
        let host = from.rsplit_once(':').map_or(from.as_str(), |(host, _)| host);
        let who = session.server().map_or_else(|| host.to_owned(), |server| server.to_string());
        let line = format!("Refused a server at {from}: {text}");
        if self.refused.len() >= REFUSED_MAX && !self.refused.contains_key(&who) {
            self.refused.clear();
        }
        if self.refused.entry(who).or_default().is_news(text) {
            self.note(Note::Warning, line);
        }
    }

    /// Whether dialing again soon would be in vain.
    pub(super) fn is_for_long(&self, reason: Reason) -> bool {
        match reason {
            Reason::Stranger | Reason::Version | Reason::Removed | Reason::Replaced | Reason::NotAdopted => {
                true
            }
            // Whoever looks for others looks again.
            Reason::Itself => self.me.cluster.is_some(),
            _ => false,
        }
    }

    /// Whether it is no news that there is no link: a server without a cluster looks for others like it, and for a while
    /// after it has found a cluster, or was started, others have not.
    pub(super) fn is_expected(&self, reason: Reason) -> bool {
        let is_looking = match self.me.cluster {
            Some(_) => self.now.since(self.member_since) < NEWCOMERS_TAKE,
            None => self.founding.is_wanted(),
        };
        reason == Reason::NoCluster && is_looking
    }
}
