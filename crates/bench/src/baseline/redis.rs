//! redis-server under redis-benchmark: the cost of a 1 KB GET and SET of a well-known server on this machine, with the
//! same number of connections.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::machine::guarded_process::GuardedProcess;
use crate::machine::process;
use crate::result::Latency;

/// The parameters of redis-benchmark.
#[derive(Clone, Copy, Debug)]
pub struct RedisPlan {
    pub connections: usize,
    /// Bytes per value.
    pub value_bytes: usize,
    /// Operations per kind.
    pub operations: u64,
    pub keys: u64,
}

/// The cost of one kind of operation.
#[derive(Clone, Debug)]
pub struct RedisCost {
    /// `GET` or `SET`.
    pub name: &'static str,
    pub operations: u64,
    /// Duration.
    pub seconds: f64,
    /// Processor time of redis-server.
    pub server_cpu_seconds: f64,
    /// Processor time of redis-benchmark.
    pub client_cpu_seconds: f64,
    /// The latencies that redis-benchmark reports.
    pub latency: Latency,
}

/// The costs of all kinds.
#[derive(Clone, Debug)]
pub struct RedisComparison {
    /// Version of redis-server.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// The address on which it listened.
    pub address: String,
    /// Highest resident size.
    pub peak_memory_bytes: Option<u64>,
    /// One entry per kind of operation.
    pub costs: Vec<RedisCost>,
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// Not an error of the benchmark: the comparison is omitted.
    #[error("{program} is not installed (Debian: apt install redis)")]
    NotInstalled { program: &'static str },
    /// It failed.
    #[error("{program} does not work: {message}")]
    Broken {
        program: &'static str,
        /// Its output.
        message: String,
    },
    /// A process could not be started or read.
    #[error("running redis")]
    Io(#[from] std::io::Error),
}

const SERVER: &str = "redis-server";
const CLIENT: &str = "redis-benchmark";

/// Starts a redis-server on a free port, without persistence, measures it, and stops it.
pub fn compare(plan: &RedisPlan) -> Result<RedisComparison, RedisError> {
    find(CLIENT)?;
    let server = Server::start()?;
    let mut costs = Vec::new();
    for name in ["SET", "GET"] {
        costs.push(server.measure(plan, name)?);
    }
    Ok(RedisComparison {
        version: server.version.clone(),
        pid: server.process.id(),
        address: format!("127.0.0.1:{}", server.port),
        peak_memory_bytes: process::memory(server.process.id()).and_then(|m| m.peak_bytes),
        costs,
    })
}

struct Server {
    process: GuardedProcess,
    port: u16,
    version: String,
}

impl Server {
    fn start() -> Result<Self, RedisError> {
        let path = find(SERVER)?;
        let version = Command::new(&path).arg("--version").output()?.stdout;
        let version = String::from_utf8_lossy(&version);
        let version = version.split_whitespace().find_map(|word| word.strip_prefix("v="));
        let version = version.unwrap_or("unknown").to_owned();
        // The port could be taken before redis binds it, but nothing else here allocates ports.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let process = GuardedProcess::start(&path, None, |command| {
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]).stdout(Stdio::piped());
        })?;
        let output = process.take_output();
        let server = Server { process, port, version };
        wait_until_ready(output.ok_or_else(|| broken(SERVER, "it has no output"))?)?;
        Ok(server)
    }

    fn measure(&self, plan: &RedisPlan, name: &'static str) -> Result<RedisCost, RedisError> {
        let cpu_of = |pid| process::cpu(pid).map_or(0.0, |c| c.user_seconds + c.system_seconds);
        let before = (cpu_of(self.process.id()), children_cpu_seconds(), Instant::now());
        let output = Command::new(CLIENT)
            .args(["-p", &self.port.to_string(), "-t", &name.to_lowercase(), "--csv"])
            .args(["-c", &plan.connections.to_string(), "-d", &plan.value_bytes.to_string()])
            .args(["-n", &plan.operations.to_string(), "-r", &plan.keys.to_string()])
            .output()?;
        let seconds = before.2.elapsed().as_secs_f64();
        if !output.status.success() {
            return Err(broken(CLIENT, &String::from_utf8_lossy(&output.stderr)));
        }
        let table = String::from_utf8_lossy(&output.stdout);
        let row = parse_csv(&table, name).ok_or_else(|| broken(CLIENT, &table))?;
        Ok(RedisCost {
            name,
            operations: plan.operations,
            seconds: row.rate.map_or(seconds, |rate| plan.operations as f64 / rate),
            server_cpu_seconds: cpu_of(self.process.id()) - before.0,
            client_cpu_seconds: children_cpu_seconds() - before.1,
            latency: Latency { count: plan.operations, ..row.latency },
        })
    }
}

fn wait_until_ready(output: impl Read + Send + 'static) -> Result<(), RedisError> {
    let mut lines = BufReader::new(output).lines();
    let is_ready = |line: &std::io::Result<String>| {
        line.as_ref().is_ok_and(|text| text.contains("Ready to accept connections"))
    };
    if !lines.by_ref().any(|line| is_ready(&line)) {
        return Err(broken(SERVER, "it ended before it was ready"));
    }
    // Keeps reading, because a full pipe would block redis.
    std::thread::spawn(move || lines.for_each(drop));
    Ok(())
}

/// Processor time of the ended child processes, with a resolution of 10 ms.
fn children_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(13).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

struct CsvRow {
    rate: Option<f64>,
    latency: Latency,
}

/// The row of `name` in redis-benchmark's table; old versions only print the rate.
fn parse_csv(table: &str, name: &str) -> Option<CsvRow> {
    let cells = |line: &str| -> Vec<String> {
        line.split(',').map(|cell| cell.trim().trim_matches('"').to_owned()).collect()
    };
    let header = table.lines().find(|line| line.starts_with("\"test\"")).map(cells);
    let row = table.lines().map(cells).find(|row| row.first().is_some_and(|n| n == name))?;
    let column = |wanted: &str| {
        let place = header.as_ref()?.iter().position(|title| title == wanted)?;
        row.get(place)?.parse::<f64>().ok()
    };
    let micros = |wanted: &str| column(wanted).map(|ms| ms * 1000.0);
    let latency = Latency {
        min_us: micros("min_latency_ms"),
        mean_us: micros("avg_latency_ms"),
        p50_us: micros("p50_latency_ms"),
        p95_us: micros("p95_latency_ms"),
        p99_us: micros("p99_latency_ms"),
        max_us: micros("max_latency_ms"),
        ..Latency::default()
    };
    let rate = column("rps").or_else(|| row.get(1)?.parse().ok());
    Some(CsvRow { rate, latency })
}

fn find(program: &'static str) -> Result<PathBuf, RedisError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    candidates.find(|file| file.is_file()).ok_or(RedisError::NotInstalled { program })
}

fn broken(program: &'static str, message: &str) -> RedisError {
    RedisError::Broken { program, message: message.chars().take(300).collect() }
}

#[cfg(test)]
mod tests {
    use super::parse_csv;

    #[test]
    fn both_forms_of_the_table_are_read() {
        let table = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                     \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                     \"GET\",\"100000.00\",\"0.500\",\"0.100\",\"0.400\",\"0.900\",\"1.500\",\"3.000\"\n";
        let row = parse_csv(table, "GET").expect("a row");
        assert_eq!((row.rate, row.latency.p99_us), (Some(100_000.0), Some(1_500.0)));
        let old = parse_csv("\"SET\",\"90000.00\"\n", "SET").expect("a row");
        assert_eq!((old.rate, old.latency.p50_us), (Some(90_000.0), None));
        assert!(parse_csv("nothing", "GET").is_none());
    }
}
