//! Rows of groups as they were at earlier positions, wherever their rows are now.
//!
//! The rows of a sealed group are those with which its successors began, without the changes between the position and the seal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datum::{KeyBound, KeyRange, Object, PrimaryKey};
use io::task;
use log::GroupId;
use shard::{
    HistoryEntry, HistoryEvent, HistoryPosition, HistoryRecord, HistoryRows, Replicas, RowsBefore,
    read_history,
};
use storage::TableId;

use super::position::{FeedPosition, FeedStart};
use super::response::HistoryResponse;
use super::rows::{RowReader, decode_rows};
use super::successors::{Continuation, continuation, sealed};
use crate::catalog::{CatalogClient, Handles};
use crate::config::ServerId;
use crate::routing::{LeaderLookup, Route, ShardHandle, TableHandle};
use crate::rpc::{Peers, Request};

/// How long a read is tried. A feed that cannot go on ends within ten seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(8);
/// The time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long a server may take to respond with rows, or entries of a history.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// About how many bytes of rows, or of a history, are read at once.
const READ_BYTES: usize = 512 << 10;
/// The most bytes of a history in which changed rows are looked for, at about.
const CHANGED_BYTES_MAX: usize = 2 << 20;

/// Reads rows as they were at positions of histories.
pub(super) struct PastRows {
    peers: Arc<Peers>,
    leaders: Arc<LeaderLookup>,
    catalog: Arc<CatalogClient>,
    replicas: Arc<Replicas>,
    here: RowReader,
}

impl PastRows {
    pub(super) fn new(handles: &Handles) -> PastRows {
        PastRows {
            peers: handles.peers.clone(),
            leaders: handles.leaders.clone(),
            catalog: handles.catalog.clone(),
            replicas: handles.replicas.clone(),
            here: RowReader::new(handles.local.clone(), handles.replicas.clone()),
        }
    }

    /// The next rows of `range` in a group of `table`, as they were at position `at` of its history. Fails, after some attempts,
    /// with the reason of the last one.
    pub(super) fn read(
        &self,
        table: TableId,
        group: GroupId,
        range: &KeyRange,
        at: FeedPosition,
    ) -> Result<HistoryRows, String> {
        let deadline = task::now() + READ_TIMEOUT;
        loop {
            let table = self.catalog.shown().table_by_id(table).cloned().ok_or("the table does not exist")?;
            match self.read_once(&table, group, range, at) {
                Err(why) if task::now() >= deadline => return Err(why),
                Err(why) => tracing::debug!("rows of group {group} cannot be read yet: {why}"),
                found => return found,
            }
            task::sleep(RETRY_INTERVAL);
            let present = table.shards().iter().filter(|shard| !shard.range().intersect(range).is_empty());
            self.leaders.find_leaders(&present.collect::<Vec<_>>());
        }
    }

    fn read_once(
        &self,
        table: &TableHandle,
        group: GroupId,
        range: &KeyRange,
        at: FeedPosition,
    ) -> Result<HistoryRows, String> {
        match continuation(&table.config, group, range) {
            Continuation::Present => {
                let shard = table.shards().iter().find(|shard| shard.group() == group);
                self.read_present(shard.ok_or("the group has no shard")?, range, at)
            }
            Continuation::Unknown => Err("the table was resharded too long ago".to_owned()),
            Continuation::Successors { parts, .. } => {
                let found = self.read_parts(table, parts)?;
                let mut before = RowsBefore::new(group, found.covered(range), at.entry, at.rows);
                self.read_up_to_seal(table, &mut before)?;
                Ok(before.undo(found))
            }
        }
    }

    /// The rows of successors at their beginning.
    fn read_parts(
        &self,
        table: &TableHandle,
        mut parts: Vec<(GroupId, KeyRange)>,
    ) -> Result<HistoryRows, String> {
        let start = |range: &KeyRange| match &range.start {
            KeyBound::Unbounded => None,
            KeyBound::Included(key) | KeyBound::Excluded(key) => Some(key.clone()),
        };
        parts.sort_by_key(|(_, range)| start(range));
        let mut all = HistoryRows::default();
        for (group, part) in parts {
            let found = self.read_once(table, group, &part, FeedPosition::default())?;
            all.rows.extend(found.rows);
            all.reach = found.reach;
            if all.reach.is_some() {
                break;
            }
        }
        Ok(all)
    }

    /// The rows of a group that is not sealed. Reads them here if there is a replica, and otherwise on another server.
    fn read_present(
        &self,
        shard: &ShardHandle,
        range: &KeyRange,
        at: FeedPosition,
    ) -> Result<HistoryRows, String> {
        self.here.read(shard.group(), range, at).or_else(|why| match shard.leader() {
            Some(Route::Remote(server)) => self.read_on(server, shard.group(), range, at),
            _ => Err(why),
        })
    }

    fn read_on(
        &self,
        server: ServerId,
        group: GroupId,
        range: &KeyRange,
        at: FeedPosition,
    ) -> Result<HistoryRows, String> {
        let FeedPosition { entry: at, rows: further } = at;
        let request = Request::HistoryRows { group, range: range.clone(), at, further }.encode();
        let response =
            self.peers.call(server, request, RESPONSE_TIMEOUT).map_err(|error| error.to_string())?;
        decode_rows(response).ok_or_else(|| "the response cannot be decoded".to_owned())
    }

    /// The rows of `start` that have changed up to the entry `until`, as they were at its position; `None` for a key without a
    /// row. `None` if the entries in between have more than [`CHANGED_BYTES_MAX`], or cannot be read.
    pub(super) fn changed(
        &self,
        shard: &ShardHandle,
        start: &FeedStart,
        until: HistoryPosition,
    ) -> Option<BTreeMap<PrimaryKey, Option<Object>>> {
        let FeedStart { group, range, position: at } = start;
        let mut before = RowsBefore::new(*group, range.clone(), at.entry, at.rows);
        let mut bytes = 0;
        let leader = shard.leader().and_then(|leader| match leader {
            Route::Remote(server) => Some(server),
            Route::Local(_) => None,
        });
        while before.position().lsn < until.lsn {
            let found = self.history_after(leader.as_slice(), *group, before.position());
            let records = found.ok().map(|(records, _)| records).filter(|records| !records.is_empty())?;
            for record in records {
                bytes += record.entry.len();
                before.take(HistoryEntry::decode(record).ok()?).ok()?;
            }
            if bytes > CHANGED_BYTES_MAX {
                return None;
            }
        }
        Some(before.into_changed())
    }

    /// Gives the entries of a sealed group to `before`, up to the seal.
    fn read_up_to_seal(&self, table: &TableHandle, before: &mut RowsBefore) -> Result<(), String> {
        let group = before.group();
        let old = sealed(&table.config).find(|old| old.group == group);
        let servers: Vec<ServerId> =
            old.into_iter().flat_map(|old| &old.replicas).map(|replica| replica.server).collect();
        loop {
            let position = before.position();
            let (records, is_sealed) = self.history_after(&servers, group, position)?;
            if is_sealed {
                return Ok(());
            }
            for record in records {
                let entry = HistoryEntry::decode(record).map_err(|error| error.to_string())?;
                let is_seal = matches!(&entry.event, HistoryEvent::Seal(state) if state.is_sealed());
                before.take(entry).map_err(|error| error.to_string())?;
                if is_seal {
                    return Ok(());
                }
            }
        }
    }

    /// The entries after a position of a sealed group's history, of which there is at least one, or whether it is the seal's.
    fn history_after(
        &self,
        servers: &[ServerId],
        group: GroupId,
        after: HistoryPosition,
    ) -> Result<(Vec<HistoryRecord>, bool), String> {
        let here = read_history(&**self.replicas.engine(), group, after, READ_BYTES);
        let mut why = "no server has the history of the sealed group".to_owned();
        match here {
            Ok(part) if part.seal_state.is_some_and(|state| state.is_sealed()) => {
                return Ok((Vec::new(), true));
            }
            Ok(part) if !part.records.is_empty() => return Ok((part.records, false)),
            Ok(_) => {}
            Err(error) => why = error.to_string(),
        }
        for server in servers.iter().filter(|server| self.peers.own() != Some(**server)) {
            let request = Request::History { group, after }.encode();
            let response = self.peers.call(*server, request, RESPONSE_TIMEOUT);
            match response.map(HistoryResponse::decode) {
                Ok(Some(found)) if found.seal_state.is_some_and(|state| state.is_sealed()) => {
                    return Ok((Vec::new(), true));
                }
                Ok(Some(found)) if !found.records.is_empty() => return Ok((found.records, false)),
                Ok(_) => {}
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }

    /// The next rows of `range` in the local replica of a group, as they were at `at`. Fails with the reason for another server.
    pub(super) fn read_here(
        &self,
        group: GroupId,
        range: &KeyRange,
        at: FeedPosition,
    ) -> Result<HistoryRows, String> {
        self.here.read(group, range, at)
    }

    /// Drops snapshots that were not used for long.
    pub(super) fn drop_unused(&self) {
        self.here.drop_unused();
    }
}
