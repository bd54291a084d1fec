//! One connection, from the first byte to the last.

use io::Nanos;

use crate::ServerId;
use crate::link::frame::StreamReader;
use crate::link::hello::Hello;
use crate::link::parts::Assembly;

/// Who dialed whom.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Dialed(String),
    Accepted(String),
}

impl Origin {
    /// Where the other end is, for messages.
    pub(super) fn place(&self) -> &str {
        match self {
            Origin::Dialed(address) | Origin::Accepted(address) => address,
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not standing yet.
    Dialing,
    /// The other's hello has not come.
    Greeting,
    /// Both know each other; consent or welcome is awaited.
    Deciding,
    /// It is the link to this server.
    Open(ServerId),
}

pub(super) struct Session {
    pub(super) origin: Origin,
    pub(super) stage: Stage,
    pub(super) reader: StreamReader,
    pub(super) assembly: Assembly,
    pub(super) since: Nanos,
    // Boxed: it is long, and not looked at while messages come.
    pub(super) hello: Option<Box<Hello>>,
    /// The address at which who was dialed was reached, as the system here sees it.
    pub(super) reached: String,
}

impl Session {
    pub(super) fn new(origin: Origin, stage: Stage, now: Nanos) -> Session {
        Session {
            origin,
            stage,
            reader: StreamReader::default(),
            assembly: Assembly::default(),
            since: now,
            hello: None,
            reached: String::new(),
        }
    }

    /// The server whose link it is, if it is one.
    pub(super) fn linked(&self) -> Option<ServerId> {
        match self.stage {
            Stage::Open(server) => Some(server),
            Stage::Dialing | Stage::Greeting | Stage::Deciding => None,
        }
    }

    /// Whose connection it is, once that is known.
    pub(super) fn server(&self) -> Option<ServerId> {
        self.hello.as_ref().map(|hello| hello.server)
    }
}
