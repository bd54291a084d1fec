//! Compresses settled rows: more slowly than rows that are being written, and better.

use parking_lot::Mutex;
use zstd_safe::{CCtx, CDict, CParameter, DictAttachPref, Strategy};

use super::compressed_row::{Encoder, reserve};
use super::dictionary::Tier;

/// The level of zstd for settled rows.
const SETTLED_LEVEL: i32 = 12;
/// The level of zstd from which the parameters for archives are derived.
const ARCHIVED_LEVEL: i32 = 19;
/// An archive's search looks at two to this power of places for each position.
const ARCHIVED_SEARCH_LOG: u32 = 8;

/// A dictionary prepared to compress settled rows.
pub(super) enum SettledEncoder {
    Settled(CDict<'static>),
    Archived(Mutex<CCtx<'static>>),
}

impl SettledEncoder {
    /// Prepares a dictionary. That of an archive takes about half a minute and 320 MB for 32 MB. `None` if there is no memory.
    pub(super) fn new(tier: Tier, content: &[u8]) -> Option<SettledEncoder> {
        Some(match tier {
            Tier::Written | Tier::Settled => {
                SettledEncoder::Settled(CDict::try_create(content, SETTLED_LEVEL)?)
            }
            Tier::Archived => SettledEncoder::Archived(Mutex::new(archiving(content)?)),
        })
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            SettledEncoder::Settled(dictionary) => dictionary.sizeof(),
            SettledEncoder::Archived(context) => context.lock().sizeof(),
        }
    }
}

impl Encoder for SettledEncoder {
    fn encode(&self, context: &mut Option<CCtx<'static>>, text: &[u8], frame: &mut Vec<u8>) -> Option<()> {
        match self {
            SettledEncoder::Settled(dictionary) => dictionary.encode(context, text, frame),
            SettledEncoder::Archived(context) => {
                reserve(text, frame)?;
                context.lock().compress2(frame, text).ok()?;
                Some(())
            }
        }
    }
}

/// A context whose tables have room for each position of `content`. With the tables of zstd's own levels, a dictionary
/// of more than 8 MB would not be searched whole.
fn archiving(content: &[u8]) -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    let log = usize::BITS - content.len().leading_zeros();
    let parameters = [
        CParameter::CompressionLevel(ARCHIVED_LEVEL),
        CParameter::Strategy(Strategy::ZSTD_btultra2),
        CParameter::WindowLog((log + 1).clamp(17, 27)),
        // A binary tree has two entries for each position.
        CParameter::ChainLog((log + 1).clamp(17, 28)),
        CParameter::HashLog(log.clamp(17, 25)),
        CParameter::SearchLog(ARCHIVED_SEARCH_LOG),
        // Otherwise the tables would be copied for each row of more than 8 KB.
        CParameter::ForceAttachDict(DictAttachPref::ForceAttach),
    ];
    for parameter in parameters {
        context.set_parameter(parameter).ok()?;
    }
    context.load_dictionary(content).ok()?;
    // zstd prepares the dictionary with the first text.
    context.compress2(&mut Vec::with_capacity(zstd_safe::compress_bound(1)), b"a").ok()?;
    Some(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zstd_safe::{DCtx, DDict};

    #[test]
    fn texts_of_each_tier_come_back() {
        let content: Vec<u8> =
            (0..40_000_u32).flat_map(|n| format!("row {} ", n * 7919 % 40_009).into_bytes()).collect();
        let decompress = DDict::try_create(&content).unwrap();
        for tier in [Tier::Settled, Tier::Archived] {
            let encoder = SettledEncoder::new(tier, &content).unwrap();
            assert!(encoder.bytes() > content.len());
            for text in [&content[5000..9000], &content[100_000..300_000], b"other"] {
                let (mut frame, mut read) = (Vec::new(), Vec::with_capacity(text.len()));
                encoder.encode(&mut None, text, &mut frame).unwrap();
                DCtx::create().decompress_using_ddict(&mut read, &frame, &decompress).unwrap();
                assert_eq!(read, text);
                assert!(frame.len() < 400, "{} bytes", frame.len());
            }
        }
    }
}
