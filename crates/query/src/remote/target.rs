//! The target of requests for a shard, and for how long a query retries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{GroupId, Route, ServerId, ShardHandle};
use datum::{KeyBound, KeyRange, PrimaryKey};
use reql::EvalError;
use shard::Shard;

use crate::context::Cx;
use crate::routing::{LEADER_LOOKUP_TIMEOUT, ReadMode, backoff_after};
use crate::service::Service;
use crate::table::StoredTable;

/// A leader must be confirmed by a quorum within this time. A log that makes no progress never learns of another
/// leader, and the wait holds a thread.
const LEADER_CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(5);

/// An attempt uses up at least this much of the budget.
const ATTEMPT_COST_MIN: Duration = Duration::from_millis(5);

/// Where a shard is.
pub(crate) enum Target<'a> {
    /// In this process.
    Local(&'a Arc<Shard>),
    /// On another node.
    Remote(ServerId),
}

impl<'a> From<Route<'a>> for Target<'a> {
    fn from(route: Route<'a>) -> Target<'a> {
        match route {
            Route::Local(local) => Target::Local(local),
            Route::Remote(server) => Target::Remote(server),
        }
    }
}

impl Service {
    /// The leader of `shard`, for writes and for reads that must be up to date. `None` while no leader is known.
    pub(crate) fn leader<'a>(&self, shard: &'a ShardHandle) -> Option<Target<'a>> {
        if let Some(server) = self.remote_calls().forced_target(shard.range()) {
            return Some(Target::Remote(server));
        }
        shard.leader().map(Target::from)
    }

    /// Whether a leader of `shard` is known and can be reached: a replica without a vote still names the last leader
    /// when that is gone.
    pub(crate) fn is_led(&self, shard: &ShardHandle) -> bool {
        match self.leader(shard) {
            Some(Target::Local(_)) => true,
            Some(Target::Remote(server)) => self.remote_calls().is_connected(server),
            None => false,
        }
    }

    /// The timeout for a lookup of the leader of `shard`.
    pub(crate) fn lookup_timeout(&self, shard: &ShardHandle) -> Duration {
        self.leader_lookup.leaderless.timeout(shard.group(), self.is_led(shard))
    }

    /// Records that such a lookup has reached its timeout.
    pub(crate) fn note_failed_lookup(&self, shard: &ShardHandle) {
        self.leader_lookup.leaderless.note_failed_lookup(shard.group(), self.is_led(shard));
    }

    /// As [`Service::reader`], for the first attempt of a read of one row.
    pub(crate) fn first_reader<'a>(&self, shard: &'a ShardHandle, mode: ReadMode) -> Option<Target<'a>> {
        if mode != ReadMode::Outdated || self.remote_calls().forced_target(shard.range()).is_some() {
            return self.reader(shard, mode);
        }
        let reader = shard.reader(|server| self.failover.is_responding(server)).map(Target::from);
        reader.or_else(|| self.reader(shard, mode))
    }

    /// A replica that may serve reads of `mode`.
    pub(crate) fn reader<'a>(&self, shard: &'a ShardHandle, mode: ReadMode) -> Option<Target<'a>> {
        if let Some(server) = self.remote_calls().forced_target(shard.range()) {
            return Some(Target::Remote(server));
        }
        match mode {
            ReadMode::Single | ReadMode::Majority => self.leader(shard),
            ReadMode::Outdated => {
                let nearest = shard.nearest(|server| self.failover.is_responding(server));
                nearest
                    .or_else(|| shard.nearest(|server| self.remote_calls().is_connected(server)))
                    .map(Target::from)
            }
            // The query wants the local state, if there is one.
            ReadMode::DebugDirect => match shard.local() {
                Some(local) => Some(Target::Local(local)),
                None => self.leader(shard),
            },
        }
    }
}

/// Which local shards are confirmed to be led here, each checked once. Only linearizable reads need that.
pub(crate) struct LeaderConfirmations {
    mode: ReadMode,
    known: Vec<(GroupId, bool)>,
}

impl LeaderConfirmations {
    /// Without confirmations yet.
    pub fn new(mode: ReadMode) -> LeaderConfirmations {
        LeaderConfirmations { mode, known: Vec::new() }
    }

    /// Whether `shard` may be read now. A linearizable read needs a quorum to confirm the leader, which blocks for some
    /// seconds at most. If that fails, the shard must be looked up again.
    pub fn may_read(&mut self, shard: &Shard) -> bool {
        if self.mode != ReadMode::Majority {
            return true;
        }
        if let Some((_, is_confirmed)) = self.known.iter().find(|(group, _)| *group == shard.group()) {
            return *is_confirmed;
        }
        let is_confirmed =
            shard.confirm().wait_for(LEADER_CONFIRMATION_TIMEOUT).is_ok_and(|confirmed| confirmed.is_ok());
        self.known.push((shard.group(), is_confirmed));
        is_confirmed
    }
}

/// The time that is left for a query to reach its shards.
pub(crate) struct RetryBudget {
    remaining: Duration,
    attempts: u32,
}

impl RetryBudget {
    /// The full budget.
    pub fn new() -> RetryBudget {
        RetryBudget { remaining: LEADER_LOOKUP_TIMEOUT, attempts: 0 }
    }

    /// A copy of the rest of the budget, for another reader.
    pub fn remaining(&self) -> RetryBudget {
        RetryBudget { remaining: self.remaining, attempts: self.attempts }
    }

    /// Takes the time of a failed request from the budget.
    pub fn spend(&mut self, time: Duration) {
        self.remaining = self.remaining.saturating_sub(time);
    }

    /// Waits a little, while `range` of `table` may become available; false when the budget is used up. The first time
    /// it only waits for changes that are under way.
    pub fn wait(&mut self, cx: &Cx, table: &StoredTable, range: &KeyRange) -> Result<bool, EvalError> {
        cx.check_cancel()?;
        let (service, gone) = (&cx.service, LEADER_LOOKUP_TIMEOUT.saturating_sub(self.remaining));
        let shards =
            || table.handle.shards().iter().filter(|shard| !shard.range().intersect(range).is_empty());
        if self.remaining.is_zero() || shards().any(|shard| gone >= service.lookup_timeout(shard)) {
            shards().for_each(|shard| service.note_failed_lookup(shard));
            return Ok(false);
        }
        let (backoff, began) = (backoff_after(self.attempts), Instant::now());
        // Changes of the configuration that fail may follow one another without end.
        cx.node().await_change();
        std::thread::sleep(backoff);
        self.attempts += 1;
        self.remaining = self.remaining.saturating_sub(began.elapsed().max(ATTEMPT_COST_MIN));
        cx.check_cancel()?;
        Ok(true)
    }
}

/// `table` as the catalog has it now, after a lookup of its leaders, which uses `budget`. Fails if the table was
/// dropped.
pub(crate) fn refreshed(
    cx: &Cx,
    table: &StoredTable,
    budget: &mut RetryBudget,
) -> Result<StoredTable, EvalError> {
    let (db, name) = (&table.handle.db.name, &table.handle.config.name);
    let found = cx.node().catalog_guard().table_by_id(table.handle.config.id).cloned();
    match found {
        Some(handle) => {
            let table = StoredTable { handle, read_mode: table.read_mode };
            let began = Instant::now();
            cx.service.leader_lookup.look_up_table(&table.handle);
            budget.spend(began.elapsed());
            Ok(table)
        }
        None => Err(EvalError::op_failed(format!("Table `{db}.{name}` does not exist."))),
    }
}

/// The error of a range that cannot be read.
pub(crate) fn unreadable(range: &KeyRange, mode: ReadMode) -> EvalError {
    match mode {
        ReadMode::Outdated | ReadMode::DebugDirect => {
            EvalError::op_failed("Cannot perform read: no replica is available")
        }
        ReadMode::Single | ReadMode::Majority => {
            let range = show(range);
            EvalError::op_failed(format!(
                "Cannot perform read: primary replica for shard {range} not available"
            ))
        }
    }
}

/// The error of a range that cannot be written to; nothing was written.
pub(crate) fn unwritable(range: &KeyRange) -> EvalError {
    let range = show(range);
    EvalError::op_failed(format!("Cannot perform write: primary replica for shard {range} not available"))
}

/// The error of a write whose outcome is unknown.
pub(crate) fn lost_contact() -> EvalError {
    EvalError::op_indeterminate("Cannot perform write: lost contact with primary replica")
}

/// A range as messages show it: `["", +inf)`.
fn show(range: &KeyRange) -> String {
    let key = |key: &PrimaryKey| key.decode().to_json_string();
    let start = match &range.start {
        KeyBound::Unbounded => "[\"\"".to_owned(),
        KeyBound::Included(start) => format!("[{}", key(start)),
        KeyBound::Excluded(start) => format!("({}", key(start)),
    };
    let end = match &range.end {
        KeyBound::Unbounded => "+inf)".to_owned(),
        KeyBound::Included(end) => format!("{}]", key(end)),
        KeyBound::Excluded(end) => format!("{})", key(end)),
    };
    format!("{start}, {end}")
}

/// Ranges in the order of their keys, with adjacent ones merged.
pub(crate) fn joined_ranges(ranges: &[KeyRange]) -> Vec<KeyRange> {
    let mut out: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut().and_then(|last| Some((joined(last, range)?, last))) {
            Some((both, last)) => *last = both,
            None => out.push(range.clone()),
        }
    }
    out
}

/// Two adjacent ranges as one; `None` when there is a gap between them.
pub(crate) fn joined(first: &KeyRange, second: &KeyRange) -> Option<KeyRange> {
    let touch = match (&first.end, &second.start) {
        (KeyBound::Excluded(end), KeyBound::Included(start)) => end == start,
        _ => false,
    };
    touch.then(|| KeyRange { start: first.start.clone(), end: second.end.clone() })
}
