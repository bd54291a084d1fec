//! Rows that nobody ordered, as RethinkDB gives them: out of eight hands in turns.
//!
//! The items of a stretch of rows are held until their turn comes. A stretch ends after so many rows or bytes, so that
//! little is held and a filter that keeps rows of one hand only does not make the whole table be read for the next
//! turn. Decision 0042.

use std::collections::VecDeque;

use datum::Datum;
use datum::key::BUCKETS;
use reql::stream::Items;
use reql::{Env, EvalError};

use crate::order::{Handed, HandedItems};

/// Rows that are looked at in a stretch.
pub(crate) const STRETCH_ROWS: usize = 2048;
/// Bytes that are held, roughly, before a stretch ends.
const HELD_BYTES_MAX: usize = 512 << 10;

/// The items of a sequence without an order, dealt out.
pub(crate) struct Dealt {
    source: Box<dyn HandedItems>,
    hands: Hands<Datum>,
    /// Rows looked at since the stretch began.
    rows: usize,
    /// Whether nothing is added to the hands any more before all are empty.
    stretch_ended: bool,
    source_ended: bool,
}

impl Dealt {
    /// What `source` gives, hand by hand in turns.
    pub fn new(source: Box<dyn HandedItems>) -> Dealt {
        Dealt { source, hands: Hands::new(), rows: 0, stretch_ended: false, source_ended: false }
    }

    /// Begins the next stretch: all hands were given out.
    fn begin_stretch(&mut self) {
        // Rows of which nothing was made may have come many at a time.
        self.rows = self.rows.saturating_sub(STRETCH_ROWS);
        self.stretch_ended = false;
        self.hands = Hands::new();
    }

    /// Takes one more step on the way through the rows.
    fn read_on(&mut self, env: &Env<'_>) -> Result<(), EvalError> {
        match self.source.next_handed(env)? {
            Handed::Item(hand, item) => {
                self.rows += hand.rows as usize;
                let bytes = item.json_size_to(HELD_BYTES_MAX);
                self.hands.hold(hand.number, item, bytes);
            }
            Handed::Nothing(rows) => self.rows += rows,
            Handed::End => self.source_ended = true,
        }
        Ok(())
    }
}

impl Items for Dealt {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            self.stretch_ended |=
                self.source_ended || self.rows >= STRETCH_ROWS || self.hands.held_bytes >= HELD_BYTES_MAX;
            match self.hands.turn(self.stretch_ended) {
                Turn::Given(item) => return Ok(Some(item)),
                Turn::Waits => {
                    env.check_cancel()?;
                    self.read_on(env)?;
                }
                Turn::Over if self.source_ended => return Ok(None),
                Turn::Over => self.begin_stretch(),
            }
        }
    }
}

/// What a turn came to.
pub(crate) enum Turn<T> {
    /// The next item.
    Given(T),
    /// The hand whose turn it is is empty, and may get more.
    Waits,
    /// All hands are empty.
    Over,
}

/// The items that are held, and whose turn it is.
///
/// A hand whose turn comes when it is empty leaves, and the last one takes its seat and waits for the next round. A hand
/// that never had anything was never there. Source: `rget_response_reader_t::unshard` of RethinkDB.
pub(crate) struct Hands<T> {
    items: [VecDeque<(T, usize)>; BUCKETS as usize],
    /// Those that ever had something.
    seen: [bool; BUCKETS as usize],
    /// Those that are dealt out of, in the order of their turns.
    seats: Vec<u8>,
    turn: usize,
    held_bytes: usize,
}

impl<T> Hands<T> {
    /// Nothing is held, and the first hand is to give.
    pub fn new() -> Hands<T> {
        let (items, seats) = (std::array::from_fn(|_| VecDeque::new()), (0..BUCKETS).collect());
        Hands { items, seen: Default::default(), seats, turn: 0, held_bytes: 0 }
    }

    /// Adds an item of about so many bytes to a hand.
    pub fn hold(&mut self, hand: u8, item: T, bytes: usize) {
        let hand = usize::from(hand);
        self.held_bytes += bytes;
        self.seen[hand] = true;
        self.items[hand].push_back((item, bytes));
    }

    /// The next item; `ended` says that nothing is added any more, and is said again until all hands are empty.
    pub fn turn(&mut self, ended: bool) -> Turn<T> {
        loop {
            if self.turn >= self.seats.len() {
                self.turn = 0;
            }
            let Some(hand) = self.seats.get(self.turn).map(|hand| usize::from(*hand)) else {
                return Turn::Over;
            };
            if let Some((item, bytes)) = self.items[hand].pop_front() {
                self.turn += 1;
                self.held_bytes -= bytes;
                return Turn::Given(item);
            }
            match (ended, self.seen[hand]) {
                (false, _) => return Turn::Waits,
                (true, false) => drop(self.seats.remove(self.turn)),
                (true, true) => {
                    self.seats.swap_remove(self.turn);
                    self.turn += 1;
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

    use super::{Dealt, HELD_BYTES_MAX, Handed, HandedItems, STRETCH_ROWS};
    use crate::order::Hand;

    /// Steps that were laid out beforehand.
    struct Steps(VecDeque<Handed>);

    impl HandedItems for Steps {
        fn next_handed(&mut self, _env: &Env<'_>) -> Result<Handed, EvalError> {
            Ok(self.0.pop_front().unwrap_or(Handed::End))
        }
    }

    static NEVER: Cancel = Cancel::never();
    static RANDOM: SeededRandom = SeededRandom::new(0);

    fn env() -> Env<'static> {
        let (now, array_limit) = (Time::new(0.0, 0), reql::ARRAY_LIMIT_DEFAULT);
        Env { now, array_limit, cancel: &NEVER, random: &RANDOM, globals: &[], open: None }
    }

    fn number(hand: u8, number: i32) -> Handed {
        Handed::Item(Hand { number: hand, rows: 1 }, Datum::Number(f64::from(number)))
    }

    fn dealt(steps: impl IntoIterator<Item = Handed>) -> Dealt {
        Dealt::new(Box::new(Steps(steps.into_iter().collect())))
    }

    fn all(mut items: Dealt) -> Vec<Datum> {
        let env = env();
        std::iter::from_fn(|| items.next(&env).expect("no error")).collect()
    }

    /// `transform/fold.yaml:39` of RethinkDB's suite tells every twentieth row of 0 to 99.
    #[test]
    fn rows_come_as_rethinkdb_gives_them() {
        let row = |id: i32| {
            let key = PrimaryKey::encode(&Datum::Number(f64::from(id))).expect("a key");
            number(bucket_of(key.as_bytes()), id)
        };
        let rows = all(dealt((0..100).map(row)));
        assert_eq!(rows.len(), 100);
        let told: Vec<Datum> = rows.iter().step_by(20).cloned().collect();
        assert_eq!(Datum::from(told), json::parse(b"[20,15,46,78,90]").expect("JSON"));
    }

    #[test]
    fn a_hand_that_is_empty_gives_its_seat_to_the_last() {
        // The last one, 3, waits for the next round when 0 leaves.
        let rows = all(dealt([number(0, 1), number(1, 2), number(1, 3), number(3, 4), number(3, 5)]));
        assert_eq!(Datum::from(rows), json::parse(b"[1,2,4,3,5]").expect("JSON"));
    }

    #[test]
    fn a_stretch_ends_though_a_hand_never_has_anything() {
        let nothing = (0..STRETCH_ROWS - 1).map(|_| Handed::Nothing(1));
        let steps = [number(7, 1)].into_iter().chain(nothing);
        let mut items = dealt(steps.chain([number(0, 2)]));
        let env = env();
        assert_eq!(items.next(&env).expect("no error"), Some(Datum::Number(1.0)));
        assert_eq!(items.next(&env).expect("no error"), Some(Datum::Number(2.0)));
        assert_eq!(items.next(&env).expect("no error"), None);
    }

    #[test]
    fn little_is_read_ahead() {
        let in_turns = (0..1000).map(|id| number((id % i32::from(BUCKETS)) as u8, id));
        let mut items = dealt(in_turns);
        let env = env();
        for id in 0..1000 {
            assert_eq!(items.next(&env).expect("no error"), Some(Datum::Number(f64::from(id))));
            assert_eq!(items.hands.held_bytes, 0);
        }
    }

    #[test]
    fn nothing_is_lost_when_items_are_too_large_to_be_held() {
        let text = |id: usize| Datum::from(format!("{id:04}{}", "x".repeat(HELD_BYTES_MAX / 7)));
        // The other hands get something only after they were found empty.
        let number = |id: usize| if id < 20 { [4, 0][id % 2] } else { (id % usize::from(BUCKETS)) as u8 };
        let item = |id: usize| Handed::Item(Hand { number: number(id), rows: 1 }, text(id));
        let mut given = all(dealt((0..64).map(item)));
        given.sort();
        assert!(given == (0..64).map(text).collect::<Vec<_>>(), "{} items", given.len());
    }

    #[test]
    fn a_stretch_ends_where_rows_do_and_not_items() {
        let items = |id: i32| {
            (0..9).map(move |part| {
                let hand = Hand { number: (id % 8) as u8, rows: u32::from(part == 0) };
                Handed::Item(hand, Datum::Number(f64::from(id * 10 + part)))
            })
        };
        // All of a table of fewer rows than a stretch is dealt as one: each hand gives its first item first.
        let given = all(dealt((0..STRETCH_ROWS as i32 / 2).flat_map(items)));
        let first: Vec<Datum> = (0..8).map(|id| Datum::Number(f64::from(id * 10))).collect();
        assert_eq!(given[..8], first);
        assert_eq!(given.len(), STRETCH_ROWS / 2 * 9);
        let last: Vec<Datum> = (0..8).map(|hand| Datum::Number(f64::from((1016 + hand) * 10 + 8))).collect();
        assert_eq!(given[given.len() - 8..], last);
    }
}
