//! Requests from one node to another.

use datum::Bytes;

use super::{Outcome, Target};

pub struct Request;

/// The number of kinds of requests.
const KINDS: u8 = 13;

impl Target for Request {
    fn name(&self) -> &'static str {
        "request"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let seed = |kind: u8, rest: u8| [&[query::REQUEST_VERSION, kind][..], &[rest; 60]].concat();
        (0..KINDS).flat_map(|kind| [seed(kind, 0), seed(kind, 1)]).collect()
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[
            b"\0",
            b"\x01",
            b"\x02",
            b"\x03",
            b"\x05",
            b"\x01a",
            b"\x80\x01",
            b"\xff\xff\xff\xff\x0f",
            b"[69,[[2,[1]],[10,[1]]]]",
        ]
    }

    /// An accepted request is encoded as the same bytes, or at least is accepted again.
    fn check(&self, input: &[u8]) -> Outcome {
        let once = match query::reencode_request(Bytes::copy_from_slice(input)) {
            Err(error) => return Outcome::of(("invalid", error.what, input.get(1))),
            Ok(once) => once,
        };
        match query::reencode_request(once.clone()) {
            Ok(again) => assert_eq!(again.len(), once.len()),
            Err(error) => panic!("an accepted value is refused: {error}"),
        }
        Outcome::of(("taken", once.get(1).copied(), once.len().min(256) / 16))
    }
}
