//! The world: time, the machines, and whose turn it is.

use std::sync::Arc;
use std::time::Duration;

use cluster::link::LinkTimings;
use cluster::{CopyChunking, CopyRangeSizes, Core, TableOptions};
use engine::memory::MemoryEngine;
use io::sim::{Process, SimClock, SimNetwork, SimRandom, Tasks};
use io::{Clock, Nanos};
use log::Durability;
use parking_lot::Mutex;

use crate::boot::Plan;
use crate::client::{Client, Workload};
use crate::disk::Disk;
use crate::history::History;
use crate::machine::{End, Machine};
use crate::promise::{Broken, Promise};
use crate::scheme::Scheme;
use crate::storm::{Climate, wanted};
use crate::trace::{self, Trace, say};
use crate::witness::Elections;

/// What one seed is made of besides its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plot {
    /// How many machines; 0 draws it.
    pub nodes: usize,
    /// How long it storms.
    pub storm: Duration,
    /// What happens in it.
    pub scope: Scope,
}

/// What may happen in a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One table of one shard on machines that are there from the start: the seeds of before there was more.
    Basic,
    /// Everything.
    Full,
}

impl Default for Plot {
    fn default() -> Plot {
        Plot { nodes: 0, storm: Duration::from_secs(20), scope: Scope::Full }
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed that shows it.
    pub seed: u64,
    /// What was broken.
    pub broken: Broken,
}

/// What a seed that kept its promises was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// A digest of everything that happened.
    pub trace: Trace,
    /// Operations that were done.
    pub done: u64,
    /// Copies of rows that were interrupted on purpose.
    pub copies_halted: u64,
    /// Simulated time.
    pub time: Duration,
}

/// So many turns at one moment mean that something goes round in circles.
const TURNS_MAX: u64 = 200_000;
const CLIENTS: u64 = 4;
/// The table whose writes are acknowledged before they are synced.
pub(crate) const SOFT: &str = "soft";

/// Everything there is.
pub struct World {
    pub(crate) clock: SimClock,
    pub(crate) random: SimRandom,
    pub(crate) tasks: Tasks,
    pub(crate) net: SimNetwork,
    pub(crate) machines: Vec<Machine>,
    pub(crate) clients: Vec<Client>,
    pub(crate) workload: Workload,
    pub(crate) history: History,
    pub(crate) climate: Climate,
    pub(crate) power_losses: u64,
    pub(crate) copies_halted: u64,
    pub(crate) elections: Elections,
    pub(crate) scheme: Option<Scheme>,
    /// Tables that are being reconfigured, and by which process.
    pub(crate) reconfiguring: Vec<(Process, Arc<Mutex<Option<()>>>)>,
    /// The client that schemes ask.
    pub(crate) hand: Option<usize>,
    // The power goes everywhere when the next write is acknowledged.
    pub(crate) strikes: bool,
    // So many machines make the cluster; the others join it while it storms.
    founding: usize,
    storms: Option<Nanos>,
    asks: bool,
    trace: Trace,
}

/// Lives through `seed`.
pub fn run(seed: u64, plot: Plot) -> Result<Ran, Failure> {
    trace::clear();
    let (clock, random) = (SimClock::new(), SimRandom::new(seed));
    let tasks = Tasks::new(clock.clone(), random.clone());
    let entered = tasks.enter();
    let mut world = World::new(clock, random, tasks, plot);
    let outcome = world.live(plot);
    for machine in &mut world.machines {
        machine.end(End::Killed, &world.tasks, &mut world.net);
    }
    drop(world);
    drop(entered);
    outcome.map_err(|broken| Failure { seed, broken })
}

impl World {
    fn new(clock: SimClock, random: SimRandom, tasks: Tasks, plot: Plot) -> World {
        let count = match plot.nodes {
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
            let plan = Plan {
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
                minds_log: false,
            };
            Machine::new(net.add_host(&address), plan)
        });
        let machines = machines.collect();
        let workload = Workload {
            tables: vec!["t".to_owned()],
            documents: 1 + random.below(8),
            seldom: 0,
            pause_most: Duration::from_millis([20, 100, 400][random.below(3) as usize]),
            asks_leaders: false,
        };
        let climate = Climate::draw(&random);
        let mut world = World {
            climate,
            founding: count,
            clients: (0..CLIENTS).map(|_| Client::new(Nanos::default())).collect(),
            clock,
            random,
            tasks,
            net,
            machines,
            workload,
            history: History::default(),
            power_losses: 0,
            copies_halted: 0,
            elections,
            scheme: None,
            reconfiguring: Vec::new(),
            hand: None,
            strikes: false,
            storms: None,
            asks: false,
            trace: Trace::default(),
        };
        if plot.scope == Scope::Full {
            world.widen();
        }
        world
    }

    /// Draws what only a full seed has.
    fn widen(&mut self) {
        self.climate.widen(&self.random);
        let count = self.machines.len();
        if count > 3 && self.random.one_in(2) {
            self.founding = 3 + self.random.below(count as u64 - 3) as usize;
        }
        if self.random.one_in(2) {
            let is_soft = self.random.one_in(2);
            self.workload.tables.push(if is_soft { SOFT } else { "u" }.to_owned());
        }
        self.workload.seldom = [0, 8, 24][self.random.below(3) as usize];
        let addresses = self.addresses();
        for machine in self.machines.iter_mut().skip(1) {
            // Whoever made the cluster may have been removed from it.
            machine.plan.join = addresses.clone();
            machine.plan.join.retain(|address| *address != machine.plan.address);
        }
        // Of a few documents, copies take some pieces.
        let piece_bytes = [1, 1, 150, 1 << 20][self.random.below(4) as usize];
        let bytes = [1, 100, 64 << 10][self.random.below(3) as usize];
        let copy_sizes = CopyChunking { piece_bytes, copy_ranges: CopyRangeSizes { bytes, count: 4 } };
        self.machines.iter_mut().for_each(|machine| machine.plan.copy_sizes = copy_sizes);
        let minds_log = self.climate.fills;
        self.workload.asks_leaders = minds_log;
        self.machines.iter_mut().for_each(|machine| machine.plan.minds_log = minds_log);
        self.hand = Some(self.clients.len());
        self.clients.push(Client::new(Nanos(u64::MAX)));
    }

    /// Where the machines are reached.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.machines.iter().map(|machine| machine.plan.address.clone()).collect()
    }

    fn live(&mut self, plot: Plot) -> Result<Ran, Broken> {
        say!("{} machines, {:?}", self.machines.len(), self.climate);
        self.found()?;
        self.asks = true;
        self.storms = Some(self.now());
        // What a leader says is old only after a while.
        let storm = if self.climate.fills { plot.storm * 4 } else { plot.storm };
        let end = self.now().after(storm);
        self.run_until(end, |_| false)?;
        if let Err(broken) = self.make_peace() {
            // What it has come from may be seen in what clients were told.
            self.read_what_can_be_read()?;
            self.judge_answers()?;
            return Err(broken);
        }
        self.judge()?;
        let time = self.now().since(Nanos::default());
        let copies_halted = self.copies_halted;
        Ok(Ran { trace: self.trace, done: self.history.done(), copies_halted, time })
    }

    /// The machines become a cluster with its tables.
    fn found(&mut self) -> Result<(), Broken> {
        for machine in &mut self.machines[..self.founding] {
            machine.start(&self.tasks, &mut self.net);
        }
        let serve = |world: &World| world.founders().all(|machine| machine.node().is_some());
        self.run_until_or(Duration::from_secs(60), serve, "all nodes serve")?;
        let replicas = self.founding.min(3);
        let tables = self.workload.tables.clone();
        let made = self.ask_node(0, "create", move |node| {
            for table in tables {
                let durability = if table == SOFT { Durability::Soft } else { Durability::Hard };
                let options =
                    TableOptions { shards: wanted(1, replicas), durability, ..TableOptions::default() };
                if let Err(error) = node.create_table("test", &table, options) {
                    return Some(error.to_string());
                }
            }
            None
        });
        self.run_until_or(Duration::from_secs(60), |_| made.lock().is_some(), "tables are made")?;
        let made = made.lock().take();
        match made.flatten() {
            Some(error) => Err(Promise::Settles.broken(format!("a table cannot be made: {error}"))),
            None => self.run_until_or(
                Duration::from_secs(60),
                |world| world.founders().all(|machine| world.has_tables(machine)),
                "tables are everywhere",
            ),
        }
    }

    fn founders(&self) -> impl Iterator<Item = &Machine> {
        self.machines[..self.founding].iter()
    }

    fn has_tables(&self, machine: &Machine) -> bool {
        let Some(node) = machine.node() else { return false };
        let catalog = node.catalog();
        self.workload.tables.iter().all(|table| catalog.table("test", table).is_some())
    }

    /// Time, for everybody.
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// No more questions from clients, nothing more goes wrong.
    pub(crate) fn calm(&mut self) {
        (self.asks, self.storms, self.strikes) = (false, None, false);
        self.scheme = None;
    }

    /// Does something on a node, as a thread of it; the answer comes later, if the node lives.
    pub(crate) fn ask_node<T: Send + 'static>(
        &self,
        nth: usize,
        name: &'static str,
        work: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Arc<Mutex<Option<T>>> {
        let answer: Arc<Mutex<Option<T>>> = Arc::default();
        if let Some(life) = &self.machines[nth].life
            && let Some(node) = life.node.as_ref().map(Arc::downgrade)
        {
            let told = answer.clone();
            self.tasks.within(life.process, || {
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

    /// Lets time pass until `done`; fails when that takes longer than `patience`.
    pub(crate) fn run_until_or(
        &mut self,
        patience: Duration,
        done: impl Fn(&World) -> bool,
        what: &str,
    ) -> Result<(), Broken> {
        let end = self.now().after(patience);
        match self.run_until(end, done)? {
            true => Ok(()),
            false => Err(Promise::Settles.broken(format!("not within {patience:?}: {what}"))),
        }
    }

    /// Lets time pass until `end`, or until `done`; says whether it was that.
    pub(crate) fn run_until(&mut self, end: Nanos, done: impl Fn(&World) -> bool) -> Result<bool, Broken> {
        loop {
            self.take_turns()?;
            if let Some(what) = self.elections.broken() {
                return Err(Promise::Leads.broken(what));
            }
            self.go_on_with_scheme();
            if done(self) {
                return Ok(true);
            }
            let next = self.next_at();
            if next > end {
                self.advance(end);
                return Ok(false);
            }
            self.advance(next);
            for (host, happening) in self.net.deliver() {
                if let Some(life) = &mut self.machines[host.0].life {
                    life.hear(happening);
                }
            }
            if self.storms.is_some_and(|at| at <= self.now()) {
                self.storms = Some(self.blow());
            }
        }
    }

    fn advance(&mut self, to: Nanos) {
        self.clock.advance(to.since(self.now()));
        self.history.now = self.now();
        trace::set_now(to.0);
    }

    fn next_at(&self) -> Nanos {
        let links = self.machines.iter().filter_map(|machine| machine.life.as_ref()?.wake_at());
        let clients = self.clients.iter().map(|client| client.next_at).filter(|_| self.asks);
        let own = [self.tasks.next_at(), self.net.next_at(), self.storms, self.scheme_at()];
        let next = own.into_iter().flatten().chain(links).chain(clients).min();
        next.unwrap_or(Nanos(u64::MAX)).max(self.now())
    }

    /// Everybody who has something to do now does it, in an order that the seed chooses.
    fn take_turns(&mut self) -> Result<(), Broken> {
        for _ in 0..TURNS_MAX {
            self.look()?;
            let now = self.now();
            let due: Vec<usize> = (0..self.machines.len())
                .filter(|nth| self.machines[*nth].life.as_ref().is_some_and(|life| life.is_due(now)))
                .collect();
            let ready = self.tasks.ready();
            if due.is_empty() && ready == 0 {
                return Ok(());
            }
            let drawn = self.random.below((due.len() + ready) as u64) as usize;
            match due.get(drawn) {
                Some(nth) => {
                    let Machine { host, life, .. } = &mut self.machines[*nth];
                    if let Some(life) = life {
                        life.step(*host, now, &self.tasks, &mut self.net);
                    }
                    self.trace.note(&[now.0, 1, *nth as u64]);
                }
                None => {
                    let task = self.tasks.run_one()?;
                    self.trace.note(&[now.0, 2, task.unwrap_or(0)]);
                }
            }
        }
        let what = format!("nobody comes to rest at {:?}:\n{}", self.now(), self.tasks.describe());
        Err(Promise::Runs.broken(what))
    }

    /// Takes note of nodes that have started, of answers, and lets clients ask.
    fn look(&mut self) -> Result<(), Broken> {
        for machine in &mut self.machines {
            match machine.look() {
                Ok(false) => {}
                Ok(true) => {
                    say!("node {} is told that it was removed, and ends", machine.plan.number);
                    machine.end(End::Killed, &self.tasks, &mut self.net);
                }
                Err(why) => {
                    let what = format!("node {} does not start: {why}", machine.plan.number);
                    return Err(Promise::Runs.broken(what));
                }
            }
        }
        if let Some(machine) = self.machines.iter().find(|machine| machine.rows_are_ahead()) {
            let what = format!("node {} has rows that its log does not have", machine.plan.number);
            return Err(Promise::Follows.broken(what));
        }
        let now = self.now();
        let mut struck = false;
        for client in &mut self.clients {
            if let Some((number, outcome)) = client.look(now, &self.machines, &mut self.history) {
                struck |= self.strikes && self.history.is_write_done(number);
                let value = match outcome {
                    crate::history::Outcome::Done(value) => value.unwrap_or(1),
                    crate::history::Outcome::Refused(_) => 2,
                    crate::history::Outcome::Unknown(_) => 3,
                };
                self.trace.note(&[now.0, 3, number, value]);
            }
            if self.asks && client.next_at <= now {
                let (machines, tasks) = (&self.machines, &self.tasks);
                client.ask(now, &self.workload, &self.random, machines, tasks, &mut self.history);
            }
        }
        if struck {
            self.strikes = false;
            self.black_out();
        }
        Ok(())
    }
}
