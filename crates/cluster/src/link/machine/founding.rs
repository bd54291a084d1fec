//! How servers that belong to no cluster make one together (docs/formats/link.md, "Founding").
//!
//! The rule is unanimity: a server founds only when every place that its operator named has answered with
//! a server that belongs to no cluster and expects exactly the same servers, itself the one with the smallest
//! id. Whoever cannot be reached is waited for. So two servers of which each could reach the other never
//! found two clusters, whatever the network does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use io::Nanos;
use uuid::Uuid;

use super::{Effect, Machine, Note};
use crate::ServerId;
use crate::link::dialer::Dialer;
use crate::link::hello::Hello;

/// For how long it counts that a server has answered. Longer than the longest pause between two dials.
const FRESH: Duration = Duration::from_secs(10);
/// For how long it must have been the same servers.
const SETTLED: Duration = Duration::from_secs(3);
/// Who has told others whom it expects to found, neither expects nor becomes another founder for so long:
/// longer than anybody counts on what it said.
const PROMISED: Duration = Duration::from_secs(30);
/// When it is said what is waited for, the first time and from then on.
const HINT_FIRST: Duration = Duration::from_secs(15);
const HINT_AGAIN: Duration = Duration::from_secs(300);

/// Servers that would make a cluster: their ids, ascending.
pub(super) type Founders = BTreeSet<ServerId>;

/// What a server without a cluster knows of others like it.
#[derive(Default)]
pub(super) struct Founding {
    may_found: bool,
    /// The places that the operator named.
    join: Vec<String>,
    met: BTreeMap<String, Met>,
    pub(super) expected: Option<Founders>,
    /// Since when it is these that are expected.
    since: Nanos,
    /// The founder that others were told of last, and how long that holds.
    promised: Option<(ServerId, Nanos)>,
    hint_at: Option<Nanos>,
    /// The cluster is being written down.
    is_under_way: bool,
}

/// A server without a cluster that has answered at one of the places.
struct Met {
    server: ServerId,
    name: String,
    /// It has answered at this moment or later.
    at: Nanos,
    expects: Option<Founders>,
}

impl Founding {
    pub(super) fn new(join: &[String]) -> Founding {
        Founding { join: join.to_vec(), ..Founding::default() }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Whether this server would make a cluster with others like it.
    pub(super) fn is_wanted(&self) -> bool {
        self.may_found
    }

    /// Who was at each of the places a short time ago; `Err` with the places where nobody was.
    fn everybody(&self, own: ServerId, dialer: &Dialer, now: Nanos) -> Result<Founders, Vec<&str>> {
        let at = |place: &String| match self.met.get(place) {
            _ if dialer.is_own(place) => Some(own),
            Some(met) if now.since(met.at) < FRESH => Some(met.server),
            _ => None,
        };
        let missing: Vec<&str> =
            self.join.iter().filter(|place| at(place).is_none()).map(String::as_str).collect();
        if missing.is_empty() {
            Ok(self.join.iter().filter_map(at).chain([own]).collect())
        } else {
            Err(missing)
        }
    }

    /// Whether nobody counts on another founder.
    fn is_free_for(&self, founder: ServerId, now: Nanos) -> bool {
        self.promised.is_none_or(|(promised, until)| promised == founder || now >= until)
    }

    /// Others of those expected that expect somebody else, or nobody, by name.
    fn at_odds(&self, expected: &Founders) -> Vec<&str> {
        let places = self.join.iter().filter_map(|place| self.met.get(place));
        places.filter(|met| met.expects.as_ref() != Some(expected)).map(|met| met.name.as_str()).collect()
    }
}

impl Machine {
    /// Whether names of `--join` mean one server each, so that this one may make a cluster with those there.
    pub(super) fn set_may_found(&mut self, may_found: bool) {
        self.founding.may_found = may_found && !self.founding.join.is_empty();
        self.tick_by(self.now);
    }

    /// The servers that this one says it would make a cluster with. It keeps to that for a while.
    pub(super) fn expects(&mut self) -> Option<Founders> {
        if self.me.cluster.is_some() {
            return None;
        }
        let expected = self.founding.expected.clone().filter(|_| self.founding.may_found)?;
        let founder = *expected.first()?;
        if !self.founding.is_free_for(founder, self.now) {
            return None;
        }
        self.founding.promised = Some((founder, self.now.after(PROMISED)));
        Some(expected)
    }

    /// Who was dialed at `place` belongs to no cluster either. It has said so after `asked`.
    pub(super) fn met_newcomer(&mut self, place: &str, hello: &Hello, asked: Nanos) {
        let expects = hello.expects.as_ref().map(|servers| servers.iter().copied().collect());
        let met = Met { server: hello.server, name: hello.name.clone(), at: asked, expects };
        self.founding.met.insert(place.to_owned(), met);
    }

    /// Looks whether it is time to make a cluster.
    pub(super) fn look_for_founders(&mut self) {
        let (own, now) = (self.me.server, self.now);
        if self.me.cluster.is_some() || !self.founding.may_found || self.founding.is_under_way {
            return;
        }
        let expected = self.founding.everybody(own, &self.dialer, now).ok();
        if expected != self.founding.expected {
            self.founding.expected = expected;
            self.founding.since = now;
        }
        self.hint();
        let founding = &self.founding;
        let Some(expected) = &founding.expected else { return };
        let is_settled = now.since(founding.since) >= SETTLED && founding.is_free_for(own, now);
        if is_settled && expected.first() == Some(&own) && founding.at_odds(expected).is_empty() {
            self.founding.is_under_way = true;
            let bytes = [self.random.next_u64().to_le_bytes(), self.random.next_u64().to_le_bytes()].concat();
            let cluster = uuid::Builder::from_random_bytes(bytes.try_into().unwrap_or_default()).into_uuid();
            self.effects.push(Effect::Found(cluster));
        }
    }

    /// The cluster is on disk, or could not be written.
    pub(super) fn founded(&mut self, result: Result<Uuid, String>) {
        self.founding.is_under_way = false;
        match result {
            Ok(cluster) => {
                self.me.cluster = Some(cluster);
                let own = &self.me.server;
                let others = self.founding.met.values().filter(|met| met.server != *own);
                let names: BTreeSet<String> = others.map(|met| format!("\"{}\"", met.name)).collect();
                let with = match names.is_empty() {
                    true => "--join names nobody else".to_owned(),
                    false => format!("to be joined by {}", Vec::from_iter(names).join(", ")),
                };
                self.note(Note::Info, format!("Made cluster {cluster}: {with}"));
            }
            Err(why) => self.note(Note::Warning, format!("Cannot make a cluster: {why}")),
        }
    }

    /// Says now and then what is waited for, and what to do if that is in vain.
    fn hint(&mut self) {
        let now = self.now;
        let due = *self.founding.hint_at.get_or_insert(now.after(HINT_FIRST));
        let founding = &self.founding;
        if now < due || founding.met.is_empty() {
            return;
        }
        let waits_for = match founding.everybody(self.me.server, &self.dialer, now) {
            Err(missing) => format!("every server of --join has answered; missing: {}", missing.join(", ")),
            Ok(expected) => match founding.at_odds(&expected) {
                names if names.is_empty() => return,
                names => format!(
                    "all of them name the same servers with --join; not so: \"{}\"",
                    names.join("\", \"")
                ),
            },
        };
        let text = format!(
            "The servers that answer belong to no cluster. They make one once {waits_for}. \
             To begin at once, start one of them without --join"
        );
        self.founding.hint_at = Some(now.after(HINT_AGAIN));
        self.note(Note::Warning, text);
    }
}
