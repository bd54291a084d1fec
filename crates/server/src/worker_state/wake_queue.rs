//! Wakes connections of a worker from other threads.
//!
//! Waking a sleeping worker costs a system call. When many answers become ready together, as after a group commit, the
//! worker is woken once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// The index of a connection within its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub usize);

/// The woken connections of one worker.
#[derive(Default)]
pub struct WakeQueue(Mutex<Woken>);

#[derive(Default)]
struct Woken {
    slots: Vec<Slot>,
    worker: Option<Waker>,
}

impl WakeQueue {
    fn push(&self, slot: Slot) {
        let worker = {
            let mut woken = self.0.lock();
            woken.slots.push(slot);
            woken.worker.take()
        };
        if let Some(worker) = worker {
            worker.wake();
        }
    }

    /// Moves the woken slots into `slots`; if there are none, registers the worker to be woken.
    pub fn poll_woken(&self, cx: &mut Context<'_>, slots: &mut Vec<Slot>) -> Poll<()> {
        let mut woken = self.0.lock();
        if woken.slots.is_empty() {
            woken.worker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        slots.append(&mut woken.slots);
        Poll::Ready(())
    }
}

/// Wakes one connection through its worker's queue. Its pending answers are polled with this waker.
pub struct ConnectionWaker {
    wakes: Arc<WakeQueue>,
    slot: Slot,
    woken: AtomicBool,
}

impl ConnectionWaker {
    /// A waker in the state "not woken".
    #[must_use]
    pub fn new(wakes: Arc<WakeQueue>, slot: Slot) -> Arc<ConnectionWaker> {
        Arc::new(ConnectionWaker { wakes, slot, woken: AtomicBool::new(false) })
    }

    /// Wakes the connection; further calls cost nothing until it has called [`ConnectionWaker::take`].
    pub fn wake_connection(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.wakes.push(self.slot);
        }
    }

    /// Whether the connection was woken since the last call. To be called before looking for work.
    pub fn take(&self) -> bool {
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_connection();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_connection();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn many_wakes_wake_the_worker_once() {
        let wakes = Arc::new(WakeQueue::default());
        let (one, other) =
            (ConnectionWaker::new(wakes.clone(), Slot(1)), ConnectionWaker::new(wakes.clone(), Slot(2)));
        let count = Arc::new(CountingWaker::default());
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut slots = Vec::new();
        assert!(wakes.poll_woken(&mut cx, &mut slots).is_pending());
        one.wake_connection();
        one.wake_connection();
        other.wake_connection();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(wakes.poll_woken(&mut cx, &mut slots).is_ready());
        assert_eq!(slots, [Slot(1), Slot(2)]);
        assert!(one.take() && other.take());
        assert!(!one.take());
        one.wake_connection();
        slots.clear();
        assert!(wakes.poll_woken(&mut cx, &mut slots).is_ready());
        assert_eq!(slots, [Slot(1)]);
    }
}
