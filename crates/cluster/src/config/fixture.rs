//! Tables, shards and servers for tests of functions that need only configurations.

use datum::Bytes;
use log::{GroupId, PeerId};
use uuid::Uuid;

use super::{
    DbId, ReplicaConfig, ServerId, ShardConfig, ShardHistory, TableCompression, TableConfig, TableIndexes,
    WriteAcks,
};

/// The server with this number.
pub(crate) fn server(n: u64) -> ServerId {
    ServerId(Uuid::from_u128(n.into()))
}

/// The replica of a group on a server; both are given by number.
pub(crate) fn peer(group: u64, server: u64) -> PeerId {
    PeerId(10 * group + server)
}

/// A shard with a voter on each of `servers`. The first is the primary; all of them are founders.
pub(crate) fn shard(group: u64, start: &'static [u8], servers: &[u64]) -> ShardConfig {
    let replica = |n: &u64| ReplicaConfig { server: server(*n), peer: peer(group, *n), voting: true };
    ShardConfig {
        group: GroupId(group),
        start: Bytes::from_static(start),
        replicas: servers.iter().map(replica).collect(),
        leaving: Vec::new(),
        temporary: Vec::new(),
        primary: server(servers[0]),
        founders: servers.iter().map(|n| peer(group, *n)).collect(),
    }
}

/// A table with these shards and an empty shard history.
pub(crate) fn table(shards: Vec<ShardConfig>) -> TableConfig {
    TableConfig {
        id: storage::TableId::from_uuid(Uuid::from_u128(7)),
        db: DbId(Uuid::nil()),
        name: "t".into(),
        primary_key: "id".into(),
        durability: log::Durability::Hard,
        write_acks: WriteAcks::Majority,
        compression: TableCompression::Default,
        indexes: TableIndexes::default(),
        write_hook: None,
        shards,
        history: ShardHistory::default(),
    }
}
