//! A run: generates queries, compares the results with the verdicts, and reduces differences.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::database::Database;
use crate::generate::{Generator, Query, term};
use crate::node::{Node, Target};
use crate::shrink::shrink;
use crate::term_coverage::TermCoverage;
use crate::test_tables::{self, TestTables};
use crate::verdict::{self, Answer, Verdict};

/// Queries for one set of tables.
const QUERIES_PER_STAGE: u64 = 2_000;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The least number of compared queries, unless time or differences end the run earlier.
    pub queries: u64,
    /// The longest duration.
    pub time: Duration,
    /// The first seed.
    pub seed: u64,
    /// The number of differences that ends the run.
    pub differences: usize,
    /// The number of nodes in memory that are compared at the same time.
    pub threads: usize,
    /// Addresses of programs to compare instead, each with one set of tables at a time.
    pub programs: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// The number of compared queries.
    pub compared: u64,
    /// The number of open queries.
    pub open: u64,
    /// The number of compared queries with a value.
    pub values: u64,
    /// The seed after the last.
    pub next_seed: u64,
    /// The reasons for open queries, with their numbers.
    pub reasons: BTreeMap<String, u64>,
    /// The terms in the queries.
    pub coverage: TermCoverage,
    /// Differences of reduced queries.
    pub differences: Vec<String>,
}

impl RunResult {
    fn add(&mut self, more: RunResult) {
        self.compared += more.compared;
        self.open += more.open;
        self.values += more.values;
        self.coverage.merge(&more.coverage);
        self.differences.extend(more.differences);
        more.reasons.into_iter().for_each(|(why, count)| *self.reasons.entry(why).or_default() += count);
    }
}

/// Compares queries until the limits are reached. All queries of a seed are compared by one thread, so that the queries
/// of a run do not depend on the number of threads.
pub fn run(options: &Options) -> anyhow::Result<RunResult> {
    let ends = Instant::now().checked_add(options.time);
    let found = Mutex::new(RunResult { next_seed: options.seed, ..RunResult::default() });
    let next = || -> Option<u64> {
        let mut found = lock(&found);
        let over = found.compared >= options.queries
            || ends.is_some_and(|ends| Instant::now() >= ends)
            || found.differences.len() >= options.differences;
        let seed = found.next_seed;
        found.next_seed += u64::from(!over);
        (!over).then_some(seed)
    };
    let worker = |program: Option<&str>| -> anyhow::Result<()> {
        while let Some(seed) = next() {
            // One set of tables in four is behind RPCs between nodes.
            let target = if seed % 4 == 3 { Target::Remote } else { Target::Local };
            let more = of_seed(seed, program.map_or(target, Target::Program), ends, options.differences)?;
            lock(&found).add(more);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let programs = options.programs.iter().map(|address| Some(address.as_str()));
        let threads = if options.programs.is_empty() { options.threads.max(1) } else { 0 };
        let kinds = programs.chain(std::iter::repeat_n(None, threads));
        let workers: Vec<_> = kinds.map(|program| scope.spawn(move || worker(program))).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn lock(found: &Mutex<RunResult>) -> MutexGuard<'_, RunResult> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queries of a seed, on the tables of that seed.
fn of_seed(
    seed: u64,
    target: Target<'_>,
    ends: Option<Instant>,
    differences: usize,
) -> anyhow::Result<RunResult> {
    let mut found = RunResult::default();
    let mut comparison = Comparison::new(TestTables::of(seed), target)?;
    for n in 0..QUERIES_PER_STAGE {
        if ends.is_some_and(|ends| Instant::now() >= ends) || found.differences.len() >= differences {
            break;
        }
        let query = query_of(seed, n);
        let compared = comparison.compare(&query)?;
        found.coverage.add(&query.term, !matches!(compared, Compared::Open(_)));
        match compared {
            Compared::Open(why) => {
                found.open += 1;
                *found.reasons.entry(why).or_default() += 1;
            }
            Compared::Same(answer) => {
                found.compared += 1;
                found.values += u64::from(!matches!(answer, Answer::Fault(_)));
            }
            Compared::Refused(why) => {
                found.differences.push(format!("seed {seed}, query {n}\n{query}\nrefused: {why}"));
            }
            Compared::Different(_) => {
                found.compared += 1;
                let small = smallest(&mut comparison, query);
                let shown = match comparison.compare(&small)? {
                    Compared::Different(shown) => shown,
                    _ => "it differs no more".to_owned(),
                };
                let printed = printed(&small.term);
                found.differences.push(format!("seed {seed}, query {n}\n{small}\n{printed}\n{shown}"));
            }
        }
    }
    Ok(found)
}

/// The smallest query found that still differs, without an array limit if possible.
fn smallest(comparison: &mut Comparison, query: Query) -> Query {
    let mut differs = |query: &Query| matches!(comparison.compare(query), Ok(Compared::Different(_)));
    let unlimited = Query { array_limit: None, ..query.clone() };
    let query = if query != unlimited && differs(&unlimited) { unlimited } else { query };
    query.with_term(shrink(query.term.clone(), |term| differs(&query.with_term(term.clone()))))
}

/// Query number `n` of a seed.
#[must_use]
pub fn query_of(seed: u64, n: u64) -> Query {
    Generator::new(seed.wrapping_mul(1_000_003).wrapping_add(n)).query()
}

/// The term as a driver writes it.
fn printed(query: &Json) -> String {
    match reql::wire::parse_term(query.to_string().as_bytes()) {
        Ok(term) => reql::print::term(&term),
        Err(error) => error.to_string(),
    }
}

/// A node and the reference with the same tables.
pub struct Comparison {
    node: Node,
    database: Database,
}

/// The result of a comparison.
pub enum Compared {
    /// The rules determine no result, for this reason.
    Open(String),
    /// Both have this result.
    Same(Answer),
    /// The node rejects the query, for this reason: the generator or the node is wrong.
    Refused(String),
    /// The results differ, as described.
    Different(String),
}

impl Comparison {
    /// A node and the reference with these tables.
    pub fn new(tables: TestTables, target: Target<'_>) -> anyhow::Result<Comparison> {
        Ok(Comparison { node: Node::of(&tables, target)?, database: tables.database })
    }

    /// Runs a query on both and restores the rows that it wrote.
    pub fn compare(&mut self, query: &Query) -> anyhow::Result<Compared> {
        let mut verdict = match verdict::verdict(query, &self.database) {
            Ok(verdict) => verdict,
            Err(why) => return Ok(Compared::Open(why)),
        };
        if !self.node.has_test_pages() && verdict::uses_outside(&query.term) {
            return Ok(Compared::Open("pages and scripts of another node".to_owned()));
        }
        let (answer, message) = match self.node.run(query) {
            Ok(answered) => answered,
            Err(error) => {
                return Ok(Compared::Refused(format!("{error:#}")));
            }
        };
        let mut same = verdict::agrees(&verdict, &answer);
        let rows = self.compare_rows(&verdict, same)?;
        if !same {
            // More orders may include the one in which the node found the rows.
            verdict = match verdict::verdict_of(query, &self.database, verdict::ORDERS_OF_DOUBT) {
                Ok(verdict) => verdict,
                Err(why) => return Ok(Compared::Open(why)),
            };
            same = verdict::agrees(&verdict, &answer);
        }
        if !same {
            let (expected, got) = (verdict::text(&verdict.answer), verdict::text(&answer));
            return Ok(Compared::Different(format!("reference: {expected}\nnode:      {got} {message}")));
        }
        Ok(rows.map_or(Compared::Same(answer), Compared::Different))
    }

    /// Compares the rows of the table for writes and restores them; after an unexpected result also if nothing should have
    /// been written.
    fn compare_rows(&mut self, verdict: &Verdict, same: bool) -> anyhow::Result<Option<String>> {
        let (before, after) =
            (&self.database.tables[test_tables::WRITTEN], &verdict.database.tables[test_tables::WRITTEN]);
        if same && before.rows == after.rows {
            return Ok(None);
        }
        let ordered = json!([41, [[15, [test_tables::WRITTEN]]], {"index": "id"}]);
        let (rows, _) = self.node.run(&ordered.into())?;
        let expected = after.rows.values().map(|row| crate::value::Val::Object(row.clone())).collect();
        let expected = Answer::Stream(expected);
        let difference = (!verdict::same(&expected, &rows, false)).then(|| {
            format!(
                "rows, reference: {}\nrows, node:      {}",
                verdict::text(&expected),
                verdict::text(&rows)
            )
        });
        self.node.run(&term(54, [term(15, [json!(test_tables::WRITTEN)])]).into())?;
        if let Some(refill) = test_tables::fill(test_tables::WRITTEN, before) {
            self.node.run(&refill.into())?;
        }
        Ok(difference)
    }
}
