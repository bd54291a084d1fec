//! A server whose log does not get on gives up what others can lead: the disk is full, or hangs, or the log has stopped.
//! Such a server lives and answers, but nothing that it leads can be written, and it does not hear who leads instead.
//!
//! It says so to the others, whose groups elect another leader where they have a majority without it. Once enough of those
//! have said that their logs are well, it leads here no more what they can, nor what one of them knows a later term of, nor what
//! no majority says it knows none of; until its log gets on and a majority has confirmed that it leads still. Decision 0037.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io::Nanos;
use log::{GroupId, Stall, StallCause, Term};

use crate::answer;
use crate::node::Core;
use crate::request::Request;
use crate::stalls::Look;
use crate::{RpcError, ServerId};

/// How long the others may take to hear of it.
const PATIENCE: Duration = Duration::from_secs(1);

impl Core {
    /// Looks whether the log of this node gets on. To be called about twice a second; does not wait.
    pub fn mind_log(&self) {
        let now = self.clock().now();
        let look = self.stalls.look(self.log.stall(), now);
        match look {
            Look::Well => {}
            Look::Stalled { stall, .. } => {
                self.post.resign(&self.led_without_me(now));
                self.tell_others(Some(stall.cause));
            }
            Look::Over { is_news } => {
                if is_news {
                    self.post.resume();
                    // Those who sleep have heard nothing of others who lead now.
                    self.log.peers_reachable(self.post.peers());
                }
                self.tell_others(None);
            }
        }
        self.have_offices_confirmed();
        // At the end: the log file may be on that disk.
        self.mind_sync(now);
        match look {
            Look::Stalled { stall, is_news: true } => tracing::error!(
                "The log does not get on: {}. What other servers hold, too, is led by those.",
                in_words(stall.cause)
            ),
            Look::Over { is_news: true } => tracing::info!("The log gets on again."),
            _ => {}
        }
    }

    /// Looks whether an fsync hangs by itself. Others have what the log appends meanwhile, so nothing is given up.
    fn mind_sync(&self, now: Nanos) {
        match self.stalls.look_at_sync(self.log.sync_since(), now) {
            (None, Some(_)) => tracing::error!(
                "The disk does not finish what it was told to make durable. Hard writes that need this disk wait."
            ),
            (Some(_), None) => tracing::info!("The disk has made durable what it was told to."),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Tells the others how the own log is. They say how theirs are, and the newest terms that they know of what is led here
    /// still.
    fn tell_others(&self, cause: Option<StallCause>) {
        let Some(wire) = self.post.wire() else { return };
        for server in self.sees() {
            let (stalls, post) = (Arc::clone(&self.stalls), Arc::clone(&self.post));
            let answered = move |answer: Result<Bytes, RpcError>| {
                if let Some(theirs) = answer.ok().and_then(answer::decode_cause) {
                    let give_up = |well: &_| post.resign(&post.with_majority_on(well));
                    stalls.answered(server, theirs, give_up);
                }
            };
            wire.ask(server, Request::Stalled { cause }.encode(), PATIENCE, Box::new(answered));
            let led = self.post.led_with(server);
            if cause.is_none() || led.is_empty() {
                continue;
            }
            let (stalls, post, clock) =
                (Arc::clone(&self.stalls), Arc::clone(&self.post), Arc::clone(self.clock()));
            let request = Request::Terms { groups: led.clone() }.encode();
            let answered = move |answer: Result<Bytes, RpcError>| {
                let there = answer.ok().and_then(|bytes| answer::decode_terms(&bytes)).unwrap_or_default();
                let Verdict { confirmed, lost } = compare(&led, &there, &post.terms(&led));
                stalls.confirmed(server, confirmed, clock.now(), || post.resign(&lost));
            };
            wire.ask(server, request, PATIENCE, Box::new(answered));
        }
    }

    /// What the log says that it leads is led here again only when a majority has said so since the log gets on: another
    /// may have been elected, of whom it has not heard.
    fn have_offices_confirmed(&self) {
        for (group, office) in self.post.unconfirmed() {
            let post = Arc::clone(&self.post);
            let confirmed = move |answer: Result<log::Lsn, log::ProposeError>| {
                if answer.is_ok() {
                    post.confirm(group, office);
                }
            };
            self.log.read_index(group, Box::new(confirmed));
        }
    }

    /// The log of `server` does not get on, or gets on again. Says how the own one is; does not wait.
    pub(crate) fn heard_of_stall(&self, server: ServerId, cause: Option<StallCause>) -> Bytes {
        let is_news = self.stalls.heard(server, cause);
        let peers = self.post.peers_on(server);
        match cause {
            // Those who sleep under it would not notice.
            Some(_) => self.log.peers_unreachable(peers),
            None if is_news => self.log.peers_reachable(peers),
            None => {}
        }
        if is_news {
            self.post.news().tell();
        }
        answer::encode_cause(self.stalls.doubt(self.log.stall(), self.clock().now()))
    }

    /// What keeps the log of this server from getting on.
    #[must_use]
    pub fn own_stall(&self) -> Option<Stall> {
        self.stalls.own()
    }

    /// Whether the log of this server takes no turn: whoever waits for one waits for long, or for ever.
    pub(crate) fn takes_no_turn(&self) -> bool {
        self.own_stall().is_some_and(|stall| stall.cause != StallCause::Full)
    }

    /// Since when an fsync of this server has not returned, while its log goes on.
    #[must_use]
    pub fn hung_sync(&self) -> Option<Nanos> {
        self.stalls.sync()
    }

    /// Whether `server` has said lately that its log does not get on.
    #[must_use]
    pub fn is_stalled(&self, server: ServerId) -> bool {
        self.stalls.of(server)
    }

    /// Whether the log of `server`, which may be this one, does not get on as far as is known here.
    pub(crate) fn is_hindered(&self, server: ServerId) -> bool {
        self.is_stalled(server) || (server == self.identity.server && self.own_stall().is_some())
    }

    /// The groups that a majority of others can lead, as those say, and those that no majority says it knows no later term
    /// of: whoever answers nothing, or knows nothing, may have helped to elect another.
    fn led_without_me(&self, now: Nanos) -> BTreeSet<GroupId> {
        let led = self.post.with_majority_on(&self.stalls.well());
        let Some(confirmed) = self.stalls.confirmed_lately(now) else { return led };
        let own = self.identity.server;
        let is_for = |group, server| server == own || confirmed.contains(&(group, server));
        &led | &self.post.without_majority_for(is_for)
    }
}

/// What a server's answer means for groups that are led here.
#[derive(Default)]
struct Verdict {
    /// It has a replica that knows no later term.
    confirmed: Vec<GroupId>,
    /// It knows a later term: another was elected, or tried to be.
    lost: BTreeSet<GroupId>,
}

/// Compares the newest terms of groups that are known there, as far as the answer goes, with those that are known here.
fn compare(groups: &[GroupId], there: &[Term], here: &[Term]) -> Verdict {
    let mut verdict = Verdict::default();
    for ((group, there), here) in groups.iter().zip(there).zip(here) {
        match (there.0, here.0) {
            // Nothing is known.
            (0, _) | (_, 0) => {}
            (there, here) if there > here => drop(verdict.lost.insert(*group)),
            _ => verdict.confirmed.push(*group),
        }
    }
    verdict
}

/// Why a log does not get on, for people.
fn in_words(cause: StallCause) -> &'static str {
    match cause {
        StallCause::Stopped => "it has stopped",
        StallCause::Full => "the disk is full",
        StallCause::Slow => "the disk, or the storage engine, does not answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_of_a_group_confirms_nothing() {
        let groups: Vec<GroupId> = (1..=5).map(GroupId).collect();
        let compare = |there: &[u64], here: &[u64]| {
            let terms = |terms: &[u64]| terms.iter().copied().map(Term).collect::<Vec<_>>();
            let Verdict { confirmed, lost } = super::compare(&groups, &terms(there), &terms(here));
            let numbers = |groups: Vec<GroupId>| groups.iter().map(|group| group.0).collect::<Vec<_>>();
            (numbers(confirmed), numbers(lost.into_iter().collect()))
        };
        assert_eq!(compare(&[4, 5, 6, 0, 7], &[5; 5]), (vec![1, 2], vec![3, 5]));
        assert_eq!(compare(&[5, 6], &[5; 5]), (vec![1], vec![2]), "an answer that ends early");
        assert_eq!(compare(&[], &[5; 5]), (vec![], vec![]), "no answer");
        assert_eq!(compare(&[6; 5], &[0; 5]), (vec![], vec![]), "none of them is here any more");
    }
}
