//! A disk that is full: since when, whether it still is, and what can be done meanwhile.

use io::Nanos;

use super::Runner;
use crate::contract::Message;
use crate::error::{Interruption, Refusal};
use crate::proposal::{Proposal, Work};
use crate::store::{Store, StoreError};

/// A disk that is full.
#[derive(Clone, Copy)]
pub(super) struct Full {
    since: Nanos,
    /// When something was tried to be written last.
    pub tried: Nanos,
}

impl<S: Store> Runner<S> {
    /// Begins a new segment, if the last one has grown enough.
    pub(super) fn make_room(&mut self) -> Result<(), Refusal> {
        // A new segment begins with an fsync of the old one, and there may be only one at a
        // time. The segment just grows a little longer until then.
        if self.sync_running {
            return Ok(());
        }
        match self.store.make_room() {
            Ok(()) => Ok(()),
            Err(StoreError::Full) => {
                self.found_full();
                Err(Refusal::Full)
            }
            Err(StoreError::Disk(cause)) => {
                self.fail(&Interruption::Disk(cause.to_string()));
                Err(Refusal::Stopped)
            }
        }
    }

    pub(super) fn found_full(&mut self) {
        let tried = self.outside.clock.now();
        self.full = Some(Full { since: self.full.map_or(tried, |full| full.since), tried });
    }

    pub(super) fn found_space(&mut self) {
        self.full = None;
    }

    /// Since when the disk is full, if it is.
    pub fn full_since(&self) -> Option<Nanos> {
        Some(self.full?.since)
    }

    /// Looks whether there is space again.
    pub(super) fn try_again(&mut self) {
        if self.store.pushed_bytes() > 0 {
            self.append();
        } else if self.sync_running {
            // No segment can be begun meanwhile, so that nothing is found out.
            self.found_full();
        } else if self.make_room().is_ok() {
            self.found_space();
        }
    }

    /// Tells all of these that they are refused; but of a full disk only those that would be written.
    pub(super) fn refuse(&mut self, proposals: impl Iterator<Item = Proposal>, refusal: &Refusal) {
        let mut asked = false;
        for proposal in proposals {
            if *refusal == Refusal::Full && matches!(proposal.work, Work::Read) {
                asked = true;
                let proposed = self.driver.propose(proposal, &mut self.store);
                self.succeed(proposed);
            } else {
                (proposal.done)(Err(refusal.clone().into()));
            }
        }
        if asked {
            self.go_on_unwritten(|runner| {
                let ordered = runner.driver.order(&mut runner.store);
                runner.succeed(ordered);
            });
        }
    }

    /// The disk is full. Takes a message that confirms this leader and changes nothing: reads wait for it.
    pub(super) fn receive_while_full(&mut self, message: &Message) {
        let group = self.driver.group(message.group).filter(|group| group.is_peer(message.to));
        let is_confirmed = group.is_some_and(|group| group.is_confirmed_by(&message.body));
        if self.failed.is_none() && is_confirmed {
            self.go_on_unwritten(|runner| {
                let received = runner.driver.receive(message, &mut runner.store);
                runner.succeed(received);
            });
        }
    }

    /// Does something of which nothing is written, answers what it makes known, and sends what it wants sent. What was
    /// wanted before, about entries that lie here unwritten, waits for those.
    fn go_on_unwritten(&mut self, step: impl FnOnce(&mut Runner<S>)) {
        let waiting = std::mem::take(self.driver.messages());
        step(self);
        if self.failed.is_none() {
            self.apply();
        }
        self.deliver();
        self.driver.messages().splice(..0, waiting);
        // Nothing of it is appended before there is space: each group once, however often it is asked.
        self.driver.appending.sort_unstable();
        self.driver.appending.dedup();
    }
}
