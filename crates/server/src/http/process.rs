//! The operating system's statistics of this process.

use std::fs::read_to_string;

/// Units of processor time in `/proc/self/stat`; Linux has used 100 a second since 2.6.
const TICKS_PER_SECOND: f64 = 100.0;

/// Statistics of the process; 0 if the system does not report one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// Processor time of all threads, in user and kernel mode.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub resident_bytes: f64,
    /// The part of it that belongs to files: code, and files in memory.
    pub file_bytes: f64,
    /// Peak resident memory.
    pub resident_bytes_max: f64,
    /// Bytes written to disk.
    pub written_bytes: f64,
    /// Bytes read from disk.
    pub read_bytes: f64,
    pub threads: f64,
}

impl Process {
    /// Reads the present statistics.
    pub(super) fn now() -> Process {
        let read = |name: &str| read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        Process::parse(&read("stat"), &read("status"), &read("io"))
    }

    fn parse(stat: &str, status: &str, io: &str) -> Process {
        let kilobytes = |key: &str| field(status, key) * 1024.0;
        Process {
            cpu_seconds: cpu_seconds(stat).unwrap_or_default(),
            resident_bytes: kilobytes("VmRSS:"),
            file_bytes: kilobytes("RssFile:"),
            resident_bytes_max: kilobytes("VmHWM:"),
            written_bytes: field(io, "write_bytes:"),
            read_bytes: field(io, "read_bytes:"),
            threads: field(status, "Threads:"),
        }
    }
}

/// A warning if more than a megabyte of this process is swapped out.
pub(crate) fn swap_warning() -> Option<String> {
    swapped(&read_to_string("/proc/self/status").unwrap_or_default())
}

fn swapped(status: &str) -> Option<String> {
    let megabytes = field(status, "VmSwap:") / 1024.0;
    (megabytes >= 1.0)
        .then(|| format!("{megabytes:.0} MB of its memory are swapped out, and reads may be slow"))
}

/// The sum of fields 14 and 15. Field 2 is a name that may contain spaces and ends with `)`.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11).map(|field| field.parse::<f64>().ok());
    Some((fields.next()?? + fields.next()??) / TICKS_PER_SECOND)
}

fn field(text: &str, key: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_files_are_understood() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        let status = "Name:\ta\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\nRssFile:\t 4 kB\nThreads:\t7\n";
        let io = "rchar: 5\nread_bytes: 10\nwrite_bytes: 20\ncancelled_write_bytes: 1\n";
        let expected = Process {
            cpu_seconds: 2.0,
            resident_bytes: 1_048_576.0,
            file_bytes: 4_096.0,
            resident_bytes_max: 2_097_152.0,
            written_bytes: 20.0,
            read_bytes: 10.0,
            threads: 7.0,
        };
        assert_eq!(Process::parse(stat, status, io), expected);
        assert_eq!(swapped("VmSwap:\t     512 kB\n"), None);
        assert!(swapped("VmSwap:\t    4096 kB\n").is_some_and(|text| text.starts_with("4 MB")));
        assert_eq!(Process::parse("", "", ""), Process::default());
        assert!(Process::now().resident_bytes > 0.0);
    }
}
