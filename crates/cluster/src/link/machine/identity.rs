//! This server, as it introduces itself to others.

use io::Nanos;
use uuid::Uuid;

use crate::ServerId;
use crate::link::contract::LocalServer;
use crate::link::hello::Hello;

const PROGRAM: &str = concat!("rekindle ", env!("CARGO_PKG_VERSION"));

/// This server and its process.
pub(super) struct Identity {
    pub(super) local: LocalServer,
    /// Tells this process apart from others of the same server.
    pub(super) incarnation: u64,
    /// When this process was started, in milliseconds since 1970.
    pub(super) started_ms: u64,
    /// When this server became a member of a cluster, or was started.
    member_since: Nanos,
}

impl Identity {
    pub(super) fn new(local: LocalServer, incarnation: u64, started_ms: u64, now: Nanos) -> Identity {
        Identity { local, incarnation, started_ms, member_since: now }
    }

    pub(super) fn server(&self) -> ServerId {
        self.local.server
    }

    pub(super) fn name(&self) -> &str {
        &self.local.name
    }

    pub(super) fn cluster(&self) -> Option<Uuid> {
        self.local.cluster
    }

    pub(super) fn member_since(&self) -> Nanos {
        self.member_since
    }

    /// Whether `hello` was sent by this process itself.
    pub(super) fn is_sender_of(&self, hello: &Hello) -> bool {
        hello.server == self.local.server && hello.incarnation == self.incarnation
    }

    /// Whether this server is the chooser, which decides which connection to `other` is the link.
    pub(super) fn is_chooser(&self, other: ServerId) -> bool {
        self.local.server.0.as_bytes() < other.0.as_bytes()
    }

    /// This server is a member of `cluster` from now on.
    pub(super) fn set_cluster(&mut self, cluster: Uuid, now: Nanos) {
        self.local.cluster = Some(cluster);
        self.member_since = now;
    }

    pub(super) fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.local.name);
    }

    /// The hello of this server, without the fields that depend on the connection or on a bootstrap.
    pub(super) fn hello(&self, heartbeat_ms: u64) -> Hello {
        let local = &self.local;
        Hello {
            cluster: local.cluster,
            server: local.server,
            incarnation: self.incarnation,
            started_ms: self.started_ms,
            name: local.name.clone(),
            tags: local.tags.clone(),
            addresses: local.addresses.clone(),
            port: local.port,
            is_proxy: local.is_proxy,
            program: PROGRAM.to_owned(),
            heartbeat_ms,
            reached_at: None,
            canonical: local.canonical.clone(),
            expects: None,
            found: None,
        }
    }
}
