//! Bootstrap: how servers that belong to no cluster make one together (docs/formats/link.md, "Bootstrap").
//!
//! The rule is unanimity. A server makes a cluster only if every address of its `--join` was answered by a server
//! that belongs to no cluster and expects exactly the same set of servers, and if it has the smallest id of that set.
//! It waits for servers that it cannot reach, and never makes a cluster alone. So two servers that can reach each other
//! never make two clusters, whatever the network does, provided that each address belongs to one server. An address
//! for which that is not certain (see [`Unresolved`], and addresses at which different servers were found) counts as
//! unanswered: behind it there may be other servers, which would make a cluster without this one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use io::{Nanos, Random};
use uuid::Uuid;

use super::identity::Identity;
use super::output::{Effect, LogLevel, Output};
use crate::ServerId;
use crate::link::address_book::TEXT_BYTES_MAX;
use crate::link::contract::BootstrapPermission;
use crate::link::hello::Hello;

/// How long a candidate's hello is valid. Longer than the longest interval between two dials.
const HELLO_VALIDITY: Duration = Duration::from_secs(10);
/// How long the expected set must have been the same before a cluster is made.
const STABLE_TIME_MIN: Duration = Duration::from_secs(3);
/// How long a server keeps to the founder that it has announced: it expects and becomes no other. Longer than
/// [`HELLO_VALIDITY`], for which other servers rely on the announcement.
const PROMISE_TIME: Duration = Duration::from_secs(30);
/// How long an address counts as ambiguous after a different server has answered there.
const AMBIGUITY_TIME: Duration = Duration::from_secs(30);
/// When the reason for waiting is logged first, and how often after that.
const HINT_DELAY: Duration = Duration::from_secs(15);
const HINT_INTERVAL: Duration = Duration::from_secs(300);

/// Servers that would make a cluster together. The first, which has the smallest id, is the founder.
pub(super) type ExpectedServers = BTreeSet<ServerId>;

/// The state of a server without a cluster.
#[derive(Default)]
pub(super) struct Bootstrap {
    permission: BootstrapPermission,
    /// The addresses of `--join`.
    join: Vec<String>,
    /// By address of `--join`.
    candidates: BTreeMap<String, Candidate>,
    pub(super) expected: Option<ExpectedServers>,
    /// When `expected` changed last.
    expected_since: Nanos,
    /// The founder that was announced to other servers last, and until when the announcement binds this server.
    promised: Option<(ServerId, Nanos)>,
    hint_at: Option<Nanos>,
    /// The cluster is being written to disk.
    is_under_way: bool,
}

/// The servers that this one would make a cluster with, and those that it has found, by address: the part of its hellos
/// that is about the bootstrap.
pub(super) struct Announcement {
    pub(super) expects: Vec<ServerId>,
    pub(super) found: BTreeMap<String, ServerId>,
}

/// A server without a cluster that has answered at one of the addresses.
struct Candidate {
    server: ServerId,
    name: String,
    /// The candidate has answered at this time or later.
    at: Nanos,
    expects: Option<ExpectedServers>,
    /// The servers that it has found, by address.
    found: Option<BTreeMap<String, ServerId>>,
    reached_address: String,
    /// Whether the candidate confirms that the address, as dialed or as reached, belongs to it.
    is_its_own: bool,
    /// Until then the address counts as ambiguous, because a different server has answered there.
    ambiguous_until: Nanos,
}

/// Why it is not known which server an address belongs to.
enum Unresolved<'a> {
    /// No server has answered recently.
    NoAnswer,
    /// Different servers have answered.
    Several,
    /// The server that has answered does not know the address: a load balancer in between may lead other servers to
    /// another one.
    NotItsAddress(&'a Candidate),
}

/// A connection that this server has dialed.
pub(super) struct DialedAddress<'a> {
    /// The address as the operator named it.
    pub(super) address: &'a str,
    /// The address that it was resolved to.
    pub(super) reached_address: &'a str,
    pub(super) at: Nanos,
}

impl Bootstrap {
    pub(super) fn new(join: &[String]) -> Bootstrap {
        Bootstrap { join: join.to_vec(), ..Bootstrap::default() }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Whether this server may make a cluster with other servers that belong to none.
    pub(super) fn is_allowed(&self) -> bool {
        self.permission.is_allowed
    }

    fn server_at(&self, address: &str, own: ServerId, now: Nanos) -> Result<ServerId, Unresolved<'_>> {
        let candidate =
            self.candidates.get(address).filter(|candidate| now.since(candidate.at) < HELLO_VALIDITY);
        match candidate {
            Some(candidate) if now < candidate.ambiguous_until => Err(Unresolved::Several),
            _ if self.permission.own_addresses.contains_key(address) => Ok(own),
            Some(candidate) if candidate.is_its_own => Ok(candidate.server),
            Some(candidate) => Err(Unresolved::NotItsAddress(candidate)),
            None => Err(Unresolved::NoAnswer),
        }
    }

    /// The servers at all addresses of `--join`; `Err` with each address whose server is not known, and the reason.
    fn expected_servers(
        &self,
        own: ServerId,
        now: Nanos,
    ) -> Result<ExpectedServers, Vec<(&str, Unresolved<'_>)>> {
        let (mut expected, mut unresolved) = (ExpectedServers::from([own]), Vec::new());
        for address in &self.join {
            match self.server_at(address, own, now) {
                Ok(server) => drop(expected.insert(server)),
                Err(reason) => unresolved.push((address.as_str(), reason)),
            }
        }
        if unresolved.is_empty() { Ok(expected) } else { Err(unresolved) }
    }

    /// The servers that are known, by address of `--join`. Leaves out loopback addresses such as 127.0.0.1, which are a
    /// different server on each machine.
    fn found_servers(&self, own: ServerId, now: Nanos) -> BTreeMap<String, ServerId> {
        let reached_address = |address: &String| {
            let candidate = self.candidates.get(address).map(|candidate| &candidate.reached_address);
            self.permission.own_addresses.get(address).or(candidate).and_then(|at| at.parse().ok())
        };
        let is_global = |address: &&String| {
            address.len() <= TEXT_BYTES_MAX
                && !reached_address(address)
                    .is_some_and(|at: SocketAddr| at.ip().to_canonical().is_loopback())
        };
        let addresses = self.join.iter().filter(is_global);
        let found = |address: &String| Some((address.clone(), self.server_at(address, own, now).ok()?));
        addresses.filter_map(found).collect()
    }

    /// Whether this server may announce `founder`: no announcement of another one binds it.
    fn may_promise(&self, founder: ServerId, now: Nanos) -> bool {
        self.promised.is_none_or(|(promised, until)| promised == founder || now >= until)
    }

    /// The candidates, one for each address, without this server itself.
    fn other_candidates(&self, own: ServerId) -> impl Iterator<Item = &Candidate> {
        let candidates = self.join.iter().filter_map(|address| self.candidates.get(address));
        candidates.filter(move |candidate| candidate.server != own)
    }

    /// The names of other candidates that do not expect the same set.
    fn disagreeing(&self, expected: &ExpectedServers, own: ServerId) -> Vec<&str> {
        let differs = |candidate: &&Candidate| {
            candidate.expects.as_ref() != Some(expected) || candidate.found.is_none()
        };
        self.other_candidates(own).filter(differs).map(|candidate| candidate.name.as_str()).collect()
    }

    /// The addresses at which this server and the other candidates have found different servers.
    fn conflicting_addresses(&self, own: ServerId, now: Nanos) -> BTreeSet<String> {
        let mut found = self.found_servers(own, now);
        let found_by_others =
            self.other_candidates(own).filter_map(|candidate| candidate.found.as_ref()).flatten();
        let differs = |(address, server): (&String, &ServerId)| {
            let known = *found.entry(address.clone()).or_insert(*server);
            (known != *server).then(|| address.clone())
        };
        found_by_others.filter_map(differs).collect()
    }

    pub(super) fn set_permission(&mut self, permission: BootstrapPermission) {
        self.permission = permission;
        self.permission.is_allowed &= !self.join.is_empty();
    }

    /// Announces the servers that `own` would make a cluster with. The announcement binds it for [`PROMISE_TIME`].
    pub(super) fn announce(&mut self, own: &Identity, now: Nanos) -> Option<Announcement> {
        if own.cluster().is_some() {
            return None;
        }
        let expected = self.expected.clone().filter(|_| self.is_allowed())?;
        let founder = *expected.first()?;
        if !self.may_promise(founder, now) {
            return None;
        }
        self.promised = Some((founder, now.after(PROMISE_TIME)));
        let found = self.found_servers(own.server(), now);
        Some(Announcement { expects: expected.into_iter().collect(), found })
    }

    /// Records the hello of a dialed server that belongs to no cluster. It may be this server itself.
    pub(super) fn record_candidate(&mut self, dialed: &DialedAddress<'_>, hello: &Hello, now: Nanos) {
        let ambiguous_until = match self.candidates.get(dialed.address) {
            Some(before) if before.server != hello.server => now.after(AMBIGUITY_TIME),
            Some(before) => before.ambiguous_until,
            None => Nanos::default(),
        };
        let candidate = Candidate {
            server: hello.server,
            name: hello.name.clone(),
            at: dialed.at,
            expects: hello.expects.as_ref().map(|servers| servers.iter().copied().collect()),
            found: hello.found.clone(),
            reached_address: dialed.reached_address.to_owned(),
            is_its_own: dialed.is_own_address_of(hello),
            ambiguous_until,
        };
        self.candidates.insert(dialed.address.to_owned(), candidate);
    }

    /// Has this server make a cluster if it is the founder and all candidates agree.
    pub(super) fn try_bootstrap(
        &mut self,
        own: &Identity,
        now: Nanos,
        random: &dyn Random,
        output: &mut Output,
    ) {
        if own.cluster().is_some() || !self.is_allowed() || self.is_under_way {
            return;
        }
        let own = own.server();
        // At least two servers: another server with the same `--join` could make a cluster alone, too.
        let expected = self.expected_servers(own, now).ok().filter(|expected| expected.len() > 1);
        if expected != self.expected {
            self.expected = expected;
            self.expected_since = now;
        }
        self.log_hint(own, now, output);
        let Some(expected) = &self.expected else { return };
        let is_settled = now.since(self.expected_since) >= STABLE_TIME_MIN && self.may_promise(own, now);
        let is_founder = is_settled && expected.first() == Some(&own);
        if is_founder
            && self.disagreeing(expected, own).is_empty()
            && self.conflicting_addresses(own, now).is_empty()
        {
            self.is_under_way = true;
            let bytes = [random.next_u64().to_le_bytes(), random.next_u64().to_le_bytes()].concat();
            let cluster = uuid::Builder::from_random_bytes(bytes.try_into().unwrap_or_default()).into_uuid();
            output.add(Effect::Bootstrap(cluster));
        }
    }

    /// The cluster was written to disk, or could not be.
    pub(super) fn finish(
        &mut self,
        result: Result<Uuid, String>,
        own: &mut Identity,
        now: Nanos,
        output: &mut Output,
    ) {
        self.is_under_way = false;
        match result {
            Ok(cluster) => {
                own.set_cluster(cluster, now);
                let others = self.other_candidates(own.server());
                let names: BTreeSet<String> =
                    others.map(|candidate| format!("\"{}\"", candidate.name)).collect();
                let names = Vec::from_iter(names).join(", ");
                output.log(LogLevel::Info, format!("Made cluster {cluster}: to be joined by {names}"));
            }
            Err(why) => output.log(LogLevel::Warning, format!("Cannot make a cluster: {why}")),
        }
    }

    /// Logs at intervals why no cluster is made yet, and how the operator can change that.
    fn log_hint(&mut self, own: ServerId, now: Nanos, output: &mut Output) {
        let due = *self.hint_at.get_or_insert(now.after(HINT_DELAY));
        if now < due || self.candidates.is_empty() && self.permission.own_addresses.is_empty() {
            return;
        }
        let condition = match self.expected_servers(own, now) {
            Err(unresolved) => self.unresolved_hint(&unresolved, own, now),
            Ok(expected) if expected.len() == 1 => {
                "another server is named: --join names only this one itself, and no server makes a cluster with \
                 --join alone"
                    .to_owned()
            }
            Ok(expected) => {
                let disagreeing = self.disagreeing(&expected, own);
                let conflicting = self.conflicting_addresses(own, now);
                if disagreeing.is_empty() && conflicting.is_empty() {
                    return;
                }
                if disagreeing.is_empty() {
                    let addresses = Vec::from_iter(conflicting).join(", ");
                    format!("--join {addresses} is the same server for each of them, which it is not now")
                } else {
                    let names = disagreeing.join("\", \"");
                    format!(
                        "all of them name the same servers with --join; these name others or none: \"{names}\""
                    )
                }
            }
        };
        let text = format!(
            "The servers that answer belong to no cluster. They make one once {condition}. \
             To begin at once, start one of them without --join"
        );
        self.hint_at = Some(now.after(HINT_INTERVAL));
        output.log(LogLevel::Warning, text);
    }

    /// The conditions that `unresolved` addresses have to meet, for the log.
    fn unresolved_hint(&self, unresolved: &[(&str, Unresolved<'_>)], own: ServerId, now: Nanos) -> String {
        let mut conditions = Vec::new();
        let missing: Vec<&str> = unresolved
            .iter()
            .filter(|(_, reason)| matches!(reason, Unresolved::NoAnswer))
            .map(|(address, _)| *address)
            .collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            // If this server has found itself at one of the addresses, then none of the missing ones is its own.
            let has_found_itself =
                self.join.iter().any(|address| self.server_at(address, own, now).is_ok_and(|at| at == own));
            conditions.push(match has_found_itself {
                true => format!("every server of --join has answered; missing: {missing}"),
                false => format!(
                    "every server of --join has answered; missing: {missing} (if that is this server itself, have it \
                     listen there with --bind, or say so with --canonical-address)"
                ),
            });
        }
        for (address, reason) in unresolved {
            match reason {
                Unresolved::NoAnswer => {}
                Unresolved::Several => conditions.push(format!(
                    "--join {address} is one server, and different ones have answered there just now: name each server by a \
                     separate address"
                )),
                Unresolved::NotItsAddress(candidate) => conditions.push(format!(
                    "--join {address} is certain to be one server: \"{}\" has answered, and that is neither an address \
                     that it listens on nor its --canonical-address",
                    candidate.name
                )),
            }
        }
        conditions.join(", and ")
    }
}

impl DialedAddress<'_> {
    /// Whether the server that has sent `hello` confirms that the address belongs to it.
    pub(super) fn is_own_address_of(&self, hello: &Hello) -> bool {
        let is_reached_there =
            !self.reached_address.is_empty() && hello.reached_at.as_deref() == Some(self.reached_address);
        let is_canonical = |at: &&String| *at == self.address || *at == self.reached_address;
        is_reached_there || hello.canonical.iter().any(|at| is_canonical(&at))
    }
}
