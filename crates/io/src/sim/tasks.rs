//! The threads of a simulation: tasks that run alternately in one thread.
//!
//! Each task has its own stack and runs until it waits (see [`crate::task`]). The seed chooses which of the runnable
//! tasks runs next. A task belongs to a process; when the process is killed its tasks end where they are.

// A task must be able to return to the scheduler from any depth of its stack; see `yield_now`.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use parking_lot::{Mutex, MutexGuard};

use super::{SimClock, SimRandom};
use crate::{Clock, Nanos};

const STACK_BYTES: usize = 512 << 10;
/// The interval at which a waiting task tries a lock again.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_micros(500);

/// Identifies a simulated task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(u64);

impl TaskId {
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// The process that tasks belong to; they end together. Never reused once it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process(pub u64);

type Fiber = Coroutine<(), (), (), DefaultStack>;

/// All tasks of a simulation. Clones refer to the same tasks.
#[derive(Clone)]
pub struct Tasks(Rc<Inner>);

struct Inner {
    clock: SimClock,
    random: SimRandom,
    // Simulated instants count from here.
    zero: Instant,
    state: RefCell<TasksState>,
}

#[derive(Default)]
struct TasksState {
    tasks: BTreeMap<TaskId, Task>,
    next: u64,
    ready: Vec<TaskId>,
    // Tasks that would be ready if their process were not stalled.
    stalled_ready: Vec<TaskId>,
    stalled: BTreeSet<Process>,
    timers: BTreeSet<(Nanos, TaskId)>,
    process: Option<Process>,
    dead: BTreeSet<Process>,
    running: Option<TaskId>,
    stacks: Vec<DefaultStack>,
    panic: Option<String>,
}

struct Task {
    process: Process,
    name: String,
    fiber: Option<Fiber>,
    waits_for: Option<usize>,
    timer: Option<Nanos>,
    was_notified: bool,
    is_unparked: bool,
}

thread_local! {
    static HERE: RefCell<Option<Tasks>> = const { RefCell::new(None) };
    static IS_SIMULATED: Cell<bool> = const { Cell::new(false) };
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
}

/// The simulation of the calling thread, if any.
pub(crate) fn here() -> Option<Tasks> {
    if !IS_SIMULATED.get() {
        return None;
    }
    HERE.with_borrow(Clone::clone)
}

/// Whether the caller is a task of a simulation, and so may wait.
#[must_use]
pub fn is_task() -> bool {
    here().is_some_and(|here| here.0.state.borrow().running.is_some())
}

/// The process for which code runs now, in a simulation.
#[must_use]
pub fn process() -> Option<Process> {
    here().and_then(|here| here.0.state.borrow().process)
}

/// While it lives, the thread that created it is in a simulation.
pub struct EnterGuard(());

impl Drop for EnterGuard {
    fn drop(&mut self) {
        IS_SIMULATED.set(false);
        HERE.set(None);
    }
}

/// Returns to the scheduler; resumes when the scheduler chooses this task again.
fn yield_now() {
    let yielder = YIELDER.get();
    // SAFETY: the pointer was set by the fiber that is running, when it began or when it last returned from here, to
    // the yielder on this fiber's own stack, which lives as long as the fiber. Callers make sure that a fiber is
    // running (`TasksState::running`).
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

impl Tasks {
    /// Creates a simulation without tasks; `random` chooses the next task, and `clock` has the time.
    #[must_use]
    pub fn new(clock: SimClock, random: SimRandom) -> Tasks {
        Tasks(Rc::new(Inner { clock, random, zero: Instant::now(), state: RefCell::default() }))
    }

    /// From now on every wait on this thread is simulated, until the guard is dropped.
    #[must_use]
    pub fn enter(&self) -> EnterGuard {
        HERE.set(Some(self.clone()));
        IS_SIMULATED.set(true);
        EnterGuard(())
    }

    /// Runs `work` as `process`: threads it starts belong to that.
    pub fn within<T>(&self, process: Process, work: impl FnOnce() -> T) -> T {
        let before = self.0.state.borrow_mut().process.replace(process);
        let done = work();
        self.0.state.borrow_mut().process = before;
        done
    }

    /// Ends all tasks of `process` where they are. Threads that it starts while ending never run.
    pub fn kill(&self, process: Process) {
        self.0.state.borrow_mut().dead.insert(process);
        loop {
            let next = {
                let mut state = self.0.state.borrow_mut();
                let id = state.tasks.iter().find(|(_, task)| task.process == process).map(|(id, _)| *id);
                id.map(|id| (id, state.remove(id)))
            };
            let Some((id, task)) = next else { return };
            let Some(mut fiber) = task.and_then(|task| task.fiber) else { continue };
            let before = self.0.state.borrow_mut().running.replace(id);
            let outside = self.0.state.borrow_mut().process.replace(process);
            if fiber.started() {
                fiber.force_unwind();
                self.0.state.borrow_mut().stacks.push(fiber.into_stack());
            } else {
                drop(fiber);
            }
            let mut state = self.0.state.borrow_mut();
            (state.running, state.process) = (before, outside);
        }
    }

    /// Stops all tasks of `process`, like SIGSTOP; time continues.
    pub fn stall(&self, process: Process) {
        self.0.state.borrow_mut().stalled.insert(process);
    }

    pub fn resume(&self, process: Process) {
        let mut state = self.0.state.borrow_mut();
        state.stalled.remove(&process);
        for id in std::mem::take(&mut state.stalled_ready) {
            state.make_ready(id);
        }
    }

    /// The number of runnable tasks.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.0.state.borrow_mut().wake(self.0.clock.now());
        self.0.state.borrow().ready.len()
    }

    /// The time at which the next task becomes runnable, without other events.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        let state = self.0.state.borrow();
        if !state.ready.is_empty() {
            return Some(self.0.clock.now());
        }
        state.timers.first().map(|(at, _)| *at)
    }

    /// Runs one task until it waits; returns its number, or `None` if none is runnable. Fails with the message of a
    /// panic.
    pub fn run_one(&self) -> Result<Option<u64>, String> {
        let (id, mut fiber) = {
            let mut state = self.0.state.borrow_mut();
            state.wake(self.0.clock.now());
            if state.ready.is_empty() {
                return Ok(None);
            }
            let nth = self.0.random.below(state.ready.len() as u64) as usize;
            let id = state.ready.remove(nth);
            let Some(task) = state.tasks.get_mut(&id) else { return Ok(Some(id.0)) };
            let Some(fiber) = task.fiber.take() else { return Ok(Some(id.0)) };
            let process = task.process;
            state.running = Some(id);
            state.process = Some(process);
            (id, fiber)
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| fiber.resume(())));
        let mut state = self.0.state.borrow_mut();
        (state.running, state.process) = (None, None);
        match outcome {
            Ok(CoroutineResult::Yield(())) => {
                if let Some(task) = state.tasks.get_mut(&id) {
                    task.fiber = Some(fiber);
                }
            }
            Ok(CoroutineResult::Return(())) => {
                state.stacks.push(fiber.into_stack());
                state.remove(id);
                state.notify(key_of(id), usize::MAX);
            }
            Err(panic) => {
                let name = state.remove(id).map(|task| task.name).unwrap_or_default();
                state.panic = Some(format!("{name} panicked: {}", panic_message(&*panic)));
            }
        }
        state.panic.clone().map_or(Ok(Some(id.0)), Err)
    }

    /// A description of all waiting tasks.
    #[must_use]
    pub fn describe(&self) -> String {
        let state = self.0.state.borrow();
        let lines = state.tasks.values().map(|task| {
            let timer = task.timer.map(|at| at.since(self.0.clock.now()));
            format!("  {:?} {} waits, timer {timer:?}\n", task.process, task.name)
        });
        lines.collect()
    }

    pub(crate) fn spawn(&self, name: &str, work: impl FnOnce() + 'static) -> TaskId {
        let stack = self.0.state.borrow_mut().stacks.pop();
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("memory for a stack"));
        // Boxed, because only small values can be passed to a new stack.
        let work: Box<dyn FnOnce()> = Box::new(work);
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            work();
        });
        let mut state = self.0.state.borrow_mut();
        let process = state.process.expect("invariant: threads are started within a process");
        state.next += 1;
        let id = TaskId(state.next);
        if state.dead.contains(&process) {
            drop(state);
            drop(fiber);
            return id;
        }
        let (name, fiber) = (name.to_owned(), Some(fiber));
        let (waits_for, timer) = (None, None);
        let task = Task { process, name, fiber, waits_for, timer, was_notified: false, is_unparked: false };
        state.tasks.insert(id, task);
        state.make_ready(id);
        id
    }

    /// The task that runs now.
    pub(crate) fn current(&self) -> Option<TaskId> {
        self.0.state.borrow().running
    }

    pub(crate) fn join(&self, task: TaskId) {
        while self.0.state.borrow().tasks.contains_key(&task) {
            if !self.wait(key_of(task), None) {
                return;
            }
        }
    }

    pub(crate) fn unpark(&self, id: TaskId) {
        let mut state = self.0.state.borrow_mut();
        if let Some(task) = state.tasks.get_mut(&id) {
            task.is_unparked = true;
        }
        state.notify(park_key(id), 1);
    }

    pub(crate) fn unpark_self(&self) {
        let running = self.0.state.borrow().running;
        running.into_iter().for_each(|id| self.unpark(id));
    }

    pub(crate) fn park(&self, wait: Duration) {
        let running = self.0.state.borrow().running;
        let Some(id) = running else { return };
        let take_unpark = || {
            self.0.state.borrow_mut().tasks.get_mut(&id).is_some_and(|t| std::mem::take(&mut t.is_unparked))
        };
        if !take_unpark() {
            self.wait(park_key(id), Some(self.instant() + wait));
            take_unpark();
        }
    }

    pub(crate) fn sleep(&self, wait: Duration) {
        self.wait(0, Some(self.instant() + wait));
    }

    pub(crate) fn instant(&self) -> Instant {
        self.0.zero + Duration::from_nanos(self.0.clock.now().0)
    }

    pub(crate) fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        loop {
            if let Some(guard) = mutex.try_lock() {
                return guard;
            }
            self.sleep(LOCK_RETRY_INTERVAL);
        }
    }

    pub(crate) fn notify(&self, key: usize, most: usize) {
        self.0.state.borrow_mut().notify(key, most);
    }

    /// As [`Tasks::wait`], with the lock released meanwhile.
    pub(crate) fn wait_unlocked<T>(
        &self,
        key: usize,
        deadline: Option<Instant>,
        guard: &mut MutexGuard<'_, T>,
    ) -> bool {
        MutexGuard::unlocked(guard, || self.wait(key, deadline))
    }

    /// Waits for a notification of `key`. Returns false if the deadline passes first, or the process is killed.
    pub(crate) fn wait(&self, key: usize, deadline: Option<Instant>) -> bool {
        let id = {
            let mut state = self.0.state.borrow_mut();
            let is_dead = state.process.is_some_and(|process| state.dead.contains(&process));
            if is_dead {
                return false;
            }
            let id = state.running.expect("invariant: in a simulation only tasks wait");
            let timer = deadline.map(|at| Nanos::default().after(at.duration_since(self.0.zero)));
            if let Some(task) = state.tasks.get_mut(&id) {
                (task.waits_for, task.timer, task.was_notified) = (Some(key), timer, false);
            }
            state.timers.extend(timer.map(|at| (at, id)));
            id
        };
        yield_now();
        self.0.state.borrow().tasks.get(&id).is_some_and(|task| task.was_notified)
    }
}

impl TasksState {
    fn wake(&mut self, now: Nanos) {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            if let Some(task) = self.tasks.get_mut(&id) {
                (task.waits_for, task.timer) = (None, None);
                self.make_ready(id);
            }
        }
    }

    fn make_ready(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        match self.stalled.contains(&task.process) {
            true => self.stalled_ready.push(id),
            false => self.ready.push(id),
        }
    }

    fn notify(&mut self, key: usize, most: usize) {
        let waiting = self.tasks.iter().filter(|(_, task)| task.waits_for == Some(key));
        let notified: Vec<TaskId> = waiting.map(|(id, _)| *id).take(most).collect();
        for id in notified {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            let timer = task.timer.take();
            (task.waits_for, task.was_notified) = (None, true);
            if let Some(at) = timer {
                self.timers.remove(&(at, id));
            }
            self.make_ready(id);
        }
    }

    fn remove(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        if let Some(at) = task.timer {
            self.timers.remove(&(at, id));
        }
        self.ready.retain(|ready| *ready != id);
        self.stalled_ready.retain(|stalled_ready| *stalled_ready != id);
        Some(task)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // No task may outlive its simulation.
        let state = self.state.get_mut();
        assert!(state.tasks.is_empty() || std::thread::panicking(), "every process was killed");
    }
}

// Keys that cannot be addresses: those are even and not small.
fn key_of(id: TaskId) -> usize {
    (id.0 as usize) << 2 | 1
}

fn park_key(id: TaskId) -> usize {
    (id.0 as usize) << 2 | 3
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
