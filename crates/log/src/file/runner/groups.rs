//! Opens and closes groups, and restores rows from copies.

use super::Runner;
use crate::contract::Entry;
use crate::error::{Interruption, LogError};
use crate::log_base::LogBase;
use crate::lsn::{GroupId, Lsn};
use crate::member::{InitialConfig, Members, PeerId};
use crate::record::Record;
use crate::store::{Store, StoredEntry};

/// Bytes replayed at once when a group is opened.
const REPLAY_BYTES: usize = 8 << 20;

impl<S: Store> Runner<S> {
    /// Opens a group, creating it the first time. A single voter replays the entries that the engine lacks.
    pub fn open_group(&mut self, id: GroupId, applied: Lsn, initial: &InitialConfig) -> Result<(), LogError> {
        if self.core.failed.is_some() {
            return Err(LogError::Stopped);
        }
        if self.core.driver.group(id).is_some() {
            return Err(LogError::AlreadyOpen(id));
        }
        if self.core.store.is_tombstone(id) {
            return Err(LogError::Tombstone(id));
        }
        self.create_group(id, initial)?;
        self.core.stats.rows_ahead += u64::from(self.rows_are_ahead(id, applied));
        self.extend_log_to_rows(id, applied);
        self.replay(id, applied)?;
        self.open_stored(id, applied)
    }

    fn open_stored(&mut self, id: GroupId, applied: Lsn) -> Result<(), LogError> {
        let stored = self.core.store.group(id).cloned().unwrap_or_default();
        self.core.driver.open(id, &stored, applied, &mut self.core.store)?;
        self.core.append();
        Ok(())
    }

    /// Adds the group to the store, if it is missing. Fails if the store has another replica of it than requested.
    fn create_group(&mut self, id: GroupId, initial: &InitialConfig) -> Result<(), LogError> {
        let requested = match initial {
            InitialConfig::Single => None,
            InitialConfig::Bootstrap { own, .. }
            | InitialConfig::BootstrapEmpty { own, .. }
            | InitialConfig::Joining { own } => Some(*own),
        };
        if let Some(stored) = self.core.store.group(id) {
            let (stored, rows_invalid) = (PeerId(stored.peer), stored.rows_invalid);
            match requested {
                Some(requested) if requested != stored => {
                    return Err(LogError::OtherPeer { group: id, stored, requested });
                }
                // The rows were valid once, and a power loss took them from the engine.
                _ if matches!(initial, InitialConfig::BootstrapEmpty { .. }) && !rows_invalid => {
                    self.core.store.push(&Record::Rows { group: id, invalid: true });
                }
                _ => {}
            }
            return Ok(());
        }
        // Zero means no peer.
        let own = requested.unwrap_or_else(|| PeerId((self.core.environment.random.next_u64() >> 2) | 1));
        #[cfg(any(test, feature = "mutants"))]
        let reuse = crate::mutant::is_active(crate::mutant::Mutant::ReusePeer);
        #[cfg(not(any(test, feature = "mutants")))]
        let reuse = false;
        if self.core.store.is_removed(id, own.0) && !reuse {
            return Err(LogError::Removed { group: id, peer: own });
        }
        let voters = match initial {
            InitialConfig::Single => vec![own],
            InitialConfig::Bootstrap { voters, .. } | InitialConfig::BootstrapEmpty { voters, .. } => {
                voters.clone()
            }
            InitialConfig::Joining { .. } => Vec::new(),
        };
        let invalid = matches!(initial, InitialConfig::BootstrapEmpty { .. } | InitialConfig::Joining { .. });
        self.core.store.push(&Record::Member { group: id, peer: own.0, members: Members::first(voters) });
        if invalid {
            self.core.store.push(&Record::Rows { group: id, invalid });
        }
        Ok(())
    }

    /// Whether the replica is the only voter and has valid rows, so that every entry of its log is committed.
    fn is_single_voter(&self, id: GroupId) -> bool {
        let stored = self.core.store.group(id);
        stored.is_some_and(|stored| {
            stored.outline.members.voters == [PeerId(stored.peer)] && !stored.rows_invalid
        })
    }

    /// Whether the engine has applied entries that the log does not have. Rows become durable after the log, so this only
    /// happens when files were changed or a disk lost durable data.
    fn rows_are_ahead(&self, id: GroupId, applied: Lsn) -> bool {
        let stored = self.core.store.group(id);
        stored.is_some_and(|stored| !stored.rows_invalid && applied.0 > stored.outline.last())
    }

    /// Extends the log of a single voter to `applied`, if it ends before. The missing part may be soft entries that a disk
    /// has lost, whose rows exist, so this is never refused. Missing segments, and an end before the noted one, were
    /// refused when the log was opened.
    fn extend_log_to_rows(&mut self, id: GroupId, applied: Lsn) {
        let Some(stored) = self.core.store.group(id).filter(|_| self.is_single_voter(id)) else { return };
        let outline = &stored.outline;
        if applied.0 > outline.last() {
            let term = outline.last_term().max(outline.hard.term).max(1);
            let (vote, last) = (stored.peer, outline.last());
            tracing::warn!(
                "the log of group {id} ends at entry {last}, but its rows include entry {applied}; the rows are kept. \
                 Rows are written after their log, so files of the log were changed or the disk lost durable data"
            );
            let index = applied.0;
            self.core.store.push(&Record::Start { group: id, index, term });
            self.core.store.push(&Record::Vote { group: id, term, vote, commit: index });
        }
    }

    fn replay(&mut self, id: GroupId, applied: Lsn) -> Result<(), LogError> {
        let Some(stored) = self.core.store.group(id) else { return Ok(()) };
        let outline = &stored.outline;
        if applied.0 < outline.proposed_start() && !stored.rows_invalid {
            let log_start = Lsn(outline.proposed_start());
            return Err(LogError::Gap { group: id, applied, log_start });
        }
        let mut at = applied.0.max(outline.start());
        while at < outline.last() && self.is_single_voter(id) {
            let entries = self.core.store.read(id, at, REPLAY_BYTES)?;
            let Some(last) = entries.last() else { break };
            at = last.index;
            let mut batch = Vec::with_capacity(entries.len());
            for entry in entries.into_iter().filter(|entry| entry.kind.is_proposed()) {
                batch.push(Entry { group: id, lsn: Lsn(entry.index), payload: entry.payload });
            }
            if !batch.is_empty() {
                self.core.environment.applier.apply(&batch)?;
            }
        }
        Ok(())
    }

    /// Closes a group permanently. A single voter finishes its proposals first.
    pub fn close_group(&mut self, id: GroupId) -> Result<(), LogError> {
        self.core.sync_now();
        match self.core.driver.group(id) {
            // It may have been removed just now; that must be durable before its rows are deleted.
            None => return self.sync_closing_record(id).and(Err(LogError::NotOpen(id))),
            Some(group) if !group.is_single_voter() || group.is_idle() => {}
            Some(_) => return Err(LogError::Stopped),
        }
        self.close_with(id, &Record::Tombstone { group: id })
    }

    /// Removes the local replica of a group; the group may be opened again with another.
    pub fn leave_group(&mut self, id: GroupId) -> Result<(), LogError> {
        let peer = match (self.core.driver.group(id), self.core.store.group(id)) {
            (Some(group), _) => group.own(),
            (None, Some(stored)) => PeerId(stored.peer),
            (None, None) => {
                // It may have been removed just now; that must be durable before its rows are deleted.
                self.sync_closing_record(id)?;
                return Err(LogError::NotOpen(id));
            }
        };
        self.close_with(id, &Record::Removed { group: id, peer: peer.0 })
    }

    fn close_with(&mut self, id: GroupId, record: &Record<&[u8]>) -> Result<(), LogError> {
        self.core.close(id, record);
        self.release.note_closed();
        self.core.append();
        self.sync_closing_record(id)
    }

    /// Makes the closing record of a group durable. If the disk is full, the record is the first thing written when there is
    /// space again.
    fn sync_closing_record(&mut self, id: GroupId) -> Result<(), LogError> {
        self.sync()?;
        match self.core.full {
            None => Ok(()),
            Some(_) => Err(LogError::TombstonePending(id)),
        }
    }

    /// Makes everything durable, except records for which a full disk has no space.
    fn sync(&mut self) -> Result<(), LogError> {
        self.core.sync_now();
        match self.core.failed {
            None => Ok(()),
            Some(_) => Err(LogError::Stopped),
        }
    }

    /// Marks the rows of a group invalid.
    pub fn begin_restore(&mut self, id: GroupId) -> Result<(), LogError> {
        let group = self.core.driver.group_mut(id).ok_or(LogError::NotOpen(id))?;
        if group.leads().is_some() {
            return Err(LogError::Leads(id));
        }
        if group.begin_restore() {
            self.core.store.push(&Record::Rows { group: id, invalid: true });
        }
        self.sync_all()
    }

    /// Continues the log after rows that were restored from a copy.
    pub fn finish_restore(&mut self, id: GroupId, base: &LogBase) -> Result<(), LogError> {
        self.core.driver.group(id).ok_or(LogError::NotOpen(id))?;
        self.sync_all()?;
        let stored = self.core.store.group(id).ok_or(LogError::NotOpen(id))?;
        let outline = &stored.outline;
        let LogBase { at: Lsn(index), term, members, ahead } = base;
        if *index < outline.start() {
            let (applied, log_start) = (base.at, Lsn(outline.start()));
            return Err(LogError::Gap { group: id, applied, log_start });
        }
        let (peer, hard) = (stored.peer, outline.hard.clone());
        let is_new = outline.members.voters.is_empty();
        let newer = (members.at > outline.members.at).then(|| members.clone());
        let restarts = outline.term_at(*index) != Some(term.0);
        let last = if restarts { *index } else { outline.last() };
        let is_other =
            |entry: &StoredEntry| entry.index <= last && outline.term_at(entry.index) != Some(entry.term);
        // With members of a later position these entries would count as committed.
        if !ahead.is_empty() && (outline.members.at > base.at || ahead.iter().any(is_other)) {
            return Err(LogError::OtherEntries(id));
        }
        let append = self.core.driver.next_append();
        if restarts {
            // The entries from where the log differs were never committed, and those before are in the rows.
            self.core.store.push(&Record::Start { group: id, index: *index, term: term.0 });
        }
        for entry in ahead.iter().filter(|entry| entry.index > last) {
            let StoredEntry { index, term, kind, payload } = entry;
            let (index, term, kind, payload) = (*index, *term, *kind, &payload[..]);
            self.core.store.push(&Record::Entry { group: id, index, term, kind, payload });
        }
        if let Some(members) = newer.or_else(|| is_new.then(|| members.clone())) {
            self.core.store.push(&Record::Member { group: id, peer, members });
        }
        let reached = base.last_term().0;
        let vote = if reached > hard.term { 0 } else { hard.vote };
        let (term, commit) = (hard.term.max(reached), hard.commit.max(*index));
        self.core.store.push(&Record::Vote { group: id, term, vote, commit });
        self.core.store.push(&Record::Rows { group: id, invalid: false });
        self.core.driver.close(id, &Interruption::Deposed);
        // The group is opened even if the disk has no space for these records, since it would stay closed otherwise. Its
        // votes and acknowledgements wait until the records are durable.
        self.sync()?;
        self.open_stored(id, base.rows_lsn())?;
        if let Some(group) = self.core.driver.group_mut(id) {
            group.hold_back_until(append);
        }
        self.sync()
    }

    /// Forces `members` on the group, unsafely. A replica that becomes the single voter applies all of its log. Any other
    /// needs a copy of that replica's rows, since its own log may end with entries that the other never had.
    pub fn reset_members(&mut self, id: GroupId, mut members: Members) -> Result<(), LogError> {
        self.core.driver.group(id).ok_or(LogError::NotOpen(id))?;
        self.sync_all()?;
        let stored = self.core.store.group(id).ok_or(LogError::NotOpen(id))?;
        let (peer, before) = (stored.peer, stored.outline.members.clone());
        // Writes the present members once more: if the disk is full, this fails before anything has changed.
        self.core.store.push(&Record::Member { group: id, peer, members: before });
        self.sync_all()?;
        let stored = self.core.store.group(id).ok_or(LogError::NotOpen(id))?;
        let is_single_voter = members.voters == [PeerId(peer)];
        if is_single_voter {
            if stored.rows_invalid {
                return Err(LogError::InvalidRows(id));
            }
            members.at = Lsn(stored.outline.last());
        }
        for removed in &stored.outline.members.removed {
            if !members.removed.contains(removed) {
                members.removed.push(*removed);
            }
        }
        tracing::debug!(group = id.0, ?members, "members of the group forced by an emergency repair");
        self.core.store.push(&Record::Member { group: id, peer, members });
        if !is_single_voter {
            self.core.store.push(&Record::Rows { group: id, invalid: true });
        }
        self.core.driver.close(id, &Interruption::Deposed);
        // As in `finish_restore`, the group must not stay closed.
        self.sync()?;
        let applied = self.core.environment.applier.applied(id);
        self.replay(id, applied)?;
        self.open_stored(id, applied)?;
        self.sync_all()
    }

    /// Makes everything durable; fails if that is impossible now.
    fn sync_all(&mut self) -> Result<(), LogError> {
        self.core.sync_now();
        match self.core.failed.is_none() && self.core.full.is_none() {
            true => Ok(()),
            false => Err(LogError::Stopped),
        }
    }
}
