//! `rekindle migrate cut-over`: says when the application may use the target.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::catalog::{self, Catalog, HookOutcome, Scope, make_hooks, wait_for_indexes};
use crate::error::{InputError, MigrateError};
use crate::only::Only;
use crate::queries::TableName;
use crate::report::Output;
use crate::run::facts_of_tables;
use crate::server::{Server, Stop};
use crate::state::{self, State, StateDirectory};
use crate::status::{self, FinishAnswer, FinishRequest, Status};
use crate::verify::{TableReport, verify};

/// A status that does not change within this time belongs to a migration that has ended.
const BEAT_MAX: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);
/// The migration answers the request to end within this time.
const FINISH_MAX: Duration = Duration::from_secs(60);

/// The arguments.
#[derive(Clone, Debug)]
pub struct CutOver {
    pub source: Server,
    pub target: Server,
    pub state: PathBuf,
    pub readers: usize,
    /// How long no change must have come.
    pub quiet: Duration,
    /// How long to wait for that.
    pub wait: Duration,
    pub output: Output,
}

/// How a cut-over ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutOverOutcome {
    /// Both sides are equal, and the source is not followed any more.
    Switch,
    /// They are, but for hooks that the target refused, and that are named.
    Incomplete,
    /// They are not; the source is still followed.
    Differences,
}

/// Waits for a lag of zero and a quiet source, compares both sides, sets hooks, and ends the migration.
///
/// Fails, and changes nothing, if no migration follows the source, if it lags, if writes still come, or if the
/// source has got tables, indexes or users that the migration does not know.
pub fn cut_over(options: &CutOver) -> Result<CutOverOutcome, MigrateError> {
    let stop = Stop::default();
    let state = state::read(&options.state)?.ok_or_else(|| not_running(options))?;
    check_servers(options, &state)?;
    state.check_open(&options.state)?;
    let only = state.only.iter().map(|text| text.parse()).collect::<Result<Vec<Only>, _>>()?;
    let before = quiet(options, &stop)?;
    let catalog = source_catalog(options, &state, &only, &stop)?;
    let names: Vec<TableName> = catalog.tables.iter().map(|table| table.name.clone()).collect();
    wait_for_indexes(&mut options.target.line(), &stop, &names, |share| {
        options.output.say(&format!("indexes are built: {:.0} %", share * 100.0));
    })?;
    options.output.say("no change came for a while: both sides are compared");
    let reports = compare(options, &catalog, &state, &stop)?;
    for report in &reports {
        options.output.result("table", &report.lines(), report.as_json());
    }
    if reports.iter().any(|report| report.differences + report.changing > 0) {
        options.output.result(
            "cut_over",
            &["the sides differ: do not switch; the source is still followed. To mend the rows, end `rekindle migrate --follow` and \
               start it again with this --state"
                .to_owned()],
            json!({"switch": false}),
        );
        return Ok(CutOverOutcome::Differences);
    }
    check_unchanged(options, &before, &stop)?;
    let catalog = source_catalog(options, &state, &only, &stop)?;
    end_migration(options, &before, &stop)?;
    let refused = close(options, &catalog, &stop)?;
    Ok(say_switch(options, &dropped(&state, &catalog), &refused))
}

/// The source's catalog now. Fails if it has more than when the migration began.
fn source_catalog(
    options: &CutOver,
    state: &State,
    only: &[Only],
    stop: &Stop,
) -> Result<Catalog, MigrateError> {
    let catalog = options.source.line().run(stop, |from| catalog::read(from, Scope::Present(only)))?;
    let mut added = catalog::added(&state.parts, &catalog::parts(&catalog, !only.is_empty()));
    added.extend(left_out(state, &catalog));
    match added.is_empty() {
        true => Ok(catalog),
        false => Err(InputError::new(format!(
            "not yet: the source has got more since the migration began, which is not copied: {}. End `rekindle migrate --follow`, run \
             `rekindle migrate --follow` again with this --state, and then this",
            added.join(", ")
        ))
        .into()),
    }
}

/// The tables of the migration that the source has no more.
fn dropped(state: &State, catalog: &Catalog) -> Vec<String> {
    state.tables.keys().filter(|name| !has_name(catalog, name)).cloned().collect()
}

/// The tables of the migration that its last run did not follow, because of another `--only`.
fn left_out(state: &State, catalog: &Catalog) -> Vec<String> {
    let is_followed = |name: &String| catalog.tables.iter().any(|table| table.name.to_string() == *name);
    let names = state.tables.keys().filter(|name| has_name(catalog, name) && !is_followed(name));
    names.map(|name| format!("table {name} (left out by --only in the last run)")).collect()
}

/// Whether the source has a table with this `db.table`.
fn has_name(catalog: &Catalog, name: &str) -> bool {
    let mut dbs = catalog.names.iter();
    dbs.any(|(db, tables)| tables.iter().any(|table| name == format!("{db}.{table}")))
}

fn say_switch(options: &CutOver, dropped: &[String], refused: &[String]) -> CutOverOutcome {
    let mut lines: Vec<String> = dropped
        .iter()
        .map(|name| {
            format!("{name}: the source has dropped it; the target keeps its copy, which was not compared")
        })
        .collect();
    lines.extend(refused.iter().map(|why| format!("not copied: {why}")));
    lines.push(format!(
        "switch now: let the application use {}; writes to {} are not copied any more",
        options.target.endpoint.address(),
        options.source.endpoint.address()
    ));
    let object = json!({"switch": true, "not_copied": refused, "dropped": dropped});
    options.output.result("cut_over", &lines, object);
    match refused.is_empty() {
        true => CutOverOutcome::Switch,
        false => CutOverOutcome::Incomplete,
    }
}

fn check_servers(options: &CutOver, state: &State) -> Result<(), InputError> {
    let given = (options.source.endpoint.address(), options.target.endpoint.address());
    match given == (state.source.clone(), state.target.clone()) {
        true => Ok(()),
        false => Err(InputError::new(format!(
            "{}: this is the state of a migration from {} to {}: give the same --from and --to",
            options.state.display(),
            state.source,
            state.target
        ))),
    }
}

fn not_running(options: &CutOver) -> InputError {
    InputError::new(format!(
        "no migration with --follow uses {}: start `rekindle migrate --follow` with this --state, and let it run beside this command",
        options.state.display()
    ))
}

/// Waits until the status changes, so that it is one of a process that runs.
fn live_status(options: &CutOver, stop: &Stop) -> Result<Status, MigrateError> {
    let (mut first, began): (Option<Status>, _) = (None, Instant::now());
    while began.elapsed() < BEAT_MAX {
        match (&first, status::read(&options.state)) {
            (Some(first), Some(now)) if now.beat != first.beat => return Ok(now),
            (None, now) => first = now,
            _ => {}
        }
        stop.pause(LOOK);
    }
    Err(not_running(options).into())
}

/// The status once the lag is zero and no change came for a while.
fn quiet(options: &CutOver, stop: &Stop) -> Result<Status, MigrateError> {
    let began = Instant::now();
    let first = live_status(options, stop)?;
    loop {
        let now = live_status(options, stop)?;
        if now.following && now.lag == 0 && Duration::from_millis(now.quiet_ms) >= options.quiet {
            return Ok(now);
        }
        if began.elapsed() < options.wait {
            continue;
        }
        return Err(InputError::new(match (now.following, now.lag) {
            (false, _) => "not yet: rows are still copied or compared; see the progress of the migration".to_owned(),
            (true, 0) => format!(
                "not yet: {} changes came in the last {:.0} s, the last one in {}. Stop the application's writes, or take the \
                 permission `write` from its users (r.grant(user, {{write: false}})), and run this again",
                now.changes - first.changes,
                began.elapsed().as_secs_f64(),
                now.last_table
            ),
            (true, lag) => format!("not yet: the target lags by {lag} changes; wait, or stop the application's writes"),
        })
        .into());
    }
}

fn compare(
    options: &CutOver,
    catalog: &Catalog,
    state: &State,
    stop: &Stop,
) -> Result<Vec<TableReport>, MigrateError> {
    let tables = facts_of_tables(catalog, Some(state), &mut options.source.line(), stop)?;
    verify(&tables, (&options.source, &options.target), options.readers, stop, &AtomicU64::new(0))
}

/// Nothing may have come while both sides were compared.
fn check_unchanged(options: &CutOver, before: &Status, stop: &Stop) -> Result<(), MigrateError> {
    let now = live_status(options, stop)?;
    let came = now.changes - before.changes.min(now.changes);
    if came == 0
        && now.losses == before.losses
        && now.process == before.process
        && now.lag == 0
        && now.following
    {
        return Ok(());
    }
    Err(writes_come(came).into())
}

fn writes_come(changes: u64) -> InputError {
    InputError::new(format!(
        "not yet: while both sides were compared {changes} changes came, or a feed ended. The source is still followed: stop the \
         application's writes, and run this again"
    ))
}

/// Ends the migration. Fails, and it follows on, if something came since `before`.
fn end_migration(options: &CutOver, before: &Status, stop: &Stop) -> Result<(), MigrateError> {
    let request = FinishRequest { changes: before.changes, losses: before.losses };
    status::request_finish(&options.state, &request)?;
    let began = Instant::now();
    loop {
        match status::finish_answer(&options.state) {
            Some(answer) if answer.agrees(&request) => return Ok(()),
            Some(FinishAnswer { changes, .. }) => {
                return Err(writes_come(changes.saturating_sub(request.changes)).into());
            }
            None if began.elapsed() > FINISH_MAX => {
                status::withdraw_finish(&options.state)?;
                return Err(InputError::new("the migration does not end: end it, and run this again").into());
            }
            None => stop.pause(LOOK),
        }
    }
}

/// Sets hooks once the migration has ended, and closes the state. Returns the refusals.
fn close(options: &CutOver, catalog: &Catalog, stop: &Stop) -> Result<Vec<String>, MigrateError> {
    let (directory, state) = ended(options, stop)?;
    // The writer of changes has ended: a hook changes no copied row.
    let tables = catalog.tables.iter();
    let hooks: Vec<_> = tables.filter_map(|table| Some((table.name.clone(), table.hook.clone()?))).collect();
    let outcomes = make_hooks(&mut options.target.line(), stop, &hooks)?;
    let refused = outcomes.into_iter().filter_map(|(name, outcome)| match outcome {
        HookOutcome::Set => None,
        HookOutcome::Refused(why) => Some(format!("write hook of {name}: {why}")),
    });
    directory.save(&State { switched: true, ..state })?;
    Ok(refused.collect())
}

/// The state, once the migration has ended. Fails if it does not.
fn ended(options: &CutOver, stop: &Stop) -> Result<(StateDirectory, State), MigrateError> {
    let began = Instant::now();
    loop {
        match StateDirectory::open(&options.state) {
            Err(error) if began.elapsed() > FINISH_MAX => return Err(error),
            Err(_) => stop.pause(LOOK),
            Ok(directory) => {
                let state = state::read(&options.state)?.unwrap_or_default();
                return Ok((directory, state));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::TableState;

    #[test]
    fn tables_that_the_source_has_no_more_are_found() {
        let tables = ["a.b", "a.c"].map(|name| (name.to_owned(), TableState::default())).into();
        let state = State { tables, ..State::default() };
        let names = vec![("a".to_owned(), vec!["c".to_owned()])];
        let catalog = Catalog { names, ..Catalog::default() };
        assert_eq!(dropped(&state, &catalog), ["a.b"]);
        assert_eq!(left_out(&state, &catalog), ["table a.c (left out by --only in the last run)"]);
    }
}
