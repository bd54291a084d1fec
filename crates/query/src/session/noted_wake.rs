//! A waker that remembers that it was woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// Wakes another waker, and remembers that it did.
pub(super) struct NotedWake {
    was_woken: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl NotedWake {
    /// Counts as woken, as nothing was read yet.
    pub fn new() -> Arc<NotedWake> {
        Arc::new(NotedWake { was_woken: AtomicBool::new(true), waker: Mutex::default() })
    }

    /// Wakes `waker` from now on. Returns whether it was woken since the last call.
    pub fn renew(&self, waker: &Waker) -> bool {
        *self.waker.lock() = Some(waker.clone());
        self.was_woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for NotedWake {
    fn wake(self: Arc<Self>) {
        // Noted first: a reader that renews the waker in between finds the note.
        self.was_woken.store(true, Ordering::Release);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wake_is_noted_once() {
        let wake = NotedWake::new();
        assert!(wake.renew(Waker::noop()), "nothing was read yet");
        assert!(!wake.renew(Waker::noop()));
        Waker::from(wake.clone()).wake();
        assert!(wake.renew(Waker::noop()));
        assert!(!wake.renew(Waker::noop()));
    }
}
