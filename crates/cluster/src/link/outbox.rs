//! The queue of data to send to one server. It is bounded in bytes, and long messages do not delay short ones.

use std::collections::{BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

use super::frame::{self, Kind, PART_BYTES, flag};
use super::log_message::{self, ENVELOPE_BYTES, Message};
use super::parts::MESSAGE_BYTES_MAX;

/// Longer payloads are sent without copying them.
const COPY_BYTES_MAX: usize = 4 << 10;

/// How many bytes may be queued for one server, by category. A message whose category has nothing queued is always
/// accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Replication messages. Messages above the limit are dropped; Raft sends them again.
    pub log_messages_bytes_max: usize,
    /// Requests. Requests above the limit fail as if the server were not connected.
    pub requests_bytes_max: usize,
    /// Responses. Responses above the limit are dropped, and the requester is notified.
    pub responses_bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits {
            log_messages_bytes_max: 64 << 20,
            requests_bytes_max: 64 << 20,
            responses_bytes_max: 256 << 20,
        }
    }
}

/// The data that is queued for one server.
pub(super) struct Outbox {
    limits: QueueLimits,
    control: VecDeque<Control>,
    log_messages: VecDeque<Message>,
    log_messages_bytes: usize,
    log_messages_number: u64,
    messages: VecDeque<Outgoing>,
    requests_bytes: usize,
    responses_bytes: usize,
}

struct Control {
    kind: Kind,
    flags: u8,
    number: u64,
}

struct Outgoing {
    kind: Kind,
    number: u64,
    body: Bytes,
    sent_bytes: usize,
}

/// Bytes that are sent together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<Bytes>,
    pub(super) len: usize,
    pub(super) frames: usize,
    /// Requests whose last part is in this batch.
    pub(super) requests: Vec<u64>,
    pub(super) log_messages: usize,
}

/// The outcome of adding to an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Queued,
    Full,
    TooLong,
}

impl Outbox {
    pub(super) fn new(limits: QueueLimits) -> Outbox {
        Outbox {
            limits,
            control: VecDeque::new(),
            log_messages: VecDeque::new(),
            log_messages_bytes: 0,
            log_messages_number: 0,
            messages: VecDeque::new(),
            requests_bytes: 0,
            responses_bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.log_messages.is_empty() && self.messages.is_empty()
    }

    /// Queued bytes.
    pub(super) fn bytes(&self) -> usize {
        self.log_messages_bytes + self.requests_bytes + self.responses_bytes
    }

    /// Queues a frame without payload, which is sent before all other frames.
    pub(super) fn control(&mut self, kind: Kind, flags: u8, number: u64) {
        self.control.push_back(Control { kind, flags: flags | flag::WHOLE, number });
    }

    /// Queues a replication message.
    pub(super) fn log_message(&mut self, log_message: Message) -> Put {
        let bytes = ENVELOPE_BYTES + log_message.body.len();
        if bytes as u64 > MESSAGE_BYTES_MAX {
            return Put::TooLong;
        }
        if self.log_messages_bytes > 0 && self.log_messages_bytes + bytes > self.limits.log_messages_bytes_max
        {
            return Put::Full;
        }
        self.log_messages_bytes += bytes;
        if bytes > PART_BYTES {
            let mut body = BytesMut::with_capacity(bytes);
            log_message::put(&mut body, &log_message);
            self.log_messages_number += 1;
            self.push(Kind::LogMessages, self.log_messages_number, body.freeze());
        } else {
            self.log_messages.push_back(log_message);
        }
        Put::Queued
    }

    /// Queues a request.
    pub(super) fn request(&mut self, number: u64, body: Bytes) -> Put {
        if body.len() as u64 > MESSAGE_BYTES_MAX {
            return Put::TooLong;
        }
        if self.requests_bytes > 0 && self.requests_bytes + body.len() > self.limits.requests_bytes_max {
            return Put::Full;
        }
        self.requests_bytes += body.len();
        self.push(Kind::Request, number, body);
        Put::Queued
    }

    /// Queues a response, a refusal or an address book. If the queue is full, a `Lost` frame replaces a response or
    /// refusal, and an address book is dropped.
    pub(super) fn respond(&mut self, kind: Kind, number: u64, body: Bytes) {
        let is_full =
            self.responses_bytes > 0 && self.responses_bytes + body.len() > self.limits.responses_bytes_max;
        if is_full || body.len() as u64 > MESSAGE_BYTES_MAX {
            if kind != Kind::Book {
                self.control(Kind::Lost, 0, number);
            }
            return;
        }
        self.responses_bytes += body.len();
        self.push(kind, number, body);
    }

    /// Removes each of these requests unless it was sent completely. Returns the numbers of the removed ones.
    pub(super) fn withdraw(&mut self, numbers: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut withdrawn = BTreeSet::new();
        let mut begun = Vec::new();
        let requests_bytes = &mut self.requests_bytes;
        self.messages.retain(|message| {
            if message.kind != Kind::Request || !numbers.contains(&message.number) {
                return true;
            }
            *requests_bytes -= message.body.len();
            withdrawn.insert(message.number);
            if message.sent_bytes > 0 {
                begun.push(message.number);
            }
            false
        });
        for number in begun {
            self.control(Kind::Withdrawn, 0, number);
        }
        withdrawn
    }

    /// Removes everything: the link has ended.
    pub(super) fn clear(&mut self) {
        *self = Outbox::new(self.limits);
    }

    /// Removes up to about `budget` bytes for sending: control frames first, then replication messages and parts of
    /// other messages in alternation.
    pub(super) fn take(&mut self, budget: usize) -> Batch {
        let mut batch = Batch::default();
        let mut small = BytesMut::with_capacity(self.capacity(budget));
        while let Some(Control { kind, flags, number }) = self.control.pop_front() {
            frame::put(&mut small, kind, flags, number, &[]);
            batch.frames += 1;
        }
        while batch.len + small.len() < budget && !(self.log_messages.is_empty() && self.messages.is_empty())
        {
            self.take_log_messages(&mut small, &mut batch);
            self.take_part(&mut small, &mut batch);
        }
        batch.finish_small(&mut small);
        batch
    }

    /// About how many bytes a batch of up to `budget` bytes copies.
    fn capacity(&self, budget: usize) -> usize {
        let copied = |message: &Outgoing| Some(message.body.len()).filter(|bytes| *bytes <= COPY_BYTES_MAX);
        let control = self.control.len() * frame::HEAD_BYTES_MAX;
        let log_messages = frame::HEAD_BYTES_MAX + self.log_messages_bytes.min(COPY_BYTES_MAX);
        let mut capacity = control + log_messages;
        for message in &self.messages {
            if capacity >= budget {
                return budget;
            }
            capacity += frame::HEAD_BYTES_MAX + copied(message).unwrap_or(0);
        }
        capacity
    }

    fn take_log_messages(&mut self, small: &mut BytesMut, batch: &mut Batch) {
        if self.log_messages.is_empty() {
            return;
        }
        let mut payload = BytesMut::with_capacity(self.log_messages_bytes.min(PART_BYTES));
        while let Some(log_message) = self.log_messages.front() {
            let bytes = ENVELOPE_BYTES + log_message.body.len();
            if payload.len() + bytes > PART_BYTES {
                break;
            }
            log_message::put(&mut payload, log_message);
            self.log_messages_bytes -= bytes;
            self.log_messages.pop_front();
            batch.log_messages += 1;
        }
        self.log_messages_number += 1;
        batch.frame(small, Kind::LogMessages, flag::WHOLE, self.log_messages_number, &[], payload.freeze());
    }

    fn take_part(&mut self, small: &mut BytesMut, batch: &mut Batch) {
        let Some(mut message) = self.messages.pop_front() else { return };
        let total = message.body.len();
        let end = total.min(message.sent_bytes + PART_BYTES);
        let mut flags = 0;
        if message.sent_bytes == 0 {
            flags |= flag::FIRST;
        }
        if end == total {
            flags |= flag::LAST;
        }
        let announced_length = (total as u64).to_le_bytes();
        let before: &[u8] = if flags == flag::FIRST { &announced_length } else { &[] };
        let part = if flags == flag::WHOLE {
            std::mem::take(&mut message.body)
        } else {
            message.body.slice(message.sent_bytes..end)
        };
        batch.frame(small, message.kind, flags, message.number, before, part);
        if end < total {
            message.sent_bytes = end;
            self.messages.push_back(message);
            return;
        }
        match message.kind {
            Kind::Request => {
                self.requests_bytes -= total;
                batch.requests.push(message.number);
            }
            Kind::LogMessages => {
                self.log_messages_bytes -= total;
                batch.log_messages += 1;
            }
            _ => self.responses_bytes -= total,
        }
    }

    fn push(&mut self, kind: Kind, number: u64, body: Bytes) {
        self.messages.push_back(Outgoing { kind, number, body, sent_bytes: 0 });
    }
}

impl Batch {
    fn frame(
        &mut self,
        small: &mut BytesMut,
        kind: Kind,
        flags: u8,
        number: u64,
        before: &[u8],
        part: Bytes,
    ) {
        self.frames += 1;
        frame::head(small, kind, flags, number, before, &part);
        if part.len() <= COPY_BYTES_MAX {
            small.extend_from_slice(&part);
        } else {
            self.finish_small(small);
            self.len += part.len();
            self.bytes.push(part);
        }
    }

    fn finish_small(&mut self, small: &mut BytesMut) {
        if !small.is_empty() {
            self.len += small.len();
            self.bytes.push(small.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use log::GroupId;

    use super::super::frame::{Frame, Item, StreamReader, VERSIONS};
    use super::super::log_message::PeerId;
    use super::super::parts::Assembly;
    use super::*;

    fn log_message(len: usize) -> Message {
        Message { group: GroupId(1), from: PeerId(2), to: PeerId(3), body: Bytes::from(vec![4; len]) }
    }

    fn frames(batch: &Batch) -> Vec<Frame> {
        let mut reader = StreamReader::default();
        reader.push(frame::preface(VERSIONS, b""));
        assert!(reader.next().unwrap().is_some() && reader.next().unwrap().is_some());
        let mut frames = Vec::new();
        for bytes in &batch.bytes {
            reader.push(bytes.clone());
            while let Some(Item::Frame(frame)) = reader.next().unwrap() {
                frames.push(frame);
            }
        }
        frames
    }

    #[test]
    fn short_messages_overtake_long_ones() {
        let mut outbox = Outbox::new(QueueLimits::default());
        outbox.respond(Kind::Response, 1, Bytes::from(vec![1; 10 << 20]));
        assert_eq!(frames(&outbox.take(1)).len(), 1);
        outbox.request(2, Bytes::from_static(b"short"));
        outbox.log_message(log_message(100));
        outbox.control(Kind::Heartbeat, 0, 0);
        let kinds: Vec<Kind> = frames(&outbox.take(200_000)).iter().map(|frame| frame.kind).collect();
        let first = [Kind::Heartbeat, Kind::LogMessages, Kind::Response, Kind::Request];
        assert_eq!(kinds[..4], first, "one part of the response comes before the request");
    }

    #[test]
    fn messages_of_any_length_arrive_unchanged() {
        for len in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 1_000_003] {
            let mut outbox = Outbox::new(QueueLimits::default());
            let body: Bytes = (0..len).map(|i| (i % 251) as u8).collect();
            outbox.request(7, body.clone());
            let mut assembly = Assembly::default();
            let mut received = Vec::new();
            while !outbox.is_empty() {
                for frame in frames(&outbox.take(100_000)) {
                    received.extend(assembly.take(frame).unwrap());
                }
            }
            assert_eq!(received.len(), 1, "{len} bytes");
            assert_eq!((received[0].number, received[0].body.clone()), (7, body));
            assert_eq!(outbox.bytes(), 0);
        }
    }

    #[test]
    fn a_queue_accepts_nothing_above_its_limit() {
        let limits =
            QueueLimits { log_messages_bytes_max: 1000, requests_bytes_max: 1000, responses_bytes_max: 1000 };
        let mut outbox = Outbox::new(limits);
        assert_eq!(outbox.log_message(log_message(200_000)), Put::Queued, "the first one is always accepted");
        assert_eq!(outbox.log_message(log_message(1)), Put::Full);
        assert_eq!(outbox.request(1, Bytes::from(vec![0; 600])), Put::Queued);
        assert_eq!(outbox.request(2, Bytes::from(vec![0; 600])), Put::Full);
        outbox.respond(Kind::Response, 3, Bytes::from(vec![0; 600]));
        outbox.respond(Kind::Response, 4, Bytes::from(vec![0; 600]));
        let sent = frames(&outbox.take(1 << 20));
        let lost: Vec<u64> = sent.iter().filter(|one| one.kind == Kind::Lost).map(|one| one.number).collect();
        assert_eq!(lost, [4], "the requester is notified of the lost response");
        assert!(outbox.is_empty() && outbox.bytes() == 0);
        assert_eq!(outbox.log_message(log_message(1)), Put::Queued);
    }

    #[test]
    fn a_request_can_be_withdrawn_until_its_last_part_was_sent() {
        let mut outbox = Outbox::new(QueueLimits::default());
        outbox.request(1, Bytes::from(vec![0; 200_000]));
        outbox.request(2, Bytes::from_static(b"short"));
        let batch = outbox.take(70_000);
        assert_eq!(batch.requests, [2], "the short one was sent, and a part of the long one");
        assert_eq!(outbox.withdraw(&BTreeSet::from([1, 2])), BTreeSet::from([1]));
        let sent = frames(&outbox.take(1 << 20));
        assert_eq!(
            sent.iter().map(|frame| (frame.kind, frame.number)).collect::<Vec<_>>(),
            [(Kind::Withdrawn, 1)]
        );
        assert_eq!(outbox.bytes(), 0);
    }
}
