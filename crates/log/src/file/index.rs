//! The index of the segments: for each group the location of every live entry, and for each segment the last entry of
//! every group in it. It is built when the log is read, and updated when records are pushed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::lsn::{GroupId, Position};
use crate::record::{EntryKind, RECORD_ALIGN, Record};
use crate::store::{Compacted, StoredGroup};

/// The start of a record. Eight bytes only, since there is one for every live entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    segment: u32,
    /// In units of the alignment, which limits a segment to 32 GiB.
    offset: u32,
}

/// The position and term of an entry.
#[derive(Clone, Copy)]
struct EntryId {
    index: u64,
    term: u64,
}

#[derive(Debug)]
pub(super) struct Segment {
    pub number: u64,
    pub bytes: u64,
    /// The highest entry of each group in it.
    last: BTreeMap<GroupId, u64>,
}

/// One group: its outline, and the location of each entry after the outline's start.
#[derive(Debug, Default)]
struct Group {
    stored: StoredGroup,
    locations: VecDeque<Location>,
    /// The start was read from the head of the oldest segment. Entries before it may still be replaced by later records.
    starts_at_head: bool,
}

/// All groups and segments of a log.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub segments: VecDeque<Segment>,
    pub tombstones: BTreeSet<GroupId>,
    /// Replicas that were permanently removed.
    pub removed: BTreeSet<(GroupId, u64)>,
    groups: BTreeMap<GroupId, Group>,
}

impl Segment {
    /// A segment of `bytes` bytes without an entry.
    pub fn new(number: u64, bytes: u64) -> Segment {
        Segment { number, bytes, last: BTreeMap::new() }
    }
}

impl Location {
    fn new(at: Position) -> Location {
        Location { segment: at.segment as u32, offset: (at.offset / RECORD_ALIGN as u64) as u32 }
    }

    pub fn position(self) -> Position {
        let offset = u64::from(self.offset) * RECORD_ALIGN as u64;
        Position { segment: u64::from(self.segment), offset }
    }
}

impl Index {
    /// The state of a group that is not closed.
    pub fn group(&self, id: GroupId) -> Option<&StoredGroup> {
        self.groups.get(&id).map(|group| &group.stored)
    }

    /// Every group that is not closed, lowest id first.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &StoredGroup)> {
        self.groups.iter().map(|(id, group)| (*id, &group.stored))
    }

    /// The location of entry `index` of a group.
    pub fn location(&self, id: GroupId, index: u64) -> Option<Location> {
        let group = self.groups.get(&id)?;
        let nth = index.checked_sub(group.stored.outline.start() + 1)?;
        group.locations.get(usize::try_from(nth).ok()?).copied()
    }

    /// Adds a record at `at`, in the last segment. Fails with a description if it contradicts earlier records.
    pub fn add(&mut self, record: &Record<&[u8]>, at: Position) -> Result<(), &'static str> {
        match record {
            Record::Entry { group, index, term, kind, .. }
            | Record::CompressedEntry { group, index, term, kind, .. } => {
                self.add_entry(*group, EntryId { index: *index, term: *term }, *kind, at)
            }
            Record::Vote { group, term, vote, commit } => {
                let hard = &mut self.group_mut(*group)?.stored.outline.hard;
                (hard.term, hard.vote, hard.commit) = (*term, *vote, *commit);
                Ok(())
            }
            Record::Member { group, peer, members } => {
                if self.tombstones.contains(group) {
                    return Err("group was closed permanently");
                }
                #[cfg(any(test, feature = "mutants"))]
                if crate::mutant::is_active(crate::mutant::Mutant::ReusePeer) {
                    self.removed.remove(&(*group, *peer));
                }
                if self.removed.contains(&(*group, *peer)) {
                    return Err("replica was removed permanently");
                }
                let known = self.groups.entry(*group).or_default();
                known.stored.peer = *peer;
                known.stored.outline.members = members.clone();
                // A joining replica has no valid rows before it has members. The record of that may be lost in a power loss.
                known.stored.rows_invalid |= members.voters.is_empty();
                Ok(())
            }
            Record::Rows { group, invalid } => {
                self.group_mut(*group)?.stored.rows_invalid = *invalid;
                Ok(())
            }
            Record::Removed { group, peer } => {
                if self.groups.get(group).is_some_and(|known| known.stored.peer == *peer) {
                    self.groups.remove(group);
                }
                self.removed.insert((*group, *peer));
                Ok(())
            }
            Record::Start { group, index, term } => {
                let known = self.group_mut(*group)?;
                known.stored.outline.restart(*index, *term);
                known.locations.clear();
                known.starts_at_head = false;
                Ok(())
            }
            Record::Tail { group, index, term, proposed } => {
                self.add_tail(*group, EntryId { index: *index, term: *term }, *proposed)
            }
            Record::Tombstone { group } => {
                self.groups.remove(group);
                self.tombstones.insert(*group);
                Ok(())
            }
            Record::Mark { .. } => Ok(()),
        }
    }

    fn group_mut(&mut self, id: GroupId) -> Result<&mut Group, &'static str> {
        self.groups.get_mut(&id).ok_or("group is unknown")
    }

    fn add_entry(
        &mut self,
        id: GroupId,
        EntryId { index, term }: EntryId,
        kind: EntryKind,
        at: Position,
    ) -> Result<(), &'static str> {
        let group = self.groups.get_mut(&id).ok_or("group is unknown")?;
        let outline = &mut group.stored.outline;
        if group.starts_at_head && index > 0 && index <= outline.start() {
            // An entry of a later leader, which replaces the end of a segment that was deleted: the log now begins here. The
            // term of the entry before is unknown. The lower of the two terms serves as well: no leader can have had a different
            // entry there with that term.
            let (before, proposed) = (outline.term_at(outline.start()).unwrap_or(term), outline.proposed());
            outline.begin_after(index - 1, term.min(before), if proposed < index { proposed } else { 0 });
            group.locations.clear();
        }
        if !outline.append(index, term, kind) {
            return Err("entry does not follow the one before");
        }
        group.locations.truncate((index - outline.start() - 1) as usize);
        group.locations.push_back(Location::new(at));
        if let Some(segment) = self.segments.back_mut() {
            let last = segment.last.entry(id).or_insert(index);
            *last = (*last).max(index);
        }
        Ok(())
    }

    fn add_tail(
        &mut self,
        id: GroupId,
        EntryId { index, term }: EntryId,
        proposed: u64,
    ) -> Result<(), &'static str> {
        let known = self.group_mut(id)?;
        let outline = &mut known.stored.outline;
        if outline.last() == 0 {
            outline.begin_after(index, term, proposed);
            known.starts_at_head = true;
        }
        match (outline.last(), outline.last_term()) == (index, term) {
            true => Ok(()),
            false => Err("log of the group does not end where the segment says"),
        }
    }

    /// All segments were read: from now on no entry before the start of a group is replaced.
    pub fn finish_reading(&mut self) {
        self.groups.values_mut().for_each(|group| group.starts_at_head = false);
    }

    /// Whether everything in the oldest segment is flushed, and it is not the only one.
    pub fn oldest_is_flushed(&self, flushed: &BTreeMap<GroupId, u64>, closing: &BTreeSet<GroupId>) -> bool {
        let Some(oldest) = self.segments.front() else { return false };
        self.segments.len() > 1 && self.is_flushed(oldest, flushed, closing)
    }

    /// The bytes of all segments from the first one on that is not flushed.
    pub fn unflushed_bytes(&self, flushed: &BTreeMap<GroupId, u64>, closing: &BTreeSet<GroupId>) -> u64 {
        let kept = self.segments.iter().skip_while(|segment| self.is_flushed(segment, flushed, closing));
        kept.map(|segment| segment.bytes).sum()
    }

    fn is_flushed(
        &self,
        segment: &Segment,
        flushed: &BTreeMap<GroupId, u64>,
        closing: &BTreeSet<GroupId>,
    ) -> bool {
        segment.last.iter().all(|(id, index)| {
            let is_known = self.groups.contains_key(id) || closing.contains(id);
            !is_known || flushed.get(id).is_some_and(|to| to >= index)
        })
    }

    /// Removes the oldest segment from the index; returns the entries that it had.
    pub fn remove_oldest(&mut self) -> Vec<Compacted> {
        let Some(oldest) = self.segments.pop_front() else { return Vec::new() };
        let mut compacted = Vec::with_capacity(oldest.last.len());
        for (id, index) in oldest.last {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let outline = &mut group.stored.outline;
            let index = index.min(outline.last());
            if index > outline.start() {
                // Entries of the segment may have been replaced by entries of a later one.
                let proposed = outline.proposed_until(index);
                group.locations.drain(..(index - outline.start()) as usize);
                outline.compact(index, proposed);
                compacted.push(Compacted { group: id, index, proposed });
            }
        }
        compacted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsn::Durability;
    use crate::member::{Members, PeerId};

    const GROUP: GroupId = GroupId(3);

    fn entry(index: u64, term: u64) -> Record<&'static [u8]> {
        let kind = EntryKind::Proposed(Durability::Hard);
        Record::Entry { group: GROUP, index, term, kind, payload: b"" }
    }

    #[test]
    fn the_end_of_a_deleted_segment_may_be_replaced_in_the_next_one() {
        for (replaced, term, before) in [(7, 5, 3), (10, 5, 3), (8, 2, 2)] {
            let mut index = Index::default();
            index.segments.push_back(Segment::new(13, 0));
            let members = Members::first(vec![PeerId(1), PeerId(2), PeerId(3)]);
            let head: [Record<&[u8]>; 2] = [
                Record::Member { group: GROUP, peer: 1, members },
                Record::Tail { group: GROUP, index: 10, term: 3, proposed: 10 },
            ];
            let at = |offset| Position { segment: 13, offset };
            for record in &head {
                index.add(record, at(64)).unwrap();
            }
            for (nth, entry) in [entry(replaced, term), entry(replaced + 1, 5)].iter().enumerate() {
                index.add(entry, at(128 + 64 * nth as u64)).unwrap();
            }
            index.finish_reading();
            let outline = &index.group(GROUP).unwrap().outline;
            assert_eq!((outline.start(), outline.last()), (replaced - 1, replaced + 1));
            assert_eq!(outline.term_at(replaced - 1), Some(before));
            assert_eq!(index.location(GROUP, replaced).unwrap().position(), at(128));
            index.add(&entry(replaced - 1, 5), at(512)).unwrap_err();
        }
    }

    #[test]
    fn a_joining_replica_that_was_not_restored_has_invalid_rows() {
        let mut index = Index::default();
        index.segments.push_back(Segment::new(1, 0));
        let at = Position { segment: 1, offset: 64 };
        let member = |voters: &[PeerId]| Record::Member {
            group: GROUP,
            peer: 4,
            members: Members::first(voters.to_vec()),
        };
        index.add(&member(&[]), at).unwrap();
        // The record that invalidates the rows follows, and may be lost alone.
        assert!(index.group(GROUP).unwrap().rows_invalid);
        index.add(&member(&[PeerId(1), PeerId(4)]), at).unwrap();
        assert!(index.group(GROUP).unwrap().rows_invalid, "its rows are valid only once a record says so");
        index.add(&Record::Rows { group: GROUP, invalid: false }, at).unwrap();
        assert!(!index.group(GROUP).unwrap().rows_invalid);
    }
}
