//! A machine of the cluster: its lasting state, and its process while one runs.

use std::sync::Arc;
use std::time::Duration;

use cluster::link::{LinkHandler, Links};
use cluster::{Node, ServerId};
use engine::Engine;
use engine::memory::MemoryEngine;
use io::sim::{Host, Process, SimNetwork, SimRandom, Tasks};
use io::{Nanos, NetworkEvent, NetworkHandler};
use log::StallCause;
use parking_lot::Mutex;

use crate::disk::Disk;
use crate::startup::{self, NodePlan, Started};
use crate::trace;

pub struct Machine {
    /// Its host on the network.
    pub host: Host,
    /// The options of its node.
    pub plan: NodePlan,
    /// Its process, if one runs.
    pub running: Option<RunningProcess>,
    /// The number of its starts.
    pub starts: u64,
    /// The identity with which it served last.
    pub server: Option<ServerId>,
}

pub struct RunningProcess {
    /// The owner of its tasks.
    pub process: Process,
    started: Arc<Mutex<Started>>,
    links: Option<(Links, LinkHandler)>,
    /// The node, once it serves.
    pub node: Option<Arc<Node>>,
    wake_at: Nanos,
    events: Vec<NetworkEvent>,
    is_stalled: bool,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is killed: its writes are on the disk or in the cache of the system.
    Killed,
    /// The machine loses power: writes that were not synced are lost.
    Power,
}

impl Machine {
    /// A machine without a process.
    #[must_use]
    pub fn new(host: Host, plan: NodePlan) -> Machine {
        Machine { host, plan, running: None, starts: 0, server: None }
    }

    /// Gives a machine without a process an empty disk; at its next start it joins the cluster of `join`.
    pub fn set_up_anew(&mut self, random: &SimRandom, join: Vec<String>) {
        self.plan.disk = Disk::new(random.clone(), io::Random::next_u64(random));
        (self.plan.engine, self.plan.join, self.server) = (MemoryEngine::new(), join, None);
    }

    /// Polls the start of the node; returns whether the node learned that its server was removed. Fails if the start failed.
    pub fn look(&mut self) -> Result<bool, String> {
        let Some(running) = &mut self.running else { return Ok(false) };
        running.look()?;
        if let Some(node) = &running.node {
            self.server = Some(node.identity().server);
        }
        let was_removed = running.started.lock().was_removed;
        Ok(was_removed)
    }

    pub fn start(&mut self, tasks: &Tasks, net: &mut SimNetwork) {
        self.starts += 1;
        self.plan.disk.repair();
        let process = Process(self.plan.number as u64 * 1_000_000 + self.starts);
        trace::set_machine(process.0, self.plan.number);
        net.start(self.host);
        let started: Arc<Mutex<Started>> = Arc::default();
        let (plan, slot) = (self.plan.clone(), started.clone());
        tasks.within(process, || {
            // Tasks are never refused.
            drop(io::task::spawn("start", move || startup::start(&plan, &slot)));
        });
        self.running = Some(RunningProcess {
            process,
            started,
            links: None,
            node: None,
            wake_at: Nanos::default(),
            events: Vec::new(),
            is_stalled: false,
        });
    }

    /// Flushes its engine, which engines do at any time: on a separate thread, and once the log is durable.
    pub fn flush_engine(&self, tasks: &Tasks) {
        let Some(running) = &self.running else { return };
        if self.plan.disk.is_full() {
            return;
        }
        let engine = self.plan.engine.clone();
        let flush = move || drop(engine.flush());
        // Tasks are never refused.
        tasks.within(running.process, || drop(io::task::spawn("engine-flush", flush)));
    }

    /// Ends the process.
    pub fn end(&mut self, how: End, tasks: &Tasks, net: &mut SimNetwork) {
        let Some(running) = self.running.take() else { return };
        net.crash(self.host);
        match how {
            End::Killed => self.plan.disk.files.end_process(),
            End::Power => self.plan.disk.files.crash(),
        }
        tasks.kill(running.process);
        tasks.within(running.process, || drop(running));
        // The engine has no log: rows that were not flushed are lost with the process.
        self.plan.engine = after_crash(&self.plan.engine);
    }

    /// Stops or continues the process.
    pub fn set_stalled(&mut self, is_stalled: bool, tasks: &Tasks, net: &mut SimNetwork) {
        let Some(running) = &mut self.running else { return };
        running.is_stalled = is_stalled;
        match is_stalled {
            true => {
                tasks.stall(running.process);
                net.stall(self.host);
            }
            false => {
                tasks.resume(running.process);
                net.resume(self.host);
            }
        }
    }

    /// Whether it last served as one of these servers.
    #[must_use]
    pub fn is_one_of(&self, servers: &[ServerId]) -> bool {
        self.server.is_some_and(|server| servers.contains(&server))
    }

    /// Whether rows were ahead of their log when it was opened.
    #[must_use]
    pub fn rows_are_ahead(&self) -> bool {
        self.node().is_some_and(|node| node.log().stats().rows_ahead > 0)
    }

    /// Whether its log has stopped, as after a failure of the disk. Only a restart helps.
    #[must_use]
    pub fn has_stopped_log(&self) -> bool {
        let stall = self.node().and_then(|node| node.log().stall());
        stall.is_some_and(|stall| stall.cause == StallCause::Stopped)
    }

    /// The node, if it serves.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.running.as_ref().and_then(|running| running.node.as_ref())
    }
}

fn after_crash(engine: &MemoryEngine) -> MemoryEngine {
    engine.after_crash()
}

impl RunningProcess {
    fn look(&mut self) -> Result<(), String> {
        if self.node.is_some() {
            return Ok(());
        }
        let mut started = self.started.lock();
        if let Some(why) = &started.failed {
            return Err(why.clone());
        }
        if let Some(links) = started.links.take() {
            self.links = Some(links);
        }
        self.node = started.node.take();
        Ok(())
    }

    /// Adds an event of its network.
    pub fn receive(&mut self, event: NetworkEvent) {
        self.events.push(event);
    }

    /// Whether its links have work.
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        let Some((links, _)) = &self.links else { return false };
        if self.is_stalled {
            return false;
        }
        let rung = links.loop_waker().take_wake();
        if rung {
            // The query has cleared the wake: set it again.
            links.loop_waker().wake();
        }
        rung || !self.events.is_empty() || self.wake_at <= now
    }

    /// When its links are due without any event.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        (self.links.is_some() && !self.is_stalled).then_some(self.wake_at)
    }

    /// Runs one step of its links.
    pub fn step(&mut self, host: Host, now: Nanos, tasks: &Tasks, net: &mut SimNetwork) {
        let Some((links, handler)) = &mut self.links else { return };
        let mut orders = Vec::new();
        let _ = links.loop_waker().take_wake();
        let events = &mut self.events;
        self.wake_at = tasks.within(self.process, || handler.step(now, events, &mut orders));
        net.execute(host, orders);
    }
}

/// The longest time of a sync, from a healthy disk to a failing one.
pub const SYNC_DELAYS: [Duration; 4] = [
    Duration::from_micros(300),
    Duration::from_millis(2),
    Duration::from_millis(20),
    Duration::from_millis(400),
];
