//! Joins the links of a node and the node itself: whatever arrives goes to the log, to the RPC server, or changes which replicas
//! can be reached.

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

/// What the links of a node hand to it.
pub struct Inbound {
    wiring: Wiring,
    log: Arc<dyn Log>,
    requests: OnceLock<RpcServer>,
    files: Arc<dyn Files>,
    dir: PathBuf,
    joining: Option<ServerId>,
    books: Sender<String>,
    met: Mutex<Met>,
    changed: Condvar,
    removal: OnceLock<Box<dyn Fn() + Send + Sync>>,
    was_removed: AtomicBool,
}

#[derive(Default)]
struct Met {
    cluster: Option<Uuid>,
    /// This node has made the cluster itself.
    has_founded: bool,
    members: BTreeSet<ServerId>,
}

impl Inbound {
    /// The reception of a node whose data directory is `dir`. `joining` is the server's id when it
    /// has never been in a cluster and wants into one.
    ///
    /// Fails when the system has no thread to give.
    pub fn new(
        wiring: Wiring,
        log: Arc<dyn Log>,
        files: Arc<dyn Files>,
        dir: PathBuf,
        joining: Option<ServerId>,
    ) -> std::io::Result<Arc<Inbound>> {
        let (requests, met, changed) = (OnceLock::new(), Mutex::default(), Condvar::new());
        let books = keep_books(files.clone(), dir.clone())?;
        let (removal, was_removed) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Arc::new(Inbound {
            wiring,
            log,
            requests,
            files,
            dir,
            joining,
            books,
            met,
            changed,
            removal,
            was_removed,
        }))
    }

    /// Calls `told` once the other servers say that this one was removed for good, on the thread of the
    /// links: it must not wait. It may be called more than once. Only the first one is kept.
    pub fn when_removed(&self, told: Box<dyn Fn() + Send + Sync>) {
        drop(self.removal.set(told));
        if self.was_removed.load(Ordering::Acquire) {
            self.removal.get().iter().for_each(|told| told());
        }
    }

    /// Whether the other servers have said that this one was removed for good.
    #[must_use]
    pub fn was_removed(&self) -> bool {
        self.was_removed.load(Ordering::Acquire)
    }

    /// Requests are handled by `requests` from now on.
    pub fn open(&self, requests: RpcServer) {
        drop(self.requests.set(requests));
    }

    /// The cluster that a joining has met or made, once there is one; waits at most `timeout`.
    pub fn await_cluster(&self, timeout: Duration) -> Option<Uuid> {
        let mut met = self.met.lock();
        if met.cluster.is_none() {
            self.changed.wait_for(&mut met, timeout);
        }
        met.cluster
    }

    /// Whether a joining has made its cluster itself: it need not join it.
    #[must_use]
    pub fn has_founded(&self) -> bool {
        self.met.lock().has_founded
    }

    /// The servers that are linked now.
    #[must_use]
    pub fn members(&self) -> Vec<ServerId> {
        self.met.lock().members.iter().copied().collect()
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
        self.met.lock().members.insert(info.server);
        self.changed.notify_all();
        self.log.peers_reachable(self.wiring.transport.replicas_on(info.server));
        self.wiring.state_changes.notify();
    }

    fn silent(&self, server: ServerId) {
        self.met.lock().members.remove(&server);
        self.disconnected(server);
        self.log.peers_unreachable(self.wiring.transport.replicas_on(server));
        self.wiring.state_changes.notify();
    }

    fn back(&self, server: ServerId) {
        self.met.lock().members.insert(server);
        self.log.peers_reachable(self.wiring.transport.replicas_on(server));
        self.wiring.state_changes.notify();
    }

    fn may_adopt(&self, cluster: Uuid, _by: &PeerInfo) -> Result<(), String> {
        let Some(server) = self.joining else {
            return Err("this server has data of its own and cannot join another cluster".to_owned());
        };
        let mut met = self.met.lock();
        match met.cluster {
            Some(known) if known != cluster => {
                return Err(format!("this server has begun to join another cluster ({known})"));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let identity = Identity { server, cluster, joined: Some(UNASSIGNED_PEER) };
        identity.store(&*self.files, &self.dir).map_err(|error| error.to_string())?;
        met.cluster = Some(cluster);
        self.changed.notify_all();
        Ok(())
    }

    fn bootstrap(&self, cluster: Uuid) -> Result<(), String> {
        let server = self.joining.ok_or("this server belongs to a cluster")?;
        let mut met = self.met.lock();
        if let Some(known) = met.cluster {
            return Err(format!("this server has begun to join another cluster ({known})"));
        }
        let identity = Identity { server, cluster, joined: None };
        identity.store(&*self.files, &self.dir).map_err(|error| error.to_string())?;
        (met.cluster, met.has_founded) = (Some(cluster), true);
        self.changed.notify_all();
        Ok(())
    }

    fn removed(&self) {
        tracing::error!("The other servers say that this one was removed from the cluster for good.");
        self.was_removed.store(true, Ordering::Release);
        self.removal.get().iter().for_each(|told| told());
    }

    fn store_address_book(&self, text: &str) {
        // The thread ends with this sender, so it is there.
        drop(self.books.send(text.to_owned()));
    }
}

/// Stands for the replica of a server that was let into a cluster and does not know its own yet.
pub const UNASSIGNED_PEER: PeerId = PeerId(0);

/// A thread that writes the address book: the disk must not keep the links waiting.
fn keep_books(files: Arc<dyn Files>, dir: PathBuf) -> std::io::Result<Sender<String>> {
    let (sender, inbox) = task::channel::<String>();
    let work = move || {
        while let Ok(mut text) = inbox.recv() {
            // Only the last one counts.
            while let Some(later) = inbox.try_recv() {
                text = later;
            }
            if let Err(error) = AddressBook::store(&*files, &dir, &text) {
                tracing::warn!("the address book cannot be kept in {}: {error}", dir.display());
            }
        }
    };
    task::spawn("address-book", work)?;
    Ok(sender)
}
