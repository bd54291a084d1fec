//! Watches the servers under load: processor time, memory, disk, log counters.
//!
//! A server on this machine is read from `/proc` (exact, works for every server). Otherwise its metrics page is read,
//! if it has one. Log counters only come from the page.

use std::net::{IpAddr, ToSocketAddrs};

use super::{facts, http, listener, openmetrics, process};
use crate::result::ServerUse;

/// The default HTTP port of a server.
pub const HTTP_PORT: u16 = 8080;

/// The sources of one server's counters.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Host and driver port.
    pub address: String,
    /// Its process, if it runs on this machine.
    pub pid: Option<u32>,
    /// Its metrics page, if it responds.
    pub metrics_url: Option<String>,
}

/// The counters of one server at one moment, since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Processor time.
    pub cpu_seconds: Option<f64>,
    /// Resident size.
    pub memory_bytes: Option<u64>,
    /// Highest resident size.
    pub peak_memory_bytes: Option<u64>,
    /// Bytes written to disk.
    pub written_bytes: Option<u64>,
    /// Bytes read from disk.
    pub read_bytes: Option<u64>,
    /// Entries appended to the log.
    pub log_appends: Option<u64>,
    /// Syncs of the log.
    pub log_fsyncs: Option<u64>,
    /// Bytes sent to other servers.
    pub link_sent_bytes: Option<u64>,
    /// Flushes and compactions of the engine that are running.
    pub background_running: Option<u64>,
}

impl Watched {
    /// Finds the sources for the server at `address`. Given ones (`pid`, `metrics_url`) are used as they are, others
    /// are looked up.
    pub fn find(address: &str, pid: Option<u32>, metrics_url: Option<String>) -> Self {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "28015"));
        let port = port.parse().unwrap_or(28015);
        let pid = pid.or_else(|| if is_local(host) { listener::pid_of_port(port) } else { None });
        // Another server may have the usual port; its counters would be wrong here.
        let is_same = || pid.is_some() && listener::pid_of_port(HTTP_PORT) == pid;
        let guess = || is_same().then(|| format!("http://{host}:{HTTP_PORT}/metrics"));
        let metrics_url = metrics_url.or_else(guess).filter(|url| serves_metrics(url));
        Watched { address: address.to_owned(), pid, metrics_url }
    }

    /// Reads the server's counters.
    pub fn sample(&self) -> Sample {
        let page = self.metrics_url.as_deref().and_then(http::get);
        let page = page.map(|text| openmetrics::parse(&text)).unwrap_or_default();
        let cpu = self.pid.and_then(process::cpu).map(|c| c.user_seconds + c.system_seconds);
        let memory = self.pid.and_then(process::memory).unwrap_or_default();
        let disk = self.pid.and_then(process::disk);
        Sample {
            cpu_seconds: cpu.or(page.cpu_seconds),
            memory_bytes: memory.resident_bytes.or(page.resident_bytes),
            peak_memory_bytes: memory.peak_bytes.or(page.peak_bytes),
            written_bytes: disk.map(|d| d.written_bytes).or(page.written_bytes),
            read_bytes: disk.map(|d| d.read_bytes).or(page.read_bytes),
            log_appends: page.log_appends,
            log_fsyncs: page.log_fsyncs,
            link_sent_bytes: page.link_sent_bytes,
            background_running: page.background_running,
        }
    }

    /// The value of a sample on the metrics page, such as `up_total{kind="a"}`.
    pub fn metric(&self, sample: &str) -> Option<f64> {
        let page = self.metrics_url.as_deref().and_then(http::get)?;
        let value = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
        value.trim().parse().ok()
    }

    /// The use of the server between two samples, `seconds` apart.
    pub fn used(&self, before: &Sample, after: &Sample, seconds: f64) -> ServerUse {
        let cores = self.pid.map(|_| facts::cores());
        let cpu_seconds = difference(before.cpu_seconds, after.cpu_seconds);
        let source = match (self.pid, &self.metrics_url) {
            (Some(_), _) => "proc",
            (None, Some(_)) => "metrics",
            (None, None) => "none",
        };
        ServerUse {
            address: self.address.clone(),
            source: source.to_owned(),
            pid: self.pid,
            cores,
            cpu_seconds,
            cpu_share: cpu_seconds.zip(cores).map(|(cpu, n)| cpu / seconds / n as f64),
            peak_memory_bytes: after.peak_memory_bytes,
            memory_bytes: after.memory_bytes,
            written_bytes: increase(before.written_bytes, after.written_bytes),
            read_bytes: increase(before.read_bytes, after.read_bytes),
            log_appends: increase(before.log_appends, after.log_appends),
            log_fsyncs: increase(before.log_fsyncs, after.log_fsyncs),
        }
    }
}

/// Whether `host` is this machine's loopback.
pub fn is_local(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    if let Ok(address) = host.parse::<IpAddr>() {
        return address.is_loopback();
    }
    (host, 0).to_socket_addrs().is_ok_and(|mut all| all.all(|a| a.ip().is_loopback()))
}

/// `after - before`, if both are known.
pub fn increase(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    before.zip(after).map(|(before, after)| after.saturating_sub(before))
}

/// `after - before`, if both are known.
pub fn difference(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    before.zip(after).map(|(before, after)| (after - before).max(0.0))
}

/// Whether a metrics page is served at `url`.
pub fn serves_metrics(url: &str) -> bool {
    http::get(url).is_some_and(|page| looks_like_metrics(&page))
}

fn looks_like_metrics(page: &str) -> bool {
    page.lines().any(|line| line.starts_with("# TYPE ")) || page.trim_end().ends_with("# EOF")
}
