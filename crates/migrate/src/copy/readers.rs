//! The threads that copy and compare, and the order in which they take segments of many tables.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::chunk::{Lines, copy, mend};
use crate::coverage::{Task, Work};
use crate::error::MigrateError;
use crate::rate::{Rate, Throttle};
use crate::server::{Server, Stop};
use crate::table::Table;

/// Between two looks for work.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

/// What readers need.
#[derive(Clone, Debug)]
pub struct Readers {
    pub count: usize,
    pub source: Server,
    pub target: Server,
    pub rate: Option<Rate>,
    /// Readers wait for ranges to compare until the end is requested; otherwise they end when everything is done.
    pub stays: bool,
}

/// Works until all tables are done, or until the end is requested. Fails with the first reader's error, which ends the others.
pub fn run_readers(readers: &Readers, tables: &[Arc<Table>], stop: &Stop) -> Result<(), MigrateError> {
    let shared = Shared {
        readers,
        tables,
        stop,
        throttle: readers.rate.map(|rate| Mutex::new(Throttle::new(rate))),
        began: Instant::now(),
        idle: AtomicUsize::new(0),
        turn: AtomicUsize::new(0),
    };
    let mut first = Ok(());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..readers.count).map(|_| scope.spawn(|| shared.work())).collect();
        for thread in threads {
            let outcome = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            first = std::mem::replace(&mut first, Ok(())).and(outcome);
        }
    });
    first
}

struct Shared<'a> {
    readers: &'a Readers,
    tables: &'a [Arc<Table>],
    stop: &'a Stop,
    throttle: Option<Mutex<Throttle>>,
    began: Instant,
    /// Readers without work.
    idle: AtomicUsize,
    /// The table at which the next search begins, so that all tables have readers.
    turn: AtomicUsize,
}

impl Shared<'_> {
    fn work(&self) -> Result<(), MigrateError> {
        let (source, target) = (self.readers.source.line(), self.readers.target.line());
        let mut lines = Lines::new(source, target, self.readers.rate, self.readers.count);
        while let Some((table, task)) = self.next() {
            let outcome = self.work_on(&mut lines, table, task);
            if outcome.is_err() {
                self.stop.request();
                return outcome;
            }
        }
        Ok(())
    }

    fn next(&self) -> Option<(&Table, Task)> {
        let found = self.search();
        if found.is_some() || self.is_over() {
            return found;
        }
        self.idle.fetch_add(1, Ordering::Relaxed);
        let found = loop {
            self.stop.pause(IDLE_PAUSE);
            let found = self.search();
            if found.is_some() || self.is_over() {
                break found;
            }
        };
        self.idle.fetch_sub(1, Ordering::Relaxed);
        found
    }

    fn search(&self) -> Option<(&Table, Task)> {
        if self.stop.is_requested() {
            return None;
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        (0..self.tables.len()).find_map(|i| {
            let table = &self.tables[first.wrapping_add(i) % self.tables.len()];
            table.take(self.stop).map(|task| (table.as_ref(), task))
        })
    }

    fn is_over(&self) -> bool {
        let all_done = || self.tables.iter().all(|table| table.gate().is_complete());
        self.stop.is_requested() || (!self.readers.stays && all_done())
    }

    fn work_on(&self, lines: &mut Lines, table: &Table, task: Task) -> Result<(), MigrateError> {
        let mut next = Some(task);
        while let Some(task) = next {
            let start = &task.range.start;
            if self.stop.is_requested() {
                table.release(start);
                return Ok(());
            }
            let outcome = match task.work {
                Work::Copy => copy(lines, self.stop, table, &task.range),
                Work::Compare => mend(lines, self.stop, table, &task.range),
            };
            if self.readers.stays
                && let Err(error) = &outcome
                && error.is_dropped_at_source()
            {
                table.drop_at_source();
            }
            if table.gate().is_dropped() {
                table.release(start);
                return Ok(());
            }
            let (end, cost) = outcome.inspect_err(|_| table.release(start))?;
            let divides = self.idle.load(Ordering::Relaxed) > 0;
            next = table.finish_chunk(start, &end, divides);
            if let Some(throttle) = &self.throttle {
                let wait = throttle.lock().take(cost.rows, cost.bytes, self.began.elapsed());
                self.stop.pause(wait);
            }
        }
        Ok(())
    }
}
