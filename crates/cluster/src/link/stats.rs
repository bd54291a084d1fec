//! What is counted for each server, for metrics. Written by who drives the links alone.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Figures of the links to one server since this process began. All but the last two only grow.
#[derive(Debug, Default)]
pub struct PeerStats {
    /// Bytes that arrived, before TLS.
    pub bytes_in: AtomicU64,
    /// Bytes handed to the network, before TLS.
    pub bytes_out: AtomicU64,
    /// Frames that arrived.
    pub frames_in: AtomicU64,
    /// Frames handed to the network.
    pub frames_out: AtomicU64,
    /// Questions the other server asked.
    pub questions_in: AtomicU64,
    /// Questions asked of it.
    pub questions_out: AtomicU64,
    /// Questions asked of it that had no answer.
    pub questions_failed: AtomicU64,
    /// LogMessages that arrived.
    pub letters_in: AtomicU64,
    /// LogMessages handed to the network.
    pub letters_out: AtomicU64,
    /// LogMessages that found no link or no room.
    pub letters_dropped: AtomicU64,
    /// How often a link has opened: one less is how often it had to be opened again.
    pub links: AtomicU64,
    /// Bytes that wait to leave.
    pub queue_bytes: AtomicU64,
    /// 1 while there is a link and the server is not silent.
    pub is_connected: AtomicU64,
}

impl PeerStats {
    /// Adds to one of the figures. Only who drives the party does, one at a time.
    pub(super) fn add(counter: &AtomicU64, by: usize) {
        counter.store(counter.load(Relaxed) + by as u64, Relaxed);
    }
}
