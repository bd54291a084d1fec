//! TCP. A message is its length in four bytes, little-endian, and its bytes.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};

use crate::{Connection, Listener, Network};

/// The largest message accepted, so that four bad bytes cannot ask for all memory.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// TCP between machines.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealNetwork;

struct RealListener(TcpListener);

struct RealConnection {
    stream: TcpStream,
    // One frame at a time in each direction.
    sending: Mutex<Vec<u8>>,
    receiving: Mutex<()>,
}

impl Network for RealNetwork {
    fn listen(&self, address: &str) -> Result<Box<dyn Listener>> {
        Ok(Box::new(RealListener(TcpListener::bind(address)?)))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Connection>> {
        RealConnection::start(TcpStream::connect(address)?)
    }
}

impl Listener for RealListener {
    fn accept(&self) -> Result<Box<dyn Connection>> {
        RealConnection::start(self.0.accept()?.0)
    }

    fn address(&self) -> String {
        self.0.local_addr().map(|address| address.to_string()).unwrap_or_default()
    }
}

impl RealConnection {
    fn start(stream: TcpStream) -> Result<Box<dyn Connection>> {
        stream.set_nodelay(true)?;
        Ok(Box::new(RealConnection { stream, sending: Mutex::default(), receiving: Mutex::default() }))
    }
}

impl Connection for RealConnection {
    fn send(&self, message: &[u8]) -> Result<()> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(Error::from(ErrorKind::InvalidInput));
        }
        let mut frame = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        frame.clear();
        frame.extend_from_slice(&(message.len() as u32).to_le_bytes());
        frame.extend_from_slice(message);
        (&self.stream).write_all(&frame)
    }

    fn receive(&self) -> Result<Option<Vec<u8>>> {
        let _one_reader = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut len_bytes = [0; 4];
        match (&self.stream).read_exact(&mut len_bytes) {
            Ok(()) => {}
            Err(cause) if cause.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(cause) => return Err(cause),
        }
        let len = u32::from_le_bytes(len_bytes) as usize;
        if len > MESSAGE_BYTES_MAX {
            return Err(Error::from(ErrorKind::InvalidData));
        }
        let mut message = vec![0; len];
        (&self.stream).read_exact(&mut message)?;
        Ok(Some(message))
    }

    fn close(&self) {
        // The other side may have closed first; either way the connection is over.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
