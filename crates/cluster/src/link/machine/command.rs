//! The commands that the machine takes from the users of links.

use std::time::Duration;

use bytes::Bytes;
use io::ConnectionId;
use uuid::Uuid;

use crate::link::contract::{BootstrapPermission, LinkTimings};
use crate::link::log_message::Message;
use crate::{OnResponse, ServerId};

/// A command of the users of links.
pub(in crate::link) enum Command {
    Call(Call),
    Send {
        to: ServerId,
        log_messages: Vec<Message>,
    },
    /// The response to a request that `to` sent on `link`.
    Respond {
        to: ServerId,
        link: ConnectionId,
        number: u64,
        result: Result<Bytes, String>,
    },
    Join(String),
    Forget(ServerId),
    /// Sets the name of a server, which may be this one.
    Name(ServerId, String),
    Timings(LinkTimings),
    AllowBootstrap(BootstrapPermission),
    Bootstrapped(Result<Uuid, String>),
    Close,
}

/// A request to another server.
pub(in crate::link) struct Call {
    pub(in crate::link) to: ServerId,
    pub(in crate::link) request: Bytes,
    pub(in crate::link) timeout: Duration,
    pub(in crate::link) on_response: OnResponse,
}
