//! One thread per core, each with its own event loop and its own connections.
//!
//! A connection stays on the thread it was given to. New ones go to the thread that has fewest.

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
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::counters::Counters;
use crate::tls;
use crate::worker_state::{Shared, WorkerState};
use drive::drive_worker;
use yield_now::yield_to_ready_tasks;

/// Point queries run on these threads and may recurse with the depth of a document.
const STACK_BYTES: usize = 16 << 20;

/// How long running queries may take to end by themselves when the node shuts down.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long they may take to notice that they were told to stop.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);

struct Accepted {
    stream: TcpStream,
    address: SocketAddr,
}

/// The threads that serve drivers.
pub struct Workers {
    lanes: Mutex<Vec<Lane>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    counters: Vec<Arc<Counters>>,
}

struct Lane {
    accepted: UnboundedSender<Accepted>,
    open: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts `count` threads, at least one. The first drives `links`, too, if they are given to it.
    pub fn start(shared: &Arc<Shared>, count: usize, mut links: Option<BorrowedLoop>) -> io::Result<Workers> {
        let (mut lanes, mut threads, mut all_counters) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let (accepted, receiver) = unbounded_channel();
            let (open, counters) = (Arc::<AtomicUsize>::default(), Arc::<Counters>::default());
            let (shared, thread_open, thread_counters) = (shared.clone(), open.clone(), counters.clone());
            let (name, links) = (format!("drivers-{number}"), links.take());
            let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || {
                if let Err(error) = run(shared, thread_counters, &thread_open, receiver, links) {
                    tracing::error!("a thread for driver connections could not start: {error}");
                }
            })?;
            threads.push(thread);
            lanes.push(Lane { accepted, open });
            all_counters.push(counters);
        }
        Ok(Workers { lanes: Mutex::new(lanes), threads: Mutex::new(threads), counters: all_counters })
    }

    /// Each thread's numbers.
    #[must_use]
    pub fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.clone()
    }

    /// Gives a connection to the thread that has fewest; after [`Workers::shut_down`] it is closed.
    pub fn assign(&self, stream: TcpStream, address: SocketAddr) {
        let lanes = self.lanes.lock();
        let Some(lane) = lanes.iter().min_by_key(|lane| lane.open.load(Relaxed)) else { return };
        lane.open.fetch_add(1, Relaxed);
        if lane.accepted.send(Accepted { stream, address }).is_err() {
            lane.open.fetch_sub(1, Relaxed);
        }
    }

    /// Lets running queries end, then closes every connection and waits for the threads. Set
    /// `draining` before.
    pub fn shut_down(&self) {
        self.lanes.lock().clear();
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
                    // Links that it drove are gone with what it knew of them; connections are not to wait for ever.
                    tracing::error!("the drive_task of drivers' connections begin anew after a fault of the server: {error}");
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

/// Waits for connections to end: first by themselves, then with their queries told to stop.
async fn drain(connections: &mut JoinSet<()>, worker: &WorkerState) {
    for (timeout, interrupting) in [(DRAIN_TIMEOUT, false), (INTERRUPT_TIMEOUT, true)] {
        worker.interrupting.set(interrupting);
        worker.wake_all();
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(timeout, drained).await.is_ok() {
            return;
        }
    }
    tracing::warn!("{} connections had queries that did not end; they are cut off", connections.len());
    connections.shutdown().await;
}

fn accept(connections: &mut JoinSet<()>, worker: &Rc<WorkerState>, open: &AtomicUsize, connection: Accepted) {
    let (worker, address) = (worker.clone(), connection.address);
    match (tokio::net::TcpStream::from_std(connection.stream), worker.shared.tls.clone()) {
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
            tracing::warn!("a connection from {address} could not be served: {error}");
        }
    }
}

/// Wakes the connections other threads have something for.
async fn wake_connections(worker: Rc<WorkerState>) {
    let mut slots = Vec::new();
    loop {
        std::future::poll_fn(|cx| worker.wakes.poll_woken(cx, &mut slots)).await;
        for slot in slots.drain(..) {
            worker.wake(slot);
        }
        // Those that were woken come first: meanwhile this is not woken again, and nor is the thread.
        yield_to_ready_tasks().await;
    }
}

/// A connection that panicked met a fault of ours; its neighbours go on.
fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a driver connection was lost to a fault of the server: {error}");
    }
}
