//! One TCP connection, with or without TLS.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};

use bytes::{Buf, Bytes};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::Connection as TlsSession;

use super::tls::{Tls, describe};
use crate::network::{Endpoints, TLS_FAULT};

/// The most bytes of one read.
pub(super) const READ_BYTES: usize = 256 << 10;
/// The most reads of one connection before others have their turn.
const READS_PER_POLL_MAX: usize = 4;
/// The most chunks of one vectored write.
const SLICES_MAX: usize = 64;
/// The most bytes encrypted at a time.
const ENCRYPT_BYTES: usize = 64 << 10;

/// The result of reading or writing.
#[derive(Debug)]
pub(super) enum SocketProgress {
    /// Nothing to report to the handler.
    Nothing,
    /// There is more to read.
    More,
    /// The dialed connection is established.
    Connected,
    /// Everything queued has left, and the handler asked to be notified.
    Drained,
    /// The connection has ended.
    Over(String),
}

pub(super) struct Socket {
    stream: TcpStream,
    tls: Option<Box<TlsSession>>,
    state: SocketState,
    waiting: VecDeque<Bytes>,
    notify_drained: bool,
    /// The other side has closed its direction, or the system reported the end of the connection.
    pub(super) is_ending: bool,
    /// The handler has closed it.
    pub(super) is_closing: bool,
    has_shut_down: bool,
}

enum SocketState {
    /// Dialing; if that fails, these addresses are next.
    Dialing(Vec<SocketAddr>),
    Connected,
}

impl Socket {
    /// Dials the first of `addresses`, and the next ones if that fails.
    pub(super) fn dial(mut addresses: Vec<SocketAddr>, tls: Option<&Tls>) -> io::Result<Socket> {
        addresses.reverse();
        let stream = dial_one(&mut addresses)?;
        let session = tls.map(Tls::client).transpose()?;
        Ok(Socket::new(stream, session, SocketState::Dialing(addresses)))
    }

    /// A connection that the other side dialed.
    pub(super) fn accepted(stream: TcpStream, tls: Option<&Tls>) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        let session = tls.map(Tls::server).transpose()?;
        Ok(Socket::new(stream, session, SocketState::Connected))
    }

    fn new(stream: TcpStream, tls: Option<Box<TlsSession>>, state: SocketState) -> Socket {
        Socket {
            stream,
            tls,
            state,
            waiting: VecDeque::new(),
            notify_drained: false,
            is_ending: false,
            is_closing: false,
            has_shut_down: false,
        }
    }

    /// Its addresses as reported by the system; empty if unknown, as for a connection that has just ended.
    pub(super) fn endpoints(&self) -> Endpoints {
        // The scope id of a link-local address is only meaningful on this machine.
        let shown = |at: io::Result<SocketAddr>| {
            at.map(|at| SocketAddr::new(at.ip(), at.port()).to_string()).unwrap_or_default()
        };
        Endpoints { local: shown(self.stream.local_addr()), remote: shown(self.stream.peer_addr()) }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Appends bytes to the send queue.
    pub(super) fn queue(&mut self, bytes: Vec<Bytes>, notify_drained: bool) {
        self.waiting.extend(bytes.into_iter().filter(|chunk| !chunk.is_empty()));
        self.notify_drained |= notify_drained;
    }

    /// Whether the connection is not established yet.
    pub(super) fn is_dialing(&self) -> bool {
        matches!(self.state, SocketState::Dialing(_))
    }

    /// Handles the system's report that dialing has ended.
    pub(super) fn dialed(&mut self, registry: &Registry, token: Token) -> SocketProgress {
        let SocketState::Dialing(rest) = &mut self.state else { return SocketProgress::Nothing };
        let failed = match self.stream.take_error() {
            Ok(None) => match self.stream.peer_addr() {
                Ok(_) => None,
                // Not connected yet.
                Err(error) if error.kind() == ErrorKind::NotConnected => return SocketProgress::Nothing,
                Err(error) => Some(error),
            },
            Ok(Some(error)) | Err(error) => Some(error),
        };
        let Some(error) = failed else {
            self.state = SocketState::Connected;
            // Failure only delays small messages; the connection works without it.
            drop(self.stream.set_nodelay(true));
            return SocketProgress::Connected;
        };
        let next = if rest.is_empty() { Err(error) } else { dial_one(rest) };
        let registered = next.and_then(|stream| {
            // A closed socket is removed from the event queue automatically.
            self.stream = stream;
            self.register(registry, token)
        });
        match registered {
            Ok(()) => SocketProgress::Nothing,
            Err(error) => SocketProgress::Over(error.to_string()),
        }
    }

    /// Reads received bytes in chunks, up to a limit.
    pub(super) fn read(&mut self, scratch: &mut [u8], arrived: &mut Vec<Bytes>) -> SocketProgress {
        if self.is_dialing() {
            return SocketProgress::Nothing;
        }
        for _ in 0..READS_PER_POLL_MAX {
            let read = match &mut self.tls {
                Some(session) => read_encrypted(&mut self.stream, session, scratch, arrived),
                None => read_plain(&mut self.stream, scratch, arrived),
            };
            match read {
                // A read that did not fill the buffer has taken everything, unless the end of the connection follows.
                Ok(ReadOutcome::Some { is_full }) if is_full || self.is_ending => {}
                Ok(ReadOutcome::Some { .. }) => return self.answer_handshake(),
                Ok(ReadOutcome::Nothing) => return self.answer_handshake(),
                Ok(ReadOutcome::ConnectionEnd) => return SocketProgress::Over(self.end()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // TLS may have an alert to send, which helps the other side.
                    drop(self.write_encrypted());
                    return SocketProgress::Over(error.to_string());
                }
            }
        }
        SocketProgress::More
    }

    /// The reason for the end of the stream.
    fn end(&self) -> String {
        let end = "the other side closed the connection";
        match self.tls.as_deref() {
            Some(TlsSession::Client(session)) if session.is_handshaking() => {
                format!("{TLS_FAULT}{end} at once: it probably does not use TLS, but this side does")
            }
            _ => end.to_owned(),
        }
    }

    /// A TLS handshake may have something to send after reading.
    fn answer_handshake(&mut self) -> SocketProgress {
        let wants_write = self.tls.as_ref().is_some_and(|session| session.wants_write());
        if wants_write { self.write() } else { SocketProgress::Nothing }
    }

    /// Sends queued bytes, as far as the system accepts them.
    pub(super) fn write(&mut self) -> SocketProgress {
        if self.is_dialing() {
            return if self.is_closing {
                SocketProgress::Over(String::new())
            } else {
                SocketProgress::Nothing
            };
        }
        let must_notify = self.notify_drained;
        let written = if self.tls.is_some() { self.write_encrypted() } else { self.write_plain() };
        match written {
            Ok(true) if self.is_closing => self.shut_down(),
            Ok(true) if must_notify => {
                self.notify_drained = false;
                SocketProgress::Drained
            }
            Ok(_) => SocketProgress::Nothing,
            Err(error) => SocketProgress::Over(error.to_string()),
        }
    }

    /// Returns whether the queue is empty.
    fn write_plain(&mut self) -> io::Result<bool> {
        while !self.waiting.is_empty() {
            match write_some(&mut self.stream, &self.waiting) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => skip(&mut self.waiting, written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn write_encrypted(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.tls else { return Ok(true) };
        loop {
            while session.wants_write() {
                match session.write_tls(&mut self.stream) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            // Before the handshake is complete the session would buffer the bytes itself.
            if self.waiting.is_empty() || session.is_handshaking() {
                return Ok(self.waiting.is_empty());
            }
            let mut encrypted = 0;
            while let Some(chunk) = self.waiting.front_mut() {
                let part = chunk.split_to(chunk.len().min(ENCRYPT_BYTES - encrypted));
                session.writer().write_all(&part)?;
                encrypted += part.len();
                if chunk.is_empty() {
                    self.waiting.pop_front();
                }
                if encrypted == ENCRYPT_BYTES {
                    break;
                }
            }
        }
    }

    /// Closes the sending direction. The connection is dropped once the other side has closed its direction, too: if it
    /// were closed earlier, bytes that still arrive would make the system discard the bytes sent last.
    fn shut_down(&mut self) -> SocketProgress {
        if self.has_shut_down {
            return SocketProgress::Nothing;
        }
        self.has_shut_down = true;
        if let Some(session) = &mut self.tls {
            session.send_close_notify();
            drop(self.write_encrypted());
        }
        match self.stream.shutdown(Shutdown::Write) {
            Ok(()) => SocketProgress::Nothing,
            Err(error) => SocketProgress::Over(error.to_string()),
        }
    }
}

fn dial_one(addresses: &mut Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    while let Some(address) = addresses.pop() {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Writes the first queued chunks; there is at least one. A single chunk takes the shorter path through the kernel.
fn write_some(stream: &mut TcpStream, waiting: &VecDeque<Bytes>) -> io::Result<usize> {
    if let (1, Some(chunk)) = (waiting.len(), waiting.front()) {
        return stream.write(chunk);
    }
    let slices: Vec<IoSlice<'_>> = waiting.iter().take(SLICES_MAX).map(|chunk| IoSlice::new(chunk)).collect();
    stream.write_vectored(&slices)
}

fn skip(waiting: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(front) = waiting.front_mut() {
        if written < front.len() {
            front.advance(written);
            return;
        }
        written -= front.len();
        waiting.pop_front();
    }
}

enum ReadOutcome {
    Some { is_full: bool },
    Nothing,
    ConnectionEnd,
}

fn read_plain(
    stream: &mut TcpStream,
    scratch: &mut [u8],
    arrived: &mut Vec<Bytes>,
) -> io::Result<ReadOutcome> {
    match stream.read(scratch) {
        Ok(0) => Ok(ReadOutcome::ConnectionEnd),
        Ok(count) => {
            arrived.push(Bytes::copy_from_slice(&scratch[..count]));
            Ok(ReadOutcome::Some { is_full: count == scratch.len() })
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(ReadOutcome::Nothing),
        Err(error) => Err(error),
    }
}

fn read_encrypted(
    stream: &mut TcpStream,
    session: &mut TlsSession,
    scratch: &mut [u8],
    arrived: &mut Vec<Bytes>,
) -> io::Result<ReadOutcome> {
    match session.read_tls(stream) {
        Ok(0) => return Ok(ReadOutcome::ConnectionEnd),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(ReadOutcome::Nothing),
        Err(error) => return Err(error),
    }
    let state = session.process_new_packets().map_err(|error| {
        io::Error::new(ErrorKind::InvalidData, format!("{TLS_FAULT}{}", describe(&error)))
    })?;
    let mut left = state.plaintext_bytes_to_read();
    while left > 0 {
        let room = left.min(scratch.len());
        match session.reader().read(&mut scratch[..room]) {
            Ok(0) => break,
            Ok(count) => {
                arrived.push(Bytes::copy_from_slice(&scratch[..count]));
                left -= count;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    // A TLS session reads a few kilobytes at a time: only an empty socket ends the reading.
    if state.peer_has_closed() {
        Ok(ReadOutcome::ConnectionEnd)
    } else {
        Ok(ReadOutcome::Some { is_full: true })
    }
}
