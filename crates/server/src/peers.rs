//! The links of this server to others: the thread that drives them, and what they are told.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Inbox, Sender, channel};
use std::thread;

use ::io::real::{NetworkThread, Tls};
use ::io::{Clock, Files, Random};
use bytes::Bytes;
use cluster::link::{Book, Letter, LinkOptions, LinkTimings, Links, Me, PeerInfo, QueueLimits, Receiver};
use cluster::{Node, Reply, Serve, ServerId};
use uuid::Uuid;

use crate::config::{Config, TlsFiles};
use crate::start_error::StartError;

/// What the links of a server need of its machine.
pub(crate) struct Ground {
    pub(crate) directory: PathBuf,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
}

/// The links of this server, until it is dropped.
pub(crate) struct Peers {
    /// The handle.
    pub(crate) links: Links,
    thread: NetworkThread,
}

impl Peers {
    /// Begins to accept links on `listeners` and to look for the servers known from before.
    pub(crate) fn start(
        config: &Config,
        node: &Node,
        ground: Ground,
        addresses: Vec<String>,
        port: u16,
        listeners: Vec<TcpListener>,
    ) -> Result<Peers, StartError> {
        let tls = config.peers.tls.as_ref().map(load_tls).transpose()?;
        let me = Me {
            cluster: Some(node.identity().cluster),
            server: node.identity().server,
            name: node.name().to_string(),
            tags: node.tags().iter().map(ToString::to_string).collect(),
            addresses,
            port,
        };
        let reconnect_timeout = config.peers.reconnect_timeout;
        let links = Links::new(LinkOptions {
            me,
            join: config.peers.join.clone(),
            book: load_book(&*ground.files, &ground.directory)?,
            timings: LinkTimings { reconnect_timeout, ..LinkTimings::default() },
            limits: QueueLimits::default(),
            clock: ground.clock.clone(),
            random: ground.random,
        });
        let alone = Arc::new(Alone { books: keep_books(ground.files, ground.directory)? });
        let party = links.party(alone).ok_or_else(|| io::Error::other("the links have a driver already"))?;
        let thread = NetworkThread::start("links", party, links.bell(), listeners, tls, ground.clock)?;
        Ok(Peers { links, thread })
    }

    /// Takes leave of every other server.
    pub(crate) fn stop(self) {
        self.links.close();
        drop(self.thread);
    }
}

fn load_tls(files: &TlsFiles) -> Result<Tls, StartError> {
    Ok(Tls::mutual(&files.key, &files.certificate, &files.authorities)?)
}

fn load_book(files: &dyn Files, directory: &Path) -> Result<Book, StartError> {
    let path = directory.join(Book::FILE);
    match files.read(&path) {
        Ok(text) => {
            Book::parse(&text).map_err(|cause| StartError::Book { path: path.display().to_string(), cause })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Book::default()),
        Err(error) => Err(error.into()),
    }
}

/// A thread that writes the address book: the disk must not keep the links waiting.
fn keep_books(files: Arc<dyn Files>, directory: PathBuf) -> io::Result<Sender<String>> {
    let (sender, inbox) = channel();
    thread::Builder::new()
        .name("address-book".to_owned())
        .spawn(move || write_books(&*files, &directory, &inbox))?;
    Ok(sender)
}

fn write_books(files: &dyn Files, directory: &Path, inbox: &Inbox<String>) {
    while let Ok(mut text) = inbox.recv() {
        // Only the last one counts.
        while let Ok(later) = inbox.try_recv() {
            text = later;
        }
        if let Err(error) = Book::store(files, directory, &text) {
            tracing::warn!("the address book cannot be kept in {}: {error}", directory.display());
        }
    }
}

/// A server that shares nothing with others: it knows them, and that is all.
struct Alone {
    books: Sender<String>,
}

impl Serve for Alone {
    fn serve(&self, _from: ServerId, _question: Bytes, reply: Reply) {
        reply(Err("this version of rekindle answers no questions of other servers".to_owned()));
    }
}

impl Receiver for Alone {
    fn letters(&self, _from: ServerId, _letters: Vec<Letter>) {}

    fn connected(&self, _info: &PeerInfo) {}

    fn silent(&self, _server: ServerId) {}

    fn back(&self, _server: ServerId) {}

    fn may_adopt(&self, _cluster: Uuid, _by: &PeerInfo) -> Result<(), String> {
        Err("it belongs to a cluster".to_owned())
    }

    fn keep_book(&self, text: &str) {
        // The thread ends with this sender, so it is there.
        drop(self.books.send(text.to_owned()));
    }
}
