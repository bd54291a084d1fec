//! One handle for a shard, wherever it lives, and who leads it now.
//!
//! A handle is of one version of the catalog; what it knows of the leader is shared by all versions
//! and changes while it is held. Whoever has a handle asks it for a [`Route`] each time, and tells it
//! what the other side said when the route was wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datum::KeyRange;
use io::task;
use log::GroupId;
use parking_lot::Mutex;
use shard::Shard;
use storage::TableId;

use crate::{ReplicaConfig, ServerId, ShardConfig};

/// For so long an election may take.
const ELECTION: Duration = Duration::from_secs(3);

/// Where the log of this node says who leads, another whom a server names is asked for so long.
const NAMED: Duration = Duration::from_secs(1);
/// One who was named and has denied that he leads is not asked again for so long, whoever names him.
const DENIED: Duration = Duration::from_millis(200);

/// Whoever had no rows to read is not asked for so long, if another can be.
const WITHOUT_ROWS: Duration = Duration::from_secs(5);

/// How to reach a replica at this moment. It may be wrong when it is used: the replica says so.
#[derive(Clone, Copy)]
pub enum Route<'a> {
    /// A replica in this process.
    Local(&'a Arc<Shard>),
    /// A replica on another server; ask it.
    Remote(ServerId),
}

/// A shard of a table: where its replicas are and which of them leads.
#[derive(Clone)]
pub struct ShardHandle(Arc<Place>);

struct Place {
    table: TableId,
    group: GroupId,
    range: KeyRange,
    replicas: Vec<ReplicaConfig>,
    leaving: Vec<ReplicaConfig>,
    own: ServerId,
    near: Option<Arc<Shard>>,
    lead: Arc<KnownLeader>,
    reader: Option<ServerId>,
}

/// Who leads one group, as far as this node knows: shared by every handle of the group.
pub struct KnownLeader {
    known: Mutex<Known>,
    /// The log of this node does not get on, and hears nothing of any group.
    is_deaf: Arc<AtomicBool>,
}

struct Known {
    leader: Option<ServerId>,
    /// The log of this node says so; otherwise it was found out from others, or is a guess.
    is_logs: bool,
    /// Since when the log says the same.
    since: Instant,
    /// What was learned otherwise since then.
    word: Option<Word>,
    /// Who had no rows to read, and when it was found out.
    without_rows: Option<(ServerId, Instant)>,
}

/// That another server named one as the leader, or that one who was named denied it.
struct Word {
    server: ServerId,
    leads: bool,
    at: Instant,
}

impl Known {
    fn nobody(now: Instant) -> Known {
        Known { leader: None, is_logs: true, since: now, word: None, without_rows: None }
    }

    fn leader(&self, now: Instant) -> Option<ServerId> {
        let named = self.word.as_ref().filter(|word| word.leads && now - word.at < NAMED);
        named.map(|word| word.server).or(self.leader)
    }

    fn is_heard(&self, now: Instant) -> bool {
        (self.is_logs && self.leader.is_some()) || now - self.since < ELECTION
    }

    fn hear(&mut self, leader: Option<ServerId>, now: Instant) {
        if !self.is_logs || self.leader != leader {
            self.since = now;
        }
        (self.leader, self.is_logs, self.word) = (leader, true, None);
    }

    fn find(&mut self, leader: Option<ServerId>) {
        (self.leader, self.is_logs, self.word) = (leader, false, None);
    }

    /// `wrong` does not lead, but `leader`, where the log of this node will hear of it, and may be late.
    fn name(&mut self, wrong: ServerId, leader: Option<ServerId>, now: Instant) {
        if self.leader(now) != Some(wrong) {
            return;
        }
        let denied = |word: &Word| !word.leads && now - word.at < DENIED && leader == Some(word.server);
        let (server, leads) = match leader {
            Some(leader) if self.leader == Some(leader) => (wrong, false),
            Some(_) if self.word.as_ref().is_some_and(denied) => return,
            Some(leader) => (leader, true),
            None if self.leader == Some(wrong) && self.is_logs => return,
            None if self.leader == Some(wrong) => return self.find(None),
            None => (wrong, false),
        };
        self.word = Some(Word { server, leads, at: now });
    }
}

impl KnownLeader {
    /// Nobody is known to lead yet.
    pub(crate) fn new(is_deaf: Arc<AtomicBool>) -> KnownLeader {
        KnownLeader { known: Mutex::new(Known::nobody(task::now())), is_deaf }
    }

    /// Whether a replica that is here hears who leads: its log gets on and names a leader, or did until just now.
    pub(crate) fn is_heard(&self) -> bool {
        !self.is_deaf.load(Ordering::Acquire) && self.known.lock().is_heard(task::now())
    }

    /// The server that leads, if one is known.
    #[must_use]
    pub fn leader(&self) -> Option<ServerId> {
        self.known.lock().leader(task::now())
    }

    /// The log of this node says who leads; `None` when nobody does.
    pub(crate) fn hear(&self, leader: Option<ServerId>) {
        self.known.lock().hear(leader, task::now());
    }

    /// Notes who leads where the log does not say it: as others do, or as is likely; `None` when nobody is known to.
    pub(crate) fn find(&self, leader: Option<ServerId>) {
        self.known.lock().find(leader);
    }

    /// The same, unless another than `wrong` is known to lead.
    fn correct(&self, wrong: ServerId, leader: Option<ServerId>) {
        let mut known = self.known.lock();
        if known.leader(task::now()).is_none_or(|leader| leader == wrong) {
            known.find(leader);
        }
    }

    /// The same where the log hears who leads, and is believed again before long.
    fn correct_log(&self, wrong: ServerId, leader: Option<ServerId>) {
        self.known.lock().name(wrong, leader, task::now());
    }

    fn has_rows(&self, server: ServerId) -> bool {
        let without = self.known.lock().without_rows;
        without.is_none_or(|(other, since)| other != server || task::now() - since > WITHOUT_ROWS)
    }
}

impl ShardHandle {
    pub(crate) fn new(
        (own, reader): (ServerId, Option<ServerId>),
        shard: &ShardConfig,
        table: TableId,
        range: KeyRange,
        near: Option<Arc<Shard>>,
        lead: Arc<KnownLeader>,
    ) -> ShardHandle {
        let (group, replicas, leaving) = (shard.group, shard.replicas.clone(), shard.leaving.clone());
        ShardHandle(Arc::new(Place { table, group, range, replicas, leaving, own, near, lead, reader }))
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.0.table
    }

    /// The group that orders its writes. With the table, its name among nodes.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.0.group
    }

    /// The keys it answers for.
    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.0.range
    }

    /// Where the catalog puts its replicas.
    #[must_use]
    pub fn replicas(&self) -> &[ReplicaConfig] {
        &self.0.replicas
    }

    /// Every server that may lead it: those where the catalog puts its replicas, and those that are to be
    /// rid of theirs.
    pub(crate) fn places(&self) -> impl Iterator<Item = ServerId> {
        self.0.replicas.iter().chain(&self.0.leaving).map(|replica| replica.server)
    }

    /// Whether a replica on another server may lead, now or before long: there is one, even where the own
    /// one leads but is on its way out.
    #[must_use]
    pub fn may_move(&self) -> bool {
        self.0.replicas.iter().any(|replica| replica.server != self.0.own)
    }

    /// This node's own replica, whatever its role.
    #[must_use]
    pub fn near(&self) -> Option<&Arc<Shard>> {
        self.0.near.as_ref()
    }

    /// Whether a replica here hears who leads, so that nobody need be asked. One that has not for longer than an election
    /// takes may have missed it: with one other that does not write, it can elect nobody, and that one leads on.
    #[must_use]
    pub fn hears(&self) -> bool {
        self.near().is_some() && self.0.lead.is_heard()
    }

    /// Who leads, shared by all versions of this handle.
    #[must_use]
    pub fn lead(&self) -> &Arc<KnownLeader> {
        &self.0.lead
    }

    /// The replica that leads: for writes and for reads that must be up to date. `None` when no
    /// leader is known: ask any replica, which may know.
    #[must_use]
    pub fn leader(&self) -> Option<Route<'_>> {
        match self.near() {
            Some(near) if near.is_leader() => Some(Route::Local(near)),
            // A near replica that does not lead was named by old news.
            _ => self.0.lead.leader().filter(|leader| *leader != self.0.own).map(Route::Remote),
        }
    }

    /// As [`ShardHandle::nearest`], but where there is no own replica the one that is there for this node, so that the
    /// reads of all nodes go to all replicas, and those of one node to few servers.
    #[must_use]
    pub fn reader(&self, is_connected: impl Fn(ServerId) -> bool) -> Option<Route<'_>> {
        match self.0.reader {
            Some(reader) if self.0.near.is_none() && is_connected(reader) && self.0.lead.has_rows(reader) => {
                Some(Route::Remote(reader))
            }
            _ => self.nearest(is_connected),
        }
    }

    /// `server` was asked for rows that may be outdated, and has none. Others are asked for a while.
    pub fn not_read_from(&self, server: ServerId) {
        self.0.lead.known.lock().without_rows = Some((server, task::now()));
    }

    /// Any replica, the own one first, for reads that may be outdated; `is_connected` tells which
    /// servers can be asked. `None` when none can.
    #[must_use]
    pub fn nearest(&self, is_connected: impl Fn(ServerId) -> bool) -> Option<Route<'_>> {
        if let Some(near) = self.near().filter(|near| !near.is_recovering()) {
            return Some(Route::Local(near));
        }
        let leader = self.0.lead.leader();
        let mut servers = leader.into_iter().chain(self.0.replicas.iter().map(|replica| replica.server));
        servers.find(|server| *server != self.0.own && is_connected(*server)).map(Route::Remote)
    }

    /// The server of [`ShardHandle::leader`].
    #[must_use]
    pub fn leading_server(&self) -> Option<ServerId> {
        self.leader().map(|route| match route {
            Route::Local(_) => self.0.own,
            Route::Remote(server) => server,
        })
    }

    /// `server` was asked as the leader and said that it does not lead, but that `leader` does, or could not be reached.
    /// Where a replica here hears who leads, who is named is asked for a second, or until the log says who leads, or until he
    /// denies it: the log may be late, and what the other says may be old, or a guess. That this server leads only its own
    /// replica can say. Does nothing if another is asked by now.
    pub fn not_led_by(&self, server: ServerId, leader: Option<ServerId>) {
        let leader = leader.filter(|leader| *leader != server && *leader != self.0.own);
        match self.hears() {
            true => self.0.lead.correct_log(server, leader),
            false => self.0.lead.correct(server, leader),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{server, shard};

    fn asked(route: Option<Route<'_>>) -> Option<ServerId> {
        match route {
            Some(Route::Remote(server)) => Some(server),
            _ => None,
        }
    }

    #[test]
    fn whom_another_server_names_is_asked_until_he_denies_it_or_the_log_says_who_leads() {
        let now = task::now();
        let mut known = Known::nobody(now);
        let at_once = Duration::ZERO;
        known.name(server(1), Some(server(2)), now);
        assert_eq!(known.leader(now), None, "while nobody leads no late answer counts");
        known.hear(Some(server(1)), now);
        let mut then = |wrong: u64, named: Option<u64>, after: Duration| {
            known.name(server(wrong), named.map(server), now + after);
            known.leader(now + after)
        };
        assert_eq!(then(1, None, at_once), Some(server(1)), "the log will say so");
        assert_eq!(then(1, Some(2), at_once), Some(server(2)));
        assert_eq!(then(1, Some(3), at_once), Some(server(2)), "an answer that came late");
        assert_eq!(then(2, None, at_once), Some(server(1)), "he denies it");
        assert_eq!(then(1, Some(2), at_once), Some(server(1)), "those two do not send everybody to and fro");
        assert_eq!(then(1, Some(2), DENIED), Some(server(2)), "he may lead by now");
        assert_eq!(then(2, Some(1), DENIED), Some(server(1)), "he names the one who named him");
        assert_eq!(then(1, Some(2), DENIED), Some(server(1)));
        assert_eq!(then(1, Some(3), DENIED), Some(server(3)));
        assert_eq!(known.leader(now + DENIED + NAMED), Some(server(1)), "the log is believed again");
        known.hear(Some(server(1)), now + DENIED);
        assert_eq!(known.leader(now + DENIED), Some(server(1)), "the log says so again");
    }

    #[test]
    fn a_log_is_heard_by_what_it_said_itself() {
        let now = task::now();
        let mut known = Known::nobody(now);
        assert!(known.is_heard(now), "an election may be under way");
        known.find(Some(server(1)));
        assert!(!known.is_heard(now + ELECTION));
        known.name(server(1), None, now + ELECTION);
        assert_eq!(known.leader(now + ELECTION), None, "nobody else says that he leads");
        known.find(Some(server(1)));
        known.hear(Some(server(1)), now + ELECTION);
        assert!(known.is_heard(now + 9 * ELECTION));
        known.hear(None, now + 9 * ELECTION);
        assert!(known.is_heard(now + 9 * ELECTION) && !known.is_heard(now + 10 * ELECTION));
    }

    #[test]
    fn nobody_but_its_own_replica_tells_a_server_that_it_leads() {
        let lead = Arc::new(KnownLeader::new(Arc::default()));
        lead.hear(Some(server(1)));
        let table = storage::TableId::from_uuid(uuid::Uuid::nil());
        let config = shard(3, b"", &[1, 9]);
        let handle = ShardHandle::new((server(9), None), &config, table, KeyRange::all(), None, lead);
        handle.not_led_by(server(1), Some(server(9)));
        assert_eq!((handle.lead().leader(), handle.leading_server()), (None, None));
        handle.not_led_by(server(1), Some(server(2)));
        assert_eq!(handle.leading_server(), Some(server(2)));
    }

    #[test]
    fn whoever_has_no_rows_is_not_read_from_for_a_while() {
        let lead = Arc::new(KnownLeader::new(Arc::default()));
        lead.hear(Some(server(1)));
        let config = shard(3, b"", &[1, 2]);
        let table = storage::TableId::from_uuid(uuid::Uuid::nil());
        let (own, reader) = (server(9), Some(server(2)));
        let handle = ShardHandle::new((own, reader), &config, table, KeyRange::all(), None, lead);
        assert_eq!(asked(handle.nearest(|_| true)), Some(server(1)));
        assert_eq!(asked(handle.reader(|_| true)), reader);
        assert_eq!(asked(handle.reader(|asked| asked != server(2))), Some(server(1)));
        handle.not_read_from(server(1));
        assert_eq!(asked(handle.reader(|_| true)), reader);
        handle.not_read_from(server(2));
        assert_eq!(asked(handle.reader(|_| true)), Some(server(1)));
        let since = task::now() - WITHOUT_ROWS - Duration::from_millis(1);
        handle.lead().known.lock().without_rows = Some((server(2), since));
        assert_eq!(asked(handle.reader(|_| true)), reader);
    }
}
