//! One socket with its operations in flight. Never blocks.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use client::frame;

use super::workload::OperationPart;

const READ_BYTES_MIN: usize = 4 * 1024;
const READ_BYTES_STEP: usize = 64 * 1024;

/// An operation in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct InFlight {
    pub part: OperationPart,
    /// When that part was sent.
    pub sent_ns: i64,
    /// When the operation was sent.
    pub started_ns: i64,
    /// When it should have started; `None` in a closed loop.
    pub intended_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    token: u64,
    flight: Option<InFlight>,
}

/// Whether a socket may hold more bytes to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Everything that had arrived was read.
    Drained,
    /// More may have arrived.
    More,
    /// The server has closed the connection.
    Closed,
}

/// One socket with its operations in flight.
pub struct Connection {
    /// The socket, for registration.
    pub stream: TcpStream,
    input: Vec<u8>,
    filled: usize,
    taken: usize,
    output: Vec<u8>,
    written: usize,
    slots: Vec<Slot>,
    free: Vec<u16>,
    tokens_used: u64,
    pub closed: bool,
}

impl Connection {
    /// Wraps a logged-in socket.
    pub fn new(stream: TcpStream, pipeline: usize) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            input: vec![0; READ_BYTES_MIN],
            filled: 0,
            taken: 0,
            output: Vec::new(),
            written: 0,
            slots: vec![Slot::default(); pipeline],
            free: (0..pipeline as u16).rev().collect(),
            tokens_used: 0,
            closed: false,
        })
    }

    /// Whether another operation may be sent.
    pub fn has_room(&self) -> bool {
        !self.closed && !self.free.is_empty()
    }

    /// Queues the query of a new operation; the next [`Connection::flush`] sends it.
    pub fn send(&mut self, query: &[u8], flight: InFlight) {
        let slot = self.free.pop().expect("invariant: the caller asked has_room");
        self.send_in(usize::from(slot), query, flight);
    }

    /// Queues the next part of an operation that was just taken with [`Connection::take`].
    pub fn send_in(&mut self, slot: usize, query: &[u8], flight: InFlight) {
        self.tokens_used += 1;
        let token = self.tokens_used * self.slots.len() as u64 + slot as u64;
        self.slots[slot] = Slot { token, flight: Some(flight) };
        frame::push(&mut self.output, token, |out| out.extend_from_slice(query));
    }

    /// Requests the next batch of the response to the operation in `slot`.
    pub fn send_continue(&mut self, slot: usize, flight: InFlight) {
        self.send_same(slot, b"[2]", flight);
    }

    /// Ends the stream that is the response to the operation in `slot`.
    pub fn send_stop(&mut self, slot: usize, flight: InFlight) {
        self.send_same(slot, b"[3]", flight);
    }

    fn send_same(&mut self, slot: usize, query: &[u8], flight: InFlight) {
        let token = self.slots[slot].token;
        self.slots[slot].flight = Some(flight);
        frame::push(&mut self.output, token, |out| out.extend_from_slice(query));
    }

    pub fn release(&mut self, slot: usize) {
        self.free.push(slot as u16);
    }

    /// Reads available bytes and adds their number to `received`.
    pub fn fill(&mut self, received: &mut u64) -> ReadOutcome {
        self.make_room();
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => ReadOutcome::Closed,
            Ok(n) => {
                self.filled += n;
                *received += n as u64;
                if self.filled < self.input.len() { ReadOutcome::Drained } else { ReadOutcome::More }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => ReadOutcome::Drained,
            Err(e) if e.kind() == ErrorKind::Interrupted => ReadOutcome::More,
            Err(_) => ReadOutcome::Closed,
        }
    }

    /// Takes the next complete response: its slot, its operation, and the range of its JSON (see [`Connection::body`]).
    /// Responses to abandoned operations are skipped.
    pub fn take(&mut self) -> Option<(usize, InFlight, std::ops::Range<usize>)> {
        loop {
            let unread = &self.input[self.taken..self.filled];
            let Some(found) = frame::first(unread) else {
                self.compact();
                return None;
            };
            let start = self.taken + frame::HEADER_BYTES;
            let body = start..start + found.body.len();
            let token = found.token;
            self.taken = body.end;
            let slot = (token % self.slots.len() as u64) as usize;
            if self.slots[slot].token == token
                && let Some(flight) = self.slots[slot].flight.take()
            {
                return Some((slot, flight, body));
            }
        }
    }

    /// The bytes of a response that was taken; valid until the next read.
    pub fn body(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.input[range]
    }

    /// Writes as much of the output as the socket accepts; `false` when the connection is closed.
    pub fn flush(&mut self, sent: &mut u64) -> bool {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return false,
                Ok(n) => {
                    self.written += n;
                    *sent += n as u64;
                }
                // The next writable event calls this again.
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.output.clear();
        self.written = 0;
        true
    }

    /// Closes the connection and returns the operations in flight.
    pub fn abandon(&mut self) -> Vec<InFlight> {
        self.closed = true;
        self.slots.iter_mut().filter_map(|slot| slot.flight.take()).collect()
    }

    fn make_room(&mut self) {
        if self.filled < self.input.len() {
            return;
        }
        let missing = frame::missing(&self.input[self.taken..self.filled]);
        self.input.resize(self.filled + missing.max(READ_BYTES_STEP), 0);
    }

    fn compact(&mut self) {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        } else if self.taken > 0 {
            self.input.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
    }
}
