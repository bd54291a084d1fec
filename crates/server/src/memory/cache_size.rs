//! The size of the caches while the server runs: it follows `cache_size_mb` of the server's row in
//! `rethinkdb.server_config`.
//!
//! The size from the command line holds until that row is changed. Without one the row's size holds from the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::{Catalog, Node, ServerId};
use parking_lot::Mutex;

use crate::config::{CacheSize, MemoryLimit, available_bytes};
use crate::memory::accountant::Accountant;
use crate::memory::plan::{MemoryPlan, bounded, of_machine};

/// Applies the configured size to the caches of one server.
pub(crate) struct CacheSizer {
    server: ServerId,
    accountant: Arc<Accountant>,
    limit: MemoryLimit,
    /// The present size in bytes.
    size: Arc<AtomicU64>,
    /// The size in the row when it was last read.
    row_mb: Mutex<Option<u64>>,
}

impl CacheSizer {
    /// Follows the catalog of `node`. `configured` is the size from the command line, `size` holds the current one.
    pub fn follow(
        node: &Node,
        (configured, limit): (CacheSize, MemoryLimit),
        accountant: Arc<Accountant>,
        size: Arc<AtomicU64>,
    ) {
        let server = node.identity().server;
        let row_mb = match configured {
            CacheSize::Auto => None,
            CacheSize::Megabytes(_) => of_row(&node.catalog(), server),
        };
        let sizer = CacheSizer { server, accountant, limit, size, row_mb: Mutex::new(row_mb) };
        node.watch_catalog(Box::new(move |catalog| sizer.look(catalog)));
    }

    fn look(&self, catalog: &Catalog) {
        if catalog.server(self.server).is_none() {
            // The server was removed, or it is a proxy that is shutting down.
            return;
        }
        let row_mb = of_row(catalog, self.server);
        if std::mem::replace(&mut *self.row_mb.lock(), row_mb) == row_mb {
            return;
        }
        let now = self.size.load(Ordering::Relaxed);
        let wanted = row_mb.map_or(CacheSize::Auto, CacheSize::Megabytes);
        // The memory of the present caches counts as available to the new ones.
        let cache = MemoryPlan::fit(wanted, self.limit, available_bytes().saturating_add(now), of_machine());
        if let Some(megabytes) = row_mb.filter(|megabytes| *megabytes != cache >> 20) {
            // The row was written through another server, or before this server started.
            tracing::warn!("{}", bounded(&format!("cache_size_mb {megabytes} in server_config"), cache));
        }
        match MemoryPlan::divide(cache, self.limit, of_machine()) {
            Ok(plan) => self.resize(plan),
            Err(error) => tracing::warn!("the cache size stays at {} MB: {error}", now >> 20),
        }
    }

    fn resize(&self, plan: MemoryPlan) {
        self.accountant.set_plan(plan);
        self.size.store(plan.cache, Ordering::Relaxed);
        tracing::info!("The cache size is now {} MB.", plan.cache >> 20);
    }
}

/// The size in the row of `server`; `None` is "auto".
fn of_row(catalog: &Catalog, server: ServerId) -> Option<u64> {
    catalog.server(server).and_then(|row| row.cache_size_mb)
}
