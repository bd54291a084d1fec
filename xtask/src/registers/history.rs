//! What everybody asked and was told, as `tests/porcupine` reads it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::json;

/// What an operation asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Read,
    /// Set the value.
    Write(i64),
    /// Set the second value if the register holds the first.
    Swap(i64, i64),
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    /// A read's value; 0 for no row.
    Value(i64),
    /// Whether a write or swap was done.
    Done(bool),
    /// It may have happened, or happen yet.
    Unknown,
}

/// One operation, in nanoseconds since the history began.
pub(super) struct Operation {
    pub(super) key: usize,
    pub(super) client: usize,
    pub(super) asked: Asked,
    pub(super) told: Told,
    pub(super) called_at: u64,
    pub(super) answered_at: u64,
}

/// All operations.
pub(super) struct History {
    began: Instant,
    operations: Mutex<Vec<Operation>>,
}

impl History {
    pub(super) fn new() -> History {
        History { began: Instant::now(), operations: Mutex::default() }
    }

    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub(super) fn add(&self, operation: Operation) {
        self.operations.lock().push(operation);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.operations.lock().len()
    }

    /// One line of JSON for each operation.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("writing {}", path.display()))?;
        let mut lines = BufWriter::new(file);
        for one in self.operations.lock().iter() {
            let (kind, expected, mut value) = match one.asked {
                Asked::Read => ("read", 0, 0),
                Asked::Write(value) => ("write", 0, value),
                Asked::Swap(expected, value) => ("swap", expected, value),
            };
            let (mut done, mut answered_at) = (false, Some(one.answered_at));
            match one.told {
                Told::Value(seen) => value = seen,
                Told::Done(was) => done = was,
                Told::Unknown => answered_at = None,
            }
            let line = json!({
                "key": format!("k{}", one.key), "client": one.client, "kind": kind, "expected": expected,
                "value": value, "done": done, "call_ns": one.called_at, "return_ns": answered_at,
            });
            writeln!(lines, "{line}")?;
        }
        Ok(lines.flush()?)
    }
}
