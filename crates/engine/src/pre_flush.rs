//! A hook that runs before rows become durable: it makes the log that the rows come from durable first.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::EngineError;

/// Called by an engine before rows become durable: [`Engine::set_pre_flush_hook`](crate::Engine::set_pre_flush_hook).
/// An error means that the rows should not become durable.
pub type PreFlushHook = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// The hook of an engine.
#[derive(Default)]
pub(crate) struct Hook(Mutex<Option<PreFlushHook>>);

impl Hook {
    pub(crate) fn set(&self, hook: PreFlushHook) {
        *self.0.lock() = Some(hook);
    }

    /// Runs the hook. The caller has already fixed which rows become durable.
    pub(crate) fn run(&self) -> Result<(), EngineError> {
        // Not under the lock: the hook may wait for a disk.
        let hook = self.0.lock().clone();
        let ran = hook.map_or(Ok(()), |hook| hook());
        ran.map_err(|cause| EngineError::Io {
            detail: format!("could not make the log durable before the rows: {cause}"),
        })
    }
}
