//! Tests of shards over the log in files, on a simulated disk that loses unsynced data.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use datum::{KeyBound, KeyRange, Object};
use engine::Engine;
use engine::memory::MemoryEngine;
use io::real::RealClock;
use io::sim::{SimFiles, SimRandom};
use log::file::{FileLog, FileLogOptions};
use log::{Durability, GroupId};
use parking_lot::Mutex;
use rekindle_shard::{Decision, Replicas, Shard};

use crate::bed::{TABLE, content, key, number, row};

const NAMES: [&str; 4] = ["a", "b", "x", "y"];

/// One run of a process over a disk and an engine.
struct Life {
    engine: MemoryEngine,
    log: Arc<FileLog>,
    shards: [Arc<Shard>; 2],
}

impl Life {
    fn begin(files: &SimFiles, engine: MemoryEngine) -> Life {
        let replicas = Replicas::with_row_cache(Arc::new(engine.clone()), 1 << 20).unwrap();
        let options = FileLogOptions { soft_wait: Duration::from_millis(2), ..FileLogOptions::default() };
        let files = Arc::new(files.of_process());
        let clock = Arc::new(RealClock::new());
        let log = FileLog::open(files, clock, Path::new("log"), Arc::clone(&replicas) as _, options);
        let log = Arc::new(log.unwrap());
        let middle = key("m");
        let low = KeyRange { start: KeyBound::Unbounded, end: KeyBound::Excluded(middle.clone()) };
        let high = KeyRange { start: KeyBound::Included(middle), end: KeyBound::Unbounded };
        let open = |group, range| {
            Shard::open(
                &replicas,
                Arc::clone(&log) as _,
                TABLE,
                GroupId(group),
                range,
                log::InitialConfig::Single,
            )
        };
        let shards = [open(1, low).unwrap(), open(2, high).unwrap()];
        Life { engine, log, shards }
    }

    fn shard(&self, name: &str) -> &Shard {
        &self.shards[usize::from(name >= "m")]
    }

    fn content(&self) -> BTreeMap<String, f64> {
        let rows = self.shards.iter().flat_map(|shard| content(shard));
        rows.map(|(key, n)| (key.to_string().trim_matches('"').to_owned(), n)).collect()
    }
}

/// The writers' knowledge: the highest sum acknowledged as durable, and the highest proposed.
#[derive(Clone, Copy, Default)]
struct Known {
    durable: f64,
    proposed: f64,
}

fn write_until_it_fails(life: &Life, known: &Mutex<BTreeMap<&'static str, Known>>, random: &SimRandom) {
    loop {
        let name = NAMES[random.below(NAMES.len() as u64) as usize];
        let hard = random.one_in(2);
        let decide = |old: Option<&Object>| {
            let sum = old.map_or(0.0, number) + 1.0;
            (Decision::Put(row(sum)), sum)
        };
        let durability = if hard { Durability::Hard } else { Durability::Soft };
        let Ok((sum, ticket)) = life.shard(name).write(&key(name), durability, decide) else { return };
        {
            let mut known = known.lock();
            let known = known.entry(name).or_default();
            known.proposed = known.proposed.max(sum);
        }
        match ticket.wait() {
            Ok(_) if hard => {
                let mut known = known.lock();
                let known = known.entry(name).or_default();
                known.durable = known.durable.max(sum);
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

#[test]
fn a_power_cut_takes_no_acknowledged_hard_write() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let random = SimRandom::new(seed);
    let files = SimFiles::new(seed);
    let mut engine = MemoryEngine::new();
    let mut found: BTreeMap<String, f64> = BTreeMap::new();
    for life_number in 0..15 {
        let life = Life::begin(&files, engine.after_crash());
        assert_eq!(found, life.content(), "seed {seed}, life {life_number}");
        let known: Mutex<BTreeMap<_, Known>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| write_until_it_fails(&life, &known, &random));
            }
            // Lets a random amount of work happen, then cuts the power.
            let enough = random.below(400);
            while life.log_appends() < enough {
                std::thread::yield_now();
                if random.one_in(50) {
                    life.engine.flush().unwrap();
                }
            }
            files.crash();
            engine = life.engine.after_crash();
        });
        drop(life);
        let again = Life::begin(&files, engine);
        found = again.content();
        for (name, known) in known.into_inner() {
            let n = found.get(name).copied().unwrap_or(0.0);
            assert!(n >= known.durable, "seed {seed}: {name} is {n}, {} was durable", known.durable);
            assert!(n <= known.proposed, "seed {seed}: {name} is {n}, {} was proposed", known.proposed);
        }
        // The process ends without a power cut: its files stay, its engine's unflushed rows are lost.
        files.end_process();
        engine = again.engine.clone();
        drop(again);
    }
}

impl Life {
    fn log_appends(&self) -> u64 {
        log::Log::stats(&*self.log).appends
    }
}
