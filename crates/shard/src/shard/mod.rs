//! Reads and writes of one key range.

mod control_entries;
mod old_rows;
mod reads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datum::{KeyRange, Object, PrimaryKey};
use log::{Durability, GroupId, InitialConfig, Log, Lsn, PeerId, ProposeError, Refusal, Term};
use storage::{IndexBuild, IndexId, Reach, ReadError, ShardRange, Table, TableId, TableSnapshot};

use self::old_rows::LatchedWrite;
use crate::activity::Activity;
use crate::entry_builder::{Decision, EntryBuilder};
use crate::history_switch::HistorySwitch;
use crate::index::{IndexDef, IndexDefs, MaintainedIndexes};
use crate::latch::{HeldLatches, Latches};
use crate::proposal::{Proposal, ProposalContext};
use crate::replica::{InitialRows, Replica, incarnation};
use crate::seal::SealProposals;
use crate::ticket;
use crate::{
    OpenError, Predecessor, Replicas, RowsGeneration, SealState, WriteError, WriteRefusal, WriteTicket,
};

/// One replica of one key range of a table.
pub struct Shard {
    pub(crate) log: Arc<dyn Log>,
    table: Table,
    shard_range: ShardRange,
    pub(crate) sequence_last: AtomicU64,
    retired: AtomicBool,
    // Whether rows are written even if the disk is almost full.
    is_always_writable: AtomicBool,
    pub(crate) seals: SealProposals,
    pub(crate) history_switch: HistorySwitch,
    indexes: MaintainedIndexes,
    // Shared with pending proposals.
    pub(crate) context: Arc<ProposalContext>,
    activity: Arc<Activity>,
}

impl Shard {
    /// Opens the shard of `table` whose writes `group` orders, for the keys in `range`. Replays the entries that the
    /// log has and the engine does not; blocks meanwhile. `birth` defines the beginning of a new group.
    ///
    /// It accepts writes when [`Replicas::set_role`] reports that it leads.
    pub fn open(
        replicas: &Arc<Replicas>,
        log: Arc<dyn Log>,
        table: TableId,
        group: GroupId,
        range: KeyRange,
        birth: InitialConfig,
    ) -> Result<Arc<Shard>, OpenError> {
        Shard::open_after(replicas, log, table, group, range, birth, &[])
    }

    /// As [`Shard::open`]. A new group that does not join begins with the rows and the built indexes that
    /// `predecessors` have left in its range. Each of them is sealed and applied here up to its seal, and together they
    /// cover the range.
    pub fn open_after(
        replicas: &Arc<Replicas>,
        log: Arc<dyn Log>,
        table: TableId,
        group: GroupId,
        range: KeyRange,
        birth: InitialConfig,
        predecessors: &[Predecessor],
    ) -> Result<Arc<Shard>, OpenError> {
        let activity = replicas.count_for(table);
        let table = Table::new(Arc::clone(replicas.store()), table);
        let shard_range = ShardRange { range, group };
        let initial_rows = match birth {
            InitialConfig::Joining { .. } => InitialRows::AwaitCopy,
            InitialConfig::BootstrapEmpty { .. } => InitialRows::AwaitCopyUnrecorded,
            InitialConfig::Single | InitialConfig::Bootstrap { .. } => InitialRows::Inherited(predecessors),
        };
        let replica = Arc::new(Replica::load(replicas.store(), &table, &shard_range, initial_rows)?);
        replicas.add(Arc::clone(&replica));
        if let Err(error) = log.open_group(group, replica.applied(), birth) {
            replicas.forget(group);
            return Err(error.into());
        }
        // The log reports roles only to an observer, and perhaps only later.
        let status = log.group_status(group)?;
        replica.set_initial_role(status.role);
        if status.needs_rows {
            replica.mark_recovering();
        }
        Ok(Arc::new(Shard {
            log,
            table,
            shard_range,
            sequence_last: AtomicU64::new(0),
            retired: AtomicBool::new(false),
            is_always_writable: AtomicBool::new(false),
            seals: SealProposals::default(),
            history_switch: HistorySwitch::default(),
            indexes: MaintainedIndexes::default(),
            context: Arc::new(ProposalContext { replica, latches: Latches::new() }),
            activity,
        }))
    }

    /// The counters of reads and writes of the table. Readers of a snapshot add the rows they read.
    #[must_use]
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// A snapshot of the applied rows. Positions only grow: a later snapshot includes everything in an earlier one.
    pub fn snapshot(&self) -> Result<TableSnapshot, ReadError> {
        self.table.snapshot(self.shard_range.clone())
    }

    /// As [`Shard::snapshot`], for callers that must not block: `None` if too much would have to be flushed first. Reads
    /// of the snapshot fail rather than wait for the disk ([`ReadError::needs_disk`]).
    pub fn try_snapshot(&self) -> Result<Option<TableSnapshot>, ReadError> {
        self.table.try_snapshot(self.shard_range.clone())
    }

    /// The number of applied rows.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.context.replica.rows()
    }

    /// The last position that is visible to reads.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.context.replica.applied()
    }

    /// Whether this replica leads and accepts writes; its applied state is then the newest.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leads() && !self.seal_state().is_sealed()
    }

    /// Whether this replica leads its group, sealed or not.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.context.replica.leads()
    }

    /// The seal state of the group, as far as it is applied here.
    #[must_use]
    pub fn seal_state(&self) -> SealState {
        self.context.replica.seal_state()
    }

    /// The leading replica, if it is another one and known here.
    #[must_use]
    pub fn leader(&self) -> Option<PeerId> {
        self.context.replica.leadership().leader
    }

    /// Calls `listener` with the position whenever entries were applied. The call is on the log's thread and must not
    /// block. Only the first listener is kept.
    pub fn on_applied(&self, listener: Box<dyn Fn(Lsn) + Send + Sync>) {
        self.context.replica.set_applied_listener(listener);
    }

    /// A ticket that resolves once a quorum has confirmed that this replica leads, and everything acknowledged before
    /// this call is applied here. Reads that follow are linearizable.
    pub fn confirm(&self) -> WriteTicket {
        let (sender, ticket) = ticket::pair();
        let context = Arc::clone(&self.context);
        let done = move |outcome: Result<Lsn, ProposeError>| {
            // After a seal, other groups may have written to the range and acknowledged it.
            let sealed = context.replica.seal_state().is_sealed();
            let group = context.replica.group;
            sender.send(match outcome {
                Ok(_) if sealed => Err(WriteRefusal::Retired { group }.into()),
                outcome => outcome.map_err(Into::into),
            });
        };
        self.log.read_index(self.shard_range.group, Box::new(done));
        ticket
    }

    /// Reloads the state from the engine: the rows were replaced by a copy.
    pub(crate) fn reload(&self) -> Result<(), ReadError> {
        self.context.replica.reload(self.table.store(), &self.table, &self.shard_range)
    }

    /// The present generation of the rows. Read it before reading rows, and check [`Shard::is_current`] afterwards: a
    /// copy may begin and end in between.
    #[must_use]
    pub fn rows_generation(&self) -> RowsGeneration {
        self.context.replica.rows_generation()
    }

    /// Whether results, or snapshots, obtained since the rows had `rows_generation` may be used: the rows were usable
    /// then and have been ever since.
    #[must_use]
    pub fn is_current(&self, rows_generation: RowsGeneration) -> bool {
        self.context.replica.is_current(rows_generation)
    }

    /// Rows are written even if the disk is almost full: they are few, and needed to make space.
    pub fn keep_writable(&self) {
        self.is_always_writable.store(true, Ordering::Relaxed);
    }

    /// Whether the rows are unusable until a copy replaces them, or permanently. They must not be read.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.context.replica.is_recovering()
    }

    /// The table whose rows it has.
    #[must_use]
    pub fn table_id(&self) -> TableId {
        self.table.id()
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn shard_range(&self) -> &ShardRange {
        &self.shard_range
    }

    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.shard_range.range
    }

    /// The group that orders its writes.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.shard_range.group
    }

    /// Writes one row. `decide` gets the newest proposed row and returns what becomes of it, and a result that is
    /// passed through. Waits for the disk only to read the row, if it is not in memory; for the log the ticket waits.
    ///
    /// `decide` runs under the row's latch: it must be quick and must not write to this shard. If it leaves the row as
    /// it is, nothing is written, and the ticket resolves once the row it saw is applied. An error here means that
    /// `decide` was not called.
    pub fn write<R>(
        &self,
        key: &PrimaryKey,
        durability: Durability,
        decide: impl FnOnce(Option<&Object>) -> (Decision, R),
    ) -> Result<(R, WriteTicket), WriteError> {
        self.write_within(key, durability, Reach::Disk, decide)
    }

    /// As [`Shard::write`], for callers that may not wait for the disk: the row is read as far as `reach` goes.
    pub fn write_within<R>(
        &self,
        key: &PrimaryKey,
        durability: Durability,
        reach: Reach,
        decide: impl FnOnce(Option<&Object>) -> (Decision, R),
    ) -> Result<(R, WriteTicket), WriteError> {
        self.write_one(key, ProposeMode { durability, is_deferred: false }, reach, decide)
    }

    /// As [`Shard::write_within`], for a caller that flushes the log soon, perhaps after more writes: until then the
    /// ticket may not resolve.
    pub fn write_deferred<R>(
        &self,
        key: &PrimaryKey,
        durability: Durability,
        reach: Reach,
        decide: impl FnOnce(Option<&Object>) -> (Decision, R),
    ) -> Result<(R, WriteTicket), WriteError> {
        self.write_one(key, ProposeMode { durability, is_deferred: true }, reach, decide)
    }

    fn write_one<R>(
        &self,
        key: &PrimaryKey,
        mode: ProposeMode,
        reach: Reach,
        decide: impl FnOnce(Option<&Object>) -> (Decision, R),
    ) -> Result<(R, WriteTicket), WriteError> {
        let latched = LatchedWrite::take(self, std::slice::from_ref(key), reach)?;
        let LatchedWrite { held, term, mut builder, old_rows } = latched;
        let indexes = self.indexes.maintained(&self.context.replica)?;
        let old = old_rows.first().and_then(Option::as_ref);
        let (decision, answer) = decide(old);
        builder.add(key, old, decision, &indexes);
        self.activity.add_written(1);
        Ok((answer, self.propose(builder, held, term, mode).1))
    }

    /// Writes several rows in one entry, atomically. `decide` is called once per key in the order of `keys`. A key may
    /// occur again; `decide` then gets the row as decided before.
    ///
    /// A few hundred rows are a good size; the log refuses an entry that is too large. Otherwise like [`Shard::write`].
    pub fn write_many<R>(
        &self,
        keys: &[PrimaryKey],
        durability: Durability,
        mut decide: impl FnMut(usize, Option<&Object>) -> (Decision, R),
    ) -> Result<(Vec<R>, WriteTicket), WriteError> {
        let LatchedWrite { held, term, mut builder, old_rows } = LatchedWrite::take(self, keys, Reach::Disk)?;
        let indexes = self.indexes.maintained(&self.context.replica)?;
        let mut context = Vec::with_capacity(keys.len());
        for (index, (key, old)) in keys.iter().zip(old_rows).enumerate() {
            let old = builder.changed_row(key).unwrap_or(old);
            let (decision, answer) = decide(index, old.as_ref());
            builder.add(key, old.as_ref(), decision, &indexes);
            context.push(answer);
        }
        self.activity.add_written(keys.len());
        Ok((context, self.propose(builder, held, term, ProposeMode { durability, is_deferred: false }).1))
    }

    /// Writes rows regardless of their present state, in one entry. The ticket reports all errors.
    pub fn write_rows(&self, rows: Vec<(PrimaryKey, Decision)>, durability: Durability) -> WriteTicket {
        let (keys, decisions): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let mut decisions = decisions.into_iter();
        let decide = |_, _: Option<&Object>| (decisions.next().unwrap_or(Decision::Unchanged), ());
        match self.write_many(&keys, durability, decide) {
            Ok((_, ticket)) => ticket,
            Err(error) => WriteTicket::known(Err(error)),
        }
    }

    /// A ticket that resolves once every write proposed before this call, soft ones included, is durable and applied.
    pub fn sync(&self) -> WriteTicket {
        let (sender, ticket) = ticket::pair();
        let done = move |outcome: Result<Lsn, ProposeError>| sender.send(outcome.map_err(Into::into));
        self.log.sync(self.shard_range.group, Box::new(done));
        ticket
    }

    /// Stops accepting writes: from now on they fail with [`WriteRefusal::Retired`]. Those proposed before continue;
    /// [`Shard::sync`] waits for them. Reads still work.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        // A writer that looked before is past its proposal when its latch is free.
        self.wait_for_writers();
    }

    /// Sets the known indexes. Writes include the entries of an index from the moment an [`crate::IndexBuilder`] has
    /// registered it with the group; that builder adds the entries of existing rows.
    pub fn set_indexes(&self, indexes: IndexDefs) {
        if self.indexes.set(indexes, &self.context.replica) {
            self.wait_for_writers();
        }
    }

    /// The known indexes.
    #[must_use]
    pub fn indexes(&self) -> Arc<Vec<Arc<IndexDef>>> {
        self.indexes.known()
    }

    /// Whether this replica has ever known an index, which may be dropped by now.
    #[must_use]
    pub fn has_seen_index(&self, index: IndexId) -> bool {
        self.indexes.has_seen_index(index)
    }

    /// Whether an index is registered with the group.
    pub(crate) fn has_index(&self, index: IndexId) -> bool {
        self.context.replica.has_index(index)
    }

    /// The build record of an index, as applied.
    #[must_use]
    pub fn index_build(&self, index: IndexId) -> IndexBuild {
        self.context.replica.index_build(index)
    }

    /// The build records of the indexes, for a copy of this shard.
    pub fn builds(&self) -> Result<Vec<(IndexId, IndexBuild)>, ReadError> {
        IndexBuild::read_all(&**self.table.store().engine(), self.table.id(), self.group())
    }

    /// Records that an index is built: every row of the range already has its entries.
    pub fn set_built(&self, index: IndexId) -> WriteTicket {
        match self.propose_build(&[], vec![(index, IndexBuild::Ready)], None, Durability::Hard) {
            Ok((_, ticket)) => ticket,
            Err(error) => WriteTicket::known(Err(error)),
        }
    }

    /// The number of entries proposed since this shard was opened.
    #[must_use]
    pub fn proposed(&self) -> u64 {
        self.sequence_last.load(Ordering::Relaxed)
    }

    /// Proposes the entries of the newest rows under `keys` in the indexes of `builds`, and with them the new build
    /// records. They are applied only if the proposal `after` is applied.
    pub(crate) fn propose_build(
        &self,
        keys: &[PrimaryKey],
        builds: Vec<(IndexId, IndexBuild)>,
        after: Option<u64>,
        durability: Durability,
    ) -> Result<(u64, WriteTicket), WriteError> {
        let (held, term) = self.hold(keys)?;
        let mut builder = EntryBuilder::default();
        after.into_iter().for_each(|sequence| builder.depend_on(sequence));
        let mut indexes = self.indexes().to_vec();
        indexes.retain(|index| builds.iter().any(|(id, _)| *id == index.id()));
        for key in keys {
            if let Some(row) = self.newest_once(key, &held, &mut builder)? {
                builder.add_entries(key, &row, &indexes);
            }
        }
        for (index, build) in builds {
            builder.add_build(index, build);
        }
        Ok(self.propose(builder, held, term, ProposeMode { durability, is_deferred: false }))
    }

    /// Returns when every write that is now between reading and proposing is proposed.
    pub(crate) fn wait_for_writers(&self) {
        self.context.latches.wait_for_writers();
    }

    /// Takes the latches of `keys`. Also returns the term in which rows read under them are the newest.
    fn hold(&self, keys: &[PrimaryKey]) -> Result<(HeldLatches<'_>, Term), WriteRefusal> {
        let group = self.shard_range.group;
        if let Some(key) = keys.iter().find(|key| !self.shard_range.range.contains(key)) {
            return Err(WriteRefusal::WrongShard { key: key.clone(), group });
        }
        let held = self.context.latches.hold(keys.iter());
        let leadership = self.context.replica.leadership();
        if leadership.term == Term(0) {
            return Err(Refusal::NotLeader { leader: leadership.leader }.into());
        }
        let seal_state = self.seal_state();
        if self.retired.load(Ordering::Acquire)
            || seal_state.is_sealed()
            || self.seals.blocks_writes(seal_state)
        {
            return Err(WriteRefusal::Retired { group });
        }
        Ok((held, leadership.term))
    }

    /// Collects the changes of an entry. Called under the latches of its rows.
    fn entry_builder(&self) -> EntryBuilder {
        EntryBuilder::new(self.history_switch.wants_old_rows(|| self.context.replica.has_history()))
    }

    /// The row on which the next change of `key` is evaluated. It is not expected to be read again soon.
    fn newest_once(
        &self,
        key: &PrimaryKey,
        held: &HeldLatches<'_>,
        builder: &mut EntryBuilder,
    ) -> Result<Option<Object>, ReadError> {
        match held.newest(key) {
            Some(proposed) => {
                builder.depend_on(proposed.sequence);
                Ok(proposed.row.clone())
            }
            None => self.table.get_once(key),
        }
    }

    /// Proposes the entry of `builder`; also returns its sequence number.
    fn propose(
        &self,
        builder: EntryBuilder,
        mut held: HeldLatches<'_>,
        term: Term,
        mode: ProposeMode,
    ) -> (u64, WriteTicket) {
        if builder.is_nothing() {
            return (0, WriteTicket::known(Ok(self.applied())));
        }
        let is_refused = !self.is_always_writable.load(Ordering::Relaxed) && self.table.store().refuses_rows();
        if is_refused && builder.puts_rows() {
            return (0, WriteTicket::known(Err(WriteRefusal::AlmostFull.into())));
        }
        let sequence = self.sequence_last.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = builder.encode(incarnation(term), sequence);
        let keys = builder.publish(&mut held, sequence);
        let (proposal, ticket) = Proposal::new(Arc::clone(&self.context), keys, sequence);
        // Still under the latches, so that the log's order is the order of evaluation.
        let (group, durability, done) = (self.shard_range.group, mode.durability, proposal.done());
        match mode.is_deferred {
            true => self.log.propose_deferred(group, Some(term), entry, durability, done),
            false => self.log.propose_in(group, Some(term), entry, durability, done),
        }
        drop(held);
        proposal.release_latches();
        (sequence, ticket)
    }
}

/// Options of a proposal.
#[derive(Clone, Copy)]
struct ProposeMode {
    durability: Durability,
    // Whether the caller flushes the log itself.
    is_deferred: bool,
}
