//! The response to [`super::Request::SplitPoints`]: docs/formats/cluster-request.md.

use bytes::{BufMut, BytesMut};
use datum::Bytes;
use io::ReadFields as _;

use super::field::{put, take};

/// Keys that split the range of a shard into parts with about as many rows each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitPointsResponse {
    /// The number of rows of the shard.
    pub(crate) rows: u64,
    /// The first key of each part but the first.
    pub(crate) keys: Vec<Bytes>,
}

impl SplitPointsResponse {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u64_le(self.rows);
        self.keys.iter().for_each(|key| put(&mut bytes, key));
        bytes.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<SplitPointsResponse> {
        let (rows, mut keys) = (bytes.read_u64()?, Vec::new());
        while !bytes.is_empty() {
            keys.push(take(&mut bytes)?);
        }
        Some(SplitPointsResponse { rows, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_round_trips() {
        let keys = vec![Bytes::from_static(b"k"), Bytes::from_static(b"key")];
        let response = SplitPointsResponse { rows: 7, keys };
        let bytes = response.encode();
        assert_eq!(SplitPointsResponse::decode(bytes.slice(..bytes.len() - 1)), None);
        assert_eq!(SplitPointsResponse::decode(bytes), Some(response));
    }
}
