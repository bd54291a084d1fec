//! The steps by which a group gets the members that the catalog wants: one at a time, from what is there.

use std::collections::BTreeSet;

use log::{GroupId, GroupStatus, MemberChange, Members, PeerId};
use storage::TableId;

use crate::ReplicaConfig;
use crate::reach::{Reach, reaches};

/// Who should be in a group.
pub(crate) struct Wanted {
    pub(crate) group: GroupId,
    /// `None` for the catalog.
    pub(crate) table: Option<TableId>,
    /// The version of the catalog that says so.
    pub(crate) version: u64,
    pub(crate) replicas: Vec<ReplicaConfig>,
    /// Those of them on servers that are not connected.
    pub(crate) away: Vec<PeerId>,
    pub(crate) primary: Option<PeerId>,
    pub(crate) is_leaving: bool,
}

impl Wanted {
    /// One of the catalog is never named anew: its server was given up, and its row goes. Nor is one whose server is away: it
    /// has no use for another before it comes back, and an emergency repair may be taking it out.
    fn may_be_named_anew(&self, replica: &ReplicaConfig) -> bool {
        self.table.is_some() && !self.away.contains(&replica.peer)
    }
}

/// What the leader of a group does next about its members.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// Something must happen elsewhere first.
    Wait,
    Change(MemberChange),
    /// This one was removed, for good, and is wanted all the same.
    NameAnew(PeerId),
    Transfer(PeerId),
}

impl Step {
    /// Whether it gives or takes a vote: then it matters who answers at that very moment.
    pub(crate) fn changes_votes(&self, members: &Members) -> bool {
        match self {
            Step::Change(MemberChange::Promote(_)) => true,
            Step::Change(MemberChange::Remove(peer)) => members.voters.contains(peer),
            _ => false,
        }
    }
}

/// The next step to the members that are wanted, from those that there are.
pub(crate) fn next_step(status: &GroupStatus, wanted: &Wanted) -> Step {
    let members = &status.members;
    let is_gone = |replica: &&ReplicaConfig| members.removed.contains(&replica.peer);
    if let Some(gone) = wanted.replicas.iter().filter(is_gone).find(|gone| wanted.may_be_named_anew(gone)) {
        // Its server discards the old one then, which those who stay may still need.
        return if status.members_durable { Step::NameAnew(gone.peer) } else { Step::Wait };
    }
    if let Some(new) = wanted.replicas.iter().find(|r| !members.contains(r.peer) && !is_gone(r)) {
        return Step::Change(MemberChange::AddLearner(new.peer));
    }
    let is_close = |peer: PeerId, reach: Reach| reaches(status, peer, reach);
    let mut waits = false;
    let learns = |replica: &&ReplicaConfig| replica.voting && members.learners.contains(&replica.peer);
    for replica in wanted.replicas.iter().filter(learns) {
        if is_close(replica.peer, Reach::Vote) && has_majority(status) {
            return Step::Change(MemberChange::Promote(replica.peer));
        }
        waits = true;
    }
    if waits {
        return Step::Wait;
    }
    let is_wanted = |peer: PeerId| wanted.replicas.iter().any(|replica| replica.peer == peer);
    let mut strangers =
        members.learners.iter().chain(&members.voters).copied().filter(|peer| !is_wanted(*peer));
    // Of those who stay most must be ready, or nearly: or the group would wait for one that needs a copy first. Whether
    // the one who goes answers says nothing, as consensus forgets now and then who did.
    let can_go = |peer: PeerId| {
        let stay = members.voters.iter().filter(|voter| **voter != peer);
        let ready = stay.clone().filter(|voter| is_close(**voter, Reach::Soon)).count();
        !members.voters.contains(&peer) || ready * 2 > stay.count()
    };
    let heir = || {
        let voters = wanted.replicas.iter().filter(|r| r.voting && r.peer != status.own);
        let preferred = voters.clone().find(|replica| Some(replica.peer) == wanted.primary);
        preferred
            .into_iter()
            .chain(voters)
            .find(|replica| is_close(replica.peer, Reach::Vote))
            .map(|r| r.peer)
    };
    // Who is of no use goes first, who leads last: one of those who stay could need them.
    let others = strangers.clone().filter(|peer| *peer != status.own);
    if let Some(next) =
        others.clone().filter(|peer| can_go(*peer)).min_by_key(|peer| is_close(*peer, Reach::Soon))
    {
        return Step::Change(MemberChange::Remove(next));
    }
    if others.count() > 0 {
        return Step::Wait;
    }
    if strangers.next().is_some() {
        return heir().map_or(Step::Wait, Step::Transfer);
    }
    if wanted.is_leaving && !status.members_durable {
        // The catalog discards them as soon as it forgets them.
        return Step::Wait;
    }
    match wanted.primary {
        Some(primary)
            if primary != status.own
                && members.voters.contains(&primary)
                && is_close(primary, Reach::Vote) =>
        {
            Step::Transfer(primary)
        }
        _ => Step::Nothing,
    }
}

/// Those who do not answer, if a vote would change where they did and had everything.
pub(crate) fn waits_for(status: &GroupStatus, wanted: &Wanted) -> BTreeSet<PeerId> {
    let changes = |status: &GroupStatus| next_step(status, wanted).changes_votes(&status.members);
    let mut heard = status.clone();
    for known in heard.peers.iter_mut().filter(|known| !known.active) {
        (known.active, known.matched, known.needs_rows) = (true, status.last, false);
    }
    if changes(status) || !changes(&heard) {
        return BTreeSet::new();
    }
    status.peers.iter().filter(|known| !known.active).map(|known| known.peer).collect()
}

/// Whether most who vote answer. One more that answers leaves it so.
pub(crate) fn has_majority(status: &GroupStatus) -> bool {
    let answers = |voter: &&PeerId| {
        **voter == status.own || status.peers.iter().any(|known| known.peer == **voter && known.active)
    };
    status.members.voters.iter().filter(answers).count() * 2 > status.members.voters.len()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::fixture::{LAST, known as peer, led, wanted};

    #[test]
    fn nobody_who_is_needed_for_a_majority_is_removed() {
        let remove = |peer| Step::Change(MemberChange::Remove(PeerId(peer)));
        let soon = LAST - Reach::Soon.entries();
        let (here, near, far) = (peer(2, LAST, true), peer(2, soon, true), peer(2, soon - 1, true));
        let (behind, gone) = (peer(2, 17, true), peer(2, LAST, false));
        for (second, third, next) in [
            (here, peer(3, LAST, true), remove(3)),
            (near, peer(3, LAST, true), remove(3)),
            (far, peer(3, LAST, true), Step::Wait),
            (behind, peer(3, LAST, true), Step::Wait),
            (gone, peer(3, LAST, true), Step::Wait),
            (here, peer(3, LAST, false), remove(3)),
            // Perhaps it was not heard since the leader last looked who answers.
            (behind, peer(3, LAST, false), Step::Wait),
        ] {
            let status = led(&[1, 2, 3], &[second, third]);
            assert_eq!(next_step(&status, &wanted(&[1, 2])), next, "{second:?} {third:?}");
        }
        // Who is left alone has everything.
        assert_eq!(next_step(&led(&[1, 2], &[behind]), &wanted(&[1])), remove(2));
    }

    #[test]
    fn nobody_gets_a_vote_who_does_not_answer_or_where_most_do_not() {
        let promote = || Step::Change(MemberChange::Promote(PeerId(9)));
        for (second, third, learner, next) in [
            (true, true, true, promote()),
            (true, false, true, promote()),
            (false, false, true, Step::Wait),
            (true, true, false, Step::Wait),
        ] {
            let peers = [peer(2, LAST, second), peer(3, LAST, third), peer(9, LAST, learner)];
            let mut status = led(&[1, 2, 3], &peers);
            status.members.learners = vec![PeerId(9)];
            assert_eq!(next_step(&status, &wanted(&[1, 2, 3, 9])), next, "{second} {third} {learner}");
        }
    }

    #[test]
    fn who_is_waited_for_is_known_and_who_would_change_nothing_is_not() {
        let waits = |status: &GroupStatus, to: &[u64]| {
            waits_for(status, &wanted(to)).into_iter().map(|peer| peer.0).collect::<Vec<_>>()
        };
        let (silent, copies) = (peer(2, LAST, false), peer(9, 17, true));
        assert_eq!(waits(&led(&[1, 2, 3], &[silent, peer(3, LAST, true)]), &[1, 2]), [2]);
        assert_eq!(waits(&led(&[1, 2], &[silent]), &[1, 2]), [], "nothing is to change");
        let mut status = led(&[1, 2, 3], &[silent, peer(3, LAST, true), copies]);
        status.members.learners = vec![PeerId(9)];
        assert_eq!(waits(&status, &[1, 2, 3, 9]), [], "it waits for the rows on 9");
        status.peers[2].active = false;
        assert_eq!(waits(&status, &[1, 2, 3, 9]), [2, 9]);
    }

    #[test]
    fn of_several_who_leave_those_of_no_use_go_first() {
        let remove = |peer| Step::Change(MemberChange::Remove(PeerId(peer)));
        let here = |nth| peer(nth, LAST, true);
        let shrinks = led(&[1, 2, 3], &[here(2), peer(3, 17, true)]);
        assert_eq!(next_step(&shrinks, &wanted(&[1])), remove(3), "two who are ready stay");
        let silent = led(&[1, 2, 3, 4, 5], &[here(2), here(3), here(4), peer(5, LAST, false)]);
        assert_eq!(next_step(&silent, &wanted(&[1, 2, 3])), remove(5));
        // A learner is nobody's vote.
        let mut learns = led(&[1, 2], &[peer(2, 17, true), here(9)]);
        learns.members.learners = vec![PeerId(9)];
        assert_eq!(next_step(&learns, &wanted(&[1, 2])), remove(9));
        // It does not wait for a voter that may not go yet.
        let mut waits = led(&[1, 2, 3], &[peer(2, 17, true), peer(3, LAST, false), here(9)]);
        waits.members.learners = vec![PeerId(9)];
        assert_eq!(next_step(&waits, &wanted(&[1, 2])), remove(9));
        // The leader hands over before it goes, to one who can.
        assert_eq!(next_step(&led(&[1, 2], &[here(2)]), &wanted(&[2])), Step::Transfer(PeerId(2)));
        assert_eq!(next_step(&led(&[1, 2], &[peer(2, 17, true)]), &wanted(&[2])), Step::Wait);
    }

    #[test]
    fn whoever_was_given_up_keeps_nobody_out_of_the_catalog() {
        let mut status = led(&[1], &[]);
        status.members.removed = vec![PeerId(2), PeerId(3)];
        let mut wanted = wanted(&[2, 1, 3, 4]);
        assert_eq!(next_step(&status, &wanted), Step::Change(MemberChange::AddLearner(PeerId(4))));
        wanted.table = Some(TableId::from_uuid(Uuid::from_u128(7)));
        assert_eq!(next_step(&status, &wanted), Step::NameAnew(PeerId(2)));
        wanted.away = vec![PeerId(2)];
        assert_eq!(next_step(&status, &wanted), Step::NameAnew(PeerId(3)), "2 would get it in vain");
        wanted.away.push(PeerId(3));
        assert_eq!(next_step(&status, &wanted), Step::Change(MemberChange::AddLearner(PeerId(4))));
    }

    #[test]
    fn who_is_to_vote_is_nearer_than_who_is_ready_and_who_stays_may_be_farther() {
        let at = |reach: Reach| LAST - reach.entries();
        let promote = Step::Change(MemberChange::Promote(PeerId(2)));
        for (matched, next) in [(at(Reach::Vote), promote), (at(Reach::Vote) - 1, Step::Wait)] {
            let mut status = led(&[1], &[peer(2, matched, true)]);
            status.members.learners = vec![PeerId(2)];
            assert_eq!(next_step(&status, &wanted(&[1, 2])), next, "{matched}");
            assert!(reaches(&status, PeerId(2), Reach::Ready), "it has everything, or nearly");
        }
        let status = led(&[1, 2], &[peer(2, at(Reach::Ready) - 1, true)]);
        assert!(!reaches(&status, PeerId(2), Reach::Ready) && reaches(&status, PeerId(2), Reach::Soon));
    }
}
