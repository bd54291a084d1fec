//! Who of the members of groups answers at this moment: asked before one of them loses its vote or another gets one.
//!
//! A leader hears of a cut late: in a group that rests nobody is asked, and a link counts as alive until its
//! heartbeat is overdue. Who changes voters meanwhile may leave a group of which no side of the cut has a majority.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use io::task;
use log::{GroupId, GroupStatus, PeerId};

use crate::ends::Ends;
use crate::node::Core;
use crate::step::{Wanted, next_step, waits_for};
use crate::{ServerId, words};

/// Who does not answer for so long does not count. The step is looked at again soon.
const PATIENCE: Duration = Duration::from_millis(500);
/// What was answered counts for so long since it was asked: the steps before may have taken their time.
const COUNTS: Duration = Duration::from_secs(1);

/// What was answered in one turn over all groups.
#[derive(Default)]
pub(crate) struct Answers {
    asked_at: Option<Instant>,
    /// The groups that were asked about.
    groups: BTreeSet<GroupId>,
    ends: Ends,
    /// The servers that did not answer once: none is waited for a second time.
    silent: BTreeSet<ServerId>,
}

impl Answers {
    fn count(&self, now: Instant) -> bool {
        self.asked_at.is_some_and(|at| now < at + COUNTS)
    }
}

/// Whom groups wait for before their votes change, as the log of the program has been told.
#[derive(Default)]
pub(crate) struct WaitedFor(HashMap<GroupId, BTreeSet<PeerId>>);

impl WaitedFor {
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.0.remove(&group);
    }
}

impl Core {
    /// The `status` of a group with nobody said to answer whose replica is not on a server that answers now. What was
    /// answered before counts if it is new enough; else all are asked anew, about this group and those of the
    /// `others` whose votes would change as well.
    pub(crate) fn answering<'a>(
        &self,
        wanted: &'a Wanted,
        mut status: GroupStatus,
        others: impl Iterator<Item = &'a Wanted>,
        answers: &mut Answers,
    ) -> GroupStatus {
        // Its turn may have come with a step before.
        if !answers.count(task::now()) || !answers.groups.contains(&wanted.group) {
            let due: Vec<&Wanted> = std::iter::once(wanted).chain(others).collect();
            self.ask_who_answers(&due, answers);
        }
        for known in &mut status.peers {
            let server = self.post.server_of(known.peer);
            known.active &=
                server.is_some_and(|server| answers.ends.of(wanted.group, server, known.peer).is_some());
        }
        status
    }

    /// Asks each server once about all of those groups whose votes would change. Takes as long as the slowest,
    /// [`PATIENCE`] at most.
    fn ask_who_answers(&self, due: &[&Wanted], answers: &mut Answers) {
        let groups: Vec<GroupId> = due.iter().map(|wanted| wanted.group).collect();
        let statuses = self.log.group_statuses(&groups).unwrap_or_default();
        let mut asked: BTreeMap<ServerId, Vec<GroupId>> = BTreeMap::new();
        answers.groups.clear();
        for (wanted, status) in due.iter().zip(statuses) {
            let Some(status) = status.map(|status| self.heard(status)) else { continue };
            if !next_step(&status, wanted).changes_votes(&status.members) {
                continue;
            }
            answers.groups.insert(wanted.group);
            let counted = status.peers.iter().filter(|known| known.active);
            let servers = counted.filter_map(|known| self.post.server_of(known.peer));
            for server in servers.filter(|server| !answers.silent.contains(server)) {
                asked.entry(server).or_default().push(wanted.group);
            }
        }
        answers.asked_at = Some(task::now());
        answers.ends = self.ask_ends_of(asked, PATIENCE);
        answers.silent.extend(&answers.ends.silent);
    }

    /// Says in the log of the program for whom a change of votes waits, when that is somebody else than before.
    pub(crate) fn note_waiting(&self, wanted: &Wanted, status: &GroupStatus, waited_for: &mut WaitedFor) {
        let silent = waits_for(status, wanted);
        let before = waited_for.0.insert(wanted.group, silent.clone()).unwrap_or_default();
        if !silent.is_empty() && silent != before {
            let names: Vec<String> = silent.iter().map(|peer| self.replica_in_words(*peer)).collect();
            let of = words::group(&self.catalog(), wanted.group);
            tracing::info!("No vote of {of} changes before there is an answer of {}", names.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_a_moment() {
        let now = task::now();
        assert!(!Answers::default().count(now), "nobody was asked");
        let answers = Answers { asked_at: Some(now), ..Answers::default() };
        assert!(answers.count(now + PATIENCE), "as long as the answers take");
        assert!(!answers.count(now + COUNTS));
    }
}
