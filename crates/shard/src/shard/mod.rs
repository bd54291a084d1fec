//! Reads and writes of one key range.

mod lookup;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datum::{KeyRange, Object, PrimaryKey};
use log::{Durability, GroupId, InitialConfig, Log, Lsn, PeerId, ProposeError, Refusal, Term};
use storage::{IndexBuild, IndexId, Part, ReadError, Table, TableId, TableSnapshot};

use crate::activity::Activity;
use crate::draft::{Decision, Draft};
use crate::index::{IndexDef, IndexDefs, KeptIndexes};
use crate::latch::{Held, Latches};
use crate::proposal::{Answers, Proposal};
use crate::replica::{Found, Replica, incarnation};
use crate::seal::Marking;
use crate::ticket;
use crate::{Forerunner, OpenError, Replicas, Standing, WriteError, WriteRefusal, WriteTicket};

/// One replica of one key range of a table.
pub struct Shard {
    pub(crate) log: Arc<dyn Log>,
    table: Table,
    part: Part,
    pub(crate) sequence_last: AtomicU64,
    retired: AtomicBool,
    pub(crate) marking: Marking,
    indexes: KeptIndexes,
    // Shared with the proposals that are still to be answered.
    pub(crate) answers: Arc<Answers>,
    activity: Arc<Activity>,
}

impl Shard {
    /// Opens the shard of `table` that `group` orders, for the keys in `range`: replays what the log
    /// has and the engine has not. Blocks meanwhile. `birth` says how a new group begins.
    ///
    /// It takes writes when [`Replicas::take_office`] says that it leads.
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
    /// `forerunners` have left in its range. Each of them is sealed, applied here up to that, and
    /// together they cover the range.
    pub fn open_after(
        replicas: &Arc<Replicas>,
        log: Arc<dyn Log>,
        table: TableId,
        group: GroupId,
        range: KeyRange,
        birth: InitialConfig,
        forerunners: &[Forerunner],
    ) -> Result<Arc<Shard>, OpenError> {
        let activity = replicas.count_for(table);
        let table = Table::new(Arc::clone(replicas.store()), table);
        let part = Part { range, group };
        let found = match birth {
            InitialConfig::Joining { .. } => Found::Foreign,
            InitialConfig::BootstrapEmpty { .. } => Found::Nothing,
            InitialConfig::Single | InitialConfig::Bootstrap { .. } => Found::Own(forerunners),
        };
        let replica = Arc::new(Replica::load(replicas.store(), &table, &part, found)?);
        replicas.add(Arc::clone(&replica));
        if let Err(error) = log.open_group(group, replica.applied(), birth) {
            replicas.forget(group);
            return Err(error.into());
        }
        // A log that nobody watches does not tell, and one that is watched may do so later.
        let status = log.group_status(group)?;
        replica.take_first_office(status.role);
        if status.needs_rows {
            replica.make_void();
        }
        Ok(Arc::new(Shard {
            log,
            table,
            part,
            sequence_last: AtomicU64::new(0),
            retired: AtomicBool::new(false),
            marking: Marking::default(),
            indexes: KeptIndexes::default(),
            answers: Arc::new(Answers { replica, latches: Latches::new() }),
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
        self.table.snapshot(self.part.clone())
    }

    /// As [`Shard::snapshot`], for who cannot wait: `None` where much would have to be written first.
    pub fn snapshot_at_once(&self) -> Result<Option<TableSnapshot>, ReadError> {
        self.table.snapshot_at_once(self.part.clone())
    }

    /// The number of applied rows.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.answers.replica.rows()
    }

    /// The last position that reads show.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.answers.replica.applied()
    }

    /// Whether this replica leads: it takes writes, and its applied state is the newest there is.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leads() && !self.mark().is_sealed()
    }

    /// Whether this replica leads its group, which may be sealed.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.answers.replica.leads()
    }

    /// The replica that leads, as far as this one knows; `None` also when it is this one.
    #[must_use]
    pub fn leader(&self) -> Option<PeerId> {
        self.answers.replica.office().leader
    }

    /// Calls `told` with the position whenever entries were applied, on the log's thread: it must not
    /// wait. Only the first one is kept.
    pub fn on_applied(&self, told: Box<dyn Fn(Lsn) + Send + Sync>) {
        self.answers.replica.tell(told);
    }

    /// A ticket that resolves once a majority has confirmed that this replica leads, and everything
    /// acknowledged before this call is applied here: reads that follow are linearizable.
    pub fn confirm(&self) -> WriteTicket {
        let (sender, ticket) = ticket::pair();
        let answers = Arc::clone(&self.answers);
        let done = move |outcome: Result<Lsn, ProposeError>| {
            // Others may have written to the range since: whoever acknowledged that had seen the seal.
            let sealed = answers.replica.mark().is_sealed();
            let group = answers.replica.group;
            sender.send(match outcome {
                Ok(_) if sealed => Err(WriteRefusal::Retired { group }.into()),
                outcome => outcome.map_err(Into::into),
            });
        };
        self.log.read_index(self.part.group, Box::new(done));
        ticket
    }

    /// Takes the state that the engine has now: the rows were replaced by a copy.
    pub(crate) fn reload(&self) -> Result<(), ReadError> {
        self.answers.replica.reload(self.table.store(), &self.table, &self.part)
    }

    /// Which rows are there now. To be asked before they are read, and [`Shard::stands`] afterwards: a copy
    /// may begin and end in between.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.answers.replica.standing()
    }

    /// Whether what was read, or is in a snapshot that was taken, since the rows were `standing` may be shown:
    /// they were good then and all the time since.
    #[must_use]
    pub fn stands(&self, standing: Standing) -> bool {
        self.answers.replica.stands(standing)
    }

    /// Whether the rows are void until they are replaced by a copy, or for good: nobody may read them.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.answers.replica.is_void()
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn part(&self) -> &Part {
        &self.part
    }

    /// The keys this shard answers for.
    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.part.range
    }

    /// The group that orders its writes.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.part.group
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
        self.write_one(key, Way { durability, aside: false }, decide)
    }

    /// As [`Shard::write`], by somebody who calls [`Log::turn`] in a moment, when it may have written more:
    /// until then the ticket may not resolve.
    pub fn write_aside<R>(
        &self,
        key: &PrimaryKey,
        durability: Durability,
        decide: impl FnOnce(Option<&Object>) -> (Decision, R),
    ) -> Result<(R, WriteTicket), WriteError> {
        self.write_one(key, Way { durability, aside: true }, decide)
    }

    fn write_one<R>(
        &self,
        key: &PrimaryKey,
        way: Way,
        decide: impl FnOnce(Option<&Object>) -> (Decision, R),
    ) -> Result<(R, WriteTicket), WriteError> {
        let (held, term) = self.hold(std::slice::from_ref(key))?;
        let indexes = self.indexes.kept(&self.answers.replica)?;
        let mut draft = Draft::default();
        let old = self.newest(key, &held, &mut draft)?;
        let (decision, answer) = decide(old.as_ref());
        draft.add(key, old.as_ref(), decision, &indexes);
        self.activity.add_written(1);
        Ok((answer, self.propose(draft, held, term, way).1))
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
        let mut draft = Draft::default();
        let indexes = self.indexes.kept(&self.answers.replica)?;
        let mut answers = Vec::with_capacity(keys.len());
        for (index, key) in keys.iter().enumerate() {
            let old = self.newest(key, &held, &mut draft)?;
            let (decision, answer) = decide(index, old.as_ref());
            draft.add(key, old.as_ref(), decision, &indexes);
            answers.push(answer);
        }
        self.activity.add_written(keys.len());
        Ok((answers, self.propose(draft, held, term, Way { durability, aside: false }).1))
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
        self.log.sync(self.part.group, Box::new(done));
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
        if self.indexes.set(indexes, &self.answers.replica) {
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
    pub fn has_heard_of(&self, index: IndexId) -> bool {
        self.indexes.has_heard_of(index)
    }

    /// Whether the group was told of an index.
    pub(crate) fn has_index(&self, index: IndexId) -> bool {
        self.answers.replica.has_index(index)
    }

    /// How far an index is built, as it was applied.
    #[must_use]
    pub fn index_build(&self, index: IndexId) -> IndexBuild {
        self.answers.replica.index_build(index)
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
        let mut draft = Draft::default();
        after.into_iter().for_each(|sequence| draft.depend_on(sequence));
        let mut indexes = self.indexes().to_vec();
        indexes.retain(|index| builds.iter().any(|(id, _)| *id == index.id()));
        for key in keys {
            if let Some(row) = self.newest_once(key, &held, &mut draft)? {
                draft.add_entries(key, &row, &indexes);
            }
        }
        for (index, build) in builds {
            draft.add_build(index, build);
        }
        Ok(self.propose(draft, held, term, Way { durability, aside: false }))
    }

    /// Returns when every write that is between reading and proposing now is proposed.
    pub(crate) fn wait_for_writers(&self) {
        self.answers.latches.wait_for_writers();
    }

    /// The latches of `keys`, and the term in which what is read under them is the newest.
    fn hold(&self, keys: &[PrimaryKey]) -> Result<(Held<'_>, Term), WriteRefusal> {
        let group = self.part.group;
        if let Some(key) = keys.iter().find(|key| !self.part.range.contains(key)) {
            return Err(WriteRefusal::Elsewhere { key: key.clone(), group });
        }
        let held = self.answers.latches.hold(keys.iter());
        let office = self.answers.replica.office();
        if office.term == Term(0) {
            return Err(Refusal::NotLeader { leader: office.leader }.into());
        }
        let mark = self.mark();
        if self.retired.load(Ordering::Acquire) || mark.is_sealed() || self.marking.holds_back(mark) {
            return Err(WriteRefusal::Retired { group });
        }
        Ok((held, office.term))
    }

    /// The row the next change of `key` is evaluated on.
    fn newest(
        &self,
        key: &PrimaryKey,
        held: &Held<'_>,
        draft: &mut Draft,
    ) -> Result<Option<Object>, ReadError> {
        if let Some(row) = draft.changed_row(key) {
            return Ok(row);
        }
        if let Some(proposed) = held.newest(key) {
            draft.depend_on(proposed.sequence);
            return Ok(proposed.row.clone());
        }
        self.table.get(key)
    }

    /// The same for a row that nobody is expected to ask for soon.
    fn newest_once(
        &self,
        key: &PrimaryKey,
        held: &Held<'_>,
        draft: &mut Draft,
    ) -> Result<Option<Object>, ReadError> {
        match held.newest(key) {
            Some(proposed) => {
                draft.depend_on(proposed.sequence);
                Ok(proposed.row.clone())
            }
            None => self.table.get_once(key),
        }
    }

    /// Proposes what is in `draft`; also the number it has.
    fn propose(&self, draft: Draft, mut held: Held<'_>, term: Term, way: Way) -> (u64, WriteTicket) {
        if draft.is_nothing() {
            return (0, WriteTicket::known(Ok(self.applied())));
        }
        let sequence = self.sequence_last.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = draft.encode(incarnation(term), sequence);
        let keys = draft.publish(&mut held, sequence);
        let (proposal, ticket) = Proposal::new(Arc::clone(&self.answers), keys, sequence);
        // Still under the latches: the log's order is the order of evaluation.
        let (group, durability, done) = (self.part.group, way.durability, proposal.done());
        match way.aside {
            true => self.log.propose_deferred(group, Some(term), entry, durability, done),
            false => self.log.propose_in(group, Some(term), entry, durability, done),
        }
        drop(held);
        proposal.let_go();
        (sequence, ticket)
    }
}

/// How an entry goes to the log.
#[derive(Clone, Copy)]
struct Way {
    durability: Durability,
    // Whether its writer comes back for the log's turn.
    aside: bool,
}
