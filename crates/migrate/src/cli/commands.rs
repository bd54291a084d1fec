//! Runs a command; its exit code says whether everything is as wanted.

use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde_json::json;

use super::flags::{CheckFlags, CutOverFlags, MigrateArgs, MigrateCommand, RunFlags, output};
use crate::catalog::{self, Scope, read_passwords};
use crate::check::{Check, check};
use crate::cut_over::{CutOver, CutOverOutcome, cut_over};
use crate::error::MigrateError;
use crate::queries::TableName;
use crate::run::{self, Mode, Options, Outcome, facts_of_tables};
use crate::server::Stop;
use crate::state;
use crate::verify::verify;

/// For commands without `--retry-seconds`.
const CHECK_PATIENCE: Duration = Duration::from_secs(60);

/// Runs `rekindle migrate`. The exit code is 1 if something was refused or differs. Fails if the command cannot be carried out.
pub fn run(args: MigrateArgs) -> Result<ExitCode, MigrateError> {
    match args.command {
        None if args.run.verify => compare(&args.run),
        None => move_data(&args.run),
        Some(MigrateCommand::CutOver(flags)) => switch(&flags),
        Some(MigrateCommand::Check(flags)) => differences(&flags),
    }
}

fn move_data(flags: &RunFlags) -> Result<ExitCode, MigrateError> {
    let passwords = flags.new_passwords.as_deref().map(read_passwords).transpose()?.unwrap_or_default();
    let outcome = run::run(&Options {
        source: flags.source.server(flags.shared.patience())?,
        target: flags.target.server(flags.shared.patience())?,
        only: flags.only.clone(),
        mode: match (flags.dry_run, flags.follow) {
            (true, _) => Mode::DryRun,
            (false, true) => Mode::Follow,
            (false, false) => Mode::Copy,
        },
        into_existing: flags.into_existing,
        passwords,
        rate: flags.max_rate,
        readers: usize::from(flags.shared.readers),
        state: flags.shared.state.clone(),
        output: flags.shared.output(),
    })?;
    Ok(match outcome {
        Outcome::Complete => ExitCode::SUCCESS,
        Outcome::Incomplete => ExitCode::FAILURE,
    })
}

fn compare(flags: &RunFlags) -> Result<ExitCode, MigrateError> {
    let source = flags.source.server(flags.shared.patience())?;
    let target = flags.target.server(flags.shared.patience())?;
    let output = flags.shared.output();
    let mut catalog = catalog::read(&mut source.connect()?, Scope::Only(&flags.only))?;
    let names: Vec<TableName> = catalog.tables.iter().map(|table| table.name.clone()).collect();
    let there = catalog::read(&mut target.connect()?, Scope::Tables(&names))?;
    let mut is_equal = true;
    catalog.tables.retain(|table| {
        let why = match there.table(&table.name) {
            None => "missing in the target",
            Some(other) if other.primary_key != table.primary_key => "another primary key in the target",
            Some(_) => return true,
        };
        let line = format!("{}: {why}", table.name);
        output.result("table", &[line], json!({"table": table.name.to_string(), "missing": why}));
        is_equal = false;
        false
    });
    let stop = Stop::default();
    let state = state::read(&flags.shared.state)?;
    let tables = facts_of_tables(&catalog, state.as_ref(), &mut source.line(), &stop)?;
    let readers = usize::from(flags.shared.readers);
    for report in verify(&tables, (&source, &target), readers, &stop, &AtomicU64::new(0))? {
        is_equal &= report.differences + report.changing == 0;
        output.result("table", &report.lines(), report.as_json());
    }
    let summary = if is_equal { "both sides are equal" } else { "the sides differ" };
    output.result("verify", &[summary.to_owned()], json!({"equal": is_equal}));
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn switch(flags: &CutOverFlags) -> Result<ExitCode, MigrateError> {
    let outcome = cut_over(&CutOver {
        source: flags.source.server(flags.shared.patience())?,
        target: flags.target.server(flags.shared.patience())?,
        state: flags.shared.state.clone(),
        readers: usize::from(flags.shared.readers),
        quiet: Duration::from_secs_f64(flags.quiet_seconds),
        wait: Duration::from_secs_f64(flags.wait_seconds),
        output: flags.shared.output(),
    })?;
    Ok(match outcome {
        CutOverOutcome::Switch => ExitCode::SUCCESS,
        CutOverOutcome::Differences | CutOverOutcome::Incomplete => ExitCode::FAILURE,
    })
}

fn differences(flags: &CheckFlags) -> Result<ExitCode, MigrateError> {
    let output = output(flags.json);
    let (findings, queries) = check(&Check {
        source: flags.source.server(CHECK_PATIENCE)?,
        only: flags.only.clone(),
        watch: Duration::from_secs_f64(flags.watch_seconds),
    })?;
    for finding in &findings {
        output.result("difference", &finding.lines(), finding.as_json());
    }
    let summary = format!(
        "{} differences of docs/reference/differences.md touch the indexes, write hooks and {queries} queries that were seen",
        findings.len()
    );
    output.result("check", &[summary], json!({"differences": findings.len(), "queries": queries}));
    Ok(ExitCode::SUCCESS)
}
