//! The output of the machine: network commands and effects, each in the order in which they were caused.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use io::{ConnectionId, NetworkCommand};
use uuid::Uuid;

use crate::link::contract::PeerInfo;
use crate::link::frame::{self, Kind, flag};
use crate::link::log_message::Message;
use crate::link::stats::PeerStats;
use crate::{OnResponse, RpcError, ServerId};

/// An effect of a step, for the users of links.
pub(in crate::link) enum Effect {
    LogMessages(ServerId, Vec<Message>),
    Request {
        from: ServerId,
        link: ConnectionId,
        number: u64,
        request: Bytes,
    },
    Response(OnResponse, Result<Bytes, RpcError>),
    Connected(Arc<PeerInfo>, Arc<PeerStats>),
    Silent(ServerId),
    Back(ServerId),
    /// The link has ended: no requests can be sent to the server.
    Unlinked(ServerId),
    Removed,
    /// This node is to make a cluster. [`super::Command::Bootstrapped`] brings the result.
    Bootstrap(Uuid),
    StoreAddressBook(String),
    Log(LogLevel, String),
}

/// The level of a line in the node's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum LogLevel {
    Info,
    Warning,
}

/// The network commands and effects that were not taken yet.
#[derive(Default)]
pub(super) struct Output {
    network_commands: Vec<NetworkCommand>,
    effects: Vec<Effect>,
}

impl Output {
    pub(super) fn add(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn log(&mut self, level: LogLevel, text: String) {
        self.add(Effect::Log(level, text));
    }

    pub(super) fn dial(&mut self, connection: ConnectionId, address: String) {
        self.network_commands.push(NetworkCommand::Connect(connection, address));
    }

    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.network_commands.push(NetworkCommand::Close(connection));
    }

    /// Sends bytes of a link, with [`io::NetworkEvent::Drained`] once they have left if `notify_drained`.
    pub(super) fn send(&mut self, connection: ConnectionId, bytes: Vec<Bytes>, notify_drained: bool) {
        self.network_commands.push(NetworkCommand::Send { connection, bytes, notify_drained });
    }

    /// Sends a frame of the handshake or a farewell. Such frames wait in no outbox.
    pub(super) fn send_frame(&mut self, connection: ConnectionId, kind: Kind, number: u64, payload: &[u8]) {
        let mut out = BytesMut::new();
        frame::put(&mut out, kind, flag::WHOLE, number, payload);
        self.send(connection, vec![out.freeze()], false);
    }

    /// Puts all effects into `effects`, which is empty. The vector is reused.
    pub(super) fn take_effects(&mut self, effects: &mut Vec<Effect>) {
        std::mem::swap(&mut self.effects, effects);
    }

    /// Appends all network commands to `network_commands`.
    pub(super) fn take_network_commands(&mut self, network_commands: &mut Vec<NetworkCommand>) {
        network_commands.append(&mut self.network_commands);
    }
}
