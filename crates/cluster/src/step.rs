//! The steps by which a group gets the members that the catalog wants: one at a time, from what is there.

use log::{GroupStatus, Lsn, MemberChange, PeerId};
use storage::TableId;

use crate::ReplicaConfig;

/// A replica this close to the end of the log may vote, and lead.
const CLOSE: u64 = 256;
/// Who lags no more than this while it is written to has the rest soon.
const NEAR: u64 = 4096;

/// Who should be in a group.
pub(crate) struct Wanted {
    /// `None` for the catalog.
    pub(crate) table: Option<TableId>,
    /// The version of the catalog that says so.
    pub(crate) version: u64,
    pub(crate) replicas: Vec<ReplicaConfig>,
    pub(crate) primary: Option<PeerId>,
    pub(crate) is_leaving: bool,
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

/// The next step to the members that are wanted, from those that there are.
pub(crate) fn next_step(status: &GroupStatus, wanted: &Wanted) -> Step {
    let members = &status.members;
    if let Some(gone) = wanted.replicas.iter().find(|replica| members.removed.contains(&replica.peer)) {
        // Its server discards the old one then, which those who stay may still need.
        return if status.removed_may_go { Step::NameAnew(gone.peer) } else { Step::Wait };
    }
    let may_join = |peer: PeerId| !members.contains(peer);
    if let Some(new) = wanted.replicas.iter().find(|replica| may_join(replica.peer)) {
        return Step::Change(MemberChange::AddLearner(new.peer));
    }
    let is_close = |peer: PeerId, distance: u64| {
        peer == status.own
            || status.peers.iter().any(|known| {
                known.peer == peer
                    && known.active
                    && !known.needs_rows
                    && known.matched > Lsn(0)
                    && known.matched.0 + distance >= status.last.0
            })
    };
    let mut waits = false;
    for replica in wanted.replicas.iter().filter(|replica| replica.voting) {
        if members.learners.contains(&replica.peer) {
            if is_close(replica.peer, CLOSE) {
                return Step::Change(MemberChange::Promote(replica.peer));
            }
            waits = true;
        }
    }
    if waits {
        return Step::Wait;
    }
    let is_wanted = |peer: PeerId| wanted.replicas.iter().any(|replica| replica.peer == peer);
    let strangers = members.voters.iter().chain(&members.learners).copied().filter(|peer| !is_wanted(*peer));
    // Who does not answer goes first: without those who do it could be half of what is left.
    let answers = |peer: PeerId| status.peers.iter().any(|known| known.peer == peer && known.active);
    let stranger = strangers.min_by_key(|peer| *peer == status.own || answers(*peer));
    // Most of those who stay must be ready, or the group would wait for one that needs a copy first.
    let can_go = |peer: PeerId| {
        let stay = members.voters.iter().filter(|voter| **voter != peer);
        let ready = stay.clone().filter(|voter| is_close(**voter, NEAR)).count();
        !members.voters.contains(&peer) || ready * 2 > stay.count()
    };
    let heir = || {
        let voters = wanted.replicas.iter().filter(|r| r.voting && r.peer != status.own);
        let preferred = voters.clone().find(|replica| Some(replica.peer) == wanted.primary);
        preferred.into_iter().chain(voters).find(|replica| is_close(replica.peer, CLOSE)).map(|r| r.peer)
    };
    match stranger {
        Some(own) if own == status.own => return heir().map_or(Step::Wait, Step::Transfer),
        Some(other) if answers(other) && !can_go(other) => return Step::Wait,
        Some(other) => return Step::Change(MemberChange::Remove(other)),
        // The catalog discards them as soon as it forgets them.
        None if wanted.is_leaving && !status.removed_may_go => return Step::Wait,
        None => {}
    }
    match wanted.primary {
        Some(primary)
            if primary != status.own && members.voters.contains(&primary) && is_close(primary, CLOSE) =>
        {
            Step::Transfer(primary)
        }
        _ => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use log::{Members, PeerStatus, Role, Term};
    use uuid::Uuid;

    use super::*;
    use crate::ServerId;

    const LAST: u64 = 1000;

    /// The leader is the first.
    fn led(voters: &[u64], peers: &[PeerStatus]) -> GroupStatus {
        GroupStatus {
            own: PeerId(voters[0]),
            role: Role::Leader { term: Term(3) },
            start: Lsn(900),
            last: Lsn(LAST),
            last_term: Term(3),
            committed: Lsn(LAST),
            durable: Lsn(LAST),
            applied: Lsn(LAST),
            needs_rows: false,
            members: Members::first(voters.iter().map(|peer| PeerId(*peer)).collect()),
            removed_may_go: true,
            peers: peers.to_vec(),
        }
    }

    fn peer(peer: u64, matched: u64, active: bool) -> PeerStatus {
        PeerStatus { peer: PeerId(peer), matched: Lsn(matched), active, needs_rows: matched < 900 }
    }

    fn wanted(peers: &[u64]) -> Wanted {
        let replica = |peer: &u64| ReplicaConfig {
            server: ServerId(Uuid::from_u128(u128::from(*peer))),
            peer: PeerId(*peer),
            voting: true,
        };
        let replicas = peers.iter().map(replica).collect();
        Wanted { table: None, version: 1, replicas, primary: None, is_leaving: true }
    }

    #[test]
    fn nobody_who_is_needed_for_a_majority_is_removed() {
        let remove = |peer| Step::Change(MemberChange::Remove(PeerId(peer)));
        let (here, behind, gone) = (peer(2, LAST, true), peer(2, 17, true), peer(2, LAST, false));
        for (second, third, next) in [
            (here, peer(3, LAST, true), remove(3)),
            (behind, peer(3, LAST, true), Step::Wait),
            (gone, peer(3, LAST, true), Step::Wait),
            // Without it nothing is worse.
            (here, peer(3, LAST, false), remove(3)),
            (behind, peer(3, LAST, false), remove(3)),
        ] {
            let status = led(&[1, 2, 3], &[second, third]);
            assert_eq!(next_step(&status, &wanted(&[1, 2])), next, "{second:?} {third:?}");
        }
        // Who is left alone has everything.
        assert_eq!(next_step(&led(&[1, 2], &[behind]), &wanted(&[1])), remove(2));
    }
}
