//! What arrives on a connection. Nearly all of it is the talk of a link: however many messages come together, the connection
//! and its server are looked for once.

use bytes::Bytes;
use io::ConnectionId;

use super::fault::Fault;
use super::peer::Peer;
use super::{Effect, Machine, MayAdopt, Note};
use crate::link::book::Book;
use crate::link::frame::{Damage, Frame, Item, Kind, flag};
use crate::link::hello::Hello;
use crate::link::log_message;
use crate::link::parts::Message;
use crate::link::stats::PeerStats;
use crate::{RpcError, ServerId};

impl Machine {
    pub(super) fn arrived(&mut self, id: ConnectionId, bytes: Bytes, may_adopt: MayAdopt<'_>) {
        let mut arrived = Some(bytes);
        loop {
            let taken_in = match self.take_in_talk(id, arrived.take()) {
                Ok(Some(item)) => self.item(id, item, may_adopt),
                Ok(None) => return,
                Err(damage) => Err(Fault::damage(damage.to_string())),
            };
            if let Err(fault) = taken_in {
                return self.dismiss(id, &fault);
            }
        }
    }

    /// Takes in `arrived`, if that is given, as far as it is the talk of a link. Returns what stands next and is something else;
    /// `None` once nothing whole is left, or the connection is over.
    fn take_in_talk(&mut self, id: ConnectionId, arrived: Option<Bytes>) -> Result<Option<Item>, Damage> {
        let Machine { sessions, peers, effects, now, .. } = self;
        let Some(session) = sessions.get_mut(&id) else { return Ok(None) };
        let linked = session.linked().and_then(|server| Some((server, peers.get_mut(&server)?)));
        let count = arrived.as_ref().map_or(0, Bytes::len);
        arrived.into_iter().for_each(|bytes| session.reader.push(bytes));
        let Some((server, peer)) = linked else { return session.reader.next() };
        peer.heard_at = *now;
        PeerStats::add(&peer.stats.bytes_in, count);
        loop {
            let frame = match session.reader.next()? {
                Some(Item::Frame(frame)) if frame.kind.is_talk() => frame,
                None if peer.hears_again() => {
                    let text = format!("Server \"{}\" {server} answers again", peer.name);
                    effects.extend([Effect::Note(Note::Info, text), Effect::Back(server)]);
                    return Ok(None);
                }
                other => return Ok(other),
            };
            let message = session.assembly.take(frame)?;
            PeerStats::add(&peer.stats.frames_in, 1);
            if let Some(message) = message {
                peer.take_in(server, id, message, effects)?;
            }
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

    /// A frame that only a link has. Talk comes here from a connection that is none, and is out of turn.
    fn frame(&mut self, id: ConnectionId, frame: Frame) -> Result<(), Damage> {
        let session = self.sessions.get_mut(&id).ok_or(Damage::OutOfTurn)?;
        let server = session.linked().ok_or(Damage::OutOfTurn)?;
        if frame.kind == Kind::Withdrawn {
            session.assembly.withdraw(frame.number);
            return Ok(());
        }
        let message = session.assembly.take(frame)?;
        PeerStats::add(&self.peer(server).stats.frames_in, 1);
        match message {
            Some(Message { kind: Kind::Heartbeat, flags, number, .. }) => {
                self.heartbeat(server, flags, number)
            }
            Some(Message { kind: Kind::Book, body, .. }) => self.read_book(Book::parse(&body)?),
            Some(_) => return Err(Damage::OutOfTurn),
            None => {}
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
            self.will_send(server);
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
}

impl Peer {
    /// Takes in one message of the talk on `link`, which is the link to `server`.
    fn take_in(
        &mut self,
        server: ServerId,
        link: ConnectionId,
        message: Message,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Damage> {
        let Message { kind, number, body, .. } = message;
        match kind {
            Kind::LogMessages => {
                let log_messages = log_message::read_all(body)?;
                PeerStats::add(&self.stats.letters_in, log_messages.len());
                effects.push(Effect::LogMessages(server, log_messages));
            }
            Kind::Request => {
                PeerStats::add(&self.stats.questions_in, 1);
                effects.push(Effect::Request { from: server, link, number, request: body });
            }
            Kind::Answer => self.settle(number, Ok(body), effects),
            Kind::Refusal => {
                let why = String::from_utf8_lossy(&body).into_owned();
                self.settle(number, Err(RpcError::Refused { server, why }), effects);
            }
            Kind::Lost => self.settle(number, Err(RpcError::NoAnswer(server)), effects),
            // None of these is talk (`Kind::is_talk`).
            Kind::Consent | Kind::Welcome | Kind::Farewell => return Err(Damage::OutOfTurn),
            Kind::Heartbeat | Kind::Book | Kind::Withdrawn => return Err(Damage::OutOfTurn),
        }
        Ok(())
    }
}
