//! The batch window: how many soft proposals the log thread waits for before it writes them together.
//!
//! A step of the log thread costs two context switches and a system call, however many proposals it takes. If many
//! arrive, a few microseconds of waiting make one step of a dozen. If few arrive, none of them waits.

use std::time::Duration;

use io::Nanos;

/// The longest time a soft proposal waits for others.
pub(crate) const BATCH_WAIT: Duration = Duration::from_micros(150);
/// The log thread never waits for more than this.
const EXPECTED_MAX: f64 = 64.0;
/// After a wait in vain, the log thread does not wait in this many steps.
const STEPS_WITHOUT_WAIT: u32 = 64;

/// Estimates how many soft proposals arrive in one [`BATCH_WAIT`].
#[derive(Debug, Default)]
pub(crate) struct BatchWindow {
    per_wait: f64,
    last_batch: Option<Nanos>,
    /// Steps left in which the log thread does not wait.
    without_wait: u32,
}

impl BatchWindow {
    /// A step took `count` soft proposals.
    pub fn note_batch(&mut self, count: usize, now: Nanos) {
        let before = self.last_batch.replace(now);
        let Some(before) = before else { return };
        let elapsed = now.since(before).max(Duration::from_micros(1));
        self.without_wait = match self.without_wait {
            // A single writer that waits for each answer looks like many when it is quick.
            0 if count == 1 && elapsed >= BATCH_WAIT && self.expected() > 1 => STEPS_WITHOUT_WAIT,
            steps => steps.saturating_sub(1),
        };
        #[allow(clippy::cast_precision_loss, reason = "a count of proposals in memory")]
        let seen = count as f64 * BATCH_WAIT.as_secs_f64() / elapsed.as_secs_f64();
        self.per_wait = (self.per_wait * 3.0 + seen.min(EXPECTED_MAX)) / 4.0;
    }

    /// How many proposals are worth waiting for, the first one included.
    pub fn expected(&self) -> usize {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and EXPECTED_MAX"
        )]
        let expected = self.per_wait.round().max(1.0) as usize;
        if self.without_wait > 0 { 1 } else { expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_steps(count: usize, apart_us: u64) -> usize {
        let mut window = BatchWindow::default();
        for step in 0..100 {
            window.note_batch(count, Nanos(step * apart_us * 1000));
        }
        window.expected()
    }

    #[test]
    fn few_proposals_are_not_kept_waiting() {
        assert_eq!(after_steps(1, 200), 1);
        assert_eq!(after_steps(1, 1_000_000), 1);
    }

    #[test]
    fn a_single_quick_writer_is_seldom_kept_waiting() {
        let (mut window, mut now, mut waits) = (BatchWindow::default(), Nanos(0), 0);
        for _ in 0..1000 {
            let waited = window.expected() > 1;
            waits += u32::from(waited);
            now =
                now.after(Duration::from_micros(60)).after(if waited { BATCH_WAIT } else { Duration::ZERO });
            window.note_batch(1, now);
        }
        assert!(waits <= 1000 / STEPS_WITHOUT_WAIT + 1, "waited {waits} times");
    }

    #[test]
    fn many_proposals_are_batched() {
        assert_eq!(after_steps(1, 15), 10);
        assert_eq!(after_steps(10, 150), 10);
        assert_eq!(after_steps(10_000, 150), 64);
    }
}
