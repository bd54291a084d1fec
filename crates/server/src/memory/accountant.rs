//! The accountant keeps the resident memory of the process below its limit.
//!
//! A thread samples the resident memory. Near the limit, the accountant has the allocator return freed pages, shrinks the
//! caches, and lowers the budget of queries: further queries get a resource error. The sizes of the plan come back when
//! there is room again.

use std::fs::read_to_string;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use io::memory::{Budget, Owner, freed_bytes, return_freed};
use io::task::{self, Thread};
use parking_lot::Mutex;
use shard::Replicas;

use super::plan::MemoryPlan;
use super::pressure::{InUse, Pressure, Sizes};

/// The time between two samples while less than half of the limit is in use.
const RELAXED_INTERVAL: Duration = Duration::from_millis(500);
/// The same while more is in use, and while sizes differ from the plan or are about to.
const INTERVAL: Duration = Duration::from_millis(50);
const PRESSED_INTERVAL: Duration = Duration::from_millis(10);
/// How old the size of the engine's caches may be.
const ENGINE_INTERVAL: Duration = Duration::from_millis(500);
/// The unit of `/proc/self/statm`.
const PAGE_BYTES: u64 = 4 << 10;

/// Divides the memory of the process, and watches over the limit.
pub struct Accountant {
    budget: Arc<Budget>,
    replicas: Arc<Replicas>,
    state: Mutex<State>,
    /// The size of the caches that is in force, in bytes.
    cache_bytes: AtomicU64,
    shrinks: AtomicU64,
}

struct State {
    plan: MemoryPlan,
    pressure: Pressure,
    /// Bytes in the engine's caches, and when they were read: the engine looks at all of its files for them.
    engine_caches: Option<(Instant, u64)>,
}

/// The accountant's thread. Dropping it ends the thread.
pub(crate) struct AccountantThread {
    stop: Option<SyncSender<()>>,
    thread: Option<Thread>,
}

impl Accountant {
    /// An accountant for the caches of `replicas`, which have the sizes of `plan`, and for the budget that it makes.
    pub(crate) fn new(plan: MemoryPlan, replicas: Arc<Replicas>) -> Arc<Accountant> {
        Arc::new(Accountant {
            budget: Budget::new(plan.queries),
            replicas,
            state: Mutex::new(State::new(plan)),
            cache_bytes: AtomicU64::new(plan.cache),
            shrinks: AtomicU64::new(0),
        })
    }

    /// The budget of queries, cursors, connections and feeds.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The size of the caches that is in force, in bytes: the configured one, or less under pressure.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache_bytes.load(Relaxed)
    }

    /// How often caches were shrunk because the limit was near.
    pub(crate) fn shrinks(&self) -> u64 {
        self.shrinks.load(Relaxed)
    }

    /// The limit of the process in bytes.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.state.lock().plan.limit
    }

    /// Uses other sizes from now on.
    pub(crate) fn set_plan(&self, plan: MemoryPlan) {
        let mut state = self.state.lock();
        *state = State::new(plan);
        self.apply(&plan, state.pressure.sizes());
    }

    /// Starts the thread that watches. Fails if the system cannot start one.
    pub(crate) fn watch(self: &Arc<Accountant>) -> std::io::Result<AccountantThread> {
        let (stop, stopped) = sync_channel(0);
        let accountant = Arc::downgrade(self);
        let run = move || {
            let mut interval = INTERVAL;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let Some(accountant) = Weak::upgrade(&accountant) else { return };
                interval = accountant.look();
            }
        };
        let thread = task::spawn("memory", run)?;
        Ok(AccountantThread { stop: Some(stop), thread: Some(thread) })
    }

    /// Compares the memory in use with the limit, and adjusts the sizes. Returns the time until the next sample.
    fn look(&self) -> Duration {
        let Some(resident) = resident_bytes() else { return RELAXED_INTERVAL };
        let mut state = self.state.lock();
        if state.pressure.is_relaxed(resident) {
            return if resident < state.plan.limit / 2 { RELAXED_INTERVAL } else { INTERVAL };
        }
        let mut now = self.in_use(resident, &mut state);
        if state.pressure.wants_purge(&now) {
            return_freed();
            now = self.in_use(resident_bytes().unwrap_or(resident), &mut state);
        }
        let before = state.pressure.sizes();
        let sizes = state.pressure.step(&now);
        if sizes != before {
            self.apply(&state.plan, sizes);
        }
        if sizes.caches < before.caches {
            self.shrinks.fetch_add(1, Relaxed);
            return_freed();
        }
        PRESSED_INTERVAL
    }

    fn in_use(&self, resident: u64, state: &mut State) -> InUse {
        let kept = freed_bytes();
        let known = state.engine_caches.filter(|(read_at, _)| read_at.elapsed() < ENGINE_INTERVAL);
        let (_, engine_bytes) = *state.engine_caches.insert(known.unwrap_or_else(|| {
            let memory = self.replicas.engine().memory();
            (Instant::now(), memory.block_cache + memory.compression)
        }));
        let caches = self.replicas.store().row_cache_stats().bytes + engine_bytes;
        let reserved = Owner::ALL.iter().map(|owner| self.budget.reserved_by(*owner)).sum();
        InUse { used: resident.saturating_sub(kept), kept, caches, reserved }
    }

    fn apply(&self, plan: &MemoryPlan, sizes: Sizes) {
        self.budget.set_limit(sizes.queries);
        if self.cache_bytes.swap(sizes.caches, Relaxed) == sizes.caches {
            return;
        }
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let rows = MemoryPlan::rows_of(sizes.caches);
        self.replicas.store().set_row_cache_bytes(size(rows));
        self.replicas.engine().set_cache_bytes(size(sizes.caches - rows));
        tracing::debug!("caches have {} of {} MB", sizes.caches >> 20, plan.cache >> 20);
    }
}

impl State {
    fn new(plan: MemoryPlan) -> State {
        State { plan, pressure: Pressure::new(plan), engine_caches: None }
    }
}

impl Drop for AccountantThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// Resident memory that is no part of a file, if the system says so. The system takes back pages of files when it needs
/// memory.
fn resident_bytes() -> Option<u64> {
    static PAGE: OnceLock<u64> = OnceLock::new();
    let statm = read_to_string("/proc/self/statm").ok()?;
    anonymous_pages(&statm).map(|pages| pages * PAGE.get_or_init(|| PAGE_BYTES))
}

/// The number of resident pages without pages of files, from the text of `statm` (proc(5)).
fn anonymous_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, of_files) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(resident.saturating_sub(of_files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_are_not_counted() {
        assert_eq!(anonymous_pages("1000 300 100 20 0 500 0\n"), Some(200));
        assert_eq!(anonymous_pages(""), None);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 0));
    }
}
