//! Reads and writes of one key range.

mod lookup;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datum::{KeyRange, Object, PrimaryKey};
use log::{Durability, GroupId, InitialConfig, Log, Lsn, PeerId, ProposeError, Refusal, Term};
use storage::{IndexBuild, IndexId, ReadError, ShardRange, Table, TableId, TableSnapshot};

use crate::activity::Activity;
use crate::entry_builder::{Decision, EntryBuilder};
use crate::index::{IndexDef, IndexDefs, MaintainedIndexes};
use crate::latch::{HeldLatches, Latches};
use crate::proposal::{Proposal, ProposalContext};
use crate::replica::{InitialRows, Replica, incarnation};
use crate::seal::SealProposals;
use crate::ticket;
use crate::{OpenError, Predecessor, Replicas, RowsGeneration, WriteError, WriteRefusal, WriteTicket};

/// One replica of one key range of a table.
pub struct Shard {
    pub(crate) log: Arc<dyn Log>,
    table: Table,
    shard_range: ShardRange,
    pub(crate) sequence_last: AtomicU64,
    retired: AtomicBool,
    pub(crate) seals: SealProposals,
    indexes: MaintainedIndexes,
    // Shared with the proposals that are still to be answered.
    pub(crate) context: Arc<ProposalContext>,
    activity: Arc<Activity>,
}

impl Shard {
    /// Opens the shard of `table` that `group` orders, for the keys in `range`: replays what the log
    /// has and the engine has not. Blocks meanwhile. `birth` says how a new group begins.
    ///
    /// It takes writes when [`Replicas::set_role`] says that it leads.
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

    /// As [`Shard::open`]: a new group that does not join begins with the rows, and the built indexes, that
    /// `predecessors` have left in its range. Each of them is sealed, applied here up to that, and
    /// together they cover the range.
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
        // A log that nobody watches does not tell, and one that is watched may do so later.
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
            seals: SealProposals::default(),
            indexes: MaintainedIndexes::default(),
            context: Arc::new(ProposalContext { replica, latches: Latches::new() }),
            activity,
        }))
    }

    /// What was read and written of the table. Whoever reads a snapshot adds the rows of it.
    #[must_use]
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// The applied rows of this shard as of now. Positions only grow: a snapshot taken later includes
    /// everything in one taken before.
    pub fn snapshot(&self) -> Result<TableSnapshot, ReadError> {
        self.table.snapshot(self.shard_range.clone())
    }

    /// As [`Shard::snapshot`], for who cannot wait: `None` where much would have to be written first.
    pub fn try_snapshot(&self) -> Result<Option<TableSnapshot>, ReadError> {
        self.table.try_snapshot(self.shard_range.clone())
    }

    /// The number of applied rows.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.context.replica.rows()
    }

    /// The last position that reads show.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.context.replica.applied()
    }

    /// Whether this replica leads: it takes writes, and its applied state is the newest there is.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leads() && !self.seal_state().is_sealed()
    }

    /// Whether this replica leads its group, which may be sealed.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.context.replica.leads()
    }

    /// The replica that leads, as far as this one knows; `None` also when it is this one.
    #[must_use]
    pub fn leader(&self) -> Option<PeerId> {
        self.context.replica.leadership().leader
    }

    /// Calls `told` with the position whenever entries were applied, on the log's thread: it must not
    /// wait. Only the first one is kept.
    pub fn on_applied(&self, told: Box<dyn Fn(Lsn) + Send + Sync>) {
        self.context.replica.tell(told);
    }

    /// A ticket that resolves once a majority has confirmed that this replica leads, and everything
    /// acknowledged before this call is applied here: reads that follow are linearizable.
    pub fn confirm(&self) -> WriteTicket {
        let (sender, ticket) = ticket::pair();
        let context = Arc::clone(&self.context);
        let done = move |outcome: Result<Lsn, ProposeError>| {
            // Others may have written to the range since: whoever acknowledged that had seen the seal.
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

    /// Takes the state that the engine has now: the rows were replaced by a copy.
    pub(crate) fn reload(&self) -> Result<(), ReadError> {
        self.context.replica.reload(self.table.store(), &self.table, &self.shard_range)
    }

    /// Which rows are there now. To be asked before they are read, and [`Shard::is_current`] afterwards: a copy
    /// may begin and end in between.
    #[must_use]
    pub fn rows_generation(&self) -> RowsGeneration {
        self.context.replica.rows_generation()
    }

    /// Whether what was read, or is in a snapshot that was taken, since the rows were `rows_generation` may be shown:
    /// they were good then and all the time since.
    #[must_use]
    pub fn is_current(&self, rows_generation: RowsGeneration) -> bool {
        self.context.replica.is_current(rows_generation)
    }

    /// Whether the rows are void until they are replaced by a copy, or for good: nobody may read them.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.context.replica.is_recovering()
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn shard_range(&self) -> &ShardRange {
        &self.shard_range
    }

    /// The keys this shard answers for.
    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.shard_range.range
    }

    /// The group that orders its writes.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.shard_range.group
    }

    /// Writes one row: `decide` gets the newest proposed row and says what becomes of it; whatever
    /// else it returns is handed back. Does not wait for the disk, the ticket does.
    ///
    /// `decide` runs under the row's latch: it must be quick and must not write to this shard. If it
    /// leaves the row as it is, nothing is written, and the ticket resolves once the row it saw is
    /// known to be real. An error here means that `decide` was not called.
    pub fn write<R>(
        &self,
        key: &PrimaryKey,
        durability: Durability,
        decide: impl FnOnce(Option<&Object>) -> (Decision, R),
    ) -> Result<(R, WriteTicket), WriteError> {
        self.write_one(key, ProposeMode { durability, is_deferred: false }, decide)
    }

    /// As [`Shard::write`], by somebody who calls [`Log::turn`] in a moment, when it may have written more:
    /// until then the ticket may not resolve.
    pub fn write_deferred<R>(
        &self,
        key: &PrimaryKey,
        durability: Durability,
        decide: impl FnOnce(Option<&Object>) -> (Decision, R),
    ) -> Result<(R, WriteTicket), WriteError> {
        self.write_one(key, ProposeMode { durability, is_deferred: true }, decide)
    }

    fn write_one<R>(
        &self,
        key: &PrimaryKey,
        mode: ProposeMode,
        decide: impl FnOnce(Option<&Object>) -> (Decision, R),
    ) -> Result<(R, WriteTicket), WriteError> {
        let (held, term) = self.hold(std::slice::from_ref(key))?;
        let indexes = self.indexes.kept(&self.context.replica)?;
        let mut builder = EntryBuilder::default();
        let old = self.newest(key, &held, &mut builder)?;
        let (decision, answer) = decide(old.as_ref());
        builder.add(key, old.as_ref(), decision, &indexes);
        self.activity.add_written(1);
        Ok((answer, self.propose(builder, held, term, mode).1))
    }

    /// Writes several rows in one entry: all of them or none. `decide` is called once per key in the
    /// order of `keys`, in which a key may occur again and then sees what was decided before.
    ///
    /// A few hundred rows are a good size; the log refuses an entry that is too large for it. Else
    /// like [`Shard::write`]; an error here may come after some calls of `decide`, and then nothing
    /// is written.
    pub fn write_many<R>(
        &self,
        keys: &[PrimaryKey],
        durability: Durability,
        mut decide: impl FnMut(usize, Option<&Object>) -> (Decision, R),
    ) -> Result<(Vec<R>, WriteTicket), WriteError> {
        let (held, term) = self.hold(keys)?;
        let mut builder = EntryBuilder::default();
        let indexes = self.indexes.kept(&self.context.replica)?;
        let mut context = Vec::with_capacity(keys.len());
        for (index, key) in keys.iter().enumerate() {
            let old = self.newest(key, &held, &mut builder)?;
            let (decision, answer) = decide(index, old.as_ref());
            builder.add(key, old.as_ref(), decision, &indexes);
            context.push(answer);
        }
        self.activity.add_written(keys.len());
        Ok((context, self.propose(builder, held, term, ProposeMode { durability, is_deferred: false }).1))
    }

    /// Writes rows whatever was there before, in one entry. What goes wrong is in the ticket.
    pub fn write_rows(&self, rows: Vec<(PrimaryKey, Decision)>, durability: Durability) -> WriteTicket {
        let (keys, decisions): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let mut decisions = decisions.into_iter();
        let decide = |_, _: Option<&Object>| (decisions.next().unwrap_or(Decision::Unchanged), ());
        match self.write_many(&keys, durability, decide) {
            Ok((_, ticket)) => ticket,
            Err(error) => WriteTicket::known(Err(error)),
        }
    }

    /// A ticket that resolves once every write proposed before this call is durable and applied,
    /// soft ones included.
    pub fn sync(&self) -> WriteTicket {
        let (sender, ticket) = ticket::pair();
        let done = move |outcome: Result<Lsn, ProposeError>| sender.send(outcome.map_err(Into::into));
        self.log.sync(self.shard_range.group, Box::new(done));
        ticket
    }

    /// Takes no more writes: they are refused from now on with [`WriteRefusal::Retired`]. Those
    /// proposed before go on; [`Shard::sync`] waits for them. Reads are still answered.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        // A writer that looked before is past its proposal when its latch is free.
        self.wait_for_writers();
    }

    /// Knows `indexes` from now on, and no others. The entries of one come with every write from the
    /// moment an [`crate::IndexBuilder`] has told the group of it; rows that were there before get
    /// theirs from that builder.
    pub fn set_indexes(&self, indexes: IndexDefs) {
        if self.indexes.set(indexes, &self.context.replica) {
            self.wait_for_writers();
        }
    }

    /// The indexes it knows.
    #[must_use]
    pub fn indexes(&self) -> Arc<Vec<Arc<IndexDef>>> {
        self.indexes.known()
    }

    /// Whether this replica has heard of an index, which may be gone by now.
    #[must_use]
    pub fn has_seen_index(&self, index: IndexId) -> bool {
        self.indexes.has_seen_index(index)
    }

    /// Whether the group was told of an index.
    pub(crate) fn has_index(&self, index: IndexId) -> bool {
        self.context.replica.has_index(index)
    }

    /// How far an index is built, as it was applied.
    #[must_use]
    pub fn index_build(&self, index: IndexId) -> IndexBuild {
        self.context.replica.index_build(index)
    }

    /// Notes that an index is built: every row of the range has its entries already.
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

    /// Proposes the entries of the newest rows under `keys` in the indexes of `builds`, and with them
    /// how far those are built then. Nothing of it happens if proposal `after` does not.
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

    /// Returns when every write that is between reading and proposing now is proposed.
    pub(crate) fn wait_for_writers(&self) {
        self.context.latches.wait_for_writers();
    }

    /// The latches of `keys`, and the term in which what is read under them is the newest.
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

    /// The row the next change of `key` is evaluated on.
    fn newest(
        &self,
        key: &PrimaryKey,
        held: &HeldLatches<'_>,
        builder: &mut EntryBuilder,
    ) -> Result<Option<Object>, ReadError> {
        if let Some(row) = builder.changed_row(key) {
            return Ok(row);
        }
        if let Some(proposed) = held.newest(key) {
            builder.depend_on(proposed.sequence);
            return Ok(proposed.row.clone());
        }
        self.table.get(key)
    }

    /// The same for a row that nobody is expected to ask for soon.
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

    /// Proposes what is in `builder`; also the number it has.
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
        let sequence = self.sequence_last.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = builder.encode(incarnation(term), sequence);
        let keys = builder.publish(&mut held, sequence);
        let (proposal, ticket) = Proposal::new(Arc::clone(&self.context), keys, sequence);
        // Still under the latches: the log's order is the order of evaluation.
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

/// How an entry goes to the log.
#[derive(Clone, Copy)]
struct ProposeMode {
    durability: Durability,
    // Whether its writer comes back for the log's turn.
    is_deferred: bool,
}
