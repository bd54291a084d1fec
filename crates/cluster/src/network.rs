//! The links of a node and the node itself, joined: what arrives goes to the log, to the desk, or tells
//! which replicas can be reached.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use io::Files;
use io::task::{self, Condvar, Sender};
use log::{Log, Message};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::link::{Book, Links, PeerInfo, Receiver};
use crate::post::{PeerTransport, Post};
use crate::{Identity, Node, PeerId, Responder, RpcHandler, RpcServer, ServerId};

impl PeerTransport for Links {
    fn mail(&self, to: ServerId, letters: Vec<Message>) {
        Links::mail(self, to, letters);
    }

    fn forget(&self, server: ServerId) {
        Links::forget(self, server);
    }

    fn set_heartbeat(&self, timeout: std::time::Duration) {
        Links::set_heartbeat(self, timeout);
    }

    fn set_name(&self, server: ServerId, name: &str) {
        Links::set_name(self, server, name);
    }
}

/// What the links of a node hand to it.
pub struct Inbound {
    post: Arc<Post>,
    log: Arc<dyn Log>,
    desk: OnceLock<RpcServer>,
    files: Arc<dyn Files>,
    dir: PathBuf,
    newcomer: Option<ServerId>,
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
    /// The reception of a node whose data directory is `dir`. `newcomer` is the server's id when it
    /// has never been in a cluster and wants into one.
    ///
    /// Fails when the system has no thread to give.
    pub fn new(
        post: Arc<Post>,
        log: Arc<dyn Log>,
        files: Arc<dyn Files>,
        dir: PathBuf,
        newcomer: Option<ServerId>,
    ) -> std::io::Result<Arc<Inbound>> {
        let (desk, met, changed) = (OnceLock::new(), Mutex::default(), Condvar::new());
        let books = keep_books(files.clone(), dir.clone())?;
        let (removal, was_removed) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Arc::new(Inbound {
            post,
            log,
            desk,
            files,
            dir,
            newcomer,
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

    /// From now on requests are answered by `node`.
    pub fn open(&self, node: &Node) {
        drop(self.desk.set(node.desk()));
    }

    /// The cluster that a newcomer has met or made, once there is one; waits at most `patience`.
    pub fn await_cluster(&self, patience: std::time::Duration) -> Option<Uuid> {
        let mut met = self.met.lock();
        if met.cluster.is_none() {
            self.changed.wait_for(&mut met, patience);
        }
        met.cluster
    }

    /// Whether a newcomer has made its cluster itself: it need not join it.
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
    fn serve(&self, from: ServerId, request: Bytes, reply: Responder) {
        match self.desk.get() {
            Some(desk) => desk.serve(from, request, reply),
            None => reply(Err("this server is still starting".to_owned())),
        }
    }

    fn gone(&self, server: ServerId) {
        self.desk.get().iter().for_each(|desk| desk.gone(server));
    }
}

impl Receiver for Inbound {
    fn letters(&self, from: ServerId, letters: Vec<Message>) {
        self.post.arrived(from, letters, &*self.log);
    }

    fn connected(&self, info: &PeerInfo) {
        self.met.lock().members.insert(info.server);
        self.changed.notify_all();
        self.log.peers_reachable(self.post.peers_on(info.server));
        self.post.news().tell();
    }

    fn silent(&self, server: ServerId) {
        self.met.lock().members.remove(&server);
        self.gone(server);
        self.log.peers_unreachable(self.post.peers_on(server));
        self.post.news().tell();
    }

    fn back(&self, server: ServerId) {
        self.met.lock().members.insert(server);
        self.log.peers_reachable(self.post.peers_on(server));
        self.post.news().tell();
    }

    fn may_adopt(&self, cluster: Uuid, _by: &PeerInfo) -> Result<(), String> {
        let Some(server) = self.newcomer else {
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

    fn founds(&self, cluster: Uuid) -> Result<(), String> {
        let server = self.newcomer.ok_or("this server belongs to a cluster")?;
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

    fn keep_book(&self, text: &str) {
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
            if let Err(error) = Book::store(&*files, &dir, &text) {
                tracing::warn!("the address book cannot be kept in {}: {error}", dir.display());
            }
        }
    };
    task::spawn("address-book", work)?;
    Ok(sender)
}
