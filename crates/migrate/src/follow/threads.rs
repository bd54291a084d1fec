//! The threads of all feeds.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::apply::Writer;
use super::budget::ByteBudget;
use super::feed::Feed;
use crate::error::MigrateError;
use crate::server::{Server, Stop};
use crate::table::Table;

/// Bytes of changes on their way.
const BYTES_MAX: i64 = 48 << 20;
/// Parcels between two threads.
const PARCELS_MAX: usize = 64;

/// Running feeds.
pub struct Followers {
    threads: Vec<JoinHandle<Result<(), MigrateError>>>,
    /// Ends the feeds; the writers end once every change that came is in the target.
    ends: Stop,
}

impl Followers {
    /// Opens a feed of each table, and writes its changes, until the end is requested. Fails if threads cannot be started.
    pub fn start(
        tables: &[Arc<Table>],
        source: &Server,
        target: &Server,
        stop: &Stop,
    ) -> Result<Followers, MigrateError> {
        let budget = Arc::new(ByteBudget::new(BYTES_MAX));
        let (mut threads, ends) = (Vec::new(), Stop::default());
        for table in tables {
            let (sender, parcels) = sync_channel(PARCELS_MAX);
            let (of_feed, of_writer) = (Shared::new(table, &budget, stop), Shared::new(table, &budget, stop));
            let (source, line, ends) = (source.clone(), target.line(), ends.clone());
            threads.push(spawn(move || {
                let Shared { table, budget, stop } = of_feed;
                let (table, source, budget, parcels) = (&table, &source, &budget, sender);
                let feed = Feed { table, source, stop: &stop, ends: &ends, budget, parcels };
                ended(feed.run(), &stop)
            })?);
            threads.push(spawn(move || {
                let Shared { table, budget, stop } = of_writer;
                let writer = Writer { table: &table, target: line, stop: &stop, budget: &budget, parcels };
                ended(writer.run(), &stop)
            })?);
        }
        Ok(Followers { threads, ends })
    }

    /// Ends the feeds and waits until the changes that came are written, unless the end of everything was requested. Fails with the
    /// first thread's error.
    pub fn end(self) -> Result<(), MigrateError> {
        self.ends.request();
        let mut first = Ok(());
        for thread in self.threads {
            let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            first = std::mem::replace(&mut first, Ok(())).and(outcome);
        }
        first
    }
}

struct Shared {
    table: Arc<Table>,
    budget: Arc<ByteBudget>,
    stop: Stop,
}

impl Shared {
    fn new(table: &Arc<Table>, budget: &Arc<ByteBudget>, stop: &Stop) -> Shared {
        Shared { table: Arc::clone(table), budget: Arc::clone(budget), stop: stop.clone() }
    }
}

/// An error of one thread ends all.
fn ended(outcome: Result<(), MigrateError>, stop: &Stop) -> Result<(), MigrateError> {
    if outcome.is_err() {
        stop.request();
    }
    outcome
}

fn spawn(
    work: impl FnOnce() -> Result<(), MigrateError> + Send + 'static,
) -> Result<JoinHandle<Result<(), MigrateError>>, MigrateError> {
    const STACK_BYTES: usize = 1 << 20;
    let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    started.map_err(|source| MigrateError::File { path: "starting a thread".into(), source })
}

/// Changes that came and are not in the target yet, of all tables.
pub fn lag(tables: &[Arc<Table>]) -> u64 {
    tables.iter().map(|table| table.gate().pending()).sum()
}

/// The time of the last change that came, and its table.
pub fn last_change(tables: &[Arc<Table>]) -> Option<(Instant, &Table)> {
    tables.iter().filter_map(|table| Some((table.last_change()?, table.as_ref()))).max_by_key(|(at, _)| *at)
}
