//! The node's post: letters between replicas find the server of a replica, and what the log tells of
//! its groups finds those who wait for it.
//!
//! Made before the log, which sends through it and tells it everything on its own thread; so nothing
//! here waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use io::task::Condvar;
use log::{GroupId, GroupObserver, Log, Lsn, Message, PeerId, Role, Term, Transport};
use parking_lot::{Mutex, RwLock};
use shard::Replicas;

use crate::handle::KnownLeader;
use crate::news::Notifier;
use crate::{RpcClient, ServerId, ShardHandle};

/// Carries requests and letters to other servers.
pub trait PeerTransport: RpcClient {
    /// Sends letters to replicas on `to`. They may be lost.
    fn mail(&self, to: ServerId, letters: Vec<Message>);

    /// A server was removed for good: there is no link to it from now on. Does nothing where servers are
    /// not remembered.
    fn forget(&self, _server: ServerId) {}

    /// A server that is silent for so long is given up. Does nothing where time is not looked at.
    fn set_heartbeat(&self, _timeout: std::time::Duration) {}

    /// The cluster knows a server, this one perhaps, by that name. Does nothing where names are not told.
    fn set_name(&self, _server: ServerId, _name: &str) {}
}

/// Something about a group that the node must act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its part changed.
    Role(GroupId),
    /// Its rows are void.
    NeedsRows(GroupId),
    /// It is led from here, and the log no longer has what that replica needs.
    Behind(GroupId, PeerId),
    /// The leader of this group, whose log begins after that position, says that the replica here needs a copy.
    CopyOffered(GroupId, Lsn),
    /// It is no longer a member, and closed.
    Removed(GroupId),
    /// It was sealed here, or opened again.
    Marked(GroupId),
    /// The catalog's rows changed.
    Catalog,
    /// The node goes.
    Stop,
}

/// What the log has said of its groups.
#[derive(Default)]
struct Offices {
    told: HashMap<GroupId, Role>,
    /// Those who vote.
    voters: HashMap<GroupId, Vec<PeerId>>,
    /// Groups that are not led here, whatever the log says: it does not get on, and others can, or it has not heard yet
    /// whether another does.
    resigned: BTreeSet<GroupId>,
    /// How often the log has ceased to get on.
    stalls: u64,
}

/// A lead that a majority is to confirm: its term, and when it was asked for, counted in stalls.
#[derive(Clone, Copy)]
pub(crate) struct Unconfirmed {
    term: Term,
    stalls: u64,
}

impl Offices {
    /// The part that the replica of a group plays for all who ask.
    fn of(&self, group: GroupId) -> Option<Role> {
        Some(match *self.told.get(&group)? {
            Role::Leader { term } if self.resigned.contains(&group) => Role::Follower { term, leader: None },
            role => role,
        })
    }
}

/// Letters in and out, and news of groups.
pub struct Post {
    replicas: Arc<Replicas>,
    wire: OnceLock<Arc<dyn PeerTransport>>,
    own: OnceLock<ServerId>,
    servers: RwLock<BTreeMap<PeerId, ServerId>>,
    leads: RwLock<HashMap<GroupId, Arc<KnownLeader>>>,
    offices: Mutex<Offices>,
    is_deaf: Arc<AtomicBool>,
    events: Mutex<Vec<Event>>,
    rung: Condvar,
    news: Arc<Notifier>,
}

impl Post {
    /// The post of a node whose shards are `replicas`. It has no wire yet: letters are dropped.
    #[must_use]
    pub fn new(replicas: Arc<Replicas>) -> Arc<Post> {
        Arc::new(Post {
            replicas,
            wire: OnceLock::new(),
            own: OnceLock::new(),
            servers: RwLock::default(),
            leads: RwLock::default(),
            offices: Mutex::default(),
            is_deaf: Arc::default(),
            events: Mutex::default(),
            rung: Condvar::new(),
            news: Arc::default(),
        })
    }

    /// Sets what carries letters and requests to other servers. Only the first one counts, and only before the node is opened:
    /// what the catalog says of servers is told once.
    pub fn connect(&self, wire: Arc<dyn PeerTransport>) {
        drop(self.wire.set(wire));
    }

    /// What carries requests to other servers; `None` on a node that is alone.
    #[must_use]
    pub fn wire(&self) -> Option<&Arc<dyn PeerTransport>> {
        self.wire.get()
    }

    /// Told of whatever may change how replicas are: who leads, who is connected, the catalog, copies.
    #[must_use]
    pub fn news(&self) -> &Arc<Notifier> {
        &self.news
    }

    pub(crate) fn set_own(&self, own: ServerId) {
        self.own.get_or_init(|| own);
    }

    /// Where a replica is.
    pub(crate) fn server_of(&self, peer: PeerId) -> Option<ServerId> {
        self.servers.read().get(&peer).copied()
    }

    /// Notes where replicas are.
    pub(crate) fn learn(&self, places: impl IntoIterator<Item = (PeerId, ServerId)>) {
        self.servers.write().extend(places);
    }

    /// Every server that has a replica somewhere.
    pub(crate) fn servers(&self) -> Vec<ServerId> {
        let mut servers: Vec<ServerId> = self.servers.read().values().copied().collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Letters have arrived from `from`: the log gets them, and where their writers are is known now.
    pub fn arrived(&self, from: ServerId, letters: Vec<Message>, log: &dyn Log) {
        let is_new = {
            let servers = self.servers.read();
            letters.iter().any(|letter| servers.get(&letter.from) != Some(&from))
        };
        if is_new {
            self.learn(letters.iter().map(|letter| (letter.from, from)));
        }
        letters.into_iter().for_each(|letter| log.receive(letter));
    }

    /// Replicas on a server that went silent or came back.
    #[must_use]
    pub fn peers_on(&self, server: ServerId) -> Vec<PeerId> {
        let servers = self.servers.read();
        servers.iter().filter(|(_, at)| **at == server).map(|(peer, _)| *peer).collect()
    }

    /// All replicas of which it is known where they are.
    pub(crate) fn peers(&self) -> Vec<PeerId> {
        self.servers.read().keys().copied().collect()
    }

    /// Who leads the group, for all who want to know.
    pub(crate) fn lead(&self, group: GroupId) -> Arc<KnownLeader> {
        if let Some(lead) = self.leads.read().get(&group) {
            return Arc::clone(lead);
        }
        Arc::clone(
            self.leads
                .write()
                .entry(group)
                .or_insert_with(|| Arc::new(KnownLeader::new(self.is_deaf.clone()))),
        )
    }

    /// Who leads the group, if it has been heard of here and somebody does.
    pub(crate) fn known_leader(&self, group: GroupId) -> Option<ServerId> {
        self.leads.read().get(&group)?.leader()
    }

    pub(crate) fn forget(&self, group: GroupId) {
        self.leads.write().remove(&group);
        let mut offices = self.offices.lock();
        offices.told.remove(&group);
        offices.voters.remove(&group);
        offices.resigned.remove(&group);
    }

    /// The groups with so many votes, of all that there are in each: by the log, since the catalog names some who do not vote
    /// yet, and others no more who still do. A vote is counted where `counts` says so of its group and server.
    fn with_votes(
        &self,
        counts: impl Fn(GroupId, ServerId) -> bool,
        are_enough: impl Fn(usize, usize) -> bool,
    ) -> BTreeSet<GroupId> {
        let (offices, servers) = (self.offices.lock(), self.servers.read());
        let fit = |group: GroupId, voters: &[PeerId]| {
            let is_counted =
                |voter: &&PeerId| servers.get(voter).is_some_and(|server| counts(group, *server));
            are_enough(voters.iter().filter(is_counted).count(), voters.len())
        };
        offices
            .voters
            .iter()
            .filter(|(group, voters)| fit(**group, voters))
            .map(|(group, _)| *group)
            .collect()
    }

    /// The groups of whose voters these servers have the majority.
    pub(crate) fn with_majority_on(&self, servers: &BTreeSet<ServerId>) -> BTreeSet<GroupId> {
        self.with_votes(|_, server| servers.contains(&server), |votes, all| votes * 2 > all)
    }

    /// The groups that have no majority of voters for whose servers `is_for` says so.
    pub(crate) fn without_majority_for(
        &self,
        is_for: impl Fn(GroupId, ServerId) -> bool,
    ) -> BTreeSet<GroupId> {
        self.with_votes(is_for, |votes, all| votes * 2 <= all)
    }

    /// The groups that are led here and have voters on `server`.
    pub(crate) fn led_with(&self, server: ServerId) -> Vec<GroupId> {
        let with = self.with_votes(|_, of| of == server, |votes, _| votes > 0);
        let offices = self.offices.lock();
        let is_led = |group: &GroupId| matches!(offices.of(*group), Some(Role::Leader { .. }));
        with.into_iter().filter(is_led).collect()
    }

    /// The newest term that the log has told of each group; zero where it has told of none, which says nothing: the group
    /// may have been removed here, or the log may not have come to it since it was opened.
    pub(crate) fn terms(&self, groups: &[GroupId]) -> Vec<Term> {
        let offices = self.offices.lock();
        let term = |group: &GroupId| match offices.told.get(group) {
            Some(Role::Leader { term } | Role::Follower { term, .. }) => *term,
            None => Term::default(),
        };
        groups.iter().map(term).collect()
    }

    /// The log does not get on: of `groups`, and of those of before, nothing is led here any more, and who leads them
    /// is not heard from it.
    pub(crate) fn resign(&self, groups: &BTreeSet<GroupId>) {
        let mut offices = self.offices.lock();
        if !self.is_deaf.swap(true, Ordering::AcqRel) {
            offices.stalls += 1;
        }
        for group in groups {
            let is_new = offices.resigned.insert(*group);
            if is_new && matches!(offices.told.get(group), Some(Role::Leader { .. })) {
                self.enter(*group, &offices);
            }
        }
    }

    /// The log gets on: what it says holds again, also of groups that it only follows, whose leaders were asked for. Of
    /// those that were given up it does once a majority says so, too: [`Post::unconfirmed`].
    pub(crate) fn resume(&self) {
        let mut offices = self.offices.lock();
        self.is_deaf.store(false, Ordering::Release);
        let Offices { told, resigned, .. } = &mut *offices;
        resigned.retain(|group| matches!(told.get(group), Some(Role::Leader { .. })));
        let groups: BTreeSet<GroupId> = offices.told.keys().copied().collect();
        groups.into_iter().for_each(|group| self.enter(group, &offices));
    }

    /// The groups that were given up and that the log, which gets on, says are led here.
    pub(crate) fn unconfirmed(&self) -> Vec<(GroupId, Unconfirmed)> {
        let offices = self.offices.lock();
        if self.is_deaf.load(Ordering::Acquire) {
            return Vec::new();
        }
        let stalls = offices.stalls;
        let office = |group: &GroupId| match offices.told.get(group) {
            Some(Role::Leader { term }) => Some((*group, Unconfirmed { term: *term, stalls })),
            _ => None,
        };
        offices.resigned.iter().filter_map(office).collect()
    }

    /// A majority has confirmed, after it was asked for, that the group is led here.
    pub(crate) fn confirm(&self, group: GroupId, office: Unconfirmed) {
        let mut offices = self.offices.lock();
        let is_so = offices.told.get(&group) == Some(&Role::Leader { term: office.term });
        if is_so && office.stalls == offices.stalls && !self.is_deaf.load(Ordering::Acquire) {
            offices.resigned.remove(&group);
            self.enter(group, &offices);
        }
    }

    /// Another server has said who leads the shard. It is believed where the log does not hear of it.
    pub(crate) fn found_leader(&self, shard: &ShardHandle, leader: Option<ServerId>) {
        // So that nothing overtakes it that the log says.
        let _offices = self.offices.lock();
        if !shard.hears() {
            shard.lead().find(leader);
        }
    }

    /// The same of a group that has a replica here.
    pub(crate) fn found_leader_of(&self, group: GroupId, leader: Option<ServerId>) {
        let _offices = self.offices.lock();
        let lead = self.lead(group);
        if !lead.is_heard() {
            lead.find(leader);
        }
    }

    /// Whether the log does not get on, and hears nothing.
    pub(crate) fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Acquire)
    }

    /// The part of a group's replica is in force. Under the lock, so that none is overtaken by an older one.
    fn enter(&self, id: GroupId, offices: &Offices) {
        let Some(role) = offices.of(id) else { return };
        self.replicas.set_role(id, role);
        let leader = match role {
            Role::Leader { .. } => self.own.get().copied(),
            Role::Follower { leader, .. } => leader.and_then(|peer| self.server_of(peer)),
        };
        self.lead(id).hear(leader);
        self.news.tell();
        self.tell(Event::Role(id));
    }

    /// Remembers an event until [`Post::next`].
    pub(crate) fn tell(&self, event: Event) {
        let mut events = self.events.lock();
        if !events.contains(&event) {
            events.push(event);
            self.rung.notify_all();
        }
    }

    /// The events since the last call; waits for one, `patience` at most.
    pub(crate) fn next(&self, patience: std::time::Duration) -> Vec<Event> {
        let mut events = self.events.lock();
        if events.is_empty() {
            self.rung.wait_for(&mut events, patience);
        }
        std::mem::take(&mut *events)
    }
}

impl Transport for Post {
    fn send(&self, letters: Vec<Message>) {
        let Some(wire) = self.wire.get() else { return };
        let mut by_server: Vec<(ServerId, Vec<Message>)> = Vec::new();
        {
            let servers = self.servers.read();
            for letter in letters {
                let Some(server) = servers.get(&letter.to) else { continue };
                match by_server.iter_mut().find(|(known, _)| known == server) {
                    Some((_, letters)) => letters.push(letter),
                    None => by_server.push((*server, vec![letter])),
                }
            }
        }
        for (server, letters) in by_server {
            wire.mail(server, letters);
        }
    }
}

impl GroupObserver for Post {
    fn role_changed(&self, id: GroupId, role: Role) {
        let mut offices = self.offices.lock();
        offices.told.insert(id, role);
        if matches!(role, Role::Follower { .. }) && !self.is_deaf() {
            // It has heard.
            offices.resigned.remove(&id);
        }
        self.enter(id, &offices);
    }

    fn voters_changed(&self, id: GroupId, voters: &[PeerId]) {
        self.offices.lock().voters.insert(id, voters.to_vec());
    }

    fn snapshot_needed(&self, id: GroupId, to: PeerId) {
        self.tell(Event::Behind(id, to));
    }

    fn rows_needed(&self, id: GroupId) {
        self.replicas.mark_recovering(id);
        self.tell(Event::NeedsRows(id));
    }

    fn removed(&self, id: GroupId) {
        self.tell(Event::Removed(id));
    }
}
