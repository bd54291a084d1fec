//! Trains a dictionary from a sample of rows, and judges it.

use zstd_safe::{CDict, DCtx, DDict};

use super::compressed_row::{Encoder, frame_bytes};
use super::dictionary::Tier;
use super::policy::SHARE_MAX;
use super::samples::{DividedSamples, Samples};
use super::settled_encoder::SettledEncoder;

/// The level of zstd for rows that are being written.
pub(super) const WRITE_LEVEL: i32 = 3;
/// A dictionary takes one in this many bytes of its sample.
const SAMPLE_FACTOR: usize = 8;
/// The smallest and the largest dictionary for rows that are being written.
const DICTIONARY_BYTES_MIN: usize = 1 << 10;
const DICTIONARY_BYTES_MAX: usize = 110 << 10;
/// The largest for settled rows.
const SETTLED_BYTES_MAX: usize = 1 << 20;
/// The part of an archive's dictionary that is trained from this many bytes of the sample. The rest is the sample itself.
const ARCHIVED_TRAINED_BYTES: usize = 4 << 20;
/// The statistics at the beginning of a dictionary in zstd's format are no longer than this.
const STATISTICS_BYTES_MAX: usize = 256;
/// Another dictionary replaces the present one if rows take at most this share of their bytes with the present one.
const BETTER_SHARE_MAX: f64 = 0.97;
/// The first bytes of a dictionary in zstd's format. Its number follows.
const DICTIONARY_MAGIC: [u8; 4] = [0x37, 0xA4, 0x30, 0xEC];

/// A dictionary that makes the sampled rows small enough, and smaller than `current` does. `None` if there is none.
///
/// Takes some tenths of a second.
pub(super) fn train(samples: &Samples, current: Option<&CDict<'_>>) -> Option<Vec<u8>> {
    let divided = samples.divided();
    let content = trained_content(&divided.trained, &divided.trained_lengths, DICTIONARY_BYTES_MAX)?;
    let trained = CDict::try_create(&content, WRITE_LEVEL)?;
    let current = current.map(|current| current as &dyn Encoder);
    is_better(&divided, &trained, current, &content).then_some(content)
}

/// A dictionary for settled rows, as [`train`], with its encoder.
///
/// Takes a second or two; that of an archive up to some minutes.
pub(super) fn train_settled(
    samples: &Samples,
    tier: Tier,
    current: Option<&dyn Encoder>,
) -> Option<(Vec<u8>, SettledEncoder)> {
    let divided = samples.divided();
    let content = match tier {
        Tier::Written | Tier::Settled => {
            trained_content(&divided.trained, &divided.trained_lengths, SETTLED_BYTES_MAX)?
        }
        Tier::Archived => archive_content(&divided)?,
    };
    let encoder = SettledEncoder::new(tier, &content)?;
    is_better(&divided, &encoder, current, &content).then_some((content, encoder))
}

fn trained_content(texts: &[u8], lengths: &[usize], bytes_max: usize) -> Option<Vec<u8>> {
    let bytes = (texts.len() / SAMPLE_FACTOR).clamp(DICTIONARY_BYTES_MIN, bytes_max);
    let mut content = Vec::with_capacity(bytes);
    zstd_safe::train_from_buffer(&mut content, texts, lengths).ok()?;
    drop_zstd_number(&mut content);
    Some(content)
}

/// The whole sample, with the statistics of a dictionary that is trained from its end.
fn archive_content(divided: &DividedSamples<'_>) -> Option<Vec<u8>> {
    let (mut start, mut first) = (divided.trained.len(), divided.trained_lengths.len());
    while let Some(length) = first.checked_sub(1).and_then(|last| divided.trained_lengths.get(last))
        && divided.trained.len() - start + length <= ARCHIVED_TRAINED_BYTES
    {
        (start, first) = (start - length, first - 1);
    }
    let lengths = &divided.trained_lengths[first..];
    let trained = trained_content(&divided.trained[start..], lengths, DICTIONARY_BYTES_MAX)?;
    // Text may be inserted anywhere after the statistics.
    let (statistics, rest) = trained.split_at_checked(STATISTICS_BYTES_MAX)?;
    Some([statistics, &divided.trained, rest].concat())
}

/// Whether the judged texts become small enough, and smaller than with `current`, and come back.
fn is_better(
    divided: &DividedSamples<'_>,
    encoder: &dyn Encoder,
    current: Option<&dyn Encoder>,
    content: &[u8],
) -> bool {
    let judged = &divided.judged;
    let judged_bytes = judged.iter().map(|text| text.len()).sum::<usize>() as f64;
    let Some(bytes) = compressed_bytes(judged, encoder) else { return false };
    if judged_bytes == 0.0 || bytes > judged_bytes * SHARE_MAX {
        return false;
    }
    let with_current = current.map(|current| compressed_bytes(judged, current));
    // A dictionary that cannot be used is no better.
    let current_bytes = with_current.map_or(f64::INFINITY, |bytes| bytes.unwrap_or(f64::INFINITY));
    bytes <= current_bytes * BETTER_SHARE_MAX && texts_come_back(judged, encoder, content)
}

/// zstd would write the number of the dictionary, four random bytes, into each row. A row has our own.
fn drop_zstd_number(content: &mut [u8]) {
    if let Some((DICTIONARY_MAGIC, rest)) =
        content.split_first_chunk_mut().map(|(magic, rest)| (*magic, rest))
        && let Some(number) = rest.first_chunk_mut::<4>()
    {
        *number = [0; 4];
    }
}

fn compressed_bytes(texts: &[&[u8]], encoder: &dyn Encoder) -> Option<f64> {
    let sizes = texts.iter().map(|text| frame_bytes(text, encoder));
    sizes.sum::<Option<usize>>().map(|bytes| bytes as f64)
}

/// Whether every text can be read again, before any row depends on the dictionary.
fn texts_come_back(texts: &[&[u8]], encoder: &dyn Encoder, content: &[u8]) -> bool {
    let (Some(mut context), Some(decompress)) = (DCtx::try_create(), DDict::try_create(content)) else {
        return false;
    };
    let (mut compressing, mut frame) = (None, Vec::new());
    texts.iter().all(|text| {
        let mut read = Vec::with_capacity(text.len());
        encoder.encode(&mut compressing, text, &mut frame).is_some()
            && context.decompress_using_ddict(&mut read, &frame, &decompress).is_ok()
            && read == *text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::samples::SampleMemory;

    fn samples(text: impl Fn(u64) -> String) -> Samples {
        let mut samples = Samples::new(SampleMemory::new(1 << 20), 1 << 20);
        (0..500).for_each(|number| samples.offer(text(number).as_bytes()));
        samples
    }

    /// splitmix64.
    fn random(number: u64) -> u64 {
        let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 29)
    }

    fn similar(number: u64) -> String {
        let words = ["storage", "engine", "dictionary", "compression", "table", "replica", "shard", "leader"];
        let word = |at: u64| words[random(number * 64 + at) as usize % words.len()];
        let text: Vec<&str> = (0..40).map(word).collect();
        format!(r#"{{"id":{number},"title":"Article {}","text":"{}"}}"#, random(number), text.join(" "))
    }

    /// As YCSB made them first: ten fields of a hundred characters, of which there are 32.
    fn unlike(number: u64) -> String {
        let character = |at: u64| char::from(b' ' + (random(number * 1000 + at) % 32) as u8);
        let field = |field: u64| (0..100).map(|at| character(field * 100 + at)).collect::<String>();
        let fields: Vec<String> = (0..10)
            .map(|number| format!(r#""field{number}":"{}""#, field(number).replace('"', "\\\"")))
            .collect();
        format!("{{{}}}", fields.join(","))
    }

    #[test]
    fn texts_that_are_alike_get_a_dictionary_and_the_same_each_time() {
        let trained = train(&samples(similar), None).expect("a dictionary");
        assert_eq!(trained[..8], [&DICTIONARY_MAGIC[..], &[0; 4]].concat());
        assert_eq!(train(&samples(similar), None), Some(trained.clone()));
        let current = CDict::try_create(&trained, WRITE_LEVEL).unwrap();
        assert_eq!(train(&samples(similar), Some(&current)), None, "no better than the same");
    }

    #[test]
    fn random_texts_get_none() {
        assert_eq!(train(&samples(unlike), None), None);
        assert_eq!(train(&Samples::new(SampleMemory::new(1 << 20), 1 << 20), None), None);
    }
}
