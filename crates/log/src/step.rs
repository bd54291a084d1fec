//! Input and output of one step of a group.

use bytes::Bytes;
use io::Random;

use crate::contract::{Done, Message};
use crate::error::ProposeError;
use crate::lsn::{GroupId, Lsn};
use crate::member::PeerId;
use crate::record::EntryKind;

/// An entry that has no position yet, with the callback of its proposer.
pub(crate) struct PendingEntry {
    pub entry: Bytes,
    pub kind: EntryKind,
    pub done: Option<Done>,
}

/// Results that are delivered once a batch is applied.
#[derive(Default)]
pub(crate) struct Answers {
    pub done: Vec<(Done, Result<Lsn, ProposeError>)>,
    /// Hard proposals among them.
    pub hard: u64,
    /// Soft proposals among them.
    pub soft: u64,
}

/// Output of steps, collected for the driver.
#[derive(Default)]
pub(crate) struct Effects {
    /// Sent once the pushed records are written.
    pub messages: Vec<Message>,
    /// Entries pushed, elections and member changes excluded.
    pub entries: u64,
    /// How many of them are hard.
    pub hard: u64,
    /// How often a local replica was elected.
    pub elected: u64,
    /// How often a local leader stepped down.
    pub deposed: u64,
    /// A pushed record that is not an entry needs an fsync soon.
    pub urgent: bool,
    /// Replicas that need a copy of the rows.
    pub snapshots_needed: Vec<(GroupId, PeerId)>,
    /// Delivered after the next batch, whatever is in it.
    pub answers: Answers,
}

/// The input and output of a group during one step.
pub(crate) struct Step<'a, S> {
    /// Receives the records.
    pub store: &'a mut S,
    /// The number of the append that records pushed now belong to.
    pub append: u64,
    /// Appends up to this number are durable.
    pub synced: u64,
    /// Randomness for election timeouts.
    pub random: &'a dyn Random,
    /// Collects the output.
    pub effects: &'a mut Effects,
}
