//! Group commit: when to start an fsync, and how many hard entries to wait for.
//!
//! An fsync costs about as much CPU as five whole updates, however many entries it covers. Writers whose entry has become
//! durable usually send the next one. So the next fsync waits, briefly, for as many entries as there were last time.
//! A single writer never waits.

use std::time::Duration;

use io::Nanos;

/// The longest wait, however slow the disk.
const WAIT_MAX: Duration = Duration::from_millis(1);
/// The longest wait, in fsyncs.
const WAIT_FSYNCS_MAX: u32 = 4;

/// The decision for hard entries; soft entries have a separate deadline.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    /// Hard entries appended that no started fsync covers.
    waiting: u64,
    /// When the first of them was appended.
    since: Option<Nanos>,
    /// How many are worth waiting for.
    expected: u64,
    /// The average duration of an fsync.
    fsync: Duration,
}

impl GroupCommit {
    /// `count` hard entries were appended.
    pub fn appended(&mut self, count: u64, now: Nanos) {
        self.waiting += count;
        if count > 0 {
            self.since.get_or_insert(now);
        }
    }

    /// Whether an fsync for them should start.
    pub fn is_due(&self, now: Nanos) -> bool {
        self.due().is_some_and(|due| self.waiting >= self.expected || due <= now)
    }

    /// When the fsync starts even if no more arrive.
    pub fn due(&self) -> Option<Nanos> {
        self.since.map(|since| since.after(WAIT_MAX.min(self.fsync * WAIT_FSYNCS_MAX)))
    }

    /// How many more entries the fsync waits for.
    pub fn missing(&self) -> u64 {
        match self.since {
            Some(_) => self.expected.saturating_sub(self.waiting),
            None => 0,
        }
    }

    /// An fsync starts that covers all waiting entries; returns their number.
    pub fn start(&mut self) -> u64 {
        self.since = None;
        std::mem::take(&mut self.waiting)
    }

    /// An fsync that covered `released` hard entries has ended after `took`.
    pub fn end(&mut self, released: u64, took: Duration) {
        // The released writers are expected to come back, in addition to the entries that wait already.
        self.expected = released + self.waiting;
        self.fsync = if self.fsync.is_zero() { took } else { (self.fsync * 7 + took) / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FSYNC: Duration = Duration::from_micros(200);

    fn micros(micros: u64) -> Nanos {
        Nanos(micros * 1000)
    }

    #[test]
    fn a_writer_alone_never_waits() {
        let mut commit = GroupCommit::default();
        for at in 0..3 {
            commit.appended(1, micros(at * 300));
            assert!(commit.is_due(micros(at * 300)));
            let released = commit.start();
            commit.end(released, FSYNC);
        }
    }

    #[test]
    fn two_alternating_writers_end_up_sharing() {
        let mut commit = GroupCommit::default();
        commit.appended(1, micros(0));
        let released = commit.start();
        commit.appended(1, micros(100));
        commit.end(released, FSYNC);
        assert!(!commit.is_due(micros(200)), "the first is expected back");
        assert_eq!(commit.missing(), 1);
        commit.appended(1, micros(250));
        assert!(commit.is_due(micros(250)));
        assert_eq!(commit.start(), 2);
    }

    #[test]
    fn the_wait_for_writers_that_do_not_come_back_is_short() {
        let mut commit = GroupCommit::default();
        commit.appended(100, micros(0));
        let released = commit.start();
        commit.end(released, FSYNC);
        commit.appended(1, micros(1000));
        assert!(!commit.is_due(micros(1000)));
        assert!(commit.is_due(micros(1800)));
        let released = commit.start();
        commit.end(released, FSYNC);
        commit.appended(1, micros(3000));
        assert!(commit.is_due(micros(3000)), "and none is expected the next time");
    }
}
