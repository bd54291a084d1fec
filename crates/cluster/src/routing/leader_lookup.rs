//! Looks up which servers lead shards, and how their replicas are: each server is asked once about all of its shards, so that
//! the state of a thousand tables takes a few requests, not thousands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use io::task;
use log::GroupId;

use super::leadership::Leadership;
use super::local_replicas::LocalReplicas;
use super::replica_states::ReplicaStates;
use super::shard_handle::{Route, ShardHandle};
use crate::config::ServerId;
use crate::rpc::response::{GroupState, StateResponse, decode_states};
use crate::rpc::{Peers, Request};

/// How long a leader may take to tell how its replicas are.
const LEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server may take when a query waits for it.
pub(crate) const QUERY_LEADER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long another server may take, when the known leader hangs.
const OTHER_LEADER_TIMEOUT: Duration = Duration::from_millis(500);
/// How often another server is asked because the one before does not lead.
const HOPS_MAX: usize = 3;
/// The most shards of one request: it is answered in one step of a log.
const SHARDS_PER_REQUEST_MAX: usize = 4096;

/// The server that leads a shard, and the state of its replicas.
pub(crate) type Led = (ServerId, GroupState);

/// A shard whose leader is being looked up.
struct Search<'a> {
    handle: &'a ShardHandle,
    asked: Vec<ServerId>,
    hint: Option<ServerId>,
    led: Option<Led>,
}

impl Search<'_> {
    /// Takes the response of `server`; `None` if it did not respond.
    fn take_response(&mut self, server: ServerId, state: Option<StateResponse>, leadership: &Leadership) {
        match state {
            Some(StateResponse::Led(state)) => {
                leadership.found_leader(self.handle, Some(server));
                self.led = Some((server, state));
            }
            Some(StateResponse::NotLeader(leader)) => {
                // It leads a group that is sealed. The server that seals it asks again, and may have asked another so far.
                if leader == Some(server) {
                    leadership.found_leader(self.handle, leader);
                }
                self.hint = leader;
            }
            None => self.hint = None,
        }
    }
}

/// Looks up leaders.
pub struct LeaderLookup {
    own: ServerId,
    peers: Arc<Peers>,
    leadership: Arc<Leadership>,
    local: Arc<LocalReplicas>,
    states: Arc<ReplicaStates>,
}

impl LeaderLookup {
    pub(crate) fn new(
        own: ServerId,
        peers: Arc<Peers>,
        leadership: Arc<Leadership>,
        local: Arc<LocalReplicas>,
        states: Arc<ReplicaStates>,
    ) -> LeaderLookup {
        LeaderLookup { own, peers, leadership, local, states }
    }

    /// Who leads each of the shards; none where nobody says that they do.
    pub(crate) fn leaders(&self, handles: &[&ShardHandle]) -> Vec<Option<Led>> {
        self.leaders_within(handles, LEADER_TIMEOUT)
    }

    /// The same; each server may take `timeout` to answer.
    pub(crate) fn leaders_within(&self, handles: &[&ShardHandle], timeout: Duration) -> Vec<Option<Led>> {
        let own = self.own;
        let groups: Vec<GroupId> = handles.iter().map(|handle| handle.group()).collect();
        let here = self.states.here(&groups).into_iter().map(|here| match here {
            StateResponse::Led(state) => Some((own, state)),
            StateResponse::NotLeader(_) => None,
        });
        let mut searches: Vec<Search<'_>> = handles
            .iter()
            .zip(here)
            .map(|(handle, led)| Search {
                handle,
                asked: Vec::new(),
                hint: handle.known_leader().leader(),
                led,
            })
            .collect();
        for _ in 0..HOPS_MAX {
            if !self.ask_round(&mut searches, timeout) {
                break;
            }
        }
        searches.into_iter().map(|search| search.led).collect()
    }

    /// Asks whether another leads these shards, which have no replica here, than the server beside each, which does
    /// not answer. Their handles know it then. Waits a few times `OTHER_LEADER_TIMEOUT` at most.
    pub fn find_other_leaders(&self, shards: &[(&ShardHandle, ServerId)]) {
        let search = |(handle, server)| Search { handle, asked: vec![server], hint: None, led: None };
        let mut searches: Vec<Search<'_>> = shards.iter().copied().map(search).collect();
        for _ in 0..HOPS_MAX {
            if !self.ask_round(&mut searches, OTHER_LEADER_TIMEOUT) {
                break;
            }
        }
    }

    /// Asks who leads those of the shards that have no replica here which hears of it: nobody tells this node when that
    /// changes. Takes a few round trips, and one second for each at most.
    pub fn find_leaders(&self, shards: &[&ShardHandle]) {
        let is_far = |handle: &&ShardHandle| {
            !handle.has_leader_contact() && !matches!(handle.leader(), Some(Route::Local(_)))
        };
        let far: Vec<&ShardHandle> = shards.iter().copied().filter(is_far).collect();
        let known: Vec<Option<ServerId>> = far.iter().map(|handle| handle.known_leader().leader()).collect();
        let led = self.leaders_within(&far, QUERY_LEADER_TIMEOUT);
        for ((handle, known), led) in far.iter().zip(known).zip(led) {
            // Who leads may have been found out meanwhile, here too if the group is sealed. Where a replica has come, its
            // log says so.
            let is_new = handle.known_leader().leader() != known;
            if led.is_none()
                && !is_new
                && (handle.local().is_some() || self.local.shard_of(handle.group()).is_none())
            {
                self.leadership.found_leader(handle, None);
            }
        }
    }

    /// Asks one more server about each shard of which it is not known who leads, all at the same time, and
    /// each server about all of its shards at once. False if there was nobody to ask.
    fn ask_round(&self, searches: &mut [Search<'_>], timeout: Duration) -> bool {
        let Some(wire) = self.peers.transport() else { return false };
        let mut places: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
        for (place, search) in searches.iter_mut().enumerate().filter(|(_, search)| search.led.is_none()) {
            let Some(server) = self.next_to_ask(search) else { continue };
            search.asked.push(server);
            places.entry(server).or_default().push(place);
        }
        let (sender, answers) = task::channel();
        for (server, places) in &places {
            for places in places.chunks(SHARDS_PER_REQUEST_MAX) {
                let groups = places.iter().map(|place| searches[*place].handle.group()).collect();
                let (server, places, sender) = (*server, places.to_vec(), sender.clone());
                // Whoever asked waits until every sender is gone.
                let answered = Box::new(move |answer| drop(sender.send((server, places, answer))));
                wire.call(server, Request::States { groups }.encode(), timeout, answered);
            }
        }
        drop(sender);
        while let Ok((server, places, answer)) = answers.recv() {
            let mut states = answer.ok().and_then(decode_states).unwrap_or_default().into_iter();
            places
                .into_iter()
                .for_each(|place| searches[place].take_response(server, states.next(), &self.leadership));
        }
        !places.is_empty()
    }

    fn next_to_ask(&self, search: &Search<'_>) -> Option<ServerId> {
        let own = self.own;
        let others = search.handle.servers();
        let fits = |server: &ServerId| {
            *server != own && !search.asked.contains(server) && self.peers.is_connected(*server)
        };
        search.hint.into_iter().chain(others).find(fits)
    }
}
