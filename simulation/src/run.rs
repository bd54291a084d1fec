//! One seed from its start to the checks at its end.

use std::time::Duration;

use cluster::TableOptions;
use io::Nanos;
use io::sim::{SimClock, SimRandom, Tasks};
use log::Durability;

use crate::checks;
use crate::driver::Driver;
use crate::invariant::{Broken, Promise};
use crate::machine::End;
use crate::trace::{self, Trace, say};
use crate::world::{Plot, SOFT, World, shards_wanted};

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

/// Lives through `seed`.
pub fn run(seed: u64, plot: Plot) -> Result<Ran, Failure> {
    trace::clear();
    let (clock, random) = (SimClock::new(), SimRandom::new(seed));
    let tasks = Tasks::new(clock.clone(), random.clone());
    let entered = tasks.enter();
    let mut driver = Driver::new(World::new(clock, random, tasks, plot));
    let outcome = live(&mut driver, plot);
    let world = &mut driver.world;
    for machine in &mut world.machines {
        machine.end(End::Killed, &world.tasks, &mut world.net);
    }
    drop(driver);
    drop(entered);
    outcome.map_err(|broken| Failure { seed, broken })
}

fn live(driver: &mut Driver, plot: Plot) -> Result<Ran, Broken> {
    say!("{} machines, {:?}", driver.world.machines.len(), driver.world.fault_plan);
    form_cluster(driver)?;
    driver.begin();
    // What a leader says is old only after a while.
    let storm = if driver.world.fault_plan.disks_fail { plot.storm * 4 } else { plot.storm };
    let end = driver.world.now().after(storm);
    driver.run_until(end, |_| false)?;
    if let Err(broken) = checks::recover(driver) {
        // What it has come from may be seen in what clients were told.
        checks::read_available(driver)?;
        checks::check_answers(&driver.world)?;
        return Err(broken);
    }
    checks::check_history(&driver.world)?;
    let time = driver.world.now().since(Nanos::default());
    let copies_halted = driver.world.copies_halted;
    Ok(Ran { trace: driver.trace(), done: driver.world.history.done(), copies_halted, time })
}

/// The machines become a cluster with its tables.
fn form_cluster(driver: &mut Driver) -> Result<(), Broken> {
    for machine in &mut driver.world.machines[..driver.world.founders] {
        machine.start(&driver.world.tasks, &mut driver.world.net);
    }
    let serve = |world: &World| world.founders().all(|machine| machine.node().is_some());
    driver.run_until_or(Duration::from_secs(60), serve, "all nodes serve")?;
    let replicas = driver.world.founders.min(3);
    let tables = driver.world.workload.tables.clone();
    let made = driver.world.ask_node(0, "create", move |node| {
        for table in tables {
            let durability = if table == SOFT { Durability::Soft } else { Durability::Hard };
            let options =
                TableOptions { shards: shards_wanted(1, replicas), durability, ..TableOptions::default() };
            if let Err(error) = node.create_table("test", &table, options) {
                return Some(error.to_string());
            }
        }
        None
    });
    driver.run_until_or(Duration::from_secs(60), |_| made.lock().is_some(), "tables are made")?;
    let made = made.lock().take();
    match made.flatten() {
        Some(error) => Err(Promise::Settles.broken(format!("a table cannot be made: {error}"))),
        None => driver.run_until_or(
            Duration::from_secs(60),
            |world| world.founders().all(|machine| world.has_tables(machine)),
            "tables are everywhere",
        ),
    }
}
