//! Measures the cost of reads and writes in a shard, on top of the engine and besides the log.
//!
//! `cargo run --release -p rekindle-shard [--features rocks] --example shard-cost`

use std::hint::black_box;
use std::sync::Arc;

use datum::{Datum, KeyRange, Object, PrimaryKey, Text};
use engine::Engine;
use engine::memory::MemoryEngine;
use log::memory::{MemoryEntries, MemoryLog};
use log::{Durability, GroupId, Log};
use rekindle_shard::{Decision, Replicas, Shard};
use storage::TableId;

const ROWS: u64 = 100_000;
/// Proposals between two steps of the log, as they arrive during one fsync.
const GROUP: u64 = 64;

fn key(number: u64) -> PrimaryKey {
    let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    PrimaryKey::encode(&Datum::from(format!("user{scattered:016x}"))).expect("text is a key")
}

fn document(number: u64) -> Object {
    let field = |index: u64| {
        let text = format!("{:x}", number.wrapping_mul(31).wrapping_add(index)).repeat(100);
        (Text::from(format!("field{index}")), Datum::from(&text[..100]))
    };
    (0..10).map(field).collect()
}

/// The processor time of this thread, so that other load does not distort the figures.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn measure(what: &str, operations: u64, mut work: impl FnMut()) {
    let start = cpu_ns();
    work();
    let each = (cpu_ns() - start) as f64 / operations as f64;
    println!("  {what:<56} {each:>8.0} ns");
}

fn bench(name: &str, engine: Arc<dyn Engine>) {
    println!("{name}");
    let replicas = Replicas::new(engine).expect("a new engine");
    let log = Arc::new(MemoryLog::stepped(MemoryEntries::default(), Arc::clone(&replicas) as _));
    let table = TableId::from_uuid(uuid::Uuid::from_u128(1));
    let shared = Arc::clone(&log) as Arc<dyn Log>;
    let open = Shard::open(&replicas, shared, table, GroupId(1), KeyRange::all(), log::InitialConfig::Single);
    let shard = open.expect("a new shard");
    let keys: Vec<_> = (0..ROWS).map(key).collect();
    let documents: Vec<_> = (0..ROWS).map(document).collect();
    measure("row::encode", ROWS, || {
        for document in &documents {
            black_box(datum::row::encode(document));
        }
    });
    let write_all = |one: &dyn Fn(usize)| {
        for index in 0..keys.len() {
            one(index);
            if (index as u64).is_multiple_of(GROUP) {
                log.step();
            }
        }
        log.step();
    };
    let put = |index: usize| {
        let decide = |_: Option<&Object>| (Decision::Put(documents[index].clone()), ());
        drop(shard.write(&keys[index], Durability::Soft, decide).expect("written"));
    };
    measure("insert: write, log and apply", ROWS, || write_all(&put));
    measure("replace: write, log and apply", ROWS, || write_all(&put));
    measure("replace: the write alone", ROWS, || (0..keys.len()).for_each(&put));
    measure("replace: log, apply and answers alone", ROWS, || {
        log.step();
    });
    measure("get", ROWS, || {
        for key in &keys {
            black_box(shard.get(key).expect("read"));
        }
    });
    measure("engine get", ROWS, || {
        for key in &keys {
            let full = [table.as_bytes(), key.as_bytes()].concat();
            black_box(replicas.engine().get(engine::Space::Rows, &full).expect("read"));
        }
    });
    let hot = |_: usize| {
        let decide = |old: Option<&Object>| {
            let sum = old.and_then(|row| row.get("n")).map_or(0.0, |n| match n {
                Datum::Number(n) => n,
                _ => 0.0,
            });
            let row: Object = [(Text::from("n"), Datum::from(sum + 1.0))].into_iter().collect();
            (Decision::Put(row), ())
        };
        drop(shard.write(&keys[0], Durability::Soft, decide).expect("written"));
    };
    measure("increment of one row: write, log and apply", ROWS, || write_all(&hot));
    measure("insert of 100 rows per entry, per row", ROWS, || {
        for (keys, documents) in keys.chunks(100).zip(documents.chunks(100)) {
            let decide = |index: usize, _: Option<&Object>| (Decision::Put(documents[index].clone()), ());
            drop(shard.write_many(keys, Durability::Soft, decide).expect("written"));
            log.step();
        }
    });
}

fn main() {
    bench("memory engine", Arc::new(MemoryEngine::new()));
    #[cfg(feature = "rocks")]
    {
        use engine::rocks::{EngineOptions, RocksEngine};
        let dir = tempfile::tempdir().expect("a folder");
        let options = EngineOptions::default();
        bench("engine on disk", Arc::new(RocksEngine::open(dir.path(), &options).expect("opened")));
    }
}
