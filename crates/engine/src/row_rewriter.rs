//! A hook that gives rows another form while the engine rewrites their files anyway.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

/// Called by an engine for rows that it writes to another file: [`Engine::set_rewriter`](crate::Engine::set_rewriter).
///
/// Calls come from threads of the engine, several at once, also for a row that was overwritten or deleted since. The
/// result takes the place of the value that the engine has read: snapshots that see this value see the result as well,
/// and later changes of the row stay as they are.
pub trait RowRewriter: Send + Sync {
    /// Whether any row would be rewritten now. If not, the engine does not ask for single rows.
    fn is_active(&self) -> bool;

    /// The value to store under `key` instead of `value`, which means the same to readers; `None` to leave it as it is.
    /// May read the engine, but must not write to it. Must not panic.
    fn rewrite(&self, key: &[u8], value: &[u8], occasion: Occasion) -> Option<Bytes>;
}

/// The reason why an engine rewrites a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// [`Engine::compact`](crate::Engine::compact) was called.
    Requested,
    /// The engine moves rows that have been on disk for some time.
    Settling,
}

/// The rewriter of an engine.
#[derive(Default)]
pub(crate) struct RewriterCell(RwLock<Option<Arc<dyn RowRewriter>>>);

impl RewriterCell {
    /// Sets the rewriter. When this returns, no call of the earlier one is running.
    pub(crate) fn set(&self, rewriter: Option<Arc<dyn RowRewriter>>) {
        let earlier = std::mem::replace(&mut *self.0.write(), rewriter);
        // Not under the lock: it may own much.
        drop(earlier);
    }

    #[cfg(feature = "rocks")]
    pub(crate) fn is_active(&self) -> bool {
        self.0.read().as_ref().is_some_and(|rewriter| rewriter.is_active())
    }

    /// The lock is held meanwhile, so that a rewriter is never dropped by a thread of the engine.
    pub(crate) fn rewrite(&self, key: &[u8], value: &[u8], occasion: Occasion) -> Option<Bytes> {
        self.0.read().as_ref()?.rewrite(key, value, occasion)
    }
}
