//! Trains a dictionary from a sample of rows, and judges it.

use zstd_safe::{CDict, DCtx, DDict};

use super::compressed_row::frame_bytes;
use super::policy::SHARE_MAX;
use super::samples::Samples;

/// The level of zstd for rows that are being written.
pub(super) const WRITE_LEVEL: i32 = 3;
/// A dictionary takes one in this many bytes of its sample.
const SAMPLE_FACTOR: usize = 8;
/// The smallest and the largest dictionary.
const DICTIONARY_BYTES_MIN: usize = 1 << 10;
const DICTIONARY_BYTES_MAX: usize = 110 << 10;
/// Another dictionary replaces the present one if rows take at most this share of their bytes with the present one.
const BETTER_SHARE_MAX: f64 = 0.97;
/// The first bytes of a dictionary in zstd's format. Its number follows.
const DICTIONARY_MAGIC: [u8; 4] = [0x37, 0xA4, 0x30, 0xEC];

/// A dictionary that makes the sampled rows small enough, and smaller than `current` does. `None` if there is none.
///
/// Takes some tenths of a second.
pub(super) fn train(samples: &Samples, current: Option<&CDict<'_>>) -> Option<Vec<u8>> {
    let divided = samples.divided();
    let bytes_max = (samples.bytes() / SAMPLE_FACTOR).clamp(DICTIONARY_BYTES_MIN, DICTIONARY_BYTES_MAX);
    let mut content = Vec::with_capacity(bytes_max);
    zstd_safe::train_from_buffer(&mut content, &divided.trained, &divided.trained_lengths).ok()?;
    drop_zstd_number(&mut content);
    let trained = CDict::try_create(&content, WRITE_LEVEL)?;
    let judged_bytes = divided.judged.iter().map(|text| text.len()).sum::<usize>() as f64;
    let with_trained = compressed_bytes(&divided.judged, &trained)?;
    if judged_bytes == 0.0 || with_trained > judged_bytes * SHARE_MAX {
        return None;
    }
    if let Some(current) = current
        && with_trained > compressed_bytes(&divided.judged, current)? * BETTER_SHARE_MAX
    {
        return None;
    }
    texts_come_back(&divided.judged, &trained, &content).then_some(content)
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

fn compressed_bytes(texts: &[&[u8]], dictionary: &CDict<'_>) -> Option<f64> {
    let sizes = texts.iter().map(|text| frame_bytes(text, dictionary));
    sizes.sum::<Option<usize>>().map(|bytes| bytes as f64)
}

/// Whether every text can be read again, before any row depends on the dictionary.
fn texts_come_back(texts: &[&[u8]], compress: &CDict<'_>, content: &[u8]) -> bool {
    let (Some(mut context), Some(decompress)) = (DCtx::try_create(), DDict::try_create(content)) else {
        return false;
    };
    let Some(mut compressing) = zstd_safe::CCtx::try_create() else { return false };
    texts.iter().all(|text| {
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(text.len()));
        let mut read = Vec::with_capacity(text.len());
        compressing.compress_using_cdict(&mut frame, text, compress).is_ok()
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
