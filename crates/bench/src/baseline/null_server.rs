//! A server that answers every frame with the same bytes, as fast as one thread can.
//!
//! It measures the cost of the client and the kernel alone. A [`Stall`] makes it pause once, which verifies the
//! percentiles that the benchmarks report.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use client::frame;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::machine::own_process;

const LISTENER: u64 = u64::MAX;
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const READ_BYTES: usize = 64 * 1024;

/// A pause in which nothing is answered.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// Time from the first query to the pause.
    pub after: Duration,
    pub length: Duration,
}

/// A running null server.
pub struct NullServer {
    /// The address on which it listens.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<f64>>,
}

impl NullServer {
    /// Starts one on a free local port. It answers every frame with `body`, without a handshake.
    pub fn start(body: Vec<u8>, stall: Option<Stall>) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let server = Server { listener, body, stall, first_query: None, peers: Vec::new() };
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || server.run(&seen));
        Ok(NullServer { address, stop, thread })
    }

    /// Stops it and returns the processor time of its thread in seconds.
    pub fn stop(self) -> std::io::Result<f64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| std::io::Error::other("the null server panicked"))?
    }
}

struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

struct Server {
    listener: TcpListener,
    body: Vec<u8>,
    stall: Option<Stall>,
    first_query: Option<Instant>,
    peers: Vec<Option<Peer>>,
}

impl Server {
    fn run(mut self, stop: &AtomicBool) -> std::io::Result<f64> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (level, edge) = (epoll::EventFlags::IN, epoll::EventFlags::IN | epoll::EventFlags::ET);
        epoll::add(&poll, &self.listener, epoll::EventData::new_u64(LISTENER), level)?;
        let mut events = Vec::with_capacity(256);
        let mut scratch = vec![0; READ_BYTES];
        while !stop.load(Ordering::Relaxed) {
            events.clear();
            match epoll::wait(&poll, spare_capacity(&mut events), Some(&POLL_INTERVAL)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => {
                        while let Ok((stream, _)) = self.listener.accept() {
                            stream.set_nonblocking(true)?;
                            stream.set_nodelay(true)?;
                            let data = epoll::EventData::new_u64(self.peers.len() as u64);
                            epoll::add(&poll, &stream, data, edge)?;
                            let peer = Peer { stream, input: Vec::new(), output: Vec::new() };
                            self.peers.push(Some(peer));
                        }
                    }
                    place => self.serve(place as usize, &mut scratch),
                }
            }
        }
        Ok(own_process::thread_cpu_seconds())
    }

    fn serve(&mut self, place: usize, scratch: &mut [u8]) {
        self.stall_if_it_is_time();
        let Some(peer) = &mut self.peers[place] else { return };
        if !peer.answer_all(&self.body, scratch) {
            self.peers[place] = None;
        }
    }

    fn stall_if_it_is_time(&mut self) {
        let Some(stall) = self.stall else { return };
        let since_first = self.first_query.get_or_insert_with(Instant::now).elapsed();
        if since_first >= stall.after {
            thread::sleep((stall.after + stall.length).saturating_sub(since_first));
            self.stall = None;
        }
    }
}

impl Peer {
    /// Answers all queries that have arrived; `false` when the connection is closed.
    fn answer_all(&mut self, body: &[u8], scratch: &mut [u8]) -> bool {
        loop {
            let read = match self.stream.read(scratch) {
                Ok(0) => return false,
                Ok(n) => n,
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            };
            self.input.extend_from_slice(&scratch[..read]);
            let mut taken = 0;
            while let Some(query) = frame::first(&self.input[taken..]) {
                frame::push(&mut self.output, query.token, |out| out.extend_from_slice(body));
                taken += query.bytes();
            }
            self.input.drain(..taken);
            if !self.write_all() {
                return false;
            }
            if read < scratch.len() {
                return true;
            }
        }
    }

    fn write_all(&mut self) -> bool {
        let mut written = 0;
        while written < self.output.len() {
            match self.stream.write(&self.output[written..]) {
                Ok(n) => written += n,
                // Only happens when the client does not read; the server can only wait for it.
                Err(e) if e.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                Err(_) => return false,
            }
        }
        self.output.clear();
        true
    }
}
