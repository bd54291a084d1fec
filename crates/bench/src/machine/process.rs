//! Reads `/proc/PID` of a process on this machine.

use std::fs;

/// The kernel counts processor time in `/proc` in hundredths of a second on every supported platform (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTimes {
    /// In user mode.
    pub user_seconds: f64,
    /// In the kernel.
    pub system_seconds: f64,
}

/// Memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident now.
    pub resident_bytes: Option<u64>,
    /// Highest resident size so far.
    pub peak_bytes: Option<u64>,
}

/// Disk traffic of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk {
    /// Bytes it caused to be written.
    pub written_bytes: u64,
    /// Bytes it caused to be read.
    pub read_bytes: u64,
}

/// Processor time of `pid`; `None` if there is no such process.
pub fn cpu(pid: u32) -> Option<CpuTimes> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_cpu(&stat)
}

/// `None` if the process has ended.
pub fn memory(pid: u32) -> Option<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|k| k * 1024)
    };
    Some(Memory { resident_bytes: kilobytes("VmRSS:"), peak_bytes: kilobytes("VmHWM:") })
}

/// Disk traffic of `pid`; `None` if it cannot be read.
pub fn disk(pid: u32) -> Option<Disk> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let bytes = |name: &str| io.lines().find_map(|l| l.strip_prefix(name))?.trim().parse::<u64>().ok();
    Some(Disk { written_bytes: bytes("write_bytes:")?, read_bytes: bytes("read_bytes:")? })
}

/// Whether this process group has a living process; a zombie does not count.
pub fn any_in_group(group: u32) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut stats = processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.any(|stat| parse_group(&stat) == Some(group))
}

/// The group of a living process.
fn parse_group(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    fields.nth(1)?.parse().ok().filter(|_| !has_ended)
}

fn parse_cpu(stat: &str) -> Option<CpuTimes> {
    // The name in parentheses may contain parentheses and spaces.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut seconds = || fields.next()?.parse::<f64>().ok().map(|t| t / TICKS_PER_SECOND);
    Some(CpuTimes { user_seconds: seconds()?, system_seconds: seconds()? })
}

#[cfg(test)]
mod tests {
    use super::{parse_cpu, parse_group};

    #[test]
    fn processor_time_is_found_behind_a_strange_name() {
        let stat = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1";
        let times = parse_cpu(stat).expect("parsed");
        assert_eq!((times.user_seconds, times.system_seconds), (2.5, 0.5));
        assert!(parse_cpu("nonsense").is_none());
    }

    #[test]
    fn a_process_that_has_ended_is_in_no_group() {
        assert_eq!(parse_group("42 (a) b (c)) S 1 7 3 4 5"), Some(7));
        assert_eq!(parse_group("42 (sh) Z 1 7 3 4 5"), None);
        assert_eq!(parse_group("nonsense"), None);
    }
}
