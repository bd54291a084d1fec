//! A sequence from which a view is computed, and how far the view has come in it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cluster::{FeedStart, GroupId, InitialRows, Interest};
use datum::{Object, PrimaryKey};
use io::task;
use reql::EvalError;

use super::indexed::{self, IndexedRows};
use super::plan::{Limit, ViewPlan};
use super::position::ClientPosition;
use super::reader::FeedReader;
use super::scan::{detached, scan};
use super::token;
use crate::context::Cx;

/// Up to this many keys are read one by one. For more of them the whole sequence is read.
const SINGLE_READS_MAX: usize = 1000;

/// How long rows are not read by their index after that has failed.
const INDEX_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// A reader, and where it starts.
pub(super) type StartedSource = (FeedReader, Vec<FeedStart>);

/// A sequence from which a view is computed.
pub(super) struct Source {
    pub reader: FeedReader,
    /// How far the view has come.
    pub applied: ClientPosition,
    /// Whether changes were dropped, so that all rows must be read again.
    pub is_stale: bool,
    /// Where rows are read.
    starts: Vec<FeedStart>,
    /// When rows could not be read by their index the last time.
    index_failed_at: Cell<Option<Instant>>,
}

impl Source {
    pub fn new((reader, starts): StartedSource) -> Source {
        let applied = ClientPosition { initial: None, ..reader.position.clone() };
        Source { reader, applied, is_stale: false, starts, index_failed_at: Cell::new(None) }
    }

    /// The groups of whose next change an earlier feed has delivered some elements, with their number. `nth` is the place of the source.
    pub fn partly_delivered(&self, nth: usize) -> Vec<(usize, GroupId, u32)> {
        let groups = self.applied.groups.iter();
        groups.filter(|(_, at)| at.elements > 0).map(|(group, at)| (nth, *group, at.elements)).collect()
    }

    /// Begins to receive changes.
    pub fn subscribe(&mut self) {
        self.reader.position.initial = None;
        self.reader.subscribe(self.starts.clone());
    }

    /// Moves the position of the view past changes that do not concern it, if all others were applied.
    pub fn pass_by(&mut self) {
        for (group, reached) in self.reader.reached() {
            self.applied.pass_by(group, reached);
        }
    }

    /// Moves the start of [`Source::read`] to the position of the view. Fails if the catalog no longer knows a group of it.
    pub fn find_starts(&mut self) -> Result<(), EvalError> {
        let plan = self.reader.plan();
        let node = self.reader.cx.node();
        let catalog = node.catalog();
        let table = &plan.table.handle.config;
        let handle = catalog.table_by_id(table.id).ok_or_else(token::gone)?;
        let groups: Vec<_> = self.applied.feeds().collect();
        self.starts = node.feeds().resume(handle, &plan.interest, &groups).ok_or_else(token::gone)?;
        Ok(())
    }

    /// The first rows of the sequence at the position of the view, about `most` of them. `None` if they cannot be found without
    /// reading all rows. Blocks.
    pub fn first_rows(&self, most: usize) -> Option<IndexedRows> {
        let plan = self.reader.plan();
        match &plan.view {
            Some(ViewPlan::FirstRows(Limit { ordered: Some(ordered), .. })) => {
                self.by_index(|cx| indexed::first(cx, plan, ordered, &self.starts, most))
            }
            _ => None,
        }
    }

    /// What `read` finds by an index. For a while after it found nothing it is not called again: that may have taken long.
    fn by_index<T>(&self, read: impl FnOnce(&Cx) -> Option<T>) -> Option<T> {
        let has_failed = self.index_failed_at.get().is_some_and(|at| task::now() - at < INDEX_RETRY_INTERVAL);
        let found = if has_failed { None } else { read(&self.reader.cx) };
        if found.is_none() && !has_failed {
            self.index_failed_at.set(Some(task::now()));
        }
        found
    }

    /// Calls `take` with the rows of the sequence at the position of the view: with all, or with those under `keys`. Blocks.
    pub fn read(
        &self,
        keys: Option<&BTreeSet<PrimaryKey>>,
        take: &mut dyn FnMut(&PrimaryKey, &Object) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        let plan = self.reader.plan();
        if keys.is_none()
            && let Some(rows) = self.by_index(|cx| indexed::all(cx, plan, &self.starts))
        {
            return rows.iter().try_for_each(|(key, row)| take(key, row));
        }
        let interest = match keys {
            Some(keys) if keys.len() <= SINGLE_READS_MAX => {
                Interest::Keys(keys.clone().into_iter().collect())
            }
            _ => plan.interest.clone(),
        };
        for start in &self.starts {
            let mut after = None;
            loop {
                let read =
                    scan(&self.reader.cx, &interest, plan.table.handle.config.id, start, after.as_ref());
                let InitialRows { rows, reach } = read.map_err(|error| self.reader.cannot_read(error))?;
                for (key, row) in &rows {
                    if let (Some(row), true) = (row, keys.is_none_or(|keys| keys.contains(key))) {
                        // A view must not keep the blocks of rows in which the few rows that it has were read.
                        take(&detached(key), &row.detach())?;
                    }
                }
                match reach {
                    None => break,
                    reach => after = reach,
                }
            }
        }
        Ok(())
    }
}
