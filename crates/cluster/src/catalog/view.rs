//! The version of the catalog that this node shows.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use io::task::{self, Condvar};
use parking_lot::Mutex;

use super::snapshot::Catalog;

/// Receives every new version of the catalog, in order, on the thread that publishes it.
pub type CatalogWatcher = Box<dyn Fn(&Catalog) + Send + Sync>;

/// Holds the version of the catalog that this node shows, and wakes threads that wait for a later one.
#[derive(Default)]
pub(crate) struct CatalogView {
    shown: ArcSwap<Catalog>,
    /// Held while a version is replaced, so that no waiting thread misses it.
    waiting: Mutex<()>,
    published: Condvar,
    watcher: OnceLock<CatalogWatcher>,
}

impl CatalogView {
    /// The version shown now.
    pub(crate) fn shown(&self) -> Arc<Catalog> {
        self.shown.load_full()
    }

    /// The version shown now, without touching its reference count; hold it briefly.
    pub(crate) fn guard(&self) -> Guard<Arc<Catalog>> {
        self.shown.load()
    }

    /// Shows another version. `before_waking` is called when it is shown, before waiting threads are woken.
    pub(crate) fn show(&self, catalog: Arc<Catalog>, before_waking: impl FnOnce()) {
        {
            let _waiting = self.waiting.lock();
            self.shown.store(catalog);
        }
        before_waking();
        self.published.notify_all();
    }

    /// Replaces the handles of the version shown. Wakes no thread, because the rows are the same.
    pub(crate) fn replace_handles(&self, catalog: Arc<Catalog>) {
        self.shown.store(catalog);
    }

    /// Waits until `is_reached` holds for the version shown; returns false if that takes longer than `timeout`.
    pub(crate) fn wait_until(&self, is_reached: impl Fn(&Catalog) -> bool, timeout: Duration) -> bool {
        let deadline = task::now() + timeout;
        let mut waiting = self.waiting.lock();
        while !is_reached(&self.shown.load()) {
            if self.published.wait_until(&mut waiting, deadline).timed_out() {
                return is_reached(&self.shown.load());
            }
        }
        true
    }

    /// Sets the watcher for [`CatalogView::notify_watcher`], and calls it with the version shown now. If one is set
    /// already, that one is kept and called.
    pub(crate) fn watch(&self, watcher: CatalogWatcher) {
        self.watcher.get_or_init(|| watcher)(&self.shown());
    }

    /// Calls the watcher, if there is one.
    pub(crate) fn notify_watcher(&self, catalog: &Catalog) {
        if let Some(watcher) = self.watcher.get() {
            watcher(catalog);
        }
    }
}
