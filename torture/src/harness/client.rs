//! The smallest client of the wire protocol: V0_4, one query at a time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

const MAGIC_V0_4: u32 = 0x400c_2d20;
const WIRE_JSON: u32 = 0x7e69_70c7;
const RESPONSE_SECONDS_MAX: u64 = 60;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    token: u64,
}

impl Client {
    /// Connects as `admin` without a password to a node on the loopback.
    pub(crate) fn connect(port: u16) -> Result<Client> {
        Client::connect_for((Ipv4Addr::LOCALHOST, port).into(), Duration::from_secs(RESPONSE_SECONDS_MAX))
    }

    /// Connects to any node; a response that takes longer than `timeout` is an error.
    pub(crate) fn connect_for(address: SocketAddr, timeout: Duration) -> Result<Client> {
        let mut stream = TcpStream::connect_timeout(&address, timeout).context("connecting to the node")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        let mut hello = Vec::new();
        for word in [MAGIC_V0_4, 0, WIRE_JSON] {
            hello.extend(word.to_le_bytes());
        }
        stream.write_all(&hello)?;
        let mut response = [0; 8];
        stream.read_exact(&mut response)?;
        if &response != b"SUCCESS\0" {
            bail!("the node refused the connection: {}", String::from_utf8_lossy(&response));
        }
        Ok(Client { stream, token: 0 })
    }

    /// The connection itself, before any query.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Sends one START and returns its response.
    pub(crate) fn ask(&mut self, query: &str) -> Result<Value> {
        self.token += 1;
        self.exchange(query)
    }

    /// All rows of a query whose result is a stream.
    pub(crate) fn ask_all(&mut self, query: &str) -> Result<Vec<Value>> {
        let mut rows = Vec::new();
        let mut response = self.ask(query)?;
        loop {
            let more = match response["t"].as_u64() {
                Some(2) => false,
                Some(3) => true,
                _ => bail!("the query failed: {response}"),
            };
            if let Value::Array(batch) = response["r"].take() {
                rows.extend(batch);
            }
            if !more {
                return Ok(rows);
            }
            response = self.exchange("[2]")?;
        }
    }

    fn exchange(&mut self, body: &str) -> Result<Value> {
        let mut frame = Vec::with_capacity(12 + body.len());
        frame.extend(self.token.to_le_bytes());
        frame.extend(u32::try_from(body.len())?.to_le_bytes());
        frame.extend(body.as_bytes());
        self.stream.write_all(&frame)?;
        let mut head = [0; 12];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let mut response = vec![0; length as usize];
        self.stream.read_exact(&mut response)?;
        Ok(serde_json::from_slice(&response)?)
    }
}
