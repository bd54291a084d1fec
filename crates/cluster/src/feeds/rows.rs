//! Rows of groups at the positions at which feeds begin.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use datum::{KeyRange, PrimaryKey, row};
use io::task;
use log::GroupId;
use shard::{HistoryRows, Replicas, TableSnapshot, rows_at};

use super::position::FeedPosition;
use crate::locks::BriefMutex;
use crate::routing::LocalReplicas;
use crate::rpc::field::{put, put_reach, take, take_reach};

/// About how many bytes of rows are read at once.
const CHUNK_BYTES: usize = 512 << 10;
/// How long a snapshot is kept for the next rows after the last ones were read.
const SNAPSHOT_LIFETIME: Duration = Duration::from_secs(30);
/// The most snapshots that are kept.
const SNAPSHOTS_MAX: usize = 64;

/// Reads rows at positions of histories. A snapshot is kept between two reads at the same position, so that changes made
/// since need not be taken back again and again.
pub(super) struct RowReader {
    local: Arc<LocalReplicas>,
    replicas: Arc<Replicas>,
    kept: BriefMutex<HashMap<(GroupId, FeedPosition), (TableSnapshot, Instant)>>,
}

impl RowReader {
    pub(super) fn new(local: Arc<LocalReplicas>, replicas: Arc<Replicas>) -> RowReader {
        RowReader { local, replicas, kept: BriefMutex::default() }
    }

    /// The next rows of `range` in the local replica of a group, as they were at `at`. Fails with the reason for another
    /// server.
    pub(super) fn read(
        &self,
        group: GroupId,
        range: &KeyRange,
        at: FeedPosition,
    ) -> Result<HistoryRows, String> {
        let snapshot = self.snapshot(group, at)?;
        #[cfg(feature = "mutants")]
        let at = match log::mutant::is_active(log::mutant::Mutant::FeedSnapshot) {
            true => FeedPosition::after(
                shard::history_position_of(&snapshot, group).ok().flatten().unwrap_or(at.entry),
            ),
            false => at,
        };
        let rows =
            rows_at(&**self.replicas.engine(), &snapshot, group, range, at.entry, at.rows, CHUNK_BYTES);
        let rows = rows.map_err(|error| error.to_string())?;
        match rows.reach {
            Some(_) => self.keep(group, at, snapshot),
            None => _ = self.kept.lock().remove(&(group, at)),
        }
        Ok(rows)
    }

    fn snapshot(&self, group: GroupId, at: FeedPosition) -> Result<TableSnapshot, String> {
        if let Some((snapshot, _)) = self.kept.lock().get(&(group, at)) {
            return Ok(snapshot.clone());
        }
        let (shard, gate) = self.local.with_gate(group).ok_or("this server has no replica of the group")?;
        let generation = shard.rows_generation();
        let snapshot = {
            // A successor of the group writes to the same range, but only after this gate is closed.
            let _inside = gate.enter().ok_or("the rows belong to another group by now")?;
            shard.snapshot().map_err(|error| error.to_string())?
        };
        match shard.is_current(generation) {
            true => Ok(snapshot),
            false => Err("the rows on this server are invalid".to_owned()),
        }
    }

    fn keep(&self, group: GroupId, at: FeedPosition, snapshot: TableSnapshot) {
        let now = task::now();
        let mut kept = self.kept.lock();
        kept.retain(|_, (_, used)| now - *used < SNAPSHOT_LIFETIME);
        if kept.len() < SNAPSHOTS_MAX || kept.contains_key(&(group, at)) {
            kept.insert((group, at), (snapshot, now));
        }
    }

    /// Drops snapshots that were not used for long.
    pub(super) fn drop_unused(&self) {
        let now = task::now();
        self.kept.lock().retain(|_, (_, used)| now - *used < SNAPSHOT_LIFETIME);
    }
}

/// The response to [`crate::rpc::Request::HistoryRows`].
pub(super) fn encode_rows(found: &HistoryRows) -> Bytes {
    let mut bytes = BytesMut::new();
    put_reach(&mut bytes, found.reach.as_ref());
    for (key, object) in &found.rows {
        put(&mut bytes, key.as_bytes());
        put(&mut bytes, &row::encode_shared(object));
    }
    bytes.freeze()
}

/// Reads what [`encode_rows`] wrote; `None` for anything else.
pub(super) fn decode_rows(mut bytes: Bytes) -> Option<HistoryRows> {
    let reach = take_reach(&mut bytes)?;
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        let key = PrimaryKey(take(&mut bytes)?);
        rows.push((key, row::decode(take(&mut bytes)?).ok()?));
    }
    Some(HistoryRows { rows, reach })
}

#[cfg(test)]
mod tests {
    use datum::Text;

    use super::*;

    #[test]
    fn rows_round_trip_and_truncated_ones_are_refused() {
        let key = |text: &'static str| PrimaryKey(Bytes::from_static(text.as_bytes()));
        let object: datum::Object = [(Text::from_static("id"), "a".into())].into_iter().collect();
        for reach in [None, Some(key("a"))] {
            let found = HistoryRows { rows: vec![(key("a"), object.clone())], reach };
            let bytes = encode_rows(&found);
            assert_eq!(decode_rows(bytes.clone()), Some(found));
            assert_eq!(decode_rows(bytes.slice(..bytes.len() - 1)), None);
        }
    }
}
