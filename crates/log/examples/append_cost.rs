//! Measures the CPU time of one entry in the log, by the number of entries that arrive together.
//!
//! `cargo run --release -p rekindle-log --example append_cost -- DIR [ENTRIES]`
//!
//! Proposes groups of 1, 32 and 128 entries of 1.2 KB to a file log on a real disk, waits until the group is
//! answered, and repeats. CPU time is read per thread from `/proc`, which separates the work of the log (consensus,
//! encoding, checksums, write(2)), the fsyncs and the proposer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use io::real::{RealClock, RealFiles};
use rekindle_log::file::{FileLog, FileLogOptions};
use rekindle_log::{Applier, ApplyError, Durability, Entry, GroupId, InitialConfig, Log, Lsn};

const ENTRY_BYTES: usize = 1200;
const GROUP: GroupId = GroupId(1);

/// An engine that does nothing.
struct NoEngine;

impl Applier for NoEngine {
    fn apply(&self, _entries: &[Entry]) -> Result<(), ApplyError> {
        Ok(())
    }

    fn applied(&self, _group: GroupId) -> Lsn {
        Lsn(0)
    }

    fn flush(&self) -> Result<(), ApplyError> {
        Ok(())
    }
}

/// Counts answers; the proposer waits for a whole group.
#[derive(Default)]
struct Answers {
    left: Mutex<usize>,
    none_left: Condvar,
}

impl Answers {
    fn expect(&self, count: usize) {
        *self.left.lock().expect("no thread panicked") = count;
    }

    fn one(&self) {
        let mut left = self.left.lock().expect("no thread panicked");
        *left -= 1;
        if *left == 0 {
            self.none_left.notify_one();
        }
    }

    fn wait(&self) {
        let mut left = self.left.lock().expect("no thread panicked");
        while *left > 0 {
            left = self.none_left.wait(left).expect("no thread panicked");
        }
    }
}

/// CPU time so far of every thread, by its name.
fn cpu_by_thread() -> Result<BTreeMap<String, Duration>> {
    let mut cpu = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let name = std::fs::read_to_string(task.join("comm"))?.trim().to_owned();
        let schedstat = std::fs::read_to_string(task.join("schedstat"))?;
        let nanos = schedstat.split(' ').next().context("schedstat has a first field")?.parse()?;
        *cpu.entry(name).or_default() += Duration::from_nanos(nanos);
    }
    Ok(cpu)
}

fn measure(dir: &Path, durability: Durability, group_size: usize, entries: usize) -> Result<()> {
    let clock = Arc::new(RealClock::new());
    let options = FileLogOptions::default();
    let log = FileLog::open(Arc::new(RealFiles), clock, dir, Arc::new(NoEngine), options)?;
    log.open_group(GROUP, Lsn(0), InitialConfig::Single)?;
    let payload = Bytes::from(vec![b'x'; ENTRY_BYTES]);
    let answers = Arc::new(Answers::default());
    let groups = entries / group_size;
    let (before, started) = (cpu_by_thread()?, Instant::now());
    for _ in 0..groups {
        answers.expect(group_size);
        for _ in 0..group_size {
            let answers = Arc::clone(&answers);
            let done = Box::new(move |result: Result<Lsn, _>| {
                result.expect("the disk works");
                answers.one();
            });
            log.propose(GROUP, payload.clone(), durability, done);
        }
        answers.wait();
    }
    let (elapsed, after) = (started.elapsed(), cpu_by_thread()?);
    let proposed = (groups * group_size) as f64;
    let micros = |name: &str| {
        let spent = |cpu: &BTreeMap<String, Duration>| cpu.get(name).copied().unwrap_or_default();
        spent(&after).saturating_sub(spent(&before)).as_secs_f64() * 1e6 / proposed
    };
    let stats = log.stats();
    println!(
        "{:5} {group_size:6} {:10.2} {:10.2} {:10.2} {:10.0} {:8.1} {:8.1}",
        format!("{durability:?}").to_lowercase(),
        micros("log"),
        micros("log-sync"),
        micros("append_cost"),
        proposed / elapsed.as_secs_f64(),
        stats.appends as f64 / stats.writes as f64,
        stats.appends as f64 / stats.fsyncs.max(1) as f64,
    );
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().context("which folder may be written to?")?);
    let entries: usize = arguments.next().map_or(Ok(200_000), |count| count.parse())?;
    println!("CPU microseconds per entry of {ENTRY_BYTES} bytes, by thread");
    println!(" kind  group        log       sync   proposer  entries/s  /write   /fsync");
    for durability in [Durability::Soft, Durability::Hard] {
        for group_size in [1, 32, 128] {
            let entries = if durability == Durability::Hard { entries / 10 } else { entries };
            let dir = dir.join(format!("{durability:?}-{group_size}"));
            measure(&dir, durability, group_size, entries)?;
            std::fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}
