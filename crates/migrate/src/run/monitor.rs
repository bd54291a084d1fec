//! A look every second: the progress, the state, and while the source is followed the status.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;

use super::prepare::store;
use crate::error::MigrateError;
use crate::follow::{lag, last_change};
use crate::progress::Display;
use crate::report::Output;
use crate::server::Stop;
use crate::state::{State, StateDirectory};
use crate::status::{self, Status};
use crate::table::Table;

const LOOK: Duration = Duration::from_millis(1000);
/// While the source is followed: `cut-over` waits for these.
const STATUS_LOOK: Duration = Duration::from_millis(250);

/// The observer of a run.
pub(super) struct Monitor<'a> {
    pub(super) tables: &'a [Arc<Table>],
    pub(super) directory: &'a StateDirectory,
    pub(super) state: &'a Mutex<State>,
    pub(super) output: Output,
    pub(super) follows: bool,
    /// Whether indexes, users and permissions are made too.
    pub(super) rest_made: &'a AtomicBool,
    /// Requested once the work is over.
    pub(super) over: &'a Stop,
}

impl Monitor<'_> {
    /// Looks until the work is over. Fails if a file cannot be written.
    pub(super) fn run(&self) -> Result<(), MigrateError> {
        let mut display = Display::new(self.follows);
        let (mut last_look, mut beat) = (Instant::now(), 0);
        let began = Instant::now();
        while !self.over.is_requested() {
            self.over.pause(if self.follows { STATUS_LOOK } else { LOOK });
            if self.follows {
                beat += 1;
                status::write(self.directory.path(), &self.status(beat, began))?;
            }
            if last_look.elapsed() >= LOOK {
                let objects = display.look(self.tables, last_look.elapsed(), self.output == Output::Lines);
                if self.output == Output::Json {
                    self.output.result("progress", &[], json!({"tables": objects}));
                }
                last_look = Instant::now();
                self.save()?;
            }
        }
        self.save()
    }

    /// Stores how far all tables are. Fails if the file cannot be written.
    pub(super) fn save(&self) -> Result<(), MigrateError> {
        let mut state = self.state.lock();
        let before = state.clone();
        store(self.tables, &mut state);
        if *state != before {
            self.directory.save(&state)?;
        }
        Ok(())
    }

    fn status(&self, beat: u64, began: Instant) -> Status {
        let last = last_change(self.tables);
        let (changes, losses) = counts(self.tables);
        Status {
            beat,
            process: std::process::id(),
            following: self.rest_made.load(Ordering::Acquire) && all_following(self.tables),
            lag: lag(self.tables),
            changes,
            losses,
            quiet_ms: last.map_or(began, |(at, _)| at).elapsed().as_millis().try_into().unwrap_or(u64::MAX),
            last_table: last.map(|(_, table)| table.facts.name.to_string()).unwrap_or_default(),
        }
    }
}

/// Changes that came on the feeds of all tables, and how often feeds ended or skipped changes.
pub(super) fn counts(tables: &[Arc<Table>]) -> (u64, u64) {
    let gates = tables.iter().map(|table| table.gate().counts());
    gates.fold((0, 0), |sum, counts| (sum.0 + counts.received, sum.1 + counts.losses))
}

/// Whether all rows of all tables are there and their feeds are open. Tables that the source has dropped do not count.
pub(super) fn all_following(tables: &[Arc<Table>]) -> bool {
    tables.iter().all(|table| is_following(table))
}

fn is_following(table: &Table) -> bool {
    let gate = table.gate();
    gate.is_dropped() || (gate.is_complete() && gate.is_feed_open())
}
