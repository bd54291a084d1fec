//! Resources of this program that would outlive it: processes, control groups, folders. Each is released when its
//! [`CleanupGuard`] is dropped, and all of them, the latest first, when a signal ends the program. When the program is
//! killed, processes are ended by other means: see [`super::guarded_process`].

use std::io::{self, IsTerminal, Write};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The signals that end the program, unless its parent had them ignored, as `nohup` does.
const ENDING: [(i32, &str); 3] = [(SIGHUP, "SIGHUP"), (SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")];

static CLEANUPS: Gate<Cleanups> = Gate::new(Cleanups { held: Vec::new(), last: 0, is_watched: false });

type Release = Box<dyn FnOnce() -> io::Result<()> + Send>;

struct Cleanups {
    /// In the order of creation.
    held: Vec<Cleanup>,
    last: u64,
    is_watched: bool,
}

struct Cleanup {
    number: u64,
    /// Starts the release without waiting.
    start_release: Box<dyn FnOnce() + Send>,
    release: Release,
}

/// A resource that is released when this is dropped or a signal ends the program.
#[derive(Debug)]
pub struct CleanupGuard<T> {
    thing: T,
    number: u64,
}

impl<T: Clone + Send + 'static> CleanupGuard<T> {
    /// Creates a resource that `release` releases. Does not return once a signal ends the program, so that nothing is
    /// created that would be left. Fails if the resource cannot be created or signals cannot be watched.
    pub fn make(
        make: impl FnOnce() -> io::Result<T>,
        release: fn(&T) -> io::Result<()>,
    ) -> io::Result<CleanupGuard<T>> {
        CleanupGuard::make_many(make, |_| (), release)
    }

    /// The same for one of many resources with a slow `release`: when a signal ends the program, `start_release` is
    /// first called for all of them, so that they end at the same time. It must not wait, and may be called while a
    /// resource is being released.
    pub fn make_many(
        make: impl FnOnce() -> io::Result<T>,
        start_release: fn(&T),
        release: fn(&T) -> io::Result<()>,
    ) -> io::Result<CleanupGuard<T>> {
        let mut cleanup = CLEANUPS.enter();
        if !cleanup.is_watched {
            watch()?;
            cleanup.is_watched = true;
        }
        let thing = make()?;
        let (started, released) = (thing.clone(), thing.clone());
        cleanup.last += 1;
        let number = cleanup.last;
        cleanup.held.push(Cleanup {
            number,
            start_release: Box::new(move || start_release(&started)),
            release: Box::new(move || release(&released)),
        });
        Ok(CleanupGuard { thing, number })
    }
}

impl<T> CleanupGuard<T> {
    /// Releases it, as dropping does, and returns whether that worked.
    pub fn release(self) -> io::Result<()> {
        CLEANUPS.enter().release(self.number)
    }
}

impl<T> Deref for CleanupGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.thing
    }
}

impl<T> Drop for CleanupGuard<T> {
    fn drop(&mut self) {
        // A caller that needs the outcome has called `release`; here an error cannot be handled.
        let _ = CLEANUPS.enter().release(self.number);
    }
}

impl Cleanups {
    /// Releases a resource, unless that was done.
    fn release(&mut self, number: u64) -> io::Result<()> {
        let place = self.held.iter().position(|held| held.number == number);
        place.map_or(Ok(()), |place| (self.held.remove(place).release)())
    }

    /// Hastens all releases, then releases all, the latest first. Returns the errors.
    fn release_all(&mut self) -> Vec<String> {
        let mut started: Vec<Release> = Vec::new();
        for Cleanup { start_release, release, .. } in self.held.drain(..) {
            start_release();
            started.push(release);
        }
        let outcomes = started.into_iter().rev().map(|release| release());
        outcomes.filter_map(Result::err).map(|error| error.to_string()).collect()
    }
}

/// Does `work` unless a signal ends the program; does not return once one does. For work that reports ended processes,
/// or writes results, which would be wrong while the program ends its own processes.
pub fn unless_ending<T>(work: impl FnOnce() -> T) -> T {
    let _held = CLEANUPS.enter();
    work()
}

/// A lock that the end of the program acquires before all others. The system's lock is not fair: a loop that starts one
/// node after another could reacquire it each time before a waiting thread wakes up.
struct Gate<T> {
    inner: Mutex<T>,
    is_closed: AtomicBool,
}

impl<T> Gate<T> {
    const fn new(inner: T) -> Gate<T> {
        Gate { inner: Mutex::new(inner), is_closed: AtomicBool::new(false) }
    }

    /// Acquires the lock. Does not return once the gate is closed.
    fn enter(&self) -> MutexGuard<'_, T> {
        let guard = self.is_open().then(|| self.lock());
        match guard.filter(|_| self.is_open()) {
            Some(guard) => guard,
            None => loop {
                std::thread::park();
            },
        }
    }

    /// Closes the gate permanently and acquires the lock.
    fn close(&self) -> MutexGuard<'_, T> {
        self.is_closed.store(true, Ordering::Release);
        self.lock()
    }

    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// A panic of another thread while it held the lock leaves the list intact.
    fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watch() -> io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mut signals = Signals::new(handled_signals(&status).map(|(number, _)| number))?;
    let watch = move || {
        let mut arriving = signals.forever();
        if let Some(first) = arriving.next()
            && thread("ending", move || end(first)).is_ok()
            && let Some(second) = arriving.next()
        {
            // A second signal means: do not wait. Servers are still ended by their companion processes.
            eprintln!("bench: ended before its servers were removed; their data may remain");
            std::process::exit(128 + second);
        }
    };
    thread("signals", watch)
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Releases everything and exits with the status that shells use for the signal. The lock is held until then: threads
/// that would report ended nodes, or start new ones, wait for it.
fn end(number: i32) {
    let mut cleanup = CLEANUPS.close();
    let failures = cleanup.release_all();
    let name = ENDING.iter().find(|(known, _)| *known == number).map_or("a signal", |(_, name)| name);
    let mut stderr = io::stderr();
    // Overwrites the progress line. A closed terminal is ignored.
    let begin = if stderr.is_terminal() { "\r\x1b[2K" } else { "" };
    let outcome = match failures.is_empty() {
        true => "its servers and their data are removed".to_owned(),
        false => failures.join(", "),
    };
    let _ = writeln!(stderr, "{begin}bench: ended by {name}; {outcome}");
    std::process::exit(128 + number);
}

/// The signals in [`ENDING`] that a process does not ignore, according to its `/proc/PID/status`.
fn handled_signals(status: &str) -> impl Iterator<Item = (i32, &'static str)> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ENDING.into_iter().filter(move |(number, _)| ignored & (1 << (number - 1)) == 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn ignored_signals_stay_ignored() {
        let names = |status: &str| handled_signals(status).map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names("Name:\tbench\nSigIgn:\t0000000000001000\n"), ["SIGHUP", "SIGINT", "SIGTERM"]);
        assert_eq!(names("SigIgn:\t0000000000001001\n"), ["SIGINT", "SIGTERM"]);
        assert_eq!(names("SigIgn:\t0000000000000006\n"), ["SIGHUP", "SIGTERM"]);
        assert_eq!(names(""), ["SIGHUP", "SIGINT", "SIGTERM"]);
    }

    #[test]
    fn a_guard_releases_once() {
        let times = || CleanupGuard::make(|| Ok(Arc::new(AtomicU32::new(0))), count).expect("made");
        let (dropped, asked) = (times(), times());
        let seen = [Arc::clone(&dropped), Arc::clone(&asked)];
        drop(dropped);
        asked.release().expect("released");
        assert_eq!(seen.map(|times| times.load(Ordering::Relaxed)), [1, 1]);
    }

    #[test]
    fn every_release_is_started_before_the_first_is_awaited() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let held = |number: u64| {
            let [began, ended] = [Arc::clone(&calls), Arc::clone(&calls)];
            Cleanup {
                number,
                start_release: Box::new(move || {
                    began.lock().expect("calls").push(format!("start_release {number}"))
                }),
                release: Box::new(move || {
                    ended.lock().expect("calls").push(format!("release {number}"));
                    Err(io::Error::other(format!("{number} failed")))
                }),
            }
        };
        let mut cleanup = Cleanups { held: vec![held(1), held(2)], last: 2, is_watched: false };
        assert_eq!(cleanup.release_all(), ["2 failed", "1 failed"]);
        assert_eq!(
            *calls.lock().expect("calls"),
            ["start_release 1", "start_release 2", "release 2", "release 1"]
        );
    }

    #[test]
    fn a_closed_gate_admits_no_thread() {
        let gate: &Gate<u32> = Box::leak(Box::new(Gate::new(0)));
        let pause = std::time::Duration::from_millis(1);
        let busy = move || loop {
            let mut entries = gate.enter();
            *entries += 1;
            std::thread::sleep(pause);
        };
        // They stay parked.
        std::thread::spawn(busy);
        std::thread::spawn(busy);
        while *gate.lock() == 0 {
            std::thread::sleep(pause);
        }
        let entries = *gate.close();
        std::thread::sleep(20 * pause);
        assert_eq!(*gate.lock(), entries);
    }

    fn count(times: &Arc<AtomicU32>) -> io::Result<()> {
        times.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
