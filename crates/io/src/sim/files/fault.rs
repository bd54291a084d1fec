//! The faults of a simulated disk that a test requests.

use std::io::{Error, ErrorKind};

/// A fault of one later operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next `sync_data` or `sync_dir` fails, and the bytes or names are not saved.
    Sync,
    /// The next append writes a random part and fails.
    Append,
    /// The next append writes a random part and fails for want of space, as on a full disk.
    Full,
    /// The next read fails.
    Read,
    /// The next creation, opening, renaming or removal of a file, or truncation, fails and changes nothing.
    Name,
    /// The next append succeeds, but the disk has zeros in its place.
    Lost,
    /// The next append succeeds, but the disk has zeros in place of some of its sectors.
    Torn,
    /// The next append succeeds, but its bytes are in place of earlier ones of the file, and the disk has zeros in their
    /// own place.
    Misdirected,
    /// The next append succeeds, with one bit changed.
    Flip,
}

impl Fault {
    /// The faults that the caller learns of.
    pub const REPORTED: [Fault; 5] = [Fault::Sync, Fault::Append, Fault::Full, Fault::Read, Fault::Name];
    /// The faults of appends that succeed.
    pub const SILENT: [Fault; 4] = [Fault::Lost, Fault::Torn, Fault::Misdirected, Fault::Flip];
    pub(super) const APPENDS: [Fault; 6] =
        [Fault::Append, Fault::Full, Fault::Lost, Fault::Torn, Fault::Misdirected, Fault::Flip];

    /// The error of an operation that fails with this fault.
    pub(super) fn error(self) -> Error {
        match self {
            Fault::Full => Error::from(ErrorKind::StorageFull),
            fault => Error::other(format!("simulated failure: {fault:?}")),
        }
    }
}

/// A change to the bytes of a file while no program uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// One bit is changed.
    Flip,
    /// A sector has zeros.
    Zero,
    /// The file ends earlier.
    Truncate,
    /// Two sectors have each other's bytes.
    Swap,
}

impl Decay {
    pub const ALL: [Decay; 4] = [Decay::Flip, Decay::Zero, Decay::Truncate, Decay::Swap];
}
