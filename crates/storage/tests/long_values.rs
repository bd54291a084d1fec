//! Large rows and long records of histories are compressed, and come back as they were.

#![allow(clippy::unwrap_used)]

use std::ops::Bound::Unbounded;
use std::sync::Arc;

use bytes::Bytes;
use datum::{Datum, KeyRange, Object, PrimaryKey, json, row};
use engine::memory::MemoryEngine;
use engine::{Batch, Engine, Space, conformance};
use io::sim::SimRandom;
use log::{GroupId, Lsn};
use rekindle_storage::{
    Changes, CompressedEngine, CompressionOptions, Direction, HistoryRecord, RowChange, ShardRange, Store,
    Table, TableId,
};

const WORDS: [&str; 12] = [
    "the",
    "of",
    "and",
    "storage",
    "history",
    "which",
    "system",
    "city",
    "river",
    "music",
    "was",
    "population",
];

fn words(random: &SimRandom, count: usize) -> String {
    let word = || match random.below(3) {
        0 => format!("w{}", random.below(500)),
        _ => WORDS[random.below(WORDS.len() as u64) as usize].to_owned(),
    };
    (0..count).map(|_| word()).collect::<Vec<_>>().join(" ")
}

fn object(text: &str) -> Object {
    match json::parse(text.as_bytes()).unwrap() {
        Datum::Object(object) => object,
        other => panic!("not an object: {other:?}"),
    }
}

/// The values of a space of the engine below the compression.
fn stored(memory: &MemoryEngine, space: Space) -> Vec<(Vec<u8>, Vec<u8>)> {
    conformance::collect(&memory.snapshot().unwrap(), space, (Unbounded, Unbounded), Direction::Ascending)
}

#[test]
fn large_rows_are_compressed_as_others_are() {
    // RocksDB stores a value separately from this size on.
    const LARGE: usize = 256 << 10;
    let (memory, random) = (MemoryEngine::new(), SimRandom::new(3));
    let store = Store::open(
        Arc::new(CompressedEngine::new(Arc::new(memory.clone()), CompressionOptions::default())),
        0,
    )
    .unwrap();
    let table = Table::new(Arc::clone(&store), TableId::from_uuid(uuid::Uuid::from_u128(7)));
    let mut rows = Vec::new();
    for id in 0..40_u8 {
        let text = words(&random, 60_000);
        let row = Bytes::from(row::encode(&object(&format!(r#"{{"id":{id},"text":"{text}"}}"#))));
        let key = PrimaryKey::encode(&Datum::Number(f64::from(id))).unwrap();
        let mut changes = Changes::default();
        changes.add(table.id(), &RowChange { key: key.clone(), row: Some(row.clone()), existed: false });
        store.write(changes).unwrap();
        assert!(row.len() > LARGE);
        rows.push((key, row));
    }
    // The first rows are written before there is a dictionary: it takes eight kilobytes of each of eight rows, at least.
    let later = stored(&memory, Space::Rows).into_iter().skip(20).map(|(_, row)| row.len());
    let (plain, later) =
        (rows.iter().skip(20).map(|(_, row)| row.len()).sum::<usize>(), later.sum::<usize>());
    assert!(later * 2 < plain, "{later} of {plain} bytes");
    let snapshot = table.snapshot(ShardRange { range: KeyRange::all(), group: GroupId(1) }).unwrap();
    for (key, row) in &rows {
        assert_eq!(row::stored(&table.get(key).unwrap().unwrap()), Some(row));
        assert_eq!(snapshot.get_bytes(key).unwrap().as_ref(), Some(row));
    }
}

#[test]
fn long_records_of_histories_are_compressed_and_come_back() {
    let (memory, random, group) = (MemoryEngine::new(), SimRandom::new(4), GroupId(9));
    let engine = CompressedEngine::new(Arc::new(memory.clone()), CompressionOptions::default());
    let mut wanted = Vec::new();
    for lsn in 1..=100 {
        let text = words(&random, if lsn % 4 == 0 { 3 } else { 400 });
        let entry = Bytes::from([&[3][..], text.as_bytes()].concat());
        let record = HistoryRecord { lsn: Lsn(lsn), previous: Lsn(lsn - 1), previous_incarnation: 5, entry };
        let mut batch = Batch::new();
        record.clone().put(&mut batch, group);
        engine.write(batch).unwrap();
        wanted.push(record);
    }
    let read = || HistoryRecord::read(&engine.snapshot().unwrap(), group, Lsn(0), usize::MAX);
    assert_eq!(read().unwrap(), wanted);
    let stored = stored(&memory, Space::History);
    let plain: usize = wanted.iter().map(|record| record.entry.len()).sum();
    let bytes: usize = stored.iter().map(|(_, value)| value.len()).sum();
    assert!(bytes * 10 < plain * 7, "{bytes} of {plain} bytes");
    let (key, mut value) = stored.into_iter().find(|(_, value)| value[0] == 0x80).unwrap();
    value.truncate(value.len() / 2);
    let mut batch = Batch::new();
    batch.put(Space::History, &key, value.into());
    memory.write(batch).unwrap();
    assert!(read().unwrap_err().to_string().contains("group 9"));
}
