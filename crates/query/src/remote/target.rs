//! Where a shard is asked, and how long one goes on looking for it.

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

/// A majority confirms who leads within this, or that is not known: a log that does not get on hears of no other leader,
/// and who waits for it keeps a thread.
const CONFIRMATION: Duration = Duration::from_secs(5);

/// A look counts as if it had taken so long, at least.
const LOOK_MIN: Duration = Duration::from_millis(5);

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
            Route::Local(near) => Target::Local(near),
            Route::Remote(server) => Target::Remote(server),
        }
    }
}

impl Service {
    /// The replica that leads `shard`: for writes, and for reads that must be up to date. `None`
    /// while nobody is known to lead.
    pub(crate) fn leader<'a>(&self, shard: &'a ShardHandle) -> Option<Target<'a>> {
        if let Some(server) = self.peers().forced_target(shard.range()) {
            return Some(Target::Remote(server));
        }
        shard.leader().map(Target::from)
    }

    /// Whether somebody is known to lead `shard` who can be asked: a replica without a vote goes on naming the last
    /// leader when that is gone.
    pub(crate) fn is_led(&self, shard: &ShardHandle) -> bool {
        match self.leader(shard) {
            Some(Target::Local(_)) => true,
            Some(Target::Remote(server)) => self.peers().is_connected(server),
            None => false,
        }
    }

    /// How long it is worth looking for who leads `shard`.
    pub(crate) fn search(&self, shard: &ShardHandle) -> Duration {
        self.leader_lookup.leaderless.timeout(shard.group(), self.is_led(shard))
    }

    /// `shard` was looked for as long as that, in vain.
    pub(crate) fn give_up(&self, shard: &ShardHandle) {
        self.leader_lookup.leaderless.note_failed_lookup(shard.group(), self.is_led(shard));
    }

    /// As [`Service::reader`], for a read of one row that is asked for the first time.
    pub(crate) fn first_reader<'a>(&self, shard: &'a ShardHandle, mode: ReadMode) -> Option<Target<'a>> {
        if mode != ReadMode::Outdated || self.peers().forced_target(shard.range()).is_some() {
            return self.reader(shard, mode);
        }
        let reader = shard.reader(|server| self.failover.answers(server)).map(Target::from);
        reader.or_else(|| self.reader(shard, mode))
    }

    /// A replica that may answer reads of `mode`.
    pub(crate) fn reader<'a>(&self, shard: &'a ShardHandle, mode: ReadMode) -> Option<Target<'a>> {
        if let Some(server) = self.peers().forced_target(shard.range()) {
            return Some(Target::Remote(server));
        }
        match mode {
            ReadMode::Single | ReadMode::Majority => self.leader(shard),
            ReadMode::Outdated => {
                let nearest = shard.nearest(|server| self.failover.answers(server));
                nearest
                    .or_else(|| shard.nearest(|server| self.peers().is_connected(server)))
                    .map(Target::from)
            }
            // Whoever asks wants what is here, if anything is.
            ReadMode::DebugDirect => match shard.near() {
                Some(near) => Some(Target::Local(near)),
                None => self.leader(shard),
            },
        }
    }
}

/// Which shards that are here may be read in one mode; each is asked once.
pub(crate) struct LeaderConfirmations {
    mode: ReadMode,
    known: Vec<(GroupId, bool)>,
}

impl LeaderConfirmations {
    /// Nothing asked yet.
    pub fn new(mode: ReadMode) -> LeaderConfirmations {
        LeaderConfirmations { mode, known: Vec::new() }
    }

    /// Whether `shard` may be read now. For linearizable reads a majority must confirm that it leads,
    /// which blocks for some seconds at most; if none does, the shard is to be looked for again.
    pub fn allows(&mut self, shard: &Shard) -> bool {
        if self.mode != ReadMode::Majority {
            return true;
        }
        if let Some((_, fit)) = self.known.iter().find(|(group, _)| *group == shard.group()) {
            return *fit;
        }
        let fit = shard.confirm().wait_for(CONFIRMATION).is_ok_and(|told| told.is_ok());
        self.known.push((shard.group(), fit));
        fit
    }
}

/// What is left of the time for which a query looks for its shards.
pub(crate) struct RetryBudget {
    left: Duration,
    looks: u32,
}

impl RetryBudget {
    /// All of it.
    pub fn new() -> RetryBudget {
        RetryBudget { left: LEADER_LOOKUP_TIMEOUT, looks: 0 }
    }

    /// As much as is left, for somebody else who looks.
    pub fn rest(&self) -> RetryBudget {
        RetryBudget { left: self.left, looks: self.looks }
    }

    /// Somebody was asked about a shard for so long, in vain.
    pub fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    /// Waits a little, in which things may change for `range` of `table`, where something could not be done;
    /// false when it has been long enough. The first time only changes that are under way are waited for.
    pub fn wait(&mut self, cx: &Cx, table: &StoredTable, range: &KeyRange) -> Result<bool, EvalError> {
        cx.check_cancel()?;
        let (service, gone) = (&cx.service, LEADER_LOOKUP_TIMEOUT.saturating_sub(self.left));
        let shards =
            || table.handle.shards().iter().filter(|shard| !shard.range().intersect(range).is_empty());
        if self.left.is_zero() || shards().any(|shard| gone >= service.search(shard)) {
            shards().for_each(|shard| service.give_up(shard));
            return Ok(false);
        }
        let (pause, began) = (backoff_after(self.looks), Instant::now());
        // Changes of the configuration that come to nothing may follow one another for as long as they like.
        cx.node().await_change();
        std::thread::sleep(pause);
        self.looks += 1;
        self.left = self.left.saturating_sub(began.elapsed().max(LOOK_MIN));
        cx.check_cancel()?;
        Ok(true)
    }
}

/// `table` as the catalog has it now, with its leaders looked for, which uses up `budget`. Fails if it was
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
            cx.service.leader_lookup.search_table(&table.handle);
            budget.spend(began.elapsed());
            Ok(table)
        }
        None => Err(EvalError::op_failed(format!("Table `{db}.{name}` does not exist."))),
    }
}

/// That a range cannot be read.
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

/// That a range cannot be written to; nothing was written.
pub(crate) fn unwritable(range: &KeyRange) -> EvalError {
    let range = show(range);
    EvalError::op_failed(format!("Cannot perform write: primary replica for shard {range} not available"))
}

/// That it is not known whether a write took place.
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

/// Ranges in the order of their keys, those that follow each other as one.
pub(crate) fn all_joined(ranges: &[KeyRange]) -> Vec<KeyRange> {
    let mut out: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut().and_then(|last| Some((joined(last, range)?, last))) {
            Some((both, last)) => *last = both,
            None => out.push(range.clone()),
        }
    }
    out
}

/// Two ranges that follow each other, as one; `None` when there is something between them.
pub(crate) fn joined(first: &KeyRange, second: &KeyRange) -> Option<KeyRange> {
    let touch = match (&first.end, &second.start) {
        (KeyBound::Excluded(end), KeyBound::Included(start)) => end == start,
        _ => false,
    };
    touch.then(|| KeyRange { start: first.start.clone(), end: second.end.clone() })
}
