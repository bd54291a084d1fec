//! What a query does, written down while it does it: for `explain`, and for `profile`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datum::{Datum, Object, Text};
use parking_lot::Mutex;
use reql::{Op, Term};
use shard::{Bounds, Side};

/// The notes of one query. Shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The rows that were looked at, by whoever did.
    pub looked_at: Arc<AtomicU64>,
    notes: Mutex<Notes>,
}

/// So many different reads are told one by one.
const READS_MAX: usize = 100;
/// So many pieces of one read.
const SCAN_RANGES_MAX: usize = 1_000;

/// What was done, in the order it began. A query that reads once for every item of something is told in a few
/// words all the same.
#[derive(Debug, Default)]
struct Notes {
    told: Vec<Note>,
    /// Where the latest read is told, if it is.
    latest: Option<usize>,
    /// Reads that are not told.
    left_out: u64,
}

/// Something that was done.
#[derive(Clone, Debug)]
enum Note {
    /// Rows were read.
    ReadNote(ReadNote),
    /// Rows or items came to the node that runs the query, where this was done with them.
    Top(String),
}

/// Rows of a table, and what was done where they are.
#[derive(Clone, Debug)]
pub(crate) struct ReadNote {
    /// The table, with its database.
    pub table: String,
    /// What the rows are found by.
    pub by: String,
    /// The order they come in.
    pub order: &'static str,
    /// How many shards they lie in.
    pub shards: usize,
    /// How many of those other servers read.
    pub elsewhere: usize,
    /// What is done where the rows are.
    pub on_the_rows: Vec<String>,
    /// How long it took, once it is done.
    pub took: Option<Duration>,
    /// How long pieces of it took that went side by side, and how many rows they had.
    pub scan_ranges: Vec<(Duration, u64)>,
    /// How often the same was read.
    pub times: u64,
}

impl ReadNote {
    /// Rows under keys that were named, in so many shards, of which so many are elsewhere.
    pub fn of_keys(table: String, keys: usize, (shards, elsewhere): (usize, usize)) -> ReadNote {
        let by = format!("{keys} primary key{}", if keys == 1 { "" } else { "s" });
        let (order, on_the_rows, scan_ranges) = ("any", Vec::new(), Vec::new());
        ReadNote { table, by, order, shards, elsewhere, on_the_rows, took: None, scan_ranges, times: 1 }
    }

    /// Whether somebody who is told of both could not tell them apart.
    fn is_like(&self, other: &ReadNote) -> bool {
        (&self.table, &self.by, self.order, self.shards, self.elsewhere, &self.on_the_rows)
            == (&other.table, &other.by, other.order, other.shards, other.elsewhere, &other.on_the_rows)
    }
}

/// The values that are looked for, as a person writes them.
pub(crate) fn show_values(show_values: &[(Bounds, u32)]) -> String {
    let shown = show_values.iter().take(3).map(|(bounds, _)| {
        if bounds.left == bounds.right {
            return bounds.left.truncated();
        }
        let left = if bounds.left_side == Side::Closed { '[' } else { '(' };
        let right = if bounds.right_side == Side::Closed { ']' } else { ')' };
        format!("{left}{}, {}{right}", bounds.left.truncated(), bounds.right.truncated())
    });
    let mut shown: Vec<String> = shown.collect();
    if show_values.len() > shown.len() {
        shown.push(format!("and {} more", show_values.len() - shown.len()));
    }
    shown.join(", ")
}

impl Trace {
    /// Rows are read; the number of the note, to say more of it later, if there is one.
    pub fn read(&self, read: ReadNote) -> Option<usize> {
        let mut notes = self.notes.lock();
        let mut reads = 0;
        let known = notes.told.iter_mut().position(|note| match note {
            Note::ReadNote(known) if known.is_like(&read) => {
                known.times += 1;
                true
            }
            Note::ReadNote(_) => {
                reads += 1;
                false
            }
            Note::Top(_) => false,
        });
        notes.latest = known.or_else(|| (reads < READS_MAX).then_some(notes.told.len()));
        match (known, notes.latest) {
            (Some(_), _) => {}
            (None, Some(_)) => notes.told.push(Note::ReadNote(read)),
            (None, None) => notes.left_out += 1,
        }
        notes.latest
    }

    /// One of the pieces of the latest read is done.
    pub fn scan_range(&self, took: Duration, rows: u64) {
        let mut notes = self.notes.lock();
        let latest = notes.latest;
        if let Some(Note::ReadNote(read)) = latest.and_then(|latest| notes.told.get_mut(latest))
            && read.scan_ranges.len() < SCAN_RANGES_MAX
        {
            read.scan_ranges.push((took, rows));
        }
    }

    /// A read is done.
    pub fn done(&self, note: Option<usize>, took: Duration) {
        let mut notes = self.notes.lock();
        if let Some(Note::ReadNote(read)) = note.and_then(|note| notes.told.get_mut(note)) {
            *read.took.get_or_insert_default() += took;
        }
    }

    /// Something is done with items by the node that runs the query.
    pub fn top(&self, what: impl Into<String>) {
        let what = what.into();
        let mut notes = self.notes.lock();
        // What is done again for every item of something is told once.
        if !notes.told.iter().any(|note| matches!(note, Note::Top(known) if *known == what)) {
            notes.told.push(Note::Top(what));
        }
    }

    /// The answer of `explain`.
    pub fn explanation(&self, term: &Term, answer: Answered, took: Duration) -> Datum {
        let (mut reads, mut top) = (Vec::new(), Vec::new());
        let notes = self.notes.lock();
        for note in &notes.told {
            match note {
                Note::ReadNote(read) => reads.push(shown(read)),
                Note::Top(what) => top.push(Datum::from(what.as_str())),
            }
        }
        let explanation = object([
            ("query", Datum::from(reql::print::term(term))),
            ("reads", reads.into()),
            ("at_the_top", top.into()),
            ("rows_looked_at", number(self.looked_at.load(Ordering::Relaxed) as f64)),
            ("answer", Datum::from(answer.kind)),
            ("items", number(answer.items as f64)),
            ("milliseconds", number(took.as_secs_f64() * 1000.0)),
        ]);
        and_if_not(explanation, "reads_left_out", notes.left_out, 0)
    }

    /// The tasks of a profile that are below the evaluation of the query.
    pub fn tasks(&self) -> Datum {
        let told = |note: &Note| match note {
            Note::Top(what) => task(&format!("Evaluating {what}."), Duration::ZERO, Datum::empty_array()),
            Note::ReadNote(read) => {
                let scan_ranges: Vec<Datum> =
                    read.scan_ranges.iter().map(|(took, rows)| scan_range(*took, *rows)).collect();
                let below: Datum = match scan_ranges.is_empty() {
                    true => Datum::empty_array(),
                    false => vec![object([("parallel_tasks", scan_ranges.into())])].into(),
                };
                let times = if read.times > 1 { format!(", {} times", read.times) } else { String::new() };
                let what = format!("Perform read of `{}` by {}{times}.", read.table, read.by);
                task(&what, read.took.unwrap_or_default(), below)
            }
        };
        let notes = self.notes.lock();
        let mut tasks: Vec<Datum> = notes.told.iter().map(told).collect();
        if notes.left_out > 0 {
            let what = format!("Perform {} more reads.", notes.left_out);
            tasks.push(task(&what, Duration::ZERO, Datum::empty_array()));
        }
        tasks.into()
    }
}

/// The tasks of one thread that reads beside others.
fn scan_range(took: Duration, rows: u64) -> Datum {
    let what = format!("Reading {rows} rows.");
    vec![task(&what, took, Datum::empty_array())].into()
}

/// What an answer was, without the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// `value` or `stream`.
    pub kind: &'static str,
    /// The items of the stream; 1 for a value.
    pub items: u64,
}

fn shown(read: &ReadNote) -> Datum {
    let steps: Vec<Datum> = read.on_the_rows.iter().map(|step| Datum::from(step.as_str())).collect();
    let shown = object([
        ("table", Datum::from(read.table.as_str())),
        ("by", Datum::from(read.by.as_str())),
        ("order", Datum::from(read.order)),
        ("shards", number(read.shards as f64)),
        ("on_other_servers", number(read.elsewhere as f64)),
        ("on_the_rows", steps.into()),
    ]);
    and_if_not(shown, "times", read.times, 1)
}

/// An object with one more number in it, unless that is the `usual` one.
fn and_if_not(object: Datum, name: &'static str, value: u64, usual: u64) -> Datum {
    let Datum::Object(members) = &object else { return object };
    if value == usual {
        return object;
    }
    let more = std::iter::once((Text::from_static(name), number(value as f64)));
    Datum::Object(members.iter().map(|(name, value)| (name.clone(), value.clone())).chain(more).collect())
}

/// A task of a profile. Source: docs/reql-spec.md section 1.3.
pub(crate) fn task(description: &str, took: Duration, sub_tasks: Datum) -> Datum {
    object([
        ("description", Datum::from(description)),
        ("duration(ms)", number(took.as_secs_f64() * 1000.0)),
        ("sub_tasks", sub_tasks),
    ])
}

fn object<const N: usize>(members: [(&'static str, Datum); N]) -> Datum {
    Datum::Object(
        members.into_iter().map(|(name, value)| (Text::from_static(name), value)).collect::<Object>(),
    )
}

fn number(n: f64) -> Datum {
    Datum::Number(n)
}

/// Whether a term writes or changes what there is, so that it is not run to be explained.
pub(crate) fn writes(term: &Term) -> bool {
    match term {
        Term::Datum(_) | Term::Var(_) => false,
        Term::Func(func) => writes(&func.body),
        Term::Call(call) => {
            reql::signature::of(call.op).is_write()
                || call.op == Op::ForEach
                || call.args.iter().any(writes)
                || call.optargs.iter().any(|(_, term)| writes(term))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_more_than_a_hundred_reads_are_told() {
        let trace = Trace::default();
        for n in 0..READS_MAX * 3 {
            let read = || ReadNote::of_keys("test.t".to_owned(), n, (1, 0));
            let (first, second) = (trace.read(read()), trace.read(read()));
            assert_eq!(first, second);
            assert_eq!(first.is_some(), n < READS_MAX);
            trace.scan_range(Duration::from_millis(1), 1);
            trace.done(second, Duration::from_millis(1));
        }
        let notes = trace.notes.lock();
        assert_eq!((notes.told.len(), notes.left_out), (READS_MAX, READS_MAX as u64 * 4));
        assert!(notes.told.iter().all(|note| matches!(note, Note::ReadNote(read) if read.times == 2)));
    }
}
