//! Asks who leads shards and how their replicas are: each server once about all of its shards, so that
//! the state of a thousand tables is a few requests, not thousands.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use io::task;
use log::GroupId;
use storage::TableId;

use crate::admin::table_by_id;
use crate::answer::{GroupState, StateResponse, decode_states};
use crate::majority::MajorityPatience;
use crate::node::Core;
use crate::post::Post;
use crate::request::Request;
use crate::{AdminError, ServerId, ShardHandle};

/// How long a leader may take to say how its replicas are.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long another server may take, when one that hangs has led.
const OTHER_PATIENCE: Duration = Duration::from_millis(500);
/// Between two searches for them.
const PAUSE: Duration = Duration::from_millis(100);
/// How often another is asked because the first was not the leader.
const HOPS: usize = 3;
/// One request is about so many shards at most: it is answered in one turn of a log.
const SHARDS_MAX: usize = 4096;

/// The server that leads a shard, and what it knows.
pub(crate) type Led = (ServerId, GroupState);

/// A shard whose leader is looked for.
struct Search<'a> {
    handle: &'a ShardHandle,
    asked: Vec<ServerId>,
    hint: Option<ServerId>,
    led: Option<Led>,
}

impl Search<'_> {
    /// What `server` says, if it says anything.
    fn heard(&mut self, server: ServerId, state: Option<StateResponse>, post: &Post) {
        match state {
            Some(StateResponse::Led(state)) => {
                post.found_leader(self.handle, Some(server));
                self.led = Some((server, state));
            }
            Some(StateResponse::Elsewhere(leader)) => {
                // It leads a group that is sealed. Whoever seals it asks again, and may have asked another until now.
                if leader == Some(server) {
                    post.found_leader(self.handle, leader);
                }
                self.hint = leader;
            }
            None => self.hint = None,
        }
    }
}

impl Core {
    /// How many rows and how many shards a table has, as those say who lead them; waits until somebody leads each,
    /// until `deadline`, and not for long where a majority is missing.
    pub(crate) fn rows_led(
        &self,
        id: TableId,
        deadline: Instant,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(u64, usize), AdminError> {
        let mut patience = MajorityPatience::new(self, id);
        while go_on() && task::now() < deadline && patience.is_left() {
            let catalog = self.catalog();
            let handles: Vec<_> = table_by_id(&catalog, id)?.shards().iter().collect();
            if let Some(led) = self.ask_leaders(&handles).into_iter().collect::<Option<Vec<_>>>() {
                return Ok((led.iter().map(|(_, state)| state.rows).sum(), led.len()));
            }
            task::sleep(PAUSE);
        }
        Err(self.no_majority(id).unwrap_or(AdminError::NotTogether))
    }

    /// Who leads each of the shards; none where nobody says that they do.
    pub(crate) fn ask_leaders(&self, handles: &[&ShardHandle]) -> Vec<Option<Led>> {
        self.ask_leaders_for(handles, PATIENCE)
    }

    /// The same; each server may take `patience` to answer.
    pub(crate) fn ask_leaders_for(&self, handles: &[&ShardHandle], patience: Duration) -> Vec<Option<Led>> {
        let own = self.identity.server;
        let groups: Vec<GroupId> = handles.iter().map(|handle| handle.group()).collect();
        let here = self.states_here(&groups).into_iter().map(|here| match here {
            StateResponse::Led(state) => Some((own, state)),
            StateResponse::Elsewhere(_) => None,
        });
        let mut searches: Vec<Search<'_>> = handles
            .iter()
            .zip(here)
            .map(|(handle, led)| Search { handle, asked: Vec::new(), hint: handle.lead().leader(), led })
            .collect();
        for _ in 0..HOPS {
            if !self.ask_round(&mut searches, patience) {
                break;
            }
        }
        searches.into_iter().map(|search| search.led).collect()
    }

    /// Asks whether another leads these shards, which have no replica here, than the server beside each, which does
    /// not answer. Their handles know it then. Waits a few times `OTHER_PATIENCE` at most.
    pub fn find_other_leaders(&self, shards: &[(&ShardHandle, ServerId)]) {
        let search = |(handle, server)| Search { handle, asked: vec![server], hint: None, led: None };
        let mut searches: Vec<Search<'_>> = shards.iter().copied().map(search).collect();
        for _ in 0..HOPS {
            if !self.ask_round(&mut searches, OTHER_PATIENCE) {
                break;
            }
        }
    }

    /// Asks one more server about each shard of which it is not known who leads, all at the same time, and
    /// each server about all of its shards at once. False if there was nobody to ask.
    fn ask_round(&self, searches: &mut [Search<'_>], patience: Duration) -> bool {
        let Some(wire) = self.post.wire() else { return false };
        let mut places: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
        for (place, search) in searches.iter_mut().enumerate().filter(|(_, search)| search.led.is_none()) {
            let Some(server) = self.next_to_ask(search) else { continue };
            search.asked.push(server);
            places.entry(server).or_default().push(place);
        }
        let (sender, answers) = task::channel();
        for (server, places) in &places {
            for places in places.chunks(SHARDS_MAX) {
                let groups = places.iter().map(|place| searches[*place].handle.group()).collect();
                let (server, places, sender) = (*server, places.to_vec(), sender.clone());
                // Whoever asked waits until every sender is gone.
                let answered = Box::new(move |answer| drop(sender.send((server, places, answer))));
                wire.ask(server, Request::States { groups }.encode(), patience, answered);
            }
        }
        drop(sender);
        while let Ok((server, places, answer)) = answers.recv() {
            let mut states = answer.ok().and_then(decode_states).unwrap_or_default().into_iter();
            places.into_iter().for_each(|place| searches[place].heard(server, states.next(), &self.post));
        }
        !places.is_empty()
    }

    fn next_to_ask(&self, search: &Search<'_>) -> Option<ServerId> {
        let own = self.identity.server;
        let others = search.handle.places();
        let fits = |server: &ServerId| {
            *server != own && !search.asked.contains(server) && self.is_connected(*server)
        };
        search.hint.into_iter().chain(others).find(fits)
    }
}
