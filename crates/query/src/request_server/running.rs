//! Running requests of other nodes, by the number to cancel them by.
//!
//! A request is registered when it arrives, before it waits for a thread, since its cancellation may follow right
//! behind it on the same link. A cancellation can even overtake a long request, which arrives in parts, so
//! cancellations of requests that have not arrived are remembered. Numbers do not tell whether a request has arrived:
//! several threads of the sender take numbers before they send, also for other servers. So the numbers of arrived
//! requests are remembered as well.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use cluster::ServerId;
use parking_lot::Mutex;
use reql::Cancel;

/// The sender, and its number of the request.
pub(super) type RequestKey = (ServerId, u64);

/// Most numbers that are remembered per server, for cancellations and for arrived requests; the oldest are dropped
/// first.
const RECENT_NUMBERS_MAX: usize = 4096;

/// The requests that can be cancelled.
#[derive(Default)]
pub(super) struct RunningRequests(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    running: HashMap<RequestKey, Arc<Cancel>>,
    history: HashMap<ServerId, PeerHistory>,
}

/// The numbers of one server on its present link.
#[derive(Default)]
struct PeerHistory {
    /// Requests that have arrived: a cancellation of one is not early.
    arrived: RecentNumbers,
    /// Cancellations of requests that have not arrived.
    early: RecentNumbers,
}

/// The last numbers of one kind.
#[derive(Default)]
struct RecentNumbers {
    numbers: HashSet<u64>,
    /// The same numbers in the order of their arrival.
    order: VecDeque<u64>,
}

/// A request that can be cancelled until this is dropped.
pub(super) struct RunningRequest {
    running: Arc<RunningRequests>,
    key: RequestKey,
    /// Set by the cancellation.
    pub cancel: Arc<Cancel>,
}

impl RunningRequests {
    /// Registers a request, which a cancellation then stops through `cancel`. If the cancellation came first, `cancel`
    /// is set at once.
    pub fn register(self: &Arc<Self>, key: RequestKey, cancel: Arc<Cancel>) -> RunningRequest {
        let mut known = self.0.lock();
        let (server, number) = key;
        let history = known.history.entry(server).or_default();
        history.arrived.add(number);
        if history.early.take(number) {
            cancel.set();
        }
        known.running.insert(key, cancel.clone());
        RunningRequest { running: self.clone(), key, cancel }
    }

    /// Cancels a running request. Returns false if it is not running.
    pub fn cancel(&self, key: RequestKey) -> bool {
        let known = self.0.lock();
        let cancel = known.running.get(&key);
        cancel.inspect(|cancel| cancel.set()).is_some()
    }

    /// Remembers the cancellation of a request that has not arrived. A request that has arrived before is done.
    pub fn cancel_early(&self, (server, number): RequestKey) {
        let mut known = self.0.lock();
        let history = known.history.entry(server).or_default();
        if !history.arrived.numbers.contains(&number) {
            history.early.add(number);
        }
    }

    /// Cancels all requests of `server`, whose link is closed: none of them arrives any more.
    pub fn cancel_all(&self, server: ServerId) {
        let mut known = self.0.lock();
        let of_server = |(owner, _): &RequestKey| *owner == server;
        known.running.iter().filter(|(key, _)| of_server(key)).for_each(|(_, cancel)| cancel.set());
        known.history.remove(&server);
    }
}

impl RecentNumbers {
    fn add(&mut self, number: u64) {
        if !self.numbers.insert(number) {
            return;
        }
        self.order.push_back(number);
        if self.order.len() > RECENT_NUMBERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.numbers.remove(&oldest);
        }
    }

    /// Removes a number. Returns whether it was there.
    fn take(&mut self, number: u64) -> bool {
        let is_there = self.numbers.remove(&number);
        if is_there {
            self.order.retain(|other| *other != number);
        }
        is_there
    }
}

impl RunningRequest {
    /// The sender and the number.
    pub fn key(&self) -> RequestKey {
        self.key
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.running.0.lock().running.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn server(n: u128) -> ServerId {
        ServerId(Uuid::from_u128(n))
    }

    fn is_stopped(running: &Arc<RunningRequests>, key: RequestKey) -> bool {
        running.register(key, Arc::default()).cancel.is_set()
    }

    #[test]
    fn a_request_overtaken_by_its_cancellation_is_cancelled_once() {
        let running = Arc::<RunningRequests>::default();
        let key = (server(1), 7);
        assert!(!running.cancel(key));
        running.cancel_early(key);
        assert!(!is_stopped(&running, (server(2), 7)), "of another server");
        assert!(is_stopped(&running, key));
        assert!(!is_stopped(&running, key));
        let request = running.register(key, Arc::default());
        assert!(running.cancel(key) && request.cancel.is_set());
    }

    #[test]
    fn early_cancellations_are_dropped_in_time() {
        let running = Arc::<RunningRequests>::default();
        (0..=RECENT_NUMBERS_MAX as u64).for_each(|number| running.cancel_early((server(1), number)));
        assert!(!is_stopped(&running, (server(1), 0)), "beyond their number");
        assert!(is_stopped(&running, (server(1), 1)));
        running.cancel_all(server(1));
        assert!(!is_stopped(&running, (server(1), 2)), "with their server");
    }

    #[test]
    fn early_cancellations_of_one_server_do_not_displace_those_of_another() {
        let running = Arc::<RunningRequests>::default();
        running.cancel_early((server(1), 7));
        (0..2 * RECENT_NUMBERS_MAX as u64).for_each(|number| running.cancel_early((server(2), number)));
        assert!(is_stopped(&running, (server(1), 7)));
    }

    #[test]
    fn late_cancellations_are_not_remembered() {
        let running = Arc::<RunningRequests>::default();
        running.cancel_early((server(1), 0));
        for number in 1..RECENT_NUMBERS_MAX as u64 {
            drop(running.register((server(1), number), Arc::default()));
            assert!(!running.cancel((server(1), number)));
            running.cancel_early((server(1), number));
        }
        let early = |known: &Requests| known.history[&server(1)].early.order.clone();
        assert_eq!(early(&running.0.lock()), [0]);
        assert!(is_stopped(&running, (server(1), 0)));
    }

    #[test]
    fn a_number_that_is_added_again_is_the_newest() {
        let mut lately = RecentNumbers::default();
        lately.add(7);
        assert!(lately.take(7) && !lately.take(7));
        (0..2).for_each(|_| lately.add(7));
        (100..100 + RECENT_NUMBERS_MAX as u64 - 1).for_each(|number| lately.add(number));
        assert_eq!((lately.order.len(), lately.numbers.len()), (RECENT_NUMBERS_MAX, RECENT_NUMBERS_MAX));
        assert!(lately.take(7));
    }
}
