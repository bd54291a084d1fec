//! A run: queries, verdicts, answers, and the first difference made small.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::generate::{Generator, term};
use crate::node::Node;
use crate::shrink::shrink;
use crate::stage::{self, Stage};
use crate::verdict::{self, Answer, Verdict};
use crate::world::World;

/// Queries on one set of tables.
const QUERIES_PER_STAGE: u64 = 2_000;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many queries with a verdict are compared, at most.
    pub queries: u64,
    /// How long it may take.
    pub time: Duration,
    /// Where it begins.
    pub seed: u64,
    /// How many differences are shown before it ends.
    pub differences: usize,
}

/// What a run found.
#[derive(Debug, Default)]
pub struct Found {
    /// Queries whose answers were compared.
    pub compared: u64,
    /// Queries that the rules leave open.
    pub open: u64,
    /// Compared queries that ended with a value.
    pub values: u64,
    /// Differences, made small.
    pub differences: Vec<String>,
}

/// Compares queries until time, number or differences are used up.
pub fn run(options: &Options) -> anyhow::Result<Found> {
    let (started, mut found) = (Instant::now(), Found::default());
    let mut seed = options.seed;
    while found.compared < options.queries
        && started.elapsed() < options.time
        && found.differences.len() < options.differences
    {
        let stage = Stage::of(seed);
        // Every fourth set of tables is behind questions between nodes.
        let mut bench = Bench::new(stage, seed % 4 == 3)?;
        for n in 0..QUERIES_PER_STAGE {
            if found.compared >= options.queries || started.elapsed() >= options.time {
                break;
            }
            let query = Generator::new(seed.wrapping_mul(1_000_003).wrapping_add(n)).query();
            match bench.compare(&query)? {
                Compared::Open => found.open += 1,
                Compared::Same(answer) => {
                    found.compared += 1;
                    found.values += u64::from(!matches!(answer, Answer::Fault(_)));
                }
                Compared::Refused(why) => {
                    found.differences.push(format!("seed {seed}, query {n}\n{query}\nrefused: {why}"));
                }
                Compared::Different(_) => {
                    found.compared += 1;
                    let small =
                        shrink(query, |query| matches!(bench.compare(query), Ok(Compared::Different(_))));
                    let shown = match bench.compare(&small)? {
                        Compared::Different(shown) => shown,
                        _ => "it differs no more".to_owned(),
                    };
                    found
                        .differences
                        .push(format!("seed {seed}, query {n}\n{small}\n{}\n{shown}", printed(&small)));
                }
            }
            if found.differences.len() >= options.differences {
                break;
            }
        }
        seed = seed.wrapping_add(1);
    }
    Ok(found)
}

/// The term as a driver would have it written.
fn printed(query: &Json) -> String {
    match reql::wire::parse_term(query.to_string().as_bytes()) {
        Ok(term) => reql::print::term(&term),
        Err(error) => error.to_string(),
    }
}

/// A node and the reference, on the same tables.
pub struct Bench {
    node: Node,
    world: World,
}

/// How two answers compare.
pub enum Compared {
    /// The rules leave the answer open.
    Open,
    /// Both answered this.
    Same(Answer),
    /// The node does not take the query, for this reason: the generator is wrong, or the node is.
    Refused(String),
    /// They answered differently, in words.
    Different(String),
}

impl Bench {
    /// Both with the tables of `stage`.
    pub fn new(stage: Stage, far: bool) -> anyhow::Result<Bench> {
        Ok(Bench { node: Node::of(&stage, far)?, world: stage.world })
    }

    /// Runs a query on both. What it writes is put back.
    pub fn compare(&mut self, query: &Json) -> anyhow::Result<Compared> {
        let Ok(verdict) = verdict::verdict(query, &self.world) else { return Ok(Compared::Open) };
        let (answer, message) = match self.node.run(query) {
            Ok(answered) => answered,
            Err(error) => {
                return Ok(Compared::Refused(format!("{error:#}")));
            }
        };
        let same = verdict::same(&verdict.answer, &answer, verdict.any_order);
        let rows = self.compare_rows(&verdict)?;
        if !same {
            let (expected, got) = (verdict::text(&verdict.answer), verdict::text(&answer));
            return Ok(Compared::Different(format!("reference: {expected}\nnode:      {got} {message}")));
        }
        Ok(rows.map_or(Compared::Same(answer), Compared::Different))
    }

    /// Compares the rows of the table that writes go to and puts them back as they were.
    fn compare_rows(&mut self, verdict: &Verdict) -> anyhow::Result<Option<String>> {
        let (before, after) = (&self.world.tables[stage::WRITTEN], &verdict.world.tables[stage::WRITTEN]);
        if before.rows == after.rows {
            return Ok(None);
        }
        let ordered = json!([41, [[15, [stage::WRITTEN]]], {"index": "id"}]);
        let (rows, _) = self.node.run(&ordered)?;
        let expected = after.rows.values().map(|row| crate::value::Val::Object(row.clone())).collect();
        let expected = Answer::Stream(expected);
        let difference = (!verdict::same(&expected, &rows, false)).then(|| {
            format!(
                "rows, reference: {}\nrows, node:      {}",
                verdict::text(&expected),
                verdict::text(&rows)
            )
        });
        self.node.run(&term(54, [term(15, [json!(stage::WRITTEN)])]))?;
        if let Some(refill) = stage::fill(stage::WRITTEN, before) {
            self.node.run(&refill)?;
        }
        Ok(difference)
    }
}
