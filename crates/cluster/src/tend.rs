//! What the leader of a group does so that its members become those of the catalog: new replicas
//! learn, then vote, then old ones go; and leadership goes to where the catalog wants it.
//!
//! One step at a time, again and again, from what is there: an interrupted change goes on wherever the
//! next leader is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::task;
use log::{GroupId, GroupStatus, MemberChange, Role};
use shard::{SealState, Shard};
use storage::TableId;

use crate::added::AddedSince;
use crate::answer::decode_word;
use crate::answering::{Answers, WaitedFor};
use crate::catalog_row::CatalogRow;
use crate::node::{CATALOG_GROUP, Core};
use crate::request::Request;
use crate::sealing::put_next_epoch;
use crate::step::{Step, Wanted, next_step};
use crate::words;
use crate::{AdminError, Catalog, ReplicaConfig, ServerConfig, ServerId, ShardConfig, TableConfig};

/// How long one step may take before it is tried again.
const STEP: Duration = Duration::from_secs(5);
/// A group that was as it should be is looked at again after this long.
const AGAIN: Duration = Duration::from_secs(10);

/// The groups that were as they should be, in which version of the catalog, and when.
#[derive(Default)]
pub(crate) struct Settled {
    groups: HashMap<GroupId, (u64, Instant)>,
    led_since: HashMap<GroupId, Instant>,
    sealed_since: HashMap<GroupId, Instant>,
    added_since: AddedSince,
    // Since when proxies are not connected.
    missed: HashMap<ServerId, Instant>,
    waited_for: WaitedFor,
}

/// A group that is led from here and is looked at in this turn.
struct Due<'a> {
    wanted: Wanted,
    /// Its table and its shard; none of the catalog.
    shard: Option<(&'a TableConfig, &'a ShardConfig)>,
    /// It has been led from here for a while.
    has_settled: bool,
}

/// A proxy that is away for so long is forgotten.
const PROXY_AWAY: Duration = Duration::from_secs(60);

impl Settled {
    fn is(&self, group: GroupId, version: u64) -> bool {
        self.groups.get(&group).is_some_and(|(at, when)| *at == version && task::now() - *when < AGAIN)
    }
}

/// How long a group may be sealed before its shard is another's.
const SEALED: Duration = Duration::from_secs(3);

/// How long a replica leads before it hands over to the preferred one.
const SETTLE: Duration = Duration::from_secs(3);

impl Core {
    /// Takes one step for each group that this node leads and whose members are not as they should be.
    pub(crate) fn tend(&self, settled: &mut Settled) {
        let catalog = self.catalog();
        self.end_succession(&catalog);
        self.replace_gone(&catalog);
        let version = catalog.version;
        let mut due = Vec::new();
        // Shown may be less than what is led: a server that was let in just now is no stranger.
        if self.version_led_here() == Some(version) {
            let wanted = Wanted {
                group: CATALOG_GROUP,
                table: None,
                version,
                replicas: catalog.servers().into_iter().map(|server| server.catalog).collect(),
                away: Vec::new(),
                primary: None,
                is_leaving: false,
            };
            due.push(Due { wanted, shard: None, has_settled: false });
            self.forget_proxies(&catalog, &mut settled.missed);
        }
        for table in catalog.tables() {
            self.seal_repaired(&table.config);
            let shards = table.config.shards.iter().zip(table.shards());
            due.extend(shards.filter_map(|(shard, handle)| {
                self.due(&catalog, &table.config, shard, handle.near(), settled)
            }));
        }
        let mut answers = Answers::default();
        for nth in 0..due.len() {
            self.tend_due(&due[nth..], &mut answers, settled);
        }
    }

    /// What is to be looked at of a shard, if it is led from here and not as it should be, or not for long.
    fn due<'a>(
        &self,
        catalog: &Catalog,
        table: &'a TableConfig,
        shard: &'a ShardConfig,
        near: Option<&Arc<Shard>>,
        settled: &mut Settled,
    ) -> Option<Due<'a>> {
        let near = near.filter(|near| near.leads());
        if near.is_some_and(|near| near.seal_state().is_sealed()) {
            self.tend_sealed(table.id, shard.group, settled);
            return None;
        }
        settled.sealed_since.remove(&shard.group);
        near.inspect(|near| near.abandon_seal_of_earlier_term());
        if near.is_none() {
            settled.led_since.remove(&shard.group);
            settled.added_since.forget(shard.group);
            settled.waited_for.forget(shard.group);
            return None;
        }
        self.tend_added(table, shard, settled);
        self.tend_removed(catalog, table.id, shard);
        let since = *settled.led_since.entry(shard.group).or_insert_with(task::now);
        if settled.is(shard.group, catalog.version) {
            return None;
        }
        let has_settled = task::now() - since > SETTLE;
        let primary = shard.replicas.iter().find(|replica| replica.server == shard.primary);
        let away = shard.replicas.iter().filter(|replica| !self.is_connected(replica.server));
        let wanted = Wanted {
            group: shard.group,
            table: Some(table.id),
            version: catalog.version,
            replicas: shard.replicas.clone(),
            away: away.map(|replica| replica.peer).collect(),
            // Whoever has just handed over, to stop, is not asked to lead again at once.
            primary: primary.map(|replica| replica.peer).filter(|_| has_settled),
            is_leaving: !shard.leaving.is_empty(),
        };
        Some(Due { wanted, shard: Some((table, shard)), has_settled })
    }

    /// Takes one step for the first of those that are `due`.
    fn tend_due(&self, due: &[Due<'_>], answers: &mut Answers, settled: &mut Settled) {
        let [Due { wanted, shard, has_settled }, others @ ..] = due else { return };
        let others = others.iter().map(|due| &due.wanted);
        let is_as_wanted = self.tend_group(wanted, others, answers, &mut settled.waited_for);
        let Some((table, shard)) = shard.filter(|_| is_as_wanted) else { return };
        if !wanted.is_leaving && *has_settled {
            settled.groups.insert(shard.group, (wanted.version, task::now()));
        } else if wanted.is_leaving
            && let Err(error) = self.let_go(table, shard)
        {
            tracing::warn!("replicas that have gone are still in the catalog: {error}");
        }
    }

    /// Seals groups before the present shards again, which an emergency repair has rolled back so far.
    fn seal_repaired(&self, config: &TableConfig) {
        for old in &config.lineage.sealed {
            if let Some(near) = self.shard_of(old.group)
                && near.leads()
                && near.seal_state() < old.seal_state()
            {
                drop(near.set_seal_state(old.seal_state()));
            }
        }
    }

    /// Opens a group that is led from here again, if it was sealed and nothing will come of that; and
    /// sees to it that nothing will, when whoever sealed it takes too long.
    fn tend_sealed(&self, table: TableId, group: GroupId, settled: &mut Settled) {
        let catalog = self.catalog();
        let (Some(handle), Some(near)) = (catalog.table_by_id(table), self.shard_of(group)) else { return };
        let (mark, epoch) = (near.seal_state(), handle.config.lineage.epoch);
        let is_present = |config: &TableConfig| config.shards.iter().any(|shard| shard.group == group);
        if !mark.is_sealed() || !is_present(&handle.config) {
            return;
        }
        let since = *settled.sealed_since.entry(group).or_insert_with(task::now);
        if epoch > mark.epoch() {
            // A seal that the catalog could still go by is a later one, and stays.
            if near.set_seal_state(SealState::open(epoch)).wait().is_ok() {
                settled.sealed_since.remove(&group);
            }
        } else if epoch == mark.epoch() && task::now() - since > SEALED {
            let given_up = self.change(|catalog, draft| {
                let Some(handle) = catalog.table_by_id(table) else { return Ok(()) };
                if is_present(&handle.config) {
                    put_next_epoch(draft, &handle.config, mark.epoch());
                }
                Ok(())
            });
            match given_up {
                // It is opened in the next turn, which need not wait.
                Ok(()) => task::unpark_self(),
                Err(error) => tracing::debug!("group {group} stays sealed: {error}"),
            }
        }
    }

    /// Takes away what was added to a shard that is led from here for a division, when whoever added it takes too long.
    fn tend_added(&self, table: &TableConfig, shard: &ShardConfig, settled: &mut Settled) {
        let overdue = settled.added_since.overdue(shard, table.shards.len(), task::now());
        // Else it is looked at again in the next turn.
        if !overdue.is_empty() && shard.own_voters().all(|own| self.is_there(shard.group, own)) {
            // If it cannot be done now, there is as much time until the next attempt.
            settled.added_since.begin_anew(shard.group, &overdue);
            let added: Vec<_> = overdue.into_iter().map(|server| (shard.group, server)).collect();
            self.take_away(table.id, &added);
        }
    }

    /// Forgets proxies that went without taking leave.
    fn forget_proxies(&self, catalog: &Catalog, missed: &mut HashMap<ServerId, Instant>) {
        let is_away = |server: &&ServerConfig| server.is_proxy && !self.is_connected(server.id);
        let away: Vec<ServerId> =
            catalog.servers().into_iter().filter(is_away).map(|server| server.id).collect();
        missed.retain(|server, _| away.contains(server));
        for server in away {
            let since = *missed.entry(server).or_insert_with(task::now);
            if task::now() - since > PROXY_AWAY
                && let Err(error) = self.forget_proxy(server)
            {
                tracing::warn!("proxy {server} is gone and still in the catalog: {error}");
            }
        }
    }

    /// Hands the groups that this node leads over to other replicas, because it stops. Waits until they
    /// lead, `patience` at most.
    pub fn hand_over(&self, patience: Duration) {
        let deadline = task::now() + patience;
        self.stopping.store(true, std::sync::atomic::Ordering::Release);
        loop {
            let mut groups: Vec<GroupId> = task::lock(&self.hosted).keys().copied().collect();
            groups.push(CATALOG_GROUP);
            let mut waits = false;
            for group in groups {
                if !self.shard_of(group).is_some_and(|shard| shard.is_leader()) {
                    continue;
                }
                let Ok(status) = self.log.group_status(group) else { continue };
                let heirs = status
                    .peers
                    .iter()
                    .filter(|peer| peer.active && !peer.needs_rows)
                    .filter(|peer| status.members.voters.contains(&peer.peer));
                if let Some(heir) = heirs.max_by_key(|peer| peer.matched) {
                    waits = true;
                    self.log.transfer(group, heir.peer);
                }
            }
            if !waits || task::now() > deadline {
                return;
            }
            task::sleep(Duration::from_millis(50));
        }
    }

    /// Takes one step; true when the members are as they should be.
    fn tend_group<'a>(
        &self,
        wanted: &'a Wanted,
        others: impl Iterator<Item = &'a Wanted>,
        answers: &mut Answers,
        waited_for: &mut WaitedFor,
    ) -> bool {
        let group = wanted.group;
        if wanted.replicas.is_empty() {
            return true;
        }
        if let [only] = &wanted.replicas[..]
            && !wanted.is_leaving
            && self.is_alone(group, only)
        {
            return true;
        }
        let status = self.log.group_status(group).map(|status| self.heard(status));
        let Ok(mut status) = status else { return false };
        if !matches!(status.role, Role::Leader { .. }) {
            return false;
        }
        let mut step = next_step(&status, wanted);
        if step.changes_votes(&status.members) {
            status = self.answering(wanted, status, others, answers);
            step = next_step(&status, wanted);
        }
        self.note_waiting(wanted, &status, waited_for);
        match step {
            Step::Nothing => true,
            Step::Wait => false,
            Step::Transfer(to) => {
                self.log.transfer(group, to);
                // Where it leads does not keep replicas from leaving, unless it is one of them.
                wanted.replicas.iter().any(|replica| replica.peer == status.own)
            }
            Step::NameAnew(gone) => {
                let named = wanted.table.map_or(Ok(()), |table| self.name_anew(table, group, gone));
                if let Err(error) = named {
                    let (place, of) = (self.replica_in_words(gone), words::group(&self.catalog(), group));
                    tracing::warn!("No new replica of {of} for {place}, whose old one was removed: {error}");
                }
                false
            }
            Step::Change(MemberChange::Remove(_))
                if wanted.table.is_some() && !self.is_newest(wanted.version) =>
            {
                false
            }
            Step::Change(change) => {
                if self.change_members(group, change) {
                    // The next step need not wait.
                    task::unpark_self();
                }
                false
            }
        }
    }

    /// The same, with nobody said to answer whose server is not linked: the log notices that an election's time
    /// later, and whoever is taken for alive until then may be left over as half of a group.
    pub(crate) fn heard(&self, mut status: GroupStatus) -> GroupStatus {
        let is_linked = |peer| self.post.server_of(peer).is_some_and(|server| self.is_connected(server));
        status.peers.iter_mut().for_each(|known| known.active &= is_linked(known.peer));
        status
    }

    /// Whether the catalog is no further than `version`, as its leader says: who is not named in an old
    /// one may be named in the present one, and would be removed for good.
    pub(crate) fn is_newest(&self, version: u64) -> bool {
        let leader = self.post.lead(CATALOG_GROUP).leader();
        let other = leader.filter(|leader| *leader != self.identity.server);
        let asked = other.and_then(|leader| self.ask(leader, Request::Version.encode(), STEP).ok());
        self.version_led_here().or(asked.and_then(decode_word)) == Some(version)
    }

    /// A group of one that should be one needs no look into the log.
    fn is_alone(&self, group: GroupId, only: &ReplicaConfig) -> bool {
        group != CATALOG_GROUP && only.server == self.identity.server
            || group == CATALOG_GROUP && self.post.wire().is_none()
    }

    pub(crate) fn change_members(&self, group: GroupId, change: MemberChange) -> bool {
        let (sender, receiver) = task::channel();
        {
            // Who is a member at a seal stays one: it needs what was sealed.
            let _one_at_a_time = task::lock(&self.members_or_marks);
            if self.shard_of(group).is_some_and(|shard| shard.is_sealed_or_sealing()) {
                return false;
            }
            self.log.change_members(group, change, Box::new(move |done| drop(sender.send(done))));
        }
        let outcome = receiver.recv_timeout(STEP);
        match &outcome {
            Some(Ok(_)) => tracing::info!("{}", words::sentence(&self.change_in_words(group, change))),
            Some(Err(error)) => tracing::debug!("group {group}: {change:?}: {error}"),
            None => tracing::debug!("group {group}: {change:?} takes long"),
        }
        matches!(outcome, Some(Ok(_)))
    }

    /// The replicas that were on their way out have gone: the catalog forgets them.
    ///
    /// Only if it still says what the group was brought to: those whom it names as leaving since then may
    /// be all that the group has.
    fn let_go(&self, table: &TableConfig, gone: &ShardConfig) -> Result<(), AdminError> {
        let id = table.id;
        self.change(|catalog, draft| {
            let Some(table) = catalog.table_by_id(id) else { return Ok(()) };
            let mut config = table.config.clone();
            if let Some(shard) = config.shards.iter_mut().find(|shard| *shard == gone) {
                shard.leaving.clear();
                draft.put(CatalogRow::Table(config));
            }
            Ok(())
        })
    }
}
