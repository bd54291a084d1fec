//! Measures the cost of a get, a scanned row and a split, on top of the engine on disk.
//!
//! `cargo run --release -p rekindle-storage --features rocks --example storage-cost`

use std::hint::black_box;
use std::sync::Arc;

use datum::{Datum, KeyRange, Object, PrimaryKey, Text, row};
use engine::rocks::{EngineOptions, RocksEngine};
use engine::{Engine, Space};
use log::GroupId;
use rekindle_storage::{Changes, Direction, RowChange, ShardRange, Store, Table, TableId, TableSnapshot};

const ROWS: u64 = 200_000;

fn key(number: u64) -> PrimaryKey {
    // Scattered like UUIDs.
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
    println!("{what:<50} {each:>9.0} ns");
}

type Rows = [(PrimaryKey, bytes::Bytes)];

fn load(store: &Store, id: TableId, rows: &Rows) {
    measure("engine write, 100 rows per batch, per row", ROWS, || {
        for chunk in rows.chunks(100) {
            let mut changes = Changes::default();
            for (key, row) in chunk {
                let change = RowChange { key: key.clone(), row: Some(row.clone()), existed: false };
                changes.add(id, &change);
            }
            store.write(changes).expect("written");
        }
    });
    store.engine().flush().expect("flushed");
}

fn get(engine: &Arc<dyn Engine>, table: &Table, rows: &Rows) {
    for round in ["first", "second"] {
        measure(&format!("engine get, {round} time"), ROWS, || {
            for (key, _) in rows {
                let full = [table.id().as_bytes(), key.as_bytes()].concat();
                black_box(engine.get(Space::Rows, &full).expect("read"));
            }
        });
    }
    measure("table get", ROWS, || {
        for (key, _) in rows {
            black_box(table.get(key).expect("read"));
        }
    });
    let absent: Vec<_> = (ROWS..2 * ROWS).map(key).collect();
    measure("table get of an absent row", ROWS, || {
        for key in &absent {
            black_box(table.get(key).expect("read"));
        }
    });
}

/// Gets of a thousand rows that are in the row cache.
fn get_cached(engine: &Arc<dyn Engine>, id: TableId, rows: &Rows) {
    let store = Store::open(Arc::clone(engine), 64 << 20).expect("a store");
    let table = Table::new(store, id);
    let again = || {
        for (key, _) in &rows[..1000] {
            black_box(table.get(key).expect("read"));
        }
    };
    again();
    measure("table get from the row cache", 100_000, || (0..100).for_each(|_| again()));
}

fn scan(snapshot: &TableSnapshot, round: &str) {
    measure(&format!("engine scan, {round} time, per row"), ROWS, || {
        black_box(snapshot.count_range(&KeyRange::all()).expect("count"));
    });
    measure(&format!("table scan of batches, {round} time, per row"), ROWS, || {
        let mut scan = snapshot.scan(&KeyRange::all(), Direction::Ascending).to_the_end();
        let mut next = scan.next_batch().expect("read");
        while let Some(batch) = next {
            for index in 0..batch.len() {
                black_box(batch.object(index).expect("row"));
            }
            next = scan.next_batch_after(batch).expect("read");
        }
    });
    measure(&format!("table scan by row, {round} time, per row"), ROWS, || {
        let mut scan = snapshot.scan(&KeyRange::all(), Direction::Ascending);
        while let Some(row) = scan.next().expect("row") {
            black_box(row);
        }
    });
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let options = EngineOptions { cache_bytes: 512 << 20, ..EngineOptions::default() };
    let engine: Arc<dyn Engine> = Arc::new(RocksEngine::open(dir.path(), &options)?);
    let id = TableId::from_uuid(uuid::Uuid::from_u128(1));
    let store = Store::open(Arc::clone(&engine), 0)?;
    let table = Table::new(Arc::clone(&store), id);
    let shard_range = ShardRange { range: KeyRange::all(), group: GroupId(1) };
    let rows: Vec<_> = (0..ROWS).map(|n| (key(n), bytes::Bytes::from(row::encode(&document(n))))).collect();
    println!("row of {} bytes", rows[0].1.len());
    load(&store, id, &rows);
    get(&engine, &table, &rows);
    let snapshot = table.snapshot(shard_range)?;
    get_cached(&engine, id, &rows);
    measure("snapshot", 100_000, || {
        for _ in 0..100_000 {
            black_box(engine.snapshot().expect("snapshot"));
        }
    });
    scan(&snapshot, "first");
    scan(&snapshot, "second");
    measure("split in 8", 100, || {
        for _ in 0..100 {
            black_box(snapshot.split(&KeyRange::all(), 8).expect("split"));
        }
    });
    println!("{:?}", engine.stats());
    Ok(())
}
