//! One seed from its start to the checks at its end.

use std::time::Duration;

use cluster::TableOptions;
use io::Nanos;
use io::sim::{SimClock, SimRandom, Tasks};
use log::Durability;

use crate::checks;
use crate::driver::Driver;
use crate::invariant::{Invariant, Violation};
use crate::machine::End;
use crate::trace::{self, Trace, trace_line};
use crate::world::{RunOptions, SOFT, World, desired_shards};

/// A seed that broke an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    /// The broken invariant.
    pub violation: Violation,
}

/// A seed that kept the invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// A digest of all events.
    pub trace: Trace,
    /// Operations that took effect.
    pub done: u64,
    /// Copies of rows that a scenario interrupted.
    pub copies_interrupted: u64,
    /// Simulated time.
    pub time: Duration,
}

/// Fails with the first invariant that does not hold.
pub fn run(seed: u64, options: RunOptions) -> Result<Summary, Failure> {
    trace::clear();
    let (clock, random) = (SimClock::new(), SimRandom::new(seed));
    let tasks = Tasks::new(clock.clone(), random.clone());
    let entered = tasks.enter();
    let mut driver = Driver::new(World::new(clock, random, tasks, options));
    let outcome = run_to_end(&mut driver, options);
    let world = &mut driver.world;
    for machine in &mut world.machines {
        machine.end(End::Killed, &world.tasks, &mut world.net);
    }
    drop(driver);
    drop(entered);
    outcome.map_err(|violation| Failure { seed, violation })
}

fn run_to_end(driver: &mut Driver, options: RunOptions) -> Result<Summary, Violation> {
    trace_line!("{} machines, {:?}", driver.world.machines.len(), driver.world.fault_plan);
    form_cluster(driver)?;
    driver.begin();
    // A check of stale reads needs a longer period.
    let period =
        if driver.world.fault_plan.disks_fail { options.fault_period * 4 } else { options.fault_period };
    let end = driver.world.now().after(period);
    driver.run_until(end, |_| false)?;
    if let Err(violation) = checks::recover(driver) {
        // The history of the clients may show the cause.
        checks::read_available(driver)?;
        checks::check_answers(&driver.world)?;
        return Err(violation);
    }
    checks::check_history(&driver.world)?;
    let time = driver.world.now().since(Nanos::default());
    let copies_interrupted = driver.world.copies_interrupted;
    Ok(Summary { trace: driver.trace(), done: driver.world.history.done(), copies_interrupted, time })
}

/// Starts the founders, waits until they are a cluster, and creates the tables.
fn form_cluster(driver: &mut Driver) -> Result<(), Violation> {
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
                TableOptions { shards: desired_shards(1, replicas), durability, ..TableOptions::default() };
            if let Err(error) = node.schema().create_table("test", &table, options) {
                return Some(error.to_string());
            }
        }
        None
    });
    driver.run_until_or(Duration::from_secs(60), |_| made.lock().is_some(), "tables are created")?;
    let made = made.lock().take();
    match made.flatten() {
        Some(error) => Err(Invariant::Settles.violated(format!("a table cannot be created: {error}"))),
        None => driver.run_until_or(
            Duration::from_secs(60),
            |world| world.founders().all(|machine| world.has_tables(machine)),
            "tables are everywhere",
        ),
    }
}
