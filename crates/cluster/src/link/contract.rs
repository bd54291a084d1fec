//! What links are given, and what they tell: the words shared by those who use them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use io::{Clock, Random};
use uuid::Uuid;

use super::book::Book;
use super::log_message::Message;
use super::outbox::QueueLimits;
use crate::{RpcHandler, ServerId};

/// What a server says of itself when a link opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Which server.
    pub server: ServerId,
    /// This start of its process.
    pub incarnation: u64,
    /// Its name.
    pub name: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// Where others reach it, `host:port`, best first.
    pub addresses: Vec<String>,
    /// What it runs, for people.
    pub program: String,
    /// Where this link leads, as the system or the book knows it.
    pub at: String,
}

/// What links hand over. All calls come from the one thread of the links and must not wait; what
/// happens to one server comes in the order in which it happened.
pub trait Receiver: RpcHandler {
    /// LogMessages for replicas of this node.
    fn log_messages(&self, from: ServerId, log_messages: Vec<Message>);

    /// A link has opened: requests and log_messages can be sent. A server that comes back, or was started
    /// again (another incarnation), is first `silent` and then connected once more.
    fn connected(&self, info: &PeerInfo);

    /// The link has ended, or nothing has come from the server for a while, or it says that nothing
    /// reaches it. Told once, until `back` or `connected`.
    fn silent(&self, server: ServerId);

    /// A server that was silent is heard again on the same link.
    fn back(&self, server: ServerId);

    /// Asked on a node that belongs to no cluster yet, when it meets a server that does: may this node
    /// become a part of `cluster`? Yes promises that the node's own directory has never held data and
    /// that its new cluster is on disk. May write a small file. The text of a no is told to both sides.
    fn may_adopt(&self, cluster: Uuid, by: &PeerInfo) -> Result<(), String>;

    /// Asked on a node that belongs to no cluster yet: it is to make `cluster`. Yes promises as
    /// [`Receiver::may_adopt`] does.
    fn founds(&self, cluster: Uuid) -> Result<(), String> {
        Err(format!("this server makes no cluster, not {cluster} either"))
    }

    /// The other servers say that this one was removed from the cluster for good.
    fn removed(&self) {}

    /// The address book has changed: keep this text where [`LinkOptions::book`] comes from at the next
    /// start. May be handed to another thread; only the last one counts.
    fn keep_book(&self, text: &str);
}

/// Who a node is, to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// The cluster it belongs to; `None` for one that looks for a cluster to join.
    pub cluster: Option<Uuid>,
    /// The server.
    pub server: ServerId,
    /// Its name.
    pub name: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// Where others reach it: `--canonical-address`, or what it listens on. May be empty.
    pub addresses: Vec<String>,
    /// Those of them that it was told with `--canonical-address`.
    pub canonical: Vec<String>,
    /// Its cluster port.
    pub port: u16,
    /// Whether it is a proxy: nobody dials it, and its place is not remembered.
    pub is_proxy: bool,
}

/// Whether a server that looks for a cluster may make one with others that do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MayFound {
    /// Whether it may. Not if a name that it joins is known to stand for several servers.
    pub is_allowed: bool,
    /// The places it joins that are known to be itself, `host:port` as it was told, with the address of each.
    pub own: BTreeMap<String, String>,
}

/// How patient links are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTimings {
    /// A link on which nothing arrives for so long ends (RethinkDB's `heartbeat_timeout_secs`).
    pub heartbeat_timeout: Duration,
    /// How long a connection may take to stand.
    pub dial_timeout: Duration,
    /// How long both sides may take to agree on a link.
    pub handshake_timeout: Duration,
    /// Pause before a server is dialed again, the first time; it doubles.
    pub redial_least: Duration,
    /// The longest such pause.
    pub redial_most: Duration,
    /// For how long a server that went away is dialed (`--cluster-reconnect-timeout`).
    pub reconnect_timeout: Duration,
}

impl Default for LinkTimings {
    fn default() -> LinkTimings {
        LinkTimings {
            heartbeat_timeout: Duration::from_secs(10),
            dial_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            redial_least: Duration::from_millis(100),
            redial_most: Duration::from_secs(3),
            reconnect_timeout: Duration::from_secs(86_400),
        }
    }
}

impl LinkTimings {
    /// How often the other side hears from us when there is nothing to say.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_timeout / 16
    }

    /// After how much quiet a server counts as silent, when it wants to be heard every `interval`.
    pub(super) fn silent_after(&self, interval: Duration) -> Duration {
        (self.heartbeat_timeout / 4).max(interval * 3)
    }
}

/// What links are made with.
pub struct LinkOptions {
    /// Who this node is.
    pub me: Me,
    /// Servers to reach, `host:port` (`--join`).
    pub join: Vec<String>,
    /// The servers known from before.
    pub book: Book,
    /// How patient to be.
    pub timings: LinkTimings,
    /// How much may wait for one server.
    pub limits: QueueLimits,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance: incarnations, and pauses that differ between nodes.
    pub random: Arc<dyn Random>,
}
