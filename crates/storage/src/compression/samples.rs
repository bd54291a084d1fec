//! A random sample of the texts of a table's rows, to train a dictionary from.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The most bytes that are taken of one row.
const SAMPLE_BYTES_MAX: usize = 8 << 10;
/// The same in each process, so that equal rows make equal dictionaries.
const SEED: u64 = 0x5EED_0043;

/// The memory that all samples of a node share.
#[derive(Debug, Default)]
pub(super) struct SampleMemory {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl SampleMemory {
    pub(super) fn new(bytes_max: usize) -> Arc<SampleMemory> {
        Arc::new(SampleMemory { bytes: AtomicUsize::new(0), bytes_max: AtomicUsize::new(bytes_max) })
    }

    pub(super) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The most bytes for the sample of one table.
    pub(super) fn share(&self) -> usize {
        self.bytes_max.load(Relaxed) / 2
    }

    /// Takes `bytes`, if there is room.
    fn take(&self, bytes: usize) -> bool {
        let has_room = self.bytes() + bytes <= self.bytes_max.load(Relaxed);
        if has_room {
            self.bytes.fetch_add(bytes, Relaxed);
        }
        has_room
    }
}

/// A sample of the rows that were offered: each of them is in it with the same probability. When it is full, one half
/// of it is dropped at random, and only every second row is taken from then on.
#[derive(Debug)]
pub(super) struct Samples {
    memory: Arc<SampleMemory>,
    texts: Vec<u8>,
    lengths: Vec<usize>,
    bytes_max: usize,
    /// Of the offered rows, about one in this many is taken. A power of two.
    one_in: u64,
    random: u64,
}

impl Samples {
    /// An empty sample that grows to at most `bytes_max` bytes.
    pub(super) fn new(memory: Arc<SampleMemory>, bytes_max: usize) -> Samples {
        Samples { memory, texts: Vec::new(), lengths: Vec::new(), bytes_max, one_in: 1, random: SEED }
    }

    /// Takes `text`, or a part of it, or leaves it.
    pub(super) fn offer(&mut self, text: &[u8]) {
        let random = self.next_random();
        if random & (self.one_in - 1) != 0 {
            return;
        }
        let text = match text.len().checked_sub(SAMPLE_BYTES_MAX) {
            Some(spare @ 1..) => {
                let start = (random >> 32) as usize % (spare + 1);
                &text[start..start + SAMPLE_BYTES_MAX]
            }
            _ => text,
        };
        while self.bytes() + text.len() > self.bytes_max && !self.lengths.is_empty() {
            self.halve();
        }
        if self.memory.take(text.len()) {
            self.texts.extend_from_slice(text);
            self.lengths.push(text.len());
        }
    }

    /// Bytes of the sample.
    pub(super) fn bytes(&self) -> usize {
        self.texts.len()
    }

    /// The texts that a dictionary is trained from, one after another, with their lengths, and those with which it is
    /// judged.
    pub(super) fn divided(&self) -> DividedSamples<'_> {
        let mut divided = DividedSamples::default();
        let mut rest = &self.texts[..];
        for (index, length) in self.lengths.iter().enumerate() {
            let (text, after) = rest.split_at(*length);
            rest = after;
            if index % JUDGED_ONE_IN == JUDGED_ONE_IN - 1 {
                divided.judged.push(text);
            } else {
                divided.trained.extend_from_slice(text);
                divided.trained_lengths.push(*length);
            }
        }
        divided
    }

    /// Drops one half at random.
    fn halve(&mut self) {
        let (texts, lengths) = (std::mem::take(&mut self.texts), std::mem::take(&mut self.lengths));
        let mut rest = &texts[..];
        for length in lengths {
            let (text, after) = rest.split_at(length);
            rest = after;
            if self.next_random() & 1 == 0 {
                self.texts.extend_from_slice(text);
                self.lengths.push(length);
            }
        }
        self.memory.bytes.fetch_sub(texts.len() - self.texts.len(), Relaxed);
        self.one_in *= 2;
    }

    /// splitmix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        self.memory.bytes.fetch_sub(self.texts.len(), Relaxed);
    }
}

/// One text in this many judges.
const JUDGED_ONE_IN: usize = 8;

/// A sample for training and judging a dictionary.
#[derive(Default)]
pub(super) struct DividedSamples<'a> {
    pub trained: Vec<u8>,
    pub trained_lengths: Vec<usize>,
    pub judged: Vec<&'a [u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(samples: &Samples) -> Vec<u32> {
        samples.texts.chunks(4).map(|text| u32::from_le_bytes(text.try_into().unwrap())).collect()
    }

    #[test]
    fn every_part_of_a_long_load_is_sampled() {
        let memory = SampleMemory::new(1 << 20);
        let mut samples = Samples::new(Arc::clone(&memory), 4096);
        for number in 0..100_000_u32 {
            samples.offer(&number.to_le_bytes());
        }
        let taken = numbers(&samples);
        assert!((400..=1024).contains(&taken.len()), "{} samples", taken.len());
        for tenth in 0..10 {
            let of_tenth = taken.iter().filter(|number| **number / 10_000 == tenth).count();
            assert!(of_tenth > taken.len() / 20, "{of_tenth} of {} in part {tenth}", taken.len());
        }
        assert_eq!(memory.bytes(), samples.bytes());
        let mut again = Samples::new(Arc::clone(&memory), 4096);
        (0..100_000_u32).for_each(|number| again.offer(&number.to_le_bytes()));
        assert_eq!(numbers(&again), taken);
        drop((samples, again));
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn shared_memory_and_long_rows_are_bounded() {
        let memory = SampleMemory::new(10_000);
        let mut samples = Samples::new(Arc::clone(&memory), 1 << 20);
        for _ in 0..100 {
            samples.offer(&[7; 100_000]);
        }
        assert_eq!((samples.bytes(), memory.bytes()), (SAMPLE_BYTES_MAX, SAMPLE_BYTES_MAX));
        let divided = samples.divided();
        assert_eq!((divided.trained_lengths, divided.judged.len()), (vec![SAMPLE_BYTES_MAX], 0));
    }
}
