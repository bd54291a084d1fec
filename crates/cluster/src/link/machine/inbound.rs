//! Data frames of a link: messages of the log, requests and responses. A chunk with many of them needs one lookup of the
//! connection and its server.

use io::ConnectionId;

use super::output::{Effect, LogLevel, Output};
use super::peer::Peer;
use super::session::Session;
use crate::RpcError;
use crate::link::frame::{Damage, Item, Kind};
use crate::link::log_message;
use crate::link::parts::Message;
use crate::link::stats::PeerStats;

impl Peer {
    /// Handles all complete data frames of `session`, which is `link`. Returns the next item that is something else;
    /// `None` once no complete item is left.
    pub(super) fn receive_data(
        &mut self,
        link: ConnectionId,
        session: &mut Session,
        output: &mut Output,
    ) -> Result<Option<Item>, Damage> {
        loop {
            let frame = match session.reader.next()? {
                Some(Item::Frame(frame)) if frame.kind.is_data() => frame,
                None if self.mark_heard() => {
                    let text = format!("Server \"{}\" {} responds again", self.name, self.server);
                    output.log(LogLevel::Info, text);
                    output.add(Effect::Back(self.server));
                    return Ok(None);
                }
                other => return Ok(other),
            };
            let message = session.assembly.take(frame)?;
            PeerStats::add(&self.stats.frames_in, 1);
            if let Some(message) = message {
                self.receive(link, message, output)?;
            }
        }
    }

    /// Handles one data message.
    fn receive(&mut self, link: ConnectionId, message: Message, output: &mut Output) -> Result<(), Damage> {
        let Message { kind, number, body, .. } = message;
        let server = self.server;
        match kind {
            Kind::LogMessages => {
                let log_messages = log_message::read_all(body)?;
                PeerStats::add(&self.stats.log_messages_in, log_messages.len());
                output.add(Effect::LogMessages(server, log_messages));
            }
            Kind::Request => {
                PeerStats::add(&self.stats.requests_in, 1);
                output.add(Effect::Request { from: server, link, number, request: body });
            }
            Kind::Response => self.settle(number, Ok(body), output),
            Kind::Refusal => {
                let why = String::from_utf8_lossy(&body).into_owned();
                self.settle(number, Err(RpcError::Refused { server, why }), output);
            }
            Kind::Lost => self.settle(number, Err(RpcError::NoResponse(server)), output),
            // None of these is a data frame (`Kind::is_data`).
            Kind::Consent | Kind::Welcome | Kind::Farewell => return Err(Damage::OutOfTurn),
            Kind::Heartbeat | Kind::Book | Kind::Withdrawn => return Err(Damage::OutOfTurn),
        }
        Ok(())
    }
}
