//! What a group is given for one step, and what it leaves behind.

use bytes::Bytes;
use io::Random;

use crate::contract::{Done, Message};
use crate::error::ProposeError;
use crate::lsn::{GroupId, Lsn};
use crate::member::PeerId;

/// An entry that has no position yet, and who is to be told.
pub(crate) struct Waiting {
    pub entry: Bytes,
    pub kind: crate::record::EntryKind,
    pub done: Option<Done>,
}

/// Answers that can be given once a batch is applied.
#[derive(Default)]
pub(crate) struct Answers {
    pub done: Vec<(Done, Result<Lsn, ProposeError>)>,
    pub hard: u64,
    pub soft: u64,
}

/// What steps of groups leave for their owner.
#[derive(Default)]
pub(crate) struct Effects {
    /// To be sent once what was pushed is written.
    pub messages: Vec<Message>,
    /// Entries pushed that an applier will see.
    pub entries: u64,
    /// How many of them are hard.
    pub hard: u64,
    /// How often a replica here was elected, and how often one lost its office.
    pub elected: u64,
    /// See `elected`.
    pub deposed: u64,
    /// Something was pushed for which somebody waits, that is not an entry.
    pub urgent: bool,
    /// Replicas that need a copy of the rows.
    pub wanted: Vec<(GroupId, PeerId)>,
    /// To be told whatever is applied.
    pub answers: Answers,
}

/// What a group works with.
pub(crate) struct Turn<'a, S> {
    /// Where records go.
    pub store: &'a mut S,
    /// The number of the append that what is pushed now will be in.
    pub append: u64,
    /// Appends up to this number are durable.
    pub synced: u64,
    /// Election timeouts.
    pub random: &'a dyn Random,
    /// What is left behind.
    pub effects: &'a mut Effects,
}
