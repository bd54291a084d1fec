//! Asks who leads shards and how their replicas are, many shards at a time: the state of a thousand
//! tables is a few round trips, not thousands.

use std::time::Duration;

use io::task;

use crate::node::Core;
use crate::question::{GroupState, Question, StateAnswer};
use crate::{ServerId, ShardHandle};

/// How long a leader may take to say how its replicas are.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often another is asked because the first was not the leader.
const HOPS: usize = 3;
/// Questions under way at once. Each keeps a thread of the server that answers.
const AT_ONCE: usize = 32;

/// The server that leads a shard, and what it knows.
pub(crate) type Led = (ServerId, GroupState);

/// A shard whose leader is looked for.
struct Search<'a> {
    handle: &'a ShardHandle,
    asked: Vec<ServerId>,
    hint: Option<ServerId>,
    led: Option<Led>,
}

impl Core {
    /// Who leads each of the shards; none where nobody says that they do.
    pub(crate) fn ask_leaders(&self, handles: &[&ShardHandle]) -> Vec<Option<Led>> {
        self.ask_leaders_for(handles, PATIENCE)
    }

    /// The same; each server may take `patience` to answer.
    pub(crate) fn ask_leaders_for(&self, handles: &[&ShardHandle], patience: Duration) -> Vec<Option<Led>> {
        let own = self.identity.server;
        let search = |handle: &&'_ ShardHandle| match self.state_here(handle.group()) {
            StateAnswer::Led(state) => Some((own, state)),
            StateAnswer::Elsewhere(_) => None,
        };
        let mut searches: Vec<Search<'_>> = handles
            .iter()
            .map(|handle| Search {
                handle,
                asked: Vec::new(),
                hint: handle.lead().leader(),
                led: search(handle),
            })
            .collect();
        for _ in 0..HOPS {
            let mut open: Vec<&mut Search<'_>> =
                searches.iter_mut().filter(|one| one.led.is_none()).collect();
            open.chunks_mut(AT_ONCE).for_each(|some| self.ask_round(some, patience));
        }
        searches.into_iter().map(|search| search.led).collect()
    }

    /// Asks one more server about each of these shards, all at the same time.
    fn ask_round(&self, searches: &mut [&mut Search<'_>], patience: Duration) {
        let Some(wire) = self.post.wire() else { return };
        let (sender, answers) = task::channel();
        for (place, search) in searches.iter_mut().enumerate() {
            let Some(server) = self.next_to_ask(search) else { continue };
            search.asked.push(server);
            let question = Question::State { group: search.handle.group() }.encode();
            let sender = sender.clone();
            // Whoever asked waits until every sender is gone.
            let answered = Box::new(move |answer| drop(sender.send((place, server, answer))));
            wire.ask(server, question, patience, answered);
        }
        drop(sender);
        while let Ok((place, server, answer)) = answers.recv() {
            let search = &mut *searches[place];
            match answer.ok().and_then(StateAnswer::decode) {
                Some(StateAnswer::Led(state)) => {
                    if search.handle.near().is_none() {
                        search.handle.lead().set(Some(server));
                    }
                    search.led = Some((server, state));
                }
                Some(StateAnswer::Elsewhere(leader)) => search.hint = leader,
                None => search.hint = None,
            }
        }
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
