//! Interleaving: rows without an order, in the order of RethinkDB: round-robin over eight buckets.
//!
//! Items are held until it is the turn of their bucket. A round ends after a number of rows or bytes. This limits the
//! memory, and a filter that keeps rows of one bucket only does not make the whole table be read for the next item.
//! Decision 0042.

use std::collections::VecDeque;

use datum::Datum;
use datum::key::BUCKETS;
use reql::stream::Items;
use reql::{Env, EvalError};

use crate::table::{BucketedItem, BucketedItems};

/// Rows that are read per round.
pub(crate) const ROUND_ROWS: usize = 2048;
/// A round ends when about this many bytes are held.
const HELD_BYTES_MAX: usize = 512 << 10;

/// The interleaved items of a sequence without an order.
pub(crate) struct Interleaved {
    source: Box<dyn BucketedItems>,
    buckets: Buckets<Datum>,
    /// Rows read in this round.
    rows: usize,
    /// Whether nothing is added to the buckets until all are empty.
    round_ended: bool,
    source_ended: bool,
}

impl Interleaved {
    pub fn new(source: Box<dyn BucketedItems>) -> Interleaved {
        Interleaved { source, buckets: Buckets::new(), rows: 0, round_ended: false, source_ended: false }
    }

    /// Starts the next round; all buckets are empty.
    fn begin_round(&mut self) {
        // One step of the source may skip many rows.
        self.rows = self.rows.saturating_sub(ROUND_ROWS);
        self.round_ended = false;
        self.buckets = Buckets::new();
    }

    /// Reads the next step of the source.
    fn read_on(&mut self, env: &Env<'_>) -> Result<(), EvalError> {
        match self.source.next_bucketed(env)? {
            BucketedItem::Item(bucket, item) => {
                self.rows += bucket.rows as usize;
                let bytes = item.json_size_to(HELD_BYTES_MAX);
                self.buckets.push(bucket.number, item, bytes);
            }
            BucketedItem::Skipped(rows) => self.rows += rows,
            BucketedItem::End => self.source_ended = true,
        }
        Ok(())
    }
}

impl Items for Interleaved {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            self.round_ended |=
                self.source_ended || self.rows >= ROUND_ROWS || self.buckets.held_bytes >= HELD_BYTES_MAX;
            match self.buckets.next_item(self.round_ended) {
                Next::Item(item) => return Ok(Some(item)),
                Next::Empty => {
                    env.check_cancel()?;
                    self.read_on(env)?;
                }
                Next::AllEmpty if self.source_ended => return Ok(None),
                Next::AllEmpty => self.begin_round(),
            }
        }
    }
}

/// The next item of the buckets.
pub(crate) enum Next<T> {
    Item(T),
    /// The bucket whose turn it is has no item yet.
    Empty,
    AllEmpty,
}

/// The held items, and the bucket whose turn it is.
///
/// An empty bucket leaves the order when it is its turn. The last bucket takes its place and waits for the next turn. A
/// bucket that never had an item is removed without that. Source: `rget_response_reader_t::unshard` of RethinkDB.
pub(crate) struct Buckets<T> {
    items: [VecDeque<(T, usize)>; BUCKETS as usize],
    /// Which buckets ever had an item.
    seen: [bool; BUCKETS as usize],
    /// The buckets that are not removed, in the order of their turns.
    order: Vec<u8>,
    next_item: usize,
    held_bytes: usize,
}

impl<T> Buckets<T> {
    /// Without items; the first bucket is next.
    pub fn new() -> Buckets<T> {
        let (items, order) = (std::array::from_fn(|_| VecDeque::new()), (0..BUCKETS).collect());
        Buckets { items, seen: Default::default(), order, next_item: 0, held_bytes: 0 }
    }

    /// Adds an item of about `bytes` bytes to a bucket.
    pub fn push(&mut self, bucket: u8, item: T, bytes: usize) {
        let bucket = usize::from(bucket);
        self.held_bytes += bytes;
        self.seen[bucket] = true;
        self.items[bucket].push_back((item, bytes));
    }

    /// The next item. `ended` says that no items are added until all buckets are empty; it must stay true until then.
    pub fn next_item(&mut self, ended: bool) -> Next<T> {
        loop {
            if self.next_item >= self.order.len() {
                self.next_item = 0;
            }
            let Some(bucket) = self.order.get(self.next_item).map(|bucket| usize::from(*bucket)) else {
                return Next::AllEmpty;
            };
            if let Some((item, bytes)) = self.items[bucket].pop_front() {
                self.next_item += 1;
                self.held_bytes -= bytes;
                return Next::Item(item);
            }
            match (ended, self.seen[bucket]) {
                (false, _) => return Next::Empty,
                (true, false) => drop(self.order.remove(self.next_item)),
                (true, true) => {
                    self.order.swap_remove(self.next_item);
                    self.next_item += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use datum::key::{BUCKETS, bucket_of};
    use datum::{Datum, PrimaryKey, Time, json};
    use reql::stream::Items;
    use reql::{Cancel, Env, EvalError, SeededRandom};

    use super::{BucketedItem, BucketedItems, HELD_BYTES_MAX, Interleaved, ROUND_ROWS};
    use crate::table::BucketPosition;

    /// Prepared steps.
    struct Steps(VecDeque<BucketedItem>);

    impl BucketedItems for Steps {
        fn next_bucketed(&mut self, _env: &Env<'_>) -> Result<BucketedItem, EvalError> {
            Ok(self.0.pop_front().unwrap_or(BucketedItem::End))
        }
    }

    static NEVER: Cancel = Cancel::never();
    static RANDOM: SeededRandom = SeededRandom::new(0);

    fn env() -> Env<'static> {
        let (now, array_limit) = (Time::new(0.0, 0), reql::ARRAY_LIMIT_DEFAULT);
        Env { now, array_limit, cancel: &NEVER, random: &RANDOM, globals: &[], open: None }
    }

    fn number(bucket: u8, number: i32) -> BucketedItem {
        BucketedItem::Item(BucketPosition { number: bucket, rows: 1 }, Datum::Number(f64::from(number)))
    }

    fn interleaved(steps: impl IntoIterator<Item = BucketedItem>) -> Interleaved {
        Interleaved::new(Box::new(Steps(steps.into_iter().collect())))
    }

    fn all(mut items: Interleaved) -> Vec<Datum> {
        let env = env();
        std::iter::from_fn(|| items.next(&env).expect("no error")).collect()
    }

    /// `transform/fold.yaml:39` of RethinkDB's suite shows every twentieth row of 0 to 99.
    #[test]
    fn rows_come_in_the_order_of_rethinkdb() {
        let row = |id: i32| {
            let key = PrimaryKey::encode(&Datum::Number(f64::from(id))).expect("a key");
            number(bucket_of(key.as_bytes()), id)
        };
        let rows = all(interleaved((0..100).map(row)));
        assert_eq!(rows.len(), 100);
        let told: Vec<Datum> = rows.iter().step_by(20).cloned().collect();
        assert_eq!(Datum::from(told), json::parse(b"[20,15,46,78,90]").expect("JSON"));
    }

    #[test]
    fn an_empty_bucket_gives_its_turn_to_the_last() {
        // The last bucket, 3, waits for the next turn when 0 leaves.
        let rows = all(interleaved([number(0, 1), number(1, 2), number(1, 3), number(3, 4), number(3, 5)]));
        assert_eq!(Datum::from(rows), json::parse(b"[1,2,4,3,5]").expect("JSON"));
    }

    #[test]
    fn a_round_ends_though_a_bucket_is_always_empty() {
        let nothing = (0..ROUND_ROWS - 1).map(|_| BucketedItem::Skipped(1));
        let steps = [number(7, 1)].into_iter().chain(nothing);
        let mut items = interleaved(steps.chain([number(0, 2)]));
        let env = env();
        assert_eq!(items.next(&env).expect("no error"), Some(Datum::Number(1.0)));
        assert_eq!(items.next(&env).expect("no error"), Some(Datum::Number(2.0)));
        assert_eq!(items.next(&env).expect("no error"), None);
    }

    #[test]
    fn little_is_read_ahead() {
        let round_robin = (0..1000).map(|id| number((id % i32::from(BUCKETS)) as u8, id));
        let mut items = interleaved(round_robin);
        let env = env();
        for id in 0..1000 {
            assert_eq!(items.next(&env).expect("no error"), Some(Datum::Number(f64::from(id))));
            assert_eq!(items.buckets.held_bytes, 0);
        }
    }

    #[test]
    fn nothing_is_lost_when_items_are_too_large_to_be_held() {
        let text = |id: usize| Datum::from(format!("{id:04}{}", "x".repeat(HELD_BYTES_MAX / 7)));
        // The other buckets get items only after they were found empty.
        let number = |id: usize| if id < 20 { [4, 0][id % 2] } else { (id % usize::from(BUCKETS)) as u8 };
        let item = |id: usize| BucketedItem::Item(BucketPosition { number: number(id), rows: 1 }, text(id));
        let mut given = all(interleaved((0..64).map(item)));
        given.sort();
        assert!(given == (0..64).map(text).collect::<Vec<_>>(), "{} items", given.len());
    }

    #[test]
    fn a_round_ends_between_rows() {
        let items = |id: i32| {
            (0..9).map(move |part| {
                let bucket = BucketPosition { number: (id % 8) as u8, rows: u32::from(part == 0) };
                BucketedItem::Item(bucket, Datum::Number(f64::from(id * 10 + part)))
            })
        };
        // A table with fewer rows than a round is interleaved as a whole: each bucket returns its first item first.
        let given = all(interleaved((0..ROUND_ROWS as i32 / 2).flat_map(items)));
        let first: Vec<Datum> = (0..8).map(|id| Datum::Number(f64::from(id * 10))).collect();
        assert_eq!(given[..8], first);
        assert_eq!(given.len(), ROUND_ROWS / 2 * 9);
        let last: Vec<Datum> =
            (0..8).map(|bucket| Datum::Number(f64::from((1016 + bucket) * 10 + 8))).collect();
        assert_eq!(given[given.len() - 8..], last);
    }
}
