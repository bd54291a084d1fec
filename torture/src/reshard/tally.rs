//! Results of the clients: errors by kind, wrong results, and the longest write at each change.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::options::Options;
use crate::workload::quantile;

const DESCRIPTION_CHARS_MAX: usize = 200;
const EXAMPLES_MAX: usize = 5;

pub(super) struct Tally(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// The longest write before the first change, and from each change to the next.
    longest_writes: Vec<Duration>,
    late: usize,
    writes: Vec<Duration>,
    reads: u64,
    /// Errors that clients received.
    errors: BTreeMap<String, u64>,
    /// Wrong results.
    wrong: BTreeMap<String, u64>,
    examples: Vec<String>,
    /// Changes that were refused and tried again.
    refused: BTreeMap<String, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally(Mutex::new(Counts { longest_writes: vec![Duration::ZERO], ..Counts::default() }))
    }
}

impl Tally {
    pub(super) fn begin_change(&self) {
        self.0.lock().longest_writes.push(Duration::ZERO);
    }

    /// All replicas are ready after a change; `is_late` if the next one was due before.
    pub(super) fn ended(&self, is_late: bool) {
        self.0.lock().late += usize::from(is_late);
    }

    /// The number of changes begun.
    pub(super) fn change(&self) -> usize {
        self.0.lock().longest_writes.len() - 1
    }

    /// The longest write since the last change began.
    pub(super) fn longest_write(&self) -> Duration {
        self.0.lock().longest_writes.last().copied().unwrap_or_default()
    }

    /// Counts a write that began when `change` changes had been made, and took `took`, with or without a response.
    pub(super) fn wrote(&self, change: usize, took: Duration) {
        let mut counts = self.0.lock();
        let longest = counts.longest_writes.iter_mut().skip(change);
        longest.for_each(|longest| *longest = took.max(*longest));
        counts.writes.push(took);
    }

    pub(super) fn read(&self) {
        self.0.lock().reads += 1;
    }

    /// A client received an error.
    pub(super) fn failed(&self, what: &str, answer: &Value) {
        self.failed_with(what, &description(answer));
    }

    pub(super) fn failed_with(&self, what: &str, words: &str) {
        let words: String = words.chars().take(DESCRIPTION_CHARS_MAX).collect();
        count(&mut self.0.lock().errors, format!("{what}: {words}"));
    }

    /// A client received no response or lost its connection.
    pub(super) fn unanswered(&self, why: &str) {
        count(&mut self.0.lock().errors, format!("no answer: {why}"));
    }

    /// A client received a wrong result.
    pub(super) fn wrong(&self, what: &str, example: &str) {
        let mut counts = self.0.lock();
        count(&mut counts.wrong, what.to_owned());
        if counts.examples.len() < EXAMPLES_MAX {
            let example: String = example.chars().take(DESCRIPTION_CHARS_MAX).collect();
            counts.examples.push(format!("{what}: {example}"));
        }
    }

    /// A change was refused and will be tried again.
    pub(super) fn refused(&self, answer: &Value) {
        count(&mut self.0.lock().refused, description(answer));
    }

    /// Prints the counts; returns whether the bars were met.
    pub(super) fn report(&self, options: &Options) -> bool {
        let mut counts = self.0.lock();
        let Counts { longest_writes, late, writes, reads, errors, wrong, examples, refused } = &mut *counts;
        let bar = Duration::from_millis(options.pause_ms);
        let before = longest_writes.remove(0);
        longest_writes.sort_unstable();
        writes.sort_unstable();
        let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
        println!(
            "reshard: {} changes, {late} of them not complete when the next was due; {} writes, {reads} reads; {} errors, {} wrong results",
            longest_writes.len(),
            writes.len(),
            sum(errors),
            sum(wrong),
        );
        let each = [("error", &*errors), ("wrong result", &*wrong), ("refused", &*refused)];
        for (what, counts) in each {
            counts.iter().for_each(|(words, times)| println!("reshard:   {what}, {times} times: {words}"));
        }
        examples.iter().for_each(|example| println!("reshard:   {example}"));
        let pause = quantile(longest_writes, 0.99);
        println!(
            "reshard: the longest write at a change: p50 {:.2?}, p99 {pause:.2?}, max {:.2?} (bar: p99 {bar:.2?}); \
             before any change {before:.2?}; any write: p50 {:.2?}, p99 {:.2?}",
            quantile(longest_writes, 0.5),
            quantile(longest_writes, 1.0),
            quantile(writes, 0.5),
            quantile(writes, 0.99),
        );
        errors.is_empty() && wrong.is_empty() && !longest_writes.is_empty() && pause <= bar
    }
}

fn count(counts: &mut BTreeMap<String, u64>, words: String) {
    *counts.entry(words).or_default() += 1;
}

/// The kind of an error and its message, or the whole result.
fn description(answer: &Value) -> String {
    let kind = match answer["e"].as_u64() {
        Some(4_100_000) => "failed",
        Some(4_200_000) => "indeterminate",
        Some(_) => "other error",
        None => "no error",
    };
    let message = match &answer["r"][0] {
        Value::String(message) => message.clone(),
        Value::Object(result) if result.contains_key("first_error") => result["first_error"].to_string(),
        other => other.to_string(),
    };
    format!("{kind}: {message}").chars().take(DESCRIPTION_CHARS_MAX).collect()
}
