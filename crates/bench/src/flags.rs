//! Flags that several commands share.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use client::handshake::Login;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::drive::arrivals::Spacing;
use crate::drive::session::{LoopKind, Plan};
use crate::limits::{above_zero, at_least_one, seconds};
use crate::machine::{cleanup, facts};
use crate::result::RunResult;
use crate::sut::{SutRequest, SystemUnderTest};
use crate::terminal::{self, Goal};
use crate::ycsb::summary;

/// The kinds of alarms that make a result worthless.
const WORTHLESS: [&str; 4] =
    ["wrong-answers", "check-failed", crate::alarms::CUT_SHORT, crate::alarms::ALL_FAILED];

/// The servers and the login.
#[derive(Args, Clone, Debug)]
pub struct ServerFlags {
    /// Server to connect to; may be repeated or a comma list, also host:port. Connections alternate between them
    #[arg(long = "host", value_name = "HOST", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Driver port of hosts given without one [default: 28015]
    #[arg(long)]
    pub port: Option<u16>,
    /// User that logs in
    #[arg(long, default_value = "admin")]
    pub user: String,
    /// Password of the user
    #[arg(long, default_value = "", hide_default_value = true)]
    pub password: String,
    /// Process id of the server on this machine, in the order of the hosts [default: the process
    /// listening on the driver port]
    #[arg(long, value_name = "PID")]
    pub server_pid: Vec<u32>,
    /// Metrics page, in the order of the hosts [default: http://HOST:8080/metrics if the measured process serves it]
    #[arg(long, value_name = "URL")]
    pub http: Vec<String>,
}

impl ServerFlags {
    /// The servers that these flags name.
    pub fn request(&self) -> SutRequest {
        let port = self.port.unwrap_or(28015);
        let local = vec!["127.0.0.1".to_owned()];
        let hosts = if self.hosts.is_empty() { &local } else { &self.hosts };
        SutRequest {
            addresses: hosts.iter().map(|host| with_port(host, port)).collect(),
            login: Login { user: self.user.clone(), password: self.password.clone() },
            pids: self.server_pid.clone(),
            metrics_urls: self.http.clone(),
        }
    }
}

/// How arrivals of an open loop are spaced.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalsFlag {
    /// Evenly
    Constant,
    /// As independent users arrive
    Poisson,
}

const CONNECTIONS_DEFAULT: usize = 128;

/// How operations are sent.
#[derive(Args, Clone, Debug)]
pub struct LoopFlags {
    /// Connections in total [default: 128]
    #[arg(long, alias = "threads", value_name = "N", value_parser = at_least_one::<usize>)]
    pub connections: Option<usize>,
    /// Operations in flight per connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one::<u16>)]
    pub pipeline: u16,
    /// Threads that drive the connections [default: half the cores for a server on this machine,
    /// else all]
    #[arg(long, value_name = "N", value_parser = at_least_one::<usize>)]
    pub client_threads: Option<usize>,
    /// Warm-up before the measured part, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub warmup: Option<f64>,
    /// Length of the measured part in seconds
    #[arg(long, value_name = "SECONDS", value_parser = above_zero)]
    pub seconds: Option<f64>,
    /// Operations of the measured part
    #[arg(long, value_name = "N", value_parser = at_least_one::<u64>)]
    pub operations: Option<u64>,
    /// Open loop: operations arrive at this rate per second, independently of earlier ones
    #[arg(long, value_name = "RATE", value_parser = above_zero)]
    pub target: Option<f64>,
    /// How they are spaced
    #[arg(long, value_enum, default_value_t = ArrivalsFlag::Constant)]
    pub arrivals: ArrivalsFlag,
    /// Open loop: arrivals that may wait for a free connection; more are dropped and counted
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub waiting_max: usize,
    /// Seconds to wait for the last responses
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub drain: f64,
    /// Afterwards, measure this client against a server that only echoes
    #[arg(long)]
    pub echo: bool,
}

impl LoopFlags {
    /// The plan that these flags describe for `sut`.
    pub fn plan(&self, sut: &SystemUnderTest, seed: u64) -> anyhow::Result<Plan> {
        let connections = self.connections.unwrap_or(CONNECTIONS_DEFAULT).max(1);
        let cores = facts::cores();
        let threads = match sut.is_local {
            true => (cores / 2).max(1),
            false => cores,
        };
        let kind = match self.target.filter(|rate| *rate > 0.0) {
            None => LoopKind::Closed,
            Some(rate) => LoopKind::Open {
                rate,
                spacing: match self.arrivals {
                    ArrivalsFlag::Constant => Spacing::Constant,
                    ArrivalsFlag::Poisson => Spacing::Poisson,
                },
                waiting_max: self.waiting_max,
            },
        };
        Ok(Plan {
            addresses: sut.addresses.clone(),
            login: Some(sut.login.clone()),
            connections,
            pipeline: usize::from(self.pipeline.max(1)),
            threads: self.client_threads.unwrap_or(threads).clamp(1, connections),
            kind,
            warmup: duration(self.warmup.unwrap_or(0.0)).context("--warmup")?,
            seconds: self.seconds.map(duration).transpose().context("--seconds")?,
            operations: self.operations,
            drain: duration(self.drain).context("--drain")?,
            seed,
        })
    }
}

/// The settings of a plan for the result, under the flags' names.
pub fn describe_plan(plan: &Plan) -> Map<String, Value> {
    let described = json!({
        "connections": plan.connections,
        "pipeline": plan.pipeline,
        "client-threads": plan.threads,
        "warmup": plan.warmup.as_secs_f64(),
        "seconds": plan.seconds.map(|s| s.as_secs_f64()),
        "operations": plan.operations,
        "target": match plan.kind { LoopKind::Open { rate, .. } => Some(rate), LoopKind::Closed => None },
        "hosts": plan.addresses.join(","),
    });
    match described {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The goal of a plan, for the progress line.
pub fn goal(plan: &Plan) -> Option<Goal> {
    let seconds = plan.seconds.map(|s| Goal::Seconds(s.as_secs_f64()));
    plan.operations.map(Goal::Operations).or(seconds)
}

/// The format of the terminal output.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table for people
    Table,
    /// YCSB's summary
    Ycsb,
    /// The result document
    Json,
}

/// The output of the result.
#[derive(Args, Clone, Debug)]
pub struct OutputFlags {
    /// Write the result to this file, or into this folder when it ends in / or exists
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// What to print at the end
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Text that distinguishes this run from others
    #[arg(long, default_value = "", hide_default_value = true)]
    pub label: String,
    /// Seed of keys, values and arrivals; by default a new one each time, because a second run with the same values
    /// would update nothing
    #[arg(long, default_value_t = fresh_seed(), hide_default_value = true)]
    pub seed: u64,
    /// Print no progress during the run
    #[arg(long)]
    pub quiet: bool,
}

impl OutputFlags {
    /// Writes a result to its file, then prints it with [`OutputFlags::show`].
    pub fn finish(&self, result: &RunResult) -> anyhow::Result<ExitCode> {
        // The file is written first: the reader of the output may have closed it.
        self.keep(result)?;
        self.show(result)
    }

    /// Prints a result. The exit code is a failure if the result is worthless, see [`why_invalid`].
    pub fn show(&self, result: &RunResult) -> anyhow::Result<ExitCode> {
        match self.format {
            Format::Table => print!("{}", terminal::summary(result)),
            Format::Ycsb => print!("{}", summary::summary(result)),
            Format::Json => println!("{}", serde_json::to_string_pretty(result)?),
        }
        if self.format != Format::Table {
            result.alarms.iter().for_each(|alarm| eprintln!("ALARM: {}", alarm.message));
        }
        Ok(match why_invalid(result) {
            Some(_) => ExitCode::FAILURE,
            None => ExitCode::SUCCESS,
        })
    }

    /// Writes a result to its file, if one was requested.
    pub fn keep(&self, result: &RunResult) -> anyhow::Result<()> {
        self.json.as_ref().map_or(Ok(()), |path| write(&file_for(path, &result.id), result))
    }
}

/// Why a result is worthless, if so: a response was wrong, nothing or no operation of one kind succeeded, or the run
/// was cut short.
pub fn why_invalid(result: &RunResult) -> Option<String> {
    let worst = result.alarms.iter().find(|alarm| WORTHLESS.contains(&alarm.kind.as_str()));
    let nothing = (result.throughput.operations == 0).then(|| "nothing succeeded".to_owned());
    worst.map(|alarm| alarm.message.clone()).or(nothing)
}

fn file_for(path: &Path, id: &str) -> PathBuf {
    let is_folder = path.is_dir() || path.to_string_lossy().ends_with('/');
    if is_folder { path.join(format!("{id}.json")) } else { path.to_owned() }
}

/// Writes a document as formatted JSON, and creates its folder. Does not write once a signal ends the program, because
/// servers that ended with it would have affected the measurement.
pub fn write(path: &Path, document: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(document)? + "\n";
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    cleanup::unless_ending(|| folder.and_then(|()| std::fs::write(path, text)))
        .with_context(|| format!("writing {}", path.display()))
}

/// Converts seconds; fails below 0.
pub fn duration(seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).context("expected a number of seconds of at least 0")
}

/// `host:port` of a `host` that may already contain a port.
pub fn with_port(host: &str, port: u16) -> String {
    match has_port(host) {
        true => host.to_owned(),
        false if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

fn has_port(host: &str) -> bool {
    let after_bracket = host.rsplit(']').next().unwrap_or(host);
    match after_bracket.rsplit_once(':') {
        Some((before, port)) => !before.contains(':') && port.parse::<u16>().is_ok(),
        None => false,
    }
}

/// A new seed. Every result records its seed.
pub fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| u64::try_from(since.as_nanos() % 1_000_000_007).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_may_carry_their_own_port() {
        let flags = ServerFlags {
            hosts: ["a", "b:1", "::1", "[::1]:2"].map(str::to_owned).to_vec(),
            port: Some(7),
            user: "admin".into(),
            password: String::new(),
            server_pid: Vec::new(),
            http: Vec::new(),
        };
        assert_eq!(flags.request().addresses, ["a:7", "b:1", "[::1]:7", "[::1]:2"]);
    }

    #[test]
    fn a_folder_gets_a_file_named_after_the_run() {
        assert_eq!(file_for(Path::new("out/"), "x"), Path::new("out/x.json"));
        assert_eq!(file_for(Path::new("out.json"), "x"), Path::new("out.json"));
    }
}
