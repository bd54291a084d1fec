//! Thread pools; the largest one scans tables, with one thread per core.
//!
//! A query scans its ranges on its own thread too, so that it makes progress while all threads of the pool are busy.

mod readers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use datum::cancel;
use io::memory::Account;
use parking_lot::{Condvar, Mutex};

pub(crate) use readers::Readers;

type Task = Box<dyn FnOnce() + Send>;

/// Stack of a thread: evaluation grows its own stack when it needs more.
const STACK_BYTES: usize = 2 << 20;

/// Threads that run tasks.
pub(crate) struct ThreadPool {
    name: String,
    tasks: Sender<Task>,
    waiting: Receiver<Task>,
    threads: AtomicUsize,
    threads_max: usize,
    /// Tasks that wait or run.
    unfinished: Arc<AtomicUsize>,
}

impl ThreadPool {
    /// Starts `threads` threads, called `name` and a number. They end when the pool is dropped.
    pub fn new(name: &str, threads: usize) -> ThreadPool {
        let pool = ThreadPool::on_demand(name, threads);
        while pool.threads() < threads && pool.start_thread() {}
        pool
    }

    /// A pool without threads. They start when tasks need them, up to `threads_max`, and end when the pool is dropped.
    pub fn on_demand(name: &str, threads_max: usize) -> ThreadPool {
        let (tasks, waiting) = unbounded::<Task>();
        let (threads, unfinished) = (AtomicUsize::new(0), Arc::default());
        ThreadPool { name: name.to_owned(), tasks, waiting, threads, threads_max, unfinished }
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Runs `task` on a thread of the pool when one is free.
    pub fn run(&self, task: impl FnOnce() + Send + 'static) {
        self.send(Box::new(task));
    }

    fn send(&self, task: Task) {
        let unfinished = self.unfinished.fetch_add(1, Ordering::Relaxed) + 1;
        if unfinished > self.threads() && self.threads() < self.threads_max {
            // If the system has no more threads, those that run take the task.
            self.start_thread();
        }
        // The channel is open while the pool exists.
        let _ = self.tasks.send(task);
    }

    /// Starts a thread, unless there are enough of them. Returns whether there is one more.
    fn start_thread(&self) -> bool {
        let count = self.threads.fetch_add(1, Ordering::Relaxed);
        let has_started = count < self.threads_max
            && start(&self.name, count, self.waiting.clone(), self.unfinished.clone());
        if !has_started {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
        has_started
    }

    /// Runs `work` on every item, on this thread and on the pool's threads except one, so that as many threads work as
    /// the pool has, and returns the results in the order of the items. The threads of the pool use this thread's memory account and cancellation.
    pub fn map<T, R, F>(&self, items: Vec<T>, work: F) -> Vec<R>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: Fn(T) -> R + Send + Sync + 'static,
    {
        let count = items.len();
        let shared = Arc::new(Shared::new(items, work));
        for _ in 1..count.min(self.threads_max) {
            let (shared, account, token) = (shared.clone(), Account::current(), cancel::current());
            self.send(Box::new(move || {
                let _counting = account.as_ref().map(Account::enter);
                let _cancel_scope = cancel::scope(token);
                shared.run();
            }));
        }
        shared.run();
        shared.results(count)
    }
}

fn start(name: &str, i: usize, waiting: Receiver<Task>, unfinished: Arc<AtomicUsize>) -> bool {
    let run = move || {
        for task in waiting {
            // If a task panics, its query fails because the result is missing. The thread goes on with the next task.
            drop(catch_unwind(AssertUnwindSafe(task)));
            unfinished.fetch_sub(1, Ordering::Relaxed);
        }
    };
    thread::Builder::new().name(format!("{name}-{i}")).stack_size(STACK_BYTES).spawn(run).is_ok()
}

/// The items that no thread has taken yet, and the results.
struct Shared<T, R, F> {
    work: F,
    state: Mutex<Items<T, R>>,
    finished: Condvar,
}

struct Items<T, R> {
    waiting: std::vec::IntoIter<(usize, T)>,
    running: usize,
    done: Vec<(usize, R)>,
}

impl<T, R, F: Fn(T) -> R> Shared<T, R, F> {
    fn new(items: Vec<T>, work: F) -> Self {
        let waiting = items.into_iter().enumerate().collect::<Vec<_>>().into_iter();
        let state = Items { waiting, running: 0, done: Vec::new() };
        Shared { work, state: Mutex::new(state), finished: Condvar::new() }
    }

    fn run(&self) {
        while let Some((i, item)) = self.next() {
            let done = Running { shared: self };
            let result = (self.work)(item);
            self.state.lock().done.push((i, result));
            drop(done);
        }
    }

    fn next(&self) -> Option<(usize, T)> {
        let mut state = self.state.lock();
        let next = state.waiting.next();
        state.running += usize::from(next.is_some());
        next
    }

    fn results(&self, count: usize) -> Vec<R> {
        let mut state = self.state.lock();
        while state.running > 0 {
            self.finished.wait(&mut state);
        }
        let mut done = std::mem::take(&mut state.done);
        assert_eq!(done.len(), count, "a scan task panicked");
        done.sort_by_key(|(i, _)| *i);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

/// Counts a task as finished even when it panics, so that its query does not wait forever.
struct Running<'a, T, R, F> {
    shared: &'a Shared<T, R, F>,
}

impl<T, R, F> Drop for Running<'_, T, R, F> {
    fn drop(&mut self) {
        self.shared.state.lock().running -= 1;
        self.shared.finished.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::ThreadPool;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let pool = ThreadPool::new("test", 3);
        let squares = pool.map((0..100_u64).collect(), |n| n * n);
        assert_eq!(squares, (0..100).map(|n| n * n).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_reaches_the_query_and_the_pool_keeps_working() {
        let pool = ThreadPool::new("test", 2);
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.map((0..50).collect(), |n: u32| assert_ne!(n, 33, "on purpose"))
        }));
        assert!(broken.is_err());
        assert_eq!(pool.map(vec![1, 2, 3], |n| n + 1), [2, 3, 4]);
        // This very thread may have run the item.
        let (sender, receiver) = std::sync::mpsc::channel();
        (0..pool.threads()).for_each(|_| pool.run(|| panic!("on purpose")));
        pool.run(move || sender.send(7).unwrap());
        assert_eq!(receiver.recv(), Ok(7));
    }

    #[test]
    fn threads_start_when_they_are_needed() {
        let pool = ThreadPool::on_demand("test", 2);
        assert_eq!(pool.threads(), 0);
        let (sender, receiver) = std::sync::mpsc::channel();
        for n in 0..10 {
            let sender = sender.clone();
            pool.run(move || sender.send(n).unwrap());
        }
        let mut done: Vec<u32> = receiver.iter().take(10).collect();
        done.sort_unstable();
        assert_eq!(done, (0..10).collect::<Vec<_>>());
        assert!((1..=2).contains(&pool.threads()));
    }

    #[test]
    fn a_pool_without_threads_uses_the_calling_thread() {
        assert_eq!(ThreadPool::new("test", 0).map(vec![1, 2, 3], |n| n + 1), [2, 3, 4]);
    }
}
