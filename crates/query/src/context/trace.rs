//! A record of the work of a query, for `explain` and `profile`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use datum::{Datum, Object, Text};
use parking_lot::Mutex;
use reql::{Op, Term};
use shard::{Bounds, Side};

/// The record of one query. Its threads share it.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The rows read on all threads.
    pub rows_read: Arc<AtomicU64>,
    notes: Mutex<Notes>,
    /// Entries that it has taken, and the most that it takes.
    taken: AtomicU32,
    taken_max: u32,
}

/// Most entries of a record that nobody has requested, so that it costs little.
const SKETCH_ENTRIES_MAX: u32 = 64;

impl Default for Trace {
    fn default() -> Trace {
        Trace::up_to(u32::MAX)
    }
}

/// Most reads that are listed one by one.
const READS_MAX: usize = 100;
/// Most scan ranges of one read that are listed.
const SCAN_RANGES_MAX: usize = 1_000;

/// Reads and steps, in the order in which they began. Repeated reads are one entry, so that the record of a query that
/// reads once per item of a sequence stays short.
#[derive(Debug, Default)]
struct Notes {
    entries: Vec<Note>,
    /// The entry of the latest read, if it has one.
    latest: Option<usize>,
    /// Reads without an entry.
    left_out: u64,
}

#[derive(Clone, Debug)]
enum Note {
    /// Rows were read.
    Read(ReadNote),
    /// Rows or items came to the node that runs the query, which did this with them.
    Top(String),
}

/// A read of a table, and the steps that were run where its rows are.
#[derive(Clone, Debug)]
pub(crate) struct ReadNote {
    /// Database and table.
    pub table: String,
    /// How the rows are found.
    pub by: String,
    /// The order they come in.
    pub order: &'static str,
    pub shards: usize,
    /// How many of the shards other servers read.
    pub remote_shards: usize,
    /// The steps that are run where the rows are.
    pub on_the_rows: Vec<String>,
    /// How long it took, once it is done.
    pub took: Option<Duration>,
    /// Scan ranges that were read in parallel: how long each took, and its rows.
    pub scan_ranges: Vec<(Duration, u64)>,
    /// How often the same read was done.
    pub times: u64,
}

impl ReadNote {
    /// A read of rows by key, in this number of shards, and this many of them on other servers.
    pub fn of_keys(table: String, keys: usize, (shards, remote_shards): (usize, usize)) -> ReadNote {
        let by = format!("{keys} primary key{}", if keys == 1 { "" } else { "s" });
        let (order, on_the_rows, scan_ranges) = ("any", Vec::new(), Vec::new());
        ReadNote { table, by, order, shards, remote_shards, on_the_rows, took: None, scan_ranges, times: 1 }
    }

    /// Whether both would be shown alike.
    fn is_like(&self, other: &ReadNote) -> bool {
        (&self.table, &self.by, self.order, self.shards, self.remote_shards, &self.on_the_rows)
            == (&other.table, &other.by, other.order, other.shards, other.remote_shards, &other.on_the_rows)
    }
}

/// The values that an index looks up, in readable form.
pub(crate) fn show_values(values: &[(Bounds, u32)]) -> String {
    let shown = values.iter().take(3).map(|(bounds, _)| {
        if bounds.left == bounds.right {
            return bounds.left.truncated();
        }
        let left = if bounds.left_side == Side::Closed { '[' } else { '(' };
        let right = if bounds.right_side == Side::Closed { ']' } else { ')' };
        format!("{left}{}, {}{right}", bounds.left.truncated(), bounds.right.truncated())
    });
    let mut shown: Vec<String> = shown.collect();
    if values.len() > shown.len() {
        shown.push(format!("and {} more", values.len() - shown.len()));
    }
    shown.join(", ")
}

impl Trace {
    /// A record of the first entries only, for a query that may turn out to be slow.
    pub fn sketch() -> Trace {
        Trace::up_to(SKETCH_ENTRIES_MAX)
    }

    fn up_to(taken_max: u32) -> Trace {
        Trace { rows_read: Arc::default(), notes: Mutex::default(), taken: AtomicU32::new(0), taken_max }
    }

    /// Takes room for one entry, if there is any.
    pub fn take_room(&self) -> bool {
        // A full record is only read: threads that share it do not wait for each other.
        self.taken_max == u32::MAX
            || (!self.is_full() && self.taken.fetch_add(1, Ordering::Relaxed) < self.taken_max)
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.taken_max
    }

    /// Records a read. Returns its entry, if it has one, for [`Trace::done`].
    pub fn read(&self, read: ReadNote) -> Option<usize> {
        let mut notes = self.notes.lock();
        let mut reads = 0;
        let known = notes.entries.iter_mut().position(|note| match note {
            Note::Read(known) if known.is_like(&read) => {
                known.times += 1;
                true
            }
            Note::Read(_) => {
                reads += 1;
                false
            }
            Note::Top(_) => false,
        });
        notes.latest = known.or_else(|| (reads < READS_MAX).then_some(notes.entries.len()));
        match (known, notes.latest) {
            (Some(_), _) => {}
            (None, Some(_)) => notes.entries.push(Note::Read(read)),
            (None, None) => notes.left_out += 1,
        }
        notes.latest
    }

    /// Records a scan range of the latest read.
    pub fn scan_range(&self, took: Duration, rows: u64) {
        let mut notes = self.notes.lock();
        let latest = notes.latest;
        if let Some(Note::Read(read)) = latest.and_then(|latest| notes.entries.get_mut(latest))
            && read.scan_ranges.len() < SCAN_RANGES_MAX
        {
            read.scan_ranges.push((took, rows));
        }
    }

    /// Records how long a read took.
    pub fn done(&self, note: Option<usize>, took: Duration) {
        let mut notes = self.notes.lock();
        if let Some(Note::Read(read)) = note.and_then(|note| notes.entries.get_mut(note)) {
            *read.took.get_or_insert_default() += took;
        }
    }

    /// Records a step of the node that runs the query.
    pub fn at_top(&self, what: impl Into<String>) {
        let what = what.into();
        let mut notes = self.notes.lock();
        // A step that is repeated per item of a sequence is listed once.
        if !notes.entries.iter().any(|note| matches!(note, Note::Top(known) if *known == what)) {
            notes.entries.push(Note::Top(what));
        }
    }

    /// The result of `explain`, for a query with this text.
    pub fn explanation(&self, query: String, answer: Answered, took: Duration) -> Datum {
        let (mut reads, mut top) = (Vec::new(), Vec::new());
        let notes = self.notes.lock();
        for note in &notes.entries {
            match note {
                Note::Read(read) => reads.push(shown(read)),
                Note::Top(what) => top.push(Datum::from(what.as_str())),
            }
        }
        let explanation = object([
            ("query", Datum::from(query)),
            ("reads", reads.into()),
            ("at_the_top", top.into()),
            ("rows_looked_at", number(self.rows_read.load(Ordering::Relaxed) as f64)),
            ("answer", Datum::from(answer.kind)),
            ("items", number(answer.items as f64)),
            ("milliseconds", number(took.as_secs_f64() * 1000.0)),
        ]);
        let explanation = with_unless(explanation, "reads_left_out", notes.left_out, 0);
        match self.is_full() {
            true => with(explanation, "is_partial", Datum::Bool(true)),
            false => explanation,
        }
    }

    /// The tasks of a profile below the evaluation of the query.
    pub fn tasks(&self) -> Datum {
        let told = |note: &Note| match note {
            Note::Top(what) => task(&format!("Evaluating {what}."), Duration::ZERO, Datum::empty_array()),
            Note::Read(read) => {
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
        let mut tasks: Vec<Datum> = notes.entries.iter().map(told).collect();
        if notes.left_out > 0 {
            let what = format!("Perform {} more reads.", notes.left_out);
            tasks.push(task(&what, Duration::ZERO, Datum::empty_array()));
        }
        tasks.into()
    }
}

/// The tasks of one thread of a parallel read.
fn scan_range(took: Duration, rows: u64) -> Datum {
    let what = format!("Reading {rows} rows.");
    vec![task(&what, took, Datum::empty_array())].into()
}

/// The kind and size of a result.
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
        ("on_other_servers", number(read.remote_shards as f64)),
        ("on_the_rows", steps.into()),
    ]);
    with_unless(shown, "times", read.times, 1)
}

/// Adds a number to an object, unless it is the `usual` one.
fn with_unless(object: Datum, name: &'static str, value: u64, usual: u64) -> Datum {
    if value == usual { object } else { with(object, name, number(value as f64)) }
}

/// Adds a member to an object.
fn with(object: Datum, name: &'static str, value: Datum) -> Datum {
    let Datum::Object(members) = &object else { return object };
    let more = std::iter::once((Text::from_static(name), value));
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

/// Whether a term writes or changes configuration, so that `explain` must not run it.
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

/// Whether a term opens a changefeed.
pub(crate) fn has_feed(term: &Term) -> bool {
    match term {
        Term::Datum(_) | Term::Var(_) => false,
        Term::Func(func) => has_feed(&func.body),
        Term::Call(call) => call.op == Op::Changes || call.args.iter().any(has_feed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sketch_takes_few_entries() {
        let (sketch, whole) = (Trace::sketch(), Trace::default());
        assert_eq!((0..1000).filter(|_| sketch.take_room()).count(), SKETCH_ENTRIES_MAX as usize);
        assert_eq!((0..1000).filter(|_| whole.take_room()).count(), 1000);
        let partial = |trace: &Trace| {
            let answer = Answered { kind: "value", items: 1 };
            let Datum::Object(explained) = trace.explanation("r".to_owned(), answer, Duration::ZERO) else {
                return None;
            };
            explained.get("is_partial")
        };
        assert_eq!((partial(&sketch), partial(&whole)), (Some(Datum::Bool(true)), None));
    }

    #[test]
    fn at_most_a_hundred_reads_are_listed() {
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
        assert_eq!((notes.entries.len(), notes.left_out), (READS_MAX, READS_MAX as u64 * 4));
        assert!(notes.entries.iter().all(|note| matches!(note, Note::Read(read) if read.times == 2)));
    }
}
