//! Threads, and how they wait: for time, for each other, for a value.
//!
//! Everything from `log` to `cluster` starts its threads and waits through these few words. On a real
//! machine they are the standard library's threads and `parking_lot`'s condition variables. Inside a
//! simulation ([`crate::sim::Tasks`]) the same code runs as tasks of one thread: whoever waits here gives
//! way, the seed says who goes on, and time passes only when nobody can.

use std::io::Result;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::sim::tasks::{self, TaskId};

/// A thread that was started.
pub struct Thread(ThreadKind);

enum ThreadKind {
    Real(std::thread::JoinHandle<()>),
    Simulated(TaskId),
}

/// Starts a thread. Fails when the system has none to give.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<Thread> {
    if let Some(here) = tasks::here() {
        return Ok(Thread(ThreadKind::Simulated(here.spawn(name, work))));
    }
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(|thread| Thread(ThreadKind::Real(thread)))
}

impl Thread {
    /// Waits until the thread has ended. A panic was already reported on its own thread.
    pub fn join(self) {
        match self.0 {
            ThreadKind::Real(thread) => drop(thread.join()),
            ThreadKind::Simulated(task) => tasks::here().into_iter().for_each(|here| here.join(task)),
        }
    }

    /// Ends the thread's present or next [`park_timeout`].
    pub fn unpark(&self) {
        match &self.0 {
            ThreadKind::Real(thread) => thread.thread().unpark(),
            ThreadKind::Simulated(task) => tasks::here().into_iter().for_each(|here| here.unpark(*task)),
        }
    }
}

/// Sleeps for `wait`, or until somebody calls [`Thread::unpark`] or has called it before.
pub fn park_timeout(wait: Duration) {
    match tasks::here() {
        Some(here) => here.park(wait),
        None => std::thread::park_timeout(wait),
    }
}

/// Ends the next [`park_timeout`] of the calling thread before it begins.
pub fn unpark_self() {
    match tasks::here() {
        Some(here) => here.unpark_self(),
        None => std::thread::current().unpark(),
    }
}

/// Sleeps.
pub fn sleep(wait: Duration) {
    match tasks::here() {
        Some(here) => here.sleep(wait),
        None => std::thread::sleep(wait),
    }
}

/// What time it is, for deadlines.
#[must_use]
pub fn now() -> Instant {
    tasks::here().map_or_else(Instant::now, |here| here.instant())
}

/// Locks a mutex that its holder keeps while it waits for something else. One that nobody waits under
/// is locked as usual.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match tasks::here() {
        Some(here) => here.lock(mutex),
        None => mutex.lock(),
    }
}

/// What ended a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// Somebody notified, or nobody did: look again.
    Notified,
    /// The time was up.
    TimedOut,
}

impl WaitResult {
    /// Whether the time was up.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        *self == WaitResult::TimedOut
    }
}

/// A condition variable: of `parking_lot`, with tasks of a simulation as further waiters.
#[derive(Default)]
pub struct Condvar {
    real: parking_lot::Condvar,
}

impl Condvar {
    /// One that nobody waits for.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar { real: parking_lot::Condvar::new() }
    }

    /// Waits until notified; may return without.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match tasks::here() {
            Some(here) => drop(here.wait_unlocked(self.key(), None, guard)),
            None => self.real.wait(guard),
        }
    }

    /// As [`Condvar::wait`], for `wait` at most.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, wait: Duration) -> WaitResult {
        self.wait_until(guard, now() + wait)
    }

    /// As [`Condvar::wait`], until `deadline` at most.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> WaitResult {
        let is_notified = match tasks::here() {
            Some(here) => here.wait_unlocked(self.key(), Some(deadline), guard),
            None => !self.real.wait_until(guard, deadline).timed_out(),
        };
        if is_notified { WaitResult::Notified } else { WaitResult::TimedOut }
    }

    /// Wakes one who waits.
    pub fn notify_one(&self) {
        match tasks::here() {
            Some(here) => here.notify(self.key(), 1),
            None => drop(self.real.notify_one()),
        }
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        match tasks::here() {
            Some(here) => here.notify(self.key(), usize::MAX),
            None => drop(self.real.notify_all()),
        }
    }

    /// Whoever waits borrows this value, so its address names it for that time.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// The end of a channel that values go into.
pub struct Sender<T> {
    real: mpsc::Sender<T>,
    name: Arc<()>,
}

/// The end of a channel that values come out of, in order.
pub struct Receiver<T> {
    real: mpsc::Receiver<T>,
    name: Arc<()>,
}

/// A channel of values, without a limit.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let name = Arc::new(());
    (Sender { real: sender, name: Arc::clone(&name) }, Receiver { real: receiver, name })
}

/// The other end of a channel is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnected;

impl<T> Sender<T> {
    /// Sends `value`; fails, and drops it, when nobody will receive it.
    pub fn send(&self, value: T) -> std::result::Result<(), Disconnected> {
        let sent = self.real.send(value).map_err(|_| Disconnected);
        notify(&self.name);
        sent
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { real: self.real.clone(), name: Arc::clone(&self.name) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // A task that is woken looks after this sender has gone.
        notify(&self.name);
    }
}

impl<T> Receiver<T> {
    /// Waits for a value. Fails when none is there and none can come.
    pub fn recv(&self) -> std::result::Result<T, Disconnected> {
        match tasks::here() {
            Some(here) => self.receive_in(&here, None).ok_or(Disconnected),
            None => self.real.recv().map_err(|_| Disconnected),
        }
    }

    /// As [`Receiver::recv`], for `wait` at most; `None` also when the time is up.
    pub fn recv_timeout(&self, wait: Duration) -> Option<T> {
        match tasks::here() {
            Some(here) => self.receive_in(&here, Some(here.instant() + wait)),
            None => self.real.recv_timeout(wait).ok(),
        }
    }

    /// A value, if one is there.
    pub fn try_recv(&self) -> Option<T> {
        self.real.try_recv().ok()
    }

    fn receive_in(&self, here: &crate::sim::Tasks, deadline: Option<Instant>) -> Option<T> {
        loop {
            match self.real.try_recv() {
                Ok(value) => return Some(value),
                Err(mpsc::TryRecvError::Disconnected) => return None,
                Err(mpsc::TryRecvError::Empty) => {}
            }
            if !here.wait(name_of(&self.name), deadline) {
                return self.real.try_recv().ok();
            }
        }
    }
}

fn name_of(name: &Arc<()>) -> usize {
    Arc::as_ptr(name).addr()
}

fn notify(name: &Arc<()>) {
    if let Some(here) = tasks::here() {
        here.notify(name_of(name), usize::MAX);
    }
}
