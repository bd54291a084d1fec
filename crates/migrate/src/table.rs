//! A table on its way, shared by readers, its feed and the writer of its changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::coverage::Task;
use crate::gate::Gate;
use crate::key::{Bound, Key};
use crate::queries::{HookUse, ReadMode, TableName};
use crate::server::Stop;
use crate::split::middle;

/// Refused rows that are named; more are only counted.
const REFUSED_NAMED_MAX: usize = 100;
/// How long a reader waits for a batch on its way, at a time.
const BATCH_WAIT: Duration = Duration::from_millis(200);

/// A row that the target did not take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedRow {
    /// JSON of its key.
    pub key: String,
    pub why: String,
}

/// The fixed facts of a table.
#[derive(Clone, Debug)]
pub struct TableFacts {
    pub name: TableName,
    pub primary_key: String,
    pub source_id: String,
    pub target_id: String,
    /// Rows that only the target has stay.
    pub keeps_extra: bool,
    /// An earlier run has made the table, and may have written rows that its state does not have.
    pub was_begun: bool,
    /// Of the target.
    pub hook: HookUse,
    pub read_mode: ReadMode,
    /// The estimate of the source.
    pub rows_expected: u64,
    /// The smallest and the greatest key when the run began, to divide ranges.
    pub edges: Option<(Key, Key)>,
}

/// Counts of rows, in all runs together.
#[derive(Debug, Default)]
pub struct Done {
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    /// Rows made equal by comparing, in this run.
    pub mended: AtomicU64,
    pub refused: AtomicU64,
}

/// A table and its shared state.
#[derive(Debug)]
pub struct Table {
    pub facts: TableFacts,
    pub done: Done,
    gate: Mutex<Gate>,
    changed: Condvar,
    named: Mutex<Vec<RefusedRow>>,
    /// When the last change came.
    last_change: Mutex<Option<Instant>>,
}

impl Table {
    pub fn new(facts: TableFacts, gate: Gate) -> Table {
        Table {
            facts,
            done: Done::default(),
            gate: Mutex::new(gate),
            changed: Condvar::new(),
            named: Mutex::default(),
            last_change: Mutex::default(),
        }
    }

    pub fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock()
    }

    /// Tells waiting readers that the gate has changed.
    pub fn notify(&self) {
        self.changed.notify_all();
    }

    /// A segment for a reader, once no batch from before is on its way.
    pub fn take(&self, stop: &Stop) -> Option<Task> {
        let mut gate = self.gate.lock();
        let task = gate.take()?;
        while gate.is_writing() && !stop.is_requested() {
            self.changed.wait_for(&mut gate, BATCH_WAIT);
        }
        Some(task)
    }

    /// A reader has written its chunk up to `end`; returns its next task. `divides`: other readers are idle.
    pub fn finish_chunk(&self, start: &Bound, end: &Bound, divides: bool) -> Option<Task> {
        let place = |task: &Task| divides.then(|| self.middle_of(task)).flatten();
        let next = self.gate.lock().finish_chunk(start, end, place);
        self.notify();
        next
    }

    pub fn release(&self, start: &Bound) {
        self.gate.lock().release(start);
        self.notify();
    }

    /// A key in the middle of the rest of a reader's segment.
    fn middle_of(&self, task: &Task) -> Option<Key> {
        let (first, last) = self.facts.edges.as_ref()?;
        let low = match &task.range.start {
            Bound::After(key) => key,
            _ => first,
        };
        let high = match &task.range.end {
            Bound::After(key) => key,
            _ => last,
        };
        middle(low, high)
    }

    pub fn add_copied(&self, rows: u64, bytes: u64) {
        self.done.rows.fetch_add(rows, Ordering::Relaxed);
        self.done.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn add_refused(&self, row: RefusedRow) {
        self.done.refused.fetch_add(1, Ordering::Relaxed);
        let mut named = self.named.lock();
        if named.len() < REFUSED_NAMED_MAX {
            named.push(row);
        }
    }

    /// The first refused rows of this run.
    pub fn refused_rows(&self) -> Vec<RefusedRow> {
        self.named.lock().clone()
    }

    /// Notes, and says once, that the source has dropped the table.
    pub fn drop_at_source(&self) {
        if self.gate().drop_at_source() {
            eprintln!(
                "{}: the source has dropped this table: it is not followed any more, and the target keeps its copy",
                self.facts.name
            );
        }
        self.notify();
    }

    pub fn note_change(&self) {
        *self.last_change.lock() = Some(Instant::now());
    }

    pub fn last_change(&self) -> Option<Instant> {
        *self.last_change.lock()
    }
}
