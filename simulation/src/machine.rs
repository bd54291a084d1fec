//! A machine of the cluster: what stays when its process ends, and the process while there is one.

use std::sync::Arc;
use std::time::Duration;

use cluster::link::{LinkParty, Links};
use cluster::{Node, ServerId};
use engine::Engine;
use engine::memory::MemoryEngine;
use io::sim::{Host, Process, SimNetwork, SimRandom, Tasks};
use io::{Nanos, NetworkEvent, NetworkHandler};
use parking_lot::Mutex;

use crate::disk::Disk;
use crate::startup::{self, Plan, Started};
use crate::trace;

/// A machine.
pub struct Machine {
    /// Its place on the network.
    pub host: Host,
    /// What its node is started with.
    pub plan: Plan,
    /// Its process, while there is one.
    pub life: Option<Life>,
    /// How often it was started.
    pub starts: u64,
    /// The server that it was when it served last.
    pub server: Option<ServerId>,
}

/// A process.
pub struct Life {
    /// Its tasks belong to this.
    pub process: Process,
    started: Arc<Mutex<Started>>,
    links: Option<(Links, LinkParty)>,
    /// The node, once it serves.
    pub node: Option<Arc<Node>>,
    wake_at: Nanos,
    happened: Vec<NetworkEvent>,
    is_stalled: bool,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is killed: what it wrote is on the disk, or on its way there.
    Killed,
    /// The power goes: what was not synced is lost.
    Power,
}

impl Machine {
    /// A machine that is turned off.
    #[must_use]
    pub fn new(host: Host, plan: Plan) -> Machine {
        Machine { host, plan, life: None, starts: 0, server: None }
    }

    /// A machine that is off gets an empty disk, and asks `join` to be let in when it starts.
    pub fn set_up_anew(&mut self, random: &SimRandom, join: Vec<String>) {
        self.plan.disk = Disk::new(random.clone(), io::Random::next_u64(random));
        (self.plan.engine, self.plan.join, self.server) = (MemoryEngine::new(), join, None);
    }

    /// Takes what its start has brought so far; whether the other servers say that it was removed for good.
    /// Fails with the reason for which the start ended.
    pub fn look(&mut self) -> Result<bool, String> {
        let Some(life) = &mut self.life else { return Ok(false) };
        life.look()?;
        if let Some(node) = &life.node {
            self.server = Some(node.identity().server);
        }
        let was_removed = life.started.lock().was_removed;
        Ok(was_removed)
    }

    /// Starts the node.
    pub fn start(&mut self, tasks: &Tasks, net: &mut SimNetwork) {
        self.starts += 1;
        self.plan.disk.mend();
        let process = Process(self.plan.number as u64 * 1_000_000 + self.starts);
        trace::set_machine(process.0, self.plan.number);
        net.start(self.host);
        let started: Arc<Mutex<Started>> = Arc::default();
        let (plan, slot) = (self.plan.clone(), started.clone());
        tasks.within(process, || {
            // Tasks are never refused.
            drop(io::task::spawn("start", move || startup::start(&plan, &slot)));
        });
        self.life = Some(Life {
            process,
            started,
            links: None,
            node: None,
            wake_at: Nanos::default(),
            happened: Vec::new(),
            is_stalled: false,
        });
    }

    /// Its engine flushes, as engines do when they like: on a thread of its own, and when the log is durable.
    pub fn flush_engine(&self, tasks: &Tasks) {
        let Some(life) = &self.life else { return };
        if self.plan.disk.is_full() {
            return;
        }
        let engine = self.plan.engine.clone();
        let flush = move || drop(engine.flush());
        // Tasks are never refused.
        tasks.within(life.process, || drop(io::task::spawn("engine-flush", flush)));
    }

    /// Ends the process.
    pub fn end(&mut self, how: End, tasks: &Tasks, net: &mut SimNetwork) {
        let Some(life) = self.life.take() else { return };
        net.crash(self.host);
        match how {
            End::Killed => self.plan.disk.files.end_process(),
            End::Power => self.plan.disk.files.crash(),
        }
        tasks.kill(life.process);
        tasks.within(life.process, || drop(life));
        // The engine keeps no log of its own: what it had not flushed is gone with the process.
        self.plan.engine = after_crash(&self.plan.engine);
    }

    /// Stops the process for a while, or lets it go on.
    pub fn set_stalled(&mut self, is_stalled: bool, tasks: &Tasks, net: &mut SimNetwork) {
        let Some(life) = &mut self.life else { return };
        life.is_stalled = is_stalled;
        match is_stalled {
            true => {
                tasks.stall(life.process);
                net.stall(self.host);
            }
            false => {
                tasks.resume(life.process);
                net.resume(self.host);
            }
        }
    }

    /// Whether it was one of these servers when it served last.
    #[must_use]
    pub fn is_one_of(&self, servers: &[ServerId]) -> bool {
        self.server.is_some_and(|server| servers.contains(&server))
    }

    /// Whether rows here went further than their log when it was opened.
    #[must_use]
    pub fn rows_are_ahead(&self) -> bool {
        self.node().is_some_and(|node| node.log().stats().rows_ahead > 0)
    }

    /// The node, if it serves.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.life.as_ref().and_then(|life| life.node.as_ref())
    }
}

fn after_crash(engine: &MemoryEngine) -> MemoryEngine {
    engine.after_crash()
}

impl Life {
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

    /// Something has happened on its network.
    pub fn hear(&mut self, happening: NetworkEvent) {
        self.happened.push(happening);
    }

    /// Whether its links have something to do.
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        let Some((links, _)) = &self.links else { return false };
        if self.is_stalled {
            return false;
        }
        let rung = links.loop_waker().take_wake();
        if rung {
            // Asked, it forgets.
            links.loop_waker().wake();
        }
        rung || !self.happened.is_empty() || self.wake_at <= now
    }

    /// When its links want to be called if nothing happens.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        (self.links.is_some() && !self.is_stalled).then_some(self.wake_at)
    }

    /// Lets its links do what is to be done.
    pub fn step(&mut self, host: Host, now: Nanos, tasks: &Tasks, net: &mut SimNetwork) {
        let Some((links, party)) = &mut self.links else { return };
        let mut orders = Vec::new();
        let _ = links.loop_waker().take_wake();
        let happened = &mut self.happened;
        self.wake_at = tasks.within(self.process, || party.step(now, happened, &mut orders));
        net.execute(host, orders);
    }
}

/// How long a disk may take for a sync, from healthy to dying.
pub const PACES: [Duration; 4] = [
    Duration::from_micros(300),
    Duration::from_millis(2),
    Duration::from_millis(20),
    Duration::from_millis(400),
];
