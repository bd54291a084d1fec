//! What the segments hold: for each group the place of every live entry, and for each segment
//! the last entry of every group in it. Built by reading the log, kept up by writing it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::lsn::{GroupId, Position};
use crate::record::{EntryKind, RECORD_ALIGN, Record};
use crate::store::{Compacted, StoredGroup};

/// Where a record starts. Eight bytes, since there is one for every live entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    segment: u32,
    // In units of the alignment, so that a segment may be 32 GiB.
    offset: u32,
}

/// One segment.
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
    // Its start is the end that the head of the oldest segment names: what was there may be replaced later.
    is_headed: bool,
}

/// All groups and segments of a log.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub segments: VecDeque<Segment>,
    pub tombstones: BTreeSet<GroupId>,
    /// Replicas that left.
    pub gone: BTreeSet<(GroupId, u64)>,
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

    /// Where it is.
    pub fn position(self) -> Position {
        let offset = u64::from(self.offset) * RECORD_ALIGN as u64;
        Position { segment: u64::from(self.segment), offset }
    }
}

impl Index {
    /// What is known of a group that is not closed.
    pub fn group(&self, id: GroupId) -> Option<&StoredGroup> {
        self.groups.get(&id).map(|group| &group.stored)
    }

    /// Every group that is not closed, lowest id first.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &StoredGroup)> {
        self.groups.iter().map(|(id, group)| (*id, &group.stored))
    }

    /// The place of entry `index` of a group.
    pub fn location(&self, id: GroupId, index: u64) -> Option<Location> {
        let group = self.groups.get(&id)?;
        let nth = index.checked_sub(group.stored.outline.start() + 1)?;
        group.locations.get(usize::try_from(nth).ok()?).copied()
    }

    /// Takes in a record that lies at `at`, in the last segment. Says what is wrong with it if
    /// it does not follow from those before.
    pub fn note(&mut self, record: &Record<&[u8]>, at: Position) -> Result<(), &'static str> {
        match record {
            Record::Entry { group, index, term, kind, .. } => {
                self.note_entry(*group, (*index, *term), *kind, at)
            }
            Record::Vote { group, term, vote, commit } => {
                let hard = &mut self.known(*group)?.stored.outline.hard;
                (hard.term, hard.vote, hard.commit) = (*term, *vote, *commit);
                Ok(())
            }
            Record::Member { group, peer, members } => {
                if self.tombstones.contains(group) {
                    return Err("group was closed for good");
                }
                #[cfg(any(test, feature = "mutants"))]
                if crate::mutant::is_active(crate::mutant::Mutant::ReusePeer) {
                    self.gone.remove(&(*group, *peer));
                }
                if self.gone.contains(&(*group, *peer)) {
                    return Err("replica left for good");
                }
                let known = self.groups.entry(*group).or_default();
                known.stored.peer = *peer;
                known.stored.outline.members = members.clone();
                // One who joined has no rows before it has members: a power loss may have taken the record that says so.
                known.stored.void |= members.voters.is_empty();
                Ok(())
            }
            Record::Rows { group, void } => {
                self.known(*group)?.stored.void = *void;
                Ok(())
            }
            Record::Gone { group, peer } => {
                if self.groups.get(group).is_some_and(|known| known.stored.peer == *peer) {
                    self.groups.remove(group);
                }
                self.gone.insert((*group, *peer));
                Ok(())
            }
            Record::Start { group, index, term } => {
                let known = self.known(*group)?;
                known.stored.outline.restart(*index, *term);
                known.locations.clear();
                known.is_headed = false;
                Ok(())
            }
            Record::Tail { group, index, term, proposed } => {
                self.note_tail(*group, (*index, *term), *proposed)
            }
            Record::Tombstone { group } => {
                self.groups.remove(group);
                self.tombstones.insert(*group);
                Ok(())
            }
            Record::Mark { .. } => Ok(()),
        }
    }

    fn known(&mut self, id: GroupId) -> Result<&mut Group, &'static str> {
        self.groups.get_mut(&id).ok_or("group is unknown")
    }

    fn note_entry(
        &mut self,
        id: GroupId,
        (index, term): (u64, u64),
        kind: EntryKind,
        at: Position,
    ) -> Result<(), &'static str> {
        let group = self.groups.get_mut(&id).ok_or("group is unknown")?;
        let outline = &mut group.stored.outline;
        if group.is_headed && index > 0 && index <= outline.start() {
            // A later leader's, in the place of what ended the segment before, which has left: what is left
            // begins here. No leader can have had another entry before this one with the lower of both
            // terms, so that is as good as the term that is not known any more.
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

    fn note_tail(
        &mut self,
        id: GroupId,
        (index, term): (u64, u64),
        proposed: u64,
    ) -> Result<(), &'static str> {
        let known = self.known(id)?;
        let outline = &mut known.stored.outline;
        if outline.last() == 0 {
            outline.begin_after(index, term, proposed);
            known.is_headed = true;
        }
        match (outline.last(), outline.last_term()) == (index, term) {
            true => Ok(()),
            false => Err("log of the group does not end where the segment says"),
        }
    }

    /// All that there is was read: from now on nothing before the start of a group is replaced.
    pub fn is_read(&mut self) {
        self.groups.values_mut().for_each(|group| group.is_headed = false);
    }

    /// Whether everything in the oldest segment is flushed, and it is not the only one.
    pub fn oldest_is_flushed(&self, flushed: &BTreeMap<GroupId, u64>, ending: &BTreeSet<GroupId>) -> bool {
        let Some(oldest) = self.segments.front() else { return false };
        let gone = |id: &GroupId, index: u64| {
            let is_known = self.groups.contains_key(id) || ending.contains(id);
            !is_known || flushed.get(id).is_some_and(|to| *to >= index)
        };
        self.segments.len() > 1 && oldest.last.iter().all(|(id, index)| gone(id, *index))
    }

    /// Drops the oldest segment from the index; says which entries went with it.
    pub fn forget_oldest(&mut self) -> Vec<Compacted> {
        let Some(oldest) = self.segments.pop_front() else { return Vec::new() };
        let mut forgotten = Vec::with_capacity(oldest.last.len());
        for (id, index) in oldest.last {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let outline = &mut group.stored.outline;
            let index = index.min(outline.last());
            if index > outline.start() {
                // What the segment held may have been replaced by what is in a later one.
                let proposed = outline.proposed_until(index);
                group.locations.drain(..(index - outline.start()) as usize);
                outline.forget(index, proposed);
                forgotten.push(Compacted { group: id, index, proposed });
            }
        }
        forgotten
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
    fn what_ended_a_segment_that_has_left_may_be_replaced_in_the_next_one() {
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
                index.note(record, at(64)).unwrap();
            }
            for (nth, entry) in [entry(replaced, term), entry(replaced + 1, 5)].iter().enumerate() {
                index.note(entry, at(128 + 64 * nth as u64)).unwrap();
            }
            index.is_read();
            let outline = &index.group(GROUP).unwrap().outline;
            assert_eq!((outline.start(), outline.last()), (replaced - 1, replaced + 1));
            assert_eq!(outline.term_at(replaced - 1), Some(before));
            assert_eq!(index.location(GROUP, replaced).unwrap().position(), at(128));
            index.note(&entry(replaced - 1, 5), at(512)).unwrap_err();
        }
    }

    #[test]
    fn one_who_joined_and_was_not_restored_has_no_rows() {
        let mut index = Index::default();
        index.segments.push_back(Segment::new(1, 0));
        let at = Position { segment: 1, offset: 64 };
        let member = |voters: &[PeerId]| Record::Member {
            group: GROUP,
            peer: 4,
            members: Members::first(voters.to_vec()),
        };
        index.note(&member(&[]), at).unwrap();
        // The record of this follows, and may be lost alone.
        assert!(index.group(GROUP).unwrap().void);
        index.note(&member(&[PeerId(1), PeerId(4)]), at).unwrap();
        assert!(index.group(GROUP).unwrap().void, "its rows are good once that was noted");
        index.note(&Record::Rows { group: GROUP, void: false }, at).unwrap();
        assert!(!index.group(GROUP).unwrap().void);
    }
}
