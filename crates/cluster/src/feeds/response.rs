//! The response to a request for a history: docs/formats/cluster-request.md.

use bytes::{BufMut, Bytes, BytesMut};
use io::ReadFields as _;
use log::Lsn;
use shard::{HistoryRecord, SealState};

use crate::rpc::field::{put, take};

/// The response to [`crate::rpc::Request::History`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryResponse {
    /// Whether the responder lacks entries after the position.
    pub(crate) is_gone: bool,
    /// Whether it has a replica of the group that is in contact with the leader, so that later entries will come.
    pub(crate) is_current: bool,
    /// The seal state that the entry at the position sets, if it sets one.
    pub(crate) seal_state: Option<SealState>,
    pub(crate) records: Vec<HistoryRecord>,
}

const FLAG_GONE: u8 = 1;
const FLAG_CURRENT: u8 = 2;
const FLAG_SEAL: u8 = 4;

impl HistoryResponse {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.is_gone, FLAG_GONE) | flag(self.is_current, FLAG_CURRENT);
        bytes.put_u8(flags | flag(self.seal_state.is_some(), FLAG_SEAL));
        self.seal_state.iter().for_each(|state| bytes.put_u64_le(state.number()));
        for record in &self.records {
            bytes.put_u64_le(record.lsn.0);
            bytes.put_u64_le(record.previous.0);
            bytes.put_u64_le(record.previous_incarnation);
            put(&mut bytes, &record.entry);
        }
        bytes.freeze()
    }

    /// Reads what [`HistoryResponse::encode`] wrote; `None` for anything else.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<HistoryResponse> {
        let flags = bytes.read_u8()?;
        if flags > FLAG_GONE | FLAG_CURRENT | FLAG_SEAL {
            return None;
        }
        let seal_state = match flags & FLAG_SEAL {
            0 => None,
            _ => Some(SealState::of_number(bytes.read_u64()?)),
        };
        let (is_gone, is_current) = (flags & FLAG_GONE != 0, flags & FLAG_CURRENT != 0);
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let (lsn, previous) = (Lsn(bytes.read_u64()?), Lsn(bytes.read_u64()?));
            let previous_incarnation = bytes.read_u64()?;
            records.push(HistoryRecord { lsn, previous, previous_incarnation, entry: take(&mut bytes)? });
        }
        Some(HistoryResponse { is_gone, is_current, seal_state, records })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_round_trips_and_truncated_ones_are_refused() {
        let record = |lsn: u64, entry: &'static [u8]| HistoryRecord {
            lsn: Lsn(lsn),
            previous: Lsn(lsn - 1),
            previous_incarnation: 5,
            entry: Bytes::from_static(entry),
        };
        let response = HistoryResponse {
            is_gone: false,
            is_current: true,
            seal_state: Some(SealState::sealed(3)),
            records: vec![record(7, b"entry"), record(9, b"")],
        };
        let bytes = response.encode();
        assert_eq!(HistoryResponse::decode(bytes.clone()), Some(response.clone()));
        for len in 0..bytes.len() {
            assert_ne!(HistoryResponse::decode(bytes.slice(..len)), Some(response.clone()));
        }
        assert_eq!(HistoryResponse::decode(Bytes::from_static(&[8])), None);
        let gone = HistoryResponse { is_gone: true, ..HistoryResponse::default() };
        assert_eq!(HistoryResponse::decode(gone.encode()), Some(gone));
    }
}
