//! How other threads tell a worker that something is ready for one of its connections.
//!
//! Waking a sleeping worker costs a system call. Many answers that become ready together (a
//! group commit finishes them all at once) wake it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// A connection's number within its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub usize);

/// The connections of one worker that have something to look at.
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

    /// Moves the slots that were woken into `slots`, or remembers whom to wake.
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

/// Wakes one connection through its worker's queue. Also the waker its pending answers are polled
/// with.
pub struct ConnectionWaker {
    wakes: Arc<WakeQueue>,
    slot: Slot,
    woken: AtomicBool,
}

impl ConnectionWaker {
    /// A waker that nobody has used yet.
    #[must_use]
    pub fn new(wakes: Arc<WakeQueue>, slot: Slot) -> Arc<ConnectionWaker> {
        Arc::new(ConnectionWaker { wakes, slot, woken: AtomicBool::new(false) })
    }

    /// Tells the connection to look; further calls cost nothing until it did.
    pub fn wake_connection(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.wakes.push(self.slot);
        }
    }

    /// Whether somebody woke it since the last time this was asked. Look only after asking.
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
