//! The fast path: reads and writes of one row, and reads of a few, by the primary key. Queries are recognised by their
//! shape and run without a thread of their own. A read completes at once, a write with its ticket. If a row is not in
//! memory, a reader thread reads it, so that the other queries of the thread do not wait for the disk
//! (docs/decisions/0054-reads-beyond-memory.md).
//!
//! Every other query, and every query with an error, takes the slow path, which has the same result.

mod disk;
mod range;
mod remote;
mod shape;
mod write;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::{Catalog, TableHandle};
use datum::key::bucket_of;
use datum::{Datum, PrimaryKey};
use reql::{EvalError, Op, Term};
use shard::{ReadError, Shard};
use storage::{Reach, RowTexts};

pub use disk::DiskPoint;
pub use remote::RemotePoint;
pub use write::PointWrite;

use crate::remote::Target;
use crate::routing::{BatchKey, ReadMode};
use crate::session::{Query, Session};
use crate::stream::{Buckets, Next};
use crate::table::{Privilege, Resource, access, read_failed};
use remote::{CallMode, Retry};
use shape::{Options, Row, TableName};

/// Most keys of a `get_all`: one connection must not delay another for long.
const KEYS_MAX: usize = 32;

/// The result of a query on the fast path.
pub enum PointAnswer {
    /// A finished read of one row.
    Read(Result<Datum, EvalError>),
    /// A finished read of some rows: a stream of one batch.
    Rows(RowTexts),
    /// The number of rows of a table.
    Count(Datum),
    /// A read that waits for another node.
    RemoteRead(RemotePoint),
    /// A read that waits for the disk.
    DiskRead(DiskPoint),
    /// A read of some rows that needs the disk: for [`Session::rows_from_disk`], on a thread that may block.
    RowsOnDisk,
    /// A write that waits for its outcome.
    Write(PointWrite),
}

impl Session {
    /// Runs `query`, or starts it, if it has a shape of the fast path. `None` means that [`Session::run`] has to run
    /// it. It does not wait for the disk, though some kilobytes of rows may first go to the engine's memory, as with a
    /// write. After a [`PointAnswer::Write`] or a
    /// [`PointAnswer::RemoteRead`] the caller must call [`crate::Service::flush`]: otherwise it waits until another
    /// caller does.
    #[must_use]
    pub fn point(&self, query: &Arc<Query>) -> Option<PointAnswer> {
        let answer = self.begin_point(query, CallMode::Batched, Reach::Memory)?;
        if !matches!(answer, PointAnswer::RowsOnDisk) {
            self.service.counters().queries.fetch_add(1, Ordering::Relaxed);
        }
        Some(answer)
    }

    /// The rows of a query with [`PointAnswer::RowsOnDisk`], read by several threads. `None` means that
    /// [`Session::run`] has to run the query. Blocks.
    #[must_use]
    pub fn rows_from_disk(&self, query: &Arc<Query>) -> Option<RowTexts> {
        let Some(PointAnswer::Rows(rows)) = self.begin_point(query, CallMode::Alone, Reach::Disk) else {
            return None;
        };
        let counters = self.service.counters();
        counters.queries.fetch_add(1, Ordering::Relaxed);
        counters.from_disk.fetch_add(1, Ordering::Relaxed);
        Some(rows)
    }

    /// The same for a query that was counted before.
    fn begin_point(&self, query: &Arc<Query>, call_mode: CallMode, reach: Reach) -> Option<PointAnswer> {
        let Term::Call(call) = &query.term else { return None };
        Some(match (call.op, call.args.as_slice()) {
            (Op::Get, _) => get(self, query, call_mode, reach)?,
            (Op::GetAll, args) if call.optargs.is_empty() => get_all(self, query, args, reach)?,
            (Op::Count, [table]) if call.optargs.is_empty() => PointAnswer::Count(count(self, query, table)?),
            (Op::Limit, _) => PointAnswer::Rows(range::first_rows(self, query, call)?),
            (Op::Insert | Op::Update | Op::Replace | Op::Delete, _) => {
                PointAnswer::Write(write::begin(self, query, call, reach)?)
            }
            _ => return None,
        })
    }
}

/// The table with this name, if the user may read it, and the read mode of the query.
fn readable<'c>(
    session: &Session,
    catalog: &'c Catalog,
    options: Options<'_>,
    name: TableName<'_>,
) -> Option<(&'c TableHandle, ReadMode)> {
    let table = catalog.table(name.db.or(options.db).unwrap_or("test"), name.name)?;
    let place = Resource::Table(table.db.id, table.config.id);
    access::check_user(catalog, &session.client.user, Privilege::Read, place).ok()?;
    Some((table, name.mode.or(options.mode).unwrap_or(ReadMode::Single)))
}

/// `get_all` with a few literal keys, whose shards are all on this node.
fn get_all(session: &Session, query: &Query, args: &[Term], reach: Reach) -> Option<PointAnswer> {
    let (table, keys) = args.split_first().filter(|(_, keys)| keys.len() <= KEYS_MAX)?;
    let key = |term: &Term| match term {
        Term::Datum(key) => PrimaryKey::encode(key).ok(),
        _ => None,
    };
    let mut keys: Vec<PrimaryKey> = keys.iter().map(key).collect::<Option<_>>()?;
    // A key that is given twice returns its row twice.
    keys.sort_unstable();
    let keys = interleaved(keys);
    let catalog = session.service.node().catalog_guard();
    let (table, mode) = readable(session, &catalog, Options::of(query)?, TableName::of(table)?)?;
    if mode == ReadMode::Majority {
        return None;
    }
    let (mut rows, bytes_max) = (RowTexts::default(), reql::BatchLimits::default().first().bytes_max);
    for keys in keys.chunk_by(|a, b| std::ptr::eq(table.shard(a), table.shard(b))) {
        let Some(first) = keys.first() else { continue };
        let Target::Local(shard) = session.service.reader(table.shard(first), mode)? else { return None };
        let read = match reach {
            Reach::Memory => shard.get_texts(keys, reach, &mut rows, bytes_max),
            Reach::Disk => texts_from_disk(session, shard, keys, &mut rows, bytes_max),
        };
        match read {
            Err(error) if error.needs_disk() => return Some(PointAnswer::RowsOnDisk),
            read => read.ok()?,
        }
    }
    // More rows would be more than one batch, and if a row is missing the interleaved order is another one.
    let fits = rows.bytes() < bytes_max && rows.len() == keys.len();
    session.service.counters().rows_read.fetch_add(rows.len() as u64, Ordering::Relaxed);
    fits.then_some(PointAnswer::Rows(rows))
}

/// Appends rows as [`Shard::get_texts`] does. Several threads read the disk.
fn texts_from_disk(
    session: &Session,
    shard: &Arc<Shard>,
    keys: &[PrimaryKey],
    rows: &mut RowTexts,
    bytes_max: usize,
) -> Result<(), ReadError> {
    let shard = shard.clone();
    let read = move |keys: Vec<PrimaryKey>| {
        let mut texts = RowTexts::default();
        shard.get_texts(&keys, Reach::Disk, &mut texts, bytes_max).map(|()| texts)
    };
    for texts in session.service.readers.read_parts(keys.to_vec(), read) {
        rows.append(&texts?);
    }
    Ok(())
}

/// The number of rows of a table whose shards are all on this node; it is stored.
fn count(session: &Session, query: &Query, table: &Term) -> Option<Datum> {
    let catalog = session.service.node().catalog_guard();
    let (table, mode) = readable(session, &catalog, Options::of(query)?, TableName::of(table)?)?;
    if mode == ReadMode::Majority || table.shards().len() > KEYS_MAX {
        return None;
    }
    let mut count = 0;
    for shard in table.shards() {
        let Target::Local(shard) = session.service.reader(shard, mode)? else { return None };
        let generation = shard.rows_generation();
        count += shard.try_snapshot().ok()??.count().ok()?;
        if !shard.is_current(generation) {
            return None;
        }
    }
    Some(Datum::Number(count as f64))
}

fn get(session: &Session, query: &Arc<Query>, call_mode: CallMode, reach: Reach) -> Option<PointAnswer> {
    let row = Row::of(&query.term)?;
    let key = PrimaryKey::encode(row.key).ok()?;
    let catalog = session.service.node().catalog_guard();
    let (table, mode) = readable(session, &catalog, Options::of(query)?, row.table)?;
    let handle = table.shard(&key);
    let site = match call_mode {
        CallMode::Batched => session.service.first_reader(handle, mode),
        CallMode::Alone | CallMode::Monitored => session.service.reader(handle, mode),
    };
    let Some(site) = site else {
        let retry = || Retry::new(session, query, handle, Some(mode));
        return (mode == ReadMode::Single)
            .then(|| PointAnswer::RemoteRead(RemotePoint::wait_for_leader(retry())));
    };
    match site {
        // The confirmation of the leader may take a while.
        Target::Local(_) if mode == ReadMode::Majority => None,
        Target::Local(shard) => {
            let row = match shard.get_within(&key, reach) {
                Ok(row) => Ok(row.map_or(Datum::Null, Datum::Object)),
                // The slow path finds the row's new shard.
                Err(ReadError::WrongShard { .. }) => return None,
                Err(error) if error.needs_disk() => {
                    return Some(PointAnswer::DiskRead(DiskPoint::read(session, query)));
                }
                Err(error) => Err(read_failed(&error)),
            };
            session.service.counters().rows_read.fetch_add(1, Ordering::Relaxed);
            Some(PointAnswer::Read(row))
        }
        Target::Remote(server) => {
            let batch = BatchKey { server, table: table.config.id, mode };
            let retry = Retry::new(session, query, handle, Some(mode));
            Some(PointAnswer::RemoteRead(RemotePoint::send_read(retry, batch, key, call_mode)))
        }
    }
}

/// Keys in the order of their rows if all rows exist (decision 0042).
fn interleaved(keys: Vec<PrimaryKey>) -> Vec<PrimaryKey> {
    let mut buckets = Buckets::new();
    let mut round_robin = Vec::with_capacity(keys.len());
    keys.into_iter().for_each(|key| buckets.push(bucket_of(key.as_bytes()), key, 0));
    while let Next::Item(key) = buckets.next_item(true) {
        round_robin.push(key);
    }
    round_robin
}
