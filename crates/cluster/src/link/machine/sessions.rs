//! All connections.

use std::collections::BTreeMap;

use io::ConnectionId;

use super::fault::Fault;
use super::known_servers::KnownServers;
use super::schedule::Schedule;
use super::session::{Session, SessionStage};
use crate::ServerId;
use crate::link::frame::Damage;
use crate::link::hello::Hello;

/// The most connections. Further ones are closed: a cluster does not have this many servers.
const SESSIONS_MAX: usize = 4096;

/// The connections that have not ended.
#[derive(Default)]
pub(super) struct Sessions {
    by_id: BTreeMap<ConnectionId, Session>,
}

/// A connection to a server that was removed. Links order after all others.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RemovedServerSession {
    pub(super) is_link: bool,
    pub(super) id: ConnectionId,
    pub(super) server: ServerId,
}

impl Sessions {
    pub(super) fn is_full(&self) -> bool {
        self.by_id.len() >= SESSIONS_MAX
    }

    pub(super) fn insert(&mut self, id: ConnectionId, session: Session) {
        self.by_id.insert(id, session);
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Session> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Session> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Session> {
        self.by_id.remove(&id)
    }

    pub(super) fn ids(&self) -> Vec<ConnectionId> {
        self.by_id.keys().copied().collect()
    }

    /// The hello received on a connection on which consent or welcome is awaited. Other connections are damaged: their
    /// other side has sent such a frame out of turn.
    pub(super) fn agreeing(&self, id: ConnectionId) -> Result<&Hello, Fault> {
        let session = self.get(id).filter(|session| session.stage == SessionStage::Agreeing);
        session.and_then(|session| session.hello.as_deref()).ok_or_else(|| Damage::OutOfTurn.into())
    }

    /// The connections that take too long to become links, each with the reason for the log. Schedules the tick for the
    /// next ones.
    pub(super) fn expired(&self, schedule: &mut Schedule) -> Vec<(ConnectionId, &'static str)> {
        let (now, timings) = (schedule.now(), *schedule.timings());
        let mut expired = Vec::new();
        for (id, session) in &self.by_id {
            let (timeout, why) = match session.stage {
                SessionStage::Dialing => (timings.dial_timeout, "it does not answer"),
                SessionStage::AwaitingHello | SessionStage::Agreeing => {
                    (timings.handshake_timeout, "it sent no hello, or did not agree on a link in time")
                }
                SessionStage::Open(_) => continue,
            };
            let until = session.since.after(timeout);
            if until <= now {
                expired.push((*id, why));
            } else {
                schedule.tick_by(until);
            }
        }
        expired
    }

    /// The connections to servers that were removed, links last.
    pub(super) fn to_removed_servers(&self, known: &KnownServers) -> Vec<RemovedServerSession> {
        let to_removed = |(id, session): (&ConnectionId, &Session)| {
            let server = session.server().filter(|server| known.is_removed(*server))?;
            Some(RemovedServerSession { is_link: session.linked().is_some(), id: *id, server })
        };
        let mut sessions: Vec<_> = self.by_id.iter().filter_map(to_removed).collect();
        sessions.sort_unstable();
        sessions
    }
}
