//! `--verify`: compares both sides while they run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::compare::{Difference, DifferenceKind, digest, merge, read_rows, rows_with_keys};
use crate::coverage::{Coverage, Task, Work};
use crate::error::MigrateError;
use crate::key::{Bound, Key, KeyRange};
use crate::rate::ChunkSize;
use crate::server::{Line, Server, Stop};
use crate::split::pieces;
use crate::table::TableFacts;

/// Differences that are named, of each table.
const NAMED_MAX: usize = 100;
const DIGEST_ROWS: usize = 10_000;
/// The most that is compared at once, row by row.
const CHUNK: ChunkSize = ChunkSize { rows: 4_000, bytes: 4 << 20 };
/// A difference counts once both rows have stayed as they are for this many looks.
const LOOKS_SAME: u32 = 3;
/// A row that changes at every look is given up after so many.
const LOOKS_MAX: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(400);
/// Keys of one look.
const KEYS_AT_ONCE: usize = 500;

/// The differences of one table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableReport {
    pub name: String,
    /// Rows by count, on each side, when the comparison began.
    pub source_rows: u64,
    pub target_rows: u64,
    pub differences: u64,
    pub named: Vec<Difference>,
    /// Rows that changed at every look.
    pub changing: u64,
    /// Rows that only the target has, in a table that was merged.
    pub kept: u64,
}

impl TableReport {
    /// One object, for `--json`.
    pub fn as_json(&self) -> Value {
        json!({
            "table": self.name,
            "source_rows": self.source_rows,
            "target_rows": self.target_rows,
            "differences": self.differences,
            "named": self.named.iter().map(Difference::as_json).collect::<Vec<_>>(),
            "changing": self.changing,
            "kept": self.kept,
        })
    }

    /// The differences, then a summary.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.named.iter().map(|difference| format!("{}: {difference}", self.name)).collect();
        if self.differences > self.named.len() as u64 {
            let more = self.differences - self.named.len() as u64;
            lines.push(format!("{}: {more} more differences", self.name));
        }
        let mut summary = format!(
            "{}: {} rows in the source, {} in the target, {} differences",
            self.name, self.source_rows, self.target_rows, self.differences
        );
        if self.changing > 0 {
            summary += &format!(", {} rows that change all the time", self.changing);
        }
        if self.kept > 0 {
            summary += &format!(", {} rows of the target alone, which stay", self.kept);
        }
        lines.push(summary);
        lines
    }
}

/// A table to compare.
struct Compared<'a> {
    facts: &'a TableFacts,
    coverage: Mutex<Coverage>,
    report: Mutex<TableReport>,
}

/// Compares tables with `readers` threads; `progress` gets the number of rows looked at. Fails when a side is lost.
pub fn verify(
    tables: &[TableFacts],
    (source, target): (&Server, &Server),
    readers: usize,
    stop: &Stop,
    progress: &AtomicU64,
) -> Result<Vec<TableReport>, MigrateError> {
    let mut compared = Vec::new();
    let mut lines = (source.line(), target.line());
    for facts in tables {
        let report = TableReport {
            name: facts.name.to_string(),
            source_rows: count(&mut lines.0, stop, facts)?,
            target_rows: count(&mut lines.1, stop, facts)?,
            ..TableReport::default()
        };
        let ends = pieces(facts.edges.as_ref(), readers);
        let coverage = Mutex::new(Coverage::new(Work::Compare, &ends));
        compared.push(Compared { facts, coverage, report: Mutex::new(report) });
    }
    let verifier = Verifier { tables: &compared, stop, progress };
    let mut outcome = Ok(());
    thread::scope(|scope| {
        let work = || verifier.work(source.line(), target.line());
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let one = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = std::mem::replace(&mut outcome, Ok(())).and(one);
        }
    });
    outcome?;
    Ok(compared.into_iter().map(|table| finished(table.report.into_inner())).collect())
}

fn finished(mut report: TableReport) -> TableReport {
    report.named.sort_by(|a, b| a.key.cmp(&b.key));
    report
}

fn count(line: &mut Line, stop: &Stop, facts: &TableFacts) -> Result<u64, MigrateError> {
    let term = client::terms::count(facts.name.term());
    let count = line.run(stop, |c| c.ask(&format!("number of rows of {}", facts.name), &term))?;
    Ok(count.as_f64().unwrap_or(0.0) as u64)
}

struct Verifier<'a> {
    tables: &'a [Compared<'a>],
    stop: &'a Stop,
    progress: &'a AtomicU64,
}

impl Verifier<'_> {
    fn work(&self, mut source: Line, mut target: Line) -> Result<(), MigrateError> {
        while let Some((table, mut task)) = self.take() {
            loop {
                let outcome = self.compare(&mut source, &mut target, table, &task.range);
                let end = outcome.inspect_err(|_| self.stop.request())?;
                match table.coverage.lock().advance(&task.range.start, &end) {
                    Some(rest) if !self.stop.is_requested() => task = rest,
                    _ => break,
                }
            }
        }
        Ok(())
    }

    fn take(&self) -> Option<(&Compared<'_>, Task)> {
        if self.stop.is_requested() {
            return None;
        }
        self.tables.iter().find_map(|table| Some((table, table.coverage.lock().take()?)))
    }

    /// Compares the beginning of `range`; returns how far.
    fn compare(
        &self,
        source: &mut Line,
        target: &mut Line,
        table: &Compared<'_>,
        range: &KeyRange,
    ) -> Result<Bound, MigrateError> {
        let facts = table.facts;
        let of_source = source.run(self.stop, |from| digest(from, facts, range, Some(DIGEST_ROWS)))?;
        let end = match of_source.last.clone() {
            Some(last) if of_source.rows >= DIGEST_ROWS as u64 => Bound::After(last),
            _ => range.end.clone(),
        };
        let range = range.until(end.clone());
        let of_target = target.run(self.stop, |to| digest(to, facts, &range, None))?;
        if of_source.text == of_target.text {
            self.progress.fetch_add(of_source.rows, Ordering::Relaxed);
            return Ok(end);
        }
        let of_source = source.run(self.stop, |from| read_rows(from, facts, &range, CHUNK))?;
        let range = range.until(of_source.end.clone());
        let of_target = target.run(self.stop, |to| read_rows(to, facts, &range, CHUNK))?;
        let end = of_target.end.clone();
        let rows: Vec<_> = of_source.rows.into_iter().filter(|(key, _)| end.is_after(key)).collect();
        let looked_at = rows.len() as u64;
        let found = merge(rows, of_target.rows);
        self.settle(source, target, table, found)?;
        self.progress.fetch_add(looked_at, Ordering::Relaxed);
        Ok(end)
    }

    /// Looks at differing rows again until both sides stay as they are.
    fn settle(
        &self,
        source: &mut Line,
        target: &mut Line,
        table: &Compared<'_>,
        found: Vec<Difference>,
    ) -> Result<(), MigrateError> {
        let (kept, found): (Vec<_>, Vec<_>) = found.into_iter().partition(|difference| {
            table.facts.keeps_extra && matches!(difference.kind, DifferenceKind::Extra { .. })
        });
        table.report.lock().kept += kept.len() as u64;
        let mut open: HashMap<Key, (Difference, u32)> =
            found.into_iter().map(|difference| (difference.key.clone(), (difference, 1))).collect();
        for _ in 0..LOOKS_MAX {
            if open.is_empty() || self.stop.is_requested() {
                return Ok(());
            }
            self.stop.pause(LOOK_PAUSE);
            let keys: Vec<Key> = open.keys().cloned().collect();
            let mut still = HashMap::new();
            for keys in keys.chunks(KEYS_AT_ONCE) {
                let mine = source.run(self.stop, |from| rows_with_keys(from, table.facts, keys))?;
                let theirs = target.run(self.stop, |to| rows_with_keys(to, table.facts, keys))?;
                for difference in merge(mine, theirs) {
                    still.insert(difference.key.clone(), difference);
                }
            }
            open = looked_again(open, still, |difference| table.note(difference));
        }
        table.report.lock().changing += open.len() as u64;
        Ok(())
    }
}

/// The open differences after a look that found `still`. Rows that stayed the same for enough looks are given to `settled`.
fn looked_again(
    open: HashMap<Key, (Difference, u32)>,
    mut still: HashMap<Key, Difference>,
    mut settled: impl FnMut(Difference),
) -> HashMap<Key, (Difference, u32)> {
    let mut next = HashMap::new();
    for (key, (before, looks)) in open {
        let Some(now) = still.remove(&key) else { continue };
        let looks = if now == before { looks + 1 } else { 1 };
        match looks >= LOOKS_SAME {
            true => settled(now),
            false => drop(next.insert(key, (now, looks))),
        }
    }
    next
}

impl Compared<'_> {
    fn note(&self, difference: Difference) {
        let mut report = self.report.lock();
        report.differences += 1;
        if report.named.len() < NAMED_MAX {
            report.named.push(difference);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(n: u32, target: &str) -> Difference {
        let key = Key::parse(&n.to_string()).unwrap();
        Difference { key, kind: DifferenceKind::Extra { target: target.to_owned() } }
    }

    fn by_key(differences: &[Difference]) -> HashMap<Key, Difference> {
        differences.iter().map(|one| (one.key.clone(), one.clone())).collect()
    }

    #[test]
    fn a_row_is_different_once_it_stays_so() {
        let first = [difference(1, "a"), difference(2, "a"), difference(3, "a")];
        let mut open: HashMap<_, _> = first.into_iter().map(|one| (one.key.clone(), (one, 1))).collect();
        let mut settled = Vec::new();
        for (second, third) in [("a", "b"), ("a", "c"), ("a", "d")] {
            // The first row stays, the second changes, the third was late.
            let still = by_key(&[difference(1, second), difference(2, third)]);
            open = looked_again(open, still, |one| settled.push(one));
        }
        assert_eq!(settled, [difference(1, "a")]);
        assert_eq!(open.into_values().collect::<Vec<_>>(), [(difference(2, "d"), 1)]);
    }

    #[test]
    fn a_report_names_some_and_counts_all() {
        let report = TableReport {
            name: "a.b".to_owned(),
            differences: 3,
            named: vec![difference(1, "{}")],
            changing: 1,
            ..TableReport::default()
        };
        let lines = report.lines();
        assert_eq!(lines[0], "a.b: row 1: only in the target");
        assert_eq!(lines[1], "a.b: 2 more differences");
        assert!(lines[2].contains("3 differences, 1 rows that change"), "{}", lines[2]);
    }
}
