//! Compares delivered events with acknowledged writes: missed, repeated, unexpected events and wrong order, and the
//! time from each write to the arrival of its event.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use super::elements::Arrival;
use super::kind::FeedKind;
use super::model::Change;
use super::writes::{Outcome, Written};
use crate::measure::histogram;

/// The comparison for some feeds.
#[derive(Debug)]
pub struct Tally {
    /// Events of acknowledged writes.
    pub expected: u64,
    /// Different expected events that arrived. Events of writes without a known outcome count, too.
    pub delivered: u64,
    /// Events of acknowledged writes that never arrived.
    pub missed: u64,
    /// Further arrivals of events that had arrived.
    pub repeated: u64,
    /// Events that no write explains, or only a refused one.
    pub unexpected: u64,
    /// Events that arrived after a later one of the same document; of a feed of first rows, after any later one.
    pub out_of_order: u64,
    /// From the acknowledgement of the write to the arrival; an event that came first counts as 1 ns.
    pub from_commit: Histogram<u64>,
    /// From sending the write to the arrival.
    pub from_send: Histogram<u64>,
    /// Events that arrived before the acknowledgement.
    pub before_commit: u64,
    /// The first wrong event, as text.
    pub first_wrong: Option<String>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            expected: 0,
            delivered: 0,
            missed: 0,
            repeated: 0,
            unexpected: 0,
            out_of_order: 0,
            from_commit: histogram::empty(),
            from_send: histogram::empty(),
            before_commit: 0,
            first_wrong: None,
        }
    }
}

impl Tally {
    /// Adds the comparison of other feeds.
    pub fn add(&mut self, other: &Tally) {
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.missed += other.missed;
        self.repeated += other.repeated;
        self.unexpected += other.unexpected;
        self.out_of_order += other.out_of_order;
        self.before_commit += other.before_commit;
        histogram::merge(&mut self.from_commit, &other.from_commit);
        histogram::merge(&mut self.from_send, &other.from_send);
        self.first_wrong = self.first_wrong.take().or_else(|| other.first_wrong.clone());
    }

    fn note(&mut self, wrong: impl FnOnce() -> String) {
        self.first_wrong.get_or_insert_with(wrong);
    }
}

/// Compares the events of all feeds `kinds` with `written`. The arrivals of each feed are in their order. The result
/// is by kind, in the order in which kinds first occur.
pub fn check(kinds: &[FeedKind], written: &[Written], arrivals: &[Arrival]) -> Vec<(FeedKind, Tally)> {
    let mut arrived: Vec<Vec<&Arrival>> = vec![Vec::new(); kinds.len()];
    arrivals.iter().for_each(|arrival| arrived[arrival.feed as usize].push(arrival));
    let mut own: Vec<Vec<&Written>> = vec![Vec::new(); kinds.len()];
    for write in written {
        if let Some((feed, _)) = write.write.event {
            own[feed as usize].push(write);
        }
    }
    let whole = kinds.contains(&FeedKind::Table).then(|| {
        let all = written.iter().map(|write| (write.write.of_table, write));
        Expectations::new(all)
    });
    let mut tallies: Vec<(FeedKind, Tally)> = Vec::new();
    for (feed, kind) in kinds.iter().enumerate() {
        let tally = match (kind, &whole) {
            (FeedKind::Table, Some(whole)) => whole.compare(feed, *kind, &arrived[feed]),
            _ => {
                let events = own[feed].iter().filter_map(|write| Some((write.write.event?.1, *write)));
                Expectations::new(events).compare(feed, *kind, &arrived[feed])
            }
        };
        match tallies.iter_mut().find(|(known, _)| known == kind) {
            Some((_, sum)) => sum.add(&tally),
            None => tallies.push((*kind, tally)),
        }
    }
    tallies
}

/// The events that a feed must or may have.
struct Expectations<'a> {
    /// By their two sides: the place in `writes`.
    places: HashMap<Change, usize>,
    writes: Vec<&'a Written>,
}

impl<'a> Expectations<'a> {
    fn new(events: impl Iterator<Item = (Change, &'a Written)>) -> Self {
        let mut expected = Expectations { places: HashMap::new(), writes: Vec::new() };
        for (change, write) in events.filter(|(_, write)| write.outcome != Outcome::Refused) {
            expected.places.insert(change, expected.writes.len());
            expected.writes.push(write);
        }
        expected
    }

    fn compare(&self, feed: usize, kind: FeedKind, arrived: &[&Arrival]) -> Tally {
        let mut tally = Tally::default();
        let mut has_arrived = vec![false; self.writes.len()];
        // The latest write with an event so far, by document; one for all documents of a feed of first rows.
        let mut latest: HashMap<Option<u64>, u64> = HashMap::new();
        for arrival in arrived {
            let Some(place) = self.places.get(&arrival.change).copied() else {
                tally.unexpected += 1;
                tally.note(|| format!("feed {feed} ({}): unexpected {:?}", kind.name(), arrival.change));
                continue;
            };
            let write = self.writes[place];
            if std::mem::replace(&mut has_arrived[place], true) {
                tally.repeated += 1;
                tally.note(|| format!("feed {feed} ({}): repeated {:?}", kind.name(), arrival.change));
                continue;
            }
            tally.delivered += 1;
            let ordered = arrival.change.document().filter(|_| kind != FeedKind::Limit);
            let before = latest.entry(ordered).or_insert(0);
            if write.write.row.seq < *before {
                tally.out_of_order += 1;
                tally.note(|| format!("feed {feed} ({}): out of order {:?}", kind.name(), arrival.change));
            }
            *before = write.write.row.seq.max(*before);
            time(&mut tally, write, arrival);
        }
        for (write, has_arrived) in self.writes.iter().zip(has_arrived) {
            let is_certain = write.outcome == Outcome::Acknowledged;
            tally.expected += u64::from(is_certain);
            if is_certain && !has_arrived {
                tally.missed += 1;
                tally
                    .note(|| format!("feed {feed} ({}): missed the event of {:?}", kind.name(), write.write));
            }
        }
        tally
    }
}

fn time(tally: &mut Tally, write: &Written, arrival: &Arrival) {
    let since = |earlier: i64| (arrival.at_ns - earlier).max(0) as u64;
    histogram::record(&mut tally.from_send, since(write.sent_ns));
    if write.outcome == Outcome::Acknowledged {
        histogram::record(&mut tally.from_commit, since(write.acknowledged_ns));
        tally.before_commit += u64::from(arrival.at_ns < write.acknowledged_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feeds::model::Model;

    const KINDS: [FeedKind; 5] =
        [FeedKind::Document, FeedKind::Range, FeedKind::Filter, FeedKind::Limit, FeedKind::Table];

    /// 40 writes to each feed, and the arrivals of a server that delivers each event 5 ns after its acknowledgement.
    fn right() -> (Vec<Written>, Vec<Arrival>) {
        let mut model = Model::new(KINDS.to_vec(), 1);
        let (mut written, mut arrivals) = (Vec::new(), Vec::new());
        for seq in 1..=200 {
            let write = model.write_matching(seq).expect("a write");
            model.settle(&write, true);
            let sent_ns = seq as i64 * 100;
            let acknowledged_ns = sent_ns + 10;
            written.push(Written { write, sent_ns, acknowledged_ns, outcome: Outcome::Acknowledged });
            let at_ns = acknowledged_ns + 5;
            let (feed, change) = write.event.expect("an event");
            if KINDS[feed as usize] != FeedKind::Table {
                arrivals.push(Arrival { feed, change, at_ns });
            }
            arrivals.push(Arrival { feed: 4, change: write.of_table, at_ns });
        }
        (written, arrivals)
    }

    fn total(written: &[Written], arrivals: &[Arrival]) -> Tally {
        check(&KINDS, written, arrivals).iter().fold(Tally::default(), |mut sum, (_, tally)| {
            sum.add(tally);
            sum
        })
    }

    fn wrongs(tally: &Tally) -> [u64; 4] {
        [tally.missed, tally.repeated, tally.unexpected, tally.out_of_order]
    }

    #[test]
    fn a_right_server_passes() {
        let (written, arrivals) = right();
        let tally = total(&written, &arrivals);
        assert_eq!((wrongs(&tally), tally.first_wrong.as_deref()), ([0; 4], None));
        assert_eq!((tally.expected, tally.delivered), (360, 360));
        assert_eq!((tally.from_commit.max(), tally.from_send.max()), (5, 15));
    }

    #[test]
    fn each_dropped_doubled_or_altered_event_is_found() {
        let (written, arrivals) = right();
        for place in 0..arrivals.len() {
            let mut without = arrivals.clone();
            without.remove(place);
            assert_eq!(wrongs(&total(&written, &without)), [1, 0, 0, 0], "without event {place}");
            let mut doubled = arrivals.clone();
            doubled.push(arrivals[place]);
            assert_eq!(wrongs(&total(&written, &doubled)), [0, 1, 0, 0], "with event {place} twice");
            let mut altered = arrivals.clone();
            altered[place].change.old = altered[place]
                .change
                .old
                .map_or(Some(crate::feeds::model::Version { id: 1, seq: 0 }), |old| {
                    Some(crate::feeds::model::Version { seq: old.seq + 1_000, ..old })
                });
            assert_eq!(wrongs(&total(&written, &altered)), [1, 0, 1, 0], "with event {place} altered");
        }
    }

    #[test]
    fn events_of_a_document_in_the_wrong_order_are_found() {
        let (written, mut arrivals) = right();
        let of_document: Vec<usize> =
            (0..arrivals.len()).filter(|n| arrivals[*n].feed == 0).take(2).collect();
        arrivals.swap(of_document[0], of_document[1]);
        assert_eq!(wrongs(&total(&written, &arrivals)), [0, 0, 0, 1]);
    }

    #[test]
    fn an_event_of_a_refused_write_is_unexpected_and_one_of_an_unknown_write_is_optional() {
        let (mut written, arrivals) = right();
        // The last write: nothing was made from its row.
        let last = written.len() - 1;
        let events = if KINDS[written[last].write.event.expect("an event").0 as usize] == FeedKind::Table {
            1
        } else {
            2
        };
        written[last].outcome = Outcome::Refused;
        assert_eq!(wrongs(&total(&written, &arrivals)), [0, 0, events, 0]);
        written[last].outcome = Outcome::Unknown;
        assert_eq!(wrongs(&total(&written, &arrivals)), [0; 4]);
        assert_eq!(wrongs(&total(&written, &arrivals[..arrivals.len() - events as usize])), [0; 4]);
    }
}
