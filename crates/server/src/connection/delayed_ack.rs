//! How the system acknowledges what a client sends: with the answer, or by itself.
//!
//! Linux waits for an answer to carry the acknowledgement. Where none came for a while it acknowledges what comes next the
//! moment it is read, with a packet of its own that costs as much as an answer (`tcp(7)`, `TCP_QUICKACK`), until an
//! answer has come soon.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// How long Linux waits. It begins when the query arrives, which may be before it is read.
pub const DELAYED_ACK_TIMEOUT: Duration = Duration::from_millis(40);

/// A connection on which the system acknowledges what arrives.
pub trait DelayedAck {
    /// What arrives next is acknowledged with its answer if that comes soon, whatever was before.
    fn delay_acks(&self);
}

impl DelayedAck for TcpStream {
    fn delay_acks(&self) {
        #[cfg(target_os = "linux")]
        // Without it there are more packets, and nothing else.
        drop(self.set_quickack(false));
    }
}

impl DelayedAck for TlsStream<TcpStream> {
    fn delay_acks(&self) {
        self.get_ref().0.delay_acks();
    }
}
