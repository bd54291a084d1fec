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

/// The log of the program is told again of those who are still waited for after so long.
const SAID_AGAIN: Duration = Duration::from_secs(600);

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
    /// Whether what was answered counts for a group.
    fn count(&self, group: GroupId, now: Instant) -> bool {
        // Its turn to change votes may have come with a step before, after the others were asked.
        self.asked_at.is_some_and(|at| now < at + COUNTS) && self.groups.contains(&group)
    }

    /// Begins anew, at `now`: whom to ask about which of those groups whose votes would change.
    fn begin<'a>(
        &mut self,
        due: impl Iterator<Item = (&'a Wanted, GroupStatus)>,
        server_of: impl Fn(PeerId) -> Option<ServerId>,
        now: Instant,
    ) -> BTreeMap<ServerId, Vec<GroupId>> {
        let mut asked: BTreeMap<ServerId, Vec<GroupId>> = BTreeMap::new();
        (self.asked_at, self.groups) = (Some(now), BTreeSet::new());
        for (wanted, status) in due {
            if !next_step(&status, wanted).changes_votes(&status.members) {
                continue;
            }
            self.groups.insert(wanted.group);
            let counted = status.peers.iter().filter(|known| known.active);
            let servers = counted.filter_map(|known| server_of(known.peer));
            for server in servers.filter(|server| !self.silent.contains(server)) {
                asked.entry(server).or_default().push(wanted.group);
            }
        }
        asked
    }
}

/// Whom groups wait for before their votes change, as the log of the program was told last, and when.
#[derive(Default)]
pub(crate) struct WaitedFor(HashMap<GroupId, (BTreeSet<PeerId>, Instant)>);

impl WaitedFor {
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.0.remove(&group);
    }

    /// Whether it is worth saying that a group waits for those: not for the same ones again while it goes on, though
    /// other votes may change in between.
    fn is_news(&mut self, group: GroupId, silent: BTreeSet<PeerId>, now: Instant) -> bool {
        let known = self.0.get(&group);
        if silent.is_empty() || known.is_some_and(|(said, at)| *said == silent && now < *at + SAID_AGAIN) {
            return false;
        }
        self.0.insert(group, (silent, now));
        true
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
        if !answers.count(wanted.group, task::now()) {
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
        let known =
            due.iter().zip(statuses).filter_map(|(wanted, status)| Some((*wanted, self.heard(status?))));
        let asked = answers.begin(known, |peer| self.post.server_of(peer), task::now());
        answers.ends = self.ask_ends_of(asked, PATIENCE);
        answers.silent.extend(&answers.ends.silent);
    }

    /// Says in the log of the program for whom a change of votes waits, when that is somebody else than was said before.
    pub(crate) fn note_waiting(&self, wanted: &Wanted, status: &GroupStatus, waited_for: &mut WaitedFor) {
        let silent = waits_for(status, wanted);
        let names: Vec<String> = silent.iter().map(|peer| self.replica_in_words(*peer)).collect();
        if waited_for.is_news(wanted.group, silent, task::now()) {
            let of = words::group(&self.catalog(), wanted.group);
            tracing::info!("A change of the votes of {of} waits for an answer of {}", names.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LAST, known, led, server, wanted};

    #[test]
    fn an_answer_counts_for_a_moment() {
        let (now, group) = (task::now(), GroupId(3));
        assert!(!Answers::default().count(group, now), "nobody was asked");
        let answers = Answers { asked_at: Some(now), groups: [group].into(), ..Answers::default() };
        assert!(answers.count(group, now + PATIENCE), "as long as the answers take");
        assert!(!answers.count(group, now + COUNTS));
    }

    #[test]
    fn who_is_waited_for_is_said_once_in_a_while() {
        let (mut waited_for, now, group) = (WaitedFor::default(), task::now(), GroupId(3));
        let mut is_news = |peers: &[u64], now| {
            waited_for.is_news(group, peers.iter().map(|peer| PeerId(*peer)).collect(), now)
        };
        assert!(is_news(&[2], now));
        assert!(!is_news(&[2], now));
        assert!(!is_news(&[], now), "another vote changes in between");
        assert!(!is_news(&[2], now), "the same one still");
        assert!(is_news(&[2, 4], now));
        assert!(is_news(&[2, 4], now + SAID_AGAIN));
    }

    #[test]
    fn what_was_answered_counts_for_the_groups_that_were_asked_about() {
        // A learner of each may vote when it has everything; the second one's has not.
        let due = [(3, LAST), (4, 17)].map(|(group, matched)| {
            let mut status = led(&[1], &[known(2, matched, true)]);
            status.members.learners = vec![PeerId(2)];
            (Wanted { group: GroupId(group), ..wanted(&[1, 2]) }, status)
        });
        let (mut answers, now) = (Answers::default(), task::now());
        let server_of = |peer: PeerId| Some(server(peer.0));
        let asked =
            answers.begin(due.iter().map(|(wanted, status)| (wanted, status.clone())), server_of, now);
        assert_eq!(asked, [(server(2), vec![GroupId(3)])].into());
        assert!(answers.count(GroupId(3), now));
        assert!(!answers.count(GroupId(4), now), "its turn may come with the first one's step");
    }
}
