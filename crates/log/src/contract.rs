//! The contract between a log, the shards that write to it, and the engine that it writes into.
//!
//! ```text
//!   positions of one group:
//!
//!   1 ........ applied ........ soft ......... last        (grows to the right)
//!                      durable
//!
//!   durable   on a quorum, survives a power loss               (moved by fsyncs)
//!   soft      on a quorum, survives the end of processes       (moved by writes)
//!   applied   handed to the Applier and returned; never past a hard entry that is not durable
//! ```
//!
//! In a group of one, the replica is the quorum.

use bytes::Bytes;
use io::Nanos;

use crate::error::{ApplyError, Interruption, LogError, ProposeError};
use crate::log_base::LogBase;
use crate::log_sync::LogSync;
use crate::lsn::{Acks, Durability, GroupId, Lsn, Term};
use crate::member::{GroupStatus, InitialConfig, MemberChange, Members, PeerId, Role};
use crate::stats::LogStats;

/// One entry on its way to the engine.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The group whose log it is in.
    pub group: GroupId,
    /// Its position in that log.
    pub lsn: Lsn,
    /// Its content, as it was proposed.
    pub payload: Bytes,
}

/// A message from one replica of a group to another. Messages may be lost, delayed, repeated and reordered; the receiver
/// checks every field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub group: GroupId,
    /// The replica that sent it.
    pub from: PeerId,
    /// The replica that it is addressed to.
    pub to: PeerId,
    /// The content; docs/formats/message.md.
    pub body: Bytes,
}

/// Carries messages to other nodes.
pub trait Transport: Send + Sync {
    /// Sends `messages`, or drops some. Called during a step of the log: must not wait for anything, nor call the
    /// blocking methods of the log.
    fn send(&self, messages: Vec<Message>);
}

/// Is notified of changes in groups. Called during a step of the log: must not wait for anything, nor call the blocking
/// methods of the log.
pub trait GroupObserver: Send + Sync {
    /// The role of the local replica has changed. [`Role::Leader`] is reported once everything of earlier terms is applied
    /// here; proposals are taken from then on.
    fn role_changed(&self, id: GroupId, role: Role);

    /// The voters of the group, as the local replica knows them: called when the group is opened, and when a change is in
    /// force here.
    fn voters_changed(&self, _id: GroupId, _voters: &[PeerId]) {}

    /// On the leader: replica `to` needs a copy of the rows, since the log no longer has the entries that it lacks, or its
    /// rows are invalid. Repeated every few seconds until it is restored.
    fn snapshot_needed(&self, id: GroupId, to: PeerId);

    /// The rows of the local replica are invalid: it has just joined, or a power loss took entries from a quorum that
    /// were applied here, or a restore was interrupted. Discard them and restore: [`Log::begin_restore`]. Until then the
    /// replica applies nothing and never takes proposals.
    fn rows_needed(&self, id: GroupId);

    /// The local replica is no longer a member: a tombstone is durable, its entries are deleted, and the group is closed
    /// here. Not every removed replica receives this, so its owner removes it in other ways as well.
    fn removed(&self, id: GroupId);
}

/// A transport and an observer that do nothing, for groups with one replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noop;

impl Transport for Noop {
    fn send(&self, _messages: Vec<Message>) {}
}

impl GroupObserver for Noop {
    fn role_changed(&self, _id: GroupId, _role: Role) {}
    fn snapshot_needed(&self, _id: GroupId, _to: PeerId) {}
    fn rows_needed(&self, _id: GroupId) {}
    fn removed(&self, _id: GroupId) {}
}

/// The log makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When it began.
    pub since: Nanos,
    pub cause: StallCause,
}

/// Why a log makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallCause {
    /// The log has stopped permanently: [`Log::stopped`].
    Stopped,
    /// The disk is full. Writing is retried at intervals.
    Full,
    /// A step is running. A short one is normal; if it runs for seconds, a disk or an engine hangs. An fsync that hangs by
    /// itself is not a stall, since the log continues to append and other replicas receive the entries.
    Slow,
}

/// Called once with the log base of a copied replica.
pub type LogBaseDone = Box<dyn FnOnce(Result<LogBase, ProposeError>) + Send>;

/// Called once with the outcome of a proposal, on the log thread or on that of a proposer that drives the log. It should
/// fill a oneshot and return. It must not wait for anything, nor call the blocking methods of the log, nor
/// [`Log::drive`]. It is dropped without a call only if that thread has panicked; the outcome is then unknown.
pub type Done = Box<dyn FnOnce(Result<Lsn, ProposeError>) + Send>;

/// Applies ordered entries. Implemented by the owner of the groups.
pub trait Applier: Send + Sync {
    /// Applies `entries`; their effect is visible when it returns. Called by one thread at a time.
    ///
    /// Entries of one group come in order of their Lsn, each once in the life of a process; a batch may have many entries
    /// of many groups. After a restart the entries after [`Applier::applied`] come again. One engine batch per call makes
    /// this cheap. The rows and the position reached must be written in the same batch.
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError>;

    /// The position that the engine would have for `group` after a restart without a crash.
    fn applied(&self, group: GroupId) -> Lsn;

    /// The position that the engine would have for each of `groups` after a power loss now; zero if it does not know.
    /// Called on a separate thread while `apply` continues.
    fn durable(&self, groups: &[GroupId]) -> Vec<Lsn> {
        vec![Lsn::default(); groups.len()]
    }

    /// Called once, when the log is opened and before anything is applied. Before rows become durable, in
    /// [`Applier::flush`] or whenever the engine decides so, a call of [`LogSync::sync`] must have succeeded that began
    /// after the last of these rows was applied. An engine that keeps nothing across a power loss may ignore this.
    fn set_log_sync(&self, _log: LogSync) {}

    /// Makes everything durable that was applied before the call. Called on a separate thread while `apply` continues; the
    /// log deletes the entries afterwards.
    fn flush(&self) -> Result<(), ApplyError>;
}

/// One log for all groups of a node.
///
/// Dropping a log finishes the proposals, makes everything durable, and joins its threads.
pub trait Log: Send + Sync {
    /// Opens the group; the first time, creates it as `initial` says.
    ///
    /// A group of one replays the entries after `applied` through the applier before this returns, and takes proposals
    /// from then on. A group of several applies entries when its leader reports them as committed, and takes proposals
    /// where [`GroupObserver::role_changed`] reports a leader. Blocks.
    ///
    /// `applied` is the *durable* position of the engine. It may be past the end of the log only if files were changed or
    /// a disk lost durable data, since rows follow the log ([`Applier::set_log_sync`]). A group of one then continues
    /// after that position; a group of several [needs rows](GroupObserver::rows_needed).
    fn open_group(&self, id: GroupId, applied: Lsn, initial: InitialConfig) -> Result<(), LogError>;

    /// Closes the group permanently on this node: its entries are deleted, a durable tombstone stays, and it can never be
    /// opened again. A group of one finishes its proposals first. Blocks.
    ///
    /// Fails with [`LogError::NotOpen`] if the group is not open, even if it was removed just now; the removal is durable
    /// then. On a full disk every call fails with [`LogError::TombstonePending`], or with [`LogError::Stopped`] if
    /// entries of a group of one wait for space. The rows must not be deleted while it fails in this way.
    fn close_group(&self, id: GroupId) -> Result<(), LogError>;

    /// Removes the local replica and its entries, and leaves a durable tombstone of its peer id. The group may be opened
    /// here again as another replica. [`Log::change_members`] removes it from the group; this does not. Fails as
    /// [`Log::close_group`] does. Blocks.
    fn leave_group(&self, id: GroupId) -> Result<(), LogError>;

    /// Orders `entry` after everything proposed to the group before. Never blocks on the disk.
    ///
    /// `done` is called once, after the entry is as durable as requested **and** applied here. On a replica that does not
    /// lead, the result is [`NotLeader`](crate::Refusal::NotLeader), which is definite.
    fn propose(&self, id: GroupId, entry: Bytes, durability: Durability, done: Done) {
        self.propose_in(id, None, entry, durability, done);
    }

    /// As [`Log::propose`], and refused unless this replica leads in exactly `term`. A caller that has evaluated on rows
    /// names the term in which those rows were current.
    fn propose_in(&self, id: GroupId, term: Option<Term>, entry: Bytes, durability: Durability, done: Done);

    /// As [`Log::propose_in`], for a caller that calls [`Log::drive`] shortly, when more entries may have arrived: until
    /// then no thread need be woken for the entry. `done` may be called on that thread.
    fn propose_deferred(
        &self,
        id: GroupId,
        term: Option<Term>,
        entry: Bytes,
        durability: Durability,
        done: Done,
    ) {
        self.propose_in(id, term, entry, durability, done);
    }

    /// Orders and carries out deferred proposals, unless another thread is doing so already. Costs almost nothing if there
    /// are none. May occasionally wait for the disk.
    fn drive(&self) {}

    /// The caller has more calls in a moment, perhaps for several groups. Until it calls [`Log::release`], proposals and
    /// messages of any caller wake no thread. Until then it must not wait for anything that was proposed to or requested
    /// from the log. Never blocks.
    fn hold(&self) {}

    /// Ends a [`Log::hold`], soon after it: everything that has arrived meanwhile is handled together.
    fn release(&self) {}

    /// Sets how many other replicas must have an entry before its proposer is answered, for entries that this replica
    /// orders, until the group is closed here. The default is [`Acks::Majority`]. No effect in a group of one.
    fn set_acks(&self, id: GroupId, acks: Acks);

    /// Calls `done` with the last position of the group once every entry proposed before this call is durable and applied,
    /// soft ones included. Only on the leader.
    fn sync(&self, id: GroupId, done: Done);

    /// A message from another node has arrived. Never blocks.
    fn receive(&self, message: Message);

    /// On the leader: calls `done` with a position that a linearizable read must have applied, once a quorum has
    /// confirmed the leader and the position is applied here.
    fn read_index(&self, id: GroupId, done: Done);

    /// On the leader: changes the members, and calls `done` once the change is committed and in force here. Only one
    /// change may be on its way: another is refused as [`Busy`](crate::Refusal::Busy).
    fn change_members(&self, id: GroupId, change: MemberChange, done: Done);

    /// Hands leadership over to `to`, if this replica leads and `to` votes. May fail silently;
    /// [`GroupObserver::role_changed`] reports success.
    fn transfer(&self, id: GroupId, to: PeerId);

    /// Requests an election now. No effect if a leader is known to be alive.
    fn campaign(&self, id: GroupId);

    /// The nodes of these replicas are unreachable: groups that they lead elect another leader.
    fn peers_unreachable(&self, peers: Vec<PeerId>);

    /// The nodes of these replicas are reachable again: groups with them check whether anything is missing.
    fn peers_reachable(&self, peers: Vec<PeerId>);

    /// On the leader: calls `done` with the log base for a copy of the rows at `at`, once `at` is durable on a quorum.
    /// The quorum may need this very copy. So if that takes longer than a second, the base is at the commit position
    /// and includes the entries after it. Fails if `at` is no longer in the log, and if those entries are too many for a
    /// copy or not durable here.
    fn log_base(&self, id: GroupId, at: Lsn, done: LogBaseDone);

    /// The rows of the local replica are about to be discarded; that is durable on return. Until [`Log::finish_restore`],
    /// and across restarts, the replica applies nothing and never takes proposals. Blocks.
    fn begin_restore(&self, id: GroupId) -> Result<(), LogError>;

    /// The engine has, durably, the rows of `base` as of its [position](LogBase::rows_lsn): the log continues after it.
    /// Fails with [`LogError::OtherEntries`] if the log has other entries than those in `base`; the rows stay invalid,
    /// and another copy is needed. If the disk becomes full meanwhile, the new state is the first thing written when
    /// there is space again. Blocks.
    fn finish_restore(&self, id: GroupId, base: LogBase) -> Result<(), LogError>;

    /// Unsafe, for a group that has permanently lost its quorum: from now on, durably, `members` are the members,
    /// whatever the log says up to [`Members::at`](Members). Once a leader has them durably, it tells replicas that they
    /// list as removed so. Returns the members in force. Fails, with nothing changed, if the disk is full. If the disk
    /// becomes full during the call, the members are in force here all the same, and durable when there is space.
    ///
    /// If this replica is their only voter, its log becomes authoritative: everything in it is applied, `at` is set to its
    /// end, and it leads. This fails if its rows are invalid. On any other replica the rows become invalid, since its log
    /// may end with entries that the survivor never had. Blocks.
    fn reset_members(&self, id: GroupId, members: Members) -> Result<Members, LogError>;

    /// The states of these groups on this node, in the given order; `None` for a group that is not open. Blocks for one
    /// step of the log, however many groups there are.
    fn group_statuses(&self, ids: &[GroupId]) -> Result<Vec<Option<GroupStatus>>, LogError>;

    /// The state of one group: [`Log::group_statuses`].
    fn group_status(&self, id: GroupId) -> Result<GroupStatus, LogError> {
        self.group_statuses(&[id])?.pop().flatten().ok_or(LogError::NotOpen(id))
    }

    /// Why the log makes no progress at this moment, if it does not. Never waits, whatever the disk does.
    fn stall(&self) -> Option<Stall> {
        None
    }

    /// The time since which an fsync has been running while the log continues, if one is. Never waits.
    fn sync_since(&self) -> Option<Nanos> {
        None
    }

    /// Why the log has stopped permanently, if it has. Never waits.
    fn stopped(&self) -> Option<Interruption> {
        None
    }

    /// Counters since the log was opened; they may lag behind the last answers.
    fn stats(&self) -> LogStats;
}
