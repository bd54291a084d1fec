//! Handles received bytes. Nearly all of them are data frames of a link: a chunk with many of them needs one lookup
//! of the connection and its server.

use bytes::Bytes;
use io::ConnectionId;

use super::fault::Fault;
use super::peer::Peer;
use super::{Effect, LogLevel, Machine, MayAdopt};
use crate::link::address_book::AddressBook;
use crate::link::frame::{Damage, Frame, Item, Kind, flag};
use crate::link::hello::Hello;
use crate::link::log_message;
use crate::link::parts::Message;
use crate::link::stats::PeerStats;
use crate::{RpcError, ServerId};

impl Machine {
    pub(super) fn received(&mut self, id: ConnectionId, bytes: Bytes, may_adopt: MayAdopt<'_>) {
        let mut chunk = Some(bytes);
        loop {
            let handled = match self.receive_data(id, chunk.take()) {
                Ok(Some(item)) => self.handle_item(id, item, may_adopt),
                Ok(None) => return,
                Err(damage) => Err(Fault::damage(damage.to_string())),
            };
            if let Err(fault) = handled {
                return self.close_session(id, &fault);
            }
        }
    }

    /// Handles `chunk`, if given, and then all complete data frames of a link. Returns the next item that is
    /// something else; `None` once no complete item is left, or the connection has ended.
    fn receive_data(&mut self, id: ConnectionId, chunk: Option<Bytes>) -> Result<Option<Item>, Damage> {
        let Machine { sessions, peers, effects, now, .. } = self;
        let Some(session) = sessions.get_mut(&id) else { return Ok(None) };
        let linked = session.linked().and_then(|server| Some((server, peers.get_mut(&server)?)));
        let count = chunk.as_ref().map_or(0, Bytes::len);
        chunk.into_iter().for_each(|bytes| session.reader.push(bytes));
        let Some((server, peer)) = linked else { return session.reader.next() };
        peer.received_at = *now;
        PeerStats::add(&peer.stats.bytes_in, count);
        loop {
            let frame = match session.reader.next()? {
                Some(Item::Frame(frame)) if frame.kind.is_data() => frame,
                None if peer.mark_heard() => {
                    let text = format!("Server \"{}\" {server} responds again", peer.name);
                    effects.extend([Effect::Log(LogLevel::Info, text), Effect::Back(server)]);
                    return Ok(None);
                }
                other => return Ok(other),
            };
            let message = session.assembly.take(frame)?;
            PeerStats::add(&peer.stats.frames_in, 1);
            if let Some(message) = message {
                peer.receive(server, id, message, effects)?;
            }
        }
    }

    fn handle_item(&mut self, id: ConnectionId, item: Item, may_adopt: MayAdopt<'_>) -> Result<(), Fault> {
        let damage = |damage: Damage| Fault::damage(damage.to_string());
        match item {
            Item::Preface(versions) => self.versions_received(id, versions),
            Item::Hello(text) => self.hello_received(id, Hello::parse(&text).map_err(damage)?, may_adopt),
            Item::Frame(frame) => match frame.kind {
                Kind::Consent => self.consent_received(id),
                Kind::Welcome => self.welcome_received(id, frame.number),
                Kind::Farewell => {
                    self.farewell_received(id, frame.number, &frame.payload);
                    Ok(())
                }
                _ => self.frame(id, frame).map_err(damage),
            },
        }
    }

    /// Handles a control frame, which is only allowed on a link. Data frames come here from a connection that is not
    /// a link, and are rejected.
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
            Some(Message { kind: Kind::Book, body, .. }) => {
                self.merge_address_book(AddressBook::parse(&body)?)
            }
            Some(_) => return Err(Damage::OutOfTurn),
            None => {}
        }
        Ok(())
    }

    fn heartbeat(&mut self, server: ServerId, flags: u8, number: u64) {
        if flags & flag::ECHO != 0 {
            return self.echo_received(server, number);
        }
        let peer = self.peer(server);
        peer.is_deaf = flags & flag::DEAF != 0;
        if flags & flag::ECHO_WANTED != 0 {
            peer.outbox.control(Kind::Heartbeat, flag::ECHO, number);
            self.will_send(server);
        }
    }

    fn merge_address_book(&mut self, address_book: AddressBook) {
        if address_book.is_removed(self.local.server) {
            self.effects.push(Effect::Removed);
        }
        let others: Vec<_> = address_book
            .entries()
            .filter(|(server, entry)| *server != self.local.server && !entry.removed)
            .map(|(server, entry)| (server, entry.addresses.clone()))
            .collect();
        if !self.address_book.merge(address_book.without(self.local.server)) {
            return;
        }
        for (server, addresses) in others {
            for address in addresses {
                self.dialer.server_at(&address, server, self.now);
            }
        }
        self.address_book_changed();
        self.close_removed();
        self.tick_by(self.now);
    }
}

impl Peer {
    /// Handles one data message from `link`, the link to `server`.
    fn receive(
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
                PeerStats::add(&self.stats.log_messages_in, log_messages.len());
                effects.push(Effect::LogMessages(server, log_messages));
            }
            Kind::Request => {
                PeerStats::add(&self.stats.requests_in, 1);
                effects.push(Effect::Request { from: server, link, number, request: body });
            }
            Kind::Response => self.settle(number, Ok(body), effects),
            Kind::Refusal => {
                let why = String::from_utf8_lossy(&body).into_owned();
                self.settle(number, Err(RpcError::Refused { server, why }), effects);
            }
            Kind::Lost => self.settle(number, Err(RpcError::NoResponse(server)), effects),
            // None of these is a data frame (`Kind::is_data`).
            Kind::Consent | Kind::Welcome | Kind::Farewell => return Err(Damage::OutOfTurn),
            Kind::Heartbeat | Kind::Book | Kind::Withdrawn => return Err(Damage::OutOfTurn),
        }
        Ok(())
    }
}
