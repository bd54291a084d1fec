//! Statistics of each server's links, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Statistics of the links to one server since this process began. All but the last two only grow.
#[derive(Debug, Default)]
pub struct PeerStats {
    /// Bytes received, before TLS.
    pub bytes_in: AtomicU64,
    /// Bytes handed to the network, before TLS.
    pub bytes_out: AtomicU64,
    /// Frames received.
    pub frames_in: AtomicU64,
    /// Frames handed to the network.
    pub frames_out: AtomicU64,
    /// Requests received from the other server.
    pub requests_in: AtomicU64,
    /// Requests sent to it.
    pub requests_out: AtomicU64,
    /// Requests sent to it that had no response.
    pub requests_failed: AtomicU64,
    /// Replication messages received.
    pub log_messages_in: AtomicU64,
    /// Replication messages handed to the network.
    pub log_messages_out: AtomicU64,
    /// Replication messages dropped, because there was no link or the queue was full.
    pub log_messages_dropped: AtomicU64,
    /// How often a link was opened; the number of reconnections is one less.
    pub links: AtomicU64,
    pub queue_bytes: AtomicU64,
    /// 1 while there is a link and the server is not silent.
    pub is_connected: AtomicU64,
}

impl PeerStats {
    /// Adds to one of the counters. Only for the thread that drives the links: counters have one writer.
    pub(super) fn add(counter: &AtomicU64, by: usize) {
        counter.store(counter.load(Relaxed) + by as u64, Relaxed);
    }
}
