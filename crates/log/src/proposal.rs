//! What is asked of groups, on its way to them.

use bytes::Bytes;

use crate::contract::{Done, LogBaseDone};
use crate::error::Refusal;
use crate::lsn::{Acks, Durability, GroupId, Lsn, Term};
use crate::member::{MemberChange, PeerId};

/// What is asked of a group.
pub enum Work {
    /// Order this entry.
    Entry(Bytes, Durability),
    /// Make everything before durable.
    Sync,
    /// Say what a linearizable read must have applied.
    Read,
    /// Change the members.
    Change(MemberChange),
}

/// One proposal.
pub struct Proposal {
    /// The group.
    pub group: GroupId,
    /// Refuse unless the group leads in this term.
    pub term: Option<Term>,
    /// What is asked.
    pub work: Work,
    /// Who is told.
    pub done: Done,
}

/// Something asked of groups that is no proposal.
pub enum Ask {
    /// Hand over leadership.
    Transfer(GroupId, PeerId),
    /// Tell proposers once so many replicas have their entries.
    Acks(GroupId, Acks),
    /// Stand for election.
    Campaign(GroupId),
    /// The nodes of these replicas do not answer.
    Silent(Vec<PeerId>),
    /// The nodes of these replicas answer again.
    Back(Vec<PeerId>),
    /// Where does the log of a copy of the rows begin?
    LogBase(GroupId, Lsn, LogBaseDone),
}

impl Ask {
    /// Tells whoever waits for an answer that there will be none.
    pub fn refuse(self, refusal: &Refusal) {
        if let Ask::LogBase(_, _, done) = self {
            done(Err(refusal.clone().into()));
        }
    }
}
