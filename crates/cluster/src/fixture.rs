//! Tables for tests of what is worked out on their configuration alone.

use datum::Bytes;
use log::{GroupId, GroupStatus, Lsn, Members, PeerId, PeerStatus, Role, Term};
use uuid::Uuid;

use crate::step::Wanted;
use crate::{DbId, ReplicaConfig, ServerId, ShardConfig, ShardHistory, TableConfig, TableIndexes, WriteAcks};

/// The server of that number.
pub(crate) fn server(n: u64) -> ServerId {
    ServerId(Uuid::from_u128(n.into()))
}

/// The replica of a group on a server, by their numbers.
pub(crate) fn peer(group: u64, server: u64) -> PeerId {
    PeerId(10 * group + server)
}

/// A shard with voters on those servers, the first its primary, all of them its founders.
pub(crate) fn shard(group: u64, start: &'static [u8], servers: &[u64]) -> ShardConfig {
    let replica = |n: &u64| ReplicaConfig { server: server(*n), peer: peer(group, *n), voting: true };
    ShardConfig {
        group: GroupId(group),
        start: Bytes::from_static(start),
        replicas: servers.iter().map(replica).collect(),
        leaving: Vec::new(),
        added: Vec::new(),
        primary: server(servers[0]),
        founders: servers.iter().map(|n| peer(group, *n)).collect(),
    }
}

/// A table of those shards, without anything before them.
pub(crate) fn table(shards: Vec<ShardConfig>) -> TableConfig {
    TableConfig {
        id: storage::TableId::from_uuid(Uuid::from_u128(7)),
        db: DbId(Uuid::nil()),
        name: "t".into(),
        primary_key: "id".into(),
        durability: log::Durability::Hard,
        write_acks: WriteAcks::Majority,
        indexes: TableIndexes::default(),
        write_hook: None,
        shards,
        lineage: ShardHistory::default(),
    }
}

/// Where the log of the leader of [`led`] begins, and its end.
pub(crate) const START: u64 = 900;
pub(crate) const LAST: u64 = 10_000;

/// How a group is for its leader, the first of those who vote.
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

/// What that leader knows of another.
pub(crate) fn known(peer: u64, matched: u64, active: bool) -> PeerStatus {
    PeerStatus { peer: PeerId(peer), matched: Lsn(matched), active, needs_rows: matched < START }
}

/// A group with those replicas is wanted.
pub(crate) fn wanted(peers: &[u64]) -> Wanted {
    let replica = |peer: &u64| ReplicaConfig {
        server: ServerId(Uuid::from_u128(u128::from(*peer))),
        peer: PeerId(*peer),
        voting: true,
    };
    let replicas = peers.iter().map(replica).collect();
    Wanted {
        group: GroupId(3),
        table: None,
        version: 1,
        replicas,
        away: vec![],
        primary: None,
        is_leaving: true,
    }
}
