//! Lends the event loop of a network thread to another thread that has its own event loop. The two exchange data
//! without waking each other, and handle simultaneous events together.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// The event loop that drives a handler, on any thread.
pub(super) trait EventLoop: Send {
    /// Waits for events and handles them.
    fn run_once(&mut self);

    /// Reads received bytes without blocking, and steps the handler. Its output waits for [`EventLoop::flush`].
    fn receive(&mut self);

    /// Writes the handler's output without blocking, after stepping it again if it was woken. Returns how long the
    /// caller may sleep, unless [`EventLoop::events`] becomes readable or `waker` is woken.
    fn flush(&mut self, waker: &Waker) -> Duration;

    /// Whether another thread has woken the handler and no step has followed.
    fn has_pending_wake(&self) -> bool;

    /// The event queue; readable when a connection has an event.
    fn events(&self) -> io::Result<OwnedFd>;

    /// The network thread drives the loop itself again.
    fn reclaim(&mut self);

    /// Steps the handler for the last time. Its output is sent as far as possible at once.
    fn shut_down(self: Box<Self>);
}

/// The event loop of a [`super::NetworkThread`], lent to another thread. It goes back when dropped. If the borrowing
/// thread panics it does not go back, because its state is unknown, and the network thread ends.
pub struct BorrowedLoop {
    // `Some` until this is dropped.
    driver: Option<Box<dyn EventLoop>>,
    back: Sender<Box<dyn EventLoop>>,
}

impl BorrowedLoop {
    /// A file descriptor that becomes readable when a connection has an event, and stays so until the next
    /// [`BorrowedLoop::receive`]. Fails if the system gives no file descriptor.
    pub fn events(&self) -> io::Result<OwnedFd> {
        let driver = self.driver.as_ref().ok_or(io::ErrorKind::NotFound)?;
        driver.events()
    }

    /// Reads received bytes without blocking, and steps the handler. Its output waits for [`BorrowedLoop::flush`],
    /// together with any output up to then.
    pub fn receive(&mut self) {
        self.driver.iter_mut().for_each(|driver| driver.receive());
    }

    /// Writes the handler's output without blocking, after stepping it again if it was woken. Returns how long the
    /// caller may sleep, unless [`BorrowedLoop::events`] becomes readable or `waker` is woken; zero if there is more to
    /// do at once.
    pub fn flush(&mut self, waker: &Waker) -> Duration {
        self.driver.as_mut().map_or(Duration::MAX, |driver| driver.flush(waker))
    }

    /// Whether another thread has woken the handler and no step has followed; the waker was woken then.
    #[must_use]
    pub fn has_pending_wake(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.has_pending_wake())
    }
}

impl Drop for BorrowedLoop {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take()
            && !thread::panicking()
        {
            // The network thread is waiting for this.
            drop(self.back.send(driver));
        }
    }
}

/// Sends `driver` to the thread waiting at the other end of `borrower`, and waits until it is returned. `None` if it is
/// not returned.
pub(super) fn lend(
    driver: Box<dyn EventLoop>,
    borrower: &Sender<BorrowedLoop>,
) -> Option<Box<dyn EventLoop>> {
    let (back, returned) = channel();
    // If it is not taken, it comes back at once.
    drop(borrower.send(BorrowedLoop { driver: Some(driver), back }));
    let mut driver = returned.recv().ok()?;
    driver.reclaim();
    Some(driver)
}

/// Wakes the thread that drives the loop at present.
pub(super) struct WakeTarget {
    events: Arc<mio::Waker>,
    borrower: Mutex<Option<Waker>>,
}

impl WakeTarget {
    pub(super) fn new(events: Arc<mio::Waker>) -> WakeTarget {
        WakeTarget { events, borrower: Mutex::new(None) }
    }

    pub(super) fn wake(&self) {
        match &*self.borrower.lock() {
            Some(waker) => waker.wake_by_ref(),
            // If the event queue cannot be woken any more, it is about to be closed with its thread.
            None => drop(self.events.wake()),
        }
    }

    pub(super) fn set_waker(&self, waker: &Waker) {
        let mut borrower = self.borrower.lock();
        match &mut *borrower {
            Some(known) => known.clone_from(waker),
            None => *borrower = Some(waker.clone()),
        }
    }

    pub(super) fn clear_waker(&self) {
        *self.borrower.lock() = None;
    }
}
