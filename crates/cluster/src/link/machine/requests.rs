//! Requests that wait for their responses, by number.

use std::collections::{BTreeSet, VecDeque};

use io::Nanos;

use crate::OnResponse;

/// The queue is compacted only if at least this many slots are empty.
const SETTLED_MIN: usize = 64;

/// A request that waits for its response.
pub(super) struct PendingRequest {
    pub(super) on_response: OnResponse,
    pub(super) deadline: Nanos,
    /// Whether all of it was handed to the network: from then on it may have been carried out.
    pub(super) is_sent: bool,
}

/// The pending requests of one server. Numbers grow across links. Most responses come roughly in the order of the
/// requests, so this is a queue with few empty slots.
pub(super) struct PendingRequests {
    slots: VecDeque<(u64, Option<PendingRequest>)>,
    next_number: u64,
    settled: usize,
    /// A lower bound of all deadlines: the request with the earliest one may be settled already.
    earliest: Nanos,
}

impl Default for PendingRequests {
    fn default() -> PendingRequests {
        PendingRequests { slots: VecDeque::new(), next_number: 1, settled: 0, earliest: NEVER }
    }
}

const NEVER: Nanos = Nanos(u64::MAX);

impl PendingRequests {
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Adds a request with the next number.
    pub(super) fn add(&mut self, on_response: OnResponse, deadline: Nanos) {
        self.earliest = self.earliest.min(deadline);
        let pending = PendingRequest { on_response, deadline, is_sent: false };
        self.slots.push_back((self.next_number, Some(pending)));
        self.next_number += 1;
    }

    /// Removes a request that has a response or has failed; `None` if it was removed before.
    pub(super) fn settle(&mut self, number: u64) -> Option<PendingRequest> {
        let slot = self.slot(number)?;
        let pending = self.slots[slot].1.take()?;
        self.settled += 1;
        while self.slots.front().is_some_and(|(_, pending)| pending.is_none()) {
            self.slots.pop_front();
            self.settled -= 1;
        }
        if self.settled >= SETTLED_MIN && self.settled > self.slots.len() / 2 {
            self.slots.retain(|(_, pending)| pending.is_some());
            self.settled = 0;
        }
        if self.slots.is_empty() {
            self.earliest = NEVER;
        }
        Some(pending)
    }

    /// Notes that all of a request was handed to the network.
    pub(super) fn mark_sent(&mut self, number: u64) {
        if let Some(slot) = self.slot(number)
            && let Some(pending) = &mut self.slots[slot].1
        {
            pending.is_sent = true;
        }
    }

    /// The numbers of the requests with a deadline at or before `now`.
    pub(super) fn expired(&mut self, now: Nanos) -> BTreeSet<u64> {
        if now < self.earliest {
            return BTreeSet::new();
        }
        let waiting = || self.slots.iter().filter_map(|(number, pending)| Some((*number, pending.as_ref()?)));
        let expired =
            waiting().filter(|(_, pending)| pending.deadline <= now).map(|(number, _)| number).collect();
        let later = waiting().map(|(_, pending)| pending.deadline).filter(|at| *at > now);
        self.earliest = later.min().unwrap_or(NEVER);
        expired
    }

    /// The earliest time at which a request may expire.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        (self.earliest != NEVER).then_some(self.earliest)
    }

    /// Removes all requests and returns them in the order of their numbers.
    pub(super) fn take_all(&mut self) -> Vec<PendingRequest> {
        let empty = PendingRequests { next_number: self.next_number, ..PendingRequests::default() };
        let taken = std::mem::replace(self, empty);
        taken.slots.into_iter().filter_map(|(_, pending)| pending).collect()
    }

    fn slot(&self, number: u64) -> Option<usize> {
        let (first, _) = self.slots.front()?;
        // This is the position unless slots before it were removed by compaction.
        let expected = usize::try_from(number.checked_sub(*first)?).ok()?;
        if self.slots.get(expected).is_some_and(|(known, _)| *known == number) {
            return Some(expected);
        }
        self.slots.binary_search_by_key(&number, |(known, _)| *known).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(requests: &mut PendingRequests, deadline: u64) {
        requests.add(Box::new(|_| ()), Nanos(deadline));
    }

    #[test]
    fn each_request_is_settled_once_in_any_order() {
        let mut requests = PendingRequests::default();
        for number in 1..=100 {
            add(&mut requests, 1000 + number);
        }
        for number in (1..=100).rev() {
            assert!(requests.settle(number).is_some_and(|pending| pending.deadline == Nanos(1000 + number)));
            assert!(requests.settle(number).is_none());
        }
        assert!(requests.take_all().is_empty());
        assert_eq!(requests.next_deadline(), None);
    }

    #[test]
    fn pending_requests_are_found_after_compaction() {
        let mut requests = PendingRequests::default();
        for number in 1..=300 {
            add(&mut requests, number);
        }
        let (pending, settled): (Vec<u64>, Vec<u64>) = (1..=300).partition(|number| number % 3 == 0);
        for number in settled.into_iter().chain(pending) {
            let pending = requests.settle(number).map(|pending| pending.deadline);
            assert_eq!(pending, Some(Nanos(number)), "{number}");
        }
    }

    #[test]
    fn numbers_grow_across_links() {
        let mut requests = PendingRequests::default();
        add(&mut requests, 10);
        assert_eq!(requests.take_all().len(), 1);
        add(&mut requests, 20);
        assert!(requests.settle(1).is_none(), "the response to a request of the previous link");
        assert!(requests.settle(2).is_some_and(|pending| pending.deadline == Nanos(20)));
    }

    #[test]
    fn a_request_that_waits_for_long_does_not_keep_the_slots_of_others() {
        let mut requests = PendingRequests::default();
        add(&mut requests, u64::MAX - 1);
        for number in 2..10_000 {
            add(&mut requests, 5);
            assert!(requests.settle(number).is_some_and(|pending| pending.deadline == Nanos(5)), "{number}");
            assert!(requests.slots.len() <= 2 * SETTLED_MIN, "{} slots", requests.slots.len());
        }
        requests.mark_sent(1);
        let left = requests.take_all();
        assert!(left.len() == 1 && left[0].is_sent);
    }

    #[test]
    fn requests_expire_at_their_deadlines() {
        let mut requests = PendingRequests::default();
        for deadline in [30, 10, 20, 10] {
            add(&mut requests, deadline);
        }
        assert!(requests.settle(4).is_some());
        assert!(requests.expired(Nanos(9)).is_empty());
        assert_eq!(requests.next_deadline(), Some(Nanos(10)));
        assert_eq!(requests.expired(Nanos(20)), BTreeSet::from([2, 3]));
        assert_eq!(requests.next_deadline(), Some(Nanos(30)));
    }
}
