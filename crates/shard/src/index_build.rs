//! Builds indexes while rows are read and written.
//!
//! From the moment a shard knows an index, every write includes its entries. Existing rows are scanned in the order of
//! their keys: the latches of a few rows are taken, their entries are computed from the newest rows, and a log entry
//! adds them without changing the rows. The same log entry records the position of the scan, so that the build resumes
//! there after a crash.

use std::collections::VecDeque;
use std::sync::Arc;

use datum::{KeyBound, KeyRange, PrimaryKey};
use log::Durability;
use storage::{Direction, IndexBuild, IndexId};

use crate::{IndexDef, Shard, WriteError, WriteTicket};

/// Rows whose latches are held together: few, because their writers wait meanwhile.
const LATCHED_ROWS: usize = 8;
/// Rows of one step while there are no other writers.
const STEP_ROWS: usize = 256;
/// Rows of one step while there are other writers. Such a step takes some tenths of a millisecond, less than the time
/// slice after which the scheduler would let another thread run.
const STEP_ROWS_CONTENDED: usize = 4 * LATCHED_ROWS;
/// Steps for which other writers are expected to write again after a write: about twenty milliseconds.
const CONTENDED_STEPS: u32 = 64;
/// Log entries proposed at once.
const IN_FLIGHT_MAX: usize = 8;

/// Builds the unbuilt indexes of a shard, step by step.
pub struct IndexBuilder {
    shard: Arc<Shard>,
    // The indexes that the shard knew at the last step.
    known: Arc<Vec<Arc<IndexDef>>>,
    builds: Vec<Build>,
    in_flight: VecDeque<WriteTicket>,
    // The previous proposal: the next one must not be applied without it.
    last: Option<u64>,
    // Proposals of this builder.
    proposed: u64,
    // Proposals of others up to the last step.
    others_proposed: u64,
    // Remaining steps that assume other writers.
    contended_steps: u32,
}

#[derive(Clone)]
struct Build {
    index: IndexId,
    after: Option<PrimaryKey>,
    rows: u64,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStep {
    /// Indexed this many rows; there are more.
    Rows(usize),
    /// All indexes that the shard knows are built.
    Done,
}

impl IndexBuilder {
    /// A builder that continues where the shard's indexes stand. A shard must have only one at a time.
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
            others_proposed: 0,
            contended_steps: 0,
        }
    }

    /// Indexes some hundred rows, fewer beside other writers. An error ends this builder; a new one continues after the
    /// last durable step.
    pub fn step(&mut self) -> Result<BuildStep, WriteError> {
        let known = self.shard.indexes();
        if !Arc::ptr_eq(&known, &self.known) {
            self.begin(known)?;
        }
        if self.builds.is_empty() {
            return Ok(BuildStep::Done);
        }
        let (range, indexes) = self.next_range();
        let others_proposed = self.proposed_by_others();
        self.contended_steps =
            match std::mem::replace(&mut self.others_proposed, others_proposed) == others_proposed {
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

    /// Whether there are other writers of the shard, as far as the last steps have seen.
    #[must_use]
    pub fn has_other_writers(&self) -> bool {
        self.contended_steps > 0
    }

    fn proposed_by_others(&self) -> u64 {
        self.shard.proposed().saturating_sub(self.proposed)
    }

    /// Determines which of the known indexes must be built.
    ///
    /// Waits until everything proposed before is applied: rows of writers that did not know a new index yet have no
    /// entries, and the scan must see them.
    fn begin(&mut self, known: Arc<Vec<Arc<IndexDef>>>) -> Result<(), WriteError> {
        let unregistered = known.iter().map(|index| index.id()).filter(|index| !self.shard.has_index(*index));
        let unregistered: Vec<_> = unregistered.map(|index| (index, IndexBuild::default())).collect();
        if !unregistered.is_empty() {
            // From here on writes include entries.
            self.proposed += 1;
            self.shard.propose_build(&[], unregistered, None, Durability::Soft)?.1.wait()?;
        }
        io::failpoint("index_build.begun");
        self.shard.wait_for_writers();
        self.shard.sync().wait()?;
        self.settle()?;
        let unbuilt = |index: &Arc<IndexDef>| match self.shard.index_build(index.id()) {
            IndexBuild::Ready => None,
            IndexBuild::Under { after, rows } => Some(Build { index: index.id(), after, rows }),
        };
        self.builds = known.iter().filter_map(unbuilt).collect();
        self.known = known;
        // Earlier proposals do not count as other writers.
        self.others_proposed = self.proposed_by_others();
        Ok(())
    }

    /// The next rows to index, and the indexes they are for. The indexes with the least progress are built first, up to
    /// the position that the next index has reached; from there all of them are built together.
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

    /// Adds the entries of some rows and records the progress.
    fn advance(&mut self, indexes: &[IndexId], keys: &[PrimaryKey]) -> Result<(), WriteError> {
        let Some(last) = keys.last() else { return Ok(()) };
        let mut notes = Vec::with_capacity(indexes.len());
        for build in self.builds.iter_mut().filter(|build| indexes.contains(&build.index)) {
            build.after = Some(last.clone());
            build.rows += keys.len() as u64;
            notes.push((build.index, IndexBuild::Under { after: Some(last.clone()), rows: build.rows }));
        }
        io::failpoint("index_build.step");
        self.propose(keys, notes)
    }

    /// The scan has reached the end of the range: the indexes meet one that is further, or are built.
    fn reach_end(&mut self, range: &KeyRange, indexes: &[IndexId]) -> Result<(), WriteError> {
        if let KeyBound::Included(next) = &range.end {
            for build in self.builds.iter_mut().filter(|build| indexes.contains(&build.index)) {
                build.after = Some(next.clone());
            }
            return Ok(());
        }
        self.builds.retain(|build| !indexes.contains(&build.index));
        self.propose(&[], indexes.iter().map(|index| (*index, IndexBuild::Ready)).collect())?;
        io::failpoint("index_build.ready");
        self.settle()
    }

    /// Waits until all proposals are applied.
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
