//! Terms that need all items of a sequence, evaluated where the rows are.
//!
//! A range is split into scan ranges of about equal size. Threads of the pool scan them with all steps, and the partial
//! results are merged in the order of the ranges. Other nodes do the same with their shards, at the same time, and send
//! one partial result each. If a function is open, all rows are pulled to this thread instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{ServerId, ShardHandle};
use datum::{Datum, KeyRange};
use reql::Terminal;
use reql::stream::Items;
use reql::{Env, ErrorClass, EvalError};
use reql::{Pipeline, Tally};
use shard::ReadError;
use storage::Direction;

use super::{
    FoundRange, OrderSeen, Pipe, RowSource, ShardIndexRange, ShardRange, Source, by_function, plan,
    scan_range,
};
use crate::context::Cx;
use crate::remote::{RemoteTally, RetryBudget, Target, joined_ranges, refreshed, unreadable};
use crate::table::{KeyOrder, StoredTable, read_failed};

/// A range with fewer bytes is not split.
const SCAN_RANGE_BYTES_MIN: u64 = 256 << 10;
/// Scan ranges per thread, so that threads that finish early find more to do.
const SCAN_RANGES_PER_THREAD: usize = 4;

/// The value of a chain of terms that ends a sequence.
pub(crate) fn gather(cx: &Cx, pipe: Pipe, pipeline: Pipeline) -> Result<reql::Value, EvalError> {
    // A term that only makes an array reads everything, whatever the batch options are. Source:
    // `datum_stream_t::to_array` of RethinkDB.
    if !matches!(pipeline.terminal, Terminal::Collect) {
        cx.env().check_batches()?;
    }
    let pipeline = Pipeline { steps: pipe.steps.into_iter().chain(pipeline.steps).collect(), ..pipeline };
    let Source::Rows(rows) = pipe.source else { return gather_from(cx, pipe.source, pipeline) };
    if rows.relies_on_index() {
        return gather_grouped(cx, &rows, &pipeline);
    }
    match plan::found(cx, &rows, &pipeline.steps, order_seen(&pipeline)) {
        None => gather_from(cx, Source::Rows(rows), pipeline),
        Some(found) => match gather_from(cx, Source::Rows(found), pipeline.clone()) {
            // The plan chose the index and not the query, so the rows can be found without it.
            Err(error) if error.class() == ErrorClass::OpFailed => {
                gather_from(cx, Source::Rows(rows), pipeline)
            }
            answer => answer,
        },
    }
}

/// Aggregates rows that are grouped by the index that finds them. If another index gets its name meanwhile, the rows
/// are grouped by that one.
fn gather_grouped(cx: &Cx, rows: &RowSource, pipeline: &Pipeline) -> Result<reql::Value, EvalError> {
    rows.relying_on(None).with_present_index(cx, |named| {
        let (mut counting, mut pipeline) = (rows.clone(), pipeline.clone());
        if let Some(index) = named.index_instead_of(rows)
            && let Some(by) = pipeline.group.as_mut().and_then(|group| group.selectors.last_mut())
        {
            *by = by_function(index)?;
            counting = named.relying_on(Some(index.clone()));
        }
        gather_from(cx, Source::Rows(counting), pipeline)
    })
}

fn gather_from(cx: &Cx, source: Source, pipeline: Pipeline) -> Result<reql::Value, EvalError> {
    match source {
        Source::Rows(rows) if is_plain_count(&pipeline) => {
            if let Some(trace) = cx.trace_room() {
                trace.read(rows.note(cx, vec!["count (kept, or of keys)".to_owned()]));
            }
            let count = count(cx, &rows)?;
            Ok(reql::Value::Datum(Datum::Number(count as f64)))
        }
        Source::Rows(rows) if pipeline.is_closed() && !merges(&rows) => scan(cx, rows, pipeline),
        source => {
            let items = Pipe::of_source(source).open(cx)?;
            if let Some(trace) = cx.trace_room() {
                pipeline.names().into_iter().for_each(|name| trace.at_top(name));
            }
            consume(cx, items, &pipeline)
        }
    }
}

/// Whether the result depends on the order of the rows.
fn order_seen(pipeline: &Pipeline) -> OrderSeen {
    match pipeline.terminal {
        Terminal::Count | Terminal::Sum(_) | Terminal::Avg(_) | Terminal::Distinct => OrderSeen::No,
        Terminal::Collect
        | Terminal::Min(_)
        | Terminal::Max(_)
        | Terminal::Reduce(_)
        | Terminal::Top { .. } => OrderSeen::Yes,
    }
}

fn is_plain_count(pipeline: &Pipeline) -> bool {
    pipeline.steps.is_empty() && pipeline.group.is_none() && matches!(pipeline.terminal, Terminal::Count)
}

/// Whether the rows of several shards must be merged before the steps.
fn merges(rows: &RowSource) -> bool {
    rows.index.is_some() && rows.order != KeyOrder::Any && rows.table.handle.shards().len() > 1
}

/// Rows of one local shard, found by key or by index.
pub(crate) trait LocalRows: Sized {
    /// All parts of `rows`: local ones, and the ranges of other nodes.
    fn find(cx: &Cx, rows: &RowSource, budget: &mut RetryBudget) -> Result<Vec<FoundRange<Self>>, EvalError>;

    /// The partial result of all rows of `parts`.
    fn tally(cx: &Cx, parts: Vec<Self>, order: KeyOrder, work: &Arc<Pipeline>) -> Result<Tally, EvalError>;

    /// The number of rows of `parts`.
    fn count(cx: &Cx, parts: Vec<Self>) -> Result<u64, EvalError>;
}

impl LocalRows for ShardRange {
    fn find(cx: &Cx, rows: &RowSource, budget: &mut RetryBudget) -> Result<Vec<FoundRange<Self>>, EvalError> {
        rows.find(cx, budget)
    }

    fn tally(cx: &Cx, parts: Vec<Self>, order: KeyOrder, work: &Arc<Pipeline>) -> Result<Tally, EvalError> {
        let direction = order.direction();
        let scan_ranges = scan_ranges(cx, parts, direction)?;
        let (shared, shared_work) = (cx.shared()?, work.clone());
        let scan =
            move |scan_range: ShardRange| scan_range::scan(&shared, &scan_range, direction, &shared_work);
        merged(cx, work, cx.service.pool.map(scan_ranges, scan))
    }

    /// The number of rows of a whole shard is stored; other ranges count their keys.
    fn count(cx: &Cx, parts: Vec<Self>) -> Result<u64, EvalError> {
        let counts = cx.service.pool.map(parts, |part: ShardRange| match part.whole {
            true => part.snapshot.count(),
            false => part.snapshot.count_range(&part.range),
        });
        let counts: Result<Vec<u64>, ReadError> = counts.into_iter().collect();
        Ok(counts.map_err(|error| read_failed(&error))?.into_iter().sum())
    }
}

impl LocalRows for ShardIndexRange {
    fn find(cx: &Cx, rows: &RowSource, budget: &mut RetryBudget) -> Result<Vec<FoundRange<Self>>, EvalError> {
        rows.find_by_index(cx, budget)
    }

    fn tally(cx: &Cx, parts: Vec<Self>, _order: KeyOrder, work: &Arc<Pipeline>) -> Result<Tally, EvalError> {
        let (shared, shared_work) = (cx.shared()?, work.clone());
        let scan = move |mut part: ShardIndexRange| -> Result<Tally, EvalError> {
            let env = shared.closed_env();
            let mut tally = shared_work.start();
            while let Some(item) = part.next(&env)? {
                push(&shared_work, &mut tally, item, &env)?;
            }
            Ok(tally)
        };
        merged(cx, work, cx.service.pool.map(parts, scan))
    }

    fn count(cx: &Cx, parts: Vec<Self>) -> Result<u64, EvalError> {
        let shared = cx.shared()?;
        let counts =
            cx.service.pool.map(parts, move |part: ShardIndexRange| part.count(&shared.closed_env()));
        let counts: Result<Vec<u64>, EvalError> = counts.into_iter().collect();
        Ok(counts?.into_iter().sum())
    }
}

fn merged(cx: &Cx, work: &Pipeline, tallies: Vec<Result<Tally, EvalError>>) -> Result<Tally, EvalError> {
    let env = cx.closed_env();
    let mut all = work.start();
    for tally in tallies {
        work.merge(&mut all, tally?, &env)?;
    }
    Ok(all)
}

fn count(cx: &Cx, rows: &RowSource) -> Result<u64, EvalError> {
    let rows = RowSource { order: KeyOrder::Any, ..rows.clone() };
    rows.with_present_index(cx, |rows| match rows.index {
        Some(_) => count_for::<ShardIndexRange>(cx, rows, &mut RetryBudget::new()),
        None => count_for::<ShardRange>(cx, rows, &mut RetryBudget::new()),
    })
}

fn count_for<P: LocalRows>(cx: &Cx, rows: &RowSource, budget: &mut RetryBudget) -> Result<u64, EvalError> {
    let ByServer { local, remote } = ByServer::of(P::find(cx, rows, budget)?);
    let request = |(server, ranges)| RemoteTally::request_count(cx, server, rows.table_ranges(ranges));
    let requests: Vec<RemoteTally> = remote.into_iter().map(request).collect();
    let mut all = P::count(cx, local)?;
    for remote in requests {
        match remote.count(cx) {
            Ok(Some(count)) => all += count,
            Ok(None) => {
                for rows in reopened(cx, rows, &remote.ranges, budget)? {
                    all += count_for::<P>(cx, &rows, budget)?;
                }
            }
            Err(error) => {
                remote.cancel(cx);
                return Err(error);
            }
        }
    }
    Ok(all)
}

/// The number of rows of each shard, in key order.
pub(crate) fn count_each(cx: &Cx, table: &StoredTable) -> Result<Vec<u64>, EvalError> {
    let (range, order) = (KeyRange::all(), KeyOrder::Any);
    let whole = RowSource::by_key(table.clone(), range, order);
    let request = |(shard, range): (&ShardHandle, KeyRange)| match cx.service.reader(shard, table.read_mode) {
        Some(Target::Local(local)) => ShardRange::of(local, range).map(|part| Run::Local(vec![part])),
        Some(Target::Remote(server)) => {
            Ok(Run::Requested(RemoteTally::request_count(cx, server, whole.table_ranges(vec![range]))))
        }
        None => Ok(Run::NotFound(range)),
    };
    let requests: Result<Vec<Run<ShardRange>>, ReadError> =
        table.handle.covering(&whole.range).map(request).collect();
    let each = requests.map_err(|error| read_failed(&error))?.into_iter().map(|shard| {
        let range = match shard {
            Run::Local(parts) => return ShardRange::count(cx, parts),
            Run::Requested(remote) => match remote.count(cx)? {
                Some(count) => return Ok(count),
                None => remote.ranges.into_iter().next().unwrap_or_else(KeyRange::all),
            },
            Run::NotFound(range) => range,
        };
        count(cx, &RowSource { range, ..whole.clone() })
    });
    each.collect()
}

/// The parts of a sequence whose order does not matter: local ones, and ranges by server.
struct ByServer<P> {
    local: Vec<P>,
    remote: BTreeMap<ServerId, Vec<KeyRange>>,
}

impl<P> ByServer<P> {
    fn of(parts: Vec<FoundRange<P>>) -> ByServer<P> {
        let mut units = ByServer { local: Vec::new(), remote: BTreeMap::new() };
        for part in parts {
            match part {
                FoundRange::Local(part) => units.local.push(part),
                FoundRange::Remote { server, range } => units.remote.entry(server).or_default().push(range),
            }
        }
        units
    }
}

/// `ranges` of `rows`, to be located again.
fn reopened(
    cx: &Cx,
    rows: &RowSource,
    ranges: &[KeyRange],
    budget: &mut RetryBudget,
) -> Result<Vec<RowSource>, EvalError> {
    let range = ranges.first().unwrap_or(&rows.range);
    if !budget.wait(cx, &rows.table, range)? {
        return Err(unreadable(range, rows.table.read_mode));
    }
    let table = refreshed(cx, &rows.table, budget)?;
    let source = |range: &KeyRange| RowSource { table: table.clone(), range: range.clone(), ..rows.clone() };
    // Ranges that are in one shard by now are read together.
    Ok(joined_ranges(ranges).iter().map(source).collect())
}

/// Pulls all items to this thread.
fn consume(cx: &Cx, mut items: Box<dyn Items>, pipeline: &Pipeline) -> Result<reql::Value, EvalError> {
    if let Some(endless) = items.endless() {
        return Err(endless.error());
    }
    let env = cx.env();
    let mut tally = pipeline.start();
    while let Some(item) = items.next(&env)? {
        env.check_cancel()?;
        pipeline.push(&mut tally, item, &env)?;
    }
    pipeline.finish(tally)
}

/// Aggregates rows where they are.
fn scan(cx: &Cx, rows: RowSource, pipeline: Pipeline) -> Result<reql::Value, EvalError> {
    let started = cx.node().clock().now();
    let trace = cx.trace_room();
    let note = trace.map(|trace| trace.read(rows.note(cx, pipeline.names())));
    let work = Arc::new(pipeline);
    let all = rows.with_present_index(cx, |rows| match rows.index {
        Some(_) => tally_for::<ShardIndexRange>(cx, rows, &work, &mut RetryBudget::new()),
        None => tally_for::<ShardRange>(cx, rows, &work, &mut RetryBudget::new()),
    })?;
    if let Some((trace, note)) = trace.zip(note) {
        trace.done(note, cx.since(started));
    }
    work.finish(all)
}

/// The partial result of all rows: one of each node or, where the order of the rows matters, one of each run of rows.
fn tally_for<P: LocalRows>(
    cx: &Cx,
    rows: &RowSource,
    work: &Arc<Pipeline>,
    budget: &mut RetryBudget,
) -> Result<Tally, EvalError> {
    let mut all = work.start();
    let request = |server, ranges| RemoteTally::request(cx, server, rows.table_ranges(ranges), work);
    let mut runs = runs(P::find(cx, rows, budget)?, rows.order, request).into_iter();
    while let Some(run) = runs.next() {
        if let Err(error) = add_run(cx, rows, work, budget, run, &mut all) {
            runs.for_each(|run| run.cancel(cx));
            return Err(error);
        }
    }
    Ok(all)
}

fn add_run<P: LocalRows>(
    cx: &Cx,
    rows: &RowSource,
    work: &Arc<Pipeline>,
    budget: &mut RetryBudget,
    run: Run<P>,
    all: &mut Tally,
) -> Result<(), EvalError> {
    let env = cx.closed_env();
    let not_found = match run {
        Run::Local(parts) => return work.merge(all, P::tally(cx, parts, rows.order, work)?, &env),
        Run::Requested(remote) => match remote.tally(cx) {
            Ok(Some(tally)) => return work.merge(all, tally, &env),
            Ok(None) => remote.ranges,
            Err(error) => {
                remote.cancel(cx);
                return Err(error);
            }
        },
        Run::NotFound(range) => vec![range],
    };
    for rows in reopened(cx, rows, &not_found, budget)? {
        let tally = tally_for::<P>(cx, &rows, work, budget)?;
        work.merge(all, tally, &env)?;
    }
    Ok(())
}

/// Consecutive rows with one partial result.
enum Run<P> {
    /// On this node.
    Local(Vec<P>),
    /// On another node; the request is pending.
    Requested(RemoteTally),
    /// No replica is known that can be read.
    NotFound(KeyRange),
}

impl<P> Run<P> {
    fn cancel(&self, cx: &Cx) {
        if let Run::Requested(remote) = self {
            remote.cancel(cx);
        }
    }
}

fn runs<P>(
    parts: Vec<FoundRange<P>>,
    order: KeyOrder,
    request: impl Fn(ServerId, Vec<KeyRange>) -> RemoteTally,
) -> Vec<Run<P>> {
    if order == KeyOrder::Any {
        let ByServer { local, remote } = ByServer::of(parts);
        let remote: Vec<Run<P>> =
            remote.into_iter().map(|(server, ranges)| Run::Requested(request(server, ranges))).collect();
        return std::iter::once(Run::Local(local)).chain(remote).collect();
    }
    let mut runs: Vec<Run<P>> = Vec::new();
    for part in parts {
        match (runs.last_mut(), part) {
            (Some(Run::Local(parts)), FoundRange::Local(part)) => parts.push(part),
            (_, FoundRange::Local(part)) => runs.push(Run::Local(vec![part])),
            (_, FoundRange::Remote { server, range }) => {
                runs.push(Run::Requested(request(server, vec![range])))
            }
        }
    }
    runs
}

/// Splits the parts into scan ranges of about equal size, in the order of the rows.
fn scan_ranges(cx: &Cx, parts: Vec<ShardRange>, direction: Direction) -> Result<Vec<ShardRange>, EvalError> {
    let threads = cx.service.pool.threads().max(1);
    let mut scan_ranges = Vec::new();
    for part in parts {
        scan_ranges
            .extend(cut(part, threads * SCAN_RANGES_PER_THREAD, direction).map_err(|e| read_failed(&e))?);
    }
    Ok(scan_ranges)
}

fn cut(part: ShardRange, most: usize, direction: Direction) -> Result<Vec<ShardRange>, ReadError> {
    let bytes = part.snapshot.bytes_in(&part.range)?;
    let worth = usize::try_from(bytes / SCAN_RANGE_BYTES_MIN).unwrap_or(usize::MAX).min(most);
    if worth < 2 {
        return Ok(vec![part]);
    }
    let mut ranges = part.snapshot.split(&part.range, worth)?;
    if direction == Direction::Descending {
        ranges.reverse();
    }
    let scan_range = |range| ShardRange { range, whole: false, ..part.clone() };
    Ok(ranges.into_iter().map(scan_range).collect())
}

fn push(pipeline: &Pipeline, tally: &mut Tally, row: Datum, env: &Env<'_>) -> Result<(), EvalError> {
    env.check_cancel()?;
    pipeline.push(tally, row, env)
}
