//! The clients: groups of five that share a register until it has had its operations, then the next.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;

use super::history::{Asked, History, Operation, Told};
use crate::crash::client::Client;

/// Clients that share a register.
const GROUP: usize = 5;
/// Groups at work at the same time.
const GROUPS_MAX: usize = 20;
/// A client gives up on an answer after so long; the operation stays open for ever.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the first answers of a new cluster may take.
pub(super) const PATIENCE_AT_START: Duration = Duration::from_secs(60);
/// The longest rest of a client between two operations: the faults are to meet many of them.
const REST_MAX_MS: u64 = 200;
/// A register with so many changes of which nobody knows what became of them is only read from then on: for each
/// of them the judge must think of both cases.
const OPEN_MAX: usize = 12;
/// The error of operations that certainly did not happen.
const OP_FAILED: u64 = 4_100_000;

/// How much there is to do.
#[derive(clap::Args)]
pub(super) struct Job {
    /// Registers
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Operations on each register, by all of its group together
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    operations: u32,
    /// How fresh reads must be
    #[arg(long, default_value = "majority", value_parser = ["majority", "single", "outdated"])]
    pub(super) read_mode: String,
}

impl Job {
    pub(super) fn workers(&self) -> usize {
        self.groups() * GROUP
    }

    fn groups(&self) -> usize {
        self.keys().min(GROUPS_MAX)
    }

    fn keys(&self) -> usize {
        self.keys as usize
    }
}

/// What the clients share.
pub(super) struct Work<'a> {
    drivers: Vec<SocketAddr>,
    job: &'a Job,
    /// What they did.
    pub(super) history: History,
    /// Set when nothing more is to be done.
    pub(super) give_up: AtomicBool,
    value_last: AtomicI64,
    /// Changes without an answer, of each register.
    open: Vec<AtomicUsize>,
    at_work: AtomicUsize,
}

impl<'a> Work<'a> {
    pub(super) fn new(drivers: Vec<SocketAddr>, job: &'a Job) -> Work<'a> {
        Work {
            drivers,
            job,
            history: History::new(),
            give_up: AtomicBool::new(false),
            value_last: AtomicI64::new(0),
            open: (0..job.keys()).map(|_| AtomicUsize::new(0)).collect(),
            at_work: AtomicUsize::new(job.workers()),
        }
    }

    /// Whether every client has done its part.
    pub(super) fn is_over(&self) -> bool {
        self.at_work.load(Ordering::Acquire) == 0
    }

    /// The part of client `worker`.
    pub(super) fn run(&self, worker: usize, mut random: StdRng) {
        let mut client: Option<Client> = None;
        let mut server = random.random_range(0..self.drivers.len());
        for key in (worker / GROUP..self.job.keys()).step_by(self.job.groups()) {
            let mut seen = 0;
            for _ in 0..(self.job.operations as usize).div_ceil(GROUP) {
                if self.give_up.load(Ordering::Acquire) {
                    return;
                }
                while client.is_none() && !self.give_up.load(Ordering::Acquire) {
                    server = (server + random.random_range(1..self.drivers.len())) % self.drivers.len();
                    client = Client::connect_for(self.drivers[server], PATIENCE).ok();
                }
                let Some(connected) = &mut client else { return };
                let asked = self.choose(key, seen, &mut random);
                if !self.operate(worker, key, asked, connected, &mut seen) {
                    client = None;
                }
                thread::sleep(Duration::from_millis(random.random_range(0..REST_MAX_MS)));
            }
        }
        self.at_work.fetch_sub(1, Ordering::AcqRel);
    }

    /// What every node says of every register, once all is over: a write that was acknowledged and is gone
    /// cannot have happened together with that.
    pub(super) fn read_all(&self) -> Result<()> {
        for driver in &self.drivers {
            let mut client = Client::connect_for(*driver, PATIENCE_AT_START)?;
            for key in 0..self.job.keys() {
                let told = self.history.len();
                // Nobody else asks meanwhile: it may be any client.
                let answered = self.operate(0, key, Asked::Read, &mut client, &mut 0);
                if !answered || self.history.len() == told {
                    bail!("{driver} does not tell register {key}");
                }
            }
        }
        Ok(())
    }

    fn choose(&self, key: usize, seen: i64, random: &mut StdRng) -> Asked {
        let fresh = || self.value_last.fetch_add(1, Ordering::Relaxed) + 1;
        match random.random_range(0..10) {
            0..5 => Asked::Read,
            _ if self.open[key].load(Ordering::Relaxed) >= OPEN_MAX => Asked::Read,
            5..8 if seen != 0 => Asked::Swap(seen, fresh()),
            _ => Asked::Write(fresh()),
        }
    }

    /// One operation; whether the connection is still good.
    fn operate(
        &self,
        client: usize,
        key: usize,
        asked: Asked,
        connected: &mut Client,
        seen: &mut i64,
    ) -> bool {
        let query = query(key, asked, &self.job.read_mode);
        let called_at = self.history.now();
        let answer = connected.ask(&query);
        let answered_at = self.history.now();
        let told = match &answer {
            Ok(answer) => told(asked, answer),
            Err(_) => Some(Told::Unknown),
        };
        if let Some(Told::Value(value)) = told {
            *seen = value;
        }
        if matches!((told, asked), (Some(Told::Unknown), Asked::Write(_) | Asked::Swap(..))) {
            self.open[key].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(told) = told {
            self.history.add(Operation { key, client, asked, told, called_at, answered_at });
        }
        answer.is_ok()
    }
}

fn query(key: usize, asked: Asked, read_mode: &str) -> String {
    let table = "[15,[[14,[\"test\"]],\"registers\"]]";
    match asked {
        Asked::Read => format!(
            "[1,[16,[[15,[[14,[\"test\"]],\"registers\"],{{\"read_mode\":\"{read_mode}\"}}],\"k{key}\"]]]"
        ),
        Asked::Write(value) => {
            format!("[1,[56,[{table},{{\"id\":\"k{key}\",\"v\":{value}}}],{{\"conflict\":\"replace\"}}]]")
        }
        Asked::Swap(expected, value) => {
            let holds = format!("[17,[[170,[[10,[1]],\"v\"]],{expected}]]");
            let function = format!("[69,[[2,[1]],[65,[{holds},{{\"v\":{value}}},{{}}]]]]");
            format!("[1,[53,[[16,[{table},\"k{key}\"]],{function}]]]")
        }
    }
}

/// What an answer says; nothing for an operation that certainly did not happen.
fn told(asked: Asked, answer: &Value) -> Option<Told> {
    let result = &answer["r"][0];
    let is_one = |name: &str| result[name] == 1;
    match (answer["t"].as_u64(), asked) {
        (Some(1), Asked::Read) => Some(Told::Value(result["v"].as_i64().unwrap_or(0))),
        (Some(1), _) if is_one("inserted") || is_one("replaced") => Some(Told::Done(true)),
        (Some(1), Asked::Swap(..)) if is_one("unchanged") || is_one("skipped") => Some(Told::Done(false)),
        _ if answer["e"] == OP_FAILED => None,
        _ => Some(Told::Unknown),
    }
}
