//! What is applied of one group: shared by its shard, which reads it, and by the thread that
//! applies entries.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use datum::KeyRange;
use engine::Batch;
use log::{GroupId, Lsn, PeerId, Role, Term};
use parking_lot::Mutex;
use storage::{Applied, Changes, Count, IndexBuild, IndexId, Part, ReadError, Store, Table, TableId};

use crate::chain::{Progress, Verdict};
use crate::entry::{BadEntry, Entry, Item};
use crate::{SealMark, WriteRefusal};

/// What part the replica plays now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Office {
    /// The term in which it leads; 0 when it does not.
    pub(crate) term: Term,
    /// Who leads otherwise.
    pub(crate) leader: Option<PeerId>,
}

/// Which rows are there. They are others after they were void, and a copy took their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing(u64);

impl Standing {
    fn is_void(self) -> bool {
        self.0 % 2 == 1
    }
}

/// The applied state of one group.
pub(crate) struct Replica {
    pub(crate) group: GroupId,
    table: TableId,
    // 0 when another leads: looked at by every read and write.
    term: AtomicU64,
    // `None` until a part was told.
    leader: Mutex<Option<Option<PeerId>>>,
    // How often the rows became void, and good again: odd while they are void.
    standing: AtomicU64,
    mark: AtomicU64,
    told: OnceLock<Box<dyn Fn(Lsn) + Send + Sync>>,
    applied: AtomicU64,
    rows: AtomicU64,
    behind: Mutex<Behind>,
    skips: Mutex<Skips>,
    builds: Mutex<HashMap<IndexId, IndexBuild>>,
    // How many indexes the group was told of, and the highest number among them.
    registrations: AtomicU64,
    highest_index: AtomicU32,
}

/// A group that ordered a range before, is sealed, and has been applied up to that here.
#[derive(Clone, Debug)]
pub struct Forerunner {
    /// The group.
    pub group: GroupId,
    /// Its keys.
    pub range: KeyRange,
}

/// What a group that is new to the engine has of the rows that are stored in its range.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// They are its own: these wrote them before.
    Own(&'a [Forerunner]),
    /// They are not: a copy will take their place.
    Foreign,
    /// The same, and the engine is not to know the group before it has its rows: else it would be taken for
    /// one that began with them.
    Nothing,
}

/// What the applying thread goes on from.
#[derive(Clone)]
struct Behind {
    lsn: Lsn,
    progress: Progress,
    rows: u64,
    // The count in the engine.
    rows_stored: u64,
}

/// Proposals of the shard's own incarnation that were in the log and not carried out.
#[derive(Default)]
struct Skips {
    incarnation: Option<u64>,
    sequences: HashMap<u64, SkipCause>,
}

/// Why a proposal that is in the log is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkipCause {
    /// It depends on one that was not.
    Dependency,
    /// The group is sealed.
    Sealed,
}

/// The next state of a replica, which becomes the present one when the engine has the batch.
pub(crate) struct Step {
    next: Behind,
    skipped: Vec<(u64, u64, SkipCause)>,
    builds: Vec<(IndexId, IndexBuild)>,
}

impl Replica {
    /// The group's state as the engine has it.
    ///
    /// A group that is new to the engine may begin with rows: those of its range that other groups
    /// wrote before, if `found` says that they are its own. How many they are, and how far their indexes
    /// are built, is written before anything else.
    pub(crate) fn load(
        store: &Store,
        table: &Table,
        part: &Part,
        found: Found<'_>,
    ) -> Result<Replica, ReadError> {
        let group = part.group;
        let behind = match Applied::read(&**store.engine(), group)? {
            Some(applied) => {
                let what = || format!("the progress of group {group}");
                let progress = Progress::decode(&applied.progress)
                    .ok_or_else(|| ReadError::CorruptMeta { what: what() })?;
                let rows = Count::read(&**store.engine(), table.id(), group)?.0;
                Behind { lsn: applied.lsn, progress, rows, rows_stored: rows }
            }
            None => Behind::first(store, table, part, found)?,
        };
        let builds = IndexBuild::read_all(&**store.engine(), table.id(), group)?;
        Ok(Replica {
            group,
            table: table.id(),
            term: AtomicU64::new(0),
            leader: Mutex::new(None),
            standing: AtomicU64::new(0),
            mark: AtomicU64::new(behind.progress.mark().number()),
            told: OnceLock::new(),
            applied: AtomicU64::new(behind.lsn.0),
            rows: AtomicU64::new(behind.rows),
            behind: Mutex::new(behind),
            skips: Mutex::default(),
            registrations: AtomicU64::new(builds.len() as u64),
            highest_index: AtomicU32::new(builds.iter().map(|(index, _)| index.0).max().unwrap_or(0)),
            builds: Mutex::new(builds.into_iter().collect()),
        })
    }

    pub(crate) fn is_void(&self) -> bool {
        self.standing().is_void()
    }

    /// The rows that are there now.
    pub(crate) fn standing(&self) -> Standing {
        Standing(self.standing.load(Ordering::Acquire))
    }

    /// Whether the rows are good, and have been since they were `standing`.
    pub(crate) fn stands(&self, standing: Standing) -> bool {
        !standing.is_void() && self.standing() == standing
    }

    pub(crate) fn make_void(&self) {
        self.change_standing(|standing| !standing.is_void());
    }

    fn change_standing(&self, changes: impl Fn(Standing) -> bool) {
        let next = |number| changes(Standing(number)).then_some(number + 1);
        // Unchanged where it is so already.
        let _ = self.standing.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Takes the state that the engine has now: its rows were replaced by a copy.
    pub(crate) fn reload(&self, store: &Store, table: &Table, part: &Part) -> Result<(), ReadError> {
        let Replica { behind, builds, registrations, highest_index, .. } =
            Replica::load(store, table, part, Found::Own(&[]))?;
        let behind = behind.into_inner();
        self.mark.store(behind.progress.mark().number(), Ordering::Release);
        *self.builds.lock() = builds.into_inner();
        self.highest_index.store(highest_index.into_inner(), Ordering::Release);
        // Never the number of before, or it would go unnoticed that there are others.
        let told = self.registrations.load(Ordering::Acquire) + registrations.into_inner() + 1;
        self.registrations.store(told, Ordering::Release);
        self.rows.store(behind.rows, Ordering::Release);
        self.applied.store(behind.lsn.0, Ordering::Release);
        *self.behind.lock() = behind;
        self.change_standing(Standing::is_void);
        Ok(())
    }

    /// Whether the group is sealed, as far as it was applied here.
    pub(crate) fn mark(&self) -> SealMark {
        SealMark::of_number(self.mark.load(Ordering::Acquire))
    }

    /// The last position that reads show.
    pub(crate) fn applied(&self) -> Lsn {
        Lsn(self.applied.load(Ordering::Acquire))
    }

    /// The number of rows at that position.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Acquire)
    }

    /// How far an index is built.
    pub(crate) fn index_build(&self, index: IndexId) -> IndexBuild {
        self.builds.lock().get(&index).cloned().unwrap_or_default()
    }

    /// Whether the group was told of an index.
    pub(crate) fn has_index(&self, index: IndexId) -> bool {
        self.builds.lock().contains_key(&index)
    }

    /// How many indexes it was told of.
    pub(crate) fn registrations(&self) -> u64 {
        self.registrations.load(Ordering::Acquire)
    }

    /// The highest number among those.
    pub(crate) fn highest_index(&self) -> IndexId {
        IndexId(self.highest_index.load(Ordering::Acquire))
    }

    /// The part this replica plays.
    pub(crate) fn office(&self) -> Office {
        match self.term.load(Ordering::Acquire) {
            0 => Office { term: Term(0), leader: self.leader.lock().flatten() },
            term => Office { term: Term(term), leader: None },
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.term.load(Ordering::Acquire) != 0
    }

    /// Takes note of a new part. A leader remembers skipped proposals of its term, for those who wait
    /// for them.
    pub(crate) fn take_office(&self, role: Role) {
        self.enter(&mut self.leader.lock(), role);
    }

    /// As [`Replica::take_office`], unless a part was told already, which is newer.
    pub(crate) fn take_first_office(&self, role: Role) {
        let mut leader = self.leader.lock();
        if leader.is_none() {
            self.enter(&mut leader, role);
        }
    }

    fn enter(&self, known: &mut Option<Option<PeerId>>, role: Role) {
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

    /// Calls `told` with the position whenever entries were applied. Only the first one is kept.
    pub(crate) fn tell(&self, told: Box<dyn Fn(Lsn) + Send + Sync>) {
        drop(self.told.set(told));
    }

    /// Why proposal `sequence`, which is in the log, was not carried out, if it was not. Told once.
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

    pub(crate) fn begin(&self) -> Step {
        Step { next: self.behind.lock().clone(), skipped: Vec::new(), builds: Vec::new() }
    }

    /// Adds the entry at `lsn` to `changes`, if it is to happen.
    pub(crate) fn advance(
        &self,
        step: &mut Step,
        changes: &mut Changes,
        lsn: Lsn,
        entry: Entry,
    ) -> Result<(), BadEntry> {
        let next = &mut step.next;
        next.lsn = lsn;
        let (incarnation, sequence) = (entry.incarnation, entry.sequence);
        let verdict = next.progress.admit(incarnation, sequence, entry.dependencies());
        if let (Some(mark), Verdict::Apply) = (entry.mark, verdict) {
            next.progress.set_mark(mark);
            return Ok(());
        }
        match verdict {
            _ if next.progress.mark().is_sealed() => {
                if verdict == Verdict::Apply {
                    next.progress.refuse(sequence);
                }
                step.skipped.push((incarnation, sequence, SkipCause::Sealed));
                // What cannot be read is not passed over, even here.
                entry.each(|_| {})
            }
            Verdict::Apply => entry.each(|item| match item {
                Item::Row(change) => {
                    let gained = changes.add(self.table, &change);
                    next.rows = next.rows.saturating_add_signed(gained);
                }
                Item::Index(primary, change) => changes.add_index(self.table, &primary, &change),
                Item::Build(index, build) => {
                    build.put(&mut changes.batch, self.table, self.group, index);
                    step.builds.push((index, build));
                }
            }),
            Verdict::Skip => {
                step.skipped.push((incarnation, sequence, SkipCause::Dependency));
                Ok(())
            }
        }
    }

    /// Adds to `batch` how far it brings this group.
    pub(crate) fn record(&self, step: &mut Step, batch: &mut Batch) {
        let next = &mut step.next;
        Applied { lsn: next.lsn, progress: next.progress.encode() }.put(batch, self.group);
        if next.rows_stored != next.rows {
            Count(next.rows).put(batch, self.table, self.group);
            next.rows_stored = next.rows;
        }
    }

    /// Makes `step` the present state: the engine has its batch. Whether the group's mark is another now.
    pub(crate) fn finish(&self, step: Step) -> bool {
        let mark = step.next.progress.mark().number();
        let is_marked = self.mark.swap(mark, Ordering::AcqRel) != mark;
        self.rows.store(step.next.rows, Ordering::Release);
        self.applied.store(step.next.lsn.0, Ordering::Release);
        *self.behind.lock() = step.next;
        if !step.builds.is_empty() {
            let mut builds = self.builds.lock();
            for (index, build) in step.builds {
                if builds.insert(index, build).is_none() {
                    self.highest_index.fetch_max(index.0, Ordering::Release);
                }
            }
            self.registrations.store(builds.len() as u64, Ordering::Release);
        }
        if let Some(told) = self.told.get() {
            told(self.applied());
        }
        if !step.skipped.is_empty() {
            let mut skips = self.skips.lock();
            let leading = skips.incarnation;
            let own = step.skipped.into_iter().filter(|(incarnation, ..)| Some(*incarnation) == leading);
            skips.sequences.extend(own.map(|(_, sequence, cause)| (sequence, cause)));
        }
        is_marked
    }
}

/// What the entries of a leader of `term` carry: docs/formats/entry.md.
pub(crate) fn incarnation(term: Term) -> u64 {
    term.0 | 1 << 63
}

impl Behind {
    /// The state of a group that the engine has never heard of.
    fn first(store: &Store, table: &Table, part: &Part, found: Found<'_>) -> Result<Behind, ReadError> {
        let (mut changes, progress) = (Changes::default(), Progress::default());
        let rows = match found {
            Found::Nothing => return Ok(Behind { lsn: Lsn(0), progress, rows: 0, rows_stored: 0 }),
            Found::Own(forerunners) => {
                for (index, build) in inherited(store, table, forerunners)? {
                    build.put(&mut changes.batch, table.id(), part.group, index);
                }
                inherited_rows(store, table, part, forerunners)?
            }
            Found::Foreign => 0,
        };
        Applied { lsn: Lsn(0), progress: progress.encode() }.put(&mut changes.batch, part.group);
        Count(rows).put(&mut changes.batch, table.id(), part.group);
        store.write(changes)?;
        Ok(Behind { lsn: Lsn(0), progress, rows, rows_stored: rows })
    }
}

/// The rows there are: those of the groups that ordered them before, or counted where one of those goes
/// on in parts.
fn inherited_rows(
    store: &Store,
    table: &Table,
    part: &Part,
    forerunners: &[Forerunner],
) -> Result<u64, ReadError> {
    let is_whole = |old: &Forerunner| part.range.intersect(&old.range) == old.range;
    if forerunners.is_empty() || !forerunners.iter().all(is_whole) {
        return table.snapshot(part.clone())?.count_range(&part.range);
    }
    let count = |old: &Forerunner| Ok(Count::read(&**store.engine(), table.id(), old.group)?.0);
    forerunners.iter().map(count).sum()
}

/// How far indexes are built for a group that comes after others: one that is not built in all of them is
/// built anew. Each of their rows has the entries of every index that its own group was told of, and no
/// others, so nothing stands in the way of that.
fn inherited(
    store: &Store,
    table: &Table,
    forerunners: &[Forerunner],
) -> Result<BTreeMap<IndexId, IndexBuild>, ReadError> {
    let mut told: BTreeMap<IndexId, usize> = BTreeMap::new();
    for old in forerunners {
        for (index, build) in IndexBuild::read_all(&**store.engine(), table.id(), old.group)? {
            *told.entry(index).or_default() += usize::from(build == IndexBuild::Ready);
        }
    }
    let build = |ready| match ready == forerunners.len() {
        true => IndexBuild::Ready,
        false => IndexBuild::default(),
    };
    Ok(told.into_iter().map(|(index, ready)| (index, build(ready))).collect())
}
