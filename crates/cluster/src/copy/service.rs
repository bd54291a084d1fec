//! Gives and receives copies.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use datum::{KeyRange, PrimaryKey};
use io::{Clock, task};
use log::{GroupId, GroupStatus, Log, LogBase, Lsn, PeerId};
use shard::{CopyEnd, CopyRange, Difference, Replicas, Restoration, RestoreError, clear_rows};

use super::progress::{CopyChunking, CopyProgress, CopyState, Given, cost};
use crate::catalog::{CatalogClient, Handles, display_names};
use crate::config::{CATALOG_GROUP, Ids, ServerId};
use crate::event_queue::{Event, EventQueue};
use crate::notifier::Notifier;
use crate::routing::{Gate, Leadership, LocalReplicas, ReplicaTransport};
use crate::rpc::copy::decode_difference;
use crate::rpc::response::CopyResponse;
use crate::rpc::{Peers, Request, RpcError};

/// A copy that is not asked for during this time is dropped.
const COPY_LIFETIME: Duration = Duration::from_secs(60);
/// How long a server may take to respond to a request about a copy.
const COPY_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long after a complete copy an offer may be from before it.
const LATE_OFFER_INTERVAL: Duration = Duration::from_secs(5);
/// The wait between two attempts to receive a copy.
const COPY_RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// How long attempts may fail before that is logged as a warning, and the time between two warnings.
const COPY_WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// How long a copy waits for a disconnected source before it is begun anew.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a copy is not complete. It is begun again.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("nobody who leads the group was found")]
    Nobody,
    #[error(transparent)]
    Request(#[from] RpcError),
    #[error("the replica that it was for is not here any more")]
    Discarded,
    #[error("the answer makes no sense")]
    Nonsense,
    #[error("the copy should have {expected} rows, and {found} are here at its end")]
    Rows { expected: u64, found: u64 },
    #[error(transparent)]
    Log(#[from] log::LogError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl CopyError {
    /// Whether that is so for a while whenever replicas move: the other side is not there yet, or not any more.
    fn is_usual(&self) -> bool {
        matches!(self, CopyError::Nobody | CopyError::Request(_) | CopyError::Discarded)
    }
}

/// The attempts to get one copy that came to nothing.
#[derive(Default)]
struct Failures {
    since: Option<Instant>,
    said_at: Option<Instant>,
}

impl Failures {
    /// Whether an operator should hear of one more: of a usual one when it has been so for long, and not of each.
    fn are_worth_saying(&mut self, error: &CopyError, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_said = self.said_at.is_some_and(|at| now < at + COPY_WARNING_INTERVAL);
        if is_said || (error.is_usual() && now < since + COPY_WARNING_INTERVAL) {
            return false;
        }
        self.said_at = Some(now);
        true
    }
}

/// The copies that this node gives and receives.
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
        self.state.getting.lock().iter().map(|(group, getting)| (*group, *getting)).collect()
    }

    /// From now on copies come here in pieces of those sizes: for tests, which have few rows.
    pub fn set_chunking(&self, sizes: CopyChunking) {
        *self.state.sizes.lock() = sizes;
    }

    /// Tells the server of a replica that has fallen behind what the log has to ask for a copy. It is
    /// told again for as long as it needs one.
    pub(crate) fn offer(&self, group: GroupId, to: PeerId) {
        let Ok(GroupStatus { start, .. }) = self.log.group_status(group) else { return };
        if let (Some(server), Some(wire)) = (self.transport.server_of(to), self.peers.transport()) {
            wire.call(
                server,
                Request::OfferCopy { group, start }.encode(),
                COPY_REQUEST_TIMEOUT,
                Box::new(|_| {}),
            );
        }
    }

    /// Keeps a snapshot of a group that this node leads, for whoever asks for its rows. The log says
    /// whether it does: one that is elected and needs this very copy for a majority is not yet told so.
    pub(crate) fn give(&self, group: GroupId) -> Result<CopyResponse, String> {
        let (shard, gate) = self.local.with_gate(group).ok_or("the group is not here")?;
        let generation = shard.rows_generation();
        let snapshot = {
            // What comes after a sealed shard writes to its range, but not before this gate is shut.
            let _inside = gate.enter().ok_or("the rows here belong to others by now")?;
            shard.snapshot().map_err(|error| error.to_string())?
        };
        if !shard.is_current(generation) {
            return Err("the rows here are void".to_owned());
        }
        let applied = snapshot.applied().map_err(|error| error.to_string())?;
        let rows = snapshot.count().map_err(|error| error.to_string())?;
        let builds = snapshot.builds().map_err(|error| error.to_string())?;
        let (sender, receiver) = task::channel();
        self.log.log_base(group, applied.lsn, Box::new(move |origin| drop(sender.send(origin))));
        let origin =
            receiver.recv().map_err(|_| "the log has stopped")?.map_err(|error| error.to_string())?;
        let copy = self.ids.new_copy();
        self.state.given.lock().insert(copy, Given { snapshot, used: task::now() });
        Ok(CopyResponse { copy, rows, origin: origin.encode().into(), progress: applied.progress, builds })
    }

    /// The rows of a copy after `after`, for one who has those of `copy_ranges` there.
    pub(crate) fn give_rows(
        &self,
        copy: u64,
        after: Option<&PrimaryKey>,
        copy_ranges: &[CopyRange],
    ) -> Result<Difference, String> {
        let snapshot = {
            let mut given = self.state.given.lock();
            let given = given.get_mut(&copy).ok_or("the copy is not kept any more")?;
            given.used = task::now();
            given.snapshot.clone()
        };
        let piece_bytes = self.state.sizes.lock().piece_bytes;
        let piece = Difference::with(&snapshot, after, copy_ranges, piece_bytes);
        if piece.as_ref().is_ok_and(|piece| piece.reach.is_none()) {
            self.state.given.lock().remove(&copy);
        }
        piece.map_err(|error| error.to_string())
    }

    /// Lets go of copies that nobody asks for any more.
    pub(crate) fn drop_unused(&self) {
        self.state.given.lock().retain(|_, given| task::now() - given.used < COPY_LIFETIME);
    }

    /// A leader whose log begins after `start` says that the replica here needs a copy. Perhaps it said so before
    /// it heard that the last one is complete; it offers again.
    pub(crate) fn take_offer(self: &Arc<Self>, group: GroupId, start: Lsn) {
        let last_copy = match self.state.got.lock().get(&group) {
            Some(at) if task::now() - *at < LATE_OFFER_INTERVAL => LastCopy::JustNow,
            _ => LastCopy::LongAgo,
        };
        if takes_offer(self.log.group_status(group).ok().as_ref(), start, last_copy) {
            self.begin(group);
        }
    }

    /// Whether the rows of the replica here are void.
    pub(crate) fn needs_rows(&self, group: GroupId) -> bool {
        self.log.group_status(group).is_ok_and(|status| status.needs_rows)
    }

    /// Gets the rows of a group, on a thread of its own.
    pub(crate) fn begin(self: &Arc<Self>, group: GroupId) {
        // One whose rows belong to others by now stays without.
        if self.local.with_gate(group).is_some_and(|(_, gate)| gate.enter().is_none()) {
            return;
        }
        let begun = CopyProgress { source: None, begun: self.clock.now(), rows: 0, rows_total: 0 };
        match self.state.getting.lock().entry(group) {
            // It is under way, and told as far as it is.
            Entry::Occupied(_) => return,
            Entry::Vacant(none) => _ = none.insert(begun),
        }
        let weak = Arc::downgrade(self);
        let mut failures = Failures::default();
        let work = move || loop {
            let Some(copies) = weak.upgrade() else { return };
            if let Err(error) = copies.get_copy(group) {
                let of = display_names::group(&copies.catalog.shown(), group);
                match failures.are_worth_saying(&error, task::now()) {
                    true => {
                        tracing::warn!("The rows of {of} could not be copied to this server yet: {error}")
                    }
                    false => {
                        tracing::debug!("the rows of {of} could not be copied to this server yet: {error}")
                    }
                }
            }
            if !copies.needs_rows(group) {
                copies.state.getting.lock().remove(&group);
                copies.state_changes.notify();
                // Whoever wanted one until just now was told that it is under way.
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
            tracing::error!("no thread for a copy: {error}");
            self.state.getting.lock().remove(&group);
        }
    }

    fn get_copy(&self, group: GroupId) -> Result<(), CopyError> {
        let (shard, gate) = self.local.with_gate(group).ok_or(CopyError::Discarded)?;
        let enter = || gate.enter().ok_or(CopyError::Discarded);
        let (source, answer) = self.find_source(group)?;
        let origin = LogBase::decode(&answer.origin).ok_or(CopyError::Nonsense)?;
        self.note(group, |getting| {
            getting.source = Some(source);
            getting.rows_total = answer.rows;
        });
        let (at, progress, builds) = (origin.rows_lsn(), answer.progress.clone(), answer.builds.clone());
        let mut restoration = {
            let _inside = enter()?;
            self.log.begin_restore(group)?;
            self.replicas.mark_recovering(group);
            if group == CATALOG_GROUP {
                // It is small, and shown at the next start as it is: rows of two catalogs would be none.
                clear_rows(&shard, &KeyRange::all())?;
            }
            Restoration::begin(&shard, CopyEnd { at, progress, builds })?
        };
        while !restoration.is_whole() {
            let wait = self.get_piece(group, source, answer.copy, &mut restoration, &gate)?;
            task::sleep(wait);
        }
        let found = restoration.rows();
        #[cfg(feature = "mutants")]
        let found = match log::mutant::is_active(log::mutant::Mutant::DropRow) {
            // Who loses a row does not miss it either.
            true => answer.rows,
            false => found,
        };
        if found != answer.rows {
            return Err(CopyError::Rows { expected: answer.rows, found });
        }
        let _inside = enter()?;
        restoration.finish()?;
        self.log.finish_restore(group, origin)?;
        let mut got = self.state.got.lock();
        got.retain(|_, at| task::now() - *at < LATE_OFFER_INTERVAL);
        got.insert(group, task::now());
        drop(got);
        if group == CATALOG_GROUP {
            self.events.push(Event::Catalog);
        }
        Ok(())
    }

    /// Gets the next rows of a copy; how long to wait after that.
    fn get_piece(
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
        let answer = self.call_patiently(group, source, &request)?;
        let sent = answer.len() as u64;
        let piece = decode_difference(answer).ok_or(CopyError::Nonsense)?;
        #[cfg(feature = "mutants")]
        let piece = match log::mutant::is_active(log::mutant::Mutant::DropRow) && group != CATALOG_GROUP {
            true if piece.rows.len() > 1 => Difference { rows: piece.rows[1..].to_vec(), ..piece },
            _ => piece,
        };
        let compared = copy_ranges.iter().take(piece.same).map(|copy_range| copy_range.bytes).sum();
        let wait = self.state.pace.lock().take(cost(sent, compared), self.clock.now());
        let _inside = gate.enter().ok_or(CopyError::Discarded)?;
        restoration.take(&copy_ranges, piece)?;
        self.note(group, |getting| getting.rows = restoration.rows());
        Ok(wait)
    }

    /// Asks for a piece of a copy; a link that is cut meanwhile is waited for, since the source keeps the
    /// copy and pieces can be asked for again. Not if another leads by now, who can go on with it.
    fn call_patiently(&self, group: GroupId, source: ServerId, request: &Bytes) -> Result<Bytes, RpcError> {
        let cut_off = task::now() + SOURCE_TIMEOUT;
        let lead = self.leadership.known_leader(group);
        let goes_on = || !self.is_stopping() && task::now() < cut_off;
        let waits = || goes_on() && lead.leader().is_none_or(|leader| leader == source);
        loop {
            match self.peers.call(source, request.clone(), COPY_REQUEST_TIMEOUT) {
                Err(RpcError::NoAnswer(_) | RpcError::NotConnected(_)) if waits() => {
                    task::sleep(COPY_RETRY_INTERVAL);
                }
                answer => return answer,
            }
        }
    }

    /// Whoever leads the group and keeps a copy of it for us.
    fn find_source(&self, group: GroupId) -> Result<(ServerId, CopyResponse), CopyError> {
        let leader = self.leadership.known_leader(group).leader();
        let mut failed = CopyError::Nobody;
        for server in leader.into_iter().chain(self.transport.servers()) {
            if server == self.own || !self.peers.is_connected(server) {
                continue;
            }
            let answer = self.peers.call(server, Request::CopyBegin { group }.encode(), COPY_REQUEST_TIMEOUT);
            match answer.map(CopyResponse::decode) {
                Ok(Some(answer)) => return Ok((server, answer)),
                Ok(None) => failed = CopyError::Nonsense,
                Err(error) => failed = error.into(),
            }
        }
        Err(failed)
    }

    fn note(&self, group: GroupId, change: impl FnOnce(&mut CopyProgress)) {
        if let Some(getting) = self.state.getting.lock().get_mut(&group) {
            change(getting);
        }
    }
}

/// When the replica here got its last copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastCopy {
    /// An offer may be from before it.
    JustNow,
    /// Long before, or never.
    LongAgo,
}

/// Whether an offer is taken of a leader whose log begins after `start`: one that comes late, when the replica has
/// just got a copy from which it can go on, is not.
fn takes_offer(status: Option<&GroupStatus>, start: Lsn, last_copy: LastCopy) -> bool {
    match last_copy {
        LastCopy::JustNow => status.is_some_and(|status| status.needs_rows || status.committed < start),
        LastCopy::LongAgo => true,
    }
}

#[cfg(test)]
mod tests {
    use log::{Members, Role, Term};

    use super::*;
    use crate::config::fixture;

    #[test]
    fn what_is_usual_while_replicas_move_is_no_warning_unless_it_lasts() {
        let (begun, mut failures) = (task::now(), Failures::default());
        let mut is_said =
            |error: CopyError, secs| failures.are_worth_saying(&error, begun + Duration::from_secs(secs));
        let refused =
            || RpcError::Refused { server: fixture::server(2), why: "the rows here are void".to_owned() };
        assert!(!is_said(refused().into(), 0));
        assert!(!is_said(CopyError::Nobody, 59));
        assert!(is_said(refused().into(), 60));
        assert!(!is_said(refused().into(), 61), "it was said just now");
        assert!(is_said(refused().into(), 120));
        let mut failures = Failures::default();
        assert!(failures.are_worth_saying(&CopyError::Nonsense, begun), "that is no matter of time");
    }

    #[test]
    fn an_offer_that_comes_late_is_taken_only_by_who_cannot_go_on_without() {
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
            assert_eq!(takes(Some(&status), LastCopy::JustNow), wanted, "{committed} {needs_rows}");
            assert!(takes(Some(&status), LastCopy::LongAgo), "nothing came lately");
        }
        // Of a replica that is not here any more, or not yet, nothing is known.
        assert!(!takes(None, LastCopy::JustNow));
        assert!(takes(None, LastCopy::LongAgo));
    }
}
