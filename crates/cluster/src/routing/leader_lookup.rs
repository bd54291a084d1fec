//! Looks up the leaders of shards, and the state of their replicas, on other servers. One request to a server covers
//! all of its shards, so that the state of a thousand tables takes a few requests, not thousands.

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

/// How long a leader may take to respond with the state of its replicas.
const LEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server may take to respond while a query waits.
pub(crate) const QUERY_LEADER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a server may take to respond when the known leader hangs.
const OTHER_LEADER_TIMEOUT: Duration = Duration::from_millis(500);
/// The most servers that are asked for the leader of one shard.
const HOPS_MAX: usize = 3;
/// The most shards of one request, because the receiver handles it in one step of its log.
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
                // The responder leads the group, but the group is sealed. The server that seals it needs this leader,
                // and may have sent its requests to another server so far.
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

    /// The leader of each shard and its state; `None` if no server responds as the leader.
    pub(crate) fn leaders(&self, handles: &[&ShardHandle]) -> Vec<Option<Led>> {
        self.leaders_within(handles, LEADER_TIMEOUT)
    }

    /// As [`LeaderLookup::leaders`]; each server may take `timeout` to respond.
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

    /// Looks up the leaders of shards without a local replica. The server given with each shard does not respond, so it
    /// is not asked. Records the leaders in the handles. Waits a few times `OTHER_LEADER_TIMEOUT` at most.
    pub fn find_other_leaders(&self, shards: &[(&ShardHandle, ServerId)]) {
        let search = |(handle, server)| Search { handle, asked: vec![server], hint: None, led: None };
        let mut searches: Vec<Search<'_>> = shards.iter().copied().map(search).collect();
        for _ in 0..HOPS_MAX {
            if !self.ask_round(&mut searches, OTHER_LEADER_TIMEOUT) {
                break;
            }
        }
    }

    /// Looks up the leaders of the shards whose leader no local replica reports: this node is not notified when they
    /// change. Records the leaders in the handles. Takes a few round trips, each one second at most.
    pub fn find_leaders(&self, shards: &[&ShardHandle]) {
        let is_unreported = |handle: &&ShardHandle| {
            !handle.has_leader_contact() && !matches!(handle.leader(), Some(Route::Local(_)))
        };
        let searched: Vec<&ShardHandle> = shards.iter().copied().filter(is_unreported).collect();
        let known: Vec<Option<ServerId>> =
            searched.iter().map(|handle| handle.known_leader().leader()).collect();
        let led = self.leaders_within(&searched, QUERY_LEADER_TIMEOUT);
        for ((handle, known), led) in searched.iter().zip(known).zip(led) {
            // Another thread, or this lookup if the group is sealed, may have found the leader meanwhile. If a local
            // replica was opened meanwhile, the log reports its leader.
            let is_new = handle.known_leader().leader() != known;
            if led.is_none()
                && !is_new
                && (handle.local().is_some() || self.local.shard_of(handle.group()).is_none())
            {
                self.leadership.found_leader(handle, None);
            }
        }
    }

    /// Asks one more server about each shard whose leader is still unknown: all servers concurrently, each about all of its
    /// shards. Returns false if no server was left to ask.
    fn ask_round(&self, searches: &mut [Search<'_>], timeout: Duration) -> bool {
        let Some(transport) = self.peers.transport() else { return false };
        let mut places: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
        for (place, search) in searches.iter_mut().enumerate().filter(|(_, search)| search.led.is_none()) {
            let Some(server) = self.next_to_ask(search) else { continue };
            search.asked.push(server);
            places.entry(server).or_default().push(place);
        }
        let (sender, responses) = task::channel();
        for (server, places) in &places {
            for places in places.chunks(SHARDS_PER_REQUEST_MAX) {
                let groups = places.iter().map(|place| searches[*place].handle.group()).collect();
                let (server, places, sender) = (*server, places.to_vec(), sender.clone());
                // The loop below ends once every sender is dropped.
                let on_response = Box::new(move |response| drop(sender.send((server, places, response))));
                transport.call(server, Request::States { groups }.encode(), timeout, on_response);
            }
        }
        drop(sender);
        while let Ok((server, places, response)) = responses.recv() {
            let mut states = response.ok().and_then(decode_states).unwrap_or_default().into_iter();
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
