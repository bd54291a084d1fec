//! Groups for tests of membership changes.

use log::{GroupId, GroupStatus, Lsn, Members, PeerId, PeerStatus, Role, Term};
use uuid::Uuid;

use super::next_change::DesiredMembers;
use crate::config::{ReplicaConfig, ServerId};

/// The first and the last position of the leader's log in a group of [`led`].
pub(crate) const START: u64 = 900;
pub(crate) const LAST: u64 = 10_000;

/// The status of a group as its leader has it. The leader is the first of `voters`.
pub(crate) fn led(voters: &[u64], peers: &[PeerStatus]) -> GroupStatus {
    GroupStatus {
        own: PeerId(voters[0]),
        role: Role::Leader { term: Term(3) },
        start: Lsn(START),
        last: Lsn(LAST),
        last_term: Term(3),
        committed: Lsn(LAST),
        durable: Lsn(LAST),
        applied: Lsn(LAST),
        needs_rows: false,
        members: Members::first(voters.iter().map(|peer| PeerId(*peer)).collect()),
        members_durable: true,
        peers: peers.to_vec(),
    }
}

/// What that leader knows of another replica.
pub(crate) fn known(peer: u64, matched: u64, active: bool) -> PeerStatus {
    PeerStatus { peer: PeerId(peer), matched: Lsn(matched), active, needs_rows: matched < START }
}

/// The catalog wants a group with voters on these peers.
pub(crate) fn desired(peers: &[u64]) -> DesiredMembers {
    let replica = |peer: &u64| ReplicaConfig {
        server: ServerId(Uuid::from_u128(u128::from(*peer))),
        peer: PeerId(*peer),
        voting: true,
    };
    let replicas = peers.iter().map(replica).collect();
    DesiredMembers {
        group: GroupId(3),
        table: None,
        version: 1,
        replicas,
        away: vec![],
        primary: None,
        is_leaving: true,
    }
}
