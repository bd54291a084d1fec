//! Servers whose log does not get on: the disk is full, or hangs. Such a server lives and answers, but nothing that it
//! leads can be written, and it does not hear who leads instead.
//!
//! It says so to the others, whose groups elect another leader where they have a majority without it, and gives up
//! here what another can lead, until its log gets on. Decision 0037.

use std::collections::BTreeSet;
use std::time::Duration;

use io::Nanos;
use log::{GroupId, Stall, StallCause};

use crate::ServerId;
use crate::node::Core;
use crate::question::Question;
use crate::stalls::Look;

/// A disk that is full for so long is not full for a moment only.
const FULL: Duration = Duration::from_secs(1);
/// A turn of the log, or an fsync, that takes so long may never end.
const SLOW: Duration = Duration::from_secs(4);
/// How long the others may take to hear of it.
const PATIENCE: Duration = Duration::from_secs(1);

impl Core {
    /// Looks whether the log of this node gets on. To be called about twice a second; does not wait.
    pub fn mind_log(&self) {
        let now = self.clock().now();
        self.mind_sync(now);
        let is_long = |stall: &Stall| {
            let patience = match stall.cause {
                StallCause::Stopped => Duration::ZERO,
                StallCause::Full => FULL,
                StallCause::Slow => SLOW,
            };
            now.since(stall.since) >= patience
        };
        let Look { before, stall, is_told } = self.stalls.look(self.log.stall().filter(is_long));
        if !is_told {
            return;
        }
        match (before, stall) {
            (_, Some(_)) => self.post.resign(&self.led_without_me()),
            (Some(_), None) => self.post.resume(),
            (None, None) => {}
        }
        self.tell_others(stall.map(|stall| stall.cause));
        // At the end: the log file may be on that disk.
        match (before, stall) {
            (None, Some(stall)) => tracing::error!(
                "The log does not get on: {}. What other servers hold, too, is led by those.",
                in_words(stall.cause)
            ),
            (Some(_), None) => tracing::info!("The log gets on again."),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Looks whether an fsync hangs by itself. Others have what the log appends meanwhile, so nothing is given up.
    fn mind_sync(&self, now: Nanos) {
        let hangs = self.log.sync_since().filter(|since| now.since(*since) >= SLOW);
        match (self.stalls.look_at_sync(hangs), hangs) {
            (None, Some(_)) => tracing::error!(
                "The disk does not finish what it was told to make durable. Hard writes that need this disk wait."
            ),
            (Some(_), None) => tracing::info!("The disk has made durable what it was told to."),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    fn tell_others(&self, cause: Option<StallCause>) {
        let Some(wire) = self.post.wire() else { return };
        let question = Question::Stalled { cause }.encode();
        for server in self.sees() {
            wire.ask(server, question.clone(), PATIENCE, Box::new(|_| ()));
        }
    }

    /// The log of `server` does not get on, or gets on again. Does not wait.
    pub(crate) fn heard_of_stall(&self, server: ServerId, cause: Option<StallCause>) {
        self.stalls.heard(server, cause);
        let peers = self.post.peers_on(server);
        match cause {
            // Those who sleep under it would not notice.
            Some(_) => self.log.peers_silent(peers),
            None => self.log.peers_back(peers),
        }
        self.post.news().tell();
    }

    /// Why the log of this server does not get on, and for how long already.
    #[must_use]
    pub fn own_stall(&self) -> Option<(&'static str, Duration)> {
        let stall = self.stalls.own()?;
        Some((in_words(stall.cause), self.clock().now().since(stall.since)))
    }

    /// For how long already an fsync of this server has not returned, while its log goes on.
    #[must_use]
    pub fn hung_sync(&self) -> Option<Duration> {
        Some(self.clock().now().since(self.stalls.sync()?))
    }

    /// Whether `server` has said lately that its log does not get on.
    #[must_use]
    pub fn is_stalled(&self, server: ServerId) -> bool {
        self.stalls.of(server)
    }

    /// The groups with a majority of voters that can lead them without this server.
    fn led_without_me(&self) -> BTreeSet<GroupId> {
        let others = self.sees().into_iter().filter(|server| !self.is_stalled(*server));
        self.post.with_majority_on(&others.collect())
    }
}

/// Why a log does not get on, for people.
fn in_words(cause: StallCause) -> &'static str {
    match cause {
        StallCause::Stopped => "the log has stopped",
        StallCause::Full => "the disk is full",
        StallCause::Slow => "the disk, or the storage engine, does not answer",
    }
}
