//! A write from the proposal of its entry to its outcome.

use std::mem;
use std::sync::Arc;

use datum::PrimaryKey;
use log::{Done, Interruption, Lsn, ProposeError};
use parking_lot::Mutex;

use crate::latch::{Latches, ProposalFate};
use crate::replica::Replica;
use crate::ticket::{self, TicketSender};
use crate::{WriteRefusal, WriteTicket};

/// The state that a resolved proposal updates.
pub(crate) struct ProposalContext {
    pub(crate) replica: Arc<Replica>,
    pub(crate) latches: Latches,
}

/// One entry that is proposed to the log.
pub(crate) struct Proposal {
    context: Arc<ProposalContext>,
    // The rows that this is, or was, the newest proposal of.
    keys: Vec<PrimaryKey>,
    sequence: u64,
    state: Mutex<ProposalState>,
}

type Outcome = Result<Lsn, ProposeError>;

enum ProposalState {
    /// The proposer still holds its latches, so no other thread may wait for them on behalf of this proposal: a stopped
    /// log resolves a proposal before `propose` returns, on the proposer's own thread.
    LatchesHeld(TicketSender),
    /// The outcome arrived meanwhile; the proposer handles it.
    AnsweredEarly(TicketSender, Outcome),
    /// The latches are released; the outcome is handled when it arrives.
    Free(TicketSender),
    /// The outcome was handled.
    Settled,
}

impl Proposal {
    pub(crate) fn new(
        context: Arc<ProposalContext>,
        keys: Vec<PrimaryKey>,
        sequence: u64,
    ) -> (Arc<Proposal>, WriteTicket) {
        let (sender, ticket) = ticket::pair();
        let state = Mutex::new(ProposalState::LatchesHeld(sender));
        (Arc::new(Proposal { context, keys, sequence, state }), ticket)
    }

    /// The callback for the log.
    pub(crate) fn done(self: &Arc<Self>) -> Done {
        let proposal = Arc::clone(self);
        Box::new(move |outcome| proposal.answer(outcome))
    }

    /// The proposer has released its latches.
    pub(crate) fn release_latches(&self) {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, ProposalState::Settled) {
            ProposalState::LatchesHeld(sender) => *state = ProposalState::Free(sender),
            ProposalState::AnsweredEarly(sender, outcome) => {
                drop(state);
                self.settle(outcome, sender);
            }
            over => *state = over,
        }
    }

    fn answer(&self, outcome: Outcome) {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, ProposalState::Settled) {
            ProposalState::LatchesHeld(sender) => *state = ProposalState::AnsweredEarly(sender, outcome),
            ProposalState::Free(sender) => {
                drop(state);
                self.settle(outcome, sender);
            }
            over => *state = over,
        }
    }

    fn settle(&self, outcome: Outcome, sender: TicketSender) {
        let outcome = match outcome {
            Ok(lsn) => match self.context.replica.take_skip(self.sequence) {
                Some(refusal) => Err(refusal.into()),
                None => Ok(lsn),
            },
            // Proposals before the seal were resolved when it was applied; this one comes after it.
            Err(ProposeError::Indeterminate(Interruption::Closed))
                if self.context.replica.seal_state().is_sealed() =>
            {
                Err(WriteRefusal::Retired { group: self.context.replica.group }.into())
            }
            Err(error) => Err(error.into()),
        };
        let fate = if outcome.is_ok() { ProposalFate::Applied } else { ProposalFate::Failed };
        for key in &self.keys {
            self.context.latches.settle(key, self.sequence, fate);
        }
        sender.send(outcome);
    }
}
