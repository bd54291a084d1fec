//! A connection with several feeds: requests are sent without waiting, and responses are taken as they come.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::harness::client::Client;

const HEAD_BYTES: usize = 12;
const READ_BYTES: usize = 256 << 10;

/// The connection, and the bytes of responses that are not complete.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes at the beginning of the buffer that were taken.
    taken: usize,
    last_token: u64,
}

impl Connection {
    /// Connects; [`Connection::poll`] waits for `tick`.
    pub(super) fn open(address: SocketAddr, timeout: Duration, tick: Duration) -> Result<Connection> {
        let stream = Client::connect_for(address, timeout)?.into_stream();
        stream.set_read_timeout(Some(tick))?;
        Ok(Connection { stream, buffer: Vec::new(), taken: 0, last_token: 0 })
    }

    /// Sends a query; returns the token of its responses.
    pub(super) fn start(&mut self, query: &str) -> Result<u64> {
        self.last_token += 1;
        self.send(self.last_token, query)?;
        Ok(self.last_token)
    }

    /// Asks for more elements of a stream.
    pub(super) fn proceed(&mut self, token: u64) -> Result<()> {
        self.send(token, "[2]")
    }

    /// Ends a stream.
    pub(super) fn stop(&mut self, token: u64) -> Result<()> {
        self.send(token, "[3]")
    }

    fn send(&mut self, token: u64, body: &str) -> Result<()> {
        let mut frame = Vec::with_capacity(HEAD_BYTES + body.len());
        frame.extend(token.to_le_bytes());
        frame.extend(u32::try_from(body.len())?.to_le_bytes());
        frame.extend(body.as_bytes());
        Ok(self.stream.write_all(&frame)?)
    }

    /// The next response and its token, or `None` if there is none within a tick. Fails if the connection has ended.
    pub(super) fn poll(&mut self) -> Result<Option<(u64, Value)>> {
        loop {
            if let Some(response) = self.complete()? {
                return Ok(Some(response));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    fn complete(&mut self) -> Result<Option<(u64, Value)>> {
        let bytes = &self.buffer[self.taken..];
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let (token, length) = head.split_at(8);
        let length = u32::from_le_bytes(length.try_into()?) as usize;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let response = (u64::from_le_bytes(token.try_into()?), serde_json::from_slice(body)?);
        self.taken += HEAD_BYTES + length;
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
        }
        Ok(Some(response))
    }

    /// Whether more bytes have come.
    fn read(&mut self) -> Result<bool> {
        self.buffer.drain(..std::mem::take(&mut self.taken));
        let filled = self.buffer.len();
        self.buffer.resize(filled + READ_BYTES, 0);
        let read = self.stream.read(&mut self.buffer[filled..]);
        self.buffer.truncate(filled + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => bail!("the connection was closed"),
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
