//! A replica votes for one of two candidates that cannot reach each other, restarts, and receives the request of the other
//! candidate: if its vote was not durable, one term gets two leaders.

use std::time::Duration;

use io::Nanos;
use io::sim::Host;
use log::{GroupId, Term};

use super::{ANSWERED, ThreeReplicas, three_replicas};
use crate::machine::End;
use crate::trace::trace_line;
use crate::world::World;

/// How long the vote may take, and the election after it.
const VOTE_TIMEOUT: Duration = Duration::from_secs(4);

/// The state of the scenario.
pub(crate) struct DividedVotes {
    group: GroupId,
    voter: usize,
    candidates: [usize; 2],
    // The last term before the scenario.
    term: Term,
    phase: Phase,
    pub(super) until: Nanos,
}

enum Phase {
    /// There is no leader, and the two candidates cannot reach each other.
    NoLeader,
    /// One candidate has the vote; the voter no longer receives its messages.
    Voted { candidate: usize },
    /// The voter has restarted; the other candidate may send its request.
    Command { other: usize, term: Term },
}

/// Begins to divide the votes of a shard with three running replicas.
pub(super) fn begin(world: &mut World) -> Option<DividedVotes> {
    let three = three_replicas(world, &world.workload.tables)?;
    let ThreeReplicas { group, leader: voter, others: candidates } = three;
    trace_line!("the votes of {candidates:?} and {voter} in group {group} are divided");
    world.repair(&[voter, candidates[0], candidates[1]]);
    let [one, other] = candidates.map(Host);
    world.net.cut(one, other);
    world.net.cut(other, one);
    let term = world.elections.of(group, voter).0;
    world.restart(voter, End::Killed);
    let until = world.now().after(VOTE_TIMEOUT);
    Some(DividedVotes { group, voter, candidates, term, phase: Phase::NoLeader, until })
}

pub(super) fn step(world: &mut World, mut votes: DividedVotes) -> Option<DividedVotes> {
    let now = world.now();
    let of = |nth: usize| world.elections.of(votes.group, nth);
    match votes.phase {
        Phase::NoLeader => {
            let voted = of(votes.voter).0;
            let candidate = votes.candidates.into_iter().find(|candidate| of(*candidate).0 == voted);
            if voted > votes.term
                && let Some(candidate) = candidate
            {
                trace_line!("node {} has voted for {candidate} in term {voted}", votes.voter);
                world.net.cut(Host(candidate), Host(votes.voter));
                (votes.phase, votes.until) = (Phase::Voted { candidate }, now.after(ANSWERED));
                votes.term = voted;
            } else if now >= votes.until || voted > votes.term {
                // There was no candidate, or the voter was one.
                return None;
            }
        }
        Phase::Voted { candidate } if now >= votes.until => {
            world.restart(votes.voter, End::Killed);
            let other =
                if candidate == votes.candidates[0] { votes.candidates[1] } else { votes.candidates[0] };
            let term = votes.term;
            (votes.phase, votes.until) = (Phase::Command { other, term }, now.after(Duration::from_secs(1)));
        }
        Phase::Command { other, term } if now >= votes.until || of(other) == (term, true) => return None,
        Phase::Voted { .. } | Phase::Command { .. } => {}
    }
    Some(votes)
}
