//! Ways between nodes on which bytes come late, but in their order, as over a network that is slow at times. Each node
//! is reached by the others through a proxy here, which holds what it forwards; drivers reach the nodes directly. The
//! kernel's own means for that (netem) is not in every kernel.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What is read at once, and how many of these are held before the sender has to wait.
const PIECE_BYTES: usize = 16 << 10;
const PIECES_MAX: usize = 256;
/// How often a proxy looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);
/// A node that does not answer the proxy for so long does not run.
const PATIENCE: Duration = Duration::from_secs(5);

/// A proxy for each node. They end with this, and all connections through them.
pub(crate) struct LateWays {
    shared: Arc<Shared>,
    proxies: Vec<SocketAddr>,
}

struct Shared {
    /// Where the nodes listen. Who connects to a proxy is known by its address.
    nodes: Vec<SocketAddr>,
    /// How many milliseconds bytes are held at most, by node they come from and node they go to.
    most_ms: Vec<Vec<AtomicU64>>,
    chances: Mutex<StdRng>,
    open: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

impl LateWays {
    /// Proxies on `host` for the nodes that listen there; at first nothing is held. `seed` decides how long a piece is
    /// held, up to what it is to be at most.
    pub(crate) fn open(host: Ipv4Addr, nodes: Vec<SocketAddr>, seed: u64) -> Result<LateWays> {
        let (count, chances) = (nodes.len(), StdRng::seed_from_u64(seed));
        let most_ms = (0..count).map(|_| (0..count).map(|_| AtomicU64::new(0)).collect()).collect();
        let shared = Shared {
            nodes,
            most_ms,
            chances: Mutex::new(chances),
            open: Mutex::new(Vec::new()),
            is_over: AtomicBool::new(false),
        };
        let mut ways = LateWays { shared: Arc::new(shared), proxies: Vec::new() };
        for to in 0..count {
            let listener = TcpListener::bind((host, 0)).context("a port for a proxy")?;
            listener.set_nonblocking(true)?;
            ways.proxies.push(listener.local_addr()?);
            let shared = Arc::clone(&ways.shared);
            thread::spawn(move || accept(&listener, to, &shared));
        }
        Ok(ways)
    }

    /// Where the other nodes find node `nth`.
    pub(crate) fn proxy(&self, nth: usize) -> SocketAddr {
        self.proxies[nth]
    }

    /// Holds what goes from one node to another from now on, each piece for another while and at most this long.
    pub(crate) fn hold(&self, from: usize, to: usize, most: Duration) {
        let most_ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        self.shared.most_ms[from][to].store(most_ms, Ordering::Relaxed);
    }

    /// Holds nothing any more. What is held already comes when it was to come.
    pub(crate) fn hurry(&self) {
        self.shared.most_ms.iter().flatten().for_each(|most| most.store(0, Ordering::Relaxed));
    }
}

impl Drop for LateWays {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        for stream in self.shared.open.lock().drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, to: usize, shared: &Arc<Shared>) {
    while !shared.is_over.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, peer)) => {
                let shared = Arc::clone(shared);
                thread::spawn(move || {
                    // Where the node cannot be reached the connection ends, as if it had been refused.
                    if let Ok(node) = TcpStream::connect_timeout(&shared.nodes[to], PATIENCE) {
                        let _ = join(stream, node, shared.node_at(peer.ip()), to, &shared);
                    }
                });
            }
            Err(_) => thread::sleep(LOOK),
        }
    }
}

/// Forwards both ways between who connected and the node.
fn join(
    caller: TcpStream,
    node: TcpStream,
    from: Option<usize>,
    to: usize,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    caller.set_nonblocking(false)?;
    for stream in [&caller, &node] {
        stream.set_nodelay(true)?;
        shared.open.lock().push(stream.try_clone()?);
    }
    let there = from.map(|from| (from, to));
    let back = from.map(|from| (to, from));
    forward(caller.try_clone()?, node.try_clone()?, there, shared);
    forward(node, caller, back, shared);
    Ok(())
}

/// One direction, with a thread that reads and one that writes what is due. Without a `way` nothing is held.
fn forward(source: TcpStream, target: TcpStream, way: Option<(usize, usize)>, shared: &Arc<Shared>) {
    let (sender, pieces) = sync_channel(PIECES_MAX);
    let (shared, chances) = (Arc::clone(shared), StdRng::from_rng(&mut *shared.chances.lock()));
    thread::spawn(move || {
        let most_ms = || way.map_or(0, |(from, to)| shared.most_ms[from][to].load(Ordering::Relaxed));
        read(source, most_ms, Clock { chances, last: Instant::now() }, &sender);
    });
    thread::spawn(move || write(target, &pieces));
}

/// The end of the stream is a piece without bytes.
fn read(mut source: TcpStream, most_ms: impl Fn() -> u64, mut clock: Clock, pieces: &SyncSender<Piece>) {
    loop {
        let mut bytes = vec![0; PIECE_BYTES];
        let length = source.read(&mut bytes).unwrap_or(0);
        bytes.truncate(length);
        let due = clock.due(Instant::now(), most_ms());
        if pieces.send(Piece { due, bytes }).is_err() || length == 0 {
            return;
        }
    }
}

fn write(mut target: TcpStream, pieces: &Receiver<Piece>) {
    for Piece { due, bytes } in pieces {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if bytes.is_empty() || target.write_all(&bytes).is_err() {
            break;
        }
    }
    // Both ends hear of it: the node closes the connection, and so the other direction ends.
    let _ = target.shutdown(Shutdown::Both);
}

struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// When pieces of one direction are due.
struct Clock {
    chances: StdRng,
    last: Instant,
}

impl Clock {
    /// Never before the piece that came before.
    fn due(&mut self, now: Instant, most_ms: u64) -> Instant {
        let held = Duration::from_millis(self.chances.random_range(0..=most_ms));
        self.last = self.last.max(now + held);
        self.last
    }
}

impl Shared {
    fn node_at(&self, address: IpAddr) -> Option<usize> {
        self.nodes.iter().position(|node| node.ip() == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_due_within_their_time_and_never_before_earlier_ones() {
        let begun = Instant::now();
        let mut clock = Clock { chances: StdRng::seed_from_u64(1), last: begun };
        let moment = |number: u64| begun + Duration::from_millis(number);
        let dues: Vec<Instant> = (0..100).map(|number| clock.due(moment(number), 1000)).collect();
        assert!(dues.is_sorted());
        assert!(dues[0] > moment(0) && dues[99] > moment(500), "they are held");
        assert!(
            dues.iter().zip(0..).all(|(due, number)| *due <= moment(number + 1000)),
            "and not for longer"
        );
        assert_eq!(clock.due(moment(5000), 0), moment(5000));
    }

    #[test]
    fn what_is_held_comes_whole_and_in_order_both_ways_and_so_does_the_end() {
        // The caller is node 0 by its address, the node 1 on another address of the loopback.
        let node = TcpListener::bind(("127.0.0.2", 0)).unwrap();
        let caller_at = SocketAddr::from(([127, 0, 0, 1], 1));
        let ways =
            LateWays::open(Ipv4Addr::LOCALHOST, vec![caller_at, node.local_addr().unwrap()], 7).unwrap();
        ways.hold(0, 1, Duration::from_millis(5));
        ways.hold(1, 0, Duration::from_millis(5));
        let mut caller = TcpStream::connect(ways.proxy(1)).unwrap();
        let (mut at_node, _) = node.accept().unwrap();
        let bytes: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let sent = bytes.clone();
        let echo = thread::spawn(move || {
            let mut heard = vec![0; sent.len()];
            at_node.read_exact(&mut heard).unwrap();
            assert!(heard == sent, "something else came");
            heard.chunks(1000).for_each(|part| at_node.write_all(part).unwrap());
        });
        bytes.chunks(1000).for_each(|part| caller.write_all(part).unwrap());
        let mut answer = Vec::new();
        caller.read_to_end(&mut answer).unwrap();
        assert!(answer == bytes, "{} bytes came back", answer.len());
        echo.join().unwrap();
    }

    #[test]
    fn connections_end_with_the_ways() {
        let node = TcpListener::bind(("127.0.0.2", 0)).unwrap();
        let ways = LateWays::open(Ipv4Addr::LOCALHOST, vec![node.local_addr().unwrap()], 7).unwrap();
        let mut caller = TcpStream::connect(ways.proxy(0)).unwrap();
        let (mut at_node, _) = node.accept().unwrap();
        // Both directions stand once something came back.
        caller.write_all(b"?").unwrap();
        at_node.read_exact(&mut [0]).unwrap();
        at_node.write_all(b"!").unwrap();
        caller.read_exact(&mut [0]).unwrap();
        drop(ways);
        assert_eq!((caller.read(&mut [0]).unwrap_or(0), at_node.read(&mut [0]).unwrap_or(0)), (0, 0));
    }
}
