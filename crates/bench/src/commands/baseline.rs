//! `bench baseline`: the cost of an echo server and of redis on this machine, for comparison.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Map, json};

use crate::alarms;
use crate::assemble::{RunDescription, blank as blank_result, client, operations, pacing, series};
use crate::baseline::echo::{self, EchoRun, EchoSizes};
use crate::baseline::redis::{self, RedisComparison, RedisCost, RedisError, RedisPlan};
use crate::drive::session::{LoopKind, Plan};
use crate::flags::OutputFlags;
use crate::limits::{above_zero, at_least_one};
use crate::machine::facts;
use crate::result::*;

/// Measures the cost of an echo server and of redis-server on this machine
#[derive(Args, Clone, Debug)]
pub struct BaselineArgs {
    /// Start redis-server on a free port and run redis-benchmark (skipped when not installed)
    #[arg(long)]
    redis: bool,
    /// Measure this client against a server that only echoes
    #[arg(long)]
    echo: bool,
    /// Connections, without pipelining
    #[arg(long, default_value_t = 128, value_parser = at_least_one::<usize>)]
    connections: usize,
    /// Threads that drive them (echo)
    #[arg(long, default_value_t = 1, value_parser = at_least_one::<usize>)]
    client_threads: usize,
    /// Bytes per value
    #[arg(long, default_value_t = 1024)]
    value_bytes: usize,
    /// Operations per kind (redis)
    #[arg(long, default_value_t = 500_000, value_parser = at_least_one::<u64>)]
    operations: u64,
    /// Length of the run (echo)
    #[arg(long, default_value_t = 5.0, value_parser = above_zero)]
    seconds: f64,
    #[command(flatten)]
    output: OutputFlags,
}

/// Bytes of the JSON of a `get` query.
const QUERY_BYTES: usize = 77;
/// Bytes of the JSON of a response without its value.
const ANSWER_OVERHEAD_BYTES: usize = 160;

/// Runs the command; without a choice, both baselines.
pub fn run(args: BaselineArgs) -> anyhow::Result<ExitCode> {
    let both = !args.redis && !args.echo;
    let mut code = ExitCode::SUCCESS;
    if args.echo || both {
        code = args.output.finish(&measure_echo(&args)?)?;
    }
    if args.redis || both {
        match measure_redis(&args) {
            Ok(result) => code = args.output.finish(&result)?,
            Err(error @ RedisError::NotInstalled { .. }) => {
                eprintln!("redis baseline left out: {error}");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(code)
}

fn measure_echo(args: &BaselineArgs) -> anyhow::Result<RunResult> {
    let started = SystemTime::now();
    let plan = Plan {
        addresses: Vec::new(),
        login: None,
        connections: args.connections,
        pipeline: 1,
        threads: args.client_threads,
        kind: LoopKind::Closed,
        warmup: Duration::ZERO,
        seconds: None,
        operations: None,
        drain: Duration::from_secs(5),
        seed: args.output.seed,
    };
    let answer_bytes = args.value_bytes + ANSWER_OVERHEAD_BYTES;
    let sizes = EchoSizes { query_bytes: QUERY_BYTES, answer_bytes };
    let EchoRun { baseline, driven } =
        echo::measure(&plan, sizes, Duration::try_from_secs_f64(args.seconds)?)?;
    let mut result = blank(args, "baseline-echo", "Echo server", started);
    let seconds = driven.measured_seconds;
    result.pacing = pacing(&plan, &driven);
    result.time.measured_seconds = seconds;
    result.throughput.operations = driven.totals.ok;
    result.throughput.operations_per_second = baseline.operations_per_second;
    result.operations = operations(echo::NAMES, &driven, seconds);
    result.series = series(driven.points.clone(), seconds);
    result.client = client(&driven, seconds);
    // The server is a thread of this process: only the client's threads are counted.
    result.client.cpu_seconds = driven.totals.thread_cpu_seconds.iter().sum();
    result.cost.server_cpu_us_per_operation = Some(baseline.server_cpu_us_per_operation);
    result.cost.client_cpu_us_per_operation = Some(baseline.client_cpu_us_per_operation);
    result.echo = Some(baseline);
    result.alarms = alarms::raise(&result);
    Ok(result)
}

fn measure_redis(args: &BaselineArgs) -> Result<RunResult, RedisError> {
    let started = SystemTime::now();
    let plan = RedisPlan {
        connections: args.connections,
        value_bytes: args.value_bytes,
        operations: args.operations.max(1),
        keys: (args.operations / 10).max(1),
    };
    let comparison = redis::compare(&plan)?;
    let name = format!("redis-server, {} byte values", args.value_bytes);
    let mut result = blank(args, "baseline-redis", &name, started);
    let costs = &comparison.costs;
    let sum = |value: fn(&RedisCost) -> f64| costs.iter().map(value).sum::<f64>();
    let operations: u64 = costs.iter().map(|c| c.operations).sum();
    let (seconds, server_cpu) = (sum(|c| c.seconds), sum(|c| c.server_cpu_seconds));
    result.pacing = Pacing {
        kind: "closed".to_owned(),
        connections: args.connections,
        pipeline: 1,
        client_threads: 1,
        ..Pacing::default()
    };
    result.time.measured_seconds = seconds;
    result.throughput.operations = operations;
    result.throughput.operations_per_second = operations as f64 / seconds;
    result.operations = costs.iter().map(redis_operation).collect();
    result.client.cpu_seconds = sum(|c| c.client_cpu_seconds);
    result.client.threads = 1;
    result.client.busiest_thread_share = result.client.cpu_seconds / seconds;
    let per_operation = |cpu_seconds: f64| Some(cpu_seconds * 1e6 / operations as f64);
    result.cost.server_cpu_us_per_operation = per_operation(server_cpu);
    result.cost.client_cpu_us_per_operation = per_operation(result.client.cpu_seconds);
    result.cost.operations_per_server_cpu_second = Some(operations as f64 / server_cpu.max(1e-9));
    result.versions.server = Some(format!("redis {}", comparison.version));
    result.servers = vec![redis_use(&comparison, server_cpu, seconds)];
    result.alarms = alarms::raise(&result);
    Ok(result)
}

fn redis_operation(cost: &RedisCost) -> OperationResult {
    OperationResult {
        name: cost.name.to_owned(),
        ok: cost.operations,
        failed: 0,
        per_second: cost.operations as f64 / cost.seconds,
        service: cost.latency.clone(),
        intended: None,
        failed_service: None,
        server_cpu_us_per_operation: Some(cost.server_cpu_seconds * 1e6 / cost.operations as f64),
    }
}

fn redis_use(comparison: &RedisComparison, cpu_seconds: f64, seconds: f64) -> ServerUse {
    let cores = facts::cores();
    ServerUse {
        address: comparison.address.clone(),
        source: "proc".to_owned(),
        pid: Some(comparison.pid),
        cores: Some(cores),
        cpu_seconds: Some(cpu_seconds),
        cpu_share: Some(cpu_seconds / seconds / cores as f64),
        peak_memory_bytes: comparison.peak_memory_bytes,
        ..ServerUse::default()
    }
}

fn blank(args: &BaselineArgs, kind: &'static str, name: &str, started: SystemTime) -> RunResult {
    let settings = json!({
        "connections": args.connections,
        "value-bytes": args.value_bytes,
        "operations": args.operations,
        "seconds": args.seconds,
    });
    let about = RunDescription {
        kind,
        workload: String::new(),
        name: name.to_owned(),
        label: args.output.label.clone(),
        published: None,
        seed: args.output.seed,
        settings: settings.as_object().cloned().unwrap_or_else(Map::new),
        notes: Vec::new(),
        started,
    };
    blank_result(about)
}
