//! Linearizable reads: a leader confirms with a quorum that it still leads, once for all reads that wait.

use std::collections::VecDeque;

use raft::ReadState;

use super::consensus::Consensus;
use crate::contract::Done;
use crate::lsn::Lsn;
use crate::step::Answers;

/// Reads that share one round of heartbeats.
struct ReadRound {
    number: u64,
    /// The applied position when the round began.
    applied: u64,
    reads: Vec<Done>,
}

/// Reads whose leader is confirmed; they wait until `position` is applied.
struct ConfirmedReads {
    position: u64,
    reads: Vec<Done>,
}

/// The reads of one group.
#[derive(Default)]
pub(super) struct Reads {
    /// Not in a round yet.
    waiting: Vec<Done>,
    rounds: VecDeque<ReadRound>,
    confirmed: Vec<ConfirmedReads>,
    last_round: u64,
}

impl Reads {
    /// Adds a read; returns whether it is the first that waits for a round.
    pub fn push(&mut self, done: Done) -> bool {
        self.waiting.push(done);
        self.waiting.len() == 1
    }

    /// Begins a round for all reads that wait. A single voter needs no confirmation.
    pub fn begin_round(&mut self, consensus: &mut Consensus, applied: u64) {
        let reads = std::mem::take(&mut self.waiting);
        if reads.is_empty() {
            return;
        }
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is_active(crate::mutant::Mutant::SkipReadIndex) {
            return self.confirmed.push(ConfirmedReads { position: applied, reads });
        }
        if consensus.is_single_voter() {
            return self.confirmed.push(ConfirmedReads { position: applied, reads });
        }
        self.last_round += 1;
        self.rounds.push_back(ReadRound { number: self.last_round, applied, reads });
        consensus.node.read_index(self.last_round.to_le_bytes().to_vec());
    }

    /// A quorum has confirmed the leader since the round of `state` began.
    pub fn confirm(&mut self, state: &ReadState) {
        let Some(number) = state.request_ctx.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return;
        };
        while self.rounds.front().is_some_and(|round| round.number <= number) {
            if let Some(ReadRound { applied, reads, .. }) = self.rounds.pop_front() {
                self.confirmed.push(ConfirmedReads { position: applied.max(state.index), reads });
            }
        }
    }

    /// Answers confirmed reads whose position is applied.
    pub fn answer(&mut self, applied: u64, answers: &mut Answers) {
        for ready in self.confirmed.extract_if(.., |confirmed| confirmed.position <= applied) {
            let position = Lsn(ready.position);
            answers.done.extend(ready.reads.into_iter().map(|done| (done, Ok(position))));
        }
    }

    /// Removes and returns the callbacks of all reads.
    pub fn drain(&mut self) -> Vec<Done> {
        let rounds = self.rounds.drain(..).flat_map(|round| round.reads);
        let confirmed = self.confirmed.drain(..).flat_map(|confirmed| confirmed.reads);
        self.waiting.drain(..).chain(rounds).chain(confirmed).collect()
    }

    /// Whether no read waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.rounds.is_empty() && self.confirmed.is_empty()
    }
}
