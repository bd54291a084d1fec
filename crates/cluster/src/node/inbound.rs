//! Connects the links to the node. Received messages go to `routing::replica_transport`, which passes them to the log, and
//! received requests to the RPC server; requests and messages of the node go to the links ([`PeerTransport`]). When a link opens, falls
//! silent or comes back, marks the replicas of its server reachable or unreachable.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use io::Files;
use io::task::{self, Condvar, Sender};
use log::{Log, Message};
use parking_lot::Mutex;
use uuid::Uuid;

use super::wiring::Wiring;
use crate::catalog::Identity;
use crate::config::{PeerId, ServerId};
use crate::link::{AddressBook, Links, PeerInfo, Receiver};
use crate::rpc::{PeerTransport, Responder, RpcHandler, RpcServer};

impl PeerTransport for Links {
    fn send(&self, to: ServerId, messages: Vec<Message>) {
        Links::send(self, to, messages);
    }

    fn forget(&self, server: ServerId) {
        Links::forget(self, server);
    }

    fn set_heartbeat(&self, timeout: Duration) {
        Links::set_heartbeat(self, timeout);
    }

    fn set_name(&self, server: ServerId, name: &str) {
        Links::set_name(self, server, name);
    }
}

/// Receives everything that the links of a node pass on.
pub struct Inbound {
    wiring: Wiring,
    log: Arc<dyn Log>,
    requests: OnceLock<RpcServer>,
    files: Arc<dyn Files>,
    dir: PathBuf,
    joining: Option<ServerId>,
    book_writer: Sender<String>,
    cluster: Mutex<ClusterState>,
    changed: Condvar,
    removal_listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
    was_removed: AtomicBool,
}

/// The cluster as the links know it.
#[derive(Default)]
struct ClusterState {
    /// The cluster that a joining server has found or bootstrapped.
    id: Option<Uuid>,
    /// This node has bootstrapped the cluster.
    has_bootstrapped: bool,
    /// The connected servers.
    members: BTreeSet<ServerId>,
}

impl Inbound {
    /// The receiver of a node whose data directory is `dir`. `joining` is the id of a server that has never been in a
    /// cluster and is to join one.
    ///
    /// Fails if the system cannot start a thread.
    pub fn new(
        wiring: Wiring,
        log: Arc<dyn Log>,
        files: Arc<dyn Files>,
        dir: PathBuf,
        joining: Option<ServerId>,
    ) -> std::io::Result<Arc<Inbound>> {
        let (requests, cluster, changed) = (OnceLock::new(), Mutex::default(), Condvar::new());
        let book_writer = start_book_writer(files.clone(), dir.clone())?;
        let (removal_listener, was_removed) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Arc::new(Inbound {
            wiring,
            log,
            requests,
            files,
            dir,
            joining,
            book_writer,
            cluster,
            changed,
            removal_listener,
            was_removed,
        }))
    }

    /// Calls `listener` when the other servers report that this one was removed permanently. The call is on the thread of
    /// the links: it must not block, and may be repeated. Only the first listener is kept.
    pub fn on_removed(&self, listener: Box<dyn Fn() + Send + Sync>) {
        drop(self.removal_listener.set(listener));
        if self.was_removed.load(Ordering::Acquire) {
            self.removal_listener.get().iter().for_each(|listener| listener());
        }
    }

    /// Whether the other servers have reported that this one was removed permanently.
    #[must_use]
    pub fn was_removed(&self) -> bool {
        self.was_removed.load(Ordering::Acquire)
    }

    /// From now on passes requests to `requests`. Before, every request fails.
    pub fn open(&self, requests: RpcServer) {
        drop(self.requests.set(requests));
    }

    /// The cluster that a joining server has found or bootstrapped. Waits for one, `timeout` at most.
    pub fn await_cluster(&self, timeout: Duration) -> Option<Uuid> {
        let mut cluster = self.cluster.lock();
        if cluster.id.is_none() {
            self.changed.wait_for(&mut cluster, timeout);
        }
        cluster.id
    }

    /// Whether a joining server has bootstrapped its cluster: it need not ask to join.
    #[must_use]
    pub fn has_bootstrapped(&self) -> bool {
        self.cluster.lock().has_bootstrapped
    }

    /// The servers that are connected now.
    #[must_use]
    pub fn members(&self) -> Vec<ServerId> {
        self.cluster.lock().members.iter().copied().collect()
    }
}

impl RpcHandler for Inbound {
    fn handle(&self, from: ServerId, request: Bytes, respond: Responder) {
        match self.requests.get() {
            Some(requests) => requests.handle(from, request, respond),
            None => respond(Err("this server is still starting".to_owned())),
        }
    }

    fn disconnected(&self, server: ServerId) {
        self.requests.get().iter().for_each(|requests| requests.disconnected(server));
    }
}

impl Receiver for Inbound {
    fn log_messages(&self, from: ServerId, messages: Vec<Message>) {
        self.wiring.transport.receive(from, messages, &*self.log);
    }

    fn connected(&self, info: &PeerInfo) {
        self.cluster.lock().members.insert(info.server);
        self.changed.notify_all();
        self.log.peers_reachable(self.wiring.transport.replicas_on(info.server));
        self.wiring.state_changes.notify();
    }

    fn silent(&self, server: ServerId) {
        self.cluster.lock().members.remove(&server);
        self.disconnected(server);
        self.log.peers_unreachable(self.wiring.transport.replicas_on(server));
        self.wiring.state_changes.notify();
    }

    fn back(&self, server: ServerId) {
        self.cluster.lock().members.insert(server);
        self.log.peers_reachable(self.wiring.transport.replicas_on(server));
        self.wiring.state_changes.notify();
    }

    fn may_adopt(&self, cluster: Uuid, _by: &PeerInfo) -> Result<(), String> {
        let Some(server) = self.joining else {
            return Err("this server already has data and cannot join another cluster".to_owned());
        };
        let mut state = self.cluster.lock();
        match state.id {
            Some(known) if known != cluster => {
                return Err(format!("this server has begun to join another cluster ({known})"));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let identity = Identity { server, cluster, joined: Some(UNASSIGNED_PEER) };
        identity.store(&*self.files, &self.dir).map_err(|error| error.to_string())?;
        state.id = Some(cluster);
        self.changed.notify_all();
        Ok(())
    }

    fn bootstrap(&self, cluster: Uuid) -> Result<(), String> {
        let server = self.joining.ok_or("this server belongs to a cluster")?;
        let mut state = self.cluster.lock();
        if let Some(known) = state.id {
            return Err(format!("this server has begun to join another cluster ({known})"));
        }
        let identity = Identity { server, cluster, joined: None };
        identity.store(&*self.files, &self.dir).map_err(|error| error.to_string())?;
        (state.id, state.has_bootstrapped) = (Some(cluster), true);
        self.changed.notify_all();
        Ok(())
    }

    fn removed(&self) {
        tracing::error!("the other servers report that this server was removed from the cluster permanently");
        self.was_removed.store(true, Ordering::Release);
        self.removal_listener.get().iter().for_each(|listener| listener());
    }

    fn store_address_book(&self, text: &str) {
        // The thread runs until this sender is dropped, so sending cannot fail.
        drop(self.book_writer.send(text.to_owned()));
    }
}

/// The catalog replica of a server that has found its cluster and was not yet assigned one.
pub const UNASSIGNED_PEER: PeerId = PeerId(0);

/// Starts a thread that writes the address book: the links must not wait for the disk.
fn start_book_writer(files: Arc<dyn Files>, dir: PathBuf) -> std::io::Result<Sender<String>> {
    let (sender, receiver) = task::channel::<String>();
    let work = move || {
        while let Ok(mut text) = receiver.recv() {
            // Only the latest version is written.
            while let Some(later) = receiver.try_recv() {
                text = later;
            }
            if let Err(error) = AddressBook::store(&*files, &dir, &text) {
                tracing::warn!("could not write the address book to {}: {error}", dir.display());
            }
        }
    };
    task::spawn("address-book", work)?;
    Ok(sender)
}
