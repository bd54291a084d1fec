//! The next change of a group's members towards the members that the catalog wants: a pure function of the group's status.

use std::collections::BTreeSet;

use log::{GroupId, GroupStatus, MemberChange, Members, PeerId};
use storage::TableId;

use crate::config::ReplicaConfig;
use crate::routing::lag::{Lag, is_within};

/// The members that the catalog wants a group to have.
pub(crate) struct DesiredMembers {
    pub(crate) group: GroupId,
    /// `None` for the catalog.
    pub(crate) table: Option<TableId>,
    /// The version of the catalog that wants them.
    pub(crate) version: u64,
    pub(crate) replicas: Vec<ReplicaConfig>,
    /// The replicas on servers that are not connected.
    pub(crate) away: Vec<PeerId>,
    /// The replica that is to lead, if leadership may move now.
    pub(crate) primary: Option<PeerId>,
    /// The catalog still names replicas that leave the group.
    pub(crate) is_leaving: bool,
}

impl DesiredMembers {
    /// Whether a removed replica is replaced by a new one on the same server. Not in the catalog's group: an emergency
    /// repair removes that server, and will delete its row. Nor while the server is not connected: it cannot use another
    /// replica before it is back, and an emergency repair may be removing it.
    fn may_be_replaced(&self, replica: &ReplicaConfig) -> bool {
        self.table.is_some() && !self.away.contains(&replica.peer)
    }
}

/// The next step of a group's leader towards the desired members.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// Nothing now: another server, or another member, has to act first.
    Wait,
    Members(MemberChange),
    /// Give the server of this replica a new one. The catalog wants this replica, but it was removed from the group, which
    /// cannot be undone.
    Replace(PeerId),
    Transfer(PeerId),
}

impl Change {
    /// Whether the change adds or removes a voter. Members are probed for liveness before such a change.
    pub(crate) fn changes_votes(&self, members: &Members) -> bool {
        match self {
            Change::Members(MemberChange::Promote(_)) => true,
            Change::Members(MemberChange::Remove(peer)) => members.voters.contains(peer),
            _ => false,
        }
    }
}

/// The next change from the present members towards the desired ones.
pub(crate) fn next_change(status: &GroupStatus, desired: &DesiredMembers) -> Change {
    let members = &status.members;
    let is_removed = |replica: &&ReplicaConfig| members.removed.contains(&replica.peer);
    let mut removed = desired.replicas.iter().filter(is_removed);
    if let Some(removed) = removed.find(|removed| desired.may_be_replaced(removed)) {
        // The server discards the old replica as soon as it has a new one. The remaining members may need the old one until
        // the removal is durable.
        return if status.members_durable { Change::Replace(removed.peer) } else { Change::Wait };
    }
    if let Some(new) = desired.replicas.iter().find(|r| !members.contains(r.peer) && !is_removed(r)) {
        return Change::Members(MemberChange::AddLearner(new.peer));
    }
    let is_close = |peer: PeerId, lag: Lag| is_within(status, peer, lag);
    let mut waits = false;
    let is_future_voter =
        |replica: &&ReplicaConfig| replica.voting && members.learners.contains(&replica.peer);
    for replica in desired.replicas.iter().filter(is_future_voter) {
        if is_close(replica.peer, Lag::Vote) && has_quorum(status) {
            return Change::Members(MemberChange::Promote(replica.peer));
        }
        waits = true;
    }
    if waits {
        return Change::Wait;
    }
    let is_desired = |peer: PeerId| desired.replicas.iter().any(|replica| replica.peer == peer);
    let mut undesired =
        members.learners.iter().chain(&members.voters).copied().filter(|peer| !is_desired(*peer));
    // A quorum of the remaining voters must be nearly up to date, or the group would wait for one that needs a copy first.
    // Whether the removed voter is active does not matter: the log resets that from time to time.
    let is_removable = |peer: PeerId| {
        let remaining = members.voters.iter().filter(|voter| **voter != peer);
        let ready = remaining.clone().filter(|voter| is_close(**voter, Lag::Removal)).count();
        !members.voters.contains(&peer) || ready * 2 > remaining.count()
    };
    let successor = || {
        let voters = desired.replicas.iter().filter(|r| r.voting && r.peer != status.own);
        let preferred = voters.clone().find(|replica| Some(replica.peer) == desired.primary);
        preferred.into_iter().chain(voters).find(|replica| is_close(replica.peer, Lag::Vote)).map(|r| r.peer)
    };
    // Replicas that are far behind are removed first, since a remaining member could need the rows of the others. The leader
    // is removed last.
    let others = undesired.clone().filter(|peer| *peer != status.own);
    if let Some(next) =
        others.clone().filter(|peer| is_removable(*peer)).min_by_key(|peer| is_close(*peer, Lag::Removal))
    {
        return Change::Members(MemberChange::Remove(next));
    }
    if others.count() > 0 {
        return Change::Wait;
    }
    if undesired.next().is_some() {
        return successor().map_or(Change::Wait, Change::Transfer);
    }
    if desired.is_leaving && !status.members_durable {
        // Servers discard their leaving replicas as soon as the catalog no longer names them; the removal must be durable
        // before.
        return Change::Wait;
    }
    match desired.primary {
        Some(primary)
            if primary != status.own && members.voters.contains(&primary) && is_close(primary, Lag::Vote) =>
        {
            Change::Transfer(primary)
        }
        _ => Change::Nothing,
    }
}

/// The members that do not respond, if the voters would change as soon as these members responded and had the whole log.
pub(crate) fn waits_for(status: &GroupStatus, desired: &DesiredMembers) -> BTreeSet<PeerId> {
    let changes = |status: &GroupStatus| next_change(status, desired).changes_votes(&status.members);
    let mut all_active = status.clone();
    for peer in all_active.peers.iter_mut().filter(|peer| !peer.active) {
        (peer.active, peer.matched, peer.needs_rows) = (true, status.last, false);
    }
    if changes(status) || !changes(&all_active) {
        return BTreeSet::new();
    }
    status.peers.iter().filter(|peer| !peer.active).map(|peer| peer.peer).collect()
}

/// Whether a quorum of the voters responds.
pub(crate) fn has_quorum(status: &GroupStatus) -> bool {
    let is_active = |voter: &&PeerId| {
        **voter == status.own || status.peers.iter().any(|peer| peer.peer == **voter && peer.active)
    };
    status.members.voters.iter().filter(is_active).count() * 2 > status.members.voters.len()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::fixture::{LAST, desired, known as peer, led};
    use super::*;

    #[test]
    fn a_member_that_is_needed_for_a_quorum_is_not_removed() {
        let remove = |peer| Change::Members(MemberChange::Remove(PeerId(peer)));
        let bound = LAST - Lag::Removal.entries();
        let (complete, close, late) = (peer(2, LAST, true), peer(2, bound, true), peer(2, bound - 1, true));
        let (needs_copy, inactive) = (peer(2, 17, true), peer(2, LAST, false));
        for (second, third, next) in [
            (complete, peer(3, LAST, true), remove(3)),
            (close, peer(3, LAST, true), remove(3)),
            (late, peer(3, LAST, true), Change::Wait),
            (needs_copy, peer(3, LAST, true), Change::Wait),
            (inactive, peer(3, LAST, true), Change::Wait),
            (complete, peer(3, LAST, false), remove(3)),
            // The third may be alive: it may just not have responded since the leader last reset its activity.
            (needs_copy, peer(3, LAST, false), Change::Wait),
        ] {
            let status = led(&[1, 2, 3], &[second, third]);
            assert_eq!(next_change(&status, &desired(&[1, 2])), next, "{second:?} {third:?}");
        }
        // A leader that remains alone has the whole log.
        assert_eq!(next_change(&led(&[1, 2], &[needs_copy]), &desired(&[1])), remove(2));
    }

    #[test]
    fn a_learner_is_promoted_only_if_it_and_a_quorum_respond() {
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
            assert_eq!(next_change(&status, &desired(&[1, 2, 3, 9])), next, "{second} {third} {learner}");
        }
    }

    #[test]
    fn only_silent_members_whose_response_would_allow_a_change_are_waited_for() {
        let waits = |status: &GroupStatus, to: &[u64]| {
            waits_for(status, &desired(to)).into_iter().map(|peer| peer.0).collect::<Vec<_>>()
        };
        let (silent, copying) = (peer(2, LAST, false), peer(9, 17, true));
        assert_eq!(waits(&led(&[1, 2, 3], &[silent, peer(3, LAST, true)]), &[1, 2]), [2]);
        assert_eq!(waits(&led(&[1, 2], &[silent]), &[1, 2]), [], "nothing is to change");
        let mut status = led(&[1, 2, 3], &[silent, peer(3, LAST, true), copying]);
        status.members.learners = vec![PeerId(9)];
        assert_eq!(waits(&status, &[1, 2, 3, 9]), [], "the group waits for the rows on 9");
        status.peers[2].active = false;
        assert_eq!(waits(&status, &[1, 2, 3, 9]), [2, 9]);
    }

    #[test]
    fn lagging_replicas_are_removed_first_and_the_leader_last() {
        let remove = |peer| Change::Members(MemberChange::Remove(PeerId(peer)));
        let complete = |nth| peer(nth, LAST, true);
        let shrinks = led(&[1, 2, 3], &[complete(2), peer(3, 17, true)]);
        assert_eq!(next_change(&shrinks, &desired(&[1])), remove(3), "the two complete ones stay");
        let silent = led(&[1, 2, 3, 4, 5], &[complete(2), complete(3), complete(4), peer(5, LAST, false)]);
        assert_eq!(next_change(&silent, &desired(&[1, 2, 3])), remove(5));
        // A learner has no vote that could be missing.
        let mut learns = led(&[1, 2], &[peer(2, 17, true), complete(9)]);
        learns.members.learners = vec![PeerId(9)];
        assert_eq!(next_change(&learns, &desired(&[1, 2])), remove(9));
        // The removal of a learner does not wait for that of a voter that cannot be removed yet.
        let mut waits = led(&[1, 2, 3], &[peer(2, 17, true), peer(3, LAST, false), complete(9)]);
        waits.members.learners = vec![PeerId(9)];
        assert_eq!(next_change(&waits, &desired(&[1, 2])), remove(9));
        // A leader that is to be removed first transfers leadership to a voter that has the log.
        assert_eq!(next_change(&led(&[1, 2], &[complete(2)]), &desired(&[2])), Change::Transfer(PeerId(2)));
        assert_eq!(next_change(&led(&[1, 2], &[peer(2, 17, true)]), &desired(&[2])), Change::Wait);
    }

    #[test]
    fn removed_replicas_in_the_catalog_do_not_block_the_addition_of_others() {
        let mut status = led(&[1], &[]);
        status.members.removed = vec![PeerId(2), PeerId(3)];
        let mut desired = desired(&[2, 1, 3, 4]);
        assert_eq!(next_change(&status, &desired), Change::Members(MemberChange::AddLearner(PeerId(4))));
        desired.table = Some(TableId::from_uuid(Uuid::from_u128(7)));
        assert_eq!(next_change(&status, &desired), Change::Replace(PeerId(2)));
        desired.away = vec![PeerId(2)];
        assert_eq!(next_change(&status, &desired), Change::Replace(PeerId(3)), "2 is not connected");
        desired.away.push(PeerId(3));
        assert_eq!(next_change(&status, &desired), Change::Members(MemberChange::AddLearner(PeerId(4))));
    }

    #[test]
    fn the_lag_bound_is_strictest_for_a_vote_and_widest_for_a_removal() {
        let at = |lag: Lag| LAST - lag.entries();
        let promote = Change::Members(MemberChange::Promote(PeerId(2)));
        for (matched, next) in [(at(Lag::Vote), promote), (at(Lag::Vote) - 1, Change::Wait)] {
            let mut status = led(&[1], &[peer(2, matched, true)]);
            status.members.learners = vec![PeerId(2)];
            assert_eq!(next_change(&status, &desired(&[1, 2])), next, "{matched}");
            assert!(is_within(&status, PeerId(2), Lag::Ready), "it has the whole log, or nearly");
        }
        let status = led(&[1, 2], &[peer(2, at(Lag::Ready) - 1, true)]);
        assert!(!is_within(&status, PeerId(2), Lag::Ready) && is_within(&status, PeerId(2), Lag::Removal));
    }
}
