//! Counts of a run, and its faults.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::check::{Fault, FaultKind};

/// Examples that are printed of each kind of fault and sequence.
const EXAMPLES_MAX: usize = 4;
const EXAMPLE_CHARS_MAX: usize = 1500;
/// With so many faults a run ends early.
const FAULTS_MAX: usize = 100;

/// What feeds and faults were counted.
#[derive(Default)]
pub(super) struct Tally {
    /// Elements that were checked, initial values and states among them.
    pub(super) elements: AtomicU64,
    pub(super) opened: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) resumed: AtomicU64,
    /// Feeds without a token that were opened again after their server had stopped.
    pub(super) begun_anew: AtomicU64,
    /// Feeds that were opened again because their initial values could not be read.
    pub(super) initial_lost: AtomicU64,
    /// Feeds that could not be opened at once.
    pub(super) retried: AtomicU64,
    pub(super) refused_writes: AtomicU64,
    pub(super) unknown_writes: AtomicU64,
    pub(super) rests: AtomicU64,
    pub(super) comparisons: AtomicU64,
    faults: Mutex<Faults>,
}

#[derive(Default)]
struct Faults {
    counts: BTreeMap<FaultKind, usize>,
    /// How many examples were printed, by the kind of the fault and the first word about the feed.
    examples: BTreeMap<(FaultKind, String), usize>,
}

impl Tally {
    pub(super) fn count(&self, counter: impl Fn(&Tally) -> &AtomicU64) {
        counter(self).fetch_add(1, Ordering::Relaxed);
    }

    /// Records a fault of a feed, or of a server.
    pub(super) fn fault(&self, fault: Fault, of: &str) {
        let mut faults = self.faults.lock();
        *faults.counts.entry(fault.kind).or_default() += 1;
        let group = (fault.kind, of.split('(').next().unwrap_or_default().to_owned());
        let printed = faults.examples.entry(group).or_default();
        if *printed < EXAMPLES_MAX {
            *printed += 1;
            let example = format!("{:?}: {}; {of}", fault.kind, fault.what);
            let example: String = example.chars().take(EXAMPLE_CHARS_MAX).collect();
            println!("feeds:   {example}");
        }
    }

    pub(super) fn faults(&self) -> usize {
        self.faults.lock().counts.values().sum()
    }

    pub(super) fn has_too_many(&self) -> bool {
        self.faults() >= FAULTS_MAX
    }

    /// Prints the counts of feeds and faults.
    pub(super) fn print(&self, changes: u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        println!(
            "feeds: {changes} changes, {} refused writes, {} of unknown result; {} elements checked; feeds: {} opened, {} closed, \
             {} resumed, {} without a token begun anew, {} begun anew because initial values were moved, {} tries to open \
             repeated; {} quiescent points, {} comparisons",
            get(&self.refused_writes),
            get(&self.unknown_writes),
            get(&self.elements),
            get(&self.opened),
            get(&self.closed),
            get(&self.resumed),
            get(&self.begun_anew),
            get(&self.initial_lost),
            get(&self.retried),
            get(&self.rests),
            get(&self.comparisons),
        );
        let faults = self.faults.lock();
        let kinds = [
            (FaultKind::Gap, "gaps"),
            (FaultKind::Repeat, "repeats"),
            (FaultKind::Refused, "refused writes seen"),
            (FaultKind::Wrong, "wrong rows"),
            (FaultKind::Skipped, "overflows"),
            (FaultKind::Fold, "feeds that differ from the table"),
            (FaultKind::Ended, "feeds that ended"),
        ];
        let of = |kind| faults.counts.get(&kind).copied().unwrap_or(0);
        let words: Vec<String> = kinds.iter().map(|(kind, name)| format!("{} {name}", of(*kind))).collect();
        println!("feeds: {}", words.join(", "));
    }
}
