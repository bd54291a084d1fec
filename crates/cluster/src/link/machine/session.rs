//! One connection, from its first byte to its last.

use io::Nanos;

use crate::ServerId;
use crate::link::frame::StreamReader;
use crate::link::hello::Hello;
use crate::link::parts::Assembly;

/// Which side has dialed.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Dialed(String),
    Accepted(String),
}

impl Origin {
    /// The address of the other side, for messages.
    pub(super) fn address(&self) -> &str {
        match self {
            Origin::Dialed(address) | Origin::Accepted(address) => address,
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionStage {
    /// The connection is not established yet.
    Dialing,
    /// The other side's hello was not received yet.
    AwaitingHello,
    /// Both hellos were received; consent or welcome is awaited.
    Agreeing,
    /// The connection is the link to this server.
    Open(ServerId),
}

pub(super) struct Session {
    pub(super) origin: Origin,
    pub(super) stage: SessionStage,
    pub(super) reader: StreamReader,
    pub(super) assembly: Assembly,
    pub(super) since: Nanos,
    // Boxed because it is large, and not used while messages are received.
    pub(super) hello: Option<Box<Hello>>,
    /// The address at which the server that was dialed was reached, as the operating system reports it.
    pub(super) reached_address: String,
}

impl Session {
    pub(super) fn new(origin: Origin, stage: SessionStage, now: Nanos) -> Session {
        Session {
            origin,
            stage,
            reader: StreamReader::default(),
            assembly: Assembly::default(),
            since: now,
            hello: None,
            reached_address: String::new(),
        }
    }

    /// The server, if this connection is its link.
    pub(super) fn linked(&self) -> Option<ServerId> {
        match self.stage {
            SessionStage::Open(server) => Some(server),
            SessionStage::Dialing | SessionStage::AwaitingHello | SessionStage::Agreeing => None,
        }
    }

    /// The server at the other end, once its hello was received.
    pub(super) fn server(&self) -> Option<ServerId> {
        self.hello.as_ref().map(|hello| hello.server)
    }
}
