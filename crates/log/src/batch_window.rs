//! How many soft proposals to wait for before they are written together.
//!
//! A turn of the log thread costs two switches of context and a system call, however many
//! proposals it takes. Where many come, a few microseconds of waiting make one turn of a dozen;
//! where few come, nobody waits.

use std::time::Duration;

use io::Nanos;

/// The longest that a soft proposal waits for company.
pub(crate) const WAIT: Duration = Duration::from_micros(150);
/// More than this is company enough.
const EXPECTED_MAX: f64 = 64.0;
/// So many turns nobody is waited for after a wait that was in vain.
const TURNS_AFTER_VAIN: u32 = 64;

/// Learns how many soft proposals come in one [`WAIT`].
#[derive(Debug, Default)]
pub(crate) struct BatchWindow {
    per_wait: f64,
    turned: Option<Nanos>,
    // Turns for which nobody is waited for.
    alone: u32,
}

impl BatchWindow {
    /// A turn took `count` soft proposals.
    pub fn turned(&mut self, count: usize, now: Nanos) {
        let before = self.turned.replace(now);
        let Some(before) = before else { return };
        let elapsed = now.since(before).max(Duration::from_micros(1));
        self.alone = match self.alone {
            // One who writes only when the last write was answered brings no company by being quick.
            0 if count == 1 && elapsed >= WAIT && self.expected() > 1 => TURNS_AFTER_VAIN,
            turns => turns.saturating_sub(1),
        };
        #[allow(clippy::cast_precision_loss, reason = "a count of proposals in memory")]
        let seen = count as f64 * WAIT.as_secs_f64() / elapsed.as_secs_f64();
        self.per_wait = (self.per_wait * 3.0 + seen.min(EXPECTED_MAX)) / 4.0;
    }

    /// How many are worth waiting for; 1 is nobody but oneself.
    pub fn expected(&self) -> usize {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and EXPECTED_MAX"
        )]
        let expected = self.per_wait.round().max(1.0) as usize;
        if self.alone > 0 { 1 } else { expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_turns(count: usize, apart_us: u64) -> usize {
        let mut company = BatchWindow::default();
        for turn in 0..100 {
            company.turned(count, Nanos(turn * apart_us * 1000));
        }
        company.expected()
    }

    #[test]
    fn few_proposals_are_not_kept_waiting() {
        assert_eq!(after_turns(1, 200), 1);
        assert_eq!(after_turns(1, 1_000_000), 1);
    }

    #[test]
    fn a_single_quick_writer_is_seldom_kept_waiting() {
        let (mut company, mut now, mut waits) = (BatchWindow::default(), Nanos(0), 0);
        for _ in 0..1000 {
            let waited = company.expected() > 1;
            waits += u32::from(waited);
            now = now.after(Duration::from_micros(60)).after(if waited { WAIT } else { Duration::ZERO });
            company.turned(1, now);
        }
        assert!(waits <= 1000 / TURNS_AFTER_VAIN + 1, "waited {waits} times");
    }

    #[test]
    fn where_many_come_company_is_expected() {
        assert_eq!(after_turns(1, 15), 10);
        assert_eq!(after_turns(10, 150), 10);
        assert_eq!(after_turns(10_000, 150), 64);
    }
}
