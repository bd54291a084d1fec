//! A machine on which a node is started repeatedly, with an engine in memory and simulated files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::sync::Arc;

use datum::{Object, Text};
use engine::Engine;
use engine::memory::MemoryEngine;
use io::Files;
use io::sim::{SimClock, SimFiles, SimRandom};
use log::file::{FileLog, FileLogOptions};
use rekindle_cluster::{Node, NodeOptions, Wiring};
use shard::Replicas;

/// The durable state of a node: its engine and its files.
pub struct Machine {
    pub engine: Arc<dyn Engine>,
    files: Arc<dyn Files>,
}

impl Machine {
    /// A machine with empty disks.
    pub fn new() -> Machine {
        let files: Arc<dyn Files> = Arc::new(SimFiles::new(7));
        files.create_dir_all(&PathBuf::from("data")).unwrap();
        Machine { engine: Arc::new(MemoryEngine::new()), files }
    }

    /// Starts a node on this machine.
    pub fn open(&self) -> Arc<Node> {
        let replicas = Replicas::new(self.engine.clone()).unwrap();
        let clock = Arc::new(SimClock::new());
        let dir = PathBuf::from("data");
        let wiring = Wiring::new(replicas.clone());
        let options = FileLogOptions {
            transport: wiring.transport.clone(),
            observer: wiring.leadership.clone(),
            ..FileLogOptions::default()
        };
        let log =
            FileLog::open(self.files.clone(), clock.clone(), &dir.join("log"), replicas.clone(), options);
        Node::open(NodeOptions {
            dir,
            server_name: Text::from_static("test"),
            server_tags: vec![Text::from_static("default")],
            replicas,
            log: Arc::new(log.unwrap()),
            wiring,
            cache_size_mb: None,
            addresses: Vec::new(),
            clock,
            files: self.files.clone(),
            random: Arc::new(SimRandom::new(7)),
            feed_retention: std::time::Duration::from_secs(3600),
            admin_password: (Object::default(), false),
        })
        .unwrap()
    }
}
