//! What the clients met: errors by kind, wrong answers, and how long writes rested at each change.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::options::Options;
use crate::workload::quantile;

const WORDS_MAX: usize = 200;
const EXAMPLES_MAX: usize = 5;

/// Everything that is counted.
pub(super) struct Tally(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// The longest write that was under way before the first change, and during each one until the next
    /// began.
    rests: Vec<Duration>,
    late: usize,
    writes: Vec<Duration>,
    reads: u64,
    /// Errors that clients saw.
    errors: BTreeMap<String, u64>,
    /// Answers that cannot be.
    wrong: BTreeMap<String, u64>,
    examples: Vec<String>,
    /// Changes that were put off.
    refused: BTreeMap<String, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally(Mutex::new(Counts { rests: vec![Duration::ZERO], ..Counts::default() }))
    }
}

impl Tally {
    /// The next change begins.
    pub(super) fn begin_change(&self) {
        self.0.lock().rests.push(Duration::ZERO);
    }

    /// All replicas are ready after a change; `is_late` if the next one should have begun before.
    pub(super) fn ended(&self, is_late: bool) {
        self.0.lock().late += usize::from(is_late);
    }

    /// How many changes have begun.
    pub(super) fn change(&self) -> usize {
        self.0.lock().rests.len() - 1
    }

    /// The longest write so far since the last change began.
    pub(super) fn paused(&self) -> Duration {
        self.0.lock().rests.last().copied().unwrap_or_default()
    }

    /// A write that was begun after `change` changes was answered, or given up, after `took`.
    pub(super) fn wrote(&self, change: usize, took: Duration) {
        let mut counts = self.0.lock();
        let longest = counts.rests.iter_mut().skip(change);
        longest.for_each(|longest| *longest = took.max(*longest));
        counts.writes.push(took);
    }

    pub(super) fn read(&self) {
        self.0.lock().reads += 1;
    }

    /// A client was answered with an error.
    pub(super) fn failed(&self, what: &str, answer: &Value) {
        self.failed_in_words(what, &in_words(answer));
    }

    pub(super) fn failed_in_words(&self, what: &str, words: &str) {
        let words: String = words.chars().take(WORDS_MAX).collect();
        count(&mut self.0.lock().errors, format!("{what}: {words}"));
    }

    /// A client was not answered, or lost its connection.
    pub(super) fn unanswered(&self, why: &str) {
        count(&mut self.0.lock().errors, format!("no answer: {why}"));
    }

    /// A client was answered with something that cannot be.
    pub(super) fn wrong(&self, what: &str, example: &str) {
        let mut counts = self.0.lock();
        count(&mut counts.wrong, what.to_owned());
        if counts.examples.len() < EXAMPLES_MAX {
            let example: String = example.chars().take(WORDS_MAX).collect();
            counts.examples.push(format!("{what}: {example}"));
        }
    }

    /// A change was refused, and is asked for again.
    pub(super) fn refused(&self, answer: &Value) {
        count(&mut self.0.lock().refused, in_words(answer));
    }

    /// Says what was counted; whether the bars were kept.
    pub(super) fn report(&self, options: &Options) -> bool {
        let mut counts = self.0.lock();
        let Counts { rests, late, writes, reads, errors, wrong, examples, refused } = &mut *counts;
        let bar = Duration::from_millis(options.pause_ms);
        let calm = rests.remove(0);
        rests.sort_unstable();
        writes.sort_unstable();
        let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
        println!(
            "reshard: {} changes, {late} of them not complete when the next was due; {} writes, {reads} reads; {} errors, {} wrong answers",
            rests.len(),
            writes.len(),
            sum(errors),
            sum(wrong),
        );
        let each = [("error", &*errors), ("wrong answer", &*wrong), ("put off", &*refused)];
        for (what, counts) in each {
            counts.iter().for_each(|(words, times)| println!("reshard:   {what}, {times} times: {words}"));
        }
        examples.iter().for_each(|example| println!("reshard:   {example}"));
        let pause = quantile(rests, 0.99);
        println!(
            "reshard: the longest write at a change: p50 {:.2?}, p99 {pause:.2?}, max {:.2?} (bar: p99 {bar:.2?}); \
             before any change {calm:.2?}; any write: p50 {:.2?}, p99 {:.2?}",
            quantile(rests, 0.5),
            quantile(rests, 1.0),
            quantile(writes, 0.5),
            quantile(writes, 0.99),
        );
        errors.is_empty() && wrong.is_empty() && !rests.is_empty() && pause <= bar
    }
}

fn count(counts: &mut BTreeMap<String, u64>, words: String) {
    *counts.entry(words).or_default() += 1;
}

/// The kind of an error and its message, or what else an answer says.
fn in_words(answer: &Value) -> String {
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
    format!("{kind}: {message}").chars().take(WORDS_MAX).collect()
}
