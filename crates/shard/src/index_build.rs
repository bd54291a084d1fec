//! Building indexes while rows are read and written.
//!
//! From the moment a shard knows an index, every write carries its entries. What was there before
//! is walked in the order of the keys: the latches of a few rows are taken, their entries are made
//! from the newest rows, and an entry of the log adds them without touching the rows. The same
//! entry says how far the walk has come, so that it goes on from there after a crash.

use std::collections::VecDeque;
use std::sync::Arc;

use datum::{KeyBound, KeyRange, PrimaryKey};
use log::Durability;
use storage::{Direction, IndexBuild, IndexId};

use crate::{IndexDef, Shard, WriteError, WriteTicket};

/// Rows whose latches are held together: few, because writers of them wait meanwhile.
const LATCHED_ROWS: usize = 8;
/// Rows of one step while nobody else writes.
const STEP_ROWS: usize = 256;
/// Rows of one step beside other writers: so few that it is over before the system lets another thread wait for the
/// processor (some tenths of a millisecond).
const STEP_ROWS_CONTENDED: usize = 4 * LATCHED_ROWS;
/// Steps for which others who have written are expected to write again: some twenty milliseconds.
const CONTENDED_STEPS: u32 = 64;
/// Log entries on their way at once.
const IN_FLIGHT_MAX: usize = 8;

/// Builds the indexes of a shard that are not built yet, step by step.
pub struct IndexBuilder {
    shard: Arc<Shard>,
    // What the shard was seen to know.
    known: Arc<Vec<Arc<IndexDef>>>,
    builds: Vec<Build>,
    in_flight: VecDeque<WriteTicket>,
    // The proposal before: the next one must not happen without it.
    last: Option<u64>,
    // Proposals of this builder.
    proposed: u64,
    // Proposals of others as of the last step.
    foreign: u64,
    // Steps that are still taken as if others wrote.
    contended_steps: u32,
}

#[derive(Clone)]
struct Build {
    index: IndexId,
    after: Option<PrimaryKey>,
    rows: u64,
}

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStep {
    /// Looked at this many rows; there is more to do.
    Rows(usize),
    /// Everything the shard knows is built.
    Done,
}

impl IndexBuilder {
    /// A builder that goes on where the shard's indexes stand. Only one of a shard may be at work.
    #[must_use]
    pub fn new(shard: Arc<Shard>) -> IndexBuilder {
        let (known, builds, in_flight) = (Arc::default(), Vec::new(), VecDeque::new());
        IndexBuilder {
            shard,
            known,
            builds,
            in_flight,
            last: None,
            proposed: 0,
            foreign: 0,
            contended_steps: 0,
        }
    }

    /// Goes on for some hundred rows, for fewer beside other writers. An error ends this builder; another one begins where the last
    /// durable step ended.
    pub fn step(&mut self) -> Result<BuildStep, WriteError> {
        let known = self.shard.indexes();
        if !Arc::ptr_eq(&known, &self.known) {
            self.begin(known)?;
        }
        if self.builds.is_empty() {
            return Ok(BuildStep::Done);
        }
        let (range, indexes) = self.next_range();
        let foreign = self.proposed_by_others();
        self.contended_steps = match std::mem::replace(&mut self.foreign, foreign) == foreign {
            true => self.contended_steps.saturating_sub(1),
            false => CONTENDED_STEPS,
        };
        let most = if self.has_other_writers() { STEP_ROWS_CONTENDED } else { STEP_ROWS };
        let keys = self.keys(&range, most)?;
        for keys in keys.chunks(LATCHED_ROWS) {
            self.advance(&indexes, keys)?;
        }
        if keys.len() < most {
            self.reach_end(&range, &indexes)?;
        }
        Ok(BuildStep::Rows(keys.len()))
    }

    /// Whether others write to the shard, too, as far as the last steps have seen.
    #[must_use]
    pub fn has_other_writers(&self) -> bool {
        self.contended_steps > 0
    }

    fn proposed_by_others(&self) -> u64 {
        self.shard.proposed().saturating_sub(self.proposed)
    }

    /// Finds what is to be built of the indexes the shard knows now.
    ///
    /// Waits until everything proposed before is applied: rows written by somebody who did not know
    /// a new index yet have no entries and must be met on the walk.
    fn begin(&mut self, known: Arc<Vec<Arc<IndexDef>>>) -> Result<(), WriteError> {
        let untold = known.iter().map(|index| index.id()).filter(|index| !self.shard.has_index(*index));
        let untold: Vec<_> = untold.map(|index| (index, IndexBuild::default())).collect();
        if !untold.is_empty() {
            // From here on writes carry entries.
            self.proposed += 1;
            self.shard.propose_build(&[], untold, None, Durability::Soft)?.1.wait()?;
        }
        self.shard.wait_for_writers();
        self.shard.sync().wait()?;
        self.settle()?;
        let unbuilt = |index: &Arc<IndexDef>| match self.shard.index_build(index.id()) {
            IndexBuild::Ready => None,
            IndexBuild::Under { after, rows } => Some(Build { index: index.id(), after, rows }),
        };
        self.builds = known.iter().filter_map(unbuilt).collect();
        self.known = known;
        // What was proposed before is no company.
        self.foreign = self.proposed_by_others();
        Ok(())
    }

    /// The rows to look at next, and for which indexes: those that are least far, up to where the
    /// next one stands, so that they meet and go on together.
    fn next_range(&self) -> (KeyRange, Vec<IndexId>) {
        let least = self.builds.iter().map(|build| &build.after).min().cloned().flatten();
        let indexes = self.builds.iter().filter(|build| build.after == least).map(|build| build.index);
        let indexes = indexes.collect();
        let next = self.builds.iter().filter_map(|build| build.after.as_ref());
        let next = next.filter(|after| Some(*after) > least.as_ref()).min();
        let start = least.map_or(KeyBound::Unbounded, KeyBound::Excluded);
        let end = next.map_or(KeyBound::Unbounded, |next| KeyBound::Included(next.clone()));
        (KeyRange { start, end }, indexes)
    }

    fn keys(&self, range: &KeyRange, most: usize) -> Result<Vec<PrimaryKey>, WriteError> {
        let mut scan = self.shard.snapshot()?.scan(range, Direction::Ascending).at_most(most);
        let mut keys = Vec::with_capacity(most);
        while keys.len() < most
            && let Some((key, _)) = scan.next()?
        {
            keys.push(PrimaryKey(bytes::Bytes::copy_from_slice(key.as_bytes())));
        }
        Ok(keys)
    }

    /// Makes the entries of some rows and notes that they have them.
    fn advance(&mut self, indexes: &[IndexId], keys: &[PrimaryKey]) -> Result<(), WriteError> {
        let Some(last) = keys.last() else { return Ok(()) };
        let mut notes = Vec::with_capacity(indexes.len());
        for build in self.builds.iter_mut().filter(|build| indexes.contains(&build.index)) {
            build.after = Some(last.clone());
            build.rows += keys.len() as u64;
            notes.push((build.index, IndexBuild::Under { after: Some(last.clone()), rows: build.rows }));
        }
        self.propose(keys, notes)
    }

    /// The range is walked to its end: the indexes meet one that is further, or are ready.
    fn reach_end(&mut self, range: &KeyRange, indexes: &[IndexId]) -> Result<(), WriteError> {
        if let KeyBound::Included(next) = &range.end {
            for build in self.builds.iter_mut().filter(|build| indexes.contains(&build.index)) {
                build.after = Some(next.clone());
            }
            return Ok(());
        }
        self.builds.retain(|build| !indexes.contains(&build.index));
        self.propose(&[], indexes.iter().map(|index| (*index, IndexBuild::Ready)).collect())?;
        self.settle()
    }

    /// Waits until all proposals are carried out.
    fn settle(&mut self) -> Result<(), WriteError> {
        self.in_flight.drain(..).try_for_each(|ticket| ticket.wait().map(drop))
    }

    fn propose(&mut self, keys: &[PrimaryKey], notes: Vec<(IndexId, IndexBuild)>) -> Result<(), WriteError> {
        let (sequence, ticket) = self.shard.propose_build(keys, notes, self.last, Durability::Soft)?;
        self.last = Some(sequence);
        self.proposed += 1;
        self.in_flight.push_back(ticket);
        match self.in_flight.len() > IN_FLIGHT_MAX {
            true => self.in_flight.pop_front().map_or(Ok(()), |ticket| ticket.wait().map(drop)),
            false => Ok(()),
        }
    }
}
