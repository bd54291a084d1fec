//! What is being answered for other nodes, by the number it can be stopped by.
//!
//! A question is entered when it arrives, before it waits for a thread: whoever changes their mind at once says so
//! on the same link right behind it. A long question is overtaken by that, since it comes in parts: a stop of what is
//! not here is remembered for a while.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cluster::ServerId;
use io::Nanos;
use parking_lot::Mutex;
use reql::Cancel;

/// Who asked, and the number they gave it.
pub(super) type Key = (ServerId, u64);

/// Most stops that are remembered; the oldest are forgotten first.
const EARLY_MAX: usize = 4096;
/// How long a stop is remembered: longer than it takes to send any question.
const EARLY_KEPT: Duration = Duration::from_secs(120);

/// The questions that can be stopped.
#[derive(Default)]
pub(super) struct Running(Mutex<Known>);

#[derive(Default)]
struct Known {
    running: HashMap<Key, Arc<Cancel>>,
    early: EarlyStops,
}

/// Stops of questions that have not arrived.
#[derive(Default)]
struct EarlyStops {
    keys: HashSet<Key>,
    /// When they came, in that order; those that were needed since are among them.
    order: VecDeque<(Nanos, Key)>,
}

/// A question that can be stopped until this is dropped.
pub(super) struct Entered {
    running: Arc<Running>,
    key: Key,
    /// Set when it is to stop.
    pub cancel: Arc<Cancel>,
}

impl Running {
    /// From now on the question can be stopped: `cancel` is set then. It is at once if the stop came first.
    pub fn enter(self: &Arc<Self>, key: Key, cancel: Arc<Cancel>) -> Entered {
        let mut known = self.0.lock();
        if known.early.keys.remove(&key) {
            cancel.set();
        }
        known.running.insert(key, cancel.clone());
        Entered { running: self.clone(), key, cancel }
    }

    /// Stops a question that is here; false if it is not.
    pub fn stop(&self, key: Key) -> bool {
        let known = self.0.lock();
        let cancel = known.running.get(&key);
        cancel.inspect(|cancel| cancel.set()).is_some()
    }

    /// Stops a question that will arrive, if it does so soon.
    pub fn stop_early(&self, key: Key, now: Nanos) {
        self.0.lock().early.add(key, now);
    }

    /// Stops all that `server` asked. Nothing more arrives of what it was asking.
    pub fn stop_all(&self, server: ServerId) {
        let mut known = self.0.lock();
        let of_server = |(owner, _): &Key| *owner == server;
        known.running.iter().filter(|(key, _)| of_server(key)).for_each(|(_, cancel)| cancel.set());
        known.early.keys.retain(|key| !of_server(key));
    }
}

impl EarlyStops {
    fn add(&mut self, key: Key, now: Nanos) {
        while let Some((since, oldest)) = self.order.front() {
            if self.order.len() < EARLY_MAX && now.since(*since) <= EARLY_KEPT {
                break;
            }
            self.keys.remove(oldest);
            self.order.pop_front();
        }
        if self.keys.insert(key) {
            self.order.push_back((now, key));
        }
    }
}

impl Entered {
    /// Who asked, and the number.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl Drop for Entered {
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

    fn is_stopped(running: &Arc<Running>, key: Key) -> bool {
        running.enter(key, Arc::default()).cancel.is_set()
    }

    #[test]
    fn a_question_that_was_overtaken_by_its_stop_is_stopped_once() {
        let running = Arc::<Running>::default();
        let key = (server(1), 7);
        assert!(!running.stop(key));
        running.stop_early(key, Nanos(0));
        assert!(!is_stopped(&running, (server(2), 7)), "of another server");
        assert!(is_stopped(&running, key));
        assert!(!is_stopped(&running, key));
        let entered = running.enter(key, Arc::default());
        assert!(running.stop(key) && entered.cancel.is_set());
    }

    #[test]
    fn stops_of_what_never_arrives_are_forgotten() {
        let running = Arc::<Running>::default();
        let late = Nanos(u64::try_from(EARLY_KEPT.as_nanos()).unwrap_or(u64::MAX) + 1);
        running.stop_early((server(1), 0), Nanos(0));
        running.stop_early((server(1), 1), late);
        assert!(!is_stopped(&running, (server(1), 0)), "after a while");
        for number in 2..=EARLY_MAX as u64 + 1 {
            running.stop_early((server(2), number), late);
        }
        assert!(!is_stopped(&running, (server(1), 1)), "beyond their number");
        assert!(is_stopped(&running, (server(2), 2)));
        running.stop_all(server(2));
        assert!(!is_stopped(&running, (server(2), 3)), "with their server");
        assert!(running.0.lock().early.order.len() <= EARLY_MAX);
    }
}
