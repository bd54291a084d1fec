//! What is to be done so that a table gets other shards: where they are cut, which servers have everything of
//! each already, and who must get something first. What comes of it is done in `sealing`. Decision 0024.

use std::time::{Duration, Instant};

use datum::Bytes;
use io::task;
use log::{GroupId, Members};
use storage::TableId;

use crate::admin::table_by_id;
use crate::answer::{GroupState, MarkAnswer};
use crate::catalog_row::CatalogRow;
use crate::cuts::{Cut, CutsAnswer, even_cuts};
use crate::node::Core;
use crate::placement::ShardPlaces;
use crate::question::Question;
use crate::starts::even_starts;
use crate::{
    AdminError, ReplicaConfig, ServerId, ShardConfig, ShardHandle, TableChange, TableConfig, TableHandle,
    places_of,
};

/// How long everything may take that comes before the seals.
pub(crate) const PREPARATION: Duration = Duration::from_secs(30);
/// How long one leader may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long voters that lag are waited for, if there is as much time. After that the others begin the new shards
/// without them, and they copy what they may well have.
const LAG: Duration = Duration::from_secs(5);
/// Between two looks at what is still missing.
const PAUSE: Duration = Duration::from_millis(100);

/// What a table's shards are to be, worked out on its present ones.
pub(crate) struct Plan {
    pub(crate) old: Vec<GroupId>,
    pub(crate) epoch: u64,
    pub(crate) starts: Vec<Bytes>,
    pub(crate) places: Vec<ShardPlaces>,
    /// For each new shard the servers that have all of its rows already.
    pub(crate) founders: Vec<Vec<ServerId>>,
    /// For each group before its members at the seal; none before it is sealed.
    pub(crate) members: Vec<Members>,
    /// On which servers those groups have something that was added for this: it goes when the plan is given up.
    pub(crate) added: Vec<(GroupId, ServerId)>,
}

/// What a table is to become.
#[derive(Clone, Copy)]
enum Wish<'a> {
    /// What the change says, if that is another number of shards.
    Change(&'a TableChange),
    /// As many shards, of equal size.
    Even,
}

/// Which shards there are to be over those groups.
struct Layout {
    old: Vec<GroupId>,
    starts: Vec<Bytes>,
    places: Vec<ShardPlaces>,
    /// Where the replicas were when it was made, without those that are added for it: who finds others had somebody
    /// move them meanwhile.
    before: Vec<ShardPlaces>,
    /// Until then voters that lag are waited for.
    lag_until: Instant,
}

/// One attempt to plan.
enum Planned {
    Nothing,
    NotYet,
    Done(Plan),
}

impl Core {
    /// What is to be done so that the table gets as many shards as `change` says; nothing if it has them. Waits
    /// until replicas are where they must be for that, while `go_on` says so.
    pub(crate) fn plan_change(
        &self,
        id: TableId,
        change: &TableChange,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Plan>, AdminError> {
        self.plan(id, Wish::Change(change), task::now() + PREPARATION, go_on)
    }

    /// The same so that its shards become equal, until `deadline`.
    pub(crate) fn plan_even(
        &self,
        id: TableId,
        deadline: Instant,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Plan>, AdminError> {
        self.plan(id, Wish::Even, deadline, go_on)
    }

    fn plan(
        &self,
        id: TableId,
        wish: Wish<'_>,
        deadline: Instant,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Plan>, AdminError> {
        let (mut layout, mut added) = (None, Vec::new());
        let mut planned = Ok(Planned::NotYet);
        while matches!(planned, Ok(Planned::NotYet)) && go_on() && task::now() < deadline {
            planned = self.try_to_plan(id, wish, deadline, &mut layout, &mut added);
            if matches!(planned, Ok(Planned::NotYet)) {
                task::sleep(PAUSE);
            }
        }
        if let Ok(Planned::Done(plan)) = planned {
            return Ok(Some(Plan { added, ..plan }));
        }
        self.take_away(id, &added);
        match planned? {
            Planned::Nothing => Ok(None),
            _ => Err(AdminError::NotTogether),
        }
    }

    /// `layout` stays as it was made, unless somebody else moves replicas. What is added for it is noted in `added`.
    fn try_to_plan(
        &self,
        id: TableId,
        wish: Wish<'_>,
        deadline: Instant,
        layout: &mut Option<Layout>,
        added: &mut Vec<(GroupId, ServerId)>,
    ) -> Result<Planned, AdminError> {
        let catalog = self.catalog();
        let handle = table_by_id(&catalog, id)?;
        let old = &handle.config.shards;
        if layout.as_ref().is_some_and(|layout| !layout.is_of(old)) {
            *layout = None;
        }
        let places = match (layout.as_ref(), wish) {
            (Some(layout), _) => layout.places.clone(),
            (None, Wish::Even) => places_of(old),
            (None, Wish::Change(TableChange { shards: Some(wanted), .. })) => {
                self.places(&catalog, wanted, Some(handle))?
            }
            (None, Wish::Change(_)) => return Ok(Planned::Nothing),
        };
        if matches!(wish, Wish::Change(_)) && places.len() == old.len() {
            return Ok(Planned::Nothing);
        }
        // One after the other: until then what the groups before have is needed.
        if !handle.config.lineage.sealed.is_empty() {
            let is_late = deadline - task::now() < PREPARATION / 2;
            if is_late {
                self.replace_missing_founders(&handle.config, |server| !self.is_connected(server))?;
            }
            return Ok(Planned::NotYet);
        }
        let Some(ready) = self.ready_servers(handle) else { return Ok(Planned::NotYet) };
        let layout = match layout {
            Some(layout) => layout,
            None => {
                let Some(starts) = self.new_starts(handle, places.len()) else { return Ok(Planned::NotYet) };
                layout.insert(Layout::new(old, starts, places, deadline))
            }
        };
        let work = layout.work(old, &ready, |server| self.is_connected(server));
        if work.lags && task::now() < layout.lag_until {
            return Ok(Planned::NotYet);
        }
        if !work.missing.is_empty() {
            self.add_replicas(id, &work.missing, layout, added)?;
            return Ok(Planned::NotYet);
        }
        if work.founders.iter().any(Vec::is_empty) {
            return Ok(Planned::NotYet);
        }
        let epoch = handle.config.lineage.epoch;
        let Layout { old, starts, places, .. } = layout;
        let (old, starts, places) = (old.clone(), starts.clone(), places.clone());
        let (members, added) = (Vec::new(), Vec::new());
        Ok(Planned::Done(Plan { old, epoch, starts, places, founders: work.founders, members, added }))
    }

    /// For each shard the servers whose voting replicas have everything; `None` if one is not led.
    fn ready_servers(&self, handle: &TableHandle) -> Option<Vec<Vec<ServerId>>> {
        let shards: Vec<&ShardHandle> = handle.shards().iter().collect();
        let led = self.ask_leaders(&shards);
        let ready = |(config, led): (&ShardConfig, Option<(ServerId, GroupState)>)| {
            let (_, state) = led?;
            let is_ready = |r: &&ReplicaConfig| r.voting && state.ready.contains(&r.peer);
            let there = config.replicas.iter().chain(&config.leaving).filter(is_ready);
            let there = there.map(|replica| replica.server);
            Some(there.filter(|server| self.is_connected(*server)).collect())
        };
        handle.config.shards.iter().zip(led).map(ready).collect()
    }

    /// Gives the shards of those numbers voting replicas on those servers too, for as long as it takes to
    /// put others in their place, and notes which had none. Does nothing if somebody has moved the table's replicas
    /// since the layout was made.
    fn add_replicas(
        &self,
        id: TableId,
        missing: &[(usize, ServerId)],
        layout: &Layout,
        added: &mut Vec<(GroupId, ServerId)>,
    ) -> Result<(), AdminError> {
        let mut added_now = Vec::new();
        let outcome = self.change(|catalog, draft| {
            added_now.clear();
            let mut config = table_by_id(catalog, id)?.config.clone();
            if !layout.is_of(&config.shards) {
                return Ok(());
            }
            for (at, server) in missing {
                let Some(shard) = config.shards.get_mut(*at) else { continue };
                if shard.add(*server, || self.new_peer()) {
                    added_now.push((shard.group, *server));
                }
            }
            if !added_now.is_empty() {
                draft.put(CatalogRow::Table(config));
            }
            Ok(())
        });
        // Perhaps it was done although nobody said so.
        added.extend(added_now);
        outcome
    }

    /// Start keys that divide the table's present rows evenly, or the space of generated keys when there
    /// are too few rows to learn from; `None` if a leader does not answer.
    fn new_starts(&self, handle: &TableHandle, shards: usize) -> Option<Vec<Bytes>> {
        // One shard is cut where its leader says; of several, smaller pieces are put together.
        let parts = if handle.shards().len() == 1 { shards } else { 8 * shards };
        let mut cuts: Vec<Cut> = Vec::new();
        for (shard, config) in handle.shards().iter().zip(&handle.config.shards) {
            let answer = self.cuts_of(shard, parts as u64)?;
            let keys = std::iter::once(config.start.clone()).chain(answer.keys);
            let pieces: Vec<Bytes> = keys.collect();
            let rows = answer.rows as f64 / pieces.len() as f64;
            let cut = |(i, start): (usize, Bytes)| Cut { start, rows, is_old: i == 0 };
            cuts.extend(pieces.into_iter().enumerate().map(cut));
        }
        Some(even_cuts(&cuts, shards).unwrap_or_else(|| even_starts(shards)))
    }

    fn cuts_of(&self, shard: &ShardHandle, parts: u64) -> Option<CutsAnswer> {
        let group = shard.group();
        if shard.near().is_some_and(|near| near.is_leader()) {
            return self.cuts_here(group, parts).ok();
        }
        let leader = shard.lead().leader().filter(|leader| *leader != self.identity.server)?;
        CutsAnswer::decode(self.ask(leader, Question::Cuts { group, parts }.encode(), PATIENCE).ok()?)
    }

    /// Where a shard that is led from here may be cut into about so many parts.
    pub(crate) fn cuts_here(&self, group: GroupId, parts: u64) -> Result<CutsAnswer, String> {
        let shard =
            self.shard_of(group).filter(|shard| shard.is_leader()).ok_or("it is not led from here")?;
        let parts = usize::try_from(parts).unwrap_or(usize::MAX).clamp(1, 8 * crate::starts::SHARDS_MAX);
        let snapshot = shard.snapshot().map_err(|error| error.to_string())?;
        let pieces = snapshot.split(shard.range(), parts).map_err(|error| error.to_string())?;
        let start = |piece: &datum::KeyRange| match &piece.start {
            datum::KeyBound::Included(key) | datum::KeyBound::Excluded(key) => {
                Some(Bytes::copy_from_slice(key.as_bytes()))
            }
            datum::KeyBound::Unbounded => None,
        };
        Ok(CutsAnswer { rows: shard.count(), keys: pieces.iter().skip(1).filter_map(start).collect() })
    }
}

/// What is still missing for a layout.
#[derive(Debug, PartialEq, Eq)]
struct Work {
    /// For each new shard who can begin it.
    founders: Vec<Vec<ServerId>>,
    /// By the numbers of old shards, servers that need a replica of them, or that the one they get becomes ready.
    missing: Vec<(usize, ServerId)>,
    /// Whether somebody who is to have a shard has voted on its rows all the time and is not ready.
    lags: bool,
}

impl Layout {
    fn new(old: &[ShardConfig], starts: Vec<Bytes>, places: Vec<ShardPlaces>, deadline: Instant) -> Layout {
        let (before, now) = (places_of(old), task::now());
        // Short of the deadline, so that something comes of it.
        let lag_until = now + LAG.min(deadline.saturating_duration_since(now) / 2);
        let groups = old.iter().map(|shard| shard.group).collect();
        Layout { old: groups, starts, places, before, lag_until }
    }

    /// Whether it was made on these shards, and nobody else has moved their replicas.
    fn is_of(&self, old: &[ShardConfig]) -> bool {
        old.iter().map(|shard| shard.group).eq(self.old.iter().copied()) && places_of(old) == self.before
    }

    fn work(
        &self,
        old: &[ShardConfig],
        ready: &[Vec<ServerId>],
        is_connected: impl Fn(ServerId) -> bool,
    ) -> Work {
        let mut work = Work { founders: Vec::new(), missing: Vec::new(), lags: false };
        for (new, place) in self.places.iter().enumerate() {
            let feeders = feeders(old, &self.starts, new);
            let (everywhere, missing) = founders_of(place, &feeders, ready);
            let voted = |feeder: usize, server| self.before[feeder].replicas.contains(&(server, true));
            let late = |feeder: usize, server| {
                voted(feeder, server) && !ready[feeder].contains(&server) && is_connected(server)
            };
            let mut voters = place.replicas.iter().filter(|(_, voting)| *voting);
            work.lags |= voters.any(|(server, _)| feeders.iter().any(|feeder| late(*feeder, *server)));
            // With others to begin it, nobody waits for long for who votes already.
            let can_begin = !everywhere.is_empty();
            let is_wanted = |(feeder, server): &(usize, ServerId)| {
                is_connected(*server) && !(can_begin && voted(*feeder, *server))
            };
            work.missing.extend(missing.into_iter().filter(is_wanted));
            work.founders.push(everywhere);
        }
        work
    }
}

impl Plan {
    /// Whether each new shard has a founder that holds the seals of all groups that it needs.
    pub(crate) fn can_begin(&self, config: &TableConfig, sealed: &[MarkAnswer]) -> bool {
        let holds = |feeder: usize, server: ServerId| {
            let replica = config.shards[feeder].replica_on(server);
            replica.is_some_and(|replica| sealed[feeder].holders.contains(&replica.peer))
        };
        self.founders.iter().enumerate().all(|(new, founders)| {
            let feeders = feeders(&config.shards, &self.starts, new);
            founders.iter().any(|server| feeders.iter().all(|feeder| holds(*feeder, *server)))
        })
    }

    /// Leaves those as founders who are members of all groups that they need.
    pub(crate) fn keep_members(&mut self, config: &TableConfig, members: Vec<Members>) {
        let is_member = |feeder: usize, server: ServerId| {
            let replica = config.shards[feeder].replica_on(server);
            replica.is_some_and(|replica| members[feeder].contains(replica.peer))
        };
        for (new, founders) in self.founders.iter_mut().enumerate() {
            let feeders = feeders(&config.shards, &self.starts, new);
            founders.retain(|server| feeders.iter().all(|feeder| is_member(*feeder, *server)));
        }
        self.members = members;
    }

    /// Whether it can be carried out on the table as it is.
    pub(crate) fn fits(&self, config: &TableConfig) -> bool {
        config.lineage.epoch == self.epoch
            && config.lineage.sealed.is_empty()
            && config.shards.iter().map(|shard| shard.group).eq(self.old.iter().copied())
    }
}

/// The old shards that have keys of new shard `new`.
fn feeders(old: &[ShardConfig], starts: &[Bytes], new: usize) -> Vec<usize> {
    let (start, end) = (&starts[new], starts.get(new + 1));
    let has_keys = |i: &usize| {
        end.is_none_or(|end| old[*i].start < *end) && old.get(i + 1).is_none_or(|next| next.start > *start)
    };
    (0..old.len()).filter(has_keys).collect()
}

/// Who can found a shard at `place` over those of `feeders`, of which `ready` tells who has everything;
/// and which replicas of those are missing so that more can.
///
/// Where all feeders have the same replicas, nobody need copy anything first. Where they have not, those who
/// are to have the new shard get all of it before.
fn founders_of(
    place: &ShardPlaces,
    feeders: &[usize],
    ready: &[Vec<ServerId>],
) -> (Vec<ServerId>, Vec<(usize, ServerId)>) {
    let Some((first, others)) = feeders.split_first() else { return (Vec::new(), Vec::new()) };
    let has = |feeder: &usize, server: &ServerId| ready[*feeder].contains(server);
    let placed_without_vote = |server: &ServerId| place.replicas.contains(&(*server, false));
    let everywhere = ready[*first].iter().filter(|server| others.iter().all(|other| has(other, server)));
    let everywhere: Vec<ServerId> =
        everywhere.filter(|server| !placed_without_vote(server)).copied().collect();
    let same = others.iter().all(|other| {
        ready[*other].len() == ready[*first].len() && ready[*other].iter().all(|server| has(first, server))
    });
    let voters = place.replicas.iter().filter(|(_, voting)| *voting).map(|(server, _)| *server);
    let lacking = voters.flat_map(|server| feeders.iter().map(move |feeder| (*feeder, server)));
    let missing = match same && !everywhere.is_empty() {
        true => Vec::new(),
        false => lacking.filter(|(feeder, server)| !has(feeder, server)).collect(),
    };
    (everywhere, missing)
}

#[cfg(test)]
mod tests {
    use log::Lsn;

    use super::*;
    use crate::fixture::{peer, server, shard, table};

    fn answer(group: u64, members: &[u64], holders: &[u64]) -> MarkAnswer {
        let peers = |servers: &[u64]| servers.iter().map(|n| peer(group, *n)).collect();
        let members = Members { at: Lsn(1), voters: peers(members), ..Members::default() };
        MarkAnswer { members, holders: peers(holders) }
    }

    fn plan(starts: &[&'static [u8]], founders: &[&[u64]]) -> Plan {
        Plan {
            old: vec![GroupId(3), GroupId(4)],
            epoch: 0,
            starts: starts.iter().map(|start| Bytes::from_static(start)).collect(),
            places: Vec::new(),
            founders: founders.iter().map(|those| those.iter().map(|n| server(*n)).collect()).collect(),
            members: Vec::new(),
            added: Vec::new(),
        }
    }

    #[test]
    fn a_new_shard_needs_a_founder_with_the_seals_of_all_groups_that_have_keys_of_it() {
        let config = table(vec![shard(3, b"", &[1, 2]), shard(4, b"m", &[1, 2, 3])]);
        let merged = plan(&[b""], &[&[1, 2]]);
        let all = answer(3, &[1, 2], &[1, 2]);
        for (holders, can_begin) in [(&[1_u64, 3][..], true), (&[3, 2], true), (&[3], false)] {
            let sealed = [all.clone(), answer(4, &[1, 2, 3], holders)];
            assert_eq!(merged.can_begin(&config, &sealed), can_begin, "{holders:?}");
        }
        // One has the first, the other the second.
        assert!(!merged.can_begin(&config, &[answer(3, &[1, 2], &[1]), answer(4, &[1, 2, 3], &[2, 3])]));
        // Of three shards each needs what has keys of it.
        let split = plan(&[b"", b"c", b"p"], &[&[1], &[1, 2], &[3]]);
        let sealed = |holders: &[u64]| [answer(3, &[1, 2], &[1]), answer(4, &[1, 2, 3], holders)];
        assert!(split.can_begin(&config, &sealed(&[1, 3])));
        assert!(!split.can_begin(&config, &sealed(&[1, 2])), "nobody begins the last");
        assert!(!split.can_begin(&config, &sealed(&[3])), "nobody begins the second");
    }

    #[test]
    fn who_is_no_member_at_the_seal_founds_nothing() {
        let config = table(vec![shard(3, b"", &[1, 2]), shard(4, b"m", &[1, 2])]);
        let mut split = plan(&[b"", b"c", b"p"], &[&[1, 2], &[1, 2], &[1, 2]]);
        let members = [answer(3, &[1, 2], &[]), answer(4, &[1], &[])].map(|answer| answer.members);
        split.keep_members(&config, members.to_vec());
        let (one, both) = (vec![server(1)], vec![server(1), server(2)]);
        assert_eq!((split.founders, split.members), (vec![both, one.clone(), one], members.to_vec()));
    }

    #[test]
    fn voters_that_lag_are_waited_for_and_hold_nobody_up_for_long() {
        let place = |voters: &[u64]| ShardPlaces {
            primary: server(voters[0]),
            replicas: voters.iter().map(|n| (server(*n), true)).collect(),
        };
        let servers = |those: &[u64]| those.iter().map(|n| server(*n)).collect::<Vec<_>>();
        let mut old = [shard(3, b"", &[1, 2, 3]), shard(4, b"m", &[1, 2, 3])];
        old[1].replicas[2].voting = false;
        // Of one new shard for both: who is to have it, who is ready in each, who is connected.
        let work = |old: &[ShardConfig], wanted: &[u64], ready: [&[u64]; 2], connected: &[u64]| {
            let layout = Layout::new(old, vec![Bytes::new()], vec![place(wanted)], task::now());
            let connected = servers(connected);
            layout.work(old, &ready.map(servers), |server| connected.contains(&server))
        };
        let done = |founders: &[u64], missing: &[(usize, u64)], lags: bool| Work {
            founders: vec![servers(founders)],
            missing: missing.iter().map(|(feeder, n)| (*feeder, server(*n))).collect(),
            lags,
        };
        let all = [1, 2, 3];
        assert_eq!(work(&old, &[1, 2], [&all, &all], &all), done(&all, &[], false));
        assert_eq!(work(&old, &[1, 2], [&[1], &[1]], &all), done(&[1], &[], true), "2 lags in both");
        assert_eq!(work(&old, &[1, 2], [&[1, 2], &[1]], &all), done(&[1], &[], true), "2 lags in one");
        assert_eq!(work(&old, &[1, 2], [&[1, 2], &[1]], &[1, 3]), done(&[1], &[], false), "2 is away");
        assert_eq!(work(&old, &[1], [&[1, 2], &[1]], &all), done(&[1], &[], false), "2 is not wanted");
        assert_eq!(
            work(&old, &[1, 2], [&[1], &[2]], &all),
            done(&[], &[(1, 1), (0, 2)], true),
            "nobody has both"
        );
        // 3 does not vote on the second yet, nor 4 on anything.
        assert_eq!(work(&old, &[1, 3], [&all, &[1, 2]], &all), done(&[1, 2], &[(1, 3)], false));
        assert_eq!(work(&old, &[1, 4], [&all, &all], &[1, 4]), done(&all, &[], false), "4 copies later");
    }
}
