//! The results of `bench wiki`: figures of the load and of the tests, beside the published ones.

use std::time::SystemTime;

use serde_json::json;

use super::WikiArgs;
use super::server::{Memory, Settling};
use crate::assemble::{Extras, RunDescription, assemble};
use crate::drive::session::{Driven, Plan};
use crate::flags::describe_plan;
use crate::result::{CheckOutcome, Figure, RunResult};
use crate::shapes::quiescence::Quiescence;
use crate::sut::SystemUnderTest;
use crate::wiki::loading;
use crate::wiki::published::{self, PublishedEngine};
use crate::wiki::reading::{self, BATCH_ROWS, Test};
use crate::wiki::rows::BrokenLines;

/// The marks of this machine beside the load.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// The share that the documents take as a whole with xz -9.
    pub xz_share: Option<f64>,
    /// A sentence for each mark that was not taken, with the reason.
    pub notes: Vec<String>,
}

/// A test that has ended.
pub(super) struct TestOutcome<'a> {
    pub test: Test,
    pub memory: Memory<'a>,
    /// Random reads that the disk can do each second, or why that is unknown; only beside tests that read from it.
    pub disk: Option<&'a Result<f64, String>>,
    pub driven: Driven,
}

/// Bytes that the load read and the server stored.
pub(super) struct Sizes {
    /// The JSON of all documents.
    pub json_bytes: u64,
    /// The lines of the file that were rows.
    pub line_bytes: u64,
    /// The data folder after the load.
    pub folder_bytes: u64,
    /// The part of it that is the log.
    pub log_bytes: u64,
    /// Written to disk by the server until it had stopped, as the kernel counts it.
    pub written_bytes: Option<u64>,
    /// Written as the server counts it, by reason, until it was quiet.
    pub written_by_reason: Vec<(&'static str, f64)>,
    /// The share that the documents take in blocks of 16 KB with zstd -3.
    pub block_share: Option<f64>,
}

/// The bytes of all documents, which sizes are shares of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DocumentBytes {
    /// The text that the server gets.
    pub json: u64,
    /// The lines of the file, which the published sizes are shares of.
    pub lines: u64,
}

/// The sizes of a table that was made an archive.
pub(super) struct ArchiveSizes {
    pub documents: DocumentBytes,
    /// The data folder without the log.
    pub folder_bytes: u64,
    /// The time until its rows had settled.
    pub settling: Settling,
}

/// Loaded and broken lines, with sizes.
pub(super) struct LoadOutcome {
    pub rows: u64,
    pub acknowledged: u64,
    pub broken: BrokenLines,
    pub sizes: Sizes,
    pub quiet: Quiescence,
    pub settling: Settling,
    pub marks: Marks,
}

pub(super) fn load_result(
    args: &WikiArgs,
    started: SystemTime,
    plan: &Plan,
    sut: &SystemUnderTest,
    driven: Driven,
    outcome: &LoadOutcome,
) -> RunResult {
    let acknowledged = CheckOutcome {
        name: "rows acknowledged".to_owned(),
        expected: outcome.rows as f64,
        found: outcome.acknowledged as f64,
        ok: outcome.rows == outcome.acknowledged,
        source: "the rows of the file".to_owned(),
    };
    let extras = Extras {
        units: vec![("documents", outcome.acknowledged), ("bytes", outcome.sizes.json_bytes)],
        write_names: loading::NAMES,
        checks: vec![acknowledged],
        ..Extras::default()
    };
    let mut about = about(args, "load", started, plan);
    about.notes.extend(load_notes(outcome));
    let mut result = assemble(about, plan, sut, loading::NAMES, driven, extras);
    let peak = result.servers.first().and_then(|server| server.peak_memory_bytes);
    result.figures = load_figures(&outcome.sizes, outcome.marks.xz_share, peak);
    result.figures.extend(settling_figures(outcome.settling));
    result
}

fn load_notes(outcome: &LoadOutcome) -> Vec<String> {
    let mut notes = Vec::new();
    for (kind, count) in &outcome.broken.counts {
        notes.push(format!("{count} lines left out: {kind}"));
    }
    notes.extend(outcome.broken.named.iter().cloned());
    notes.extend(outcome.marks.notes.iter().cloned());
    match outcome.quiet {
        Quiescence::Reached => {}
        Quiescence::Busy => {
            notes.push("the server was still merging when its folder was measured".to_owned())
        }
        Quiescence::Unknown => {
            notes.push("the server does not say whether it works in the background".to_owned());
        }
    }
    notes.extend(settling_note(outcome.settling));
    notes
}

fn settling_note(settling: Settling) -> Option<String> {
    (settling.outcome == Quiescence::Busy)
        .then(|| "the rows had not settled when the folder was measured".to_owned())
}

/// Nothing for a server whose rows do not settle.
fn settling_figures(settling: Settling) -> Vec<Figure> {
    if settling.outcome == Quiescence::Unknown {
        return Vec::new();
    }
    vec![
        figure("until the rows had settled", Some(settling.seconds), "s"),
        figure("processor time until the rows had settled", settling.cpu_seconds, "s"),
    ]
}

/// The result of the test `read` on a table that was made an archive, with its size.
pub(super) fn archive_result(mut result: RunResult, sizes: &ArchiveSizes) -> RunResult {
    let percent = |whole: u64| (whole > 0).then(|| sizes.folder_bytes as f64 / whole as f64 * 100.0);
    "Articles, read from an archive".clone_into(&mut result.name);
    result.settings.insert("compression".to_owned(), json!("archive"));
    result.notes.extend(settling_note(sizes.settling));
    let mut figures = vec![
        figure("data folder without the log", Some(sizes.folder_bytes as f64 / 1e6), "MB"),
        figure("data folder without the log, of the JSON", percent(sizes.documents.json), "%"),
        figure("data folder without the log, of the lines", percent(sizes.documents.lines), "%"),
    ];
    figures.extend(settling_figures(sizes.settling));
    figures.append(&mut result.figures);
    result.figures = figures;
    result
}

fn load_figures(sizes: &Sizes, xz_share: Option<f64>, peak_memory_bytes: Option<u64>) -> Vec<Figure> {
    let (json, lines) = (sizes.json_bytes as f64, sizes.line_bytes as f64);
    let (folder, rest) = (sizes.folder_bytes as f64, (sizes.folder_bytes - sizes.log_bytes) as f64);
    let megabytes = |bytes: f64| Some(bytes / 1e6);
    let percent = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole * 100.0);
    let mut figures = vec![
        figure("JSON of the documents", megabytes(json), "MB"),
        figure("lines of the file", megabytes(lines), "MB"),
        figure("data folder", megabytes(folder), "MB"),
        figure("data folder without the log", megabytes(rest), "MB"),
        figure("data folder without the log, of the JSON", percent(rest, json), "%"),
        figure("data folder without the log, of the lines", percent(rest, lines), "%"),
        figure("data folder, of the lines", percent(folder, lines), "%"),
        figure("zstd -3 in blocks of 16 KB, of the JSON", sizes.block_share.map(|share| share * 100.0), "%"),
        figure("xz -9 of all, of the JSON", xz_share.map(|share| share * 100.0), "%"),
        figure(
            "written to disk for each byte of JSON",
            sizes.written_bytes.map(|bytes| bytes as f64 / json),
            "",
        ),
        figure("peak memory of the load", peak_memory_bytes.and_then(|bytes| megabytes(bytes as f64)), "MB"),
    ];
    figures.extend(sizes.written_by_reason.iter().map(|(reason, bytes)| {
        figure(&format!("written for each byte of JSON: {reason}"), Some(bytes / json), "")
    }));
    figures.extend(published::engines().iter().map(|engine| {
        figure(&format!("published, of the lines: {}", engine.name), Some(engine.disk_percent), "%")
    }));
    figures
}

pub(super) fn test_result(
    args: &WikiArgs,
    started: SystemTime,
    plan: &Plan,
    sut: &SystemUnderTest,
    outcome: TestOutcome<'_>,
) -> RunResult {
    let TestOutcome { test, memory, disk, driven } = outcome;
    let documents = match test {
        Test::BatchRead => driven.totals.ok * BATCH_ROWS as u64,
        Test::Read | Test::ReadWrite => driven.totals.ok,
    };
    let extras =
        Extras { units: vec![("documents", documents)], write_names: &["WRITE"], ..Extras::default() };
    let mut about = about(args, test.name(), started, plan);
    about.settings.insert("test".to_owned(), json!(test.name()));
    if let Memory::Limited { megabytes, .. } = memory {
        about.name = format!("{} with {megabytes} MB", about.name);
        about.settings.insert("memory".to_owned(), json!(megabytes));
    }
    about.notes.extend(disk.and_then(|disk| disk.as_ref().err().cloned()));
    let mut result = assemble(about, plan, sut, reading::NAMES, driven, extras);
    result.figures = memory_figures(memory, &result);
    if let Some(Ok(disk)) = disk {
        result.figures.extend(disk_figures(test, *disk, &result));
    }
    result
        .figures
        .extend(published::engines().iter().flat_map(|engine| published_figures(engine, test, memory)));
    result
}

fn memory_figures(memory: Memory<'_>, result: &RunResult) -> Vec<Figure> {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let process = result.servers.first().and_then(|server| server.peak_memory_bytes);
    let mut figures = vec![figure("peak memory of the process", process.map(megabytes), "MB")];
    if let Some(group) = memory.group() {
        let all = group.peak_bytes().map(megabytes);
        figures.push(figure("peak memory with the page cache", all, "MB"));
    }
    figures
}

/// The disk's own rate in random reads a second, and how near the test has come to it.
fn disk_figures(test: Test, disk: f64, result: &RunResult) -> Vec<Figure> {
    let documents = result.throughput.units.first().map(|unit| (unit.total as f64, unit.per_second));
    let read = result.servers.first().and_then(|server| server.read_bytes).map(|bytes| bytes as f64);
    let each = read.zip(documents).filter(|(_, (total, _))| *total > 0.0);
    let mut figures = vec![
        figure("the disk's own random reads of 4 KB", Some(disk), "reads/s"),
        figure("read from disk for each document", each.map(|(bytes, (total, _))| bytes / total / 1e3), "KB"),
    ];
    // A read_write test does not only read.
    if test != Test::ReadWrite {
        let share = documents.map(|(_, per_second)| per_second / disk * 100.0);
        figures.push(figure("documents, of the disk's own random reads", share, "%"));
    }
    figures
}

fn published_figures(engine: &PublishedEngine, test: Test, memory: Memory<'_>) -> [Figure; 2] {
    let (tests, size) = match memory {
        Memory::Whole(_) => (&engine.in_memory, "128 GB"),
        Memory::Limited { .. } => (&engine.small_memory, "24 GB"),
    };
    let (unit, of) = match test {
        Test::Read => ("operations/s", "p99"),
        Test::BatchRead => ("documents/s", "p99"),
        Test::ReadWrite => ("operations/s", "p99 of reads"),
    };
    let published = tests.of(test);
    let name = format!("published with {size}: {}", engine.name);
    let p99 = figure(&format!("{name}, {of}"), Some(published.query_p99_us(test)), "µs");
    [figure(&name, Some(published.per_second), unit), p99]
}

fn figure(name: &str, value: Option<f64>, unit: &str) -> Figure {
    Figure { name: name.to_owned(), value, unit: unit.to_owned(), bar: None, ok: None }
}

fn about(args: &WikiArgs, step: &str, started: SystemTime, plan: &Plan) -> RunDescription {
    let mut settings = describe_plan(plan);
    settings.extend(args.node.describe());
    settings.insert("rows".to_owned(), json!(args.rows.display().to_string()));
    settings.insert("batch".to_owned(), json!(args.batch));
    settings.insert("durability".to_owned(), json!(args.durability()));
    RunDescription {
        kind: "wiki",
        workload: step.replace('_', "-"),
        name: format!("Articles, {step}"),
        label: args.output.label.clone(),
        published: None,
        seed: args.output.seed,
        settings,
        notes: Vec::new(),
        started,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_they_say() {
        let sizes = Sizes {
            json_bytes: 1_000_000,
            line_bytes: 800_000,
            folder_bytes: 500_000,
            log_bytes: 100_000,
            written_bytes: Some(2_500_000),
            written_by_reason: vec![("log", 1_100_000.0)],
            block_share: None,
        };
        let figures = load_figures(&sizes, Some(0.125), Some(5_000_000));
        let value =
            |name: &str| figures.iter().find(|figure| figure.name == name).and_then(|found| found.value);
        assert_eq!(value("data folder without the log, of the JSON"), Some(40.0));
        assert_eq!(value("data folder without the log, of the lines"), Some(50.0));
        assert_eq!(value("written to disk for each byte of JSON"), Some(2.5));
        assert_eq!(value("written for each byte of JSON: log"), Some(1.1));
        assert_eq!(value("published, of the lines: MongoDB 3.2.13"), Some(57.1));
        assert_eq!(value("zstd -3 in blocks of 16 KB, of the JSON"), None);
        assert_eq!(value("xz -9 of all, of the JSON"), Some(12.5));
    }
}
