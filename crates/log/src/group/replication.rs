//! A leader's view of the other replicas: the appends in flight to each, and the entries that each has written.

use std::collections::{BTreeMap, VecDeque};

use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};

use super::ELECTION_TICKS;
use super::consensus::Consensus;
use super::entries::Entries;
use crate::error::LogError;
use crate::lsn::{GroupId, Lsn};
use crate::member::{PeerId, PeerStatus};
use crate::message::{Content, ENTRY_HEAD_BYTES, Payload};
use crate::step::Effects;
use crate::store::{Store, StoredEntry};

/// A message holds about this many bytes of entries, or one larger entry.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// About this many bytes of entries may be on their way to one follower.
const IN_FLIGHT_BYTES_MAX: usize = 4 << 20;
/// The observer is notified at most once in this many ticks that a replica needs a copy.
const SNAPSHOT_REPORT_TICKS: u64 = 20;

/// An append that is not confirmed yet.
struct InFlight {
    /// The position of its last entry.
    last: u64,
    bytes: usize,
}

/// The state of one other replica, as its leader knows it.
#[derive(Default)]
struct Follower {
    /// The last position of this term that the follower has appended.
    received: u64,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
    /// Consensus has handed out entries after this position, and they were not sent.
    held_back: Option<u64>,
    /// The tick at which the follower last said that its rows are invalid.
    rows_invalid_at: Option<u64>,
}

impl Follower {
    /// The follower has everything up to `matched`.
    fn confirm(&mut self, matched: u64) {
        while self.in_flight.front().is_some_and(|append| append.last <= matched) {
            self.in_flight_bytes -= self.in_flight.pop_front().map_or(0, |append| append.bytes);
        }
    }

    /// Whether a message with the entries after `index` may be sent to a follower that has everything up to `matched`.
    /// Nothing is held back any more once the follower has passed that position in another way: a copy of the rows takes
    /// it far ahead of the entries being sent.
    fn may_send(&mut self, index: u64, matched: u64) -> bool {
        let is_over = |held_back: &mut u64| index <= *held_back || matched >= *held_back;
        self.held_back.take_if(is_over).is_some() || self.held_back.is_none()
    }

    /// Whether the follower said lately that its rows are invalid. It does so in response to every heartbeat, so this
    /// lasts as long as a silent follower may count as active.
    fn has_invalid_rows(&self, ticks: u64) -> bool {
        self.rows_invalid_at.is_some_and(|at| ticks <= at + 2 * ELECTION_TICKS as u64)
    }

    fn note_sent(&mut self, last: u64, bytes: usize) {
        self.in_flight.push_back(InFlight { last, bytes });
        self.in_flight_bytes += bytes;
    }

    fn clear_in_flight(&mut self) {
        self.in_flight.clear();
        self.in_flight_bytes = 0;
    }
}

/// The other replicas of a group, on its leader.
#[derive(Default)]
pub(super) struct Replication {
    followers: BTreeMap<u64, Follower>,
    /// The tick at which each replica was last reported to need a copy.
    snapshot_reported_at: BTreeMap<u64, u64>,
}

impl Replication {
    /// A new term begins: nothing is known of the other replicas.
    pub fn clear_followers(&mut self) {
        self.followers.clear();
    }

    /// `peer` is no longer a member.
    pub fn remove_follower(&mut self, peer: u64) {
        self.followers.remove(&peer);
    }

    /// `peer` has appended the log of this term up to `index`.
    pub fn note_received(&mut self, peer: u64, index: u64) {
        let follower = self.followers.entry(peer).or_default();
        follower.received = follower.received.max(index);
    }

    /// `peer` has said that its rows are invalid.
    pub fn note_invalid_rows(&mut self, peer: u64, ticks: u64) {
        self.followers.entry(peer).or_default().rows_invalid_at = Some(ticks);
    }

    /// `peer` has lost the entries after `index`: the leader probes it again, and its confirmations no longer count.
    pub fn note_recovering(&mut self, consensus: &mut Consensus, peer: u64, index: u64) {
        let last = consensus.outline().last();
        let Some(progress) = consensus.node.raft.mut_prs().get_mut(peer) else { return };
        if progress.matched <= index {
            return;
        }
        progress.become_probe();
        progress.matched = 0;
        progress.next_idx = index.min(last) + 1;
        progress.committed_index = 0;
        self.followers.remove(&peer);
    }

    /// Whether `peer` needs a copy of the rows: it said lately that its own are invalid, or the log no longer has the
    /// entries that it lacks.
    pub fn lacks_rows(&self, consensus: &Consensus, peer: u64, ticks: u64) -> bool {
        let is_invalid =
            || self.followers.get(&peer).is_some_and(|follower| follower.has_invalid_rows(ticks));
        consensus.matched(peer) < consensus.outline().start() || is_invalid()
    }

    /// The states of the other replicas, by peer id; empty on a follower. A quiesced group sends no
    /// heartbeats, so all of its replicas count as active; unreachable nodes are noticed by the links.
    pub fn statuses(&self, consensus: &Consensus, quiesced: bool, ticks: u64) -> Vec<PeerStatus> {
        let is_leader = consensus.is_leader();
        let others = consensus.raft().prs().iter();
        let others = others.filter(|(peer, _)| is_leader && **peer != consensus.own);
        let mut statuses: Vec<_> = others
            .map(|(peer, progress)| PeerStatus {
                peer: PeerId(*peer),
                matched: Lsn(progress.matched),
                active: quiesced || progress.recent_active,
                needs_rows: !quiesced && self.lacks_rows(consensus, *peer, ticks),
            })
            .collect();
        statuses.sort_unstable_by_key(|status| status.peer);
        statuses
    }

    /// Reports, at intervals, that `peer` needs a copy of the rows. Only for a leader with valid rows.
    pub fn report_snapshot_needed(
        &mut self,
        consensus: &Consensus,
        peer: u64,
        ticks: u64,
        effects: &mut Effects,
    ) {
        let reported = self.snapshot_reported_at.get(&peer);
        let due = reported.is_none_or(|reported| ticks >= reported + SNAPSHOT_REPORT_TICKS);
        if due && consensus.is_leader() {
            self.snapshot_reported_at.insert(peer, ticks);
            effects.snapshots_needed.push((consensus.id, PeerId(peer)));
        }
    }

    /// The last position of this leader's term that a quorum has written; zero if there is none.
    pub fn written_by_quorum(&self, consensus: &Consensus, own_written: u64) -> u64 {
        let written = |peer: u64| match peer == consensus.own {
            true => own_written,
            false => {
                let received = self.followers.get(&peer).map_or(0, |follower| follower.received);
                received.max(consensus.matched(peer))
            }
        };
        let voters = &consensus.members().voters;
        let mut written: Vec<u64> = voters.iter().map(|peer| written(peer.0)).collect();
        written.sort_unstable();
        // The position that two of three voters have written, or three of four.
        let least = written.len().saturating_sub(1) / 2;
        let reached = written.get(least).copied().unwrap_or(0);
        match consensus.outline().term_at(reached) == Some(consensus.term()) {
            true => reached,
            false => 0,
        }
    }

    /// Sends the entries of an append from consensus, in as many messages as it takes, but no more bytes than may be in
    /// flight at once.
    pub fn send_append(
        &mut self,
        consensus: &mut Consensus,
        entries: &Entries,
        append: &RaftMessage,
        store: &impl Store,
        effects: &mut Effects,
    ) -> Result<(), LogError> {
        let (to, last) = (append.to, append.index + append.entries.len() as u64);
        if consensus.raft().prs().get(to).is_none() {
            return Ok(());
        }
        let (streams, matched) = (consensus.is_streaming_to(to), consensus.matched(to));
        let follower = self.followers.entry(to).or_default();
        if !follower.may_send(append.index, matched) {
            return Ok(());
        }
        follower.confirm(matched);
        if !streams {
            follower.clear_in_flight();
        }
        let mut room = IN_FLIGHT_BYTES_MAX.saturating_sub(follower.in_flight_bytes);
        let mut sent = append.index;
        let mut parts = AppendParts { append, group: consensus.id, entries, store, stored: VecDeque::new() };
        loop {
            let part = parts.after(sent, room.min(MESSAGE_BYTES_MAX))?;
            let (count, bytes) = (part.entries.len() as u64, part.bytes);
            let log_term = consensus.outline().term_at(sent);
            let content = part.into_content(append, sent, log_term, entries.soft);
            sent += count;
            room = room.saturating_sub(bytes);
            consensus.send(to, &content, effects);
            follower.note_sent(sent, bytes);
            if sent >= last || count == 0 || !streams || room == 0 {
                break;
            }
        }
        if sent < last && streams {
            // Consensus takes all of it for sent; the rest follows when responses arrive.
            follower.held_back = Some(sent);
            if let Some(progress) = consensus.node.raft.mut_prs().get_mut(to) {
                progress.next_idx = progress.next_idx.min(sent + 1);
            }
        }
        Ok(())
    }
}

/// Cuts an append into messages.
struct AppendParts<'a, S> {
    append: &'a RaftMessage,
    group: GroupId,
    entries: &'a Entries,
    store: &'a S,
    /// Entries that were read ahead from the store.
    stored: VecDeque<StoredEntry>,
}

/// Some entries of an append, with their payloads.
struct AppendPart {
    entries: Vec<RaftEntry>,
    payloads: Vec<Payload>,
    bytes: usize,
}

impl<S: Store> AppendParts<'_, S> {
    /// The entries after position `after`, up to `bytes_max`, and at least one if there is any room.
    fn after(&mut self, after: u64, bytes_max: usize) -> Result<AppendPart, LogError> {
        let mut part = AppendPart { entries: Vec::new(), payloads: Vec::new(), bytes: 0 };
        for entry in self.append.entries.iter().skip((after - self.append.index) as usize) {
            if part.bytes >= bytes_max {
                break;
            }
            let Some(payload) = self.payload(entry.index)? else { break };
            part.bytes += payload.1.len() + ENTRY_HEAD_BYTES;
            part.entries.push(entry.clone());
            part.payloads.push(payload);
        }
        Ok(part)
    }

    fn payload(&mut self, index: u64) -> Result<Option<Payload>, LogError> {
        if let Some(held) = self.entries.tail.get(index) {
            return Ok(Some((held.kind, held.payload.clone())));
        }
        if self.stored.front().is_none_or(|front| front.index != index) {
            self.stored = self.store.read(self.group, index - 1, MESSAGE_BYTES_MAX)?.into();
        }
        Ok(self.stored.pop_front().map(|found| (found.kind, found.payload)))
    }
}

impl AppendPart {
    /// A message like `append` with only these entries, which follow position `index`.
    fn into_content(self, append: &RaftMessage, index: u64, log_term: Option<u64>, soft: u64) -> Content {
        let log_term =
            if index == append.index { append.log_term } else { log_term.unwrap_or(append.log_term) };
        let RaftMessage { to, from, term, commit, .. } = *append;
        let mut message = RaftMessage {
            to,
            from,
            term,
            commit,
            index,
            log_term,
            entries: self.entries,
            ..RaftMessage::default()
        };
        message.set_msg_type(MessageType::MsgAppend);
        Content::Consensus { message, payloads: self.payloads, soft }
    }
}

#[cfg(test)]
mod tests {
    use super::Follower;

    #[test]
    fn entries_that_a_copy_of_the_rows_jumped_over_hold_nothing_back() {
        let mut follower = Follower { held_back: Some(3_000), ..Follower::default() };
        assert!(!follower.may_send(4_000, 2_000), "the entries in between were not sent");
        assert!(follower.may_send(3_000, 2_000), "it continues where it was held back");
        assert!(follower.may_send(4_000, 2_000), "and is held back no more");

        follower.held_back = Some(3_000);
        assert!(!follower.may_send(60_200, 2_999));
        assert!(follower.may_send(60_200, 60_200), "the follower has all that was held back");
    }
}
