//! Tests of rows that are compressed again when they have settled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use datum::{KeyRange, PrimaryKey, row};
use engine::{Batch, BufferedEngine, Engine, Space};
use rekindle_storage::{Changes, Direction, RowChange, Store, drop_table};

use crate::bed::{Bed, COMPRESSED, DICTIONARY_RECORD, Draw, SMALL, key, object, seed, table_id, whole};

/// The numbers of the dictionaries in stored rows; zero for a row that is not compressed. All are below 128.
fn numbers(bed: &Bed) -> Vec<u8> {
    let number = |row: &[u8]| if row.starts_with(&COMPRESSED) { row[2] } else { 0 };
    bed.stored_rows().iter().map(|(_, row)| number(row)).collect()
}

/// The numbers of the dictionaries that are not for rows that are being written.
fn settled_numbers(bed: &Bed) -> BTreeSet<u8> {
    let records = bed.below(Space::Meta).into_iter();
    let settled = records.filter(|(key, record)| key[0] == DICTIONARY_RECORD && record[0] == 2);
    settled.map(|(key, _)| key[20]).collect()
}

fn archived() -> Bed {
    let bed = Bed::new(SMALL);
    bed.compressed.set_is_archive(Box::new(|table| table == table_id(7)));
    bed
}

#[test]
fn settled_rows_are_smaller_and_come_back() {
    let mut draw = Draw(seed());
    let mut bed = Bed::new(SMALL);
    bed.fill(&mut draw, 0..1500, "alpha");
    let (before, uncompressed) =
        (bed.stored_bytes(), numbers(&bed).iter().filter(|number| **number == 0).count());
    assert!(uncompressed > 10, "rows are written before there is a dictionary");
    let snapshot = bed.table.snapshot(whole()).unwrap();
    let unsettled = || bed.store.engine().stats().compression.unsettled_tables;
    assert!(bed.compressed.settle().unwrap());
    assert_eq!(unsettled(), 1);
    bed.settle();
    assert_eq!(unsettled(), 0);
    bed.check();
    let settled = settled_numbers(&bed);
    assert_eq!(settled.len(), 1);
    let numbers = numbers(&bed);
    let rewritten = numbers.iter().filter(|number| settled.contains(number)).count();
    assert!(rewritten > 1000, "{rewritten} of {} rows", numbers.len());
    let after = bed.stored_bytes();
    assert!(after < before * 97 / 100, "{before} bytes before, {after} after");
    let stats = bed.store.engine().stats().compression;
    assert_eq!(stats.settled_rows, rewritten as u64);
    assert_eq!(stats.settled_bytes_before - stats.settled_bytes_after, (before - after) as u64);
    // A view of before does not have the dictionary, but sees rows that are compressed with it.
    for (key, row) in &bed.rows {
        assert_eq!(snapshot.get_bytes(key).unwrap().as_ref(), Some(row));
    }
    assert_eq!(bed.memory.get(Space::Meta, &[0]).unwrap().as_deref(), Some(&3_u32.to_le_bytes()[..]));
    let mut bed = bed.restarted();
    bed.check();
    bed.settle();
    assert_eq!(settled_numbers(&bed), settled, "the dictionary is found again");
    // New rows are compressed with the dictionary for writing.
    let written =
        bed.dictionaries().iter().map(|key| key[20]).filter(|number| !settled.contains(number)).max();
    bed.fill(&mut draw, 5000..5100, "alpha");
    assert!(crate::settling::numbers(&bed).contains(&written.unwrap()));
    bed.check();
}

#[test]
fn a_table_of_before_compression_is_compressed() {
    let mut draw = Draw(seed());
    let mut bed = Bed::new(SMALL);
    let plain = Store::open(Arc::new(BufferedEngine::new(Arc::new(bed.memory.clone()), 8 << 10)), 0).unwrap();
    for id in 0..1000 {
        let row = Bytes::from(row::encode(&object(&draw.document(id, "alpha"))));
        bed.rows.insert(key(id), row.clone());
        let mut changes = Changes::default();
        changes.add(table_id(7), &RowChange { key: key(id), row: Some(row), existed: false });
        plain.write(changes).unwrap();
    }
    plain.engine().flush().unwrap();
    drop(plain);
    let before = bed.stored_bytes();
    bed.settle();
    bed.check();
    let after = bed.stored_bytes();
    assert!(after < before / 2, "{before} bytes before, {after} after");
}

#[test]
fn a_crash_between_any_two_steps_loses_nothing() {
    let mut draw = Draw(seed());
    for is_archive in [false, true] {
        let mut bed = if is_archive { archived() } else { Bed::new(SMALL) };
        bed.fill(&mut draw, 0..600, "alpha");
        let mut steps = 0;
        loop {
            let is_more = bed.compressed.settle().unwrap();
            steps += 1;
            Bed { rows: bed.rows.clone(), ..Bed::over(bed.memory.after_crash(), SMALL) }.check();
            if !is_more {
                break;
            }
        }
        assert!(steps >= 4, "{steps} steps");
    }
}

#[test]
fn concurrent_writes_are_never_undone() {
    let mut bed = Bed::new(SMALL);
    let mut draw = Draw(seed());
    bed.fill(&mut draw, 0..600, "alpha");
    let ends = AtomicBool::new(false);
    let compressed = Arc::clone(&bed.compressed);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !ends.load(Relaxed) {
                compressed.settle().unwrap();
                let whole = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
                compressed.compact(Space::Rows, whole).unwrap();
            }
        });
        for round in 0..3 {
            bed.fill(&mut draw, 0..400, "alpha");
            (0..400).skip(round).step_by(9).for_each(|id| bed.delete(id));
            bed.store.engine().flush().unwrap();
        }
        ends.store(true, Relaxed);
    });
    bed.check();
}

#[test]
fn rows_that_do_not_shrink_are_not_settled() {
    let mut draw = Draw(3);
    for is_archive in [false, true] {
        let mut bed = if is_archive { archived() } else { Bed::new(SMALL) };
        for id in 0..400 {
            let text: String = (0..1000).map(|_| char::from(b'#' + draw.below(56) as u8)).collect();
            let text = text.replace('\\', "/");
            bed.put(id, &object(&format!(r#"{{"id":{id},"text":"{text}"}}"#)));
        }
        bed.store.engine().flush().unwrap();
        let before = bed.stored_rows();
        bed.settle();
        assert!(bed.dictionaries().is_empty());
        assert_eq!(bed.stored_rows(), before);
        bed.check();
    }
}

#[test]
fn an_archive_takes_less_than_a_settled_table() {
    let bytes = [false, true].map(|is_archive| {
        let mut bed = if is_archive { archived() } else { Bed::new(SMALL) };
        bed.fill(&mut Draw(11), 0..2000, "alpha");
        bed.settle();
        bed.check();
        let bed = bed.restarted();
        bed.check();
        bed.stored_bytes()
    });
    assert!(bytes[1] < bytes[0], "{bytes:?}");
}

#[test]
fn an_archive_of_ten_rows_works() {
    for rows in [0, 1, 10, 40] {
        let mut bed = archived();
        bed.fill(&mut Draw(seed()), 0..rows, "alpha");
        bed.settle();
        bed.check();
        let bed = bed.restarted();
        bed.settle();
        bed.check();
    }
}

#[test]
fn a_table_may_become_an_archive_and_cease_to_be_one() {
    let mut bed = Bed::new(SMALL);
    let mut draw = Draw(seed());
    bed.fill(&mut draw, 0..1000, "alpha");
    bed.settle();
    let settled = bed.stored_bytes();
    bed.compressed.set_is_archive(Box::new(|_| true));
    bed.settle();
    bed.check();
    let archived = bed.stored_bytes();
    assert!(archived < settled, "{settled} bytes settled, {archived} archived");
    bed.compressed.set_is_archive(Box::new(|_| false));
    bed.settle();
    bed.check();
    assert!(bed.stored_bytes() <= archived, "rows are not made larger");
    bed.fill(&mut draw, 1000..2500, "zulu");
    bed.settle();
    bed.check();
}

#[test]
fn a_settled_row_without_its_dictionary_is_an_error_that_names_it() {
    for is_archive in [false, true] {
        let mut bed = if is_archive { archived() } else { Bed::new(SMALL) };
        bed.fill(&mut Draw(4), 0..600, "alpha");
        bed.settle();
        let settled = settled_numbers(&bed).into_iter().next_back().unwrap();
        let (lost, record) =
            bed.below(Space::Meta).into_iter().find(|(key, _)| is_record_of(key, settled)).unwrap();
        let mut broken = vec![None, Some(record[..record.len() - 1].to_vec())];
        for at in [1, 4, 9, 17, 19, 24, record.len() - 1] {
            let mut damaged = record.clone();
            damaged[at] ^= 0x21;
            broken.push(Some(damaged));
        }
        let rows = bed.rows.clone();
        for record in broken {
            let expected = if record.is_some() { "is damaged" } else { "is missing" };
            bed.change_below(|batch| match record {
                Some(record) => batch.put(Space::Meta, &lost, Bytes::from(record)),
                None => batch.delete(Space::Meta, &lost),
            });
            bed = bed.restarted();
            let mut errors = 0;
            for (stored_key, stored) in bed.stored_rows() {
                let key = PrimaryKey(Bytes::copy_from_slice(&stored_key[16..]));
                match bed.table.get(&key) {
                    Ok(row) => assert_eq!(row::stored(&row.unwrap()), rows.get(&key)),
                    Err(error) => {
                        assert!(stored.starts_with(&[COMPRESSED[0], COMPRESSED[1], settled]), "{error}");
                        let named = format!("dictionary {settled} of its table {expected}");
                        assert!(error.to_string().contains(&named), "{error}");
                        errors += 1;
                    }
                }
            }
            assert!(errors > 100, "{errors} rows cannot be read");
        }
        // The table goes on: new rows are written, and settle with another dictionary.
        bed.fill(&mut Draw(5), 1000..2000, "alpha");
        bed.settle();
        assert!(settled_numbers(&bed).iter().any(|number| *number > settled));
        bed.change_below(|batch| batch.put(Space::Meta, &lost, Bytes::from(record)));
        bed.restarted().check();
    }
}

fn is_record_of(key: &[u8], number: u8) -> bool {
    key[0] == DICTIONARY_RECORD && key[20] == number
}

#[test]
fn a_dropped_table_leaves_no_settled_dictionary() {
    let mut bed = Bed::new(SMALL);
    bed.fill(&mut Draw(8), 0..600, "alpha");
    bed.settle();
    let snapshot = bed.table.snapshot(whole()).unwrap();
    let mut batch = Batch::new();
    drop_table(&mut batch, table_id(7));
    bed.store.engine().write(batch).unwrap();
    assert!(bed.dictionaries().is_empty() && bed.stored_rows().is_empty());
    bed.settle();
    for (key, row) in &bed.rows {
        assert_eq!(snapshot.get_bytes(key).unwrap().as_ref(), Some(row));
    }
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Ascending);
    assert!(scan.next_batch().unwrap().is_some());
    // Its id may come back, with a replica that moves here again.
    bed.rows.clear();
    bed.fill(&mut Draw(9), 0..600, "zulu");
    bed.settle();
    bed.check();
}
