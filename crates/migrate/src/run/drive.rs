//! The order of a migration: plan, tables, rows, indexes, users, and hooks last; with `--follow` changes until `cut-over`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use super::monitor::{Monitor, all_following, counts};
use super::options::{Mode, Options, Outcome};
use super::prepare::{enter, known, tables};
use crate::catalog::{
    self, Catalog, HookOutcome, Plan, Request, Scope, create_tables, make_hooks, make_indexes, make_users,
    wait_for_indexes,
};
use crate::copy::{Readers, run_readers};
use crate::error::{InputError, MigrateError};
use crate::follow::{Followers, lag};
use crate::queries::TableName;
use crate::server::{Line, Stop};
use crate::state::{self, State, StateDirectory};
use crate::status::{self, FinishAnswer, FinishRequest};
use crate::table::Table;

const LOOK: Duration = Duration::from_millis(250);

/// Runs a migration. Fails if the plan is refused, or when a side is lost for longer than its patience; the progress is stored, and
/// the next run goes on from there.
pub fn run(options: &Options) -> Result<Outcome, MigrateError> {
    let source = catalog::read(&mut options.source.connect()?, Scope::Only(&options.only))?;
    let wanted: Vec<TableName> = source.tables.iter().map(|table| table.name.clone()).collect();
    let target = catalog::read(&mut options.target.connect()?, Scope::Tables(&wanted))?;
    let addresses = (options.source.endpoint.address(), options.target.endpoint.address());
    if options.mode == Mode::DryRun {
        let state = state::read(&options.state)?.unwrap_or_default();
        state.check_open(&options.state)?;
        return show_plan(options, &make_plan(options, &source, &target, &state)).map(|()| Outcome::Complete);
    }
    let directory = StateDirectory::open(&options.state)?;
    let mut state = directory.load(&addresses.0, &addresses.1)?.unwrap_or_default();
    state.check_open(directory.path())?;
    (state.source, state.target) = addresses;
    let plan = make_plan(options, &source, &target, &state);
    show_plan(options, &plan)?;
    status::clear(directory.path())?;
    enter(&plan, &mut state)?;
    state.only = options.only.iter().map(ToString::to_string).collect();
    state.parts = catalog::parts(&source, !options.only.is_empty());
    directory.save(&state)?;
    let stop = Stop::default();
    let (mut from, mut to) = (options.source.line(), options.target.line());
    for (name, id) in create_tables(&mut to, &stop, &plan)? {
        if let Some(table) = state.tables.get_mut(&name.to_string()) {
            table.target_id = id;
        }
    }
    directory.save(&state)?;
    let tables = tables(options, &plan, &target, &state, (&mut from, &stop))?;
    let rest_made = AtomicBool::new(false);
    let migration = Migration { options, plan: &plan, tables: &tables, stop: &stop, rest_made: &rest_made };
    migration.carry_out(&directory, &Mutex::new(state), &mut to)
}

fn make_plan(options: &Options, source: &Catalog, target: &Catalog, state: &State) -> Plan {
    catalog::plan(Request {
        source,
        target,
        known: &known(state),
        into_existing: options.into_existing,
        is_part: !options.only.is_empty(),
        passwords: &options.passwords,
    })
}

/// Shows the plan. Fails if something in it is refused.
fn show_plan(options: &Options, plan: &Plan) -> Result<(), MigrateError> {
    options.output.result("plan", &catalog::lines(plan), catalog::as_json(plan));
    match plan.refusals.len() {
        0 => Ok(()),
        count => {
            Err(InputError::new(format!("nothing was copied: {count} reasons are listed above (`refused`)"))
                .into())
        }
    }
}

struct Migration<'a> {
    options: &'a Options,
    plan: &'a Plan,
    tables: &'a [Arc<Table>],
    stop: &'a Stop,
    /// Whether indexes, users and permissions are made.
    rest_made: &'a AtomicBool,
}

impl Migration<'_> {
    fn carry_out(
        &self,
        directory: &StateDirectory,
        state: &Mutex<State>,
        to: &mut Line,
    ) -> Result<Outcome, MigrateError> {
        let follows = self.options.mode == Mode::Follow;
        let were_complete: Vec<bool> = self.tables.iter().map(|table| table.gate().is_complete()).collect();
        let over = Stop::default();
        let monitor = Monitor {
            tables: self.tables,
            directory,
            state,
            output: self.options.output,
            follows,
            rest_made: self.rest_made,
            over: &over,
        };
        let (outcome, monitored) = thread::scope(|scope| {
            let monitoring = scope.spawn(|| monitor.run().inspect_err(|_| self.stop.request()));
            let outcome = match follows {
                true => self.follow(directory, to),
                false => self.copy(to),
            };
            over.request();
            let monitored = monitoring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (outcome, monitored)
        });
        monitored?;
        let mut troubles = outcome?;
        status::clear(directory.path())?;
        troubles.extend(self.refused_rows());
        self.summarize(&were_complete, &troubles)
    }

    fn readers(&self, stays: bool) -> Readers {
        Readers {
            count: self.options.readers,
            source: self.options.source.clone(),
            target: self.options.target.clone(),
            rate: self.options.rate,
            stays,
        }
    }

    /// Copies all rows, then makes the rest. Returns the refusals.
    fn copy(&self, to: &mut Line) -> Result<Vec<String>, MigrateError> {
        run_readers(&self.readers(false), self.tables, self.stop)?;
        let mut troubles = self.make_rest(to)?;
        let hooks: Vec<_> = self
            .plan
            .tables
            .iter()
            .filter_map(|table| Some((table.facts.name.clone(), table.facts.hook.clone()?)))
            .collect();
        for (name, outcome) in make_hooks(to, self.stop, &hooks)? {
            if let HookOutcome::Refused(why) = outcome {
                troubles.push(format!("write hook of {name}: {why}"));
            }
        }
        Ok(troubles)
    }

    /// Copies all rows beside open feeds, makes the rest but the hooks, and follows until the end is requested and nothing comes.
    fn follow(&self, directory: &StateDirectory, to: &mut Line) -> Result<Vec<String>, MigrateError> {
        thread::scope(|scope| {
            let reading = scope.spawn(|| run_readers(&self.readers(true), self.tables, self.stop));
            let outcome = self.until_agreed(directory, to);
            self.stop.request();
            let read = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            read.and(outcome)
        })
    }

    /// Follows until a request to end finds that no change came since.
    fn until_agreed(&self, directory: &StateDirectory, to: &mut Line) -> Result<Vec<String>, MigrateError> {
        let (source, target) = (&self.options.source, &self.options.target);
        let mut troubles = Vec::new();
        loop {
            let followers = Followers::start(self.tables, source, target, self.stop)?;
            let outcome = self.until_requested(directory, to, &mut troubles);
            if !matches!(outcome, Ok(Some(_))) {
                self.stop.request();
            }
            let was_following = all_following(self.tables);
            followers.end()?;
            let Some(request) = outcome? else { return Ok(troubles) };
            let (changes, losses) = counts(self.tables);
            let level = was_following && all_following(self.tables) && lag(self.tables) == 0;
            let answer = FinishAnswer { changes, losses, level };
            status::answer_finish(directory.path(), &answer)?;
            if answer.agrees(&request) {
                return Ok(troubles);
            }
            // Changes that come before the feeds are open again are found by comparing.
            self.tables.iter().for_each(|table| table.gate().feed_ended());
            self.options
                .output
                .say("the cut-over asked for the end, but changes still came: the source is followed on");
        }
    }

    /// The request to end. `None` if another thread has failed.
    fn until_requested(
        &self,
        directory: &StateDirectory,
        to: &mut Line,
        troubles: &mut Vec<String>,
    ) -> Result<Option<FinishRequest>, MigrateError> {
        while !self.stop.is_requested() && !self.tables.iter().all(|table| table.gate().is_complete()) {
            self.stop.pause(LOOK);
        }
        if self.stop.is_requested() {
            return Ok(None);
        }
        if !self.rest_made.load(Ordering::Acquire) {
            *troubles = self.make_rest(to)?;
            self.rest_made.store(true, Ordering::Release);
            self.options.output.say(
                "all rows are copied; changes are followed until `rekindle migrate cut-over` (with the same --state) ends this",
            );
        }
        while !self.stop.is_requested() {
            if let Some(request) = status::finish_request(directory.path()) {
                return Ok(Some(request));
            }
            self.stop.pause(LOOK);
        }
        Ok(None)
    }

    /// Makes indexes, users and permissions. Returns the refusals.
    fn make_rest(&self, to: &mut Line) -> Result<Vec<String>, MigrateError> {
        let mut troubles = make_indexes(to, self.stop, self.plan)?;
        let names: Vec<TableName> = self.plan.tables.iter().map(|table| table.facts.name.clone()).collect();
        let output = self.options.output;
        wait_for_indexes(to, self.stop, &names, |share| {
            output.say(&format!("indexes are built: {:.0} %", share * 100.0));
        })?;
        troubles.extend(make_users(to, self.stop, self.plan)?);
        Ok(troubles)
    }

    fn refused_rows(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for table in self.tables {
            let (count, named) = (table.done.refused.load(Ordering::Relaxed), table.refused_rows());
            let name = &table.facts.name;
            lines.extend(named.iter().map(|row| format!("{name}: row {} was refused: {}", row.key, row.why)));
            if count > named.len() as u64 {
                lines.push(format!("{name}: {count} rows were refused in all, in this run and before"));
            }
        }
        lines
    }

    /// `were_complete`: the tables that had no rows left to copy when the run began.
    fn summarize(&self, were_complete: &[bool], troubles: &[String]) -> Result<Outcome, MigrateError> {
        let mut lines = Vec::new();
        let mut objects = Vec::new();
        for (table, was_complete) in self.tables.iter().zip(were_complete) {
            let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
            let (rows, bytes) = (load(&table.done.rows), load(&table.done.bytes));
            let (mended, refused) = (load(&table.done.mended), load(&table.done.refused));
            let counts = table.gate().counts();
            let name = table.facts.name.to_string();
            lines.push(match was_complete {
                true => format!("{name}: complete already, with {rows} rows; nothing was copied again"),
                false => format!(
                    "{name}: {rows} rows copied, {:.1} MB; {} changes followed, {mended} rows mended, {refused} refused",
                    bytes as f64 / 1e6,
                    counts.settled
                ),
            });
            objects.push(json!({
                "table": name, "rows": rows, "bytes": bytes, "changes": counts.settled, "losses": counts.losses,
                "mended": mended, "refused": refused, "was_complete": was_complete,
            }));
        }
        if were_complete.contains(&true) {
            lines.push(
                "what is complete is not copied again with this --state: compare with --verify, repair and go on with --follow, or give \
                 another --state"
                    .to_owned(),
            );
        }
        lines.extend(troubles.iter().map(|trouble| format!("not copied: {trouble}")));
        self.options.output.result("done", &lines, json!({"tables": objects, "not_copied": troubles}));
        Ok(if troubles.is_empty() { Outcome::Complete } else { Outcome::Incomplete })
    }
}
