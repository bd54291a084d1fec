//! Which acknowledgements the system sends on its own: it can delay them so that a response carries them.
//!
//! Linux delays the acknowledgement of received data so that a response can carry it. After a response took longer than
//! that delay, Linux acknowledges data as soon as it is read, with a separate packet that costs as much as a response
//! (`tcp(7)`, `TCP_QUICKACK`), until responses are fast again.

use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// How long Linux delays an acknowledgement. The time starts when the query arrives, which may be before it is read.
pub const DELAYED_ACK_TIMEOUT: Duration = Duration::from_millis(40);

/// A connection whose acknowledgements can be delayed.
pub trait DelayedAck {
    /// Lets the response carry the acknowledgement of the next data, if it is sent soon enough, even after a slow one.
    fn delay_acks(&self);
}

impl DelayedAck for TcpStream {
    fn delay_acks(&self) {
        #[cfg(target_os = "linux")]
        // A failure costs additional packets, nothing else.
        drop(self.set_quickack(false));
    }
}

/// No packets: the other end is in this process.
impl DelayedAck for DuplexStream {
    fn delay_acks(&self) {}
}

impl DelayedAck for TlsStream<TcpStream> {
    fn delay_acks(&self) {
        self.get_ref().0.delay_acks();
    }
}
