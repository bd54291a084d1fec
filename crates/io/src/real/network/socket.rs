//! One TCP connection, with TLS around it or without.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};

use bytes::{Buf, Bytes};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::Connection as TlsSession;

use super::tls::{Tls, told};
use crate::network::{Ends, TLS_FAULT};

/// What one read takes.
pub(super) const READ_BYTES: usize = 256 << 10;
/// Reads of one connection before others have their turn.
const READS_MAX: usize = 4;
/// Pieces that one gathering write takes.
const SLICES_MAX: usize = 64;
/// Bytes that are encrypted at a time.
const SEAL_BYTES: usize = 64 << 10;

/// What came of reading or writing.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing the party has to know.
    Nothing,
    /// There is more to read.
    More,
    /// The dialed connection stands.
    Connected,
    /// Everything that was given has left, and the party wanted to know.
    Drained,
    /// The connection is over.
    Over(String),
}

pub(super) struct Socket {
    stream: TcpStream,
    tls: Option<Box<TlsSession>>,
    stage: Stage,
    waiting: VecDeque<Bytes>,
    tell: bool,
    /// The other side has said that it is done, or the system that the connection is.
    pub(super) is_ending: bool,
    /// The party has closed it.
    pub(super) is_leaving: bool,
    has_shut: bool,
}

enum Stage {
    /// Dialing; if it fails these places are next.
    Dialing(Vec<SocketAddr>),
    Standing,
}

impl Socket {
    /// Dials the first of `places`, the others if that fails.
    pub(super) fn dial(mut places: Vec<SocketAddr>, tls: Option<&Tls>) -> io::Result<Socket> {
        places.reverse();
        let stream = dial_one(&mut places)?;
        let session = tls.map(Tls::client).transpose()?;
        Ok(Socket::new(stream, session, Stage::Dialing(places)))
    }

    /// A connection that somebody else dialed.
    pub(super) fn accepted(stream: TcpStream, tls: Option<&Tls>) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        let session = tls.map(Tls::server).transpose()?;
        Ok(Socket::new(stream, session, Stage::Standing))
    }

    fn new(stream: TcpStream, tls: Option<Box<TlsSession>>, stage: Stage) -> Socket {
        Socket {
            stream,
            tls,
            stage,
            waiting: VecDeque::new(),
            tell: false,
            is_ending: false,
            is_leaving: false,
            has_shut: false,
        }
    }

    /// Its addresses as the system sees them; empty where it does not know, as of a connection that has just ended.
    pub(super) fn ends(&self) -> Ends {
        // The scope of an address of a link is a number of this machine only.
        let shown = |at: io::Result<SocketAddr>| {
            at.map(|at| SocketAddr::new(at.ip(), at.port()).to_string()).unwrap_or_default()
        };
        Ends { here: shown(self.stream.local_addr()), there: shown(self.stream.peer_addr()) }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Adds bytes to those that wait to leave.
    pub(super) fn give(&mut self, bytes: Vec<Bytes>, tell: bool) {
        self.waiting.extend(bytes.into_iter().filter(|piece| !piece.is_empty()));
        self.tell |= tell;
    }

    /// Whether the connection does not stand yet.
    pub(super) fn is_dialing(&self) -> bool {
        matches!(self.stage, Stage::Dialing(_))
    }

    /// The system says that dialing has come to an end.
    pub(super) fn dialed(&mut self, registry: &Registry, token: Token) -> Progress {
        let Stage::Dialing(rest) = &mut self.stage else { return Progress::Nothing };
        let failed = match self.stream.take_error() {
            Ok(None) => match self.stream.peer_addr() {
                Ok(_) => None,
                // Not yet.
                Err(error) if error.kind() == ErrorKind::NotConnected => return Progress::Nothing,
                Err(error) => Some(error),
            },
            Ok(Some(error)) | Err(error) => Some(error),
        };
        let Some(error) = failed else {
            self.stage = Stage::Standing;
            // Only delays small messages; the connection is as good without.
            drop(self.stream.set_nodelay(true));
            return Progress::Connected;
        };
        let next = if rest.is_empty() { Err(error) } else { dial_one(rest) };
        let registered = next.and_then(|stream| {
            // A socket that is closed leaves the event queue by itself.
            self.stream = stream;
            self.register(registry, token)
        });
        match registered {
            Ok(()) => Progress::Nothing,
            Err(error) => Progress::Over(error.to_string()),
        }
    }

    /// Takes what has arrived, in pieces, up to a limit.
    pub(super) fn read(&mut self, scratch: &mut [u8], arrived: &mut Vec<Bytes>) -> Progress {
        if self.is_dialing() {
            return Progress::Nothing;
        }
        for _ in 0..READS_MAX {
            let read = match &mut self.tls {
                Some(session) => read_sealed(&mut self.stream, session, scratch, arrived),
                None => read_plain(&mut self.stream, scratch, arrived),
            };
            match read {
                // A read that was not filled has taken everything, unless an end stands behind it.
                Ok(Got::Some { is_full }) if is_full || self.is_ending => {}
                Ok(Got::Some { .. }) => return self.answer_handshake(),
                Ok(Got::Nothing) => return self.answer_handshake(),
                Ok(Got::End) => return Progress::Over(self.end()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // What TLS has to say of it helps the other side.
                    drop(self.write_sealed());
                    return Progress::Over(error.to_string());
                }
            }
        }
        Progress::More
    }

    /// Why there is nothing more to read.
    fn end(&self) -> String {
        let end = "the other side closed the connection";
        match self.tls.as_deref() {
            Some(TlsSession::Client(session)) if session.is_handshaking() => {
                format!("{TLS_FAULT}{end} at once: it seems that it does not use it, and this one does")
            }
            _ => end.to_owned(),
        }
    }

    /// A handshake of TLS may have something to send after it has read something.
    fn answer_handshake(&mut self) -> Progress {
        let wants_write = self.tls.as_ref().is_some_and(|session| session.wants_write());
        if wants_write { self.write() } else { Progress::Nothing }
    }

    /// Sends what waits, as far as the system takes it.
    pub(super) fn write(&mut self) -> Progress {
        if self.is_dialing() {
            return if self.is_leaving { Progress::Over(String::new()) } else { Progress::Nothing };
        }
        let had_to_tell = self.tell;
        let written = if self.tls.is_some() { self.write_sealed() } else { self.write_plain() };
        match written {
            Ok(true) if self.is_leaving => self.shut(),
            Ok(true) if had_to_tell => {
                self.tell = false;
                Progress::Drained
            }
            Ok(_) => Progress::Nothing,
            Err(error) => Progress::Over(error.to_string()),
        }
    }

    /// True once nothing waits.
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

    fn write_sealed(&mut self) -> io::Result<bool> {
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
            // Before the handshake is done the session would keep the bytes in a buffer of its own.
            if self.waiting.is_empty() || session.is_handshaking() {
                return Ok(self.waiting.is_empty());
            }
            let mut sealed = 0;
            while let Some(piece) = self.waiting.front_mut() {
                let part = piece.split_to(piece.len().min(SEAL_BYTES - sealed));
                session.writer().write_all(&part)?;
                sealed += part.len();
                if piece.is_empty() {
                    self.waiting.pop_front();
                }
                if sealed == SEAL_BYTES {
                    break;
                }
            }
        }
    }

    /// Says that nothing more will come. The connection goes once the other side has said so, too: closed
    /// earlier, bytes that still arrive would make the system throw away what was sent last.
    fn shut(&mut self) -> Progress {
        if self.has_shut {
            return Progress::Nothing;
        }
        self.has_shut = true;
        if let Some(session) = &mut self.tls {
            session.send_close_notify();
            drop(self.write_sealed());
        }
        match self.stream.shutdown(Shutdown::Write) {
            Ok(()) => Progress::Nothing,
            Err(error) => Progress::Over(error.to_string()),
        }
    }
}

fn dial_one(places: &mut Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    while let Some(place) = places.pop() {
        match TcpStream::connect(place) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Writes the first of the pieces that wait; there is at least one. One alone goes the shorter way through the kernel.
fn write_some(stream: &mut TcpStream, waiting: &VecDeque<Bytes>) -> io::Result<usize> {
    if let (1, Some(piece)) = (waiting.len(), waiting.front()) {
        return stream.write(piece);
    }
    let slices: Vec<IoSlice<'_>> = waiting.iter().take(SLICES_MAX).map(|piece| IoSlice::new(piece)).collect();
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

enum Got {
    Some { is_full: bool },
    Nothing,
    End,
}

fn read_plain(stream: &mut TcpStream, scratch: &mut [u8], arrived: &mut Vec<Bytes>) -> io::Result<Got> {
    match stream.read(scratch) {
        Ok(0) => Ok(Got::End),
        Ok(count) => {
            arrived.push(Bytes::copy_from_slice(&scratch[..count]));
            Ok(Got::Some { is_full: count == scratch.len() })
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Got::Nothing),
        Err(error) => Err(error),
    }
}

fn read_sealed(
    stream: &mut TcpStream,
    session: &mut TlsSession,
    scratch: &mut [u8],
    arrived: &mut Vec<Bytes>,
) -> io::Result<Got> {
    match session.read_tls(stream) {
        Ok(0) => return Ok(Got::End),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Got::Nothing),
        Err(error) => return Err(error),
    }
    let state = session
        .process_new_packets()
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("{TLS_FAULT}{}", told(&error))))?;
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
    // A session takes a few kilobytes at a time: only an empty socket ends the reading.
    if state.peer_has_closed() { Ok(Got::End) } else { Ok(Got::Some { is_full: true }) }
}
