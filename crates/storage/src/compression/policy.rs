//! Decides for one table when rows are compressed, and when a dictionary is trained. No threads and no engine.

use std::sync::Arc;

use super::dictionary::DictionaryNumber;
use super::samples::{SampleMemory, Samples};

/// The state of one table's compression since the process started.
///
/// The first dictionary is trained from the first rows; another one whenever eight times as much has been written, and
/// when rows have become larger than with the present one. Rows that do not shrink with the present dictionary are not
/// compressed for a while; without a dictionary none is.
pub(super) struct Policy {
    memory: Arc<SampleMemory>,
    /// The table is sampled until this many bytes were written. Other sizes are derived from it.
    first_training_bytes: u64,
    /// Bytes of all rows written so far.
    seen_bytes: u64,
    current: Option<DictionaryNumber>,
    /// The highest number of a dictionary of the table, in use or not.
    newest: DictionaryNumber,
    phase: Phase,
    /// Rows are stored as they are until this many bytes were written.
    resting_until: u64,
    window: Window,
    /// The share that the rows of a whole window took first with the present dictionary.
    usual_share: Option<f64>,
    totals: Totals,
}

/// Bytes of rows that were compressed, or were to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub rows: u64,
    pub row_bytes: u64,
    pub stored_bytes: u64,
}

enum Phase {
    /// No sample is taken until this many bytes were written.
    Waiting { until: u64 },
    /// Rows are sampled until this many bytes were written.
    Sampling { samples: Samples, until: u64 },
    /// A dictionary is being trained.
    Training,
}

/// Rows that were compressed since the last judgement.
#[derive(Clone, Copy, Default)]
struct Window {
    row_bytes: u64,
    stored_bytes: u64,
}

/// A dictionary is used only if rows take at most this share of their bytes with it. Random text takes more: as YCSB
/// makes it, six or seven tenths, since it has only 32 or 64 different characters.
pub(super) const SHARE_MAX: f64 = 0.55;
/// Rows that take a larger share than this are not compressed for a while.
const RESTING_SHARE: f64 = 0.65;
/// A new dictionary is wanted when rows take this many times their usual share.
const DRIFT: f64 = 1.1;
/// A window has this many times the bytes of the first training.
const WINDOW_FACTOR: u64 = 16;
/// Of this many windows of rows that do not shrink, one is compressed, to notice when they do again.
const TRIED_ONE_IN: u64 = 64;
/// The most bytes of a sample.
const SAMPLE_BYTES_MAX: usize = 4 << 20;
/// No dictionary is trained from less than one in this many bytes of the first training.
const SAMPLE_SHARE_MIN: u64 = 4;

impl Policy {
    /// The policy of a table that has a dictionary `current` for rows that are written, if any, and no dictionary with a
    /// higher number than `newest`.
    pub(super) fn new(
        memory: Arc<SampleMemory>,
        first_training_bytes: u64,
        current: Option<DictionaryNumber>,
        newest: DictionaryNumber,
    ) -> Policy {
        let first_training_bytes = first_training_bytes.max(1);
        let mut policy = Policy {
            memory,
            first_training_bytes,
            seen_bytes: 0,
            current,
            newest,
            phase: Phase::Waiting { until: WINDOW_FACTOR * WINDOW_FACTOR * first_training_bytes / 4 },
            resting_until: 0,
            window: Window::default(),
            usual_share: None,
            totals: Totals::default(),
        };
        if current.is_none() {
            policy.sample_until(first_training_bytes);
        }
        policy
    }

    /// Notes that a row of `row_bytes` bytes is being written. Returns the dictionary to compress it with, if any.
    pub(super) fn begin_row(&mut self, row_bytes: usize) -> Option<DictionaryNumber> {
        self.seen_bytes += row_bytes as u64;
        if let Phase::Waiting { until } = self.phase
            && self.seen_bytes >= until
        {
            self.sample_until(2 * until);
        }
        self.current.filter(|_| self.seen_bytes >= self.resting_until)
    }

    /// The sample that the row's text is to be offered to, if any.
    pub(super) fn samples(&mut self) -> Option<&mut Samples> {
        match &mut self.phase {
            Phase::Sampling { samples, .. } => Some(samples),
            Phase::Waiting { .. } | Phase::Training => None,
        }
    }

    /// Notes that a row of `row_bytes` bytes took `compressed_bytes` when it was compressed, and how it is stored.
    pub(super) fn end_row(&mut self, row_bytes: usize, compressed_bytes: usize, is_compressed: bool) {
        self.window.row_bytes += row_bytes as u64;
        self.window.stored_bytes += compressed_bytes as u64;
        self.totals.rows += 1;
        self.totals.row_bytes += row_bytes as u64;
        self.totals.stored_bytes += if is_compressed { compressed_bytes } else { row_bytes } as u64;
        if self.window.row_bytes >= self.window_bytes() {
            self.judge_window();
        }
    }

    fn judge_window(&mut self) {
        let Window { row_bytes, stored_bytes } = std::mem::take(&mut self.window);
        let share = stored_bytes as f64 / row_bytes as f64;
        if share > RESTING_SHARE {
            self.resting_until = self.seen_bytes + (TRIED_ONE_IN - 1) * self.window_bytes();
        }
        let usual = *self.usual_share.get_or_insert(share);
        if share > usual * DRIFT && matches!(self.phase, Phase::Waiting { .. }) {
            self.sample_until(self.seen_bytes + 2 * self.window_bytes());
        }
    }

    /// The sample to train a dictionary from, once it is complete. [`Policy::end_training`] must be called then.
    pub(super) fn take_samples(&mut self) -> Option<Samples> {
        let Phase::Sampling { samples, until } = &mut self.phase else { return None };
        if self.seen_bytes < *until {
            return None;
        }
        if (samples.bytes() as u64) < self.first_training_bytes / SAMPLE_SHARE_MIN {
            // Other tables have the memory for samples.
            *until = 2 * self.seen_bytes;
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Training) {
            Phase::Sampling { samples, .. } => Some(samples),
            Phase::Waiting { .. } | Phase::Training => None,
        }
    }

    /// Ends a training: `adopted` is the new dictionary, if it was better.
    pub(super) fn end_training(&mut self, adopted: Option<DictionaryNumber>) {
        self.phase = Phase::Waiting { until: 4 * self.seen_bytes.max(self.first_training_bytes) };
        self.usual_share = None;
        self.window = Window::default();
        if adopted.is_some() {
            self.current = adopted;
            self.resting_until = 0;
        }
    }

    /// The present dictionary cannot be read: no row is compressed with it.
    pub(super) fn lose(&mut self, number: DictionaryNumber) {
        if self.current == Some(number) {
            self.current = None;
            self.sample_until(self.seen_bytes + self.first_training_bytes);
        }
    }

    /// The dictionary that new rows are compressed with.
    pub(super) fn current(&self) -> Option<DictionaryNumber> {
        self.current
    }

    /// The number for another dictionary, which no other has or gets; `None` if no number is left.
    pub(super) fn take_number(&mut self) -> Option<DictionaryNumber> {
        self.newest = DictionaryNumber(self.newest.0.checked_add(1)?);
        Some(self.newest)
    }

    /// Bytes of all rows written so far.
    pub(super) fn seen_bytes(&self) -> u64 {
        self.seen_bytes
    }

    /// Whether a dictionary was trained and did not make the rows small enough.
    pub(super) fn has_failed(&self) -> bool {
        self.current.is_none() && matches!(self.phase, Phase::Waiting { .. })
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    fn sample_until(&mut self, until: u64) {
        let bytes_max = SAMPLE_BYTES_MAX.min(self.memory.share());
        let samples = Samples::new(Arc::clone(&self.memory), bytes_max);
        self.phase = Phase::Sampling { samples, until };
    }

    fn window_bytes(&self) -> u64 {
        WINDOW_FACTOR * self.first_training_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(newest: Option<u32>) -> Policy {
        let newest = newest.map(DictionaryNumber);
        Policy::new(SampleMemory::new(1 << 20), 1000, newest, newest.unwrap_or(DictionaryNumber(0)))
    }

    /// Writes rows of 100 bytes that take `compressed` bytes each, until a sample is complete or `rows` are written.
    /// Returns how many were compressed, and the sample.
    fn write(policy: &mut Policy, rows: usize, compressed: usize) -> (usize, Option<Samples>) {
        let mut tried = 0;
        for _ in 0..rows {
            if policy.begin_row(100).is_some() {
                tried += 1;
                policy.end_row(100, compressed, compressed < 100);
            }
            if let Some(samples) = policy.samples() {
                samples.offer(&[1; 90]);
            }
            if let Some(samples) = policy.take_samples() {
                return (tried, Some(samples));
            }
        }
        (tried, None)
    }

    #[test]
    fn dictionaries_are_trained_at_growing_sizes() {
        let mut policy = policy(None);
        let mut trained_at = Vec::new();
        for number in 1..=3 {
            let (_, samples) = write(&mut policy, 1_000_000, 30);
            assert!(samples.is_some_and(|samples| samples.bytes() > 0));
            trained_at.push(policy.seen_bytes);
            let taken = policy.take_number();
            policy.end_training(taken);
            assert_eq!(policy.current(), Some(DictionaryNumber(number)));
        }
        assert_eq!(trained_at, [1000, 8000, 64_000]);
    }

    #[test]
    fn without_a_better_dictionary_nothing_is_compressed() {
        let mut policy = policy(None);
        assert!(write(&mut policy, 10, 30).1.is_some());
        policy.end_training(None);
        let (tried, samples) = write(&mut policy, 1_000_000, 30);
        assert_eq!((tried, policy.seen_bytes), (0, 8000));
        assert!(samples.is_some());
    }

    #[test]
    fn rows_that_stop_shrinking_are_rarely_tried() {
        let mut policy = policy(Some(4));
        assert_eq!(write(&mut policy, 200, 30).0, 200);
        let rows = 200_000;
        let mut tried = 0;
        let mut left = rows;
        while left > 0 {
            let before = policy.seen_bytes;
            let (some, samples) = write(&mut policy, left, 90);
            (tried, left) = (tried + some, left - (policy.seen_bytes - before) as usize / 100);
            if samples.is_some() {
                policy.end_training(None);
            }
        }
        assert!(tried < rows / 40, "{tried} of {rows}");
        assert_eq!(policy.current(), Some(DictionaryNumber(4)));
    }

    #[test]
    fn a_dictionary_that_no_longer_fits_is_replaced() {
        let mut policy = policy(Some(7));
        assert!(write(&mut policy, 400, 30).1.is_none());
        let (_, samples) = write(&mut policy, 600, 50);
        assert!(samples.is_some(), "retrained after {} bytes", policy.seen_bytes);
        let taken = policy.take_number();
        policy.end_training(taken);
        assert_eq!(policy.current(), Some(DictionaryNumber(8)));
    }

    #[test]
    fn a_lost_dictionary_is_replaced_under_another_number() {
        let mut policy = policy(Some(7));
        policy.lose(DictionaryNumber(6));
        assert_eq!(policy.current(), Some(DictionaryNumber(7)));
        policy.lose(DictionaryNumber(7));
        assert_eq!((policy.current(), policy.take_number()), (None, Some(DictionaryNumber(8))));
        assert!(write(&mut policy, 10, 30).1.is_some());
    }
}
