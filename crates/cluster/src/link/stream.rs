//! Reads the byte stream of a link without a link: for the fuzz target.

use bytes::{Bytes, BytesMut};

use super::address_book::AddressBook;
use super::frame::{self, Damage, Item, Kind, StreamReader, VERSIONS, flag};
use super::hello::Hello;
use super::log_message;
use super::parts::Assembly;

/// The content of one direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamReading {
    /// Prefaces, hellos and frames.
    pub items: usize,
    /// Complete messages.
    pub messages: usize,
    /// Bytes in the bodies of these messages.
    pub body_bytes: usize,
    /// Replication messages in them.
    pub log_messages: usize,
    /// Servers in address books.
    pub servers: usize,
    /// The error at which reading ended, if there was one.
    pub damage: Option<Damage>,
}

/// Reads `bytes` like the receiving side of a link that gets them in chunks of `chunk_bytes`.
#[must_use]
pub fn read_stream(bytes: &[u8], chunk_bytes: usize) -> StreamReading {
    let mut reading = StreamReading::default();
    let mut reader = StreamReader::default();
    let mut assembly = Assembly::default();
    for chunk in bytes.chunks(chunk_bytes.max(1)) {
        reader.push(Bytes::copy_from_slice(chunk));
        loop {
            match reader
                .next()
                .and_then(|item| item.map_or(Ok(false), |item| reading.take(item, &mut assembly)))
            {
                Ok(true) => {}
                Ok(false) => break,
                Err(damage) => {
                    reading.damage = Some(damage);
                    return reading;
                }
            }
        }
    }
    reading
}

impl StreamReading {
    fn take(&mut self, item: Item, assembly: &mut Assembly) -> Result<bool, Damage> {
        self.items += 1;
        match item {
            Item::Preface(_) => {}
            Item::Hello(text) => drop(Hello::parse(&text)?),
            Item::Frame(frame) if frame.kind == Kind::Withdrawn => assembly.withdraw(frame.number),
            Item::Frame(frame) => {
                let Some(message) = assembly.take(frame)? else { return Ok(true) };
                self.messages += 1;
                self.body_bytes += message.body.len();
                match message.kind {
                    Kind::LogMessages => self.log_messages += log_message::read_all(message.body)?.len(),
                    Kind::Book => self.servers += AddressBook::parse(&message.body)?.entries().count(),
                    _ => {}
                }
            }
        }
        Ok(true)
    }
}

/// The first bytes of a link, as a server with this name sends them: preface and hello.
#[must_use]
pub fn sample_hello(name: &str) -> Vec<u8> {
    let hello = Hello {
        cluster: Some(uuid::Uuid::from_u128(1)),
        server: crate::ServerId(uuid::Uuid::from_u128(2)),
        incarnation: 3,
        started_ms: 4,
        name: name.to_owned(),
        tags: vec!["default".to_owned()],
        addresses: vec!["127.0.0.1:29015".to_owned()],
        port: 29015,
        is_proxy: false,
        program: "rekindle".to_owned(),
        heartbeat_ms: 625,
        reached_at: None,
        canonical: Vec::new(),
        expects: None,
        found: None,
    };
    frame::preface(VERSIONS, hello.to_text().as_bytes()).to_vec()
}

/// One frame with a valid checksum: kind, flags, number and payload as in docs/formats/link.md. `None` if there is no
/// such kind.
#[must_use]
pub fn sample_frame(kind: u8, flags: u8, number: u64, payload: &[u8]) -> Option<Vec<u8>> {
    let mut out = BytesMut::new();
    frame::put(&mut out, Kind::of(kind).ok()?, flags & flag::ALL, number, payload);
    Some(out.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_detected_by_its_first_bytes_in_chunks_of_any_size() {
        for record in [[21, 3, 3, 0, 2, 2, 40].as_slice(), &[22, 3, 1]] {
            for chunk_bytes in 1..=record.len() {
                assert_eq!(read_stream(record, chunk_bytes).damage, Some(Damage::Tls), "{chunk_bytes}");
            }
        }
        assert_eq!(read_stream(&[22, 4, 1], 1).damage, None, "not enough bytes to tell");
    }
}
