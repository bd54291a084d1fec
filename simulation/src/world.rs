//! The state of one seed: time, the network, the machines and the clients.

use std::sync::Arc;
use std::time::Duration;

use cluster::link::LinkTimings;
use cluster::{CopyChunking, CopyRangeSizes, Core, DesiredShards, PlacementGoal, ServerId};
use datum::Text;
use engine::memory::MemoryEngine;
use io::sim::{Host, NetworkConditions, Process, SimClock, SimNetwork, SimRandom, Tasks};
use io::{Clock, Nanos};
use parking_lot::Mutex;

use crate::client::{Client, Workload};
use crate::disk::Disk;
use crate::elections::Elections;
use crate::fault_plan::FaultPlan;
use crate::feeds::FeedReader;
use crate::history::History;
use crate::machine::{End, Machine, SYNC_DELAYS};
use crate::startup::NodePlan;
use crate::trace::trace_line;

/// Options of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The number of machines; 0 draws it.
    pub nodes: usize,
    /// How long faults happen.
    pub fault_period: Duration,
    /// The extent of the seed.
    pub scope: Scope,
}

/// The extent of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One table of one shard on machines that are there from the start, as in older versions of the simulation.
    Basic,
    /// All faults and changes.
    Full,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions { nodes: 0, fault_period: Duration::from_secs(20), scope: Scope::Full }
    }
}

const CLIENTS: u64 = 4;
const FEED_READERS: u64 = 2;
/// The table whose writes are acknowledged before they are synced.
pub(crate) const SOFT: &str = "soft";

/// The cluster, its environment and its clients.
pub(crate) struct World {
    pub(crate) clock: SimClock,
    pub(crate) random: SimRandom,
    pub(crate) tasks: Tasks,
    pub(crate) net: SimNetwork,
    pub(crate) machines: Vec<Machine>,
    pub(crate) clients: Vec<Client>,
    pub(crate) workload: Workload,
    pub(crate) history: History,
    pub(crate) fault_plan: FaultPlan,
    pub(crate) power_losses: u64,
    pub(crate) copies_interrupted: u64,
    pub(crate) elections: Elections,
    /// Running reconfigurations with their processes.
    pub(crate) reconfiguring: Vec<(Process, Arc<Mutex<Option<()>>>)>,
    /// The client that sends the requests of scenarios.
    pub(crate) scenario_client: Option<usize>,
    /// Whether all machines lose power when the next write is acknowledged.
    pub(crate) power_fails_on_ack: bool,
    /// Readers of changefeeds.
    pub(crate) feeds: Vec<FeedReader>,
    /// The number of machines that form the cluster; the others join it while faults happen.
    pub(crate) founders: usize,
}

impl World {
    pub(crate) fn new(clock: SimClock, random: SimRandom, tasks: Tasks, options: RunOptions) -> World {
        let count = match options.nodes {
            0 => [3, 3, 3, 4, 5][random.below(5) as usize],
            count => count,
        };
        let mut net = SimNetwork::new(clock.clone(), random.clone());
        let elections = Elections::default();
        let heartbeat = Duration::from_secs([2, 4, 10][random.below(3) as usize]);
        let log_bytes_max = [16 << 10, 64 << 10, 1 << 20][random.below(3) as usize];
        let machines = (0..count).map(|number| {
            let address = format!("node-{number}:29015");
            let join = if number == 0 { Vec::new() } else { vec!["node-0:29015".to_owned()] };
            let plan = NodePlan {
                number,
                address: address.clone(),
                join,
                disk: Disk::new(random.clone(), io::Random::next_u64(&random)),
                engine: MemoryEngine::new(),
                clock: clock.with_own_wall(),
                random: random.clone(),
                timings: LinkTimings { heartbeat_timeout: heartbeat, ..LinkTimings::default() },
                log_bytes_max,
                elections: elections.clone(),
                copy_sizes: CopyChunking::default(),
                watches_log: false,
            };
            Machine::new(net.add_host(&address), plan)
        });
        let machines = machines.collect();
        let workload = Workload {
            tables: vec!["t".to_owned()],
            documents: 1 + random.below(8),
            rare_documents: 0,
            pause_max: Duration::from_millis([20, 100, 400][random.below(3) as usize]),
            reads_from_leaders: false,
        };
        let fault_plan = FaultPlan::draw(&random);
        let mut world = World {
            fault_plan,
            founders: count,
            clients: (0..CLIENTS).map(|_| Client::new(Nanos::default())).collect(),
            clock,
            random,
            tasks,
            net,
            machines,
            workload,
            history: History::default(),
            power_losses: 0,
            copies_interrupted: 0,
            elections,
            reconfiguring: Vec::new(),
            scenario_client: None,
            power_fails_on_ack: false,
            feeds: Vec::new(),
        };
        if options.scope == Scope::Full {
            world.widen();
        }
        world
    }

    /// Draws the further parts of a full seed.
    fn widen(&mut self) {
        self.fault_plan.widen(&self.random);
        let count = self.machines.len();
        if count > 3 && self.random.one_in(2) {
            self.founders = 3 + self.random.below(count as u64 - 3) as usize;
        }
        if self.random.one_in(2) {
            let is_soft = self.random.one_in(2);
            self.workload.tables.push(if is_soft { SOFT } else { "u" }.to_owned());
        }
        self.workload.rare_documents = [0, 8, 24][self.random.below(3) as usize];
        let addresses = self.addresses();
        for machine in self.machines.iter_mut().skip(1) {
            // The founder of the cluster may have been removed from it.
            machine.plan.join = addresses.clone();
            machine.plan.join.retain(|address| *address != machine.plan.address);
        }
        // Small sizes, so that copies of a few documents take several chunks.
        let chunk_bytes = [1, 1, 150, 1 << 20][self.random.below(4) as usize];
        let bytes = [1, 100, 64 << 10][self.random.below(3) as usize];
        let copy_sizes = CopyChunking { chunk_bytes, copy_ranges: CopyRangeSizes { bytes, count: 4 } };
        self.machines.iter_mut().for_each(|machine| machine.plan.copy_sizes = copy_sizes);
        let watches_log = self.fault_plan.disks_fail;
        self.workload.reads_from_leaders = watches_log;
        self.machines.iter_mut().for_each(|machine| machine.plan.watches_log = watches_log);
        self.feeds = (0..FEED_READERS)
            .map(|_| {
                self.workload.tables[self.random.below(self.workload.tables.len() as u64) as usize].clone()
            })
            .map(FeedReader::new)
            .collect();
        self.scenario_client = Some(self.clients.len());
        self.clients.push(Client::new(Nanos(u64::MAX)));
    }

    /// The addresses of the machines.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.machines.iter().map(|machine| machine.plan.address.clone()).collect()
    }

    pub(crate) fn founders(&self) -> impl Iterator<Item = &Machine> {
        self.machines[..self.founders].iter()
    }

    pub(crate) fn has_tables(&self, machine: &Machine) -> bool {
        let Some(node) = machine.node() else { return false };
        let catalog = node.catalog();
        self.workload.tables.iter().all(|table| catalog.table("test", table).is_some())
    }

    /// The simulated time.
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Runs `work` on a thread of a node. The result arrives later, if the node still runs.
    pub(crate) fn ask_node<T: Send + 'static>(
        &self,
        nth: usize,
        name: &'static str,
        work: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Arc<Mutex<Option<T>>> {
        let answer: Arc<Mutex<Option<T>>> = Arc::default();
        if let Some(running) = &self.machines[nth].running
            && let Some(node) = running.node.as_ref().map(Arc::downgrade)
        {
            let told = answer.clone();
            self.tasks.within(running.process, || {
                let work = move || {
                    let Some(node) = node.upgrade() else { return };
                    let done = work(&node);
                    *told.lock() = Some(done);
                };
                drop(io::task::spawn(name, work));
            });
        }
        answer
    }

    /// Heals the network and makes the disks of some machines fast.
    pub(crate) fn repair(&mut self, machines: &[usize]) {
        self.net.heal_cuts();
        self.net.set_conditions(NetworkConditions {
            unreachable_after: Duration::from_secs(5),
            ..NetworkConditions::default()
        });
        for nth in machines {
            self.machines[*nth].plan.disk.set_sync_delay(SYNC_DELAYS[0]);
        }
    }

    /// Cuts one machine off from all others but `except`.
    pub(crate) fn isolate(&mut self, nth: usize, except: Option<usize>) {
        for other in (0..self.machines.len()).filter(|other| *other != nth && Some(*other) != except) {
            self.net.cut(Host(nth), Host(other));
            self.net.cut(Host(other), Host(nth));
        }
    }

    /// Restarts a machine at once.
    pub(crate) fn restart(&mut self, nth: usize, how: End) {
        trace_line!("node {nth} restarts: {how:?}");
        self.power_losses += u64::from(how == End::Power);
        self.machines[nth].end(how, &self.tasks, &mut self.net);
        self.machines[nth].start(&self.tasks, &mut self.net);
    }

    /// The servers that were removed permanently, as far as any node knows.
    pub(crate) fn removed(&self) -> Vec<ServerId> {
        let nodes = self.machines.iter().filter_map(|machine| machine.node());
        nodes.flat_map(|node| node.catalog().removed().collect::<Vec<_>>()).collect()
    }

    /// The machines whose servers are in the cluster.
    pub(crate) fn present(&self) -> Vec<usize> {
        let removed = self.removed();
        (0..self.machines.len()).filter(|nth| !self.machines[*nth].is_one_of(&removed)).collect()
    }

    /// All machines lose power at once.
    pub(crate) fn fail_all_power(&mut self) {
        trace_line!("all machines lose power");
        for machine in &mut self.machines {
            machine.end(End::Power, &self.tasks, &mut self.net);
        }
        self.power_losses += 1;
    }

    /// Whether a table is being reconfigured.
    pub(crate) fn is_reconfiguring(&mut self) -> bool {
        let lives = |process: Process| {
            self.machines.iter().any(|machine| machine.running.as_ref().is_some_and(|l| l.process == process))
        };
        self.reconfiguring.retain(|(process, done)| done.lock().is_none() && lives(*process));
        !self.reconfiguring.is_empty()
    }
}

/// These numbers of shards and replicas, on any servers.
pub(crate) fn desired_shards(shards: usize, replicas: usize) -> DesiredShards {
    let tag = Text::from_static("default");
    DesiredShards::Placed(PlacementGoal {
        shards,
        replicas: [(tag.clone(), replicas)].into(),
        primary_tag: tag,
        nonvoting_tags: Vec::new(),
    })
}
