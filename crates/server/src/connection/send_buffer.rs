//! Responses that are not sent yet, in one contiguous buffer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use crate::worker_state::WorkerState;

/// Bytes to send. Uses the worker's shared write buffer while there are any.
#[derive(Default)]
pub struct SendBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl SendBuffer {
    /// The buffer to append frames to.
    pub fn bytes(&mut self, worker: &WorkerState) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = worker.take_write_buffer();
        }
        &mut self.bytes
    }

    /// Appends a frame that was encoded elsewhere.
    pub fn append(&mut self, frame: Vec<u8>, worker: &WorkerState) {
        if self.bytes.is_empty() && frame.len() > self.bytes.capacity() {
            self.bytes = frame;
        } else {
            self.bytes(worker).extend_from_slice(&frame);
        }
    }

    /// How many bytes the client has not taken yet.
    pub fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The memory in use, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Sends as much as the client accepts. Ready when nothing is left; counts the sent bytes.
    pub fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
        worker: &WorkerState,
    ) -> Poll<io::Result<()>> {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let count = ready!(Pin::new(&mut *stream).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
            worker.counters.bytes_out.fetch_add(count as u64, std::sync::atomic::Ordering::Relaxed);
        }
        if self.sent > 0 {
            // A TLS stream may have buffered the accepted bytes.
            ready!(Pin::new(&mut *stream).poll_flush(cx))?;
            self.sent = 0;
            worker.return_write_buffer(std::mem::take(&mut self.bytes));
        }
        Poll::Ready(Ok(()))
    }
}
