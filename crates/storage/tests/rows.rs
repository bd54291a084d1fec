//! Tests of tables over the memory engine.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use datum::{Datum, KeyBound, KeyRange, Object, PrimaryKey, Text, row};
use engine::memory::MemoryEngine;
use engine::{Batch, Engine, Space};
use log::{GroupId, Lsn};
use rekindle_storage::{
    Applied, Changes, Count, Direction, Reach, ReadError, RowChange, RowTexts, ShardRange, Store, Table,
    TableId, drop_table, tables_present,
};

const GROUP: GroupId = GroupId(1);

fn table_id(number: u128) -> TableId {
    TableId::from_uuid(uuid::Uuid::from_u128(number))
}

fn empty() -> Arc<Store> {
    Store::open(Arc::new(MemoryEngine::new()), 1 << 20).unwrap()
}

fn key(value: impl Into<Datum>) -> PrimaryKey {
    PrimaryKey::encode(&value.into()).unwrap()
}

fn document(n: u32, text_bytes: usize) -> Object {
    let text = Datum::from("x".repeat(text_bytes));
    [(Text::from("n"), Datum::Number(f64::from(n))), (Text::from("text"), text)].into_iter().collect()
}

fn number(row: &Object) -> u32 {
    match row.get("n") {
        Some(Datum::Number(n)) => n as u32,
        other => panic!("not a test row: {other:?}"),
    }
}

fn write(store: &Arc<Store>, table: TableId, key: &PrimaryKey, row: Option<&Object>) -> i64 {
    let existed = Table::new(Arc::clone(store), table).get(key).unwrap().is_some();
    let row = row.map(|object| Bytes::from(row::encode(object)));
    let mut changes = Changes::default();
    let gained = changes.add(table, &RowChange { key: key.clone(), row, existed });
    store.write(changes).unwrap();
    gained
}

/// A table of `rows` rows numbered from 0, between two other tables that must not be visible.
fn filled(rows: u32, text_bytes: usize) -> (Arc<Store>, Table) {
    let store = empty();
    for id in [1, 2, 3] {
        for n in 0..if id == 2 { rows } else { 3 } {
            let wrong = if id == 2 { 0 } else { 1_000_000 };
            write(&store, table_id(id), &key(f64::from(n)), Some(&document(n + wrong, text_bytes)));
        }
    }
    let table = Table::new(Arc::clone(&store), table_id(2));
    (store, table)
}

fn whole() -> ShardRange {
    ShardRange { range: KeyRange::all(), group: GROUP }
}

fn scan(table: &Table, range: &KeyRange, direction: Direction) -> Vec<u32> {
    let mut scan = table.snapshot(whole()).unwrap().scan(range, direction);
    let mut rows = Vec::new();
    while let Some((found, row)) = scan.next().unwrap() {
        assert_eq!(found, key(f64::from(number(&row))), "a row comes with its key");
        rows.push(number(&row));
    }
    assert!(scan.next().unwrap().is_none());
    rows
}

#[test]
fn tables_do_not_see_each_other() {
    let (store, table) = filled(10, 1);
    assert_eq!(scan(&table, &KeyRange::all(), Direction::Ascending), (0..10).collect::<Vec<_>>());
    assert_eq!(scan(&table, &KeyRange::all(), Direction::Descending), (0..10).rev().collect::<Vec<_>>());
    assert!(table.get(&key(10.0)).unwrap().is_none());
    let mut batch = Batch::new();
    drop_table(&mut batch, table_id(2));
    store.engine().write(batch).unwrap();
    assert!(scan(&table, &KeyRange::all(), Direction::Ascending).is_empty());
    assert_eq!(tables_present(&store.engine().snapshot().unwrap()).unwrap(), [table_id(1), table_id(3)]);
}

#[test]
fn bounds_are_bounds_of_keys() {
    let (_, table) = filled(10, 1);
    let (five, seven) = (key(5.0), key(7.0));
    let range = |start, end| KeyRange { start, end };
    let rows = |start, end| scan(&table, &range(start, end), Direction::Ascending);
    use KeyBound::{Excluded, Included, Unbounded};
    assert_eq!(rows(Included(five.clone()), Included(seven.clone())), [5, 6, 7]);
    assert_eq!(rows(Excluded(five.clone()), Excluded(seven.clone())), [6]);
    assert_eq!(rows(Unbounded, Excluded(five.clone())), [0, 1, 2, 3, 4]);
    assert_eq!(rows(Included(seven.clone()), Unbounded), [7, 8, 9]);
    assert!(rows(Excluded(seven.clone()), Included(five)).is_empty());
    assert_eq!(scan(&table, &KeyRange::one(seven), Direction::Descending), [7]);
}

#[test]
fn even_parts_differ_by_one_row_at_most() {
    let (_, table) = filled(100, 1);
    let snapshot = table.snapshot(whole()).unwrap();
    let rows = |parts: &[KeyRange]| {
        parts.iter().map(|range| scan(&table, range, Direction::Ascending)).collect::<Vec<_>>()
    };
    for wanted in [1, 2, 3, 7, 64, 100] {
        let parts = rows(&snapshot.split_evenly(&KeyRange::all(), wanted).unwrap());
        let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
        assert_eq!(sizes.len(), wanted);
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        assert_eq!(parts.concat(), (0..100).collect::<Vec<_>>());
    }
    let few = KeyRange { start: KeyBound::Included(key(97.0)), end: KeyBound::Unbounded };
    assert_eq!(rows(&snapshot.split_evenly(&few, 10).unwrap()), [[97], [98], [99]]);
    let none = KeyRange { start: KeyBound::Included(key(1000.0)), end: KeyBound::Unbounded };
    assert_eq!(snapshot.split_evenly(&none, 10).unwrap().len(), 1);
}

#[test]
fn a_snapshot_does_not_move() {
    let (store, table) = filled(5, 1);
    let snapshot = table.snapshot(whole()).unwrap();
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Ascending);
    write(&store, table.id(), &key(1.0), None);
    write(&store, table.id(), &key(2.0), Some(&document(77, 1)));
    drop(table);
    assert_eq!(number(&snapshot.get(&key(1.0)).unwrap().unwrap()), 1);
    drop(snapshot);
    let mut rows = Vec::new();
    while let Some((_, row)) = scan.next().unwrap() {
        rows.push(number(&row));
    }
    assert_eq!(rows, [0, 1, 2, 3, 4]);
}

#[test]
fn batches_grow_and_are_reused_when_no_row_is_held() {
    let (_, table) = filled(3000, 500);
    let mut scan = table.snapshot(whole()).unwrap().scan(&KeyRange::all(), Direction::Ascending);
    let first = scan.next_batch().unwrap().unwrap();
    assert!((1..10).contains(&first.len()), "the first batch is small");
    let held = first.object(0).unwrap();
    let mut rows = first.len();
    let (mut bytes_max, mut next) = (0, scan.next_batch_after(first).unwrap());
    while let Some(batch) = next {
        bytes_max = bytes_max.max(batch.bytes());
        for (index, row) in batch.iter().enumerate() {
            let (found, object) = row.unwrap();
            assert_eq!(number(&object) as usize, rows + index);
            assert_eq!(found, batch.key(index));
        }
        rows += batch.len();
        next = scan.next_batch_after(batch).unwrap();
    }
    assert_eq!(rows, 3000);
    assert!((200 << 10..=256 << 10).contains(&bytes_max), "{bytes_max} bytes in the largest batch");
    assert_eq!(number(&held), 0, "a held row is not overwritten");
}

#[test]
fn a_row_larger_than_a_block_comes_alone() {
    let (store, table) = filled(3, 1);
    write(&store, table.id(), &key(1.0), Some(&document(1, 3 << 20)));
    let mut scan = table.snapshot(whole()).unwrap().scan(&KeyRange::all(), Direction::Ascending);
    let mut numbers = Vec::new();
    while let Some(batch) = scan.next_batch().unwrap() {
        numbers.push(batch.iter().map(|row| number(&row.unwrap().1)).collect::<Vec<_>>());
    }
    assert_eq!(numbers.concat(), [0, 1, 2]);
    assert_eq!(scan_lengths(&table), [1, 3 << 20, 1]);
}

fn scan_lengths(table: &Table) -> Vec<usize> {
    let mut scan = table.snapshot(whole()).unwrap().scan(&KeyRange::all(), Direction::Ascending).to_the_end();
    let mut lengths = Vec::new();
    while let Some((_, row)) = scan.next().unwrap() {
        match row.get("text") {
            Some(Datum::String(text)) => lengths.push(text.len()),
            other => panic!("not a test row: {other:?}"),
        }
    }
    lengths
}

#[test]
fn a_damaged_row_is_named() {
    let (store, table) = filled(5, 1);
    let mut bytes = table.get_bytes(&key(3.0)).unwrap().unwrap().to_vec();
    bytes[20] ^= 1;
    let mut changes = Changes::default();
    let damaged = RowChange { key: key(3.0), row: Some(Bytes::from(bytes)), existed: true };
    assert_eq!(changes.add(table.id(), &damaged), 0);
    store.write(changes).unwrap();
    let names_it = |error| matches!(error, ReadError::Corrupt { key: found, .. } if found == key(3.0));
    assert!(table.get(&key(3.0)).is_err_and(names_it));
    let mut scan = table.snapshot(whole()).unwrap().scan(&KeyRange::all(), Direction::Ascending);
    for _ in 0..3 {
        scan.next().unwrap();
    }
    assert!(scan.next().is_err_and(names_it));
    // The engine in memory does not guarantee its bytes, so rows read in place are verified, too.
    let mut scan = table.snapshot(whole()).unwrap().scan(&KeyRange::all(), Direction::Ascending);
    for _ in 0..3 {
        scan.next_view().unwrap();
    }
    assert!(scan.next_view().err().is_some_and(names_it));
}

#[test]
fn many_rows_are_read_as_one_after_the_other() {
    let (store, _) = filled(40, 3);
    let store = Store::open(Arc::clone(store.engine()), 1 << 20).unwrap();
    let table = Table::new(Arc::clone(&store), table_id(2));
    // Some rows are cached, some are not, some are named twice, some do not exist.
    for n in [3, 4, 30] {
        table.get(&key(f64::from(n))).unwrap();
    }
    let keys: Vec<_> = [4, 4, 5, 3, 99, 39, 30, 7, 7].map(|n| key(f64::from(n))).to_vec();
    let texts = |keys: &[PrimaryKey]| {
        let mut texts = RowTexts::default();
        texts.push(b"0");
        table.get_texts(keys, Reach::Disk, &mut texts, usize::MAX).unwrap();
        String::from_utf8(texts.json().to_vec()).unwrap()
    };
    let expected = |rows: &[u32]| {
        let text = |n: &u32| format!(",{}", Datum::Object(document(*n, 3)).to_json_string());
        format!("0{}", rows.iter().map(text).collect::<String>())
    };
    assert_eq!(texts(&keys), expected(&[4, 4, 5, 3, 39, 30, 7, 7]));
    // Now all rows are cached except the missing one; a row that changes is read again.
    let misses = store.row_cache_stats().misses;
    write(&store, table.id(), &key(5.0), Some(&document(55, 3)));
    assert_eq!(texts(&keys[1..4]), expected(&[4, 55, 3]));
    assert_eq!(texts(&keys[5..]), expected(&[39, 30, 7, 7]));
    assert_eq!(store.row_cache_stats().misses, misses);
    assert_eq!(texts(&[]), "0");
    assert_eq!(texts(&keys[3..6]), expected(&[3, 39]));
    // A row too large to be copied under the cache's lock.
    let large = Store::open(Arc::clone(store.engine()), 64 << 20).unwrap();
    let table = Table::new(Arc::clone(&large), table_id(2));
    write(&large, table.id(), &key(4.0), Some(&document(4, 20_000)));
    for _ in 0..2 {
        let mut texts = RowTexts::default();
        table.get_texts(&keys[..3], Reach::Disk, &mut texts, usize::MAX).unwrap();
        assert_eq!((texts.len(), texts.bytes()), (3, 2 * (20_000 + 17) + 21));
    }
    assert_eq!(large.row_cache_stats().misses, 2, "it is at hand nevertheless");
    let mut few = RowTexts::default();
    table.get_texts(&keys, Reach::Disk, &mut few, 20_001).unwrap();
    assert_eq!(few.len(), 1, "no more are copied than are wanted");
}

#[test]
fn a_change_returns_how_the_count_changes() {
    let (store, table) = filled(1, 1);
    let id = table.id();
    assert_eq!(write(&store, id, &key("a"), Some(&document(1, 1))), 1);
    assert_eq!(write(&store, id, &key("a"), Some(&document(2, 1))), 0);
    assert_eq!(write(&store, id, &key("a"), None), -1);
    assert_eq!(write(&store, id, &key("a"), None), 0);
}

#[test]
fn records_of_a_group_are_read_back() {
    let store = empty();
    assert_eq!(Applied::read(&**store.engine(), GROUP).unwrap(), None);
    assert_eq!(Count::read(&**store.engine(), table_id(2), GROUP).unwrap(), Count(0));
    let applied = Applied { lsn: Lsn(7), progress: Bytes::from_static(b"more") };
    let mut batch = Batch::new();
    applied.put(&mut batch, GROUP);
    Count(9).put(&mut batch, table_id(2), GROUP);
    store.engine().write(batch).unwrap();
    assert_eq!(Applied::read(&**store.engine(), GROUP).unwrap(), Some(applied));
    assert_eq!(Applied::read(&**store.engine(), GroupId(2)).unwrap(), None);
    assert_eq!(Count::read(&**store.engine(), table_id(2), GROUP).unwrap(), Count(9));
    let table = Table::new(Arc::clone(&store), table_id(2));
    assert_eq!(table.snapshot(whole()).unwrap().count().unwrap(), 9);
    for (key, _) in all_of(store.engine(), Space::Meta) {
        let mut batch = Batch::new();
        batch.put(Space::Meta, &key, Bytes::from_static(b"odd"));
        store.engine().write(batch).unwrap();
    }
    assert!(matches!(Applied::read(&**store.engine(), GROUP), Err(ReadError::CorruptMeta { .. })));
    assert!(matches!(Count::read(&**store.engine(), table_id(2), GROUP), Err(ReadError::CorruptMeta { .. })));
}

fn all_of(engine: &Arc<dyn Engine>, space: Space) -> Vec<(Vec<u8>, Vec<u8>)> {
    use std::ops::Bound::Unbounded;
    let snapshot = engine.snapshot().unwrap();
    engine::conformance::collect(&snapshot, space, (Unbounded, Unbounded), Direction::Ascending)
}

#[test]
fn the_last_table_of_all_is_a_table() {
    let store = empty();
    let last = TableId::from_uuid(uuid::Uuid::max());
    write(&store, last, &key(1.0), Some(&document(1, 1)));
    let table = Table::new(Arc::clone(&store), last);
    assert_eq!(scan(&table, &KeyRange::all(), Direction::Ascending), [1]);
    assert_eq!(tables_present(&store.engine().snapshot().unwrap()).unwrap(), [last]);
}

#[test]
fn a_cached_row_is_as_the_last_change_of_a_batch_left_it() {
    let store = empty();
    let id = table_id(2);
    let table = Table::new(Arc::clone(&store), id);
    let change = |n: u32, row: Option<u32>| {
        let row = row.map(|n| Bytes::from(row::encode(&document(n, 1))));
        RowChange { key: key(f64::from(n)), row, existed: true }
    };
    for last in [Some(7), None] {
        write(&store, id, &key(1.0), Some(&document(0, 1)));
        table.get(&key(1.0)).unwrap();
        assert!(store.row_cache_stats().rows > 0, "the row is at hand");
        let mut changes = Changes::default();
        for round in 0..3 {
            changes.add(id, &change(1, Some(round)));
            // Enough other rows that the repeated change is not detected when the batch is built.
            for other in 1000..3000 {
                changes.add(id, &change(other, Some(other)));
            }
        }
        changes.add(id, &change(1, last));
        store.write(changes).unwrap();
        assert_eq!(table.get(&key(1.0)).unwrap().as_ref().map(number), last);
    }
}
