//! The first entries of a sequence in an order, kept up to date as entries come and go.
//!
//! The window also has some of the entries that follow, so that most entries that leave are replaced without reading the
//! table. When these are used up, the caller reads the sequence again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use datum::{Datum, PrimaryKey};

/// The place of an entry: the value of the index, the row's key, and which of the row's entries with that value it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub value: Datum,
    pub key: PrimaryKey,
    pub nth: u32,
}

/// An entry that left the first ones, or joined them, with its offset among them at that moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moved {
    pub place: Place,
    pub row: Datum,
    pub offset: usize,
}

/// One step of a client that keeps the first entries: it removes the entry that left, then inserts the one that entered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exchange {
    pub left: Option<Moved>,
    pub entered: Option<Moved>,
}

/// The effect of changes on the first entries.
#[derive(Default)]
struct Shift {
    left: Vec<(Place, Datum)>,
    entered: Vec<(Place, Datum)>,
}

/// The first entries of a sequence, and some that follow.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    is_descending: bool,
    /// The first `size` entries, or all of them.
    first: BTreeMap<Place, Datum>,
    /// The entries that follow these, up to some place.
    spare: BTreeMap<Place, Datum>,
    /// Whether these are all entries of the sequence.
    is_complete: bool,
    /// What happened to the first entries since the last [`Window::take_exchanges`].
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Left(Place, Datum),
    Entered(Place, Datum),
}

/// How many further entries are kept, at least.
const SPARE_MIN: usize = 20;

impl Window {
    /// An empty sequence.
    pub fn new(size: usize, is_descending: bool) -> Window {
        Window {
            size,
            is_descending,
            first: BTreeMap::new(),
            spare: BTreeMap::new(),
            is_complete: true,
            steps: Vec::new(),
        }
    }

    /// The first entries, in order.
    pub fn rows(&self) -> Vec<(PrimaryKey, Datum)> {
        let row = |(place, row): (&Place, &Datum)| (place.key.clone(), row.clone());
        match self.is_descending {
            false => self.first.iter().map(row).collect(),
            true => self.first.iter().rev().map(row).collect(),
        }
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// How many further entries may be held.
    pub fn spare_max(&self) -> usize {
        2 * self.size.max(SPARE_MIN)
    }

    /// Forgets the entries after `last`: there may be others.
    pub fn cut_after(&mut self, last: &Place) {
        self.cut(|window, place| window.is_before(last, place));
    }

    /// Forgets the entries with this value, and those after them: there may be others.
    pub fn cut_at_value(&mut self, value: &Datum) {
        self.cut(|window, place| match window.is_descending {
            false => place.value >= *value,
            true => place.value <= *value,
        });
    }

    fn cut(&mut self, is_gone: impl Fn(&Window, &Place) -> bool) {
        self.is_complete = false;
        let gone: Vec<Place> = self.spare.keys().filter(|place| is_gone(self, place)).cloned().collect();
        gone.iter().for_each(|place| drop(self.spare.remove(place)));
        let gone: Vec<Place> = self.first.keys().filter(|place| is_gone(self, place)).cloned().collect();
        for place in gone {
            if let Some(row) = self.first.remove(&place) {
                self.steps.push(Step::Left(place, row));
            }
        }
    }

    /// Whether entries that follow must be read before the first ones are known: [`Window::begin_refill`].
    pub fn needs_more(&self) -> bool {
        self.first.len() < self.size && !self.is_complete
    }

    /// Adds an entry of the sequence.
    pub fn insert(&mut self, place: Place, row: Datum) {
        let last = self.last_of(&self.spare).or_else(|| self.last_of(&self.first));
        if !self.is_complete && last.is_none_or(|last| self.is_before(last, &place)) {
            // It follows entries that are not known here.
            return;
        }
        let is_first = self.first.len() < self.size
            || self.last_of(&self.first).is_some_and(|last| self.is_before(&place, last));
        if !is_first {
            self.spare.insert(place, row);
        } else {
            self.enter(place, row);
            if self.first.len() > self.size
                && let Some((place, row)) = pop_last(&mut self.first, self.is_descending)
            {
                self.steps.push(Step::Left(place.clone(), row.clone()));
                self.spare.insert(place, row);
            }
        }
        let spare_max = self.spare_max();
        if self.spare.len() > spare_max {
            self.is_complete = false;
            while self.spare.len() > spare_max / 2 {
                drop(pop_last(&mut self.spare, self.is_descending));
            }
        }
    }

    /// Removes an entry of the sequence.
    pub fn remove(&mut self, place: &Place) {
        self.spare.remove(place);
        if let Some(row) = self.first.remove(place) {
            self.steps.push(Step::Left(place.clone(), row));
            if let Some((place, row)) = pop_last(&mut self.spare, !self.is_descending) {
                self.enter(place, row);
            }
        }
    }

    /// Forgets all entries: every entry of the sequence, as it is now, follows with [`Window::insert`].
    pub fn begin_refill(&mut self) {
        self.is_complete = true;
        for (place, row) in std::mem::take(&mut self.first) {
            self.steps.push(Step::Left(place, row));
        }
        self.spare.clear();
    }

    /// The effect of everything since the last call, as steps that a client applies one after another. A row that stays among the
    /// first ones has one step; each other one that left has that of the row that has its place now, if there is one.
    pub fn take_exchanges(&mut self) -> Vec<Exchange> {
        let Shift { mut left, mut entered } = self.take_shift();
        // The client has entries that the window no longer has, and lacks some that it has.
        let places = |some: &[(Place, Datum)]| some.iter().map(|(place, _)| place.clone()).collect();
        let (mut extra, mut missing): (BTreeSet<Place>, BTreeSet<Place>) = (places(&left), places(&entered));
        let both: Vec<Place> = extra.intersection(&missing).cloned().collect();
        for place in &both {
            extra.remove(place);
            missing.remove(place);
        }
        let mut pairs = Vec::with_capacity(left.len().max(entered.len()));
        left.retain(|gone| match entered.iter().position(|come| come.0.key == gone.0.key) {
            Some(at) => {
                pairs.push((Some(gone.clone()), Some(entered.remove(at))));
                false
            }
            None => true,
        });
        let (mut left, mut entered) = (left.into_iter(), entered.into_iter());
        pairs.extend(std::iter::from_fn(|| match (left.next(), entered.next()) {
            (None, None) => None,
            pair => Some(pair),
        }));
        let mut exchanges = Vec::with_capacity(pairs.len());
        for (left, entered) in pairs {
            let left = left.map(|(place, row)| {
                let offset = self.client_offset(&place, &extra, &missing);
                if !extra.remove(&place) {
                    missing.insert(place.clone());
                }
                Moved { place, row, offset }
            });
            let entered = entered.map(|(place, row)| {
                let offset = self.client_offset(&place, &extra, &missing);
                missing.remove(&place);
                Moved { place, row, offset }
            });
            exchanges.push(Exchange { left, entered });
        }
        exchanges
    }

    /// The offset of a place for a client that has `extra` entries, and lacks the `missing` ones.
    fn client_offset(&self, place: &Place, extra: &BTreeSet<Place>, missing: &BTreeSet<Place>) -> usize {
        let earlier =
            |places: &BTreeSet<Place>| places.iter().filter(|other| self.is_before(other, place)).count();
        self.count_before(place) + earlier(extra) - earlier(missing)
    }

    fn take_shift(&mut self) -> Shift {
        // For each place the row at the beginning, if it was among the first entries, and the row now.
        let mut effects: BTreeMap<Place, (Option<Datum>, Option<Datum>)> = BTreeMap::new();
        for step in std::mem::take(&mut self.steps) {
            match step {
                Step::Left(place, row) => match effects.get_mut(&place) {
                    Some((_, now)) => *now = None,
                    None => drop(effects.insert(place, (Some(row), None))),
                },
                Step::Entered(place, row) => effects.entry(place).or_insert((None, None)).1 = Some(row),
            }
        }
        let mut shift = Shift::default();
        for (place, (before, now)) in effects.into_iter().filter(|(_, (before, now))| before != now) {
            shift.left.extend(before.map(|row| (place.clone(), row)));
            shift.entered.extend(now.map(|row| (place, row)));
        }
        shift
    }

    /// Forgets what happened since the last [`Window::take_exchanges`].
    pub fn forget_shift(&mut self) {
        self.steps.clear();
    }

    fn enter(&mut self, place: Place, row: Datum) {
        self.steps.push(Step::Entered(place.clone(), row.clone()));
        self.first.insert(place, row);
    }

    /// How many of the first entries come before `place`.
    fn count_before(&self, place: &Place) -> usize {
        match self.is_descending {
            false => self.first.range(..place).count(),
            true => self.first.range((Bound::Excluded(place), Bound::Unbounded)).count(),
        }
    }

    /// Whether `a` comes before `b` in the order of the window.
    fn is_before(&self, a: &Place, b: &Place) -> bool {
        if self.is_descending { a > b } else { a < b }
    }

    fn last_of<'a>(&self, entries: &'a BTreeMap<Place, Datum>) -> Option<&'a Place> {
        let last = if self.is_descending { entries.first_key_value() } else { entries.last_key_value() };
        last.map(|(place, _)| place)
    }
}

/// Removes the last entry in the order of the window.
fn pop_last(entries: &mut BTreeMap<Place, Datum>, is_descending: bool) -> Option<(Place, Datum)> {
    if is_descending { entries.pop_first() } else { entries.pop_last() }
}

#[cfg(test)]
mod tests {
    use datum::Bytes;
    use io::sim::SimRandom;

    use super::*;

    fn place(value: u64, key: u64) -> Place {
        let key = PrimaryKey(Bytes::copy_from_slice(&key.to_be_bytes()));
        Place { value: Datum::Number(value as f64), key, nth: 0 }
    }

    /// Applies every step to the entries that a client has.
    fn apply(known: &mut Vec<(PrimaryKey, Datum)>, exchanges: Vec<Exchange>) {
        for Exchange { left, entered } in exchanges {
            if let Some(Moved { place, row, offset }) = left {
                assert_eq!(known.remove(offset), (place.key, row));
            }
            if let Some(Moved { place, row, offset }) = entered {
                known.insert(offset, (place.key, row));
            }
        }
    }

    #[test]
    fn a_window_is_the_start_of_the_sequence_after_each_of_many_changes() {
        let random = SimRandom::new(7);
        for (size, is_descending) in [(1, false), (3, true), (10, false), (10, true)] {
            let mut all: BTreeMap<Place, Datum> = BTreeMap::new();
            let mut window = Window::new(size, is_descending);
            let (mut known, mut refills) = (Vec::new(), 0);
            for change in 0..20_000_u64 {
                // Ties are frequent, and rows at the edge are deleted often.
                let key = random.below(600);
                let old: Vec<Place> = all.keys().filter(|p| p.key == place(0, key).key).cloned().collect();
                let new = (random.below(3) > 0).then(|| place(random.below(40), key));
                for place in &old {
                    all.remove(place);
                    window.remove(place);
                }
                if let Some(place) = new {
                    all.insert(place.clone(), Datum::Number(change as f64));
                    window.insert(place, Datum::Number(change as f64));
                }
                if window.needs_more() {
                    refills += 1;
                    window.begin_refill();
                    let most = window.size() + window.spare_max();
                    let in_order: Vec<_> = match is_descending {
                        false => all.iter().take(most).collect(),
                        true => all.iter().rev().take(most).collect(),
                    };
                    for (place, row) in &in_order {
                        window.insert((*place).clone(), (*row).clone());
                    }
                    match in_order.last().filter(|_| in_order.len() == most) {
                        Some((last, _)) if random.one_in(2) => window.cut_after(last),
                        // Entries with the same value may follow that were not inserted.
                        Some((last, _)) => window.cut_at_value(&last.value),
                        None => {}
                    }
                }
                // A client that squashes changes has the steps of several at once.
                if random.below(4) > 0 {
                    continue;
                }
                apply(&mut known, window.take_exchanges());
                let row = |(place, row): (&Place, &Datum)| (place.key.clone(), row.clone());
                let expected: Vec<_> = match is_descending {
                    false => all.iter().take(size).map(row).collect(),
                    true => all.iter().rev().take(size).map(row).collect(),
                };
                assert_eq!(window.rows(), expected, "change {change}");
                assert_eq!(known, expected, "change {change}");
            }
            assert!(refills < 2000, "{refills} refills for {size}");
        }
    }
}
