//! How servers that belong to no cluster make one together (docs/formats/link.md, "Founding").
//!
//! The rule is unanimity: a server founds only when every place that its operator named has on_response with
//! a server that belongs to no cluster and expects exactly the same servers, itself the one with the smallest
//! id. Whoever cannot be reached is waited for, and nobody founds alone. So two servers of which each could reach
//! the other never found two clusters, whatever the network does, if each place is one server. Where that is not
//! certain ([`Doubt`], and whoever finds another server than others do at a place of the same name) the place
//! counts as one where nobody is: behind it there may be others, who would do the same without this one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use io::Nanos;
use uuid::Uuid;

use super::{Effect, Machine, Note};
use crate::ServerId;
use crate::link::book::TEXT_BYTES_MAX;
use crate::link::contract::MayFound;
use crate::link::hello::Hello;

/// For how long it counts that a server has on_response. Longer than the longest pause between two dials.
const FRESH: Duration = Duration::from_secs(10);
/// For how long it must have been the same servers.
const SETTLED: Duration = Duration::from_secs(3);
/// Who has told others whom it expects to found, neither expects nor becomes another founder for so long:
/// longer than anybody counts on what it said.
const PROMISED: Duration = Duration::from_secs(30);
/// After another server has on_response at a place, it counts as one of several servers for so long.
const SEVERAL: Duration = Duration::from_secs(30);
/// When it is said what is waited for, the first time and from then on.
const HINT_FIRST: Duration = Duration::from_secs(15);
const HINT_AGAIN: Duration = Duration::from_secs(300);

/// Servers that would make a cluster: their ids, ascending.
pub(super) type Founders = BTreeSet<ServerId>;

/// What a server without a cluster knows of others like it.
#[derive(Default)]
pub(super) struct Founding {
    may_found: MayFound,
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

/// A server without a cluster that has on_response at one of the places.
struct Met {
    server: ServerId,
    name: String,
    /// It has on_response at this moment or later.
    at: Nanos,
    expects: Option<Founders>,
    /// Whom it has found at places.
    found: Option<BTreeMap<String, ServerId>>,
    /// The address at which it was reached.
    reached: String,
    /// Whether that, or the name of the place, is an address of its own as it says.
    is_its_own: bool,
    /// Until when the place counts as one of several servers, for another one has on_response there.
    several_until: Nanos,
}

/// Why it is not known which server a place is.
enum Doubt<'a> {
    /// Nobody was there a short time ago.
    Nobody,
    /// Different servers have on_response.
    Several,
    /// The server that has on_response knows nothing of that address: whatever stands between may lead others elsewhere.
    Elsewhere(&'a Met),
}

/// Somebody who has been dialed, and when, and where.
pub(super) struct Dialed<'a> {
    /// As the operator named it.
    pub(super) place: &'a str,
    /// The address there that was reached.
    pub(super) reached: &'a str,
    pub(super) at: Nanos,
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
        self.may_found.is_allowed
    }

    /// Which server a place is, this one being `own`.
    fn who_is_at(&self, place: &str, own: ServerId, now: Nanos) -> Result<ServerId, Doubt<'_>> {
        let met = self.met.get(place).filter(|met| now.since(met.at) < FRESH);
        match met {
            Some(met) if now < met.several_until => Err(Doubt::Several),
            _ if self.may_found.own.contains_key(place) => Ok(own),
            Some(met) if met.is_its_own => Ok(met.server),
            Some(met) => Err(Doubt::Elsewhere(met)),
            None => Err(Doubt::Nobody),
        }
    }

    /// The servers at all of the places; `Err` with the places of which that is not known, and why.
    fn everybody(&self, own: ServerId, now: Nanos) -> Result<Founders, Vec<(&str, Doubt<'_>)>> {
        let (mut founders, mut doubts) = (Founders::from([own]), Vec::new());
        for place in &self.join {
            match self.who_is_at(place, own, now) {
                Ok(server) => drop(founders.insert(server)),
                Err(doubt) => doubts.push((place.as_str(), doubt)),
            }
        }
        if doubts.is_empty() { Ok(founders) } else { Err(doubts) }
    }

    /// Which server each of the places is, as far as that is known and the place is no other to others: an address of
    /// the machine itself, such as 127.0.0.1, is another server to each.
    fn found(&self, own: ServerId, now: Nanos) -> BTreeMap<String, ServerId> {
        let reached = |place: &String| {
            let met = self.met.get(place).map(|met| &met.reached);
            self.may_found.own.get(place).or(met).and_then(|at| at.parse().ok())
        };
        let is_for_all = |place: &&String| {
            place.len() <= TEXT_BYTES_MAX
                && !reached(place).is_some_and(|at: SocketAddr| at.ip().to_canonical().is_loopback())
        };
        let places = self.join.iter().filter(is_for_all);
        places.filter_map(|place| Some((place.clone(), self.who_is_at(place, own, now).ok()?))).collect()
    }

    /// Whether nobody counts on another founder.
    fn is_free_for(&self, founder: ServerId, now: Nanos) -> bool {
        self.promised.is_none_or(|(promised, until)| promised == founder || now >= until)
    }

    /// Those who have on_response, each at one of the places, but for the server itself.
    fn others(&self, own: ServerId) -> impl Iterator<Item = &Met> {
        let met = self.join.iter().filter_map(|place| self.met.get(place));
        met.filter(move |met| met.server != own)
    }

    /// Others of those expected that expect somebody else, or nobody, by name.
    fn at_odds(&self, expected: &Founders, own: ServerId) -> Vec<&str> {
        let differs = |met: &&Met| met.expects.as_ref() != Some(expected) || met.found.is_none();
        self.others(own).filter(differs).map(|met| met.name.as_str()).collect()
    }

    /// Places at which those who would make a cluster have found different servers.
    fn contradictions(&self, own: ServerId, now: Nanos) -> BTreeSet<String> {
        let mut found = self.found(own, now);
        let theirs = self.others(own).filter_map(|met| met.found.as_ref()).flatten();
        let differs = |(place, server): (&String, &ServerId)| {
            let known = *found.entry(place.clone()).or_insert(*server);
            (known != *server).then(|| place.clone())
        };
        theirs.filter_map(differs).collect()
    }
}

impl Machine {
    /// Whether this node may make a cluster with others like it, and where it is itself.
    pub(super) fn set_may_found(&mut self, may_found: MayFound) {
        self.founding.may_found = may_found;
        self.founding.may_found.is_allowed &= !self.founding.join.is_empty();
        self.tick_by(self.now);
    }

    /// The servers that this one says it would make a cluster with. It keeps to that for a while.
    pub(super) fn expects(&mut self) -> Option<Founders> {
        if self.me.cluster.is_some() {
            return None;
        }
        let expected = self.founding.expected.clone().filter(|_| self.founding.is_wanted())?;
        let founder = *expected.first()?;
        if !self.founding.is_free_for(founder, self.now) {
            return None;
        }
        self.founding.promised = Some((founder, self.now.after(PROMISED)));
        Some(expected)
    }

    /// Whom this node has found at places, as those are told who are told whom it expects.
    pub(super) fn found(&self) -> BTreeMap<String, ServerId> {
        self.founding.found(self.me.server, self.now)
    }

    /// Who was dialed belongs to no cluster either, or is this node itself.
    pub(super) fn met_newcomer(&mut self, dialed: &Dialed<'_>, hello: &Hello) {
        let before = self.founding.met.get(dialed.place);
        let several_until = match before {
            Some(before) if before.server != hello.server => self.now.after(SEVERAL),
            Some(before) => before.several_until,
            None => Nanos::default(),
        };
        let met = Met {
            server: hello.server,
            name: hello.name.clone(),
            at: dialed.at,
            expects: hello.expects.as_ref().map(|servers| servers.iter().copied().collect()),
            found: hello.found.clone(),
            reached: dialed.reached.to_owned(),
            is_its_own: dialed.is_own_to(hello),
            several_until,
        };
        self.founding.met.insert(dialed.place.to_owned(), met);
    }

    /// Looks whether it is time to make a cluster.
    pub(super) fn look_for_founders(&mut self) {
        let (own, now) = (self.me.server, self.now);
        if self.me.cluster.is_some() || !self.founding.is_wanted() || self.founding.is_under_way {
            return;
        }
        // Nobody makes a cluster alone: whoever else was told the same may do so, too.
        let expected = self.founding.everybody(own, now).ok().filter(|founders| founders.len() > 1);
        if expected != self.founding.expected {
            self.founding.expected = expected;
            self.founding.since = now;
        }
        self.hint();
        let founding = &self.founding;
        let Some(expected) = &founding.expected else { return };
        let is_settled = now.since(founding.since) >= SETTLED && founding.is_free_for(own, now);
        let is_founder = is_settled && expected.first() == Some(&own);
        if is_founder
            && founding.at_odds(expected, own).is_empty()
            && founding.contradictions(own, now).is_empty()
        {
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
                self.member_since = self.now;
                let names: BTreeSet<String> =
                    self.founding.others(self.me.server).map(|met| format!("\"{}\"", met.name)).collect();
                let names = Vec::from_iter(names).join(", ");
                self.note(Note::Info, format!("Made cluster {cluster}: to be joined by {names}"));
            }
            Err(why) => self.note(Note::Warning, format!("Cannot make a cluster: {why}")),
        }
    }

    /// Says now and then what is waited for, and what to do if that is in vain.
    fn hint(&mut self) {
        let now = self.now;
        let due = *self.founding.hint_at.get_or_insert(now.after(HINT_FIRST));
        let founding = &self.founding;
        if now < due || founding.met.is_empty() && founding.may_found.own.is_empty() {
            return;
        }
        let own = self.me.server;
        let waits_for = match founding.everybody(own, now) {
            Err(doubts) => founding.answer_wanted(&doubts, own, now),
            Ok(expected) if expected.len() == 1 => {
                "another server is named: --join names only this one itself, and no server makes a cluster with \
                 --join alone"
                    .to_owned()
            }
            Ok(expected) => {
                let (names, places) = (founding.at_odds(&expected, own), founding.contradictions(own, now));
                if names.is_empty() && places.is_empty() {
                    return;
                }
                let places = Vec::from_iter(places).join(", ");
                if names.is_empty() {
                    format!("--join {places} is the same server to each of them, which it is not")
                } else {
                    format!(
                        "all of them name the same servers with --join; not so: \"{}\"",
                        names.join("\", \"")
                    )
                }
            }
        };
        let text = format!(
            "The servers that answer belong to no cluster. They make one once {waits_for}. \
             To begin at once, start one of them without --join"
        );
        self.founding.hint_at = Some(now.after(HINT_AGAIN));
        self.note(Note::Warning, text);
    }
}

impl Founding {
    /// What is to be on_response, or to be changed.
    fn answer_wanted(&self, doubts: &[(&str, Doubt<'_>)], own: ServerId, now: Nanos) -> String {
        let mut wanted = Vec::new();
        let missing: Vec<&str> = doubts
            .iter()
            .filter(|(_, doubt)| matches!(doubt, Doubt::Nobody))
            .map(|(place, _)| *place)
            .collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            // A server that has found itself is none of those that it misses.
            let is_found =
                self.join.iter().any(|place| self.who_is_at(place, own, now).is_ok_and(|at| at == own));
            wanted.push(match is_found {
                true => format!("every server of --join has on_response; missing: {missing}"),
                false => format!(
                    "every server of --join has on_response; missing: {missing} (if that is this server itself, have it \
                     listen there with --bind, or say so with --canonical-address)"
                ),
            });
        }
        for (place, doubt) in doubts {
            match doubt {
                Doubt::Nobody => {}
                Doubt::Several => wanted.push(format!(
                    "--join {place} is one server, and different ones have on_response there just now: name each by an address \
                     of its own"
                )),
                Doubt::Elsewhere(met) => wanted.push(format!(
                    "--join {place} is certain to be one server: \"{}\" has on_response, and that is neither an address \
                     that it listens on nor its --canonical-address",
                    met.name
                )),
            }
        }
        wanted.join(", and ")
    }
}

impl Dialed<'_> {
    /// Whether who has said `hello` was reached at an address of its own, as it says.
    pub(super) fn is_own_to(&self, hello: &Hello) -> bool {
        let is_reached_there = !self.reached.is_empty() && hello.reached_at.as_deref() == Some(self.reached);
        let is_canonical = |at: &&String| *at == self.place || *at == self.reached;
        is_reached_there || hello.canonical.iter().any(|at| is_canonical(&at))
    }
}
