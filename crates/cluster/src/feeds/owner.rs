//! The owner of a node's feeds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datum::{KeyBound, KeyRange, Object, PrimaryKey};
use io::task;
use log::GroupId;
use shard::{HistoryListener, HistoryPosition, HistoryRows};
use storage::TableId;

use super::counters::{Counters, FeedsStats};
use super::history_use::HistoryUse;
use super::inbox::{Inbox, Message};
use super::interest::Interest;
use super::past_rows::PastRows;
use super::position::{FeedPosition, FeedStart};
use super::rows::encode_rows;
use super::source::Sources;
use super::subscription::{Segment, Subscriber, Subscription};
use super::successors::sealed;
use super::worker::FeedsWorker;
use crate::catalog::{CatalogClient, Handles};
use crate::config::ServerId;
use crate::routing::{LeaderLookup, Route, ShardHandle, TableHandle, shard_range};
use crate::rpc::{CANNOT_DECODE, Peers, Request, Responder, RpcError};

/// How long a new feed looks for the leaders of its shards.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may take to show that it understands requests for histories.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a leader may take to switch a history on.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(6);
/// How long a leader may take to name the end of its history where there is another way without it.
const PRESENT_TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest time for which a history stays on after its last use: feeds report their use every 30 seconds.
const KEEP_MIN: Duration = Duration::from_secs(120);
/// The time between two attempts to reach a leader.
const START_INTERVAL: Duration = Duration::from_millis(50);

/// Some rows with which a feed begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InitialRows {
    pub rows: Vec<(PrimaryKey, Option<Object>)>,
    /// The key up to which these are all rows; `None` for all of the group.
    pub reach: Option<PrimaryKey>,
}

/// Follows the histories of groups for subscribers of this node.
pub struct Feeds {
    peers: Arc<Peers>,
    leaders: Arc<LeaderLookup>,
    catalog: Arc<CatalogClient>,
    inbox: Arc<Inbox>,
    history_use: Arc<HistoryUse>,
    past_rows: PastRows,
    counters: Arc<Counters>,
}

impl Feeds {
    /// The owner, and the state for its thread. Histories stay on for `keep` after their last use.
    pub(crate) fn new(handles: &Handles, keep: Duration) -> (Feeds, FeedsWorker) {
        let (inbox, counters) = (Arc::<Inbox>::default(), Arc::<Counters>::default());
        handles.replicas.set_history_listener(inbox.clone() as Arc<dyn HistoryListener>);
        let history_use = Arc::new(HistoryUse::new(handles.local.clone(), keep.max(KEEP_MIN)));
        let sources = Sources {
            own: handles.own,
            peers: handles.peers.clone(),
            local: handles.local.clone(),
            leadership: handles.leadership.clone(),
            catalog: handles.catalog.clone(),
            replicas: handles.replicas.clone(),
        };
        let worker = FeedsWorker::new(inbox.clone(), sources, history_use.clone(), counters.clone());
        let feeds = Feeds {
            peers: handles.peers.clone(),
            leaders: handles.leaders.clone(),
            catalog: handles.catalog.clone(),
            inbox,
            history_use,
            past_rows: PastRows::new(handles),
            counters,
        };
        (feeds, worker)
    }

    /// The present position of a feed in each group of `table` that may have rows of interest. Every change that a read has
    /// shown before the call is before it, and every later change can be followed from it. Asks the leaders of the
    /// groups, and waits some seconds where a group has none. Fails with the group without a leader.
    pub fn start(&self, table: &TableHandle, interest: &Interest) -> Result<Vec<FeedStart>, GroupId> {
        let deadline = task::now() + START_TIMEOUT;
        loop {
            // The table may be resharded meanwhile: a sealed group has no present position.
            let present = self.catalog.shown().table_by_id(table.config.id).cloned();
            let table = present.as_deref().unwrap_or(table);
            match self.start_now(table, interest, SWITCH_TIMEOUT) {
                Err(group) if task::now() >= deadline => return Err(group),
                Err(_) => {}
                starts => return starts,
            }
            task::sleep(START_INTERVAL);
            self.leaders.find_leaders(&table.shards().iter().collect::<Vec<_>>());
        }
    }

    fn start_now(
        &self,
        table: &TableHandle,
        interest: &Interest,
        timeout: Duration,
    ) -> Result<Vec<FeedStart>, GroupId> {
        let parts = table.shards().iter().filter_map(|shard| Some((shard, interest.within(shard.range())?)));
        parts
            .map(|(shard, range)| {
                let group = shard.group();
                let position = self.begin_history(shard, timeout).map_err(|why| {
                    tracing::debug!("the history of group {group} cannot be followed yet: {why}");
                    group
                })?;
                Ok(FeedStart { group, range, position: FeedPosition::after(position) })
            })
            .collect()
    }

    fn begin_history(&self, shard: &ShardHandle, timeout: Duration) -> Result<HistoryPosition, String> {
        match shard.leader() {
            Some(Route::Local(_)) => self.begin_own_history(shard.group()),
            Some(Route::Remote(server)) => self.begin_history_on(server, shard.group(), timeout),
            None => Err("no leader is known".to_owned()),
        }
    }

    /// The end of the history of a group that this node leads. It is switched on, if it is off and the servers of all replicas
    /// understand its entries.
    fn begin_own_history(&self, group: GroupId) -> Result<HistoryPosition, String> {
        if let Some(end) = self.history_use.end(group) {
            return Ok(end);
        }
        let catalog = self.catalog.shown();
        let shards = catalog.tables().into_iter().flat_map(|table| table.config.shards.clone());
        let replicas: Vec<ServerId> = shards
            .filter(|shard| shard.group == group)
            .flat_map(|shard| shard.all_replicas().map(|replica| replica.server).collect::<Vec<_>>())
            .collect();
        for server in replicas.into_iter().filter(|server| self.peers.own() != Some(*server)) {
            // Refused in any case, since the history is off; an earlier version does not even know the request.
            let (range, at) = (KeyRange::all(), HistoryPosition::default());
            let probe = Request::HistoryRows { group, range, at, further: 0 }.encode();
            if let Err(RpcError::Refused { why, .. }) = self.peers.call(server, probe, PROBE_TIMEOUT)
                && why == CANNOT_DECODE
            {
                let name =
                    catalog.server_name(server).map_or_else(|| server.to_string(), ToString::to_string);
                return Err(format!(
                    "server `{name}` has a replica and runs an earlier version, which has no changefeeds; upgrade it first"
                ));
            }
        }
        self.history_use.begin(group)
    }

    fn begin_history_on(
        &self,
        server: ServerId,
        group: GroupId,
        timeout: Duration,
    ) -> Result<HistoryPosition, String> {
        let request = Request::HistoryOn { group }.encode();
        let response = self.peers.call(server, request, timeout).map_err(|error| error.to_string())?;
        let bytes = response[..].try_into().map_err(|_| "the response is not a position".to_owned())?;
        Ok(HistoryPosition::decode(bytes))
    }

    /// The next rows of interest in the group of `start`, in the order of their keys, as they were at its position: those after
    /// the key `after`. With [`Interest::Keys`] also the keys without a row. Fails with the reason, after some attempts.
    pub fn initial_rows(
        &self,
        table: TableId,
        interest: &Interest,
        start: &FeedStart,
        after: Option<&PrimaryKey>,
    ) -> Result<InitialRows, String> {
        let rest = KeyRange {
            start: after.map_or(KeyBound::Unbounded, |after| KeyBound::Excluded(after.clone())),
            end: KeyBound::Unbounded,
        };
        let (range, at) = (start.range.intersect(&rest), start.position);
        match interest {
            Interest::Range(_) | Interest::Values(_) => {
                let HistoryRows { rows, reach } = self.past_rows.read(table, start.group, &range, at)?;
                let rows = rows.into_iter().map(|(key, row)| (key, Some(row))).collect();
                Ok(InitialRows { rows, reach })
            }
            Interest::Keys(keys) => {
                let mut rows = Vec::new();
                for key in keys.iter().filter(|key| range.contains(key)) {
                    let one = KeyRange::one(key.clone());
                    let found = self.past_rows.read(table, start.group, &one, at)?;
                    rows.push((key.clone(), found.rows.into_iter().next().map(|(_, row)| row)));
                }
                Ok(InitialRows { rows, reach: None })
            }
        }
    }

    /// The rows of interest that have changed since `starts`, as they were there; `None` for a key without a row. Every change
    /// that a read has shown before the call is taken into account. `None` if there are many changes, if the table was resharded
    /// meanwhile, or if the changes cannot be read soon.
    #[must_use]
    pub fn changed_since(
        &self,
        table: &TableHandle,
        interest: &Interest,
        starts: &[FeedStart],
    ) -> Option<BTreeMap<PrimaryKey, Option<Object>>> {
        let ends = self.present_ends(table, interest)?;
        let mut changed = BTreeMap::new();
        for start in starts {
            let end = ends.iter().find(|end| end.group == start.group)?;
            let catalog = self.catalog.shown();
            let table = catalog.table_by_id(table.config.id)?;
            let shard = table.shards().iter().find(|shard| shard.group() == start.group)?;
            changed.extend(self.past_rows.changed(shard, start, end.position.entry)?);
        }
        Some(changed)
    }

    /// Whether all groups with rows of interest have leaders that respond soon.
    #[must_use]
    pub fn has_leaders(&self, table: &TableHandle, interest: &Interest) -> bool {
        self.present_ends(table, interest).is_some()
    }

    /// As [`Feeds::start`], if the leaders respond soon.
    fn present_ends(&self, table: &TableHandle, interest: &Interest) -> Option<Vec<FeedStart>> {
        let present = self.catalog.shown().table_by_id(table.config.id).cloned()?;
        self.start_now(&present, interest, PRESENT_TIMEOUT).ok()
    }

    /// Where a feed continues that had come to these positions. `None` if the catalog no longer knows one of the groups.
    #[must_use]
    pub fn resume(
        &self,
        table: &TableHandle,
        interest: &Interest,
        positions: &[(GroupId, FeedPosition)],
    ) -> Option<Vec<FeedStart>> {
        let start = |(group, position): &(GroupId, FeedPosition)| {
            let shards = &table.config.shards;
            let present =
                shards.iter().position(|shard| shard.group == *group).map(|nth| shard_range(shards, nth));
            let earlier = || sealed(&table.config).find(|old| old.group == *group).map(|old| old.range());
            let range = interest.within(&present.or_else(earlier)?)?;
            Some(FeedStart { group: *group, range, position: *position })
        };
        positions.iter().map(start).collect()
    }

    /// Begins to pass changes to `subscriber`, from these positions on.
    pub fn subscribe(
        &self,
        table: TableId,
        interest: Interest,
        starts: Vec<FeedStart>,
        subscriber: Arc<dyn Subscriber>,
    ) -> Arc<Subscription> {
        let segment = |start: FeedStart| Segment::new(start.group, start.range, start.position);
        let segments = starts.into_iter().map(segment).collect();
        let subscription = Arc::new(Subscription::new(table, interest, subscriber, segments));
        self.inbox.push(Message::Subscribe(subscription.clone()));
        subscription
    }

    /// A subscriber that had no room has some again.
    pub fn continue_reading(&self) {
        self.inbox.push(Message::Room);
    }

    #[must_use]
    pub fn stats(&self) -> FeedsStats {
        self.counters.stats()
    }

    /// This node shows another version of the catalog.
    pub(crate) fn catalog_changed(&self) {
        self.inbox.push(Message::Catalog);
    }

    /// The end of the history of a group that this node leads, for another server.
    pub(crate) fn begin_history_here(&self, group: GroupId) -> Result<Bytes, String> {
        self.begin_own_history(group).map(|position| Bytes::copy_from_slice(&position.encode()))
    }

    /// As [`Feeds::begin_history_here`], if the history is on. Does not wait for the log.
    pub(crate) fn history_end_here(&self, group: GroupId) -> Option<Bytes> {
        self.history_use.end(group).map(|position| Bytes::copy_from_slice(&position.encode()))
    }

    /// Rows of a group at a position, for another server.
    pub(crate) fn rows_here(
        &self,
        group: GroupId,
        range: &KeyRange,
        at: FeedPosition,
    ) -> Result<Bytes, String> {
        self.past_rows.read_here(group, range, at).map(|found| encode_rows(&found))
    }

    /// Responds with the history of a group, for another server. Does not block.
    pub(crate) fn read_here(&self, group: GroupId, after: HistoryPosition, respond: Responder) {
        self.inbox.push(Message::Read { group, after, respond });
    }

    /// Drops what feeds have not used for long: snapshots, and the histories of groups that this node leads, which are
    /// switched off. Waits for the log.
    pub(crate) fn drop_unused(&self) {
        self.history_use.tick();
        self.past_rows.drop_unused();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.inbox.push(Message::Stop);
    }
}
