//! A hook that is asked when the disk has no space for a write of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::EngineError;

/// Called when the disk has no space for a write or a flush. It may wait, and returns whether to try once more.
pub type FullDiskHook = Arc<dyn Fn() -> bool + Send + Sync>;

/// The hook of an engine, and whether a flush of its own has failed.
#[derive(Default)]
pub(crate) struct FullDisk {
    hook: Mutex<Option<FullDiskHook>>,
    has_failed: AtomicBool,
}

impl FullDisk {
    pub(crate) fn set(&self, hook: FullDiskHook) {
        *self.hook.lock() = Some(hook);
    }

    /// A flush or merge that the engine began by itself has found no space.
    pub(crate) fn note_failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether one has failed since the last call.
    pub(crate) fn take_failed(&self) -> bool {
        self.has_failed.swap(false, Ordering::Relaxed)
    }

    /// Repeats `work` as long as the disk is full and the hook asks for it.
    pub(crate) fn retry(&self, work: impl Fn() -> Result<(), EngineError>) -> Result<(), EngineError> {
        loop {
            let done = work();
            if !matches!(done, Err(EngineError::Full { .. })) {
                return done;
            }
            // Not under the lock: the hook waits.
            let hook = self.hook.lock().clone();
            if !hook.is_some_and(|hook| hook()) {
                return done;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn full() -> Result<(), EngineError> {
        Err(EngineError::Full { detail: "no space".to_owned() })
    }

    #[test]
    fn work_is_repeated_until_there_is_space_or_the_hook_gives_up() {
        let tries = AtomicU32::new(0);
        let work = || if tries.fetch_add(1, Ordering::Relaxed) < 3 { full() } else { Ok(()) };
        let disk = FullDisk::default();
        assert!(disk.retry(work).is_err(), "without a hook it fails at once");
        let asked = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&asked);
        disk.set(Arc::new(move || counts.fetch_add(1, Ordering::Relaxed) < 10));
        disk.retry(work).unwrap();
        assert_eq!((tries.load(Ordering::Relaxed), asked.load(Ordering::Relaxed)), (4, 2));
        assert!(disk.retry(full).is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 11);
        let other = || Err(EngineError::Io { detail: "other".to_owned() });
        assert!(disk.retry(other).is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 11, "only a full disk is waited for");
    }
}
