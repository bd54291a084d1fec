//! All streams of a node.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::task;
use log::GroupId;
use shard::{HistoryEntry, HistoryError, HistoryPart, HistoryRecord};

use super::followers::Follower;
use super::inbox::Inbox;
use super::position::FeedPosition;
use super::response::HistoryResponse;
use super::source::{RETRY_INTERVAL, Sources};
use super::stream::{Source, Stream, Taken};
use super::subscription::{FeedEnd, Segment, Subscription};
use crate::catalog::Catalog;
use crate::config::ServerId;

/// How long a stream may be without a source that is in contact with the group's leader. Together with the time in which a
/// request fails, a feed that cannot continue ends within ten seconds.
const UNHEALTHY_MAX: Duration = Duration::from_secs(6);
/// How often a stream that reads from another server looks whether the local replica can serve it.
const OWN_INTERVAL: Duration = Duration::from_secs(5);
/// How old the answer of this node's engine, that it lacks entries, may be when the stream ends for it.
const OWN_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// About how many bytes of a history are read at once.
const READ_BYTES: usize = 256 << 10;

/// All streams. A group has several of them while some subscribers are behind the others.
pub(super) struct Streams {
    inbox: Arc<Inbox>,
    streams: BTreeMap<u64, Stream>,
    next: u64,
    /// Events passed to subscribers.
    pub(super) events: u64,
    /// Whether a stream has come to a seal since the last look.
    pub(super) has_new_seal: bool,
}

impl Streams {
    pub(super) fn new(inbox: Arc<Inbox>) -> Streams {
        Streams { inbox, streams: BTreeMap::new(), next: 0, events: 0, has_new_seal: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values()
    }

    /// The groups that are followed, each once.
    pub(super) fn groups(&self) -> HashSet<GroupId> {
        self.iter().map(|stream| stream.group).collect()
    }

    /// Makes a subscription follow the streams of these segments.
    pub(super) fn follow_all(&mut self, subscription: &Arc<Subscription>, segments: Vec<Segment>) {
        for Segment { group, range, start, .. } in segments {
            let follower = Follower { subscription: subscription.clone(), range, start };
            if let Err(follower) = self.join(group, follower, None) {
                self.begin(group, follower);
            }
        }
    }

    /// Adds a follower to the stream of the group that has come furthest, other than `except`. Returns the follower if it
    /// begins too far behind that.
    fn join(&mut self, group: GroupId, follower: Follower, except: Option<u64>) -> Result<(), Follower> {
        let others =
            self.streams.iter_mut().filter(|(id, stream)| stream.group == group && Some(**id) != except);
        match others.max_by_key(|(_, stream)| stream.position.lsn) {
            Some((id, stream)) => stream.add(*id, follower).map(|events| self.events += events),
            None => Err(follower),
        }
    }

    /// A new stream for a follower.
    fn begin(&mut self, group: GroupId, follower: Follower) {
        let id = self.next;
        self.next += 1;
        // Before the history is read, so that no later entry is missed.
        self.inbox.watch(group);
        let (table, start) = (follower.subscription.table, follower.start.entry);
        let mut stream = Stream::new(group, table, start, task::now());
        // It begins where the stream does, so it is taken.
        drop(stream.add(id, follower));
        self.streams.insert(id, stream);
    }

    /// Passes entries that were applied here to the streams that follow the local replica.
    pub(super) fn take_recorded(&mut self, group: GroupId, records: Vec<HistoryRecord>) {
        let is_local =
            |(_, stream): &(&u64, &mut Stream)| stream.group == group && stream.source == Source::Local;
        let (ids, mut streams): (Vec<u64>, Vec<&mut Stream>) =
            self.streams.iter_mut().filter(is_local).map(|(id, stream)| (*id, stream)).unzip();
        if streams.is_empty() {
            return;
        }
        for record in records {
            let entry = decode(group, record);
            for stream in &mut streams {
                let Some(entry) = &entry else {
                    stream.source = Source::Own;
                    continue;
                };
                match stream.take(entry.clone()) {
                    Taken::Passed(events) => self.events += events,
                    Taken::Sealed => self.has_new_seal = true,
                    Taken::Old => {}
                    // The missing entries are read from the engine.
                    Taken::Gap => stream.source = Source::Own,
                    Taken::Off => stream.end(FeedEnd::Gone),
                }
            }
        }
        ids.into_iter().for_each(|id| self.place_anew(id));
    }

    /// The local replica was closed, or its rows are being replaced.
    pub(super) fn interrupt(&mut self, group: GroupId) {
        for stream in self.streams.values_mut().filter(|stream| stream.group == group) {
            stream.source = Source::Own;
            stream.gone_at.clear();
        }
    }

    /// Takes the response of another server to a stream's request.
    pub(super) fn take_response(
        &mut self,
        sources: &Sources,
        id: u64,
        server: ServerId,
        response: Option<HistoryResponse>,
    ) {
        let now = task::now();
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.source == Source::Remote(server))
        else {
            return;
        };
        let Some(HistoryResponse { mut is_gone, is_current, seal_state, records }) = response else {
            stream.failed_at.insert(server);
            stream.source = Source::Searching(now + RETRY_INTERVAL);
            return;
        };
        self.has_new_seal |= stream.note_seal(seal_state);
        if is_current {
            stream.healthy_at = now;
        }
        let had_records = !records.is_empty();
        if had_records {
            stream.failed_at.clear();
        }
        for record in records {
            let taken = decode(stream.group, record).map_or(Taken::Gap, |entry| stream.take(entry));
            match taken {
                Taken::Passed(events) => self.events += events,
                Taken::Sealed => self.has_new_seal = true,
                Taken::Old => {}
                Taken::Gap => is_gone = true,
                Taken::Off => stream.end(FeedEnd::Gone),
            }
        }
        if is_gone {
            stream.gone_at.insert(server);
            stream.source = Source::Searching(now);
        } else if had_records || is_current {
            sources.request_from(server, id, stream, &self.inbox);
        } else {
            // It has no more, and will not get more.
            stream.failed_at.insert(server);
            stream.source = Source::Searching(now);
        }
        self.settle(id);
    }

    /// Reads the next entries of each stream that is behind from this node's engine. Returns whether there may be more.
    pub(super) fn read_own(&mut self, sources: &Sources) -> bool {
        let reads_own = |(_, stream): &(&u64, &Stream)| stream.source == Source::Own;
        let ids: Vec<u64> = self.streams.iter().filter(reads_own).map(|(id, _)| *id).collect();
        let mut has_more = false;
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            if stream.is_held_back() {
                stream.healthy_at = task::now();
                continue;
            }
            has_more |= read_chunk(stream, sources, &mut self.events, &mut self.has_new_seal);
            self.settle(id);
        }
        has_more
    }

    /// Finds other streams for followers of a stream that has taken entries, where there are such.
    fn settle(&mut self, id: u64) {
        self.place_anew(id);
        self.merge(id);
    }

    /// Moves the followers of a stream to one of the same group that has come further, if they are close to that.
    fn merge(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (group, position) = (stream.group, stream.position);
        let is_near = |(other, stream): &(&u64, &Stream)| {
            **other != id && stream.group == group && stream.can_take_from(position)
        };
        if !self.streams.iter().any(|other| is_near(&other)) {
            return;
        }
        let Some(mut stream) = self.streams.remove(&id) else { return };
        for mut follower in stream.followers.take() {
            if follower.start.entry.lsn < position.lsn {
                follower.start = FeedPosition::after(position);
            }
            if let Err(follower) = self.join(group, follower, Some(id)) {
                self.begin(group, follower);
            }
        }
    }

    /// Makes the followers that a stream has removed, since it has another entry at their position, follow other streams.
    fn place_anew(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (group, misplaced) = (stream.group, stream.take_misplaced());
        misplaced.into_iter().for_each(|follower| self.follow_at(group, follower));
    }

    /// Makes the followers that have waited too long for their stream to come to their position follow other streams.
    pub(super) fn place_late(&mut self, now: Instant) {
        let late = self.streams.values_mut().map(|stream| (stream.group, stream.take_late(now)));
        let late: Vec<(GroupId, Vec<Follower>)> = late.filter(|(_, late)| !late.is_empty()).collect();
        for (group, followers) in late {
            followers.into_iter().for_each(|follower| self.follow_at(group, follower));
        }
    }

    /// Makes a follower follow a stream at its own position.
    fn follow_at(&mut self, group: GroupId, follower: Follower) {
        let start = follower.start.entry;
        let mut others = self.streams.iter_mut();
        match others.find(|(_, stream)| stream.group == group && stream.position == start) {
            // It begins where the stream is, so it is taken.
            Some((id, stream)) => drop(stream.add(*id, follower)),
            None => self.begin(group, follower),
        }
    }

    /// Checks the sources of all streams.
    pub(super) fn check_sources(&mut self, sources: &Sources, now: Instant) {
        for (id, stream) in &mut self.streams {
            let is_current = sources.is_current(stream.group);
            match stream.source {
                Source::Local if is_current => stream.healthy_at = now,
                Source::Remote(_) if is_current && now - stream.tried_own_at > OWN_INTERVAL => {
                    stream.gone_at.remove(&sources.own);
                    stream.source = Source::Own;
                }
                Source::Searching(at) if at <= now => {
                    let may_have = !stream.gone_at.contains(&sources.own);
                    stream.source = match sources.open_replica(stream.group) {
                        // It may have been opened since.
                        Some(_) if may_have => Source::Own,
                        _ => sources.request(*id, stream, &self.inbox, now),
                    };
                    tracing::debug!(
                        "feeds read group {} after {:?} from {:?}",
                        stream.group,
                        stream.position,
                        stream.source
                    );
                }
                _ => {}
            }
            // A replica that came here since it was asked has other entries.
            let is_asked_again = now - stream.tried_own_at > OWN_RETRY_INTERVAL
                && sources.is_gone_everywhere(stream)
                && sources.open_replica(stream.group).is_some();
            if is_asked_again {
                stream.gone_at.remove(&sources.own);
                stream.source = Source::Own;
            }
            if sources.is_gone_everywhere(stream) {
                stream.end(FeedEnd::Gone);
            } else if now - stream.healthy_at > UNHEALTHY_MAX {
                stream.end(FeedEnd::Unavailable);
            }
            stream.note_lag(sources.open_replica(stream.group).and_then(|shard| shard.history_end()), now);
            stream.followers.sweep();
            stream.followers.iter().for_each(|follower| follower.subscription.subscriber.tick());
        }
    }

    /// The most log positions that a stream is behind its group, and the longest lag of a feed.
    pub(super) fn lag(&self, now: Instant) -> (u64, Duration) {
        let positions = self.iter().map(|stream| stream.lag_positions).max();
        let lag = self.iter().map(|stream| stream.lag(now)).max();
        (positions.unwrap_or_default(), lag.unwrap_or_default())
    }

    /// Removes streams without followers. Returns the groups that are no longer followed.
    pub(super) fn drop_unused(&mut self) -> HashSet<GroupId> {
        let is_unused = |stream: &&Stream| stream.followers.is_empty();
        let mut groups: HashSet<GroupId> = self.iter().filter(is_unused).map(|stream| stream.group).collect();
        self.streams.retain(|_, stream| !stream.followers.is_empty());
        let followed = self.groups();
        groups.retain(|group| !followed.contains(group));
        groups
    }

    /// Tells all subscribers of another version of the catalog, and ends those whose table it no longer has.
    pub(super) fn follow_catalog(&mut self, catalog: &Catalog) {
        for stream in self.streams.values_mut() {
            if catalog.table_by_id(stream.table).is_none() {
                stream.end(FeedEnd::TableDropped);
            }
            for follower in stream.followers.iter() {
                follower.subscription.subscriber.catalog_changed(catalog);
            }
        }
    }

    pub(super) fn end_all(&mut self, why: FeedEnd) {
        self.streams.values_mut().for_each(|stream| stream.end(why));
    }

    /// Whether a segment has all entries of its group up to the seal of `epoch`.
    pub(super) fn has_reached_seal(&self, segment: &Segment, epoch: u64) -> bool {
        let stream = segment.stream.as_ref().and_then(|(id, _)| self.streams.get(id));
        stream.is_some_and(|stream| stream.sealed == Some(epoch))
    }

    /// The subscriptions at the end of a sealed group, each once.
    pub(super) fn at_seals(&self) -> Vec<Arc<Subscription>> {
        let mut seen = HashSet::new();
        let sealed = self.iter().filter(|stream| stream.sealed.is_some());
        let subscriptions =
            sealed.flat_map(|stream| stream.followers.iter()).map(|follower| &follower.subscription);
        subscriptions.filter(|found| seen.insert(Arc::as_ptr(found))).cloned().collect()
    }

    /// Removes subscriptions from the streams of some groups: `is_gone` tells which from which.
    pub(super) fn remove(&mut self, is_gone: impl Fn(&Arc<Subscription>, GroupId) -> bool) {
        for stream in self.streams.values_mut() {
            let group = stream.group;
            stream.followers.retain(|follower| !is_gone(&follower.subscription, group));
        }
    }
}

/// Reads some entries of a stream from this node's engine. Returns whether there may be more.
fn read_chunk(stream: &mut Stream, sources: &Sources, events: &mut u64, has_new_seal: &mut bool) -> bool {
    stream.tried_own_at = task::now();
    let records = match sources.read(stream.group, stream.position, READ_BYTES) {
        Ok(HistoryPart { seal_state, records }) => {
            *has_new_seal |= stream.note_seal(seal_state);
            records
        }
        Err(error) => {
            if !matches!(error, HistoryError::Gone) {
                tracing::error!("the history of group {} cannot be read here: {error}", stream.group);
            }
            // Without a replica the history may still come here, with one.
            if sources.open_replica(stream.group).is_some() || sources.is_past(stream.group) {
                stream.gone_at.insert(sources.own);
            }
            stream.source = Source::Searching(task::now());
            return true;
        }
    };
    if records.is_empty() {
        stream.source = match sources.open_replica(stream.group) {
            Some(_) => Source::Local,
            None => Source::Searching(task::now()),
        };
        return false;
    }
    for record in records {
        match decode(stream.group, record).map_or(Taken::Gap, |entry| stream.take(entry)) {
            Taken::Passed(passed) => *events += passed,
            Taken::Sealed => *has_new_seal = true,
            Taken::Old => {}
            Taken::Gap => {
                stream.gone_at.insert(sources.own);
                stream.source = Source::Searching(task::now());
                return true;
            }
            Taken::Off => stream.end(FeedEnd::Gone),
        }
    }
    true
}

fn decode(group: GroupId, record: HistoryRecord) -> Option<Arc<HistoryEntry>> {
    match HistoryEntry::decode(record) {
        Ok(entry) => Some(Arc::new(entry)),
        Err(error) => {
            tracing::error!("the history of group {group} cannot be read: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use datum::KeyRange;
    use log::Lsn;
    use shard::{HistoryEvent, HistoryPosition};
    use storage::TableId;

    use super::*;
    use crate::feeds::{FeedEvent, Interest, Subscriber};

    const GROUP: GroupId = GroupId(7);

    /// Fails if it receives anything.
    struct Nothing;

    impl Subscriber for Nothing {
        fn changed(&self, event: FeedEvent<'_>) {
            panic!("a change at {:?}", event.position);
        }

        fn moved(&self, _from: &[GroupId], _to: &[GroupId]) {}

        fn has_room(&self) -> bool {
            true
        }

        fn catalog_changed(&self, _catalog: &Catalog) {}

        fn ended(&self, _why: FeedEnd) {}
    }

    fn at(lsn: u64, incarnation: u64) -> HistoryPosition {
        HistoryPosition { lsn: Lsn(lsn), incarnation }
    }

    fn follow(streams: &mut Streams, start: HistoryPosition) -> Arc<Subscription> {
        let segment = || Segment::new(GROUP, KeyRange::all(), FeedPosition::after(start));
        let interest = Interest::Range(KeyRange::all());
        let subscription = Subscription::new(
            TableId::from_uuid(uuid::Uuid::nil()),
            interest,
            Arc::new(Nothing),
            vec![segment()],
        );
        let subscription = Arc::new(subscription);
        streams.follow_all(&subscription, vec![segment()]);
        subscription
    }

    /// The positions of the streams that the subscription follows.
    fn followed(streams: &Streams, subscription: &Arc<Subscription>) -> Vec<HistoryPosition> {
        let follows = |stream: &&Stream| {
            stream.followers.iter().any(|follower| Arc::ptr_eq(&follower.subscription, subscription))
        };
        streams.iter().filter(follows).map(|stream| stream.position).collect()
    }

    #[test]
    fn a_follower_at_an_entry_that_was_replaced_has_a_stream_of_its_own_though_streams_are_merged() {
        let mut streams = Streams::new(Arc::default());
        let early = follow(&mut streams, at(5, 1));
        // The first stream has not come so far. What it has there is another entry in the end.
        let lost = [follow(&mut streams, at(7, 1)), follow(&mut streams, at(7, 1))];
        let kept = follow(&mut streams, at(7, 2));
        assert_eq!(streams.iter().count(), 1);
        for (lsn, event) in [(6, HistoryEvent::On), (7, HistoryEvent::Rows(Vec::new()))] {
            let entry = Arc::new(HistoryEntry { at: at(lsn, 2), previous: Lsn(lsn - 1), event });
            streams.streams.get_mut(&0).unwrap().take(entry);
        }
        streams.settle(0);
        assert_eq!(followed(&streams, &early), [at(7, 2)]);
        assert_eq!(followed(&streams, &kept), [at(7, 2)]);
        for lost in &lost {
            assert_eq!(followed(&streams, lost), [at(7, 1)]);
        }
        assert_eq!(streams.iter().count(), 2, "the lost ones share one");
    }
}
