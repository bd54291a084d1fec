//! A network thread's work done by another thread, which has an event loop of its own: what both have to say to
//! each other is said without waking anybody, and what becomes ready together is done together.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// What drives a party, whichever thread does it.
pub(super) trait EventLoop: Send {
    /// Waits until there is something to do, and does it.
    fn run_once(&mut self);

    /// Reads what has arrived, without waiting, and tells the party. What that wants sent waits for [`EventLoop::flush`].
    fn receive(&mut self);

    /// Sends, without waiting, also what the party has to say by now because somebody has rung. Returns how long nothing
    /// has to be done, unless [`EventLoop::events`] becomes readable or `waker` is woken.
    fn flush(&mut self, waker: &Waker) -> Duration;

    /// Whether another thread has something for the party that no turn has seen.
    fn has_pending_wake(&self) -> bool;

    /// The event queue: readable when something happens on a connection.
    fn events(&self) -> io::Result<OwnedFd>;

    /// The thread takes its turns itself again.
    fn reclaim(&mut self);

    /// The party's last step; what it orders leaves as far as that is possible at once.
    fn shut_down(self: Box<Self>);
}

/// The work of a [`super::NetworkThread`], lent to the thread that has this. Dropped, it goes back; if that thread panics
/// it does not, because nobody knows what state it is in, and the network thread ends.
pub struct BorrowedLoop {
    // There until this is dropped.
    driver: Option<Box<dyn EventLoop>>,
    back: Sender<Box<dyn EventLoop>>,
}

impl BorrowedLoop {
    /// What becomes readable when something happens on a connection, and stays so until the next [`BorrowedLoop::receive`].
    /// Fails when the system gives no file descriptor.
    pub fn events(&self) -> io::Result<OwnedFd> {
        let driver = self.driver.as_ref().ok_or(io::ErrorKind::NotFound)?;
        driver.events()
    }

    /// Reads what has arrived, without waiting, and tells the party. What that wants sent waits for [`BorrowedLoop::flush`],
    /// and leaves with what is said until then.
    pub fn receive(&mut self) {
        self.driver.iter_mut().for_each(|driver| driver.receive());
    }

    /// Sends, without waiting, also what the party has to say by now because somebody has rung. Returns how long nothing
    /// has to be done, unless [`BorrowedLoop::events`] becomes readable or `waker` is woken; zero if there is more to do at
    /// once.
    pub fn flush(&mut self, waker: &Waker) -> Duration {
        self.driver.as_mut().map_or(Duration::MAX, |driver| driver.flush(waker))
    }

    /// Whether somebody has something to say that no turn has seen, in which case the waker was woken.
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
            // A network thread that lends waits for this.
            drop(self.back.send(driver));
        }
    }
}

/// Gives `driver` to whoever waits for it at the other end of `borrower`, and waits until it is back. `None` if it does
/// not come back.
pub(super) fn lend(
    driver: Box<dyn EventLoop>,
    borrower: &Sender<BorrowedLoop>,
) -> Option<Box<dyn EventLoop>> {
    let (back, returned) = channel();
    // Not taken, it comes back at once.
    drop(borrower.send(BorrowedLoop { driver: Some(driver), back }));
    let mut driver = returned.recv().ok()?;
    driver.reclaim();
    Some(driver)
}

/// Wakes whichever thread takes the turns.
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
            // An event queue that cannot be rung any more is about to be closed with its thread.
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
