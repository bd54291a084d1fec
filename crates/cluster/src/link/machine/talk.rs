//! What is said over an open link: letters, questions, answers, the book, heartbeats.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use io::{ConnectionId, Nanos, Order};

use super::fault::Fault;
use super::questions::Pending;
use super::session::Stage;
use super::{Effect, Machine, MayAdopt, Note};
use crate::link::book::Book;
use crate::link::dialer::jittered;
use crate::link::frame::{Damage, Frame, Item, Kind, flag};
use crate::link::hello::Hello;
use crate::link::letter::{self, Letter};
use crate::link::outbox::Put;
use crate::link::parts::Message;
use crate::link::stats::PeerStats;
use crate::{Answered, AskError, ServerId};

/// Bytes of one link that are with the network at a time. What waits behind them waits here, where
/// something short can still overtake something long.
const GIVEN_BYTES_MAX: usize = 256 << 10;

impl Machine {
    pub(super) fn arrived(&mut self, id: ConnectionId, bytes: Bytes, may_adopt: MayAdopt<'_>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let mut reader = std::mem::take(&mut session.reader);
        self.heard(id, bytes.len());
        reader.push(bytes);
        loop {
            let item = match reader.next() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(damage) => return self.dismiss(id, &Fault::damage(damage.to_string())),
            };
            let may_end = !matches!(&item, Item::Frame(frame) if frame.kind.is_talk());
            if let Err(fault) = self.item(id, item, may_adopt) {
                return self.dismiss(id, &fault);
            }
            if may_end && !self.sessions.contains_key(&id) {
                return;
            }
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            session.reader = reader;
        }
        self.listen_again(id);
    }

    fn linked_peer(&self, id: ConnectionId) -> Option<ServerId> {
        let server = self.sessions.get(&id)?.server()?;
        (self.peers.get(&server)?.link == Some(id)).then_some(server)
    }

    fn heard(&mut self, id: ConnectionId, bytes: usize) {
        let (Some(server), now) = (self.linked_peer(id), self.now) else { return };
        let peer = self.peer(server);
        peer.heard_at = now;
        PeerStats::add(&peer.stats.bytes_in, bytes);
    }

    fn listen_again(&mut self, id: ConnectionId) {
        let Some(server) = self.linked_peer(id) else { return };
        let peer = self.peer(server);
        if peer.is_silent && !peer.is_deaf {
            peer.is_silent = false;
            peer.stats.is_connected.store(1, Relaxed);
            self.effects.push(Effect::Back(server));
        }
    }

    fn item(&mut self, id: ConnectionId, item: Item, may_adopt: MayAdopt<'_>) -> Result<(), Fault> {
        let damage = |damage: Damage| Fault::damage(damage.to_string());
        match item {
            Item::Preface(versions) => self.greeted(id, versions),
            Item::Hello(text) => self.introduced(id, Hello::parse(&text).map_err(damage)?, may_adopt),
            Item::Frame(frame) => match frame.kind {
                Kind::Consent => self.consented(id),
                Kind::Welcome => self.welcomed(id, frame.number),
                Kind::Farewell => {
                    self.dismissed(id, frame.number, &frame.payload);
                    Ok(())
                }
                _ => self.frame(id, frame).map_err(damage),
            },
        }
    }

    fn frame(&mut self, id: ConnectionId, frame: Frame) -> Result<(), Damage> {
        let session = self.sessions.get_mut(&id).filter(|session| session.stage == Stage::Open);
        let session = session.ok_or(Damage::OutOfTurn)?;
        let server = session.server().ok_or(Damage::OutOfTurn)?;
        if frame.kind == Kind::Withdrawn {
            session.assembly.withdraw(frame.number);
            return Ok(());
        }
        let message = session.assembly.take(frame)?;
        PeerStats::add(&self.peer(server).stats.frames_in, 1);
        message.map_or(Ok(()), |message| self.message(server, id, message))
    }

    fn message(&mut self, server: ServerId, id: ConnectionId, message: Message) -> Result<(), Damage> {
        let Message { kind, flags, number, body } = message;
        match kind {
            Kind::Heartbeat => self.heartbeat(server, flags, number),
            Kind::Letters => {
                let letters = letter::read_all(body)?;
                PeerStats::add(&self.peer(server).stats.letters_in, letters.len());
                self.effects.push(Effect::Letters(server, letters));
            }
            Kind::Question => {
                PeerStats::add(&self.peer(server).stats.questions_in, 1);
                self.effects.push(Effect::Question { from: server, link: id, number, question: body });
            }
            Kind::Answer => self.settle(server, number, Ok(body)),
            Kind::Refusal => {
                let why = String::from_utf8_lossy(&body).into_owned();
                self.settle(server, number, Err(AskError::Refused { server, why }));
            }
            Kind::Lost => self.settle(server, number, Err(AskError::NoAnswer(server))),
            Kind::Book => self.read_book(Book::parse(&body)?),
            Kind::Consent | Kind::Welcome | Kind::Farewell | Kind::Withdrawn => {}
        }
        Ok(())
    }

    fn heartbeat(&mut self, server: ServerId, flags: u8, number: u64) {
        if flags & flag::ECHO != 0 {
            return self.echoed(server, number);
        }
        let peer = self.peer(server);
        peer.is_deaf = flags & flag::DEAF != 0;
        if flags & flag::ECHO_WANTED != 0 {
            peer.outbox.control(Kind::Heartbeat, flag::ECHO, number);
            self.dirty.insert(server);
        }
    }

    fn read_book(&mut self, book: Book) {
        if book.is_removed(self.me.server) {
            self.effects.push(Effect::Removed);
        }
        let others: Vec<_> = book
            .entries()
            .filter(|(server, entry)| *server != self.me.server && !entry.removed)
            .map(|(server, entry)| (server, entry.addresses.clone()))
            .collect();
        if !self.book.merge(book.without(self.me.server)) {
            return;
        }
        for (server, addresses) in others {
            for address in addresses {
                self.dialer.server_at(&address, server, self.now);
            }
        }
        self.book_changed();
        self.part_with_removed();
        self.tick_by(self.now);
    }

    /// Asks, or says at once why not.
    pub(super) fn ask(&mut self, to: ServerId, question: Bytes, patience: Duration, answered: Answered) {
        let deadline = self.now.after(patience);
        let number = self.question_next;
        let peer = self.peers.get_mut(&to).filter(|peer| peer.link.is_some());
        let Some(peer) = peer else {
            self.effects.push(Effect::Answer(answered, Err(AskError::NotConnected(to))));
            return;
        };
        let refused = match peer.outbox.question(number, question) {
            Put::Waits => {
                PeerStats::add(&peer.stats.questions_out, 1);
                peer.questions.add(number, Pending { answered, deadline, has_left: false });
                self.question_next += 1;
                self.dirty.insert(to);
                self.tick_by(deadline);
                return;
            }
            Put::Full => AskError::NotConnected(to),
            Put::TooLong => AskError::Refused { server: to, why: "the question is too long".to_owned() },
        };
        PeerStats::add(&peer.stats.questions_failed, 1);
        self.effects.push(Effect::Answer(answered, Err(refused)));
    }

    fn settle(&mut self, server: ServerId, number: u64, result: Result<Bytes, AskError>) {
        let peer = self.peer(server);
        // One whose time is up has been answered already.
        let Some(pending) = peer.questions.settle(number) else { return };
        if result.is_err() {
            PeerStats::add(&peer.stats.questions_failed, 1);
        }
        self.effects.push(Effect::Answer(pending.answered, result));
    }

    pub(super) fn expire_questions(&mut self) {
        let now = self.now;
        let mut failed = Vec::new();
        let mut next_at: Option<Nanos> = None;
        for (server, peer) in &mut self.peers {
            let late = peer.questions.late(now);
            if !late.is_empty() {
                let withdrawn = peer.outbox.withdraw(&late);
                self.dirty.insert(*server);
                failed.extend(late.iter().map(|number| (*server, *number, withdrawn.contains(number))));
            }
            next_at = [next_at, peer.questions.late_at()].into_iter().flatten().min();
        }
        for (server, number, was_withdrawn) in failed {
            let error =
                if was_withdrawn { AskError::NotConnected(server) } else { AskError::NoAnswer(server) };
            self.settle(server, number, Err(error));
        }
        if let Some(at) = next_at {
            self.tick_by(at);
        }
    }

    pub(super) fn mail(&mut self, to: ServerId, letters: Vec<Letter>) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if peer.link.is_none() {
            PeerStats::add(&peer.stats.letters_dropped, letters.len());
            return;
        }
        for letter in letters {
            if peer.outbox.letter(letter) != Put::Waits {
                PeerStats::add(&peer.stats.letters_dropped, 1);
            }
        }
        self.dirty.insert(to);
    }

    pub(super) fn reply(&mut self, link: ConnectionId, number: u64, result: Result<Bytes, String>) {
        // The link on which it was asked may be over: then nobody waits for the answer.
        let Some(server) = self.linked_peer(link) else { return };
        let (kind, body) = match result {
            Ok(answer) => (Kind::Answer, answer),
            Err(why) => (Kind::Refusal, Bytes::from(why)),
        };
        self.peer(server).outbox.answer(kind, number, body);
        self.dirty.insert(server);
    }

    /// Gives what waits for `server` to the network, as much as that should have.
    pub(super) fn send(&mut self, server: ServerId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&server) else { return };
        let Some(connection) = peer.link else { return };
        if peer.outbox.is_empty() || peer.given_bytes >= GIVEN_BYTES_MAX {
            peer.stats.queue_bytes.store(peer.outbox.bytes() as u64, Relaxed);
            return;
        }
        let batch = peer.outbox.take(GIVEN_BYTES_MAX - peer.given_bytes);
        for number in &batch.questions {
            peer.questions.has_left(*number);
        }
        peer.given_bytes += batch.len;
        peer.spoke_at = now;
        peer.stats.queue_bytes.store(peer.outbox.bytes() as u64, Relaxed);
        peer.stats.frames_out.fetch_add(batch.frames, Relaxed);
        peer.stats.letters_out.fetch_add(batch.letters, Relaxed);
        PeerStats::add(&peer.stats.bytes_out, batch.len);
        let tell = peer.given_bytes >= GIVEN_BYTES_MAX / 2;
        self.orders.push(Order::Send { connection, bytes: batch.bytes, tell });
    }

    pub(super) fn drained(&mut self, id: ConnectionId) {
        let Some(server) = self.linked_peer(id) else { return };
        self.peer(server).given_bytes = 0;
        self.dirty.insert(server);
    }

    /// Finds out who is silent, and lets others hear from this node.
    pub(super) fn listen_for_silence(&mut self, is_beat: bool) {
        let (now, timings) = (self.now, self.timings);
        let mut dead = Vec::new();
        for (server, peer) in &mut self.peers {
            let Some(link) = peer.link else { continue };
            let quiet = now.since(peer.heard_at);
            if quiet >= timings.heartbeat_timeout {
                dead.push((link, peer.name.clone()));
                continue;
            }
            let is_quiet = quiet > timings.silent_after(peer.interval);
            if (is_quiet || peer.is_deaf) && !peer.is_silent {
                peer.is_silent = true;
                peer.stats.is_connected.store(0, Relaxed);
                let name = &peer.name;
                let text = match is_quiet {
                    true => format!("Nothing is heard from server \"{name}\" {server}"),
                    false => format!("Server \"{name}\" {server} does not hear this one"),
                };
                self.effects.push(Effect::Note(Note::Info, text));
                self.effects.push(Effect::Silent(*server));
            }
            let has_spoken = now.since(peer.spoke_at) < timings.heartbeat_interval() / 2;
            if is_beat && (!has_spoken || is_quiet || peer.told_deaf) {
                let flags = if is_quiet { flag::DEAF } else { 0 };
                peer.told_deaf = is_quiet;
                peer.outbox.control(Kind::Heartbeat, flags, 0);
                self.dirty.insert(*server);
            }
        }
        for (link, name) in dead {
            let seconds = timings.heartbeat_timeout.as_secs_f64();
            let text = format!("nothing was heard from server \"{name}\" for {seconds} seconds");
            self.dismiss(link, &Fault::silent(text));
        }
    }

    /// The link to `server` is over: what it owed is not coming.
    pub(super) fn unlink(&mut self, server: ServerId, why: &str) {
        let (now, random) = (self.now, self.random.clone());
        let peer = self.peer(server);
        peer.link = None;
        peer.outbox.clear();
        peer.stats.queue_bytes.store(0, Relaxed);
        peer.stats.is_connected.store(0, Relaxed);
        let pending = peer.questions.take_all();
        PeerStats::add(&peer.stats.questions_failed, pending.len());
        let (name, was_silent) = (peer.name.clone(), std::mem::replace(&mut peer.is_silent, true));
        for pending in pending {
            // The last part of it never left: nobody can have carried it out.
            let error = match pending.has_left {
                true => AskError::NoAnswer(server),
                false => AskError::NotConnected(server),
            };
            self.effects.push(Effect::Answer(pending.answered, Err(error)));
        }
        self.effects.push(Effect::Unlinked(server));
        if !was_silent {
            self.effects.push(Effect::Silent(server));
        }
        self.note(Note::Info, format!("Disconnected from server \"{name}\" {server}: {why}"));
        let pause = jittered(self.timings.redial_least, &*random);
        self.dialer.lost(server, now, pause);
        self.tick_by(now);
    }
}
