//! The roles of the replicas on this node, and the leaders of their groups.
//!
//! [`Leadership`] is created before the log, which reports every change to it on the log's thread, so nothing here
//! blocks. The lock of the roles is held while a change is passed on, so that changes are passed on in order.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{GroupId, GroupObserver, PeerId, Role, Term};
use shard::Replicas;

use super::known_leader::KnownLeader;
use super::replica_transport::ReplicaTransport;
use super::shard_handle::ShardHandle;
use crate::config::ServerId;
use crate::events::Notifier;
use crate::events::{Event, EventQueue};
use crate::locks::{BriefMutex, BriefRwLock, Rank};
use crate::rpc::Peers;

/// The roles and voters that the log reported.
#[derive(Default)]
struct Roles {
    /// The last reported role of each local replica.
    reported: HashMap<GroupId, Role>,
    voters: HashMap<GroupId, Vec<PeerId>>,
    /// Groups that this node has stepped down from, even if the log reports that it leads: the log makes no progress
    /// and other replicas can lead, or it is not yet confirmed that no other replica does.
    stepped_down: BTreeSet<GroupId>,
    /// How often the log has stalled.
    stalls: u64,
}

impl Roles {
    /// The effective role of a replica: a follower in a group that this node has stepped down from.
    fn in_force(&self, group: GroupId) -> Option<Role> {
        Some(match *self.reported.get(&group)? {
            Role::Leader { term } if self.stepped_down.contains(&group) => {
                Role::Follower { term, leader: None }
            }
            role => role,
        })
    }
}

/// A leadership that a quorum has to confirm: its term, and the number of stalls when the confirmation was requested.
#[derive(Clone, Copy)]
pub(crate) struct Unconfirmed {
    term: Term,
    stalls: u64,
}

/// The groups that this node leads, and the leaders of the other groups.
pub struct Leadership {
    peers: Arc<Peers>,
    transport: Arc<ReplicaTransport>,
    replicas: Arc<Replicas>,
    events: Arc<EventQueue>,
    state_changes: Arc<Notifier>,
    known: BriefRwLock<HashMap<GroupId, Arc<KnownLeader>>>,
    roles: BriefMutex<Roles>,
    /// The local log makes no progress and receives nothing.
    log_is_stalled: Arc<AtomicBool>,
}

impl Leadership {
    /// Starts without groups. `state_changes` is notified of every change of a leader.
    pub(crate) fn new(
        peers: Arc<Peers>,
        transport: Arc<ReplicaTransport>,
        replicas: Arc<Replicas>,
        events: Arc<EventQueue>,
        state_changes: Arc<Notifier>,
    ) -> Leadership {
        Leadership {
            peers,
            transport,
            replicas,
            events,
            state_changes,
            known: BriefRwLock::new(Rank::KnownLeaders, HashMap::new()),
            roles: BriefMutex::new(Rank::Roles, Roles::default()),
            log_is_stalled: Arc::default(),
        }
    }

    /// The leader of a group, shared by all handles of the group.
    pub(crate) fn known_leader(&self, group: GroupId) -> Arc<KnownLeader> {
        if let Some(known) = self.known.read().get(&group) {
            return Arc::clone(known);
        }
        let new = || Arc::new(KnownLeader::new(self.log_is_stalled.clone()));
        Arc::clone(self.known.write().entry(group).or_insert_with(new))
    }

    /// The server that leads a group, if the group is known here and has a leader.
    pub(crate) fn leader(&self, group: GroupId) -> Option<ServerId> {
        self.known.read().get(&group)?.leader()
    }

    /// Forgets a group without a local replica.
    pub(crate) fn forget(&self, group: GroupId) {
        self.known.write().remove(&group);
        let mut roles = self.roles.lock();
        roles.reported.remove(&group);
        roles.voters.remove(&group);
        roles.stepped_down.remove(&group);
    }

    /// The groups for which `is_enough` holds, given the number of voters on servers for which `counts` holds, and of
    /// all voters. Uses the voters that the log reported, because the catalog may list replicas that do not vote yet,
    /// and may no longer list some that still vote.
    fn groups_by_votes(
        &self,
        counts: impl Fn(GroupId, ServerId) -> bool,
        is_enough: impl Fn(usize, usize) -> bool,
    ) -> BTreeSet<GroupId> {
        let roles = self.roles.lock();
        let servers = self.transport.servers_by_replica();
        let fits = |group: GroupId, voters: &[PeerId]| {
            let is_counted =
                |voter: &&PeerId| servers.get(voter).is_some_and(|server| counts(group, *server));
            is_enough(voters.iter().filter(is_counted).count(), voters.len())
        };
        roles.voters.iter().filter(|(group, voters)| fits(**group, voters)).map(|(group, _)| *group).collect()
    }

    pub(crate) fn with_quorum_on(&self, servers: &BTreeSet<ServerId>) -> BTreeSet<GroupId> {
        self.groups_by_votes(|_, server| servers.contains(&server), |votes, all| votes * 2 > all)
    }

    /// The groups in which the servers for which `counts` holds have no quorum.
    pub(crate) fn without_quorum_of(&self, counts: impl Fn(GroupId, ServerId) -> bool) -> BTreeSet<GroupId> {
        self.groups_by_votes(counts, |votes, all| votes * 2 <= all)
    }

    /// The groups that this node leads and that have voters on `server`.
    pub(crate) fn led_groups_with_voters_on(&self, server: ServerId) -> Vec<GroupId> {
        let with = self.groups_by_votes(|_, of| of == server, |votes, _| votes > 0);
        let roles = self.roles.lock();
        let is_led = |group: &GroupId| matches!(roles.in_force(*group), Some(Role::Leader { .. }));
        with.into_iter().filter(is_led).collect()
    }

    /// The newest term that the log reported of each group; zero if it reported none. Zero proves nothing: the group
    /// may have been removed here, or opened just now.
    pub(crate) fn terms(&self, groups: &[GroupId]) -> Vec<Term> {
        let roles = self.roles.lock();
        let term = |group: &GroupId| match roles.reported.get(group) {
            Some(Role::Leader { term } | Role::Follower { term, .. }) => *term,
            None => Term::default(),
        };
        groups.iter().map(term).collect()
    }

    /// Steps down from `groups`, because the log makes no progress. Its reports of leaders are ignored until
    /// [`Leadership::resume`].
    pub(crate) fn step_down(&self, groups: &BTreeSet<GroupId>) {
        let mut roles = self.roles.lock();
        if !self.log_is_stalled.swap(true, Ordering::AcqRel) {
            roles.stalls += 1;
        }
        for group in groups {
            let is_new = roles.stepped_down.insert(*group);
            if is_new && matches!(roles.reported.get(group), Some(Role::Leader { .. })) {
                self.apply(*group, &roles);
            }
        }
    }

    /// The log makes progress again, so its reports count again, also of groups that this node only follows. This node
    /// leads the groups that it stepped down from again once a quorum confirms it: [`Leadership::unconfirmed`].
    pub(crate) fn resume(&self) {
        let mut roles = self.roles.lock();
        self.log_is_stalled.store(false, Ordering::Release);
        let Roles { reported, stepped_down, .. } = &mut *roles;
        stepped_down.retain(|group| matches!(reported.get(group), Some(Role::Leader { .. })));
        let groups: BTreeSet<GroupId> = roles.reported.keys().copied().collect();
        groups.into_iter().for_each(|group| self.apply(group, &roles));
    }

    /// The groups that this node stepped down from but leads according to its log, which makes progress again.
    pub(crate) fn unconfirmed(&self) -> Vec<(GroupId, Unconfirmed)> {
        let roles = self.roles.lock();
        if self.log_is_stalled() {
            return Vec::new();
        }
        let stalls = roles.stalls;
        let leadership = |group: &GroupId| match roles.reported.get(group) {
            Some(Role::Leader { term }) => Some((*group, Unconfirmed { term: *term, stalls })),
            _ => None,
        };
        roles.stepped_down.iter().filter_map(leadership).collect()
    }

    /// Leads a group again, after a quorum has confirmed the leadership. Does nothing if the term has changed, or if
    /// the log has stalled again, since the confirmation was requested.
    pub(crate) fn confirm(&self, group: GroupId, confirmed: Unconfirmed) {
        let mut roles = self.roles.lock();
        let still_leads = roles.reported.get(&group) == Some(&Role::Leader { term: confirmed.term });
        if still_leads && confirmed.stalls == roles.stalls && !self.log_is_stalled() {
            roles.stepped_down.remove(&group);
            self.apply(group, &roles);
        }
    }

    /// Records the leader of a shard that another server named, unless the local log reports the leader.
    pub(crate) fn found_leader(&self, shard: &ShardHandle, leader: Option<ServerId>) {
        // The lock orders this with reports of the log.
        let _roles = self.roles.lock();
        if !shard.has_leader_contact() {
            shard.known_leader().set_named(leader);
        }
    }

    /// As [`Leadership::found_leader`], for a group with a local replica.
    pub(crate) fn found_leader_of(&self, group: GroupId, leader: Option<ServerId>) {
        let _roles = self.roles.lock();
        let known = self.known_leader(group);
        if !known.is_from_local_log() {
            known.set_named(leader);
        }
    }

    /// Whether the local log makes no progress and receives nothing.
    pub(crate) fn log_is_stalled(&self) -> bool {
        self.log_is_stalled.load(Ordering::Acquire)
    }

    /// Applies the effective role of a replica. Called with the lock of the roles held.
    fn apply(&self, group: GroupId, roles: &Roles) {
        let Some(role) = roles.in_force(group) else { return };
        self.replicas.set_role(group, role);
        let leader = match role {
            Role::Leader { .. } => self.peers.own(),
            Role::Follower { leader, .. } => leader.and_then(|peer| self.transport.server_of(peer)),
        };
        self.known_leader(group).report(leader);
        self.state_changes.notify();
        self.events.push(Event::Role(group));
    }
}

impl GroupObserver for Leadership {
    fn role_changed(&self, group: GroupId, role: Role) {
        let mut roles = self.roles.lock();
        roles.reported.insert(group, role);
        if matches!(role, Role::Follower { .. }) && !self.log_is_stalled() {
            // The log itself reports that this node does not lead.
            roles.stepped_down.remove(&group);
        }
        self.apply(group, &roles);
    }

    fn voters_changed(&self, group: GroupId, voters: &[PeerId]) {
        self.roles.lock().voters.insert(group, voters.to_vec());
    }

    fn snapshot_needed(&self, group: GroupId, to: PeerId) {
        self.events.push(Event::Behind(group, to));
    }

    fn rows_needed(&self, group: GroupId) {
        self.replicas.mark_recovering(group);
        self.events.push(Event::NeedsRows(group));
    }

    fn removed(&self, group: GroupId) {
        self.events.push(Event::Removed(group));
    }
}
