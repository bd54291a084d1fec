//! Groups that come to this node and leave it, and copies of rows that arrive.

use super::Runner;
use crate::error::{Interruption, LogError};
use crate::log_base::LogBase;
use crate::lsn::{GroupId, Lsn};
use crate::member::{InitialConfig, Members, PeerId};
use crate::record::Record;
use crate::store::{Store, StoredEntry};

/// How much is replayed at once when a group is opened.
const REPLAY_BYTES: usize = 8 << 20;

impl<S: Store> Runner<S> {
    /// Opens a group, creating it the first time. One who votes alone replays what the engine lacks.
    pub fn open_group(&mut self, id: GroupId, applied: Lsn, initial: &InitialConfig) -> Result<(), LogError> {
        if self.failed.is_some() {
            return Err(LogError::Stopped);
        }
        if self.driver.group(id).is_some() {
            return Err(LogError::AlreadyOpen(id));
        }
        if self.store.is_tombstone(id) {
            return Err(LogError::Tombstone(id));
        }
        self.make_group(id, initial)?;
        self.stats.rows_ahead += u64::from(self.rows_are_ahead(id, applied));
        self.follow_engine(id, applied);
        self.replay(id, applied)?;
        self.open_stored(id, applied)
    }

    fn open_stored(&mut self, id: GroupId, applied: Lsn) -> Result<(), LogError> {
        let stored = self.store.group(id).cloned().unwrap_or_default();
        self.driver.open(id, &stored, applied, &mut self.store)?;
        self.append();
        Ok(())
    }

    /// Makes sure the store knows the group, as the replica that is asked for.
    fn make_group(&mut self, id: GroupId, initial: &InitialConfig) -> Result<(), LogError> {
        let asked = match initial {
            InitialConfig::Single => None,
            InitialConfig::Bootstrap { own, .. }
            | InitialConfig::BootstrapEmpty { own, .. }
            | InitialConfig::Joining { own } => Some(*own),
        };
        if let Some(stored) = self.store.group(id) {
            let (stored, void) = (PeerId(stored.peer), stored.void);
            match asked {
                Some(asked) if asked != stored => {
                    return Err(LogError::OtherPeer { group: id, stored, asked });
                }
                // It had them before a power loss took them from the engine.
                _ if matches!(initial, InitialConfig::BootstrapEmpty { .. }) && !void => {
                    self.store.push(&Record::Rows { group: id, void: true });
                }
                _ => {}
            }
            return Ok(());
        }
        // Never zero, which means nobody.
        let own = asked.unwrap_or_else(|| PeerId((self.outside.random.next_u64() >> 2) | 1));
        #[cfg(any(test, feature = "mutants"))]
        let used_again = crate::mutant::is_active(crate::mutant::Mutant::ReusePeer);
        #[cfg(not(any(test, feature = "mutants")))]
        let used_again = false;
        if self.store.is_gone(id, own.0) && !used_again {
            return Err(LogError::Removed { group: id, peer: own });
        }
        let voters = match initial {
            InitialConfig::Single => vec![own],
            InitialConfig::Bootstrap { voters, .. } | InitialConfig::BootstrapEmpty { voters, .. } => {
                voters.clone()
            }
            InitialConfig::Joining { .. } => Vec::new(),
        };
        let void = matches!(initial, InitialConfig::BootstrapEmpty { .. } | InitialConfig::Joining { .. });
        self.store.push(&Record::Member { group: id, peer: own.0, members: Members::first(voters) });
        if void {
            self.store.push(&Record::Rows { group: id, void });
        }
        Ok(())
    }

    /// Whether the group is one of a single voter, whose log is by itself the whole truth.
    fn votes_alone(&self, id: GroupId) -> bool {
        let stored = self.store.group(id);
        stored.is_some_and(|stored| stored.outline.members.voters == [PeerId(stored.peer)] && !stored.void)
    }

    /// Whether the engine holds what the log never had. An engine's rows wait for the log, so only what changes files
    /// behind our back does this.
    fn rows_are_ahead(&self, id: GroupId, applied: Lsn) -> bool {
        let stored = self.store.group(id);
        stored.is_some_and(|stored| !stored.void && applied.0 > stored.outline.last())
    }

    /// Makes sure that the log of one who votes alone does not end before `applied`. What is missing
    /// may be soft entries that a disk has lost, and its rows are there, so this is never refused. Whole segments that are
    /// gone, and an end that was noted and is cut, have been refused when the log was opened.
    fn follow_engine(&mut self, id: GroupId, applied: Lsn) {
        let Some(stored) = self.store.group(id).filter(|_| self.votes_alone(id)) else { return };
        let outline = &stored.outline;
        if applied.0 > outline.last() {
            let term = outline.last_term().max(outline.hard.term).max(1);
            let (vote, last) = (stored.peer, outline.last());
            tracing::warn!(
                "the log of group {id} ends at entry {last}, its rows were written up to entry {applied} and are kept. \
                 Rows wait for their log: files of the log were changed, or the disk does not keep what it says it has"
            );
            let index = applied.0;
            self.store.push(&Record::Start { group: id, index, term });
            self.store.push(&Record::Vote { group: id, term, vote, commit: index });
        }
    }

    fn replay(&mut self, id: GroupId, applied: Lsn) -> Result<(), LogError> {
        let Some(stored) = self.store.group(id) else { return Ok(()) };
        let outline = &stored.outline;
        if applied.0 < outline.proposed_start() && !stored.void {
            let log_start = Lsn(outline.proposed_start());
            return Err(LogError::Gap { group: id, applied, log_start });
        }
        let mut at = applied.0.max(outline.start());
        while at < outline.last() && self.votes_alone(id) {
            let entries = self.store.read(id, at, REPLAY_BYTES)?;
            let Some(last) = entries.last() else { break };
            at = last.index;
            let mut batch = Vec::with_capacity(entries.len());
            for entry in entries.into_iter().filter(|entry| entry.kind.is_proposed()) {
                batch.push((id, Lsn(entry.index), entry.payload));
            }
            if !batch.is_empty() {
                self.outside.applier.apply(&batch)?;
            }
        }
        Ok(())
    }

    /// Closes a group for good. One who votes alone finishes first what was proposed.
    pub fn close_group(&mut self, id: GroupId) -> Result<(), LogError> {
        self.settle();
        match self.driver.group(id) {
            // It may have left just now, which is to be durable before anybody forgets its rows.
            None => return self.settled_word(id).and(Err(LogError::NotOpen(id))),
            Some(group) if !group.is_alone() || group.is_idle() => {}
            Some(_) => return Err(LogError::Stopped),
        }
        self.end_group(id, &Record::Tombstone { group: id })
    }

    /// Removes this node's replica of a group; the group may come again as another.
    pub fn leave_group(&mut self, id: GroupId) -> Result<(), LogError> {
        let peer = match (self.driver.group(id), self.store.group(id)) {
            (Some(group), _) => group.own(),
            (None, Some(stored)) => PeerId(stored.peer),
            (None, None) => {
                // It may have left just now, which is to be durable before anybody forgets its rows.
                self.settled_word(id)?;
                return Err(LogError::NotOpen(id));
            }
        };
        self.end_group(id, &Record::Gone { group: id, peer: peer.0 })
    }

    /// Closes a group with a last word.
    fn end_group(&mut self, id: GroupId, last_word: &Record<&[u8]>) -> Result<(), LogError> {
        self.note_ending(id);
        self.driver.close(id, &Interruption::Closed);
        self.store.push(last_word);
        self.append();
        self.settled_word(id)
    }

    /// Whether the last word of a group is durable. If the disk is full it is the first thing written when there is
    /// space again.
    fn settled_word(&mut self, id: GroupId) -> Result<(), LogError> {
        self.settled()?;
        match self.full {
            None => Ok(()),
            Some(_) => Err(LogError::TombstonePending(id)),
        }
    }

    /// Waits until everything is durable that there is space for.
    fn settled(&mut self) -> Result<(), LogError> {
        self.settle();
        match self.failed {
            None => Ok(()),
            Some(_) => Err(LogError::Stopped),
        }
    }

    /// Marks the rows of a group void.
    pub fn begin_restore(&mut self, id: GroupId) -> Result<(), LogError> {
        let group = self.driver.group_mut(id).ok_or(LogError::NotOpen(id))?;
        if group.leads().is_some() {
            return Err(LogError::Leads(id));
        }
        if group.expect_rows() {
            self.store.push(&Record::Rows { group: id, void: true });
        }
        self.settled_well()
    }

    /// Goes on from rows that came as a copy.
    pub fn finish_restore(&mut self, id: GroupId, base: &LogBase) -> Result<(), LogError> {
        self.driver.group(id).ok_or(LogError::NotOpen(id))?;
        self.settled_well()?;
        let stored = self.store.group(id).ok_or(LogError::NotOpen(id))?;
        let outline = &stored.outline;
        let LogBase { at: Lsn(index), term, members, ahead } = base;
        if *index < outline.start() {
            let (applied, log_start) = (base.at, Lsn(outline.start()));
            return Err(LogError::Gap { group: id, applied, log_start });
        }
        let (peer, hard) = (stored.peer, outline.hard.clone());
        let is_new = outline.members.voters.is_empty();
        let newer = (members.at > outline.members.at).then(|| members.clone());
        let begins_anew = outline.term_at(*index) != Some(term.0);
        let last = if begins_anew { *index } else { outline.last() };
        let is_other =
            |entry: &StoredEntry| entry.index <= last && outline.term_at(entry.index) != Some(entry.term);
        // Members of a later position would make those entries pass for committed.
        if !ahead.is_empty() && (outline.members.at > base.at || ahead.iter().any(is_other)) {
            return Err(LogError::OtherEntries(id));
        }
        let append = self.driver.next_append();
        if begins_anew {
            // What is in the log from where it differs was never committed, and what came before is in
            // the rows.
            self.store.push(&Record::Start { group: id, index: *index, term: term.0 });
        }
        for entry in ahead.iter().filter(|entry| entry.index > last) {
            let StoredEntry { index, term, kind, payload } = entry;
            let (index, term, kind, payload) = (*index, *term, *kind, &payload[..]);
            self.store.push(&Record::Entry { group: id, index, term, kind, payload });
        }
        if let Some(members) = newer.or_else(|| is_new.then(|| members.clone())) {
            self.store.push(&Record::Member { group: id, peer, members });
        }
        let reached = base.last_term().0;
        let vote = if reached > hard.term { 0 } else { hard.vote };
        let (term, commit) = (hard.term.max(reached), hard.commit.max(*index));
        self.store.push(&Record::Vote { group: id, term, vote, commit });
        self.store.push(&Record::Rows { group: id, void: false });
        self.driver.close(id, &Interruption::Deposed);
        // On a disk that has no space for that the group is opened all the same, or it would stay closed: its votes, and
        // all that it acknowledges, wait until it is durable.
        self.settled()?;
        self.open_stored(id, base.rows_lsn())?;
        if let Some(group) = self.driver.group_mut(id) {
            group.hold_back_until(append);
        }
        self.settled()
    }

    /// Makes `members` the members, unsafely. One who votes alone then applies all of its log; anybody else takes
    /// a copy of that one's rows, as its own log may end in what that one never had.
    pub fn reset_members(&mut self, id: GroupId, mut members: Members) -> Result<(), LogError> {
        self.driver.group(id).ok_or(LogError::NotOpen(id))?;
        self.settled_well()?;
        let stored = self.store.group(id).ok_or(LogError::NotOpen(id))?;
        let (peer, before) = (stored.peer, stored.outline.members.clone());
        // Written once more as they are: of a disk that is full it is known then, and nothing was changed.
        self.store.push(&Record::Member { group: id, peer, members: before });
        self.settled_well()?;
        let stored = self.store.group(id).ok_or(LogError::NotOpen(id))?;
        let is_alone = members.voters == [PeerId(peer)];
        if is_alone {
            if stored.void {
                return Err(LogError::InvalidRows(id));
            }
            members.at = Lsn(stored.outline.last());
        }
        for gone in &stored.outline.members.removed {
            if !members.removed.contains(gone) {
                members.removed.push(*gone);
            }
        }
        tracing::warn!("A shard goes on with those of its replicas that were named, whoever is missing");
        tracing::debug!(group = id.0, ?members, "the members of the group are set by force");
        self.store.push(&Record::Member { group: id, peer, members });
        if !is_alone {
            self.store.push(&Record::Rows { group: id, void: true });
        }
        self.driver.close(id, &Interruption::Deposed);
        // As above: not left closed.
        self.settled()?;
        let applied = self.outside.applier.applied(id);
        self.replay(id, applied)?;
        self.open_stored(id, applied)?;
        self.settled_well()
    }

    fn settled_well(&mut self) -> Result<(), LogError> {
        self.settle();
        match self.failed.is_none() && self.full.is_none() {
            true => Ok(()),
            false => Err(LogError::Stopped),
        }
    }
}
