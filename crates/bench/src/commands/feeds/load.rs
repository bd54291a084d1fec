//! Loads of writes, and feeds that are read meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::Context;

use crate::drive::session::{Driven, Plan};
use crate::feeds::subscribers::{Seen, Subscribers};

/// A load of writes, done.
pub(super) struct Load {
    pub(super) plan: Plan,
    pub(super) driven: Driven,
    /// Processor time of all servers, from before the first write until all changes had arrived and they were idle.
    pub(super) cpu_seconds: Option<f64>,
    /// How long the servers worked on after that; `None` if it cannot be seen.
    pub(super) busy_after_seconds: Option<f64>,
    /// Processor time of other programs meanwhile, as a share of one core.
    pub(super) others_core_share: Option<f64>,
}

impl Load {
    /// Acknowledged writes.
    pub(super) fn writes(&self) -> u64 {
        self.driven.totals.ok
    }

    /// Processor time of the servers per acknowledged write, in microseconds.
    pub(super) fn cpu_us_per_write(&self) -> Option<f64> {
        Some(self.cpu_seconds? * 1e6 / self.writes().max(1) as f64)
    }
}

/// Feeds that are read by another thread.
pub(super) struct Followed {
    thread: JoinHandle<anyhow::Result<Seen>>,
    stop: Arc<AtomicBool>,
    pub(super) progress: Arc<AtomicU64>,
}

impl Followed {
    /// Starts to read `subscribers`.
    pub(super) fn start(subscribers: Subscribers) -> anyhow::Result<Followed> {
        let (stop, progress) = (Arc::new(AtomicBool::new(false)), subscribers.progress());
        let thread = subscribers.follow(Arc::clone(&stop)).context("starting the thread of the feeds")?;
        Ok(Followed { thread, stop, progress })
    }

    /// Stops reading and closes the feeds.
    pub(super) fn end(self) -> anyhow::Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the thread of the feeds panicked"))?
    }
}

/// The parameters of a load.
#[derive(Clone, Copy)]
pub(super) struct LoadShape<'f> {
    pub(super) rate: f64,
    /// One write in this many matches a feed of a block; 0 for none.
    pub(super) match_every: u64,
    /// Feeds whose changes are awaited after the load, and how many of them follow the whole table.
    pub(super) followed: Option<(&'f Followed, u64)>,
}
