//! The applied state of one group, shared by its shard, which reads it, and the thread that applies entries.

mod apply_step;
mod first_state;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use datum::KeyRange;
use log::{GroupId, Lsn, PeerId, Role, Term};
use parking_lot::Mutex;
use storage::{
    Applied, Count, HistoryRecord, IndexBuild, IndexId, ReadError, ShardRange, Store, Table, TableId,
};

pub(crate) use self::apply_step::ApplyStep;
use crate::history_position::HistoryPosition;
use crate::progress::Progress;
use crate::{SealState, WriteRefusal};

/// Whether the replica leads, and otherwise which one does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leadership {
    /// The term in which this replica leads; 0 if it does not.
    pub(crate) term: Term,
    /// The leader, if it is another replica and known.
    pub(crate) leader: Option<PeerId>,
}

/// The generation of a replica's rows. It changes when the rows become unusable, and again when a copy replaces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsGeneration(u64);

impl RowsGeneration {
    fn is_recovering(self) -> bool {
        self.0 % 2 == 1
    }
}

/// The applied state of one group.
pub(crate) struct Replica {
    pub(crate) group: GroupId,
    table: TableId,
    // 0 if another replica leads. Read by every read and write.
    term: AtomicU64,
    // `None` until the role is known.
    leader: Mutex<Option<Option<PeerId>>>,
    // How often the rows became unusable or usable again: odd while they are unusable.
    rows_generation: AtomicU64,
    seal_state: AtomicU64,
    // Whether the history is on.
    has_history: AtomicBool,
    applied_listener: OnceLock<Box<dyn Fn(Lsn) + Send + Sync>>,
    applied: AtomicU64,
    rows: AtomicU64,
    applied_state: Mutex<AppliedState>,
    skips: Mutex<Skips>,
    builds: Mutex<HashMap<IndexId, IndexBuild>>,
    // The number of indexes registered with the group, and their highest id.
    registrations: AtomicU64,
    highest_index: AtomicU32,
}

/// A sealed group that ordered a range before, and is applied here up to its seal.
#[derive(Clone, Debug)]
pub struct Predecessor {
    pub group: GroupId,
    pub range: KeyRange,
}

/// The stored rows in the range of a group that is new to the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InitialRows<'a> {
    /// They belong to the group: these predecessors wrote them.
    Inherited(&'a [Predecessor]),
    /// They do not belong to the group: a copy will replace them.
    AwaitCopy,
    /// As `AwaitCopy`, and no record of the group may be in the engine before the rows are. With a record and no rows the
    /// group would look like one that began with its rows.
    AwaitCopyUnrecorded,
}

/// The state from which the applying thread continues.
#[derive(Clone)]
struct AppliedState {
    lsn: Lsn,
    progress: Progress,
    rows: u64,
    // The row count that is stored in the engine.
    rows_stored: u64,
}

/// Proposals of the shard's present incarnation that are in the log but were not applied.
#[derive(Default)]
struct Skips {
    incarnation: Option<u64>,
    sequences: HashMap<u64, SkipCause>,
}

/// The reason why a proposal in the log is not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkipCause {
    /// It depends on a proposal that was not applied.
    Dependency,
    Sealed,
}

/// The changes that [`Replica::finish`] made visible.
pub(crate) struct Finished {
    /// Whether the seal state has changed.
    pub(crate) seal_changed: bool,
    /// The entries that have joined the history.
    pub(crate) recorded: Vec<HistoryRecord>,
}

impl Replica {
    /// Loads the group's state from the engine.
    ///
    /// A group that is new to the engine may begin with the rows of its range that other groups wrote before, if
    /// `initial_rows` says so. Their number and the state of their indexes are written before anything else.
    pub(crate) fn load(
        store: &Store,
        table: &Table,
        shard_range: &ShardRange,
        initial_rows: InitialRows<'_>,
    ) -> Result<Replica, ReadError> {
        let group = shard_range.group;
        let applied_state = match Applied::read(&**store.engine(), group)? {
            Some(applied) => {
                let what = || format!("the progress of group {group}");
                let progress = Progress::decode(&applied.progress)
                    .ok_or_else(|| ReadError::CorruptMeta { what: what() })?;
                let rows = Count::read(&**store.engine(), table.id(), group)?.0;
                AppliedState { lsn: applied.lsn, progress, rows, rows_stored: rows }
            }
            None => AppliedState::first(store, table, shard_range, initial_rows)?,
        };
        let builds = IndexBuild::read_all(&**store.engine(), table.id(), group)?;
        Ok(Replica {
            group,
            table: table.id(),
            term: AtomicU64::new(0),
            leader: Mutex::new(None),
            rows_generation: AtomicU64::new(0),
            seal_state: AtomicU64::new(applied_state.progress.seal_state().number()),
            has_history: AtomicBool::new(applied_state.progress.history().is_some()),
            applied_listener: OnceLock::new(),
            applied: AtomicU64::new(applied_state.lsn.0),
            rows: AtomicU64::new(applied_state.rows),
            applied_state: Mutex::new(applied_state),
            skips: Mutex::default(),
            registrations: AtomicU64::new(builds.len() as u64),
            highest_index: AtomicU32::new(builds.iter().map(|(index, _)| index.0).max().unwrap_or(0)),
            builds: Mutex::new(builds.into_iter().collect()),
        })
    }

    pub(crate) fn is_recovering(&self) -> bool {
        self.rows_generation().is_recovering()
    }

    pub(crate) fn rows_generation(&self) -> RowsGeneration {
        RowsGeneration(self.rows_generation.load(Ordering::Acquire))
    }

    /// Whether the rows are usable, and have been since they had `rows_generation`.
    pub(crate) fn is_current(&self, rows_generation: RowsGeneration) -> bool {
        !rows_generation.is_recovering() && self.rows_generation() == rows_generation
    }

    pub(crate) fn mark_recovering(&self) {
        self.advance_generation(|rows_generation| !rows_generation.is_recovering());
    }

    fn advance_generation(&self, changes: impl Fn(RowsGeneration) -> bool) {
        let next = |number| changes(RowsGeneration(number)).then_some(number + 1);
        // Unchanged if they are in that state already.
        let _ = self.rows_generation.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Reloads the state from the engine: its rows were replaced by a copy.
    pub(crate) fn reload(
        &self,
        store: &Store,
        table: &Table,
        shard_range: &ShardRange,
    ) -> Result<(), ReadError> {
        let Replica { applied_state, builds, registrations, highest_index, .. } =
            Replica::load(store, table, shard_range, InitialRows::Inherited(&[]))?;
        let applied_state = applied_state.into_inner();
        self.seal_state.store(applied_state.progress.seal_state().number(), Ordering::Release);
        self.has_history.store(applied_state.progress.history().is_some(), Ordering::Release);
        *self.builds.lock() = builds.into_inner();
        self.highest_index.store(highest_index.into_inner(), Ordering::Release);
        // Always a new number, so that the change of indexes is noticed.
        let registered = self.registrations.load(Ordering::Acquire) + registrations.into_inner() + 1;
        self.registrations.store(registered, Ordering::Release);
        self.rows.store(applied_state.rows, Ordering::Release);
        self.applied.store(applied_state.lsn.0, Ordering::Release);
        *self.applied_state.lock() = applied_state;
        self.advance_generation(RowsGeneration::is_recovering);
        Ok(())
    }

    /// The seal state of the group, as far as it is applied here.
    pub(crate) fn seal_state(&self) -> SealState {
        SealState::of_number(self.seal_state.load(Ordering::Acquire))
    }

    /// Whether the history is on, as far as it is applied here.
    pub(crate) fn has_history(&self) -> bool {
        self.has_history.load(Ordering::Acquire)
    }

    /// The last entry of the history that is applied here; `None` while it is off.
    pub(crate) fn history(&self) -> Option<HistoryPosition> {
        self.applied_state.lock().progress.history()
    }

    /// The last position that reads show.
    pub(crate) fn applied(&self) -> Lsn {
        Lsn(self.applied.load(Ordering::Acquire))
    }

    /// The number of rows at that position.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Acquire)
    }

    /// The build record of an index.
    pub(crate) fn index_build(&self, index: IndexId) -> IndexBuild {
        self.builds.lock().get(&index).cloned().unwrap_or_default()
    }

    /// Whether an index is registered with the group.
    pub(crate) fn has_index(&self, index: IndexId) -> bool {
        self.builds.lock().contains_key(&index)
    }

    /// The number of registered indexes.
    pub(crate) fn registrations(&self) -> u64 {
        self.registrations.load(Ordering::Acquire)
    }

    /// The highest id of the registered indexes.
    pub(crate) fn highest_index(&self) -> IndexId {
        IndexId(self.highest_index.load(Ordering::Acquire))
    }

    /// Whether this replica leads, and otherwise which one does.
    pub(crate) fn leadership(&self) -> Leadership {
        match self.term.load(Ordering::Acquire) {
            0 => Leadership { term: Term(0), leader: self.leader.lock().flatten() },
            term => Leadership { term: Term(term), leader: None },
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.term.load(Ordering::Acquire) != 0
    }

    /// Sets the role. A leader records skipped proposals of its term, for the writers that wait for them.
    pub(crate) fn set_role(&self, role: Role) {
        self.apply_role(&mut self.leader.lock(), role);
    }

    /// As [`Replica::set_role`], unless a role was set before, which is newer.
    pub(crate) fn set_initial_role(&self, role: Role) {
        let mut leader = self.leader.lock();
        if leader.is_none() {
            self.apply_role(&mut leader, role);
        }
    }

    fn apply_role(&self, known: &mut Option<Option<PeerId>>, role: Role) {
        match role {
            Role::Leader { term } => {
                *known = Some(None);
                self.skips.lock().incarnation = Some(incarnation(term));
                self.term.store(term.0, Ordering::Release);
            }
            Role::Follower { leader, .. } => {
                *known = Some(leader);
                self.term.store(0, Ordering::Release);
            }
        }
    }

    /// Calls `listener` with the position whenever entries were applied. Only the first listener is kept.
    pub(crate) fn set_applied_listener(&self, listener: Box<dyn Fn(Lsn) + Send + Sync>) {
        drop(self.applied_listener.set(listener));
    }

    /// Why proposal `sequence`, which is in the log, was not applied, or `None` if it was. Returned once.
    pub(crate) fn take_skip(&self, sequence: u64) -> Option<WriteRefusal> {
        let mut skips = self.skips.lock();
        if skips.sequences.is_empty() {
            return None;
        }
        Some(match skips.sequences.remove(&sequence)? {
            SkipCause::Dependency => WriteRefusal::Dependency,
            SkipCause::Sealed => WriteRefusal::Retired { group: self.group },
        })
    }

    pub(crate) fn begin(&self) -> ApplyStep {
        ApplyStep::new(self.group, self.table, self.applied_state.lock().clone())
    }

    /// Makes `step` the present state: the engine has its batch.
    pub(crate) fn finish(&self, step: ApplyStep) -> Finished {
        let seal_state = step.next.progress.seal_state().number();
        let seal_changed = self.seal_state.swap(seal_state, Ordering::AcqRel) != seal_state;
        self.has_history.store(step.next.progress.history().is_some(), Ordering::Release);
        self.rows.store(step.next.rows, Ordering::Release);
        self.applied.store(step.next.lsn.0, Ordering::Release);
        *self.applied_state.lock() = step.next;
        if !step.builds.is_empty() {
            let mut builds = self.builds.lock();
            for (index, build) in step.builds {
                if builds.insert(index, build).is_none() {
                    self.highest_index.fetch_max(index.0, Ordering::Release);
                }
            }
            self.registrations.store(builds.len() as u64, Ordering::Release);
        }
        if let Some(listener) = self.applied_listener.get() {
            listener(self.applied());
        }
        if !step.skipped.is_empty() {
            let mut skips = self.skips.lock();
            let leading = skips.incarnation;
            let own = step.skipped.into_iter().filter(|(incarnation, ..)| Some(*incarnation) == leading);
            skips.sequences.extend(own.map(|(_, sequence, cause)| (sequence, cause)));
        }
        Finished { seal_changed, recorded: step.recorded }
    }
}

/// The incarnation in entries of a leader of `term`: docs/formats/entry.md.
pub(crate) fn incarnation(term: Term) -> u64 {
    term.0 | 1 << 63
}
