//! The contents of a data directory, opened on the real machine: engine, log, catalog, node.

use std::path::Path;
use std::sync::Arc;

use cluster::{CatalogReplica, Identity, Node, NodeOptions, UNASSIGNED_PEER, Wiring};
use datum::Text;
use engine::rocks::{EngineOptions, RocksEngine};
use engine::{BufferedEngine, Engine};
use io::real::{RealClock, RealFiles, RealRandom};
use io::{Clock, Files, Random};
use log::Log;
use log::file::{FileLog, FileLogOptions};
use shard::Replicas;
use storage::{CompressedEngine, CompressionOptions};

use super::data_directory::DataDirectory;
use super::password;
use super::peers::{LinkContext, Peers};
use super::ports::listening;
use super::server_name;
use super::start_error::StartError;
use crate::config::Config;
use crate::listen::BoundSockets;
use crate::memory::plan::MemoryPlan;
use crate::space::{Space, SpaceWatch};

/// The files, clock and random numbers of the real machine.
pub struct Machine {
    pub files: Arc<dyn Files>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
}

impl Machine {
    /// The machine of this process.
    #[must_use]
    pub fn new() -> Machine {
        Machine {
            files: Arc::new(RealFiles),
            clock: Arc::new(RealClock::new()),
            random: Arc::new(RealRandom),
        }
    }

    /// Rejects a folder that has lost its log or its identity: creating either anew would silently lose acknowledged
    /// writes. The log is created before the identity, and the identity before any replica.
    fn check_complete(&self, dir: &Path) -> Result<(), StartError> {
        let (files, path) = (&*self.files, dir.display().to_string());
        let has_identity = Identity::load(files, dir)?.is_some();
        let (is_complete, missing) = match has_identity {
            true => (log::file::exists(files, &dir.join("log")), "the folder `log`"),
            false => {
                let has_replicas = log::file::has_replicas(files, &dir.join("log"));
                (has_replicas.map(|has_replicas| !has_replicas), "the file `identity.json`")
            }
        };
        match is_complete {
            Ok(true) => Ok(()),
            Ok(false) => Err(StartError::Incomplete { path, what: missing }),
            Err(cause) => Err(StartError::Unreadable { what: "log in", path, cause }),
        }
    }

    /// Opens the engine and the log in `directory`.
    pub fn open_stores(
        &self,
        config: &Config,
        plan: &MemoryPlan,
        directory: &DataDirectory,
    ) -> Result<Stores, StartError> {
        let dir = directory.path();
        self.check_complete(dir)?;
        let failed =
            |cause| StartError::File { what: "name file in", path: dir.display().to_string(), cause };
        let name = server_name::choose(config.server_name.as_deref(), dir, &*self.files, &*self.random)
            .map_err(failed)?;
        let space = Space::new(dir, plan.memtables).map_err(|cause| StartError::Unreadable {
            what: "disk of",
            path: dir.display().to_string(),
            cause,
        })?;
        let rocks = Arc::new(RocksEngine::open(&dir.join("engine"), &engine_options(config, plan))?);
        let full = Arc::clone(&space);
        rocks.set_full_disk_hook(Arc::new(move || full.await_space()));
        let compressed = CompressedEngine::with_threads(rocks.clone(), compression_options(plan))?;
        let compressed = Arc::new(compressed);
        let gathering = BufferedEngine::with_writer_thread(compressed.clone(), size(plan.write_buffer))?;
        let engine: Arc<dyn Engine> = Arc::new(gathering);
        let replicas = Replicas::with_row_cache(engine.clone(), size(plan.rows))?;
        let space = Arc::new(space.watch(&replicas, &rocks)?);
        let wiring = Wiring::new(replicas.clone());
        let options = FileLogOptions {
            random: self.random.clone(),
            transport: wiring.transport.clone(),
            observer: wiring.leadership.clone(),
            ..FileLogOptions::default()
        };
        let (files, clock) = (self.files.clone(), self.clock.clone());
        let log: Arc<dyn Log> =
            Arc::new(FileLog::open(files, clock, &dir.join("log"), replicas.clone(), options)?);
        Ok(Stores { name, space, rocks, compressed, engine, replicas, wiring, log })
    }

    /// Opens the node over `stores` and applies the rest of the log.
    pub fn open_node(
        &self,
        config: &Config,
        directory: &DataDirectory,
        stores: Stores,
        catalog: Option<CatalogReplica>,
        addresses: &[String],
    ) -> Result<Arc<Node>, StartError> {
        let texts = |texts: &[String]| texts.iter().map(|text| Text::from(text.as_str())).collect();
        let options = NodeOptions {
            dir: directory.path().to_owned(),
            server_name: Text::from(stores.name),
            server_tags: texts(&config.tags()),
            cache_size_mb: config.cache.megabytes(),
            addresses: texts(addresses),
            replicas: stores.replicas,
            log: stores.log,
            wiring: stores.wiring,
            clock: self.clock.clone(),
            files: self.files.clone(),
            random: self.random.clone(),
            feed_retention: config.feed_retention.time,
            admin_password: password::record("", None, &*self.random),
        };
        Ok(Node::open_on(options, catalog)?)
    }
}

/// The opened contents of a data directory, and the transport of its replicas' messages.
pub struct Stores {
    name: String,
    /// Lives as long as the stores are used.
    pub space: Arc<SpaceWatch>,
    /// The engine on disk, below the compression and the write buffer of `engine`. Its rows are compressed.
    pub rocks: Arc<RocksEngine>,
    /// The compression itself, below the write buffer of `engine`.
    pub compressed: Arc<CompressedEngine>,
    pub engine: Arc<dyn Engine>,
    replicas: Arc<Replicas>,
    wiring: Wiring,
    log: Arc<dyn Log>,
}

impl Stores {
    /// Refuses to be open to other machines while `admin` has no password, before any client can connect.
    ///
    /// Returns `None` if only other servers know: when this server has not been admitted to its cluster yet. A server
    /// that lost power before its engine had the catalog learns it from the others, and exits then if it is exposed.
    pub fn open_known_catalog(
        &self,
        config: &Config,
        directory: &DataDirectory,
        machine: &Machine,
    ) -> Result<Option<CatalogReplica>, StartError> {
        let known = Identity::load(&*machine.files, directory.path())?;
        let Some(identity) = known.filter(|known| known.joined != Some(UNASSIGNED_PEER)) else {
            return Ok(None);
        };
        let catalog = CatalogReplica::open(&identity, &self.replicas, &self.log, &self.wiring.peers)?;
        if let Some(has_password) = catalog.admin_has_password()? {
            password::check_exposure(config, has_password)?;
        }
        Ok(Some(catalog))
    }

    /// Accepts connections from other servers, and connects to them.
    pub fn link(
        &self,
        config: &Config,
        directory: &DataDirectory,
        machine: &Machine,
        addresses: Vec<String>,
        cluster: BoundSockets,
    ) -> Result<Peers, StartError> {
        let context = LinkContext {
            config,
            dir: directory.path(),
            name: &self.name,
            cache_size_mb: config.cache.megabytes(),
            addresses,
            port: cluster.port,
            wiring: &self.wiring,
            log: &self.log,
            files: &machine.files,
            clock: &machine.clock,
            random: &machine.random,
        };
        Peers::start(&context, listening("cluster", cluster)?)
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn compression_options(plan: &MemoryPlan) -> CompressionOptions {
    let (_, memory_bytes) = CompressedEngine::divide_cache(size(plan.blocks));
    CompressionOptions { memory_bytes, ..CompressionOptions::default() }
}

fn engine_options(config: &Config, plan: &MemoryPlan) -> EngineOptions {
    let (cache_bytes, _) = CompressedEngine::divide_cache(size(plan.blocks));
    EngineOptions {
        cache_bytes,
        write_buffer_bytes: size(plan.memtables),
        background_jobs: config.cores.max(2),
        history_bytes_max: config.feed_retention.bytes,
        ..EngineOptions::default()
    }
}
