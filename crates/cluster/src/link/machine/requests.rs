//! Questions that wait for their answers, by number.

use std::collections::{BTreeSet, VecDeque};

use io::Nanos;

use crate::OnResponse;

/// Fewer places of settled requests than this are not worth tidying up.
const SETTLED_MIN: usize = 64;

/// A request that waits for its answer.
pub(super) struct Pending {
    pub(super) on_response: OnResponse,
    pub(super) deadline: Nanos,
    /// Whether all of it was handed to the network: from then on it may have been carried out.
    pub(super) has_left: bool,
}

/// What was asked of one server and is not settled. Numbers only grow, also from one link to the next, and most answers
/// come in about the order of the requests, so that this is a queue in which few places are empty.
pub(super) struct Questions {
    places: VecDeque<(u64, Option<Pending>)>,
    number_next: u64,
    settled: usize,
    /// No deadline is earlier; the request that had this one may be settled.
    earliest: Nanos,
}

impl Default for Questions {
    fn default() -> Questions {
        Questions { places: VecDeque::new(), number_next: 1, settled: 0, earliest: NEVER }
    }
}

const NEVER: Nanos = Nanos(u64::MAX);

impl Questions {
    /// The number that the next one will have.
    pub(super) fn number_next(&self) -> u64 {
        self.number_next
    }

    /// Adds one, which has the next number.
    pub(super) fn add(&mut self, on_response: OnResponse, deadline: Nanos) {
        self.earliest = self.earliest.min(deadline);
        let pending = Pending { on_response, deadline, has_left: false };
        self.places.push_back((self.number_next, Some(pending)));
        self.number_next += 1;
    }

    /// The request is over, one way or the other; `None` if it was before.
    pub(super) fn settle(&mut self, number: u64) -> Option<Pending> {
        let place = self.place(number)?;
        let pending = self.places[place].1.take()?;
        self.settled += 1;
        while self.places.front().is_some_and(|(_, pending)| pending.is_none()) {
            self.places.pop_front();
            self.settled -= 1;
        }
        if self.settled >= SETTLED_MIN && self.settled > self.places.len() / 2 {
            self.places.retain(|(_, pending)| pending.is_some());
            self.settled = 0;
        }
        if self.places.is_empty() {
            self.earliest = NEVER;
        }
        Some(pending)
    }

    /// All of it was handed to the network.
    pub(super) fn has_left(&mut self, number: u64) {
        if let Some(place) = self.place(number)
            && let Some(pending) = &mut self.places[place].1
        {
            pending.has_left = true;
        }
    }

    /// The numbers of those whose time is up at `now`.
    pub(super) fn late(&mut self, now: Nanos) -> BTreeSet<u64> {
        if now < self.earliest {
            return BTreeSet::new();
        }
        let waiting =
            || self.places.iter().filter_map(|(number, pending)| Some((*number, pending.as_ref()?)));
        let late =
            waiting().filter(|(_, pending)| pending.deadline <= now).map(|(number, _)| number).collect();
        let later = waiting().map(|(_, pending)| pending.deadline).filter(|at| *at > now);
        self.earliest = later.min().unwrap_or(NEVER);
        late
    }

    /// When somebody's time may be up next.
    pub(super) fn late_at(&self) -> Option<Nanos> {
        (self.earliest != NEVER).then_some(self.earliest)
    }

    /// All of them, in their order; none is left.
    pub(super) fn take_all(&mut self) -> Vec<Pending> {
        let left = Questions { number_next: self.number_next, ..Questions::default() };
        let taken = std::mem::replace(self, left);
        taken.places.into_iter().filter_map(|(_, pending)| pending).collect()
    }

    fn place(&self, number: u64) -> Option<usize> {
        let (first, _) = self.places.front()?;
        // It stands here unless places before it were tidied up.
        let nearly = usize::try_from(number.checked_sub(*first)?).ok()?;
        if self.places.get(nearly).is_some_and(|(known, _)| *known == number) {
            return Some(nearly);
        }
        self.places.binary_search_by_key(&number, |(known, _)| *known).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(requests: &mut Questions, deadline: u64) {
        requests.add(Box::new(|_| ()), Nanos(deadline));
    }

    #[test]
    fn each_is_settled_once_in_any_order() {
        let mut requests = Questions::default();
        for number in 1..=100 {
            add(&mut requests, 1000 + number);
        }
        for number in (1..=100).rev() {
            assert!(requests.settle(number).is_some_and(|pending| pending.deadline == Nanos(1000 + number)));
            assert!(requests.settle(number).is_none());
        }
        assert!(requests.take_all().is_empty());
        assert_eq!(requests.late_at(), None);
    }

    #[test]
    fn those_that_are_left_when_places_were_tidied_up_are_found() {
        let mut requests = Questions::default();
        for number in 1..=300 {
            add(&mut requests, number);
        }
        let (left, settled): (Vec<u64>, Vec<u64>) = (1..=300).partition(|number| number % 3 == 0);
        for number in settled.into_iter().chain(left) {
            let pending = requests.settle(number).map(|pending| pending.deadline);
            assert_eq!(pending, Some(Nanos(number)), "{number}");
        }
    }

    #[test]
    fn numbers_grow_from_one_link_to_the_next() {
        let mut requests = Questions::default();
        add(&mut requests, 10);
        assert_eq!(requests.take_all().len(), 1);
        add(&mut requests, 20);
        assert!(requests.settle(1).is_none(), "the answer to a request of the link before");
        assert!(requests.settle(2).is_some_and(|pending| pending.deadline == Nanos(20)));
    }

    #[test]
    fn one_that_waits_for_long_keeps_no_room_of_others() {
        let mut requests = Questions::default();
        add(&mut requests, u64::MAX - 1);
        for number in 2..10_000 {
            add(&mut requests, 5);
            assert!(requests.settle(number).is_some_and(|pending| pending.deadline == Nanos(5)), "{number}");
            assert!(requests.places.len() <= 2 * SETTLED_MIN, "{} places", requests.places.len());
        }
        requests.has_left(1);
        let left = requests.take_all();
        assert!(left.len() == 1 && left[0].has_left);
    }

    #[test]
    fn those_are_late_whose_time_is_up() {
        let mut requests = Questions::default();
        for deadline in [30, 10, 20, 10] {
            add(&mut requests, deadline);
        }
        assert!(requests.settle(4).is_some());
        assert!(requests.late(Nanos(9)).is_empty());
        assert_eq!(requests.late_at(), Some(Nanos(10)));
        assert_eq!(requests.late(Nanos(20)), BTreeSet::from([2, 3]));
        assert_eq!(requests.late_at(), Some(Nanos(30)));
    }
}
