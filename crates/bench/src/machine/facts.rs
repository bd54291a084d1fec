//! Facts about this machine and the time, in the form used in results.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::result::Machine;

/// Describes this machine.
pub fn machine(server_is_local: bool) -> Machine {
    Machine {
        cpu_model: field_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
        cores: cores(),
        memory_bytes: memory_bytes(),
        kernel: format!("Linux {}", line_of("/proc/sys/kernel/osrelease")),
        os: field_of("/etc/os-release", "PRETTY_NAME")
            .map_or_else(|| "unknown".into(), |name| name.trim_matches('"').to_owned()),
        server_is_local,
    }
}

/// Processors this program may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The time as `2026-11-21T09:15:02Z`.
pub fn rfc3339(time: SystemTime) -> String {
    let [year, month, day, hour, minute, second] = civil(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The time as `20261121-091502`, for names of files.
pub fn compact(time: SystemTime) -> String {
    let [year, month, day, hour, minute, second] = civil(time);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// The time as YCSB prints it in status lines, `2016-07-28 10:37:23:870`, in UTC.
pub fn ycsb_clock(time: SystemTime) -> String {
    let [year, month, day, hour, minute, second] = civil(time);
    let millis = since_epoch(time).subsec_millis();
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}:{millis:03}")
}

fn since_epoch(time: SystemTime) -> std::time::Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Year to second of the proleptic Gregorian calendar (days-to-civil, Howard Hinnant).
fn civil(time: SystemTime) -> [i64; 6] {
    let seconds = since_epoch(time).as_secs() as i64;
    let (days, in_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    [year, month, day, in_day / 3600, in_day / 60 % 60, in_day % 60]
}

/// The memory of this machine; 0 if unknown.
pub fn memory_bytes() -> u64 {
    field_of("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes * 1024)
}

fn field_of(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let (_, value) = line.split_once([':', '='])?;
    Some(value.trim().to_owned())
}

fn line_of(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{compact, rfc3339, ycsb_clock};

    #[test]
    fn known_moments_are_written_right() {
        let leap_day = UNIX_EPOCH + Duration::from_secs(1_709_210_096);
        assert_eq!(rfc3339(leap_day), "2024-02-29T12:34:56Z");
        assert_eq!(compact(UNIX_EPOCH), "19700101-000000");
        let run = UNIX_EPOCH + Duration::from_millis(1_469_702_243_870);
        assert_eq!(ycsb_clock(run), "2016-07-28 10:37:23:870");
    }
}
