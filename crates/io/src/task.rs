//! Threads and waiting: for time, for each other, for a value.
//!
//! All crates from `log` to `cluster` start threads and wait through this module. On a real machine they are threads of
//! the standard library and condition variables of `parking_lot`. In a simulation ([`crate::sim::Tasks`]) the same code
//! runs as tasks of one thread: a waiting task yields, the seed chooses the next one, and time passes only when no task
//! can run.

use std::io::Result;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::sim::tasks::{self, TaskId};

/// A started thread.
pub struct Thread(ThreadKind);

enum ThreadKind {
    Real(std::thread::JoinHandle<()>),
    Simulated(TaskId),
}

/// Starts a thread. Fails if the system cannot.
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
    /// Waits until the thread has ended. A panic is reported on the thread itself.
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

/// Sleeps for `wait`, or until [`Thread::unpark`] is or was called.
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

pub fn sleep(wait: Duration) {
    match tasks::here() {
        Some(here) => here.sleep(wait),
        None => std::thread::sleep(wait),
    }
}

/// The present time, for deadlines.
#[must_use]
pub fn now() -> Instant {
    tasks::here().map_or_else(Instant::now, |here| here.instant())
}

/// A number that tells the caller apart from the other tasks of a simulation that run on the same thread; zero for a thread.
#[must_use]
pub fn current() -> u64 {
    tasks::here().and_then(|here| here.current()).map_or(0, |task| task.number() + 1)
}

/// Locks a mutex whose holder may wait while it holds it. In a simulation the caller yields until the mutex is free.
/// Other mutexes can be locked directly.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match tasks::here() {
        Some(here) => here.lock(mutex),
        None => mutex.lock(),
    }
}

/// The reason why a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// Notified, or spuriously: check the condition again.
    Notified,
    /// The timeout has passed.
    TimedOut,
}

impl WaitResult {
    /// Whether the timeout has passed.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        *self == WaitResult::TimedOut
    }
}

/// A condition variable of `parking_lot` that tasks of a simulation can also wait on.
#[derive(Default)]
pub struct Condvar {
    real: parking_lot::Condvar,
}

impl Condvar {
    /// A condition variable without waiters.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar { real: parking_lot::Condvar::new() }
    }

    /// Waits until notified; may wake spuriously.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match tasks::here() {
            Some(here) => drop(here.wait_unlocked(self.key(), None, guard)),
            None => self.real.wait(guard),
        }
    }

    /// As [`Condvar::wait`], for at most `wait`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, wait: Duration) -> WaitResult {
        self.wait_until(guard, now() + wait)
    }

    /// As [`Condvar::wait`], until at most `deadline`.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> WaitResult {
        let is_notified = match tasks::here() {
            Some(here) => here.wait_unlocked(self.key(), Some(deadline), guard),
            None => !self.real.wait_until(guard, deadline).timed_out(),
        };
        if is_notified { WaitResult::Notified } else { WaitResult::TimedOut }
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        match tasks::here() {
            Some(here) => here.notify(self.key(), 1),
            None => drop(self.real.notify_one()),
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        match tasks::here() {
            Some(here) => here.notify(self.key(), usize::MAX),
            None => drop(self.real.notify_all()),
        }
    }

    /// Waiters borrow this value, so its address identifies it meanwhile.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// The sending end of a channel.
pub struct Sender<T> {
    real: mpsc::Sender<T>,
    name: Arc<()>,
}

/// The receiving end of a channel. Values arrive in order.
pub struct Receiver<T> {
    real: mpsc::Receiver<T>,
    name: Arc<()>,
}

/// An unbounded channel.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let name = Arc::new(());
    (Sender { real: sender, name: Arc::clone(&name) }, Receiver { real: receiver, name })
}

/// The other end of the channel is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnected;

impl<T> Sender<T> {
    /// Sends `value`. Fails, and drops it, if the receiver is dropped.
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
        // A woken task checks after this sender is dropped.
        notify(&self.name);
    }
}

impl<T> Receiver<T> {
    /// Waits for a value. Fails if there is none and all senders are dropped.
    pub fn recv(&self) -> std::result::Result<T, Disconnected> {
        match tasks::here() {
            Some(here) => self.receive_in(&here, None).ok_or(Disconnected),
            None => self.real.recv().map_err(|_| Disconnected),
        }
    }

    /// As [`Receiver::recv`], for at most `wait`; also returns `None` after the timeout.
    pub fn recv_timeout(&self, wait: Duration) -> Option<T> {
        match tasks::here() {
            Some(here) => self.receive_in(&here, Some(here.instant() + wait)),
            None => self.real.recv_timeout(wait).ok(),
        }
    }

    /// A value, if one has arrived.
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
