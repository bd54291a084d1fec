//! Proposals and requests to groups, on their way from callers of the log.

use bytes::Bytes;

use crate::contract::{Done, LogBaseDone};
use crate::error::Refusal;
use crate::lsn::{Acks, Durability, GroupId, Lsn, Term};
use crate::member::{MemberChange, PeerId};

/// The kinds of proposals.
pub enum Work {
    /// Order this entry.
    Entry(Bytes, Durability),
    /// Make everything proposed before durable.
    Sync,
    /// Report the position that a linearizable read must have applied.
    Read,
    Change(MemberChange),
}

/// Work for the replica that leads a group; the outcome goes to `done`.
pub struct Proposal {
    pub group: GroupId,
    /// Refuse the proposal unless this replica leads in this term.
    pub term: Option<Term>,
    /// The kind of the proposal.
    pub work: Work,
    /// Called with the outcome.
    pub done: Done,
}

/// A request to one or more groups that is not a proposal.
pub enum Request {
    /// Hand over leadership.
    Transfer(GroupId, PeerId),
    /// Set how many replicas must have an entry before its proposer is answered.
    SetAcks(GroupId, Acks),
    /// Stand for election.
    Campaign(GroupId),
    /// The nodes of these replicas are unreachable.
    PeersUnreachable(Vec<PeerId>),
    /// The nodes of these replicas are reachable again.
    PeersReachable(Vec<PeerId>),
    /// Report the log base of a copy of the rows.
    LogBase(GroupId, Lsn, LogBaseDone),
}

impl Request {
    /// Answers the caller, if it waits, that the request is refused.
    pub fn refuse(self, refusal: &Refusal) {
        if let Request::LogBase(_, _, done) = self {
            done(Err(refusal.clone().into()));
        }
    }
}
