//! Parses the needed samples of an OpenMetrics (or Prometheus) text page.

/// The metrics that results use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricsPage {
    /// Processor time of the server.
    pub cpu_seconds: Option<f64>,
    /// Resident size now.
    pub resident_bytes: Option<u64>,
    /// Highest resident size.
    pub peak_bytes: Option<u64>,
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

/// Parses a page. A metric is identified by the end of its name as `docs/formats/bench-result.md` lists it, with any
/// prefix; samples of one name with several label sets are summed.
pub fn parse(page: &str) -> MetricsPage {
    let count = |suffix: &str| sum_of(page, suffix).map(|value| value as u64);
    MetricsPage {
        cpu_seconds: sum_of(page, "process_cpu_seconds_total"),
        resident_bytes: count("process_resident_memory_bytes"),
        peak_bytes: count("process_resident_memory_max_bytes"),
        written_bytes: count("process_written_bytes_total"),
        read_bytes: count("process_read_bytes_total"),
        log_appends: count("log_appends_total"),
        log_fsyncs: count("log_fsyncs_total"),
        link_sent_bytes: count("link_sent_bytes_total"),
        background_running: count("engine_background_running"),
    }
}

fn sum_of(page: &str, suffix: &str) -> Option<f64> {
    let values = page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let name_end = line.find(['{', ' '])?;
        if !line[..name_end].ends_with(suffix) {
            return None;
        }
        let after_labels = line.rfind('}').map_or(name_end, |brace| brace + 1);
        line[after_labels..].split_whitespace().next()?.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn samples_are_found_by_the_end_of_their_name_and_summed() {
        let page = "# TYPE rekindle_log_fsyncs counter\n\
                    rekindle_log_fsyncs_total 12\n\
                    rekindle_log_appends_total{mode=\"hard\"} 30\n\
                    rekindle_log_appends_total{mode=\"soft\"} 12 1700000000\n\
                    process_cpu_seconds_total 1.25\n\
                    rekindle_engine_background_running 2\n\
                    # EOF\n";
        let found = parse(page);
        assert_eq!(found.log_fsyncs, Some(12));
        assert_eq!(found.log_appends, Some(42));
        assert_eq!(found.cpu_seconds, Some(1.25));
        assert_eq!(found.background_running, Some(2));
        assert_eq!(found.resident_bytes, None);
    }
}
