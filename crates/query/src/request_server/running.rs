//! What is being answered for other nodes, by the number it can be stopped by.
//!
//! A question is entered when it arrives, before it waits for a thread: whoever changes their mind at once says so
//! on the same link right behind it. A long question is overtaken by that, since it comes in parts: a stop of what has
//! not arrived is remembered. That it has not cannot be seen by its number: whoever asks takes the numbers before
//! the questions leave, from several threads, and those that are asked of others are among them. So the numbers of what
//! has arrived are remembered as well.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use cluster::ServerId;
use parking_lot::Mutex;
use reql::Cancel;

/// Who asked, and the number they gave it.
pub(super) type RequestKey = (ServerId, u64);

/// Most numbers that are remembered of one server, of stops and of what has arrived; the oldest are forgotten first.
const RECENT_NUMBERS_MAX: usize = 4096;

/// The questions that can be stopped.
#[derive(Default)]
pub(super) struct RunningRequests(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    running: HashMap<RequestKey, Arc<Cancel>>,
    history: HashMap<ServerId, PeerHistory>,
}

/// What was heard of one server on its present link.
#[derive(Default)]
struct PeerHistory {
    /// Questions that are here or were: no stop of them comes early.
    arrived: RecentNumbers,
    /// Stops of questions that have not arrived.
    early: RecentNumbers,
}

/// The last numbers of some kind.
#[derive(Default)]
struct RecentNumbers {
    numbers: HashSet<u64>,
    /// The same, in the order in which they came.
    order: VecDeque<u64>,
}

/// A question that can be stopped until this is dropped.
pub(super) struct RunningRequest {
    running: Arc<RunningRequests>,
    key: RequestKey,
    /// Set when it is to stop.
    pub cancel: Arc<Cancel>,
}

impl RunningRequests {
    /// From now on the question can be stopped: `cancel` is set then. It is at once if the stop came first.
    pub fn enter(self: &Arc<Self>, key: RequestKey, cancel: Arc<Cancel>) -> RunningRequest {
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

    /// Stops a question that is here; false if it is not.
    pub fn stop(&self, key: RequestKey) -> bool {
        let known = self.0.lock();
        let cancel = known.running.get(&key);
        cancel.inspect(|cancel| cancel.set()).is_some()
    }

    /// Stops a question that will arrive. One that has been here does not.
    pub fn stop_early(&self, (server, number): RequestKey) {
        let mut known = self.0.lock();
        let history = known.history.entry(server).or_default();
        if !history.arrived.numbers.contains(&number) {
            history.early.add(number);
        }
    }

    /// Stops all that `server` asked. Nothing more arrives of what it was asking.
    pub fn stop_all(&self, server: ServerId) {
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

    /// Whether the number was there; it is no longer.
    fn take(&mut self, number: u64) -> bool {
        let is_there = self.numbers.remove(&number);
        if is_there {
            self.order.retain(|other| *other != number);
        }
        is_there
    }
}

impl RunningRequest {
    /// Who asked, and the number.
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
        running.enter(key, Arc::default()).cancel.is_set()
    }

    #[test]
    fn a_question_that_was_overtaken_by_its_stop_is_stopped_once() {
        let running = Arc::<RunningRequests>::default();
        let key = (server(1), 7);
        assert!(!running.stop(key));
        running.stop_early(key);
        assert!(!is_stopped(&running, (server(2), 7)), "of another server");
        assert!(is_stopped(&running, key));
        assert!(!is_stopped(&running, key));
        let request = running.enter(key, Arc::default());
        assert!(running.stop(key) && request.cancel.is_set());
    }

    #[test]
    fn stops_of_what_never_arrives_are_forgotten() {
        let running = Arc::<RunningRequests>::default();
        (0..=RECENT_NUMBERS_MAX as u64).for_each(|number| running.stop_early((server(1), number)));
        assert!(!is_stopped(&running, (server(1), 0)), "beyond their number");
        assert!(is_stopped(&running, (server(1), 1)));
        running.stop_all(server(1));
        assert!(!is_stopped(&running, (server(1), 2)), "with their server");
    }

    #[test]
    fn the_stops_of_one_server_push_out_none_of_another() {
        let running = Arc::<RunningRequests>::default();
        running.stop_early((server(1), 7));
        (0..2 * RECENT_NUMBERS_MAX as u64).for_each(|number| running.stop_early((server(2), number)));
        assert!(is_stopped(&running, (server(1), 7)));
    }

    #[test]
    fn stops_of_what_was_here_are_not_remembered() {
        let running = Arc::<RunningRequests>::default();
        running.stop_early((server(1), 0));
        for number in 1..RECENT_NUMBERS_MAX as u64 {
            drop(running.enter((server(1), number), Arc::default()));
            assert!(!running.stop((server(1), number)));
            running.stop_early((server(1), number));
        }
        let early = |known: &Requests| known.history[&server(1)].early.order.clone();
        assert_eq!(early(&running.0.lock()), [0]);
        assert!(is_stopped(&running, (server(1), 0)));
    }

    #[test]
    fn a_number_that_was_taken_and_came_again_is_the_newest() {
        let mut lately = RecentNumbers::default();
        lately.add(7);
        assert!(lately.take(7) && !lately.take(7));
        (0..2).for_each(|_| lately.add(7));
        (100..100 + RECENT_NUMBERS_MAX as u64 - 1).for_each(|number| lately.add(number));
        assert_eq!((lately.order.len(), lately.numbers.len()), (RECENT_NUMBERS_MAX, RECENT_NUMBERS_MAX));
        assert!(lately.take(7));
    }
}
