//! Sends and receives copies. `copy/mod.rs` has an overview.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use datum::{KeyRange, PrimaryKey};
use io::{Clock, task};
use log::{GroupId, GroupStatus, Log, LogBase, Lsn, PeerId};
use shard::{
    CopyEnd, CopyRange, Difference, PresentRows, Replicas, Restoration, RestoreError, clear_rows, drop_rows,
};

use super::damaged_shard::present_rows;
use super::progress::{CopyChunking, CopyProgress, CopyState, OutgoingCopy, cost};
use crate::catalog::{CatalogClient, Handles, display_names};
use crate::config::{CATALOG_GROUP, Ids, ServerId};
use crate::events::Notifier;
use crate::events::{Event, EventQueue};
use crate::routing::{Gate, Leadership, LocalReplicas, ReplicaTransport};
use crate::rpc::copy::decode_difference;
use crate::rpc::response::CopyResponse;
use crate::rpc::{Peers, Request, RpcError};

/// A leader drops the snapshot of a copy after this time without a request for it.
const COPY_LIFETIME: Duration = Duration::from_secs(60);
/// How long a server may take to respond to a request about a copy.
const COPY_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long after the end of a copy an offer may have been sent before the leader knew of that end.
const LATE_OFFER_INTERVAL: Duration = Duration::from_secs(5);
/// The interval between attempts to receive a copy.
const COPY_RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// How long attempts may fail before a warning is logged, and the time between two warnings.
const COPY_WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// How long a copy waits for a disconnected source before it begins anew.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why an attempt to receive a copy failed. The copy begins anew.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("no leader of the group was found")]
    NoLeader,
    #[error(transparent)]
    Request(#[from] RpcError),
    #[error("the replica was removed from this server")]
    Discarded,
    #[error("the index entries of the table are being deleted")]
    Barred,
    #[error("the response is malformed")]
    Malformed,
    #[error("expected {expected} rows at the end of the copy, found {found}")]
    Rows { expected: u64, found: u64 },
    #[error(transparent)]
    Log(#[from] log::LogError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl CopyError {
    /// Whether this is usual for a while when replicas move: one of the two sides is not there yet, or not any more.
    fn is_usual(&self) -> bool {
        matches!(self, CopyError::NoLeader | CopyError::Request(_) | CopyError::Discarded | CopyError::Barred)
    }
}

/// The failed attempts to receive one copy.
#[derive(Default)]
struct Failures {
    since: Option<Instant>,
    warned_at: Option<Instant>,
}

impl Failures {
    /// Whether to log a warning for one more: at most one an interval, and for usual errors only after the first
    /// interval.
    fn should_warn(&mut self, error: &CopyError, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let has_warned = self.warned_at.is_some_and(|at| now < at + COPY_WARNING_INTERVAL);
        if has_warned || (error.is_usual() && now < since + COPY_WARNING_INTERVAL) {
            return false;
        }
        self.warned_at = Some(now);
        true
    }
}

/// The copies that this node sends and receives.
pub struct Copies {
    own: ServerId,
    peers: Arc<Peers>,
    transport: Arc<ReplicaTransport>,
    leadership: Arc<Leadership>,
    log: Arc<dyn Log>,
    replicas: Arc<Replicas>,
    local: Arc<LocalReplicas>,
    catalog: Arc<CatalogClient>,
    ids: Ids,
    clock: Arc<dyn Clock>,
    events: Arc<EventQueue>,
    state_changes: Arc<Notifier>,
    state: CopyState,
    stopping: Arc<AtomicBool>,
}

impl Copies {
    pub(crate) fn new(handles: &Handles, stopping: Arc<AtomicBool>) -> Copies {
        Copies {
            own: handles.own,
            peers: handles.peers.clone(),
            transport: handles.transport.clone(),
            leadership: handles.leadership.clone(),
            log: handles.log.clone(),
            replicas: handles.replicas.clone(),
            local: handles.local.clone(),
            catalog: handles.catalog.clone(),
            ids: handles.ids.clone(),
            clock: handles.clock.clone(),
            events: handles.events.clone(),
            state_changes: handles.state_changes.clone(),
            stopping,
            state: CopyState::default(),
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The groups whose rows are being copied to this node.
    #[must_use]
    pub fn under_way(&self) -> Vec<(GroupId, CopyProgress)> {
        self.state.incoming.lock().iter().map(|(group, progress)| (*group, *progress)).collect()
    }

    /// Sets the sizes for later copies: for tests, which have few rows.
    pub fn set_chunking(&self, sizes: CopyChunking) {
        *self.state.sizes.lock() = sizes;
    }

    /// Offers a copy to the server of a replica that lacks entries which this leader's log does not have any more. The
    /// offer is repeated while the replica needs a copy.
    pub(crate) fn offer(&self, group: GroupId, to: PeerId) {
        let Ok(GroupStatus { start, .. }) = self.log.group_status(group) else { return };
        if let (Some(server), Some(transport)) = (self.transport.server_of(to), self.peers.transport()) {
            transport.call(
                server,
                Request::OfferCopy { group, start }.encode(),
                COPY_REQUEST_TIMEOUT,
                Box::new(|_| {}),
            );
        }
    }

    /// Takes a snapshot of a group that this node leads, for a server that requests a copy. `log_base` fails if this
    /// node does not lead. The shard cannot tell: an elected leader that needs this very copy for its quorum does not
    /// serve as leader yet.
    pub(crate) fn serve_begin(&self, group: GroupId) -> Result<CopyResponse, String> {
        let (shard, gate) = self.local.with_gate(group).ok_or("the group has no replica on this server")?;
        let generation = shard.rows_generation();
        let snapshot = {
            // The successor of a sealed shard writes to the same range, but only after this gate is closed.
            let _inside = gate.enter().ok_or("the rows belong to another group by now")?;
            shard.snapshot().map_err(|error| error.to_string())?
        };
        if !shard.is_current(generation) {
            return Err("the rows on this server are invalid".to_owned());
        }
        let applied = snapshot.applied().map_err(|error| error.to_string())?;
        let rows = snapshot.count().map_err(|error| error.to_string())?;
        let builds = snapshot.builds().map_err(|error| error.to_string())?;
        let (sender, receiver) = task::channel();
        self.log.log_base(group, applied.lsn, Box::new(move |base| drop(sender.send(base))));
        let base = receiver.recv().map_err(|_| "the log has stopped")?.map_err(|error| error.to_string())?;
        let copy = self.ids.new_copy();
        self.state.outgoing.lock().insert(copy, OutgoingCopy { snapshot, used: task::now() });
        Ok(CopyResponse { copy, rows, origin: base.encode().into(), progress: applied.progress, builds })
    }

    /// The next chunk of a copy: the rows after `after`, for a server that has the rows in `copy_ranges` there.
    pub(crate) fn serve_next(
        &self,
        copy: u64,
        after: Option<&PrimaryKey>,
        copy_ranges: &[CopyRange],
    ) -> Result<Difference, String> {
        let snapshot = {
            let mut outgoing = self.state.outgoing.lock();
            let outgoing = outgoing.get_mut(&copy).ok_or("the copy has expired")?;
            outgoing.used = task::now();
            outgoing.snapshot.clone()
        };
        let chunk_bytes = self.state.sizes.lock().chunk_bytes;
        let chunk = Difference::with(&snapshot, after, copy_ranges, chunk_bytes);
        if chunk.as_ref().is_ok_and(|chunk| chunk.reach.is_none()) {
            self.state.outgoing.lock().remove(&copy);
        }
        chunk.map_err(|error| error.to_string())
    }

    /// Drops copies that were not requested for [`COPY_LIFETIME`].
    pub(crate) fn drop_unused(&self) {
        self.state.outgoing.lock().retain(|_, outgoing| task::now() - outgoing.used < COPY_LIFETIME);
    }

    /// A leader whose log begins after `start` offers a copy to the local replica. It may have sent the offer before it
    /// learned that the last copy is complete. Such an offer is ignored; if a copy is needed, the leader repeats the
    /// offer.
    pub(crate) fn take_offer(self: &Arc<Self>, group: GroupId, start: Lsn) {
        let last_copy = match self.state.completed_at.lock().get(&group) {
            Some(at) if task::now() - *at < LATE_OFFER_INTERVAL => LastCopy::Recent,
            _ => LastCopy::NotRecent,
        };
        if takes_offer(self.log.group_status(group).ok().as_ref(), start, last_copy) {
            self.begin(group);
        }
    }

    /// Whether the rows of the local replica are invalid.
    pub(crate) fn needs_rows(&self, group: GroupId) -> bool {
        self.log.group_status(group).is_ok_and(|status| status.needs_rows)
    }

    /// Receives the rows of a group, on a separate thread that retries until the copy is complete.
    pub(crate) fn begin(self: &Arc<Self>, group: GroupId) {
        // A replica whose rows belong to another group by now gets no copy.
        if self.local.with_gate(group).is_some_and(|(_, gate)| gate.enter().is_none()) {
            return;
        }
        let progress = CopyProgress { source: None, started: self.clock.now(), rows: 0, rows_total: 0 };
        match self.state.incoming.lock().entry(group) {
            // A copy is under way; its progress stays.
            Entry::Occupied(_) => return,
            Entry::Vacant(none) => _ = none.insert(progress),
        }
        let weak = Arc::downgrade(self);
        let mut failures = Failures::default();
        let work = move || loop {
            let Some(copies) = weak.upgrade() else { return };
            if let Err(error) = copies.receive(group) {
                let name = display_names::group(&copies.catalog.shown(), group);
                match failures.should_warn(&error, task::now()) {
                    true => {
                        tracing::warn!("could not copy the rows of {name} to this server, retrying: {error}")
                    }
                    false => {
                        tracing::debug!("could not copy the rows of {name} to this server, retrying: {error}")
                    }
                }
            }
            if !copies.needs_rows(group) {
                copies.state.incoming.lock().remove(&group);
                copies.state_changes.notify();
                // A `begin` just before the removal had no effect, and the rows may have become invalid again.
                if copies.needs_rows(group) {
                    copies.events.push(Event::NeedsRows(group));
                }
                return;
            }
            if copies.is_stopping() {
                return;
            }
            drop(copies);
            task::sleep(COPY_RETRY_INTERVAL);
        };
        if let Err(error) = task::spawn("copy", work) {
            tracing::error!("could not start a thread for a copy: {error}");
            self.state.incoming.lock().remove(&group);
        }
    }

    /// Whether a copy is being received.
    pub(crate) fn is_receiving(&self, group: GroupId) -> bool {
        self.state.incoming.lock().contains_key(&group)
    }

    /// Whether a copy was completed that began after `time`; with [`PresentRows::Replaced`], one that kept no row.
    pub(crate) fn completed_since(&self, group: GroupId, time: Instant, present: PresentRows) -> bool {
        self.state.attempts.completed_since(group, time, present)
    }

    /// Calls `work` while no copy of these groups is written to the engine. `None` if the node stops before that.
    pub(crate) fn without_copies<R>(&self, groups: &[GroupId], work: impl FnOnce() -> R) -> Option<R> {
        self.state.attempts.without(groups, &self.stopping, work)
    }

    fn receive(&self, group: GroupId) -> Result<(), CopyError> {
        let attempt = self.state.attempts.begin(group).ok_or(CopyError::Barred)?;
        let (shard, gate) = self.local.with_gate(group).ok_or(CopyError::Discarded)?;
        let enter = || gate.enter().ok_or(CopyError::Discarded);
        let (source, response) = self.find_source(group)?;
        let base = LogBase::decode(&response.origin).ok_or(CopyError::Malformed)?;
        self.note(group, |progress| {
            progress.source = Some(source);
            progress.rows_total = response.rows;
        });
        let (at, progress, builds) = (base.rows_lsn(), response.progress.clone(), response.builds.clone());
        let present = present_rows(&**self.replicas.engine(), group, &shard);
        let mut restoration = {
            let _inside = enter()?;
            self.log.begin_restore(group)?;
            self.replicas.mark_recovering(group);
            if group == CATALOG_GROUP {
                // The catalog is small, and the next start shows the rows that are there: a mix of two versions would
                // be invalid.
                match present {
                    PresentRows::Compared => clear_rows(&shard, &KeyRange::all())?,
                    PresentRows::Replaced => drop_rows(&shard)?,
                }
            }
            Restoration::begin(&shard, CopyEnd { at, progress, builds }, present)?
        };
        while !restoration.is_whole() {
            let wait = self.receive_chunk(group, source, response.copy, &mut restoration, &gate)?;
            task::sleep(wait);
        }
        let found = restoration.rows();
        #[cfg(feature = "mutants")]
        let found = match log::mutant::is_active(log::mutant::Mutant::DropRow) {
            // The mutant also hides the missing row.
            true => response.rows,
            false => found,
        };
        if found != response.rows {
            return Err(CopyError::Rows { expected: response.rows, found });
        }
        let _inside = enter()?;
        restoration.finish()?;
        self.log.finish_restore(group, base)?;
        attempt.complete(present);
        let mut completed_at = self.state.completed_at.lock();
        completed_at.retain(|_, at| task::now() - *at < LATE_OFFER_INTERVAL);
        completed_at.insert(group, task::now());
        drop(completed_at);
        if group == CATALOG_GROUP {
            self.events.push(Event::Catalog);
        }
        Ok(())
    }

    /// Receives the next chunk of a copy. Returns how long to wait before the next one.
    fn receive_chunk(
        &self,
        group: GroupId,
        source: ServerId,
        copy: u64,
        restoration: &mut Restoration<'_>,
        gate: &Gate,
    ) -> Result<Duration, CopyError> {
        let sizes = self.state.sizes.lock().copy_ranges;
        let copy_ranges = {
            let _inside = gate.enter().ok_or(CopyError::Discarded)?;
            restoration.copy_ranges(sizes)?
        };
        let after = restoration.after().cloned();
        let request = Request::CopyNext { copy, after, copy_ranges: copy_ranges.clone() }.encode();
        let response = self.call_source(group, source, &request)?;
        let received = response.len() as u64;
        let chunk = decode_difference(response).ok_or(CopyError::Malformed)?;
        #[cfg(feature = "mutants")]
        let chunk = match log::mutant::is_active(log::mutant::Mutant::DropRow) && group != CATALOG_GROUP {
            true if chunk.rows.len() > 1 => Difference { rows: chunk.rows[1..].to_vec(), ..chunk },
            _ => chunk,
        };
        let compared = copy_ranges.iter().take(chunk.same).map(|copy_range| copy_range.bytes).sum();
        let wait = self.state.pace.lock().take(cost(received, compared), self.clock.now());
        let _inside = gate.enter().ok_or(CopyError::Discarded)?;
        restoration.take(&copy_ranges, chunk)?;
        self.note(group, |progress| progress.rows = restoration.rows());
        Ok(wait)
    }

    /// Requests a chunk of a copy. Retries while the link is down, since the source keeps the copy and a chunk can be
    /// requested again; but not if another server leads the group by now, which can continue the copy.
    fn call_source(&self, group: GroupId, source: ServerId, request: &Bytes) -> Result<Bytes, RpcError> {
        let deadline = task::now() + SOURCE_TIMEOUT;
        let known = self.leadership.known_leader(group);
        let is_time_left = || !self.is_stopping() && task::now() < deadline;
        let retries = || is_time_left() && known.leader().is_none_or(|leader| leader == source);
        loop {
            match self.peers.call(source, request.clone(), COPY_REQUEST_TIMEOUT) {
                Err(RpcError::NoResponse(_) | RpcError::NotConnected(_)) if retries() => {
                    task::sleep(COPY_RETRY_INTERVAL);
                }
                result => return result,
            }
        }
    }

    /// Finds the leader of the group and begins a copy there.
    fn find_source(&self, group: GroupId) -> Result<(ServerId, CopyResponse), CopyError> {
        let leader = self.leadership.known_leader(group).leader();
        let mut failed = CopyError::NoLeader;
        for server in leader.into_iter().chain(self.transport.servers()) {
            if server == self.own || !self.peers.is_connected(server) {
                continue;
            }
            let response =
                self.peers.call(server, Request::CopyBegin { group }.encode(), COPY_REQUEST_TIMEOUT);
            match response.map(CopyResponse::decode) {
                Ok(Some(response)) => return Ok((server, response)),
                Ok(None) => failed = CopyError::Malformed,
                Err(error) => failed = error.into(),
            }
        }
        Err(failed)
    }

    fn note(&self, group: GroupId, change: impl FnOnce(&mut CopyProgress)) {
        if let Some(progress) = self.state.incoming.lock().get_mut(&group) {
            change(progress);
        }
    }
}

/// When the last copy to the local replica was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastCopy {
    /// So recently that an offer may have been sent before that.
    Recent,
    /// Earlier, or never.
    NotRecent,
}

/// Whether to take the offer of a leader whose log begins after `start`. After a recent copy, an offer is ignored if
/// the replica can continue from the rows that it has.
fn takes_offer(status: Option<&GroupStatus>, start: Lsn, last_copy: LastCopy) -> bool {
    match last_copy {
        LastCopy::Recent => status.is_some_and(|status| status.needs_rows || status.committed < start),
        LastCopy::NotRecent => true,
    }
}

#[cfg(test)]
mod tests {
    use log::{Members, Role, Term};

    use super::*;
    use crate::config::fixture;

    #[test]
    fn errors_that_are_usual_while_replicas_move_are_a_warning_only_after_a_minute() {
        let (begun, mut failures) = (task::now(), Failures::default());
        let mut warns =
            |error: CopyError, secs| failures.should_warn(&error, begun + Duration::from_secs(secs));
        let refused =
            || RpcError::Refused { server: fixture::server(2), why: "the rows are invalid".to_owned() };
        assert!(!warns(refused().into(), 0));
        assert!(!warns(CopyError::NoLeader, 59));
        assert!(warns(refused().into(), 60));
        assert!(!warns(refused().into(), 61), "the last warning was a second ago");
        assert!(warns(refused().into(), 120));
        let mut failures = Failures::default();
        assert!(failures.should_warn(&CopyError::Malformed, begun), "this error is never usual");
    }

    #[test]
    fn an_offer_after_a_recent_copy_is_taken_only_if_it_is_needed() {
        let status = |committed: u64, needs_rows: bool| GroupStatus {
            own: PeerId(2),
            role: Role::Follower { term: Term(3), leader: Some(PeerId(1)) },
            start: Lsn(0),
            last: Lsn(committed),
            last_term: Term(3),
            committed: Lsn(committed),
            durable: Lsn(committed),
            applied: Lsn(committed),
            needs_rows,
            members: Members::default(),
            members_durable: false,
            peers: Vec::new(),
        };
        let takes = |status: Option<&GroupStatus>, last_copy| takes_offer(status, Lsn(100), last_copy);
        for (committed, needs_rows, wanted) in [
            (99, false, true),
            (100, false, false),
            (100, true, true),
            (500, false, false),
            (500, true, true),
        ] {
            let status = status(committed, needs_rows);
            assert_eq!(takes(Some(&status), LastCopy::Recent), wanted, "{committed} {needs_rows}");
            assert!(takes(Some(&status), LastCopy::NotRecent), "no recent copy");
        }
        // Without a status: the group is not open on this node.
        assert!(!takes(None, LastCopy::Recent));
        assert!(takes(None, LastCopy::NotRecent));
    }
}
