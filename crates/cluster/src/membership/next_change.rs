//! The next change of a group's members towards those that the catalog wants: a pure function of the group's status.

use std::collections::BTreeSet;

use log::{GroupId, GroupStatus, MemberChange, Members, PeerId};
use storage::TableId;

use crate::config::ReplicaConfig;
use crate::routing::lag::{Lag, is_within};

/// The members that a group is to have.
pub(crate) struct Wanted {
    pub(crate) group: GroupId,
    /// `None` for the catalog.
    pub(crate) table: Option<TableId>,
    /// The version of the catalog that wants them.
    pub(crate) version: u64,
    pub(crate) replicas: Vec<ReplicaConfig>,
    /// The replicas on servers that are not connected.
    pub(crate) away: Vec<PeerId>,
    pub(crate) primary: Option<PeerId>,
    pub(crate) is_leaving: bool,
}

impl Wanted {
    /// Whether a removed replica is replaced by a new one on the same server. Not in the catalog's group: an emergency repair
    /// gave up that server, and its row will be deleted. Nor while the server is not connected: it cannot use another replica
    /// before it is back, and an emergency repair may be removing it.
    fn may_be_replaced(&self, replica: &ReplicaConfig) -> bool {
        self.table.is_some() && !self.away.contains(&replica.peer)
    }
}

/// What the leader of a group does next about its members.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// Nothing now: another server has to act first.
    Wait,
    Members(MemberChange),
    /// Give the server of this replica a new one: it was removed, which cannot be undone, and is wanted all the same.
    Replace(PeerId),
    Transfer(PeerId),
}

impl Change {
    /// Whether it changes the voters: then members are probed for liveness first.
    pub(crate) fn changes_votes(&self, members: &Members) -> bool {
        match self {
            Change::Members(MemberChange::Promote(_)) => true,
            Change::Members(MemberChange::Remove(peer)) => members.voters.contains(peer),
            _ => false,
        }
    }
}

/// The next change from the present members towards the wanted ones.
pub(crate) fn next_change(status: &GroupStatus, wanted: &Wanted) -> Change {
    let members = &status.members;
    let is_gone = |replica: &&ReplicaConfig| members.removed.contains(&replica.peer);
    if let Some(gone) = wanted.replicas.iter().filter(is_gone).find(|gone| wanted.may_be_replaced(gone)) {
        // Its server discards the old replica then, which the remaining members may still need.
        return if status.members_durable { Change::Replace(gone.peer) } else { Change::Wait };
    }
    if let Some(new) = wanted.replicas.iter().find(|r| !members.contains(r.peer) && !is_gone(r)) {
        return Change::Members(MemberChange::AddLearner(new.peer));
    }
    let is_close = |peer: PeerId, lag: Lag| is_within(status, peer, lag);
    let mut waits = false;
    let learns = |replica: &&ReplicaConfig| replica.voting && members.learners.contains(&replica.peer);
    for replica in wanted.replicas.iter().filter(learns) {
        if is_close(replica.peer, Lag::Vote) && has_quorum(status) {
            return Change::Members(MemberChange::Promote(replica.peer));
        }
        waits = true;
    }
    if waits {
        return Change::Wait;
    }
    let is_wanted = |peer: PeerId| wanted.replicas.iter().any(|replica| replica.peer == peer);
    let mut unwanted =
        members.learners.iter().chain(&members.voters).copied().filter(|peer| !is_wanted(*peer));
    // Most of the remaining voters must be nearly up to date, or the group would wait for one that needs a copy first. Whether
    // the removed one responds proves nothing: consensus forgets that from time to time.
    let can_go = |peer: PeerId| {
        let stay = members.voters.iter().filter(|voter| **voter != peer);
        let ready = stay.clone().filter(|voter| is_close(**voter, Lag::Removal)).count();
        !members.voters.contains(&peer) || ready * 2 > stay.count()
    };
    let successor = || {
        let voters = wanted.replicas.iter().filter(|r| r.voting && r.peer != status.own);
        let preferred = voters.clone().find(|replica| Some(replica.peer) == wanted.primary);
        preferred.into_iter().chain(voters).find(|replica| is_close(replica.peer, Lag::Vote)).map(|r| r.peer)
    };
    // Replicas that are far behind are removed first, the leader last: a remaining member could need the others.
    let others = unwanted.clone().filter(|peer| *peer != status.own);
    if let Some(next) =
        others.clone().filter(|peer| can_go(*peer)).min_by_key(|peer| is_close(*peer, Lag::Removal))
    {
        return Change::Members(MemberChange::Remove(next));
    }
    if others.count() > 0 {
        return Change::Wait;
    }
    if unwanted.next().is_some() {
        return successor().map_or(Change::Wait, Change::Transfer);
    }
    if wanted.is_leaving && !status.members_durable {
        // Their servers discard them as soon as the catalog no longer names them.
        return Change::Wait;
    }
    match wanted.primary {
        Some(primary)
            if primary != status.own && members.voters.contains(&primary) && is_close(primary, Lag::Vote) =>
        {
            Change::Transfer(primary)
        }
        _ => Change::Nothing,
    }
}

/// The members that do not respond, if the voters would change as soon as these responded and had everything.
pub(crate) fn waits_for(status: &GroupStatus, wanted: &Wanted) -> BTreeSet<PeerId> {
    let changes = |status: &GroupStatus| next_change(status, wanted).changes_votes(&status.members);
    let mut heard = status.clone();
    for known in heard.peers.iter_mut().filter(|known| !known.active) {
        (known.active, known.matched, known.needs_rows) = (true, status.last, false);
    }
    if changes(status) || !changes(&heard) {
        return BTreeSet::new();
    }
    status.peers.iter().filter(|known| !known.active).map(|known| known.peer).collect()
}

/// Whether a quorum of the voters responds.
pub(crate) fn has_quorum(status: &GroupStatus) -> bool {
    let answers = |voter: &&PeerId| {
        **voter == status.own || status.peers.iter().any(|known| known.peer == **voter && known.active)
    };
    status.members.voters.iter().filter(answers).count() * 2 > status.members.voters.len()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::fixture::{LAST, known as peer, led, wanted};
    use super::*;

    #[test]
    fn nobody_who_is_needed_for_a_majority_is_removed() {
        let remove = |peer| Change::Members(MemberChange::Remove(PeerId(peer)));
        let soon = LAST - Lag::Removal.entries();
        let (here, near, far) = (peer(2, LAST, true), peer(2, soon, true), peer(2, soon - 1, true));
        let (behind, gone) = (peer(2, 17, true), peer(2, LAST, false));
        for (second, third, next) in [
            (here, peer(3, LAST, true), remove(3)),
            (near, peer(3, LAST, true), remove(3)),
            (far, peer(3, LAST, true), Change::Wait),
            (behind, peer(3, LAST, true), Change::Wait),
            (gone, peer(3, LAST, true), Change::Wait),
            (here, peer(3, LAST, false), remove(3)),
            // Perhaps it was not heard since the leader last looked who answers.
            (behind, peer(3, LAST, false), Change::Wait),
        ] {
            let status = led(&[1, 2, 3], &[second, third]);
            assert_eq!(next_change(&status, &wanted(&[1, 2])), next, "{second:?} {third:?}");
        }
        // Who is left alone has everything.
        assert_eq!(next_change(&led(&[1, 2], &[behind]), &wanted(&[1])), remove(2));
    }

    #[test]
    fn nobody_gets_a_vote_who_does_not_answer_or_where_most_do_not() {
        let promote = || Change::Members(MemberChange::Promote(PeerId(9)));
        for (second, third, learner, next) in [
            (true, true, true, promote()),
            (true, false, true, promote()),
            (false, false, true, Change::Wait),
            (true, true, false, Change::Wait),
        ] {
            let peers = [peer(2, LAST, second), peer(3, LAST, third), peer(9, LAST, learner)];
            let mut status = led(&[1, 2, 3], &peers);
            status.members.learners = vec![PeerId(9)];
            assert_eq!(next_change(&status, &wanted(&[1, 2, 3, 9])), next, "{second} {third} {learner}");
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
        let remove = |peer| Change::Members(MemberChange::Remove(PeerId(peer)));
        let here = |nth| peer(nth, LAST, true);
        let shrinks = led(&[1, 2, 3], &[here(2), peer(3, 17, true)]);
        assert_eq!(next_change(&shrinks, &wanted(&[1])), remove(3), "two who are ready stay");
        let silent = led(&[1, 2, 3, 4, 5], &[here(2), here(3), here(4), peer(5, LAST, false)]);
        assert_eq!(next_change(&silent, &wanted(&[1, 2, 3])), remove(5));
        // A learner is nobody's vote.
        let mut learns = led(&[1, 2], &[peer(2, 17, true), here(9)]);
        learns.members.learners = vec![PeerId(9)];
        assert_eq!(next_change(&learns, &wanted(&[1, 2])), remove(9));
        // It does not wait for a voter that may not go yet.
        let mut waits = led(&[1, 2, 3], &[peer(2, 17, true), peer(3, LAST, false), here(9)]);
        waits.members.learners = vec![PeerId(9)];
        assert_eq!(next_change(&waits, &wanted(&[1, 2])), remove(9));
        // The leader hands over before it goes, to one who can.
        assert_eq!(next_change(&led(&[1, 2], &[here(2)]), &wanted(&[2])), Change::Transfer(PeerId(2)));
        assert_eq!(next_change(&led(&[1, 2], &[peer(2, 17, true)]), &wanted(&[2])), Change::Wait);
    }

    #[test]
    fn whoever_was_given_up_keeps_nobody_out_of_the_catalog() {
        let mut status = led(&[1], &[]);
        status.members.removed = vec![PeerId(2), PeerId(3)];
        let mut wanted = wanted(&[2, 1, 3, 4]);
        assert_eq!(next_change(&status, &wanted), Change::Members(MemberChange::AddLearner(PeerId(4))));
        wanted.table = Some(TableId::from_uuid(Uuid::from_u128(7)));
        assert_eq!(next_change(&status, &wanted), Change::Replace(PeerId(2)));
        wanted.away = vec![PeerId(2)];
        assert_eq!(next_change(&status, &wanted), Change::Replace(PeerId(3)), "2 would get it in vain");
        wanted.away.push(PeerId(3));
        assert_eq!(next_change(&status, &wanted), Change::Members(MemberChange::AddLearner(PeerId(4))));
    }

    #[test]
    fn who_is_to_vote_is_nearer_than_who_is_ready_and_who_stays_may_be_farther() {
        let at = |lag: Lag| LAST - lag.entries();
        let promote = Change::Members(MemberChange::Promote(PeerId(2)));
        for (matched, next) in [(at(Lag::Vote), promote), (at(Lag::Vote) - 1, Change::Wait)] {
            let mut status = led(&[1], &[peer(2, matched, true)]);
            status.members.learners = vec![PeerId(2)];
            assert_eq!(next_change(&status, &wanted(&[1, 2])), next, "{matched}");
            assert!(is_within(&status, PeerId(2), Lag::Ready), "it has everything, or nearly");
        }
        let status = led(&[1, 2], &[peer(2, at(Lag::Ready) - 1, true)]);
        assert!(!is_within(&status, PeerId(2), Lag::Ready) && is_within(&status, PeerId(2), Lag::Removal));
    }
}
