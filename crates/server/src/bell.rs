//! How other threads tell a worker that something is ready for one of its connections.
//!
//! Waking a sleeping worker costs a system call. Many answers that become ready together (a
//! group commit finishes them all at once) ring the same bell and pay for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// A connection's number within its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seat(pub usize);

/// One worker's bell.
#[derive(Default)]
pub struct Bell(Mutex<Rung>);

#[derive(Default)]
struct Rung {
    seats: Vec<Seat>,
    worker: Option<Waker>,
}

impl Bell {
    fn ring(&self, seat: Seat) {
        let worker = {
            let mut rung = self.0.lock();
            rung.seats.push(seat);
            rung.worker.take()
        };
        if let Some(worker) = worker {
            worker.wake();
        }
    }

    /// Moves the seats that were rung for into `seats`, or remembers whom to wake.
    pub fn poll_rung(&self, cx: &mut Context<'_>, seats: &mut Vec<Seat>) -> Poll<()> {
        let mut rung = self.0.lock();
        if rung.seats.is_empty() {
            rung.worker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        seats.append(&mut rung.seats);
        Poll::Ready(())
    }
}

/// One connection's line to its worker's bell. Also the waker its pending answers are polled
/// with.
pub struct Line {
    bell: Arc<Bell>,
    seat: Seat,
    rung: AtomicBool,
}

impl Line {
    /// A line nobody has pulled.
    #[must_use]
    pub fn new(bell: Arc<Bell>, seat: Seat) -> Arc<Line> {
        Arc::new(Line { bell, seat, rung: AtomicBool::new(false) })
    }

    /// Tells the connection to look; further calls cost nothing until it did.
    pub fn pull(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.bell.ring(self.seat);
        }
    }

    /// Whether somebody pulled since the last time this was asked. Look only after asking.
    pub fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Line {
    fn wake(self: Arc<Self>) {
        self.pull();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.pull();
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
    fn many_pulls_wake_the_worker_once() {
        let bell = Arc::new(Bell::default());
        let (one, other) = (Line::new(bell.clone(), Seat(1)), Line::new(bell.clone(), Seat(2)));
        let count = Arc::new(CountingWaker::default());
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut seats = Vec::new();
        assert!(bell.poll_rung(&mut cx, &mut seats).is_pending());
        one.pull();
        one.pull();
        other.pull();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(bell.poll_rung(&mut cx, &mut seats).is_ready());
        assert_eq!(seats, [Seat(1), Seat(2)]);
        assert!(one.take() && other.take());
        assert!(!one.take());
        one.pull();
        seats.clear();
        assert!(bell.poll_rung(&mut cx, &mut seats).is_ready());
        assert_eq!(seats, [Seat(1)]);
    }
}
