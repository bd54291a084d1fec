//! What waits to leave for one server: bounded in bytes, and in an order in which nothing long
//! keeps something short waiting.

use std::collections::{BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

use super::frame::{self, Kind, PART_BYTES, flag};
use super::log_message::{self, ENVELOPE_BYTES, Message};
use super::parts::MESSAGE_BYTES_MAX;

/// Payloads from here on are sent from where they are, without copying.
const COPY_BYTES_MAX: usize = 4 << 10;

/// How many bytes may wait, by what they are. A message that finds nothing of its sort waiting is
/// always taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// LogMessages of the log. What is beyond is dropped; Raft says it again.
    pub letters_bytes_max: usize,
    /// Questions. What is beyond is told that the server cannot be reached.
    pub questions_bytes_max: usize,
    /// Answers. What is beyond is lost, and the one who asked is told so.
    pub answers_bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits {
            letters_bytes_max: 64 << 20,
            questions_bytes_max: 64 << 20,
            answers_bytes_max: 256 << 20,
        }
    }
}

/// Everything that waits for one server.
pub(super) struct Outbox {
    limits: QueueLimits,
    control: VecDeque<Control>,
    log_messages: VecDeque<Message>,
    letters_bytes: usize,
    log_messages_number: u64,
    messages: VecDeque<Outgoing>,
    questions_bytes: usize,
    answers_bytes: usize,
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

/// Bytes that leave together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<Bytes>,
    pub(super) len: usize,
    pub(super) frames: usize,
    /// Questions all of which is in this batch, or was in earlier ones.
    pub(super) requests: Vec<u64>,
    pub(super) log_messages: usize,
}

/// What became of something that was put into an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Waits,
    Full,
    TooLong,
}

impl Outbox {
    pub(super) fn new(limits: QueueLimits) -> Outbox {
        Outbox {
            limits,
            control: VecDeque::new(),
            log_messages: VecDeque::new(),
            letters_bytes: 0,
            log_messages_number: 0,
            messages: VecDeque::new(),
            questions_bytes: 0,
            answers_bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.log_messages.is_empty() && self.messages.is_empty()
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.letters_bytes + self.questions_bytes + self.answers_bytes
    }

    /// A frame without payload, before everything else.
    pub(super) fn control(&mut self, kind: Kind, flags: u8, number: u64) {
        self.control.push_back(Control { kind, flags: flags | flag::WHOLE, number });
    }

    /// A log_message of the log.
    pub(super) fn log_message(&mut self, log_message: Message) -> Put {
        let bytes = ENVELOPE_BYTES + log_message.body.len();
        if bytes as u64 > MESSAGE_BYTES_MAX {
            return Put::TooLong;
        }
        if self.letters_bytes > 0 && self.letters_bytes + bytes > self.limits.letters_bytes_max {
            return Put::Full;
        }
        self.letters_bytes += bytes;
        if bytes > PART_BYTES {
            let mut body = BytesMut::with_capacity(bytes);
            log_message::put(&mut body, &log_message);
            self.log_messages_number += 1;
            self.push(Kind::LogMessages, self.log_messages_number, body.freeze());
        } else {
            self.log_messages.push_back(log_message);
        }
        Put::Waits
    }

    /// A request.
    pub(super) fn request(&mut self, number: u64, body: Bytes) -> Put {
        if body.len() as u64 > MESSAGE_BYTES_MAX {
            return Put::TooLong;
        }
        if self.questions_bytes > 0 && self.questions_bytes + body.len() > self.limits.questions_bytes_max {
            return Put::Full;
        }
        self.questions_bytes += body.len();
        self.push(Kind::Request, number, body);
        Put::Waits
    }

    /// An answer, a refusal or a book. One that cannot be sent is replaced by the word that it is lost.
    pub(super) fn answer(&mut self, kind: Kind, number: u64, body: Bytes) {
        let is_full =
            self.answers_bytes > 0 && self.answers_bytes + body.len() > self.limits.answers_bytes_max;
        if is_full || body.len() as u64 > MESSAGE_BYTES_MAX {
            if kind != Kind::Book {
                self.control(Kind::Lost, 0, number);
            }
            return;
        }
        self.answers_bytes += body.len();
        self.push(kind, number, body);
    }

    /// Takes back requests that have not left as a whole; those are the result.
    pub(super) fn withdraw(&mut self, numbers: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut withdrawn = BTreeSet::new();
        let mut begun = Vec::new();
        let questions_bytes = &mut self.questions_bytes;
        self.messages.retain(|message| {
            if message.kind != Kind::Request || !numbers.contains(&message.number) {
                return true;
            }
            *questions_bytes -= message.body.len();
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

    /// Forgets everything: the link is over.
    pub(super) fn clear(&mut self) {
        *self = Outbox::new(self.limits);
    }

    /// Up to about `budget` bytes: what steers the link first, then log_messages and messages in turn, a part
    /// of each.
    pub(super) fn take(&mut self, budget: usize) -> Batch {
        let mut batch = Batch::default();
        let mut small = BytesMut::with_capacity(self.room(budget));
        while let Some(Control { kind, flags, number }) = self.control.pop_front() {
            frame::put(&mut small, kind, flags, number, &[]);
            batch.frames += 1;
        }
        while batch.len + small.len() < budget && !(self.log_messages.is_empty() && self.messages.is_empty())
        {
            self.take_letters(&mut small, &mut batch);
            self.take_part(&mut small, &mut batch);
        }
        batch.keep(&mut small);
        batch
    }

    /// About as many bytes as a batch of up to `budget` copies.
    fn room(&self, budget: usize) -> usize {
        let copied = |message: &Outgoing| Some(message.body.len()).filter(|bytes| *bytes <= COPY_BYTES_MAX);
        let steering = self.control.len() * frame::HEAD_BYTES_MAX;
        let log_messages = frame::HEAD_BYTES_MAX + self.letters_bytes.min(COPY_BYTES_MAX);
        let mut room = steering + log_messages;
        for message in &self.messages {
            if room >= budget {
                return budget;
            }
            room += frame::HEAD_BYTES_MAX + copied(message).unwrap_or(0);
        }
        room
    }

    fn take_letters(&mut self, small: &mut BytesMut, batch: &mut Batch) {
        if self.log_messages.is_empty() {
            return;
        }
        let mut payload = BytesMut::with_capacity(self.letters_bytes.min(PART_BYTES));
        while let Some(log_message) = self.log_messages.front() {
            let bytes = ENVELOPE_BYTES + log_message.body.len();
            if payload.len() + bytes > PART_BYTES {
                break;
            }
            log_message::put(&mut payload, log_message);
            self.letters_bytes -= bytes;
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
        let announced = (total as u64).to_le_bytes();
        let before: &[u8] = if flags == flag::FIRST { &announced } else { &[] };
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
                self.questions_bytes -= total;
                batch.requests.push(message.number);
            }
            Kind::LogMessages => {
                self.letters_bytes -= total;
                batch.log_messages += 1;
            }
            _ => self.answers_bytes -= total,
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
            self.keep(small);
            self.len += part.len();
            self.bytes.push(part);
        }
    }

    fn keep(&mut self, small: &mut BytesMut) {
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
    fn what_is_short_overtakes_what_is_long() {
        let mut outbox = Outbox::new(QueueLimits::default());
        outbox.answer(Kind::Answer, 1, Bytes::from(vec![1; 10 << 20]));
        assert_eq!(frames(&outbox.take(1)).len(), 1);
        outbox.request(2, Bytes::from_static(b"short"));
        outbox.log_message(log_message(100));
        outbox.control(Kind::Heartbeat, 0, 0);
        let kinds: Vec<Kind> = frames(&outbox.take(200_000)).iter().map(|frame| frame.kind).collect();
        let first = [Kind::Heartbeat, Kind::LogMessages, Kind::Answer, Kind::Request];
        assert_eq!(kinds[..4], first, "one part of the answer stands before the request");
    }

    #[test]
    fn a_message_of_any_length_arrives_as_it_was() {
        for len in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 1_000_003] {
            let mut outbox = Outbox::new(QueueLimits::default());
            let body: Bytes = (0..len).map(|i| (i % 251) as u8).collect();
            outbox.request(7, body.clone());
            let mut assembly = Assembly::default();
            let mut whole = Vec::new();
            while !outbox.is_empty() {
                for frame in frames(&outbox.take(100_000)) {
                    whole.extend(assembly.take(frame).unwrap());
                }
            }
            assert_eq!(whole.len(), 1, "{len} bytes");
            assert_eq!((whole[0].number, whole[0].body.clone()), (7, body));
            assert_eq!(outbox.bytes(), 0);
        }
    }

    #[test]
    fn beyond_its_limit_a_queue_takes_nothing_more() {
        let limits =
            QueueLimits { letters_bytes_max: 1000, questions_bytes_max: 1000, answers_bytes_max: 1000 };
        let mut outbox = Outbox::new(limits);
        assert_eq!(outbox.log_message(log_message(200_000)), Put::Waits, "one is always taken");
        assert_eq!(outbox.log_message(log_message(1)), Put::Full);
        assert_eq!(outbox.request(1, Bytes::from(vec![0; 600])), Put::Waits);
        assert_eq!(outbox.request(2, Bytes::from(vec![0; 600])), Put::Full);
        outbox.answer(Kind::Answer, 3, Bytes::from(vec![0; 600]));
        outbox.answer(Kind::Answer, 4, Bytes::from(vec![0; 600]));
        let sent = frames(&outbox.take(1 << 20));
        let lost: Vec<u64> = sent.iter().filter(|one| one.kind == Kind::Lost).map(|one| one.number).collect();
        assert_eq!(lost, [4], "whoever asked is told that the answer is lost");
        assert!(outbox.is_empty() && outbox.bytes() == 0);
        assert_eq!(outbox.log_message(log_message(1)), Put::Waits);
    }

    #[test]
    fn a_question_can_be_taken_back_until_its_last_part_has_left() {
        let mut outbox = Outbox::new(QueueLimits::default());
        outbox.request(1, Bytes::from(vec![0; 200_000]));
        outbox.request(2, Bytes::from_static(b"short"));
        let batch = outbox.take(70_000);
        assert_eq!(batch.requests, [2], "the short one has left, of the long one a part");
        assert_eq!(outbox.withdraw(&BTreeSet::from([1, 2])), BTreeSet::from([1]));
        let sent = frames(&outbox.take(1 << 20));
        assert_eq!(
            sent.iter().map(|frame| (frame.kind, frame.number)).collect::<Vec<_>>(),
            [(Kind::Withdrawn, 1)]
        );
        assert_eq!(outbox.bytes(), 0);
    }
}
