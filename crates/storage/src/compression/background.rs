//! The threads of a compressed engine: one trains dictionaries, the other settles rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use engine::EngineError;
use foldhash::HashMap;
use io::task::{self, Receiver, Sender, Thread};

use super::settling::Settling;
use super::tables::{Compression, Training};
use crate::TableId;

/// The time after which the tables are looked at again.
const SETTLE_INTERVAL: Duration = Duration::from_secs(5);
/// A table to which more bytes are written in this time is not settled now.
const QUIET_BYTES_MAX: u64 = 1 << 20;
/// After each step, the settling thread pauses as long as the step took, but no longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The running threads.
pub(super) struct Background {
    trainings: Sender<Training>,
    stops: Arc<AtomicBool>,
    trainer: Thread,
    settler: Thread,
}

impl Background {
    pub(super) fn start(
        compression: &Arc<Compression>,
        settling: &Arc<Settling>,
    ) -> std::io::Result<Background> {
        let (trainings, receiver) = task::channel();
        let stops = Arc::<AtomicBool>::default();
        let (training, stopping) = (Arc::clone(compression), Arc::clone(&stops));
        let trainer = task::spawn("compression", move || train(&training, &receiver, &stopping))?;
        let settler = Settler {
            compression: Arc::clone(compression),
            settling: Arc::clone(settling),
            stops: Arc::clone(&stops),
            seen_bytes: HashMap::default(),
        };
        let settler = task::spawn("settling", move || settler.run())?;
        Ok(Background { trainings, stops, trainer, settler })
    }

    /// Trains a dictionary later.
    pub(super) fn train(&self, training: Training) {
        // The thread ends only when this sender is dropped.
        drop(self.trainings.send(training));
    }

    /// Has the threads end after the step that they are doing.
    pub(super) fn stop(&self) {
        self.stops.store(true, Relaxed);
        self.settler.unpark();
    }

    /// Waits until the threads have ended. [`Background::stop`] must have been called.
    pub(super) fn join(self) {
        drop(self.trainings);
        self.trainer.join();
        self.settler.join();
    }
}

fn train(compression: &Compression, trainings: &Receiver<Training>, stops: &AtomicBool) {
    while let Ok(training) = trainings.recv() {
        if stops.load(Relaxed) {
            return;
        }
        compression.run(training, || compression.engine.flush());
    }
}

/// The state of the thread that settles rows.
struct Settler {
    compression: Arc<Compression>,
    settling: Arc<Settling>,
    stops: Arc<AtomicBool>,
    /// The bytes written to each table when it was looked at last.
    seen_bytes: HashMap<TableId, u64>,
}

impl Settler {
    fn run(mut self) {
        loop {
            task::park_timeout(SETTLE_INTERVAL);
            if self.stops.load(Relaxed) {
                return;
            }
            // An engine that cannot be read or written refuses the next read or write, which reports it.
            drop(self.settle_tables());
        }
    }

    fn settle_tables(&mut self) -> Result<(), EngineError> {
        for table in self.settling.tables()? {
            let (seen_bytes, _) = self.compression.seen(table);
            let earlier = self.seen_bytes.insert(table, seen_bytes);
            if !earlier.is_some_and(|earlier| self.is_quiet(table, earlier)) {
                self.compression.settled.set_unsettled(table);
            }
            while earlier.is_some_and(|earlier| self.is_quiet(table, earlier)) && !self.stops.load(Relaxed) {
                let began = task::now();
                if !self.settling.step(table, || self.compression.engine.flush())? {
                    break;
                }
                task::park_timeout(task::now().duration_since(began).min(PAUSE_MAX));
            }
            // If the pass goes on later, the encoder is prepared again.
            self.compression.settled.end_archiving(table);
        }
        Ok(())
    }

    fn is_quiet(&self, table: TableId, earlier_bytes: u64) -> bool {
        self.compression.seen(table).0.saturating_sub(earlier_bytes) <= QUIET_BYTES_MAX
    }
}
