//! A position as text, from which a feed can be resumed.
//!
//! The text is the base64 of these bytes; integers are little-endian:
//!
//! ```text
//! version (1)   1
//! cluster (16)  its id
//! digest (8)    of the rows and steps of the feed, and of the options that decide on its elements
//! parts (2)     their number: the sequences of a union, else one. Each:
//! table (16)    its id
//! initial (1)   1: initial values follow; then the index of a group (4), elements (4), 1 or 0 (1), key length (2), key
//! groups (2)    their number
//!   group (8), position (8), incarnation (8), rows (4), elements (4)    … each
//! checksum (4)  CRC-32C of all bytes before it
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cluster::{FeedPosition, GroupId, HistoryPosition};
use datum::{Bytes, PrimaryKey};
use io::ReadFields as _;
use reql::EvalError;
use uuid::Uuid;

use super::position::{ClientPosition, GroupPosition, InitialPosition};

const VERSION: u8 = 1;

/// The cluster, the tables and the feed to which a token belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenScope {
    pub cluster: Uuid,
    /// The table of each part of the feed.
    pub tables: Vec<Uuid>,
    /// A digest of the feed.
    pub digest: u64,
}

impl TokenScope {
    /// The text for the positions of the parts.
    pub fn token<'a>(&self, positions: impl Iterator<Item = &'a ClientPosition>) -> String {
        let mut bytes = Vec::with_capacity(128);
        bytes.push(VERSION);
        bytes.extend_from_slice(self.cluster.as_bytes());
        bytes.extend_from_slice(&self.digest.to_le_bytes());
        bytes.extend_from_slice(&(self.tables.len() as u16).to_le_bytes());
        for (table, position) in self.tables.iter().zip(positions) {
            bytes.extend_from_slice(table.as_bytes());
            put_position(&mut bytes, position);
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The positions of the parts in a token. Fails, and says why, if it is damaged or belongs to something else.
    pub fn positions(&self, token: &str) -> Result<Vec<ClientPosition>, EvalError> {
        let damaged = || refused("it was cut or altered");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| damaged())?;
        let (content, checksum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
            return Err(damaged());
        }
        let mut rest = Bytes::copy_from_slice(content);
        match rest.read_u8() {
            Some(VERSION) => {}
            Some(version) if version > VERSION => {
                return Err(refused("a later version of the server made it"));
            }
            _ => return Err(damaged()),
        }
        if read_id(&mut rest).ok_or_else(damaged)? != self.cluster {
            return Err(refused("it is of another cluster"));
        }
        let digest = rest.read_u64().ok_or_else(damaged)?;
        let count = read_u16(&mut rest).ok_or_else(damaged)?;
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            let table = read_id(&mut rest).ok_or_else(damaged)?;
            parts.push((table, read_position(&mut rest).ok_or_else(damaged)?));
        }
        if !rest.is_empty() {
            return Err(damaged());
        }
        if !parts.iter().map(|(table, _)| table).eq(&self.tables) {
            return Err(refused("it is of another table"));
        }
        if digest != self.digest {
            return Err(refused("it is of a feed with other terms or options"));
        }
        Ok(parts.into_iter().map(|(_, position)| position).collect())
    }
}

fn put_position(bytes: &mut Vec<u8>, position: &ClientPosition) {
    bytes.push(u8::from(position.initial.is_some()));
    if let Some(InitialPosition { group, after, elements }) = &position.initial {
        bytes.extend_from_slice(&(*group as u32).to_le_bytes());
        bytes.extend_from_slice(&elements.to_le_bytes());
        bytes.push(u8::from(after.is_some()));
        let key = after.as_ref().map_or(&[][..], PrimaryKey::as_bytes);
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(key);
    }
    bytes.extend_from_slice(&(position.groups.len() as u16).to_le_bytes());
    for (group, GroupPosition { feed: FeedPosition { entry, rows }, elements }) in &position.groups {
        bytes.extend_from_slice(&group.0.to_le_bytes());
        bytes.extend_from_slice(&entry.encode());
        bytes.extend_from_slice(&rows.to_le_bytes());
        bytes.extend_from_slice(&elements.to_le_bytes());
    }
}

fn read_position(bytes: &mut Bytes) -> Option<ClientPosition> {
    let initial = match bytes.read_u8()? {
        0 => None,
        _ => {
            let (group, elements) = (bytes.read_u32()? as usize, bytes.read_u32()?);
            let has_key = bytes.read_u8()? == 1;
            let len = read_u16(bytes)?;
            let key = PrimaryKey(bytes.read_bytes(len)?);
            Some(InitialPosition { group, after: has_key.then_some(key), elements })
        }
    };
    let count = read_u16(bytes)?;
    let mut groups = Vec::with_capacity(count);
    for _ in 0..count {
        let group = GroupId(bytes.read_u64()?);
        let entry = bytes.read_bytes(HistoryPosition::BYTES)?;
        let entry = HistoryPosition::decode(entry[..].try_into().ok()?);
        let feed = FeedPosition { entry, rows: bytes.read_u32()? };
        groups.push((group, GroupPosition { feed, elements: bytes.read_u32()? }));
    }
    Some(ClientPosition { groups, initial })
}

fn read_id(bytes: &mut Bytes) -> Option<Uuid> {
    Uuid::from_slice(&bytes.read_bytes(16)?).ok()
}

fn read_u16(bytes: &mut Bytes) -> Option<usize> {
    Some(usize::from(bytes.read_u8()?) | usize::from(bytes.read_u8()?) << 8)
}

/// The error for a token that cannot be used.
fn refused(why: &str) -> EvalError {
    EvalError::logic(format!("The token in `resume_after` cannot be used: {why}."))
}

/// The error for a position that can no longer be resumed.
pub(super) fn gone() -> EvalError {
    EvalError::op_failed(
        "The feed cannot be resumed: changes after the position of its `resume_token` are no longer kept. Open a new feed \
         with `include_initial`.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> TokenScope {
        TokenScope {
            cluster: Uuid::from_u128(1),
            tables: vec![Uuid::from_u128(2), Uuid::from_u128(3)],
            digest: 3,
        }
    }

    fn at(lsn: u64) -> GroupPosition {
        let entry = HistoryPosition { lsn: log::Lsn(lsn), incarnation: 9 };
        GroupPosition { feed: FeedPosition { entry, rows: 2 }, elements: 3 }
    }

    #[test]
    fn a_token_gives_its_position_and_only_in_its_scope() {
        let after = Some(PrimaryKey(Bytes::from_static(b"key")));
        let first = InitialPosition { group: 1, after: None, elements: 7 };
        for initial in [None, Some(first), Some(InitialPosition { group: 0, after, elements: 0 })] {
            let position = ClientPosition { groups: vec![(GroupId(4), at(5)), (GroupId(7), at(8))], initial };
            let positions = [position, ClientPosition::default()];
            let token = scope().token(positions.iter());
            assert_eq!(scope().positions(&token).unwrap(), positions);
            let others = [
                (TokenScope { cluster: Uuid::nil(), ..scope() }, "it is of another cluster"),
                (TokenScope { tables: vec![Uuid::from_u128(2)], ..scope() }, "it is of another table"),
                (TokenScope { digest: 0, ..scope() }, "it is of a feed with other terms or options"),
            ];
            for (other, why) in others {
                let error = other.positions(&token).unwrap_err();
                assert_eq!(error.message(), format!("The token in `resume_after` cannot be used: {why}."));
            }
            for len in 0..token.len() {
                scope().positions(&token[..len]).unwrap_err();
            }
            for at in 0..token.len() {
                let mut altered = token.clone().into_bytes();
                altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
                let found = scope().positions(&String::from_utf8(altered).unwrap());
                // The last character may have bits that mean nothing.
                assert!(found.is_err() || at + 1 == token.len(), "character {at}");
            }
        }
    }
}
