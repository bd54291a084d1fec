//! The rows of the catalog: the stored form of databases, tables, users, grants and servers in the table of group zero.
//! The fields are described in docs/formats/catalog.md.

mod fields;
mod saved_query;
#[cfg(test)]
mod tests;

use datum::{Bytes, Datum, Object, PrimaryKey, Text};
use log::{Durability, GroupId};
use reql::StoredFunc;
use shard::SealState;
use storage::TableId;
use uuid::Uuid;

use self::fields::{Fields, count};
use crate::config::{
    DbConfig, DbId, Grant, PeerId, Permissions, ReplicaConfig, SavedQuery, Scope, SealedShard, ServerConfig,
    ServerId, ShardConfig, ShardHistory, TableConfig, TableIndexes, Temporary, User, WriteAcks,
    durability_name,
};
use crate::error::OpenError;

/// The UUID namespace for names, which are hashed into row keys because a long name could exceed the key size.
const NAMES: Uuid = Uuid::from_u128(0x6f5d_8c1e_31a7_4b52_9d0e_7f2b_64c8_a913);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CatalogRow {
    Db(DbConfig),
    Table(TableConfig),
    User(User),
    Grant(Grant),
    SavedQuery(SavedQuery),
    /// The next free group number.
    Groups(u64),
    /// The version of the catalog: the number of changes so far. Every change states the version that it is based on.
    Version(u64),
    Server(ServerConfig),
    /// The heartbeat timeout, in seconds.
    Heartbeat(u64),
    /// A permanently removed server, which may not join again.
    Removed(RemovedServer),
    /// A dropped table, or a dropped set of shards, whose groups are still being removed. `rows`: whether the table's
    /// rows are removed too.
    Dropped {
        table: TableId,
        groups: Vec<GroupId>,
        rows: bool,
    },
}

/// A permanently removed server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemovedServer {
    pub id: ServerId,
    /// Its last name; earlier versions did not store it.
    pub name: Option<Text>,
}

impl CatalogRow {
    /// The key the row is stored under.
    pub(crate) fn key(&self) -> PrimaryKey {
        match self {
            CatalogRow::Db(db) => key("db", db.id.0),
            CatalogRow::Table(table) => key("table", table.id.uuid()),
            CatalogRow::User(user) => key("user", named(&user.name)),
            CatalogRow::Grant(grant) => grant_key(&grant.user, grant.scope),
            CatalogRow::SavedQuery(query) => saved_query_key(query.id),
            CatalogRow::Groups(_) => key("groups", Uuid::nil()),
            CatalogRow::Version(_) => key("version", Uuid::nil()),
            CatalogRow::Server(server) => server_key(server.id),
            CatalogRow::Heartbeat(_) => key("heartbeat", Uuid::nil()),
            CatalogRow::Removed(server) => key("removed", server.id.0),
            CatalogRow::Dropped { table, groups, .. } => {
                let first = groups.first().map_or(0, |group| group.0);
                key("dropped", Uuid::new_v5(&table.uuid(), &first.to_le_bytes()))
            }
        }
    }

    pub(crate) fn to_object(&self) -> Object {
        let mut fields = match self {
            CatalogRow::Db(db) => vec![("name", db.name.clone().into()), ("uuid", uuid(db.id.0))],
            CatalogRow::Table(table) => table_fields(table),
            CatalogRow::User(user) => vec![
                ("name", user.name.clone().into()),
                ("password", user.password.clone().into()),
                ("has_password", user.has_password.into()),
            ],
            CatalogRow::Grant(grant) => grant_fields(grant),
            CatalogRow::SavedQuery(query) => saved_query::fields(query),
            CatalogRow::Groups(next) => vec![("next", number(*next))],
            CatalogRow::Version(version) => vec![("version", number(*version))],
            CatalogRow::Server(server) => server_fields(server),
            CatalogRow::Heartbeat(seconds) => vec![("seconds", number(*seconds))],
            CatalogRow::Removed(server) => {
                vec![
                    ("uuid", uuid(server.id.0)),
                    ("name", server.name.clone().map_or(Datum::Null, Datum::String)),
                ]
            }
            CatalogRow::Dropped { table, groups, rows } => vec![
                ("table", uuid(table.uuid())),
                ("groups", groups.iter().map(|group| number(group.0)).collect::<Vec<_>>().into()),
                ("rows", (*rows).into()),
            ],
        };
        fields.push(("kind", self.kind().into()));
        fields.push(("id", self.key().decode()));
        fields.into_iter().map(|(name, value)| (Text::from_static(name), value)).collect()
    }

    pub(crate) fn from_object(object: &Object) -> Result<CatalogRow, OpenError> {
        let row = Fields(object);
        Ok(match row.text("kind")?.as_ref() {
            "db" => CatalogRow::Db(DbConfig { id: DbId(row.uuid("uuid")?), name: row.text("name")? }),
            "table" => CatalogRow::Table(table_from(&row)?),
            "user" => CatalogRow::User(User {
                name: row.text("name")?,
                password: row.object("password")?,
                has_password: row.flag("has_password")?,
            }),
            "grant" => CatalogRow::Grant(grant_from(&row)?),
            "saved_query" => CatalogRow::SavedQuery(saved_query::read(&row)?),
            "groups" => CatalogRow::Groups(row.number("next")?),
            "version" => CatalogRow::Version(row.number("version")?),
            "server" => CatalogRow::Server(server_from(&row)?),
            "heartbeat" => CatalogRow::Heartbeat(row.number("seconds")?),
            "removed" => CatalogRow::Removed(RemovedServer {
                id: ServerId(row.uuid("uuid")?),
                name: if row.is_null("name") { None } else { Some(row.text("name")?) },
            }),
            "dropped" => CatalogRow::Dropped {
                table: TableId::from_uuid(row.uuid("table")?),
                groups: row.array("groups")?.iter().map(|n| group(&row, n)).collect::<Result<_, _>>()?,
                rows: row.flag("rows")?,
            },
            other => return Err(row.wrong(format!("kind {other:?} is not known"))),
        })
    }

    fn kind(&self) -> &'static str {
        match self {
            CatalogRow::Db(_) => "db",
            CatalogRow::Table(_) => "table",
            CatalogRow::User(_) => "user",
            CatalogRow::Grant(_) => "grant",
            CatalogRow::SavedQuery(_) => "saved_query",
            CatalogRow::Groups(_) => "groups",
            CatalogRow::Version(_) => "version",
            CatalogRow::Server(_) => "server",
            CatalogRow::Heartbeat(_) => "heartbeat",
            CatalogRow::Removed(_) => "removed",
            CatalogRow::Dropped { .. } => "dropped",
        }
    }
}

/// The key of the row of the user with this name.
pub(crate) fn user_key(name: &str) -> PrimaryKey {
    key("user", named(name))
}

/// The key of the row of a server.
pub(crate) fn server_key(server: ServerId) -> PrimaryKey {
    key("server", server.0)
}

/// The key of the row of the grant to `user` at `scope`.
pub(crate) fn grant_key(user: &str, scope: Scope) -> PrimaryKey {
    let (db, table) = scope_ids(scope);
    let scope = Uuid::new_v5(&db.unwrap_or_default(), table.unwrap_or_default().as_bytes());
    key("grant", Uuid::new_v5(&scope, user.as_bytes()))
}

/// The key of the row of a saved query.
pub(crate) fn saved_query_key(id: Uuid) -> PrimaryKey {
    key("saved_query", id)
}

fn key(kind: &str, id: Uuid) -> PrimaryKey {
    PrimaryKey::encode(&Datum::from(format!("{kind}/{id}"))).expect("invariant: a kind and a uuid fit a key")
}

fn named(name: &str) -> Uuid {
    Uuid::new_v5(&NAMES, name.as_bytes())
}

fn uuid(id: Uuid) -> Datum {
    id.to_string().into()
}

#[allow(clippy::cast_precision_loss)] // counters stay far below 2^53
fn number(n: u64) -> Datum {
    Datum::Number(n as f64)
}

fn scope_ids(scope: Scope) -> (Option<Uuid>, Option<Uuid>) {
    match scope {
        Scope::Global => (None, None),
        Scope::Database(db) => (Some(db.0), None),
        Scope::Table(db, table) => (Some(db.0), Some(table.uuid())),
    }
}

fn table_fields(table: &TableConfig) -> Vec<(&'static str, Datum)> {
    let shards: Vec<Datum> = table.shards.iter().map(shard_to).collect();
    let hook = table.write_hook.as_ref();
    let hook_binary = hook.and_then(StoredFunc::stored_binary).cloned();
    let mut fields = vec![
        ("uuid", uuid(table.id.uuid())),
        ("db", uuid(table.db.0)),
        ("name", table.name.clone().into()),
        ("primary_key", table.primary_key.clone().into()),
        ("durability", durability_name(table.durability).into()),
        ("write_acks", table.write_acks.name().into()),
        ("indexes", table.indexes.to_datum()),
        ("shards", shards.into()),
        ("lineage", history_to(&table.history)),
    ];
    fields.extend(hook.map(|hook| ("write_hook", hook.text().clone().into())));
    fields.extend(hook_binary.map(|binary| ("write_hook_binary", Datum::Binary(binary))));
    fields
}

fn table_from(row: &Fields<'_>) -> Result<TableConfig, OpenError> {
    let durability = match row.text("durability")?.as_ref() {
        "hard" => Durability::Hard,
        "soft" => Durability::Soft,
        other => return Err(row.wrong(format!("durability {other:?} is not known"))),
    };
    let write_acks = match row.text("write_acks")?.as_ref() {
        "majority" => WriteAcks::Majority,
        "single" => WriteAcks::Single,
        other => return Err(row.wrong(format!("write_acks {other:?} is not known"))),
    };
    let shards =
        row.array("shards")?.iter().map(|shard| shard_from(row, shard)).collect::<Result<Vec<_>, _>>()?;
    if shards.is_empty() {
        return Err(row.wrong("the table has no shards".to_owned()));
    }
    Ok(TableConfig {
        id: TableId::from_uuid(row.uuid("uuid")?),
        db: DbId(row.uuid("db")?),
        name: row.text("name")?,
        primary_key: row.text("primary_key")?,
        durability,
        write_acks,
        indexes: indexes_from(row)?,
        write_hook: hook_from(row)?,
        shards,
        history: history_from(row)?,
    })
}

fn history_to(history: &ShardHistory) -> Datum {
    let old = |old: &SealedShard| {
        fields_to([
            ("group", number(old.group.0)),
            ("start", Datum::Binary(old.start.clone())),
            ("end", old.end.clone().map_or(Datum::Null, Datum::Binary)),
            ("replicas", replicas_to(&old.replicas)),
            ("epoch", number(old.epoch)),
        ])
    };
    fields_to([
        ("epoch", number(history.epoch)),
        ("sealed", history.sealed.iter().map(old).collect::<Vec<_>>().into()),
        ("waiting", history.waiting.iter().map(|server| uuid(server.0)).collect::<Vec<_>>().into()),
        ("past", history.past.iter().map(old).collect::<Vec<_>>().into()),
    ])
}

fn history_from(row: &Fields<'_>) -> Result<ShardHistory, OpenError> {
    // Earlier versions did not store a history.
    let Some(Datum::Object(history)) = row.0.get("lineage") else { return Ok(ShardHistory::default()) };
    let fields = Fields(&history);
    let shards = |name| -> Result<Vec<SealedShard>, OpenError> {
        fields.array(name)?.iter().map(|old| sealed_from(row, old)).collect()
    };
    let sealed = shards("sealed")?;
    // Earlier versions forgot them.
    let past = if fields.0.contains_key("past") { shards("past")? } else { Vec::new() };
    let server = |id: &Datum| match id {
        Datum::String(text) => Ok(ServerId(row.parse_uuid("waiting", text)?)),
        other => Err(row.wrong(format!("{} is not a server", other.to_json_string()))),
    };
    let waiting = fields.array("waiting")?.iter().map(server).collect::<Result<_, _>>()?;
    Ok(ShardHistory { epoch: epoch(row, &fields)?, sealed, waiting, past })
}

fn sealed_from(row: &Fields<'_>, old: &Datum) -> Result<SealedShard, OpenError> {
    let Datum::Object(old) = old else {
        return Err(row.wrong("a sealed shard is not an object".to_owned()));
    };
    let (fields, key) = (Fields(old), |field: Option<Datum>| match field {
        Some(Datum::Binary(key)) => Some(Bytes::copy_from_slice(&key)),
        _ => None,
    });
    let start = key(old.get("start")).ok_or_else(|| row.wrong("a sealed shard has no start".to_owned()))?;
    Ok(SealedShard {
        group: GroupId(fields.number("group")?),
        start,
        end: key(old.get("end")),
        replicas: fields.array("replicas")?.iter().map(|r| replica_from(row, r)).collect::<Result<_, _>>()?,
        epoch: epoch(row, &fields)?,
    })
}

fn indexes_from(row: &Fields<'_>) -> Result<TableIndexes, OpenError> {
    // Earlier versions had no indexes.
    let Some(indexes) = row.0.get("indexes") else { return Ok(TableIndexes::default()) };
    TableIndexes::from_datum(&indexes).ok_or_else(|| row.wrong("its indexes cannot be read".to_owned()))
}

fn hook_from(row: &Fields<'_>) -> Result<Option<StoredFunc>, OpenError> {
    if row.is_null("write_hook") {
        return Ok(None);
    }
    let hook = StoredFunc::parse(row.text("write_hook")?);
    let hook = hook.map_err(|error| row.wrong(format!("its write hook cannot be read: {error}")))?;
    Ok(Some(match row.0.get("write_hook_binary") {
        Some(Datum::Binary(binary)) => hook.with_binary(binary),
        _ => hook,
    }))
}

fn shard_to(shard: &ShardConfig) -> Datum {
    let founders: Vec<Datum> = shard.founders.iter().map(|peer| peer.to_string().into()).collect();
    let temporary: Vec<Datum> = shard.temporary.iter().map(temporary_to).collect();
    fields_to([
        ("group", number(shard.group.0)),
        ("start", Datum::Binary(shard.start.clone())),
        ("replicas", replicas_to(&shard.replicas)),
        ("leaving", replicas_to(&shard.leaving)),
        ("added", temporary.into()),
        ("primary", uuid(shard.primary.0)),
        ("founders", founders.into()),
    ])
}

fn shard_from(row: &Fields<'_>, shard: &Datum) -> Result<ShardConfig, OpenError> {
    let Datum::Object(shard) = shard else {
        return Err(row.wrong("a shard is not an object".to_owned()));
    };
    let (Some(number), Some(Datum::Binary(start))) = (shard.get("group"), shard.get("start")) else {
        return Err(row.wrong("a shard has no group or no start".to_owned()));
    };
    let list = |name: &str| -> Result<Vec<ReplicaConfig>, OpenError> {
        match shard.get(name) {
            Some(Datum::Array(replicas)) => replicas.iter().map(|r| replica_from(row, r)).collect(),
            _ => Ok(Vec::new()),
        }
    };
    let (replicas, leaving) = (list("replicas")?, list("leaving")?);
    let primary = match shard.get("primary") {
        Some(Datum::String(text)) => ServerId(row.parse_uuid("primary", &text)?),
        _ => ServerId(Uuid::nil()),
    };
    let founders = match shard.get("founders") {
        Some(Datum::Array(peers)) => {
            peers.iter().map(|peer| peer_from(row, peer)).collect::<Result<_, _>>()?
        }
        _ => Vec::new(),
    };
    let temporary = match shard.get("added") {
        Some(Datum::Array(temporary)) => {
            temporary.iter().map(|a| temporary_from(row, a)).collect::<Result<_, _>>()?
        }
        // Earlier versions had no temporary replicas.
        _ => Vec::new(),
    };
    let (group, start) = (group(row, &number)?, Bytes::copy_from_slice(&start));
    Ok(ShardConfig { group, start, replicas, leaving, temporary, primary, founders })
}

fn temporary_to(temporary: &Temporary) -> Datum {
    let only_vote = matches!(temporary, Temporary::Vote(_));
    fields_to([("server", uuid(temporary.server().0)), ("only_vote", only_vote.into())])
}

fn temporary_from(row: &Fields<'_>, temporary: &Datum) -> Result<Temporary, OpenError> {
    let Datum::Object(temporary) = temporary else {
        return Err(row.wrong("a temporary replica is not an object".to_owned()));
    };
    let temporary = Fields(temporary);
    let server = ServerId(temporary.uuid("server")?);
    Ok(if temporary.flag("only_vote")? { Temporary::Vote(server) } else { Temporary::Replica(server) })
}

fn fields_to<const N: usize>(fields: [(&'static str, Datum); N]) -> Datum {
    let object: Object = fields.into_iter().map(|(k, v)| (Text::from_static(k), v)).collect();
    object.into()
}

fn replicas_to(replicas: &[ReplicaConfig]) -> Datum {
    replicas.iter().map(replica_to).collect::<Vec<_>>().into()
}

/// The peer id is stored as hexadecimal text, because a number in a row cannot hold 64 bits.
fn replica_to(replica: &ReplicaConfig) -> Datum {
    fields_to([
        ("server", uuid(replica.server.0)),
        ("peer", replica.peer.to_string().into()),
        ("voting", replica.voting.into()),
    ])
}

fn replica_from(row: &Fields<'_>, replica: &Datum) -> Result<ReplicaConfig, OpenError> {
    let Datum::Object(replica) = replica else {
        return Err(row.wrong("a replica is not an object".to_owned()));
    };
    let replica = Fields(replica);
    Ok(ReplicaConfig {
        server: ServerId(replica.uuid("server")?),
        peer: peer_from(row, &replica.0.get("peer").unwrap_or(Datum::Null))?,
        voting: replica.flag("voting")?,
    })
}

fn peer_from(row: &Fields<'_>, peer: &Datum) -> Result<PeerId, OpenError> {
    let number = match peer {
        Datum::String(text) => u64::from_str_radix(text, 16).ok(),
        _ => None,
    };
    number.map(PeerId).ok_or_else(|| row.wrong(format!("{} is not a peer", peer.to_json_string())))
}

fn server_fields(server: &ServerConfig) -> Vec<(&'static str, Datum)> {
    let texts = |texts: &[Text]| texts.iter().cloned().map(Datum::String).collect::<Vec<_>>().into();
    vec![
        ("uuid", uuid(server.id.0)),
        ("name", server.name.clone().into()),
        ("tags", texts(&server.tags)),
        ("cache_size_mb", server.cache_size_mb.map_or(Datum::Null, number)),
        ("addresses", texts(&server.addresses)),
        ("catalog", replica_to(&server.catalog)),
        ("is_proxy", server.is_proxy.into()),
    ]
}

fn server_from(row: &Fields<'_>) -> Result<ServerConfig, OpenError> {
    let texts = |name: &str| -> Result<Vec<Text>, OpenError> {
        let text = |datum: &Datum| match datum {
            Datum::String(text) => Ok(text.clone()),
            _ => Err(row.wrong(format!("field {name:?} holds something that is not a string"))),
        };
        row.array(name)?.iter().map(text).collect()
    };
    let catalog = row.0.get("catalog").unwrap_or(Datum::Null);
    Ok(ServerConfig {
        id: ServerId(row.uuid("uuid")?),
        name: row.text("name")?,
        tags: texts("tags")?,
        cache_size_mb: if row.is_null("cache_size_mb") { None } else { Some(row.number("cache_size_mb")?) },
        addresses: texts("addresses")?,
        catalog: replica_from(row, &catalog)?,
        is_proxy: row.0.get("is_proxy") == Some(Datum::Bool(true)),
    })
}

/// The epoch of a table or of a sealed shard. Fails for an epoch that is larger than a seal state can hold.
fn epoch(row: &Fields<'_>, of: &Fields<'_>) -> Result<u64, OpenError> {
    match of.number("epoch")? {
        epoch if epoch > SealState::EPOCH_MAX => {
            Err(row.wrong(format!("epoch {epoch} is too large, the maximum is {}", SealState::EPOCH_MAX)))
        }
        epoch => Ok(epoch),
    }
}

fn group(row: &Fields<'_>, datum: &Datum) -> Result<GroupId, OpenError> {
    count(row, datum).map(GroupId)
}

fn grant_fields(grant: &Grant) -> Vec<(&'static str, Datum)> {
    let (db, table) = scope_ids(grant.scope);
    vec![
        ("user", grant.user.clone().into()),
        ("db", db.map_or(Datum::Null, uuid)),
        ("table", table.map_or(Datum::Null, uuid)),
        ("permissions", grant.permissions.to_object().into()),
    ]
}

fn grant_from(row: &Fields<'_>) -> Result<Grant, OpenError> {
    let scope = match (row.is_null("db"), row.is_null("table")) {
        (true, _) => Scope::Global,
        (false, true) => Scope::Database(DbId(row.uuid("db")?)),
        (false, false) => Scope::Table(DbId(row.uuid("db")?), TableId::from_uuid(row.uuid("table")?)),
    };
    let permissions = Permissions::from_object(&row.object("permissions")?);
    Ok(Grant { user: row.text("user")?, scope, permissions })
}
