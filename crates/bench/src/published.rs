//! The published figures for comparison (`assets/published.json`).

use std::sync::LazyLock;

use serde_json::Value;

static FIGURES: LazyLock<Value> = LazyLock::new(|| {
    const TEXT: &str = include_str!("../assets/published.json");
    serde_json::from_str(TEXT).expect("invariant: a test parses the published figures")
});

/// All published figures.
pub fn figures() -> &'static Value {
    &FIGURES
}

/// Published operations per second (documents for the analytic query), from the raw data of `report`.
pub fn per_second(report: &str, workload: &str, servers: usize) -> Option<f64> {
    FIGURES[report]["workloads"][workload]["raw"][servers.to_string()].as_f64()
}

/// The number of documents that one operation of a published workload processed; `None` if one.
pub fn documents(report: &str, workload: &str) -> Option<u64> {
    FIGURES[report]["workloads"][workload]["documents"].as_u64()
}

/// Published p50 and p99 of one kind of operation in milliseconds, from the raw data of `report`.
pub fn latency_ms(report: &str, workload: &str, operation: &str, servers: usize) -> Option<(f64, f64)> {
    let row = &FIGURES[report]["workloads"][workload]["latency_ms"][operation][servers.to_string()];
    Some((row[0].as_f64()?, row[2].as_f64()?))
}

#[cfg(test)]
mod tests {
    use super::{documents, figures, latency_ms, per_second};

    #[test]
    fn published_figures_can_be_read() {
        assert!(figures()["rethinkdb-2.1.5"].is_object());
        assert_eq!(per_second("rethinkdb-2.1.5", "a", 16), Some(114_457.4));
        assert_eq!(per_second("rethinkdb-2.1.5", "analytic", 16), Some((25_000_000.0f64 / 4.3975).round()));
        assert_eq!(per_second("rethinkdb-2.1.5", "a", 5), None);
        assert_eq!(documents("rethinkdb-2.1.5", "analytic"), Some(25_000_000));
        assert_eq!(documents("rethinkdb-2.1.5", "a"), None);
        assert_eq!(latency_ms("rethinkdb-2.1.5", "a", "UPDATE", 16), Some((2.0, 700.0)));
    }
}
