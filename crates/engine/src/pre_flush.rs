//! What is to be done before rows become durable: the log that they come from is to be durable first.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::EngineError;

/// Called by an engine before rows become durable: [`Engine::set_pre_flush_hook`](crate::Engine::before_flush). Fails where
/// they had better not.
pub type PreFlushHook = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Where an engine keeps what is to be done.
#[derive(Default)]
pub(crate) struct Hook(Mutex<Option<PreFlushHook>>);

impl Hook {
    pub(crate) fn set(&self, hook: PreFlushHook) {
        *self.0.lock() = Some(hook);
    }

    /// Does it. Whoever calls this has fixed which rows are to become durable.
    pub(crate) fn run(&self) -> Result<(), EngineError> {
        // Not under the lock: it may wait for a disk.
        let hook = self.0.lock().clone();
        let ran = hook.map_or(Ok(()), |hook| hook());
        ran.map_err(|cause| EngineError::Io { detail: format!("the log goes before the rows: {cause}") })
    }
}
