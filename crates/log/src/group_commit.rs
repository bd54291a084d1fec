//! When to start an fsync: how long to wait for company.
//!
//! An fsync costs about as much CPU as five whole updates, however many entries it covers. Those who are
//! told that their entry is durable usually come back with the next one. So as many
//! company is expected as was there last time, and waited for, briefly. One writer alone
//! never waits.

use std::time::Duration;

use io::Nanos;

/// Never wait longer than this, however slow the disk.
const WAIT_MAX: Duration = Duration::from_millis(1);
/// Nor longer than this many fsyncs take.
const WAIT_FSYNCS_MAX: u32 = 4;

/// Decides for hard entries; soft ones wait for a deadline of their own.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    /// Hard entries appended that no started fsync covers, and since when.
    waiting: u64,
    since: Option<Nanos>,
    /// How many are worth waiting for.
    expected: u64,
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

    /// When it starts even if no more come.
    pub fn due(&self) -> Option<Nanos> {
        self.since.map(|since| since.after(WAIT_MAX.min(self.fsync * WAIT_FSYNCS_MAX)))
    }

    /// How many more are waited for.
    pub fn missing(&self) -> u64 {
        match self.since {
            Some(_) => self.expected.saturating_sub(self.waiting),
            None => 0,
        }
    }

    /// An fsync starts that covers all that wait; how many those are.
    pub fn start(&mut self) -> u64 {
        self.since = None;
        std::mem::take(&mut self.waiting)
    }

    /// An fsync that covered `released` has ended after `took`.
    pub fn end(&mut self, released: u64, took: Duration) {
        // Those released come back, and those who came meanwhile are here already.
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
        let mut gather = GroupCommit::default();
        for at in 0..3 {
            gather.appended(1, micros(at * 300));
            assert!(gather.is_due(micros(at * 300)));
            let released = gather.start();
            gather.end(released, FSYNC);
        }
    }

    #[test]
    fn two_writers_who_take_turns_end_up_sharing() {
        let mut gather = GroupCommit::default();
        gather.appended(1, micros(0));
        let released = gather.start();
        gather.appended(1, micros(100));
        gather.end(released, FSYNC);
        assert!(!gather.is_due(micros(200)), "the first is expected back");
        assert_eq!(gather.missing(), 1);
        gather.appended(1, micros(250));
        assert!(gather.is_due(micros(250)));
        assert_eq!(gather.start(), 2);
    }

    #[test]
    fn nobody_waits_long_for_those_who_do_not_come_back() {
        let mut gather = GroupCommit::default();
        gather.appended(100, micros(0));
        let released = gather.start();
        gather.end(released, FSYNC);
        gather.appended(1, micros(1000));
        assert!(!gather.is_due(micros(1000)));
        assert!(gather.is_due(micros(1800)));
        let released = gather.start();
        gather.end(released, FSYNC);
        gather.appended(1, micros(3000));
        assert!(gather.is_due(micros(3000)), "and the next time nobody is expected");
    }
}
