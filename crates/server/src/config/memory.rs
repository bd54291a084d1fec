//! How much memory there is: that of the machine, or less in a container with a limit.

use std::fs::read_to_string;

use super::control_group;

/// The smallest cache size.
pub const CACHE_BYTES_MIN: u64 = 100 << 20;

/// Bytes this process can still allocate without starving other processes.
#[must_use]
pub fn available_bytes() -> u64 {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| available_of_machine(&text));
    let group = control_group::own().map(|group| group.available);
    machine.into_iter().chain(group).min().unwrap_or(CACHE_BYTES_MIN)
}

/// The memory of this machine, or the limit of this container or service, in bytes, if known.
#[must_use]
pub fn total_bytes() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| line_of(&text, "MemTotal:"));
    let group = control_group::own().map(|group| group.limit);
    machine.into_iter().chain(group).min()
}

fn available_of_machine(meminfo: &str) -> Option<u64> {
    line_of(meminfo, "MemAvailable:")
}

fn line_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_reports_its_available_memory() {
        let text = "MemTotal:  100 kB\nMemAvailable:     2048 kB\nBuffers: 1 kB\n";
        assert_eq!(available_of_machine(text), Some(2 << 20));
        assert_eq!(available_of_machine("MemTotal: 1 kB"), None);
    }
}
