//! Proxies that delay the bytes between nodes and keep their order, like a network that is slow at times. The other
//! nodes reach a node through its proxy; drivers reach it directly. The kernel's netem is not in every kernel.

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

/// Bytes of one read, and the reads that are delayed before the sender has to wait.
const CHUNK_BYTES: usize = 16 << 10;
const CHUNKS_MAX: usize = 256;
/// How often a proxy checks whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A node that does not accept a connection within this time is not running.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One proxy per node. Dropping this ends them and all connections through them.
pub(crate) struct DelayProxies {
    shared: Arc<Shared>,
    proxies: Vec<SocketAddr>,
}

struct Shared {
    /// The addresses of the nodes; a proxy recognises the caller by its address.
    nodes: Vec<SocketAddr>,
    /// The longest delay in milliseconds, by source node and target node.
    most_ms: Vec<Vec<AtomicU64>>,
    random: Mutex<StdRng>,
    open: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

impl DelayProxies {
    /// Proxies on `host` for the nodes at these addresses, at first without delay. `seed` decides the delay of each chunk,
    /// up to the longest allowed.
    pub(crate) fn open(host: Ipv4Addr, nodes: Vec<SocketAddr>, seed: u64) -> Result<DelayProxies> {
        let (count, random) = (nodes.len(), StdRng::seed_from_u64(seed));
        let most_ms = (0..count).map(|_| (0..count).map(|_| AtomicU64::new(0)).collect()).collect();
        let shared = Shared {
            nodes,
            most_ms,
            random: Mutex::new(random),
            open: Mutex::new(Vec::new()),
            is_over: AtomicBool::new(false),
        };
        let mut all = DelayProxies { shared: Arc::new(shared), proxies: Vec::new() };
        for to in 0..count {
            let listener = TcpListener::bind((host, 0)).context("a port for a proxy")?;
            listener.set_nonblocking(true)?;
            all.proxies.push(listener.local_addr()?);
            let shared = Arc::clone(&all.shared);
            thread::spawn(move || accept(&listener, to, &shared));
        }
        Ok(all)
    }

    /// The address at which the other nodes reach node `nth`.
    pub(crate) fn proxy(&self, nth: usize) -> SocketAddr {
        self.proxies[nth]
    }

    /// Delays each chunk from one node to another by a random time of at most `most`.
    pub(crate) fn delay(&self, from: usize, to: usize, most: Duration) {
        let most_ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        self.shared.most_ms[from][to].store(most_ms, Ordering::Relaxed);
    }

    /// Ends the delays. Chunks that are already delayed arrive as scheduled.
    pub(crate) fn stop_delaying(&self) {
        self.shared.most_ms.iter().flatten().for_each(|most| most.store(0, Ordering::Relaxed));
    }
}

impl Drop for DelayProxies {
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
                    // If the node cannot be reached, the connection ends as if it had been refused.
                    if let Ok(node) = TcpStream::connect_timeout(&shared.nodes[to], CONNECT_TIMEOUT) {
                        let _ = join(stream, node, shared.node_at(peer.ip()), to, &shared);
                    }
                });
            }
            Err(_) => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Forwards both directions between the caller and the node.
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

/// One direction: one thread reads chunks and one writes them when they are due. Without `nodes` there is no delay.
fn forward(source: TcpStream, target: TcpStream, nodes: Option<(usize, usize)>, shared: &Arc<Shared>) {
    let (sender, chunks) = sync_channel(CHUNKS_MAX);
    let (shared, random) = (Arc::clone(shared), StdRng::from_rng(&mut *shared.random.lock()));
    thread::spawn(move || {
        let most_ms = || nodes.map_or(0, |(from, to)| shared.most_ms[from][to].load(Ordering::Relaxed));
        read(source, most_ms, Clock { random, last: Instant::now() }, &sender);
    });
    thread::spawn(move || write(target, &chunks));
}

/// An empty chunk is the end of the stream.
fn read(mut source: TcpStream, most_ms: impl Fn() -> u64, mut clock: Clock, chunks: &SyncSender<Chunk>) {
    loop {
        let mut bytes = vec![0; CHUNK_BYTES];
        let length = source.read(&mut bytes).unwrap_or(0);
        bytes.truncate(length);
        let due = clock.due(Instant::now(), most_ms());
        if chunks.send(Chunk { due, bytes }).is_err() || length == 0 {
            return;
        }
    }
}

fn write(mut target: TcpStream, chunks: &Receiver<Chunk>) {
    for Chunk { due, bytes } in chunks {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if bytes.is_empty() || target.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other end then closes the connection, which ends the other direction.
    let _ = target.shutdown(Shutdown::Both);
}

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

/// The due times of the chunks of one direction.
struct Clock {
    random: StdRng,
    last: Instant,
}

impl Clock {
    /// Never before the previous chunk.
    fn due(&mut self, now: Instant, most_ms: u64) -> Instant {
        let delay = Duration::from_millis(self.random.random_range(0..=most_ms));
        self.last = self.last.max(now + delay);
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
    fn chunks_are_due_within_their_delay_and_never_before_earlier_ones() {
        let begun = Instant::now();
        let mut clock = Clock { random: StdRng::seed_from_u64(1), last: begun };
        let moment = |number: u64| begun + Duration::from_millis(number);
        let dues: Vec<Instant> = (0..100).map(|number| clock.due(moment(number), 1000)).collect();
        assert!(dues.is_sorted());
        assert!(dues[0] > moment(0) && dues[99] > moment(500), "they are delayed");
        assert!(
            dues.iter().zip(0..).all(|(due, number)| *due <= moment(number + 1000)),
            "and by no more than that"
        );
        assert_eq!(clock.due(moment(5000), 0), moment(5000));
    }

    #[test]
    fn delayed_bytes_and_the_end_arrive_in_order_in_both_directions() {
        // The caller is node 0 by its address; node 1 is on another address of the loopback.
        let node = TcpListener::bind(("127.0.0.2", 0)).unwrap();
        let caller_at = SocketAddr::from(([127, 0, 0, 1], 1));
        let proxies =
            DelayProxies::open(Ipv4Addr::LOCALHOST, vec![caller_at, node.local_addr().unwrap()], 7).unwrap();
        proxies.delay(0, 1, Duration::from_millis(5));
        proxies.delay(1, 0, Duration::from_millis(5));
        let mut caller = TcpStream::connect(proxies.proxy(1)).unwrap();
        let (mut at_node, _) = node.accept().unwrap();
        let bytes: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let sent = bytes.clone();
        let echo = thread::spawn(move || {
            let mut heard = vec![0; sent.len()];
            at_node.read_exact(&mut heard).unwrap();
            assert!(heard == sent, "other bytes arrived");
            heard.chunks(1000).for_each(|part| at_node.write_all(part).unwrap());
        });
        bytes.chunks(1000).for_each(|part| caller.write_all(part).unwrap());
        let mut response = Vec::new();
        caller.read_to_end(&mut response).unwrap();
        assert!(response == bytes, "{} bytes came back", response.len());
        echo.join().unwrap();
    }

    #[test]
    fn connections_end_with_the_proxies() {
        let node = TcpListener::bind(("127.0.0.2", 0)).unwrap();
        let proxies = DelayProxies::open(Ipv4Addr::LOCALHOST, vec![node.local_addr().unwrap()], 7).unwrap();
        let mut caller = TcpStream::connect(proxies.proxy(0)).unwrap();
        let (mut at_node, _) = node.accept().unwrap();
        // Both directions are established once a byte came back.
        caller.write_all(b"?").unwrap();
        at_node.read_exact(&mut [0]).unwrap();
        at_node.write_all(b"!").unwrap();
        caller.read_exact(&mut [0]).unwrap();
        drop(proxies);
        assert_eq!((caller.read(&mut [0]).unwrap_or(0), at_node.read(&mut [0]).unwrap_or(0)), (0, 0));
    }
}
