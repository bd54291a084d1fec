//! Messages to the other replicas of a group, and what comes from them.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::{ELECTION_TICKS, Group};
use crate::contract::Message;
use crate::error::LogError;
use crate::member::{MemberChange, PeerId};
use crate::message::{self, Content, ENTRY_HEAD_BYTES, Payload};
use crate::record::EntryKind;
use crate::store::{Store, StoredEntry};
use crate::turn::{Effects, Turn};

/// A message holds about so many bytes of entries, or one larger entry.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// About so many bytes of entries may be on their way to one follower.
const FLIGHT_BYTES_MAX: usize = 4 << 20;

/// What a leader knows of what is on its way to another replica.
#[derive(Default)]
pub(super) struct Flight {
    /// The last position of this term that the other has appended.
    pub received: u64,
    // The last position and the bytes of each message that is not answered.
    sent: VecDeque<(u64, usize)>,
    bytes: usize,
    // Of the messages consensus made, nothing after this position was sent.
    held_back: Option<u64>,
    // The tick at which the other last said that its rows are void.
    void_at: Option<u64>,
}

/// What a leader said when it had nothing to say.
struct Heartbeat {
    leader: PeerId,
    term: u64,
    /// Up to where it knows the log here to be committed.
    commit: u64,
}

impl Flight {
    /// The other has everything up to `matched`.
    fn landed(&mut self, matched: u64) {
        while self.sent.front().is_some_and(|(last, _)| *last <= matched) {
            self.bytes -= self.sent.pop_front().map_or(0, |(_, bytes)| bytes);
        }
    }

    /// Whether a message may go whose entries follow `index`, when the other has everything up to
    /// `matched`. Nothing is held back any more once the other has got past it by itself: a copy of the
    /// rows takes it far ahead of what was being sent.
    fn admits(&mut self, index: u64, matched: u64) -> bool {
        let is_over = |held_back: &mut u64| index <= *held_back || matched >= *held_back;
        self.held_back.take_if(is_over).is_some() || self.held_back.is_none()
    }

    /// Whether the other said lately that its rows are void. It does so whenever it hears its leader.
    pub fn is_void(&self, ticks: u64) -> bool {
        // For as long as one that went silent may pass for active.
        self.void_at.is_some_and(|at| ticks <= at + 2 * ELECTION_TICKS as u64)
    }

    fn send(&mut self, last: u64, bytes: usize) {
        self.sent.push_back((last, bytes));
        self.bytes += bytes;
    }

    fn forget(&mut self) {
        self.sent.clear();
        self.bytes = 0;
    }
}

impl Group {
    /// Turns messages of consensus into messages.
    pub(super) fn post<S: Store>(
        &mut self,
        messages: Vec<RaftMessage>,
        turn: &mut Turn<'_, S>,
    ) -> Result<(), LogError> {
        if self.node.raft.state == StateRole::Leader && self.term_append > turn.synced {
            // Who votes alone leads at once, and after a power loss perhaps in the same term again, with other
            // entries. Consensus takes it for lost and repeats it.
            return Ok(());
        }
        for mut message in messages {
            self.withhold_change(&mut message);
            match message.get_msg_type() {
                MessageType::MsgAppend => self.post_append(message, turn)?,
                _ if message::is_sent(&message) => {
                    let (to, soft) = (message.to, self.soft);
                    self.send(to, &Content::Consensus { message, payloads: Vec::new(), soft }, turn.effects);
                }
                // Proposals and reads are not forwarded, and rows do not travel here.
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn send(&self, to: u64, content: &Content, effects: &mut Effects) {
        let (group, from, to) = (self.id, PeerId(self.own), PeerId(to));
        effects.messages.push(Message { group, from, to, body: content.encode() });
    }

    /// Sends entries, in as many messages as it takes, but no more than may be on the way at once.
    fn post_append<S: Store>(
        &mut self,
        message: RaftMessage,
        turn: &mut Turn<'_, S>,
    ) -> Result<(), LogError> {
        let (to, last) = (message.to, message.index + message.entries.len() as u64);
        let Some(progress) = self.node.raft.prs().get(to) else { return Ok(()) };
        let streams = progress.state == raft::ProgressState::Replicate;
        let matched = progress.matched;
        let flight = self.fellows.entry(to).or_default();
        if !flight.admits(message.index, matched) {
            return Ok(());
        }
        flight.landed(matched);
        if !streams {
            flight.forget();
        }
        let mut room = FLIGHT_BYTES_MAX.saturating_sub(flight.bytes);
        let mut sent = message.index;
        let mut stored = VecDeque::new();
        loop {
            let part = self.part(&message, sent, room.min(MESSAGE_BYTES_MAX), &mut stored, turn)?;
            let (count, bytes) = (part.entries.len() as u64, part.bytes);
            sent += count;
            room = room.saturating_sub(bytes);
            let content = part.into_content(&message, sent - count, self.node.store().term_at(sent - count));
            self.send(to, &content.with_soft(self.soft), turn.effects);
            self.fellows.entry(to).or_default().send(sent, bytes);
            if sent >= last || count == 0 || !streams || room == 0 {
                break;
            }
        }
        if sent < last && streams {
            // Consensus believes that all of it is on its way; the rest follows the answers.
            self.fellows.entry(to).or_default().held_back = Some(sent);
            if let Some(progress) = self.node.raft.mut_prs().get_mut(to) {
                progress.next_idx = progress.next_idx.min(sent + 1);
            }
        }
        Ok(())
    }

    /// The entries of `message` after position `after`, up to `bytes_max` and at least one if there is
    /// any room.
    fn part<S: Store>(
        &self,
        message: &RaftMessage,
        after: u64,
        bytes_max: usize,
        stored: &mut VecDeque<StoredEntry>,
        turn: &Turn<'_, S>,
    ) -> Result<Part, LogError> {
        let mut part = Part { entries: Vec::new(), payloads: Vec::new(), bytes: 0 };
        for entry in message.entries.iter().skip((after - message.index) as usize) {
            if part.bytes >= bytes_max {
                break;
            }
            let payload = match self.tail.get(entry.index) {
                Some(held) => (held.kind, held.payload.clone()),
                None => {
                    if stored.front().is_none_or(|front| front.index != entry.index) {
                        *stored = turn.store.read(self.id, entry.index - 1, MESSAGE_BYTES_MAX)?.into();
                    }
                    let Some(found) = stored.pop_front() else { break };
                    (found.kind, found.payload)
                }
            };
            part.bytes += payload.1.len() + ENTRY_HEAD_BYTES;
            part.entries.push(entry.clone());
            part.payloads.push(payload);
        }
        Ok(part)
    }

    /// A message from another replica.
    pub fn receive<S: Store>(
        &mut self,
        from: PeerId,
        body: &Bytes,
        turn: &mut Turn<'_, S>,
    ) -> Result<(), LogError> {
        // Until it may go its messages are like all others: it can even lead, elected by those who do not know.
        let may_go = || self.node.raft.state == StateRole::Leader && self.members_durable();
        if self.members().removed.contains(&from) && may_go() {
            self.send(from.0, &Content::Gone, turn.effects);
            return Ok(());
        }
        let Some(content) = Content::decode(body) else {
            tracing::warn!(group = self.id.0, from = from.0, "a message that cannot be read");
            return Ok(());
        };
        self.disturb(&content);
        let raft = &self.node.raft;
        let leads_in = |term: u64| raft.state == StateRole::Leader && raft.term == term;
        match content {
            Content::Consensus { message, payloads, soft } => {
                self.receive_message(from, message, payloads, soft, turn)?;
            }
            Content::Received { term, index } if leads_in(term) && index <= self.node.store().last() => {
                let flight = self.fellows.entry(from.0).or_default();
                flight.received = flight.received.max(index);
            }
            Content::NeedsRows { term } if leads_in(term) => {
                self.fellows.entry(from.0).or_default().void_at = Some(self.ticks);
                self.want_copy(from.0, turn.effects);
            }
            Content::Gone => self.removed |= self.members().contains(from),
            Content::Rest { term, index } => self.rest_with(from, term, index, turn.effects),
            Content::Resting { term, index } if leads_in(term) => self.rests(from, index),
            Content::Lost { term, index } if leads_in(term) => self.lost_by(from, index),
            _ => {}
        }
        Ok(())
    }

    /// Whether a message is the answer to a heartbeat of this leader, in its term.
    pub fn is_confirmed_by(&self, body: &Bytes) -> bool {
        let raft = &self.node.raft;
        let is_answer = |message: &RaftMessage| {
            message.get_msg_type() == MessageType::MsgHeartbeatResponse && message.term == raft.term
        };
        raft.state == StateRole::Leader
            && matches!(Content::decode(body), Some(Content::Consensus { message, .. }) if is_answer(&message))
    }

    fn receive_message<S: Store>(
        &mut self,
        from: PeerId,
        mut message: RaftMessage,
        payloads: Vec<Payload>,
        soft: u64,
        turn: &mut Turn<'_, S>,
    ) -> Result<(), LogError> {
        (message.from, message.to) = (from.0, self.own);
        self.notice_loss(&mut message);
        self.note_asked(&message);
        let (kind, term, commit) = (message.get_msg_type(), message.term, message.commit);
        if !self.is_acceptable(&message, &payloads)
            || (kind == MessageType::MsgTimeoutNow && !self.may_stand())
        {
            return Ok(());
        }
        let indices = message.entries.iter().map(|entry| entry.index);
        self.received = indices.zip(payloads).collect();
        // What consensus will not hear of is as if it had been lost.
        drop(self.node.step(message));
        let raft = &self.node.raft;
        let is_from_leader = raft.term == term && raft.leader_id == from.0 && from.0 != self.own;
        if is_from_leader && matches!(kind, MessageType::MsgAppend | MessageType::MsgHeartbeat) {
            let known = if self.told.0 == term { self.told.1 } else { 0 };
            self.told = (term, soft.max(known));
            if self.void && kind == MessageType::MsgAppend {
                // Before it confirms: who has the log and not the rows is not ready.
                self.send(from.0, &Content::NeedsRows { term }, turn.effects);
            }
        }
        self.save(turn)?;
        self.received.clear();
        if is_from_leader && kind == MessageType::MsgHeartbeat {
            self.answer_heartbeat(Heartbeat { leader: from, term, commit }, turn.effects);
        }
        Ok(())
    }

    /// What a follower tells a leader besides what consensus does.
    fn answer_heartbeat(&mut self, heard: Heartbeat, effects: &mut Effects) {
        let Heartbeat { leader, term, commit } = heard;
        self.confess(leader, term, effects);
        if self.void {
            self.send(leader.0, &Content::NeedsRows { term }, effects);
        }
        let here = self.durable();
        if here > commit && !self.is_unsynced() {
            // It tells of what it knows to be here, so it does not know of all: after a copy of the rows, or where it was
            // elected anew. What is committed is as it has it, and it may have nothing any more with which to find that out.
            let mut message = RaftMessage { term, index: here, commit: here, ..RaftMessage::default() };
            message.set_msg_type(MessageType::MsgAppendResponse);
            self.withhold_change(&mut message);
            self.send(leader.0, &Content::Consensus { message, payloads: Vec::new(), soft: 0 }, effects);
        }
    }

    /// Tells the leader what has been appended here, when soft entries wait for that.
    pub(super) fn tell_received(&mut self, effects: &mut Effects, synced: u64) {
        let raft = &self.node.raft;
        let follows = raft.state == StateRole::Follower && raft.leader_id != 0;
        // A term that is not durable could be forgotten, and another leader's entries be put here.
        if !self.owes_received || !follows || self.term_append > synced {
            return;
        }
        let (term, leader, index) = (raft.term, raft.leader_id, self.verified_here());
        self.owes_received = false;
        if index > 0 {
            self.send(leader, &Content::Received { term, index }, effects);
        }
    }

    /// Whether consensus can be given the message: what no working replica would write is refused,
    /// since consensus takes it for a fault of this program.
    fn is_acceptable(&self, message: &RaftMessage, payloads: &[Payload]) -> bool {
        let (log, outline) = (&self.node.raft.raft_log, self.node.store());
        let last = log.last_index();
        match message.get_msg_type() {
            MessageType::MsgAppend => {
                let base = outline.term_at(log.committed).unwrap_or(0);
                let behind = message.index < log.committed;
                let mut term = message.log_term;
                let terms_grow = message.entries.iter().all(|entry| {
                    let grows = entry.term >= term && entry.term <= message.term;
                    term = entry.term;
                    grows
                });
                let whole = |payload: &Payload| {
                    payload.0 != EntryKind::Members || MemberChange::decode(&payload.1).is_some()
                };
                (behind || message.log_term >= base) && terms_grow && payloads.iter().all(whole)
            }
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => !self.is_owed_more(message),
            MessageType::MsgAppendResponse => message.reject || message.index <= last,
            _ => true,
        }
    }
}

/// Some entries of an append, with what they hold.
struct Part {
    entries: Vec<raft::eraftpb::Entry>,
    payloads: Vec<Payload>,
    bytes: usize,
}

impl Part {
    /// The same message with only these entries, which follow position `index`.
    fn into_content(self, whole: &RaftMessage, index: u64, log_term: Option<u64>) -> Content {
        let log_term = if index == whole.index { whole.log_term } else { log_term.unwrap_or(whole.log_term) };
        let RaftMessage { to, from, term, commit, .. } = *whole;
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
        Content::Consensus { message, payloads: self.payloads, soft: 0 }
    }
}

impl Content {
    fn with_soft(self, told: u64) -> Content {
        match self {
            Content::Consensus { message, payloads, .. } => {
                Content::Consensus { message, payloads, soft: told }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Flight;

    #[test]
    fn what_a_copy_of_the_rows_jumped_over_holds_nothing_back() {
        let mut flight = Flight { held_back: Some(3_000), ..Flight::default() };
        assert!(!flight.admits(4_000, 2_000), "what is between was not sent");
        assert!(flight.admits(3_000, 2_000), "it goes on from where it was held back");
        assert!(flight.admits(4_000, 2_000), "and is held back no more");

        flight.held_back = Some(3_000);
        assert!(!flight.admits(60_200, 2_999));
        assert!(flight.admits(60_200, 60_200), "the other has all that was held back");
    }
}
