//! The bytes of a link between servers: preface, hello, frames and their payloads.

use cluster::link::{Damage, read_stream, sample_frame, sample_hello};
use io::sim::Chance;

use super::{Outcome, Target};

pub struct Link;

const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 20;

impl Target for Link {
    fn name(&self) -> &'static str {
        "link"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let frame = |kind, flags, number, payload: &[u8]| {
            sample_frame(kind, flags, number, payload).expect("a kind of frame")
        };
        let hello = sample_hello("fuzz");
        let mut message = [1_u64, 2, 3].map(u64::to_le_bytes).concat();
        message.extend_from_slice(&4_u32.to_le_bytes());
        message.extend_from_slice(b"body");
        let exchange =
            [frame(1, 3, 0, b""), frame(2, 3, 1, b""), frame(4, 7, 9, b""), frame(5, 3, 1, &message)];
        let long = [9_u64.to_le_bytes().as_slice(), b"first"].concat();
        let parts = [frame(6, 1, 5, &long), frame(7, 3, 4, b"answer"), frame(6, 2, 5, b"last")];
        let servers = br#"{"version":1,"servers":[{"server":"00000000-0000-0000-0000-000000000002","name":"a","addresses":["h:1"],"started_ms":5,"removed":false}]}"#;
        let rest = [
            frame(10, 3, 0, servers),
            frame(8, 3, 2, b"no"),
            frame(9, 3, 3, b""),
            frame(11, 3, 5, b""),
            frame(3, 3, 1, b"why"),
        ];
        let behind = |frames: &[Vec<u8>]| [hello.clone(), frames.concat()].concat();
        vec![hello.clone(), behind(&exchange), behind(&parts), behind(&rest)]
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[
            b"RKNDLINK",
            b"\x01\0\x01\0",
            b"\"server\":",
            b"\"cluster\":null",
            b"\"removed\":true",
            b"\0\0\0\0\0\0\0\0",
            b"\x15\x03\x03\0\x02",
        ]
    }

    fn repair(&self, input: &mut Vec<u8>, _chance: &mut Chance) {
        if input.len() < PREFACE_BYTES {
            return;
        }
        let hello_bytes = u32::from_le_bytes([input[12], input[13], input[14], input[15]]) as usize;
        let hello_end = PREFACE_BYTES.saturating_add(hello_bytes).min(input.len());
        let hello = crc32c::crc32c(&input[PREFACE_BYTES..hello_end]);
        input[16..20].copy_from_slice(&hello.to_le_bytes());
        let preface = crc32c::crc32c(&input[..20]);
        input[20..24].copy_from_slice(&preface.to_le_bytes());
        let mut at = hello_end;
        while input.len() >= at + HEADER_BYTES {
            let payload = [input[at + 4], input[at + 5], input[at + 6], input[at + 7]];
            let end = at.saturating_add(HEADER_BYTES).saturating_add(u32::from_le_bytes(payload) as usize);
            if end > input.len() {
                break;
            }
            let checksum = crc32c::crc32c(&input[at + 4..end]);
            input[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
            at = end;
        }
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let whole = read_stream(input, input.len());
        assert!(whole.body_bytes <= input.len(), "a link makes no bytes of its own");
        if input.len() < 4096 {
            for chunk_bytes in [1, 7] {
                assert_eq!(read_stream(input, chunk_bytes), whole, "in pieces of {chunk_bytes} bytes");
            }
        }
        let damage = whole.damage.map(|damage| match damage {
            Damage::TooLong { what, .. } => what.to_owned(),
            Damage::Kind(_) => "kind".to_owned(),
            other => other.to_string(),
        });
        let few = |count: usize| count.min(3);
        Outcome::of((
            few(whole.items),
            few(whole.messages),
            few(whole.log_messages),
            few(whole.servers),
            damage,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_links() {
        let read: Vec<_> = Link.seeds().iter().map(|seed| read_stream(seed, seed.len())).collect();
        assert!(read.iter().all(|reading| reading.damage.is_none()), "{read:?}");
        assert_eq!(read.iter().map(|reading| reading.items).collect::<Vec<_>>(), [2, 6, 5, 7]);
        assert_eq!((read[1].log_messages, read[2].messages, read[3].servers), (1, 2, 1));
    }
}
