//! The use of the whole machine, so that a result can report the influence of other programs.

use std::fs;

/// The kernel counts `/proc/stat` in hundredths of a second, like `/proc/PID/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time of all programs of this machine since its start, including interrupts and time stolen by the
/// hypervisor; `None` if it cannot be read.
pub fn busy_seconds() -> Option<f64> {
    parse(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in user.
    let busy = [0, 1, 2, 5, 6, 7].iter().map(|place| ticks.get(*place)).sum::<Option<f64>>()?;
    Some(busy / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn idle_and_waiting_are_not_busy() {
        let stat = "cpu  100 10 40 9999 777 5 20 25 50 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(parse(stat), Some(2.0));
        assert_eq!(parse("nonsense"), None);
    }
}
