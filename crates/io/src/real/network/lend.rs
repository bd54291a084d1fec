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
pub(super) trait Turns: Send {
    /// Waits until there is something to do, and does it.
    fn turn(&mut self);

    /// Reads what has arrived, without waiting, and tells the party. What that wants sent waits for [`Turns::send`].
    fn take_in(&mut self);

    /// Sends, without waiting, also what the party has to say by now because somebody has rung. Returns how long nothing
    /// has to be done, unless [`Turns::events`] becomes readable or `waker` is woken.
    fn send(&mut self, waker: &Waker) -> Duration;

    /// Whether another thread has something for the party that no turn has seen.
    fn has_news(&self) -> bool;

    /// The event queue: readable when something happens on a connection.
    fn events(&self) -> io::Result<OwnedFd>;

    /// The thread takes its turns itself again.
    fn came_back(&mut self);

    /// The party's last step; what it orders leaves as far as that is possible at once.
    fn end(self: Box<Self>);
}

/// The work of a [`super::NetworkThread`], lent to the thread that has this. Dropped, it goes back; if that thread panics
/// it does not, because nobody knows what state it is in, and the network thread ends.
pub struct Borrowed {
    // There until this is dropped.
    driver: Option<Box<dyn Turns>>,
    back: Sender<Box<dyn Turns>>,
}

impl Borrowed {
    /// What becomes readable when something happens on a connection, and stays so until the next [`Borrowed::take_in`].
    /// Fails when the system gives no file descriptor.
    pub fn events(&self) -> io::Result<OwnedFd> {
        let driver = self.driver.as_ref().ok_or(io::ErrorKind::NotFound)?;
        driver.events()
    }

    /// Reads what has arrived, without waiting, and tells the party. What that wants sent waits for [`Borrowed::send`],
    /// and leaves with what is said until then.
    pub fn take_in(&mut self) {
        self.driver.iter_mut().for_each(|driver| driver.take_in());
    }

    /// Sends, without waiting, also what the party has to say by now because somebody has rung. Returns how long nothing
    /// has to be done, unless [`Borrowed::events`] becomes readable or `waker` is woken; zero if there is more to do at
    /// once.
    pub fn send(&mut self, waker: &Waker) -> Duration {
        self.driver.as_mut().map_or(Duration::MAX, |driver| driver.send(waker))
    }

    /// Whether somebody has something to say that no turn has seen, in which case the waker was woken.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.has_news())
    }
}

impl Drop for Borrowed {
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
pub(super) fn lend(driver: Box<dyn Turns>, borrower: &Sender<Borrowed>) -> Option<Box<dyn Turns>> {
    let (back, returned) = channel();
    // Not taken, it comes back at once.
    drop(borrower.send(Borrowed { driver: Some(driver), back }));
    let mut driver = returned.recv().ok()?;
    driver.came_back();
    Some(driver)
}

/// Wakes whichever thread takes the turns.
pub(super) struct Ringer {
    events: Arc<mio::Waker>,
    borrower: Mutex<Option<Waker>>,
}

impl Ringer {
    pub(super) fn new(events: Arc<mio::Waker>) -> Ringer {
        Ringer { events, borrower: Mutex::new(None) }
    }

    pub(super) fn ring(&self) {
        match &*self.borrower.lock() {
            Some(waker) => waker.wake_by_ref(),
            // An event queue that cannot be rung any more is about to be closed with its thread.
            None => drop(self.events.wake()),
        }
    }

    pub(super) fn rings_for(&self, waker: &Waker) {
        let mut borrower = self.borrower.lock();
        match &mut *borrower {
            Some(known) => known.clone_from(waker),
            None => *borrower = Some(waker.clone()),
        }
    }

    pub(super) fn rings_for_nobody(&self) {
        *self.borrower.lock() = None;
    }
}
