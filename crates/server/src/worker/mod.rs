//! One thread per core, each with its own event loop and its own connections.
//!
//! A connection stays on its thread. New ones are assigned to the thread with the fewest connections.

mod drive;
mod yield_now;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::io::real::BorrowedLoop;
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::counters::Counters;
use crate::service::Client;
use crate::tls;
use crate::worker_state::{Shared, WorkerState};
use drive::drive_worker;
use yield_now::yield_to_ready_tasks;

/// Point queries run on these threads and recurse with the depth of a document.
const STACK_BYTES: usize = 16 << 20;

/// How long running queries may continue when the node shuts down.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long cancelled queries may take to end.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that a worker is to serve.
enum Accepted {
    Driver {
        stream: TcpStream,
        address: SocketAddr,
    },
    /// Of a page of the console, whose user has logged in.
    Session {
        stream: DuplexStream,
        client: Client,
    },
}

/// The threads that serve drivers.
pub struct Workers {
    workers: Mutex<Vec<WorkerHandle>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    counters: Vec<Arc<Counters>>,
}

struct WorkerHandle {
    accepted: UnboundedSender<Accepted>,
    open: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts `count` threads, at least one. The first also drives `links`, if given.
    pub fn start(shared: &Arc<Shared>, count: usize, mut links: Option<BorrowedLoop>) -> io::Result<Workers> {
        let (mut workers, mut threads, mut all_counters) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let (accepted, receiver) = unbounded_channel();
            let (open, counters) = (Arc::<AtomicUsize>::default(), Arc::<Counters>::default());
            let (shared, thread_open, thread_counters) = (shared.clone(), open.clone(), counters.clone());
            let (name, links) = (format!("drivers-{number}"), links.take());
            let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || {
                if let Err(error) = run(shared, thread_counters, &thread_open, receiver, links) {
                    tracing::error!("cannot start a thread for driver connections: {error}");
                }
            })?;
            threads.push(thread);
            workers.push(WorkerHandle { accepted, open });
            all_counters.push(counters);
        }
        Ok(Workers { workers: Mutex::new(workers), threads: Mutex::new(threads), counters: all_counters })
    }

    /// The counters of each thread.
    #[must_use]
    pub fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.clone()
    }

    /// Assigns a connection to the thread with the fewest. After [`Workers::shut_down`] it is closed.
    pub fn assign(&self, stream: TcpStream, address: SocketAddr) {
        self.send(Accepted::Driver { stream, address });
    }

    /// Like [`Workers::assign`], for a client that was authenticated elsewhere; `stream` carries frames.
    pub fn assign_session(&self, stream: DuplexStream, client: Client) {
        self.send(Accepted::Session { stream, client });
    }

    fn send(&self, accepted: Accepted) {
        let workers = self.workers.lock();
        let Some(worker) = workers.iter().min_by_key(|worker| worker.open.load(Relaxed)) else { return };
        worker.open.fetch_add(1, Relaxed);
        if worker.accepted.send(accepted).is_err() {
            worker.open.fetch_sub(1, Relaxed);
        }
    }

    /// Waits for running queries, then closes every connection and joins the threads. `draining` must be set before.
    pub fn shut_down(&self) {
        self.workers.lock().clear();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread for driver connections panicked");
            }
        }
    }
}

fn run(
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    open: &AtomicUsize,
    mut accepted: UnboundedReceiver<Accepted>,
    links: Option<BorrowedLoop>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let worker = Rc::new(WorkerState::new(shared, counters));
    runtime.block_on(async {
        let wakes = tokio::task::spawn_local(wake_connections(worker.clone()));
        let mut drive_task = tokio::task::spawn_local(drive_worker(worker.clone(), links));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                connection = accepted.recv() => match connection {
                    Some(connection) => accept(&mut connections, &worker, open, connection),
                    None => break,
                },
                Some(ended) = connections.join_next() => {
                    open.fetch_sub(1, Relaxed);
                    report(ended);
                }
                Err(error) = &mut drive_task => {
                    // The links are lost with the state of their driver. The service must still be driven for the
                    // connections.
                    tracing::error!("the task that drives the query service panicked and is restarted: {error}");
                    drive_task = tokio::task::spawn_local(drive_worker(worker.clone(), None));
                }
            }
        }
        drain(&mut connections, &worker).await;
        wakes.abort();
        drive_task.abort();
    });
    Ok(())
}

/// Waits for connections to end: first on their own, then with their queries cancelled.
async fn drain(connections: &mut JoinSet<()>, worker: &WorkerState) {
    for (timeout, interrupting) in [(DRAIN_TIMEOUT, false), (INTERRUPT_TIMEOUT, true)] {
        worker.interrupting.set(interrupting);
        worker.wake_all();
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(timeout, drained).await.is_ok() {
            return;
        }
    }
    tracing::warn!("{} connections had queries that did not end; closing them", connections.len());
    connections.shutdown().await;
}

fn accept(connections: &mut JoinSet<()>, worker: &Rc<WorkerState>, open: &AtomicUsize, connection: Accepted) {
    let worker = worker.clone();
    match connection {
        Accepted::Driver { stream, address } => accept_driver(connections, worker, open, stream, address),
        Accepted::Session { stream, client } => {
            connections.spawn_local(Connection::authenticated(stream, client, worker));
        }
    }
}

fn accept_driver(
    connections: &mut JoinSet<()>,
    worker: Rc<WorkerState>,
    open: &AtomicUsize,
    stream: TcpStream,
    address: SocketAddr,
) {
    match (tokio::net::TcpStream::from_std(stream), worker.shared.tls.clone()) {
        (Ok(stream), None) => {
            connections.spawn_local(Connection::new(stream, address, worker));
        }
        (Ok(stream), Some(acceptor)) => {
            connections.spawn_local(async move {
                let limit = worker.shared.handshake_timeout;
                if let Some(stream) = tls::shake_hands(&acceptor, stream, address, limit).await {
                    Connection::new(stream, address, worker).await;
                } else {
                    worker.counters.refused.fetch_add(1, Relaxed);
                }
            });
        }
        (Err(error), _) => {
            open.fetch_sub(1, Relaxed);
            tracing::warn!("cannot serve a connection from {address}: {error}");
        }
    }
}

/// Wakes the connections for which other threads have completed something.
async fn wake_connections(worker: Rc<WorkerState>) {
    let mut slots = Vec::new();
    loop {
        std::future::poll_fn(|cx| worker.wakes.poll_woken(cx, &mut slots)).await;
        for slot in slots.drain(..) {
            worker.wake(slot);
        }
        // Lets the woken connections run first: meanwhile neither this task nor the thread is woken again.
        yield_to_ready_tasks().await;
    }
}

/// Reports a connection that panicked; other connections are not affected.
fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a driver connection panicked and is closed: {error}");
    }
}
