//! The errors of a log, grouped by the reaction of the caller.

use std::path::PathBuf;

use crate::lsn::{GroupId, Lsn};
use crate::member::PeerId;

/// An engine could not take entries, or not make them durable. The log stops.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ApplyError(pub String);

/// Why a proposal was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProposeError {
    /// The entry has not taken effect and never will.
    #[error("entry was refused: {0}")]
    Definite(#[from] Refusal),
    /// The entry may take effect, now or after a restart, or never.
    #[error("entry may or may not take effect: {0}")]
    Indeterminate(#[from] Interruption),
}

/// Why an entry never takes effect: it was not written, or another entry was committed in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The group is not open on this node.
    #[error("group {0} is not open")]
    NotOpen(GroupId),
    /// This replica does not lead the group, or not in the requested term. The caller retries at `leader`.
    #[error("this replica does not lead the group")]
    NotLeader { leader: Option<PeerId> },
    /// Too many bytes are on their way, or another membership change is. The caller may retry later.
    #[error("too many proposals are on their way already")]
    Busy,
    /// The request is invalid for the present state of the group: a change that the present members do not allow, or a
    /// copy that no log base fits.
    #[error("request is invalid for the present state of the group")]
    Invalid,
    /// Another entry was committed at the position this one was written to.
    #[error("entry was replaced by a later leader's")]
    Replaced,
    /// The entry is larger than a record can hold.
    #[error("entry of {bytes} bytes is larger than {bytes_max}")]
    TooLarge {
        /// Size of the entry.
        bytes: usize,
        /// The most a record holds.
        bytes_max: usize,
    },
    /// There is no space. Writes continue when there is space again.
    #[error("disk is full")]
    Full,
    /// The log had stopped before it took the entry.
    #[error("log has stopped")]
    Stopped,
}

/// What interrupted a log or a proposal, so that the outcome of a written entry is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interruption {
    /// An append or an fsync failed, and the contents of the disk are unknown. Carries the text of the cause.
    #[error("log could not be written: {0}")]
    Disk(String),
    /// The engine could not apply it: it takes effect at the next start.
    #[error("entry is logged but could not be applied: {0}")]
    Apply(String),
    /// The leader stepped down while the entry was on its way; the next leader may have it or not.
    #[error("its leader stepped down while it was on its way")]
    Deposed,
    /// The log was closed while the entry was on its way.
    #[error("log was closed")]
    Closed,
}

impl ProposeError {
    /// Whether the entry is certain never to take effect.
    pub fn is_definite(&self) -> bool {
        matches!(self, ProposeError::Definite(_))
    }
}

/// Why a log or a group could not be opened or closed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk, or the operating system, failed.
    #[error("log could not be read or written")]
    Io(#[from] std::io::Error),
    /// Bytes that were durable are wrong. Never repaired by cutting them off: the store must be
    /// restored from another replica or a backup.
    #[error("log segment {segment} is damaged at byte {offset}: {what}", segment = segment.display())]
    Damaged {
        /// The file.
        segment: PathBuf,
        /// Where in it.
        offset: u64,
        /// A description of the damage.
        what: String,
    },
    /// The newest segments are missing. They were durable, so this is not the result of a power loss.
    #[error(
        "log in {dir} is incomplete: it ends with segment {last}, but segment {newest} existed; the missing segments \
         have acknowledged writes: restore them, or the whole data directory",
        dir = dir.display()
    )]
    Missing {
        /// The folder.
        dir: PathBuf,
        /// The last segment that exists; zero for none.
        last: u64,
        /// The newest segment that existed.
        newest: u64,
    },
    /// The files were written by a later version of the program.
    #[error("log segment {segment} has format version {found}, newest known is {known}", segment = segment.display())]
    Version {
        /// The file.
        segment: PathBuf,
        /// The version in its header.
        found: u16,
        /// The newest version this program reads.
        known: u16,
    },
    /// Another process has the folder open.
    #[error("log in {dir} is in use by another process", dir = dir.display())]
    Locked {
        /// The folder.
        dir: PathBuf,
    },
    #[error("group {0} is already open")]
    AlreadyOpen(GroupId),
    #[error("group {0} is not open")]
    NotOpen(GroupId),
    /// The store has another replica of the group than the one to open. That replica must leave first.
    #[error("group {group} is replica {stored} here, not {requested}")]
    OtherPeer {
        group: GroupId,
        /// The replica in the store.
        stored: PeerId,
        /// The replica to open.
        requested: PeerId,
    },
    /// This replica was removed from the group, or left it; its peer id is never used again.
    #[error("replica {peer} was removed from group {group} permanently")]
    Removed {
        group: GroupId,
        /// The replica.
        peer: PeerId,
    },
    /// The group was closed permanently; its id is never used again.
    #[error("group {0} was closed permanently")]
    Tombstone(GroupId),
    /// The disk is full, and the closing record of the group may not be durable, whether or not the group is open. A group
    /// that was to be closed is closed, and its record is the first thing written when there is space; until then a power
    /// loss brings the group back as it was.
    #[error("the disk is full: the record that closes group {0} is not written yet")]
    TombstonePending(GroupId),
    /// The engine lacks entries that the log no longer holds.
    #[error("group {group} is applied up to {applied} but its log begins after {log_start}")]
    Gap {
        group: GroupId,
        /// The position of the engine.
        applied: Lsn,
        /// Entries up to here are no longer in the log.
        log_start: Lsn,
    },
    /// The entries of the log differ from those in a copy of the rows.
    #[error("the log of group {0} has other entries than the copy")]
    OtherEntries(GroupId),
    /// The rows of the replica are invalid: it cannot continue alone.
    #[error("the rows of this replica of group {0} are invalid")]
    InvalidRows(GroupId),
    /// The replica leads its group: its rows are the ones to copy.
    #[error("group {0} is led by this replica")]
    Leads(GroupId),
    /// Replay failed in the engine.
    #[error("entry could not be applied")]
    Apply(#[from] ApplyError),
    /// The consensus library refused its own state: a fault of this program.
    #[error("group {group} could not start: {cause}")]
    Consensus {
        group: GroupId,
        /// The text of the library's error.
        cause: String,
    },
    /// The log stopped after a failure, or was shut down.
    #[error("log has stopped")]
    Stopped,
}
