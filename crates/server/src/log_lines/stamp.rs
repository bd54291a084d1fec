//! A moment in UTC, as log files show it.

use std::fmt;
use std::time::Duration;

/// Time since 1970, shown as `2026-01-02T03:04:05.000006`.
pub(super) struct Stamp(pub Duration);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let micros = self.0.subsec_micros();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}")
    }
}

/// Year, month and day of a number of days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Count from 1 March of year 0, so that a leap day is the last of its year; 400 years have
    // 146 097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let shown = |seconds| Stamp(Duration::new(seconds, 6_000)).to_string();
        assert_eq!(shown(0), "1970-01-01T00:00:00.000006");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.000006");
        assert_eq!(shown(1_709_251_199), "2024-02-29T23:59:59.000006");
        assert_eq!(shown(4_102_444_800), "2100-01-01T00:00:00.000006");
    }
}
