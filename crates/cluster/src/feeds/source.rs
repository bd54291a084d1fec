//! The replica that a stream reads from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::GroupId;
use shard::{HistoryError, HistoryPart, HistoryPosition, Replicas, Shard, read_history};
use storage::TableId;

use super::inbox::{Inbox, Message};
use super::response::HistoryResponse;
use super::stream::{Source, Stream};
use super::successors;
use crate::catalog::CatalogClient;
use crate::config::{ReplicaConfig, ServerId};
use crate::routing::{Leadership, LocalReplicas};
use crate::rpc::{Peers, Request};

/// How long another server may take to respond to a request that it holds until it has an entry.
const READ_TIMEOUT: Duration = Duration::from_secs(4);
/// The time between two attempts to find a source.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Finds sources for streams.
pub(super) struct Sources {
    pub(super) own: ServerId,
    pub(super) peers: Arc<Peers>,
    pub(super) local: Arc<LocalReplicas>,
    pub(super) leadership: Arc<Leadership>,
    pub(super) catalog: Arc<CatalogClient>,
    pub(super) replicas: Arc<Replicas>,
}

impl Sources {
    /// The local replica of a group, if its history can be followed.
    pub(super) fn open_replica(&self, group: GroupId) -> Option<Arc<Shard>> {
        self.local.shard_of(group).filter(|shard| !shard.is_recovering())
    }

    /// As [`read_history`], on this node's engine. A local replica whose rows came from a copy lacks the entries before the copy.
    /// If it has no later entry yet, only its position shows that. A past group, which has no replicas, gets no further entries: what
    /// is missing up to its seal was lost.
    pub(super) fn read(
        &self,
        group: GroupId,
        after: HistoryPosition,
        bytes_max: usize,
    ) -> Result<HistoryPart, HistoryError> {
        let replica = self.open_replica(group);
        // The last entry of a sealed group is the seal. Asked first, so that it is among the entries up to `end`.
        let seal_state = replica.as_ref().map(|shard| shard.seal_state()).filter(|state| state.is_sealed());
        // Asked before the history is read: entries that come later are no gap.
        let end = replica.map(|shard| shard.history_end());
        let may_come = end.is_some() || !self.is_past(group);
        if end == Some(Some(after)) {
            return Ok(HistoryPart { seal_state, records: Vec::new() });
        }
        let part = read_history(&**self.replicas.engine(), group, after, bytes_max)?;
        let is_at_end = |end: Option<HistoryPosition>| end.is_some_and(|end| end.lsn <= after.lsn);
        let is_complete = end.is_none_or(is_at_end) && (may_come || part.seal_state.is_some());
        match part.records.is_empty() && !is_complete {
            true => Err(HistoryError::Gone),
            false => Ok(part),
        }
    }

    /// Whether the group was sealed, and no server needs its replicas any more.
    pub(super) fn is_past(&self, group: GroupId) -> bool {
        let catalog = self.catalog.guard();
        let mut past = catalog.tables().into_iter().flat_map(|table| &table.config.history.past);
        past.any(|old| old.group == group)
    }

    /// Whether the local replica of a group leads it or is in contact with its leader.
    pub(super) fn is_current(&self, group: GroupId) -> bool {
        self.open_replica(group)
            .is_some_and(|shard| shard.leads() || self.leadership.known_leader(group).is_from_local_log())
    }

    /// Sends a request for the entries after the stream's position to another server. The response is a message to
    /// `inbox`. Returns the source of the stream from now on.
    pub(super) fn request(&self, id: u64, stream: &mut Stream, inbox: &Arc<Inbox>, now: Instant) -> Source {
        let Some(server) = self.next_server(stream) else {
            // All of them once more.
            stream.failed_at.clear();
            return Source::Searching(now + RETRY_INTERVAL);
        };
        self.request_from(server, id, stream, inbox);
        Source::Remote(server)
    }

    pub(super) fn request_from(&self, server: ServerId, id: u64, stream: &Stream, inbox: &Arc<Inbox>) {
        let (inbox, request) =
            (inbox.clone(), Request::History { group: stream.group, after: stream.position });
        let on_response = move |response: Result<bytes::Bytes, _>| {
            let response = response.ok().and_then(HistoryResponse::decode);
            inbox.push(Message::Response { stream: id, server, response });
        };
        self.peers.send(server, request.encode(), READ_TIMEOUT, Box::new(on_response));
    }

    /// The server that leads a group, if it is known.
    pub(super) fn leader(&self, group: GroupId) -> Option<ServerId> {
        self.leadership.leader(group)
    }

    /// Tells the leader of a group, another server, that its history is used.
    pub(super) fn report_use(&self, leader: ServerId, group: GroupId) {
        self.peers.send(leader, Request::HistoryOn { group }.encode(), READ_TIMEOUT, Box::new(|_| {}));
    }

    /// The server to read from: the leader, otherwise one with a replica.
    fn next_server(&self, stream: &Stream) -> Option<ServerId> {
        let leader = self.leadership.leader(stream.group);
        let others = self.servers_of(stream.table, stream.group);
        let fits = |server: &ServerId| {
            *server != self.own
                && !stream.gone_at.contains(server)
                && !stream.failed_at.contains(server)
                && self.peers.is_connected(*server)
        };
        leader.into_iter().chain(others).find(fits)
    }

    /// Whether no server with a replica of the stream's group, including this one, has all entries after its position.
    pub(super) fn is_gone_everywhere(&self, stream: &Stream) -> bool {
        let servers = self.servers_of(stream.table, stream.group);
        !servers.is_empty() && servers.iter().all(|server| stream.gone_at.contains(server))
    }

    /// The servers that have, or had, a replica of a group.
    fn servers_of(&self, table: TableId, group: GroupId) -> Vec<ServerId> {
        let catalog = self.catalog.guard();
        let Some(table) = catalog.table_by_id(table) else { return Vec::new() };
        let present = table.config.shards.iter().filter(|shard| shard.group == group);
        let present = present.flat_map(|shard| shard.all_replicas());
        let earlier = successors::sealed(&table.config).filter(|old| old.group == group);
        let all = present.chain(earlier.flat_map(|old| &old.replicas));
        all.map(|replica: &ReplicaConfig| replica.server).collect()
    }
}
