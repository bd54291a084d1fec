//! The contract between a log, the shards that write to it, and the engine they write into.
//!
//! ```text
//!   positions of one group:
//!
//!   1 ........ applied ........ soft ......... last        (grows to the right)
//!                      durable
//!
//!   durable   on a majority, survives a power loss             (moved by fsyncs)
//!   soft      on a majority, survives the end of processes     (moved by writes)
//!   applied   handed to the Applier and returned; never past a hard entry that is not durable
//! ```
//!
//! A group of one is its own majority.

use bytes::Bytes;
use io::Nanos;

use crate::error::{ApplyError, Interruption, LogError, ProposeError};
use crate::log_base::LogBase;
use crate::log_sync::LogSync;
use crate::lsn::{Acks, Durability, GroupId, Lsn, Term};
use crate::member::{GroupStatus, InitialConfig, MemberChange, Members, PeerId, Role};
use crate::stats::LogStats;

/// One entry on its way to the engine.
pub type Entry = (GroupId, Lsn, Bytes);

/// Bytes from one replica of a group to another. They may be lost, delayed, repeated and overtake
/// each other; a receiver checks them and believes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The group.
    pub group: GroupId,
    /// The replica that wrote it.
    pub from: PeerId,
    /// The replica it is for.
    pub to: PeerId,
    /// What it says; docs/formats/message.md.
    pub body: Bytes,
}

/// Takes messages to other nodes.
pub trait Transport: Send + Sync {
    /// Sends `messages`, or drops some. Called by who has the log's turn: must not wait for anything,
    /// nor call the log's blocking methods.
    fn send(&self, messages: Vec<Message>);
}

/// Told what happens to a group. Called by who has the log's turn: must not wait for anything, nor
/// call the log's blocking methods.
pub trait GroupObserver: Send + Sync {
    /// The part of this node's replica has changed. [`Role::Leader`] is told once everything of
    /// earlier terms is applied here; proposals are taken from then on.
    fn role_changed(&self, id: GroupId, role: Role);

    /// Those who vote in the group are others, as this node's replica knows: told when it is opened, and when a change
    /// is in force here.
    fn voters_changed(&self, _id: GroupId, _voters: &[PeerId]) {}

    /// On the leader: replica `to` needs rows from a copy, since the log no longer has what it lacks,
    /// or its rows are void. Told again every few seconds until it is restored.
    fn snapshot_needed(&self, id: GroupId, to: PeerId);

    /// The rows of this node's replica are void: it has just joined, or a power loss took entries
    /// from a majority that were applied here, or a restore was interrupted. Discard them and
    /// restore: [`Log::begin_restore`]. Until then nothing is applied, and it never leads.
    fn rows_needed(&self, id: GroupId);

    /// This node's replica is no longer a member: a tombstone is durable, its entries are gone, and
    /// the group is closed here. Not all that are removed hear of it: the owner discards them as well.
    fn removed(&self, id: GroupId);
}

/// For groups of one: nobody to write to, and nobody who watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noop;

impl Transport for Noop {
    fn send(&self, _letters: Vec<Message>) {}
}

impl GroupObserver for Noop {
    fn role_changed(&self, _id: GroupId, _role: Role) {}
    fn snapshot_needed(&self, _id: GroupId, _to: PeerId) {}
    fn rows_needed(&self, _id: GroupId) {}
    fn removed(&self, _id: GroupId) {}
}

/// What keeps a log from getting on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Since when.
    pub since: Nanos,
    /// Why.
    pub cause: StallCause,
}

/// Why a log does not get on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallCause {
    /// The log has stopped for good: [`Log::stopped`].
    Stopped,
    /// The disk is full. It is tried again and again.
    Full,
    /// A turn is under way. One of a moment is nothing; one of seconds is a disk, or an engine, that hangs. An fsync that
    /// hangs by itself is none: the log goes on, and others have what it appends.
    Slow,
}

/// Told once where the log of a copied replica begins.
pub type LogBaseDone = Box<dyn FnOnce(Result<LogBase, ProposeError>) + Send>;

/// Told once what became of a proposal. Runs on the log's own thread, or on that of a proposer who takes
/// the log's turn: fill a oneshot and return. It must not wait for anything, nor call the log's blocking
/// methods, nor [`Log::drive`]. Dropped without being called only if that thread panicked; then nothing is
/// known of the entry.
pub type Done = Box<dyn FnOnce(Result<Lsn, ProposeError>) + Send>;

/// Carries out ordered entries. Implemented by the owner of the groups.
pub trait Applier: Send + Sync {
    /// Carries out `entries`, visible when it returns. Called on one thread at a time.
    ///
    /// Entries of one group come in order of their Lsn, each once in the life of a process; a
    /// batch may hold many entries of many groups. After a restart the entries after
    /// [`Applier::applied`] come again. One engine batch per call is what makes this cheap. The
    /// rows and the position reached must be written in the same batch.
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError>;

    /// The position of `group` the engine would have now, after a restart without a crash.
    fn applied(&self, group: GroupId) -> Lsn;

    /// Told once, when the log is opened and before anything is applied: before rows become durable, be it in
    /// [`Applier::flush`] or because the engine likes to, [`LogSync::sync`] is to have run, and it is to have begun when
    /// the last of them were applied already. An engine that keeps nothing across a power loss need not care.
    fn set_log_sync(&self, _log: LogSync) {}

    /// Makes durable everything applied before the call. Called on a thread of its own, while
    /// `apply` goes on; the log deletes the entries afterwards.
    fn flush(&self) -> Result<(), ApplyError>;
}

/// One log for all groups of a node.
///
/// Dropping a log finishes what was proposed, makes it durable, and joins its threads.
pub trait Log: Send + Sync {
    /// Opens the group, creating it the first time as `initial` says.
    ///
    /// A group of one replays the entries after `applied` through the applier before it returns, and
    /// takes proposals from then on. A group of several applies them when its leader says that they
    /// are committed, and takes proposals where [`GroupObserver::role_changed`] says that it leads. Blocks.
    ///
    /// `applied` is what the engine holds *durably*. If that is past the end of the log (rows follow the log,
    /// [`Applier::set_log_sync`], so files were changed or a disk did not keep what it said it had), a group of one goes
    /// on from there; one of several [needs rows](GroupObserver::rows_needed).
    fn open_group(&self, id: GroupId, applied: Lsn, initial: InitialConfig) -> Result<(), LogError>;

    /// Closes the group for good, on this node: its entries go, a durable tombstone stays, and it can
    /// never be opened again. A group of one finishes first what was proposed. Blocks.
    ///
    /// Fails with [`LogError::NotOpen`] if it is not open, also when it was removed just now: that is durable then. On a
    /// full disk it fails with [`LogError::TombstonePending`], however often it is asked, and with [`LogError::Stopped`] where something
    /// of a group of one waits for space: its rows must not be forgotten before that is over.
    fn close_group(&self, id: GroupId) -> Result<(), LogError>;

    /// Removes this node's replica, and its entries, leaving a durable tombstone of its peer id. The
    /// group may be opened here again as another replica. The others are told by
    /// [`Log::change_members`], not by this. Fails as [`Log::close_group`] does. Blocks.
    fn leave_group(&self, id: GroupId) -> Result<(), LogError>;

    /// Orders `entry` after everything proposed to the group before. Never blocks on the disk.
    ///
    /// `done` is called once, after the entry is as durable as asked **and** applied here. On a
    /// replica that does not lead it is [`NotLeader`](crate::Refusal::NotLeader), which is definite.
    fn propose(&self, id: GroupId, entry: Bytes, durability: Durability, done: Done) {
        self.propose_in(id, None, entry, durability, done);
    }

    /// As [`Log::propose`], and refused unless this replica leads in exactly `term`: whoever
    /// evaluates on rows names the term in which those were the newest.
    fn propose_in(&self, id: GroupId, term: Option<Term>, entry: Bytes, durability: Durability, done: Done);

    /// As [`Log::propose_in`], by somebody who calls [`Log::drive`] in a moment, when more may have come:
    /// nobody need be woken for the entry until then. `done` may be called on that thread.
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

    /// Whoever proposed aside has come back: orders what lies there, and carries it out if nobody else does
    /// so already. Costs next to nothing if nothing lies there. May be held up by the disk now and then.
    fn drive(&self) {}

    /// The caller has more to say in a moment, of several groups perhaps: until it calls [`Log::release`] nobody need be
    /// woken for what is proposed or arrives, whoever says it. Until then it must not wait for anything that somebody
    /// has proposed or asked the log for. Never blocks.
    fn hold(&self) {}

    /// Once for each [`Log::hold`], soon after it: what was said meanwhile is seen to together.
    fn release(&self) {}

    /// From now on, and until the group is closed here, entries that this replica orders wait for so
    /// many others. [`Acks::Majority`] to begin with. Nothing changes in a group of one.
    fn set_acks(&self, id: GroupId, acks: Acks);

    /// Calls `done` with the group's last position once every entry proposed to it before this
    /// call is durable and applied, soft ones included. Only on the leader.
    fn sync(&self, id: GroupId, done: Done);

    /// A message from another node has arrived. Never blocks.
    fn receive(&self, message: Message);

    /// Calls `done`, on the leader, with a position that a linearizable read must have applied, once
    /// a majority has confirmed the leader and the position is applied here.
    fn read_index(&self, id: GroupId, done: Done);

    /// Changes the members, on the leader: `done` is called once the change is committed and in
    /// force here. One change at a time: another is [`Busy`](crate::Refusal::Busy).
    fn change_members(&self, id: GroupId, change: MemberChange, done: Done);

    /// Hands leadership over to `to`, if this replica leads and `to` votes. May fail silently:
    /// [`GroupObserver::role_changed`] tells.
    fn transfer(&self, id: GroupId, to: PeerId);

    /// A hint to stand for election now. Nothing happens if a leader is known to be alive.
    fn campaign(&self, id: GroupId);

    /// The nodes of these replicas do not answer: groups that they lead should elect another.
    fn peers_unreachable(&self, peers: Vec<PeerId>);

    /// The nodes of these replicas answer again: groups with them look whether anything is missing.
    fn peers_reachable(&self, peers: Vec<PeerId>);

    /// On the leader: what the log of a copy of the rows at `at` begins with, once `at` is durable
    /// on a majority; or, if that takes longer than a second, since the majority may need this copy, at what is, with the
    /// entries after it. Fails if `at` has left the log, and if those are too many for a copy or not durable here.
    fn log_base(&self, id: GroupId, at: Lsn, done: LogBaseDone);

    /// The rows of this node's replica are about to be discarded: durable on return. Until
    /// [`Log::finish_restore`], and across restarts, nothing is applied and it never leads. Blocks.
    fn begin_restore(&self, id: GroupId) -> Result<(), LogError>;

    /// The engine holds, durably, the rows of `base` as of its [reach](LogBase::rows_lsn): the log goes on after it. Fails with
    /// [`LogError::OtherEntries`] where the log has others than those that came with it: the rows stay void, for another
    /// copy. If the disk becomes full meanwhile that is the first thing written when there is space again. Blocks.
    fn finish_restore(&self, id: GroupId, base: LogBase) -> Result<(), LogError>;

    /// Unsafe, for a group whose majority is gone for good: from now on, durably, `members` are the
    /// members, whatever the log says up to [`Members::at`](Members). Once a leader has them durably, it answers
    /// messages of those they name as removed with that. Returns the members in force. Fails, with nothing changed, if the
    /// disk is full; if it becomes full in that very moment, they are in force here all the same, and durable when there
    /// is space.
    ///
    /// Where this replica is their only voter, its log becomes the whole truth: everything in it is
    /// applied, `at` is set to its end, and it leads. Fails if its rows are void. Anywhere else the rows become void:
    /// what the log ends in there may be what the survivor never had. Blocks.
    fn reset_members(&self, id: GroupId, members: Members) -> Result<Members, LogError>;

    /// The states of these groups on this node, in the order in which they are asked for; none of one that
    /// is not open. Blocks, for one turn of the log, however many they are.
    fn group_statuses(&self, ids: &[GroupId]) -> Result<Vec<Option<GroupStatus>>, LogError>;

    /// The state of one group: [`Log::group_statuses`].
    fn group_status(&self, id: GroupId) -> Result<GroupStatus, LogError> {
        self.group_statuses(&[id])?.pop().flatten().ok_or(LogError::NotOpen(id))
    }

    /// What keeps the log from getting on at this moment, if anything does. Never waits, whatever the disk does.
    fn stall(&self) -> Option<Stall> {
        None
    }

    /// Since when an fsync is under way while the log goes on, if one is. Never waits.
    fn sync_since(&self) -> Option<Nanos> {
        None
    }

    /// Why the log has stopped for good, if it has. Never waits.
    fn stopped(&self) -> Option<Interruption> {
        None
    }

    /// What the log has done since it was opened; it may lag behind the last answers.
    fn stats(&self) -> LogStats;
}
