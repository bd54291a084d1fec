//! Terms that need all items of a sequence, carried out where the rows are.
//!
//! The range is cut into pieces of about equal size; each piece is scanned on a thread of the pool
//! with all steps, and their partial results are merged in the order of the pieces. When a function
//! needs more than its arguments the rows come to it instead, one after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datum::{Datum, KeyRange};
use reql::Terminal;
use reql::stream::Items;
use reql::{Env, EvalError};
use reql::{Pipeline, Tally};
use shard::ReadError;
use storage::Direction;

use crate::context::Cx;
use crate::failure::read_failed;
use crate::stream::{IndexPart, KeyOrder, Pipe, RowPart, RowSource, Source};

/// Below this many bytes a range is not worth cutting up.
const PIECE_BYTES_MIN: u64 = 256 << 10;
/// Pieces per thread, so that threads that finish early find more to do.
const PIECES_PER_THREAD: usize = 4;

/// The value of a chain of terms that ends the sequence.
pub(crate) fn gather(cx: &Cx, pipe: Pipe, pipeline: Pipeline) -> Result<reql::Value, EvalError> {
    let pipeline = Pipeline { steps: pipe.steps.into_iter().chain(pipeline.steps).collect(), ..pipeline };
    match pipe.source {
        Source::Rows(rows) if rows.index.is_some() => by_index(cx, rows, pipeline),
        Source::Rows(rows) if is_plain_count(&pipeline) => {
            let count = count(cx, &rows)?;
            Ok(reql::Value::Datum(Datum::Number(count as f64)))
        }
        Source::Rows(rows) if pipeline.is_closed() => scan(cx, &rows, pipeline),
        source => {
            let items = Pipe::of_source(source).open(cx)?;
            walk(cx, items, &pipeline)
        }
    }
}

fn is_plain_count(pipeline: &Pipeline) -> bool {
    pipeline.steps.is_empty() && pipeline.group.is_none() && matches!(pipeline.terminal, Terminal::Count)
}

/// The number of rows: of a whole shard as it is kept, of a part by walking its keys.
fn count(cx: &Cx, rows: &RowSource) -> Result<u64, EvalError> {
    let whole = rows.range == KeyRange::all();
    let parts = rows.parts(cx)?;
    let counts = cx.service.pool.map(parts, move |part: RowPart| match whole {
        true => part.snapshot.count(),
        false => part.snapshot.count_range(&part.range),
    });
    let counts: Result<Vec<u64>, ReadError> = counts.into_iter().collect();
    Ok(counts.map_err(|error| read_failed(&error))?.into_iter().sum())
}

/// Rows that are found by a secondary index.
fn by_index(cx: &Cx, rows: RowSource, pipeline: Pipeline) -> Result<reql::Value, EvalError> {
    let Some(index) = &rows.index else { return Err(EvalError::internal("no index")) };
    let parts = index.parts(cx, &rows.table, rows.order)?;
    if is_plain_count(&pipeline) {
        let counts = cx.service.pool.map(parts, IndexPart::count);
        let counts: Result<Vec<u64>, EvalError> = counts.into_iter().collect();
        return Ok(reql::Value::Datum(Datum::Number(counts?.into_iter().sum::<u64>() as f64)));
    }
    // In order, the rows of several shards must be merged before anything is done with them.
    let merges = rows.order != KeyOrder::Any && parts.len() > 1;
    if merges || !pipeline.is_closed() {
        return walk(cx, rows.open(cx)?, &pipeline);
    }
    let work = Arc::new(pipeline);
    let (shared, shared_work) = (cx.shared()?, work.clone());
    let scan = move |mut part: IndexPart| -> Result<Tally, EvalError> {
        let env = shared.closed_env();
        let mut tally = shared_work.start();
        while let Some(item) = part.next()? {
            push(&shared_work, &mut tally, item, &env)?;
        }
        Ok(tally)
    };
    merged(cx, &work, cx.service.pool.map(parts, scan))
}

/// Items that must come here, one after the other.
fn walk(cx: &Cx, mut items: Box<dyn Items>, pipeline: &Pipeline) -> Result<reql::Value, EvalError> {
    if items.is_infinite() {
        return Err(reql::infinite());
    }
    let env = cx.env();
    let mut tally = pipeline.start();
    while let Some(item) = items.next(&env)? {
        env.check_cancel()?;
        pipeline.push(&mut tally, item, &env)?;
    }
    pipeline.finish(tally)
}

/// Rows that stay where they are.
fn scan(cx: &Cx, rows: &RowSource, pipeline: Pipeline) -> Result<reql::Value, EvalError> {
    let direction = rows.order.direction();
    let pieces = pieces(cx, rows)?;
    let work = Arc::new(pipeline);
    let (shared, shared_work) = (cx.shared()?, work.clone());
    let scan = move |piece: RowPart| scan_piece(&shared, &piece, direction, &shared_work);
    merged(cx, &work, cx.service.pool.map(pieces, scan))
}

fn merged(
    cx: &Cx,
    work: &Pipeline,
    tallies: Vec<Result<Tally, EvalError>>,
) -> Result<reql::Value, EvalError> {
    let env = cx.closed_env();
    let mut all = work.start();
    for tally in tallies {
        work.merge(&mut all, tally?, &env)?;
    }
    work.finish(all)
}

/// The range in pieces of about equal size, in the order of the rows.
fn pieces(cx: &Cx, rows: &RowSource) -> Result<Vec<RowPart>, EvalError> {
    let threads = cx.service.pool.threads().max(1);
    let mut pieces = Vec::new();
    for part in rows.parts(cx)? {
        pieces.extend(
            cut(part, threads * PIECES_PER_THREAD, rows.order.direction()).map_err(|e| read_failed(&e))?,
        );
    }
    Ok(pieces)
}

fn cut(part: RowPart, most: usize, direction: Direction) -> Result<Vec<RowPart>, ReadError> {
    let bytes = part.snapshot.bytes_in(&part.range)?;
    let worth = usize::try_from(bytes / PIECE_BYTES_MIN).unwrap_or(usize::MAX).min(most);
    if worth < 2 {
        return Ok(vec![part]);
    }
    let mut ranges = part.snapshot.split(&part.range, worth)?;
    if direction == Direction::Descending {
        ranges.reverse();
    }
    let snapshot = part.snapshot;
    Ok(ranges.into_iter().map(|range| RowPart { snapshot: snapshot.clone(), range }).collect())
}

fn scan_piece(
    cx: &Cx,
    piece: &RowPart,
    direction: Direction,
    pipeline: &Pipeline,
) -> Result<Tally, EvalError> {
    let env = cx.closed_env();
    let mut tally = pipeline.start();
    let mut scan = piece.snapshot.scan(&piece.range, direction).to_the_end();
    let mut used = None;
    loop {
        let next = match used.take() {
            Some(used) => scan.next_batch_after(used),
            None => scan.next_batch(),
        };
        let Some(batch) = next.map_err(|error| read_failed(&error))? else { return Ok(tally) };
        for i in 0..batch.len() {
            let row = batch.object(i).map_err(|error| read_failed(&error))?;
            push(pipeline, &mut tally, Datum::Object(row), &env)?;
        }
        cx.service.counters().rows_read.fetch_add(batch.len() as u64, Ordering::Relaxed);
        used = Some(batch);
    }
}

fn push(pipeline: &Pipeline, tally: &mut Tally, row: Datum, env: &Env<'_>) -> Result<(), EvalError> {
    env.check_cancel()?;
    pipeline.push(tally, row, env)
}
