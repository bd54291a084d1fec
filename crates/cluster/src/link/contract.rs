//! The options of links, and the trait that receives their events and data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use io::{Clock, Random};
use uuid::Uuid;

use super::address_book::AddressBook;
use super::log_message::Message;
use super::outbox::QueueLimits;
use crate::{RpcHandler, ServerId};

/// A linked server, as its hello describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    pub server: ServerId,
    /// Identifies this start of its process.
    pub incarnation: u64,
    pub name: String,
    pub tags: Vec<String>,
    /// The addresses where others reach it, `host:port`, best first.
    pub addresses: Vec<String>,
    /// Name and version of its program, for display.
    pub program: String,
    /// The address at the other end of this link, as it was dialed or accepted.
    pub at: String,
}

/// Takes the events and data of links. All calls come from the one thread of the links and must not block. The events
/// of one server come in the order in which they happened.
pub trait Receiver: RpcHandler {
    /// Replication messages for replicas of this node.
    fn log_messages(&self, from: ServerId, log_messages: Vec<Message>);

    /// A link has opened: requests and replication messages can be sent. A server whose link is replaced, or that was
    /// restarted (another incarnation), is first reported `silent` and then connected again.
    fn connected(&self, info: &PeerInfo);

    /// The link has ended, or nothing was received from the server for a while, or the server reports that it
    /// receives nothing from this node. Called once, until `back` or `connected`.
    fn silent(&self, server: ServerId);

    /// A silent server sends and receives again on the same link.
    fn back(&self, server: ServerId);

    /// A node without a cluster has dialed a server that belongs to one: may this node become a member of `cluster`?
    /// `Ok` promises that the node's data directory has never held data and that its new cluster is on disk. May
    /// write a small file. The text of an error is logged on both sides.
    fn may_adopt(&self, cluster: Uuid, by: &PeerInfo) -> Result<(), String>;

    /// A node without a cluster is to make `cluster`. `Ok` promises the same as for [`Receiver::may_adopt`].
    fn bootstrap(&self, cluster: Uuid) -> Result<(), String> {
        Err(format!("this server cannot make cluster {cluster}"))
    }

    /// Other servers report that this one was removed from the cluster permanently.
    fn removed(&self) {}

    /// The address book has changed: store this text, from which [`LinkOptions::address_book`] is read at the next
    /// start. May be done on another thread; only the last text counts.
    fn store_address_book(&self, text: &str);
}

/// A node's own server, as it introduces itself to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalServer {
    /// The cluster it belongs to; `None` while it looks for a cluster to join.
    pub cluster: Option<Uuid>,
    pub server: ServerId,
    pub name: String,
    pub tags: Vec<String>,
    /// The addresses where others reach it: `--canonical-address`, or the addresses it listens on. May be empty.
    pub addresses: Vec<String>,
    /// The `addresses` that were given with `--canonical-address`.
    pub canonical: Vec<String>,
    /// Its cluster port.
    pub port: u16,
    /// Whether it is a proxy: other servers do not dial it, and do not enter it into their address books.
    pub is_proxy: bool,
}

/// Whether a server that looks for a cluster may make one with other servers that belong to none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootstrapPermission {
    /// False if a name in `--join` resolves to several servers.
    pub is_allowed: bool,
    /// The addresses of `--join` that are known to be the server itself, `host:port` as given, with the address each
    /// resolves to.
    pub own_addresses: BTreeMap<String, String>,
}

/// Timeouts and intervals of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTimings {
    /// A link that receives nothing for this long ends (RethinkDB's `heartbeat_timeout_secs`).
    pub heartbeat_timeout: Duration,
    /// The longest time to open a connection.
    pub dial_timeout: Duration,
    /// The longest time for both sides to agree on a link.
    pub handshake_timeout: Duration,
    /// The wait before a server is dialed again the first time; it doubles with each failure.
    pub redial_interval_min: Duration,
    /// The longest wait before a server is dialed again.
    pub redial_interval_max: Duration,
    /// How long a server that was disconnected is dialed (`--cluster-reconnect-timeout`).
    pub reconnect_timeout: Duration,
}

impl Default for LinkTimings {
    fn default() -> LinkTimings {
        LinkTimings {
            heartbeat_timeout: Duration::from_secs(10),
            dial_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            redial_interval_min: Duration::from_millis(100),
            redial_interval_max: Duration::from_secs(3),
            reconnect_timeout: Duration::from_secs(86_400),
        }
    }
}

impl LinkTimings {
    /// How often a heartbeat is sent when there is nothing else to send.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_timeout / 16
    }

    /// Silence after which a server that sends a heartbeat every `interval` counts as silent.
    pub(super) fn silent_after(&self, interval: Duration) -> Duration {
        (self.heartbeat_timeout / 4).max(interval * 3)
    }
}

/// The options of [`crate::link::Links::new`].
pub struct LinkOptions {
    /// This node's server.
    pub local: LocalServer,
    /// Servers to reach, `host:port` (`--join`).
    pub join: Vec<String>,
    /// The servers known from earlier runs.
    pub address_book: AddressBook,
    /// Timeouts and intervals.
    pub timings: LinkTimings,
    /// Limits of the queue for each server.
    pub limits: QueueLimits,
    pub clock: Arc<dyn Clock>,
    /// Random numbers, for incarnations and for intervals that differ between nodes.
    pub random: Arc<dyn Random>,
}
