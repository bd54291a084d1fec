//! Compressed payloads of entries in segments: which ones are worth it, and the frames of zstd that hold them.
//! docs/formats/log.md.
//!
//! An entry is compressed alone and without a dictionary, so that it can be read alone and by any replica. This takes
//! the log's thread some microseconds, so it is done only where it saves much: a few entries of a group are tried now and then,
//! and the others are compressed only while those shrink.

use std::collections::HashMap;

use zstd_safe::{CCtx, DCtx};

use crate::lsn::GroupId;
use crate::record::PAYLOAD_BYTES_MAX;

/// The first bytes of each zstd frame, which are not stored.
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Shorter payloads have too little to refer to.
const PAYLOAD_BYTES_MIN: usize = 512;
/// zstd's fastest level that also shortens letters that are frequent.
const LEVEL: i32 = 1;
/// Payloads are stored compressed if they take at most this share of their bytes: eighths. Random text takes more: as YCSB
/// makes it, about seven tenths, since it has only 32 or 64 different characters.
const EIGHTHS_MAX: u64 = 5;
/// So many entries of a group are tried at a time.
const TRIED: u32 = 8;
/// A group whose entries do not shrink is tried again after this many bytes of them.
const RESTING_BYTES: u64 = 4 << 20;
/// A group whose entries shrink is judged again after this many bytes of them.
const SHRINKING_BYTES: u64 = 1 << 20;

/// Compresses payloads where that saves enough. Allocates a context of zstd (about a megabyte) with the first one.
#[derive(Default)]
pub struct EntryCompression {
    context: Option<CCtx<'static>>,
    frame: Vec<u8>,
    groups: HashMap<GroupId, Trial>,
}

/// What is known of a group's entries.
#[derive(Default)]
struct Trial {
    tried: u32,
    /// Bytes of the tried entries, before and after.
    plain_bytes: u64,
    frame_bytes: u64,
    /// While positive, entries are not compressed, until they had so many bytes.
    resting_bytes: u64,
}

impl EntryCompression {
    /// The frame for `payload`, an entry of `group`, without zstd's magic number; `None` if the entry is to be stored as it
    /// is.
    pub fn compress(&mut self, group: GroupId, payload: &[u8]) -> Option<&[u8]> {
        if payload.len() < PAYLOAD_BYTES_MIN {
            return None;
        }
        let trial = self.groups.entry(group).or_default();
        if trial.rests(payload.len()) {
            return None;
        }
        let context = match &mut self.context {
            Some(context) => context,
            None => self.context.insert(CCtx::try_create()?),
        };
        self.frame.clear();
        self.frame.try_reserve(zstd_safe::compress_bound(payload.len())).ok()?;
        context.compress(&mut self.frame, payload, LEVEL).ok()?;
        let frame = self.frame.strip_prefix(&MAGIC)?;
        trial.note(payload.len(), frame.len());
        saves_enough(payload.len() as u64, frame.len() as u64).then_some(frame)
    }

    /// Forgets a closed group.
    pub fn forget(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }
}

impl Trial {
    /// Whether the next entry, of `bytes` bytes, is stored as it is.
    fn rests(&mut self, bytes: usize) -> bool {
        let rests = self.resting_bytes > 0;
        self.resting_bytes = self.resting_bytes.saturating_sub(bytes as u64);
        rests
    }

    fn note(&mut self, plain: usize, frame: usize) {
        self.tried += 1;
        self.plain_bytes += plain as u64;
        self.frame_bytes += frame as u64;
        if self.tried < TRIED {
            return;
        }
        if !saves_enough(self.plain_bytes, self.frame_bytes) {
            *self = Trial { resting_bytes: RESTING_BYTES, ..Trial::default() };
        } else if self.plain_bytes >= SHRINKING_BYTES {
            *self = Trial::default();
        }
    }
}

fn saves_enough(plain: u64, frame: u64) -> bool {
    frame <= plain / 8 * EIGHTHS_MAX
}

/// The payload in a frame of [`EntryCompression::compress`]; `None` if the frame is not one.
pub fn decompress(frame: &[u8]) -> Option<Vec<u8>> {
    let whole = [&MAGIC[..], frame].concat();
    let bytes = zstd_safe::get_frame_content_size(&whole).ok()??;
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= PAYLOAD_BYTES_MAX)?;
    let mut payload = Vec::new();
    payload.try_reserve_exact(bytes).ok()?;
    let read = DCtx::try_create()?.decompress(&mut payload, &whole).ok()?;
    (read == bytes).then_some(payload)
}

#[cfg(test)]
mod tests {
    use io::Random;
    use io::sim::SimRandom;

    use super::*;

    const GROUP: GroupId = GroupId(3);
    const TEXT: &str = "the quick brown fox jumps over the lazy dog, and the dog does not mind the fox; ";

    /// Random letters of an alphabet of 32, the smaller one of YCSB.
    fn letters(random: &SimRandom, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| b'@' + random.below(32) as u8).collect()
    }

    #[test]
    fn payloads_that_shrink_come_back() {
        let mut compression = EntryCompression::default();
        for repeats in [8, 30, 20_000] {
            let payload = TEXT.repeat(repeats).into_bytes();
            let frame = compression.compress(GROUP, &payload).unwrap().to_vec();
            assert!(frame.len() < payload.len() / 3);
            assert_eq!(decompress(&frame), Some(payload));
        }
        assert!(compression.compress(GROUP, TEXT.as_bytes()).is_none(), "it is short");
    }

    #[test]
    fn a_group_whose_payloads_do_not_shrink_is_rarely_tried() {
        let random = SimRandom::new(4);
        let mut compression = EntryCompression::default();
        for _ in 0..20_000 {
            assert!(compression.compress(GROUP, &letters(&random, 1000)).is_none());
        }
        let trial = &compression.groups[&GROUP];
        // Of five rests only the last is not over.
        assert!(trial.resting_bytes > 0 && trial.tried == 0, "{}", trial.resting_bytes);
        let other = GroupId(4);
        assert!(compression.compress(other, TEXT.repeat(30).as_bytes()).is_some());
        let mut entries = 0;
        while compression.compress(GROUP, TEXT.repeat(30).as_bytes()).is_none() {
            entries += 1;
        }
        assert!(entries * TEXT.len() as u64 * 30 <= RESTING_BYTES, "noticed after {entries} entries");
    }

    #[test]
    fn no_frame_panics() {
        let random = SimRandom::new(1);
        let mut compression = EntryCompression::default();
        let whole = compression.compress(GROUP, TEXT.repeat(20).as_bytes()).unwrap().to_vec();
        for _ in 0..5_000 {
            let mut frame = whole.clone();
            for _ in 0..random.below(4) {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] = random.next_u64() as u8;
            }
            frame.truncate(random.below(frame.len() as u64 + 1) as usize);
            let _ = decompress(&frame);
        }
    }
}
