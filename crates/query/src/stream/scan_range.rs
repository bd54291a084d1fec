//! Scans one range of rows through a pipeline on one thread.

use datum::Datum;
use datum::row::RowView;
use reql::{Direct, Env, EvalError, Pipeline, Pushed, Tally};
use storage::{Direction, RowScan};

use super::ShardRange;
use crate::context::{Cx, RowCounter};
use crate::table::read_failed;

/// Rows between two checks for cancellation, where a row takes nanoseconds.
const ROWS_PER_CANCEL_CHECK: usize = 64;

/// The partial result of the rows of `range`.
pub(crate) fn scan(
    cx: &Cx,
    range: &ShardRange,
    direction: Direction,
    pipeline: &Pipeline,
) -> Result<Tally, EvalError> {
    let env = cx.closed_env();
    let (seen, started) = (RowCounter::of_shard(cx, &range.activity), cx.node().clock().now());
    let mut tally = pipeline.start();
    let rows = range.snapshot.scan(&range.range, direction).to_the_end();
    let rows = match Direct::of(pipeline, &env) {
        Some(direct) => in_place(rows, direct, pipeline, &mut tally, &env, &seen)?,
        None => in_batches(rows, pipeline, &mut tally, &env, &seen)?,
    };
    if let Some(trace) = cx.trace_room() {
        trace.scan_range(cx.since(started), rows);
    }
    Ok(tally)
}

/// Evaluates rows in the engine's memory. A row that cannot be evaluated there is copied; once most rows were copied, all
/// further ones are. Returns the number of rows.
fn in_place(
    mut scan: RowScan,
    mut direct: Direct,
    pipeline: &Pipeline,
    tally: &mut Tally,
    env: &Env<'_>,
    seen: &RowCounter,
) -> Result<u64, EvalError> {
    let mut rows = 0;
    loop {
        env.check_cancel()?;
        let (mut count, mut copied) = (0, 0);
        while count < ROWS_PER_CANCEL_CHECK
            && let Some(row) = scan.next_view().map_err(|error| read_failed(&error))?
        {
            copied += usize::from(!push(&mut direct, pipeline, tally, &row, env)?);
            count += 1;
        }
        rows += count as u64;
        seen.rows(count);
        if count < ROWS_PER_CANCEL_CHECK {
            direct.finish(pipeline, tally, env)?;
            return Ok(rows);
        }
        if let Some(offset) = direct.first_field_offset() {
            scan.prefetch_row_at(offset);
        }
        if copied > ROWS_PER_CANCEL_CHECK / 2 {
            direct.finish(pipeline, tally, env)?;
            return Ok(rows + in_batches(scan, pipeline, tally, env, seen)?);
        }
    }
}

/// Returns whether the row was evaluated in place.
fn push(
    direct: &mut Direct,
    pipeline: &Pipeline,
    tally: &mut Tally,
    row: &RowView<'_>,
    env: &Env<'_>,
) -> Result<bool, EvalError> {
    match direct.push(tally, row, env)? {
        Pushed::Done => Ok(true),
        Pushed::Remains(step) => {
            env.check_cancel()?;
            pipeline.push_from(step, tally, Datum::Object(row.to_object()), env)?;
            Ok(step > 0)
        }
    }
}

/// Copies rows in batches, whose items are slices of the batch. Returns the number of rows.
fn in_batches(
    mut scan: RowScan,
    pipeline: &Pipeline,
    tally: &mut Tally,
    env: &Env<'_>,
    seen: &RowCounter,
) -> Result<u64, EvalError> {
    let (mut rows, mut used) = (0, None);
    loop {
        let next = match used.take() {
            Some(used) => scan.next_batch_after(used),
            None => scan.next_batch(),
        };
        let Some(batch) = next.map_err(|error| read_failed(&error))? else { return Ok(rows) };
        for i in 0..batch.len() {
            env.check_cancel()?;
            let row = batch.object(i).map_err(|error| read_failed(&error))?;
            pipeline.push(tally, Datum::Object(row), env)?;
        }
        rows += batch.len() as u64;
        seen.rows(batch.len());
        used = Some(batch);
    }
}
