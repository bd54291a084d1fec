//! One thread per core, each with its own event loop and its own connections.
//!
//! A connection stays on the thread it was given to. New ones go to the thread that has fewest.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ::io::real::Borrowed;
use parking_lot::Mutex;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::counters::Counters;
use crate::give_way::give_way;
use crate::link_driver;
use crate::tls;
use crate::worker_state::{Shared, WorkerState};

/// Point queries run on these threads and may recurse with the depth of a document.
const STACK_BYTES: usize = 16 << 20;

/// How long running queries may take to end by themselves when the node shuts down.
const GRACE: Duration = Duration::from_secs(1);

/// How long they may take to notice that they were told to stop.
const GRACE_INTERRUPTED: Duration = Duration::from_secs(5);

/// What was begun waits for more no longer than this, and until those that were ready then have had their turn.
const GATHER_MAX: Duration = Duration::from_micros(500);

struct Arrival {
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
    arrivals: UnboundedSender<Arrival>,
    open: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts `count` threads, at least one. The first drives `links`, too, if they are given to it.
    pub fn start(shared: &Arc<Shared>, count: usize, mut links: Option<Borrowed>) -> io::Result<Workers> {
        let (mut lanes, mut threads, mut all_counters) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let (arrivals, receiver) = unbounded_channel();
            let (open, counters) = (Arc::<AtomicUsize>::default(), Arc::<Counters>::default());
            let (shared, thread_open, thread_counters) = (shared.clone(), open.clone(), counters.clone());
            let (name, links) = (format!("drivers-{number}"), links.take());
            let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || {
                if let Err(error) = run(shared, thread_counters, &thread_open, receiver, links) {
                    tracing::error!("a thread for driver connections could not start: {error}");
                }
            })?;
            threads.push(thread);
            lanes.push(Lane { arrivals, open });
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
    pub fn welcome(&self, stream: TcpStream, address: SocketAddr) {
        let lanes = self.lanes.lock();
        let Some(lane) = lanes.iter().min_by_key(|lane| lane.open.load(Relaxed)) else { return };
        lane.open.fetch_add(1, Relaxed);
        if lane.arrivals.send(Arrival { stream, address }).is_err() {
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
    mut arrivals: UnboundedReceiver<Arrival>,
    links: Option<Borrowed>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let worker = Rc::new(WorkerState::new(shared, counters));
    runtime.block_on(async {
        let wakes = tokio::task::spawn_local(wake_connections(worker.clone()));
        let turns = tokio::task::spawn_local(take_turns(worker.clone()));
        let links = links.map(|links| tokio::task::spawn_local(link_driver::drive(links)));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                arrival = arrivals.recv() => match arrival {
                    Some(arrival) => accept(&mut connections, &worker, open, arrival),
                    None => break,
                },
                Some(ended) = connections.join_next() => {
                    open.fetch_sub(1, Relaxed);
                    report(ended);
                }
            }
        }
        drain(&mut connections, &worker).await;
        wakes.abort();
        turns.abort();
        links.iter().for_each(tokio::task::JoinHandle::abort);
    });
    Ok(())
}

/// Waits for connections to end: first by themselves, then with their queries told to stop.
async fn drain(connections: &mut JoinSet<()>, worker: &WorkerState) {
    for (grace, interrupting) in [(GRACE, false), (GRACE_INTERRUPTED, true)] {
        worker.interrupting.set(interrupting);
        worker.wake_all();
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, drained).await.is_ok() {
            return;
        }
    }
    tracing::warn!("{} connections had queries that did not end; they are cut off", connections.len());
    connections.shutdown().await;
}

fn accept(connections: &mut JoinSet<()>, worker: &Rc<WorkerState>, open: &AtomicUsize, arrival: Arrival) {
    let (worker, address) = (worker.clone(), arrival.address);
    match (tokio::net::TcpStream::from_std(arrival.stream), worker.shared.tls.clone()) {
        (Ok(stream), None) => {
            connections.spawn_local(Connection::new(stream, address, worker));
        }
        (Ok(stream), Some(acceptor)) => {
            connections.spawn_local(async move {
                let limit = worker.shared.handshake_limit;
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
        give_way().await;
    }
}

/// Takes the service's turn for what connections have begun, after all that are ready have had theirs: the
/// more there is, the less each costs.
async fn take_turns(worker: Rc<WorkerState>) {
    loop {
        std::future::poll_fn(|cx| worker.poll_turn(cx)).await;
        let began = Instant::now();
        gather(|| worker.take_owed(), || began.elapsed() > GATHER_MAX).await;
        worker.shared.service.turn();
    }
}

/// Where several have begun something, looks at the sockets for as long as each look brings more to carry out: clients
/// that have just been answered ask again. Those who wait already wait no longer when it is late.
async fn gather(take_owed: impl Fn() -> usize, is_late: impl Fn() -> bool) {
    if take_owed() < 2 {
        return;
    }
    loop {
        tokio::task::yield_now().await;
        if take_owed() == 0 || is_late() {
            return;
        }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often it is looked what is owed, where that is so many each time, and the last number from then on; after
    /// `late` looks it is late.
    fn looks(owed: &[usize], late: usize) -> usize {
        let looks = Cell::new(0);
        let take_owed = || {
            let look = looks.replace(looks.get() + 1);
            owed[look.min(owed.len() - 1)]
        };
        Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(gather(take_owed, || looks.get() >= late));
        looks.get()
    }

    #[test]
    fn a_turn_for_several_waits_for_as_long_as_more_comes() {
        assert_eq!(looks(&[2, 0], 100), 2);
        assert_eq!(looks(&[2, 5, 1, 0], 100), 4);
        assert_eq!(looks(&[1, 5], 100), 1, "one alone does not wait");
    }

    #[test]
    fn it_does_not_wait_when_it_is_late() {
        assert_eq!(looks(&[2, 1], 10), 10);
    }
}
