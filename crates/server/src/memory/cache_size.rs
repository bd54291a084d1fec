//! The size of the caches while the server runs: it follows `cache_size_mb` of the server's row in
//! `rethinkdb.server_config`.
//!
//! What the command line says holds until that row is changed; without it the row holds from the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::{Catalog, Node, ServerId};
use io::memory::Budget;
use parking_lot::Mutex;
use shard::Replicas;

use crate::config::{CacheSize, MemoryLimit, available_bytes};
use crate::memory::plan::{MemoryPlan, bounded, of_machine};

/// Gives the caches of one server the size they are to have.
pub(crate) struct CacheSizer {
    server: ServerId,
    replicas: Arc<Replicas>,
    /// Queries have what the caches leave.
    queries: Arc<Budget>,
    limit: MemoryLimit,
    /// The present size in bytes.
    size: Arc<AtomicU64>,
    /// What the row said last.
    row_mb: Mutex<Option<u64>>,
}

impl CacheSizer {
    /// Follows the catalog of `node`, whose caches have the size in `size` and were `configured` so.
    pub fn follow(
        node: &Node,
        (configured, limit): (CacheSize, MemoryLimit),
        queries: Arc<Budget>,
        size: Arc<AtomicU64>,
    ) {
        let server = node.identity().server;
        let row_mb = match configured {
            CacheSize::Auto => None,
            CacheSize::Megabytes(_) => of_row(&node.catalog(), server),
        };
        let replicas = node.replicas().clone();
        let sizer = CacheSizer { server, replicas, queries, limit, size, row_mb: Mutex::new(row_mb) };
        node.watch_catalog(Box::new(move |catalog| sizer.look(catalog)));
    }

    fn look(&self, catalog: &Catalog) {
        if catalog.server(self.server).is_none() {
            // It takes leave, as a proxy does when it stops, or was removed.
            return;
        }
        let row_mb = of_row(catalog, self.server);
        if std::mem::replace(&mut *self.row_mb.lock(), row_mb) == row_mb {
            return;
        }
        let now = self.size.load(Ordering::Relaxed);
        let wanted = row_mb.map_or(CacheSize::Auto, CacheSize::Megabytes);
        // What the caches have is free for them.
        let cache = MemoryPlan::fit(wanted, self.limit, available_bytes().saturating_add(now), of_machine());
        if let Some(megabytes) = row_mb.filter(|megabytes| *megabytes != cache >> 20) {
            // Written for this server through another one, or before.
            tracing::warn!("{}", bounded(&format!("cache_size_mb {megabytes} in server_config"), cache));
        }
        match MemoryPlan::divide(cache, self.limit, of_machine()) {
            Ok(plan) => self.resize(&plan),
            Err(error) => tracing::warn!("the size of the cache stays {} MB: {error}", now >> 20),
        }
    }

    fn resize(&self, plan: &MemoryPlan) {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        self.queries.set_limit(plan.queries);
        self.replicas.store().set_row_cache_bytes(size(plan.rows));
        self.replicas.engine().set_cache_bytes(size(plan.blocks));
        self.size.store(plan.cache, Ordering::Relaxed);
        tracing::info!("The size of the cache is {} MB now.", plan.cache >> 20);
    }
}

/// What the row of `server` says; `None` is "auto".
fn of_row(catalog: &Catalog, server: ServerId) -> Option<u64> {
    catalog.server(server).and_then(|row| row.cache_size_mb)
}
