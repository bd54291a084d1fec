//! Tests of tables whose rows are compressed, over the memory engine.

#![allow(clippy::unwrap_used)]

mod bed;
mod settling;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use datum::{KeyBound, KeyRange, PrimaryKey, row};
use engine::memory::MemoryEngine;
use engine::{Batch, BufferedEngine, Engine, Space, conformance};
use rekindle_storage::{CompressedEngine, CompressionOptions, Direction, Store, Table, drop_table};

use self::bed::{Bed, COMPRESSED, DICTIONARY_RECORD, Draw, SMALL, object, seed, table_id, total, whole};

#[test]
fn random_documents_come_back() {
    const OTHER: &str = "совсем другой язык and many words that no row had before";
    let mut draw = Draw(seed());
    let mut bed = Bed::new(SMALL);
    bed.fill(&mut draw, 0..300, "alpha");
    bed.check();
    // Other words, so that the dictionary changes in the middle.
    bed.fill(&mut draw, 200..900, OTHER);
    let mut end = 900;
    while bed.dictionaries().len() < 2 {
        assert!(end < 10_000, "one dictionary for {end} rows");
        bed.fill(&mut draw, end..end + 700, OTHER);
        end += 700;
    }
    for id in (0..end).step_by(7) {
        bed.delete(id);
    }
    bed.store.engine().flush().unwrap();
    bed.check();
    let compressed = bed.stored_rows().iter().filter(|(_, row)| row.starts_with(&COMPRESSED)).count();
    assert!(compressed > 400, "{compressed} rows are compressed");
    let mut bed = bed.restarted();
    bed.check();
    bed.fill(&mut draw, end..end + 100, "alpha");
    bed.check();
    assert!(bed.store.engine().stats().compression.rows > 0, "the last dictionary is used again");
}

#[test]
fn text_takes_less_than_half() {
    let mut bed = Bed::new(SMALL);
    bed.fill(&mut Draw(1), 0..3000, "theme");
    let plain = total(bed.rows.values().skip(1000).map(Bytes::len));
    let stored = total(bed.stored_rows().iter().skip(1000).map(|(_, row)| row.len()));
    assert!(stored < plain * 0.5, "{stored} of {plain} bytes");
}

#[test]
fn a_crash_loses_no_dictionary_that_a_row_needs() {
    let mut draw = Draw(seed());
    for round in 0..20 {
        let mut bed = Bed::new(SMALL);
        bed.fill(&mut draw, 0..40 + round, "alpha");
        let durable = bed.rows.clone();
        for id in 1000..1100 {
            let document = object(&draw.document(id, "zulu"));
            bed.put(id, &document);
        }
        // Rows that were not flushed are lost, and perhaps the second dictionary.
        let mut bed = Bed { rows: durable, ..Bed::over(bed.memory.after_crash(), SMALL) };
        bed.check();
        bed.fill(&mut draw, 0..100, "beta");
        bed.check();
    }
}

#[test]
fn random_rows_stay_as_they_are() {
    let mut bed = Bed::new(SMALL);
    let mut draw = Draw(3);
    for id in 0..600 {
        // As YCSB made them first: ten fields of a hundred characters, of which there are 32.
        let mut field = || (0..100).map(|_| char::from(b' ' + draw.below(32) as u8)).collect::<String>();
        let mut field = |number| format!(r#""field{number}":"{}""#, field().replace('"', "\\\""));
        let fields: Vec<String> = (0..10).map(&mut field).collect();
        let document = object(&format!(r#"{{{},"id":{id}}}"#, fields.join(",")));
        bed.put(id, &document);
    }
    bed.store.engine().flush().unwrap();
    bed.check();
    assert!(bed.dictionaries().is_empty());
    let stored: Vec<Bytes> = bed.stored_rows().into_iter().map(|(_, row)| Bytes::from(row)).collect();
    assert_eq!(stored, bed.rows.values().cloned().collect::<Vec<_>>());
    let stats = bed.store.engine().stats().compression;
    assert!(stats.trainings > 0 && stats.dictionaries == 0 && stats.rows == 0, "{stats:?}");
    let version = bed.memory.get(Space::Meta, &[0]).unwrap();
    assert_eq!(version.as_deref(), Some(&1_u32.to_le_bytes()[..]), "earlier programs can read it");
}

#[test]
fn a_row_without_its_dictionary_is_an_error_that_names_it() {
    let mut bed = Bed::new(SMALL);
    bed.fill(&mut Draw(4), 0..300, "alpha");
    assert_eq!(bed.memory.get(Space::Meta, &[0]).unwrap().as_deref(), Some(&2_u32.to_le_bytes()[..]));
    let dictionaries = bed.dictionaries();
    bed.change_below(|batch| dictionaries.iter().for_each(|key| batch.delete(Space::Meta, key)));
    let mut bed = bed.restarted();
    let (mut readable, mut lost) = (0, 0);
    for (key, stored) in bed.stored_rows() {
        let key = PrimaryKey(Bytes::copy_from_slice(&key[16..]));
        match bed.table.get(&key) {
            Ok(row) => {
                assert_eq!(row::stored(&row.unwrap()), bed.rows.get(&key));
                readable += 1;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(stored.starts_with(&COMPRESSED), "{text}");
                assert!(text.contains(&format!("row {key}")), "{text}");
                assert!(text.contains(&table_id(7).to_string()) && text.contains("missing"), "{text}");
                lost += 1;
            }
        }
    }
    assert!(readable > 0 && lost > 100, "{readable} readable, {lost} lost");
    let mut scan = bed.table.snapshot(whole()).unwrap().scan(&KeyRange::all(), Direction::Ascending);
    let error = std::iter::from_fn(|| scan.next_batch().transpose()).find_map(Result::err);
    assert!(error.unwrap().to_string().contains("missing"));
    // New rows are compressed with another dictionary.
    let before = bed.rows.keys().cloned().collect::<Vec<_>>();
    bed.fill(&mut Draw(5), 1000..1400, "alpha");
    bed.rows.retain(|key, _| !before.contains(key));
    for (key, row) in &bed.rows {
        assert_eq!(row::stored(&bed.table.get(key).unwrap().unwrap()), Some(row));
    }
    assert!(!bed.dictionaries().is_empty());
}

#[test]
fn a_damaged_dictionary_is_never_used() {
    let mut bed = Bed::new(SMALL);
    bed.fill(&mut Draw(6), 0..300, "alpha");
    let (key, record) =
        bed.below(Space::Meta).into_iter().find(|(key, _)| key[0] == DICTIONARY_RECORD).unwrap();
    let mut bed = Some(bed);
    let other = [&[DICTIONARY_RECORD][..], table_id(8).uuid().as_bytes(), &1_u32.to_be_bytes()].concat();
    let mut damaged: Vec<Vec<u8>> = vec![Vec::new(), vec![1; 8], record[..record.len() - 1].to_vec()];
    for at in [0, 4, 8, 100, record.len() - 1] {
        let mut one = record.clone();
        one[at] ^= 0x20;
        damaged.push(one);
    }
    for record in damaged {
        let before = bed.take().unwrap();
        before.change_below(|batch| batch.put(Space::Meta, &key, Bytes::from(record)));
        let now = before.restarted();
        let first = now.stored_rows().into_iter().find(|(_, row)| row.starts_with(&COMPRESSED)).unwrap();
        let error = now.table.get(&PrimaryKey(Bytes::copy_from_slice(&first.0[16..]))).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
        bed = Some(now);
    }
    // A dictionary of another table is damage as well, although its bytes are whole.
    let bed = bed.unwrap();
    bed.change_below(|batch| {
        batch.put(Space::Meta, &key, Bytes::from(record.clone()));
        batch.put(Space::Meta, &other, Bytes::from(record));
    });
    let bed = bed.restarted();
    bed.check();
    let foreign = Table::new(Arc::clone(&bed.store), table_id(8));
    let (stored_key, stored) =
        bed.stored_rows().into_iter().find(|(_, row)| row.starts_with(&COMPRESSED)).unwrap();
    let moved = [table_id(8).uuid().as_bytes(), &stored_key[16..]].concat();
    bed.change_below(|batch| batch.put(Space::Rows, &moved, Bytes::from(stored)));
    let error = foreign.get(&PrimaryKey(Bytes::copy_from_slice(&stored_key[16..]))).unwrap_err();
    assert!(error.to_string().contains("dictionary 1 of its table is damaged"), "{error}");
}

#[test]
fn a_damaged_row_is_an_error_whichever_byte_it_is() {
    let mut bed = Bed::new(SMALL);
    bed.fill(&mut Draw(7), 0..300, "alpha");
    let compressed = |(_, row): &(Vec<u8>, Vec<u8>)| row.starts_with(&COMPRESSED) && row.len() < 300;
    let (stored_key, stored) = bed.stored_rows().into_iter().rfind(compressed).unwrap();
    let key = PrimaryKey(Bytes::copy_from_slice(&stored_key[16..]));
    let read = |bytes: Vec<u8>| {
        bed.change_below(|batch| batch.put(Space::Rows, &stored_key, Bytes::from(bytes)));
        let view = bed.table.snapshot(whole()).unwrap().get(&key);
        let found = bed.table.get(&key);
        assert_eq!(found.is_ok(), view.is_ok());
        found
    };
    let mut refused = 0;
    let mut check = |bytes: Vec<u8>| match read(bytes) {
        // A few bits of a frame have no meaning, and few texts need their dictionary.
        Ok(found) => assert_eq!(found.as_ref().and_then(row::stored), bed.rows.get(&key)),
        Err(_) => refused += 1,
    };
    for at in 0..stored.len() {
        for bit in 0..8 {
            let mut damaged = stored.clone();
            damaged[at] ^= 1 << bit;
            check(damaged);
        }
        check(stored[..at].to_vec());
    }
    assert!(refused > stored.len() * 9 - 40, "{refused} of {}", stored.len() * 9);
    assert!(read([&stored[..], &stored[..]].concat()).is_err());
    // A frame that says that its text has 4 GiB: descriptor 0xA0, then the size in four bytes.
    let huge = [&stored[..3], &[0xA0, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0], &stored[stored.len() - 4..]].concat();
    let error = read(huge).unwrap_err();
    assert!(error.to_string().contains("4294967295 bytes"), "{error}");
    assert_eq!(row::stored(&read(stored.clone()).unwrap().unwrap()), bed.rows.get(&key));
}

#[test]
fn a_damaged_row_is_listed_and_fails_only_reads_that_need_it() {
    for is_compressed in [true, false] {
        let mut bed = Bed::new(SMALL);
        bed.fill(&mut Draw(9), 0..300, "alpha");
        let is_wanted = |(_, row): &(Vec<u8>, Vec<u8>)| row.starts_with(&COMPRESSED) == is_compressed;
        let (stored_key, stored) = bed.stored_rows().into_iter().rfind(is_wanted).unwrap();
        let mut damaged = stored.clone();
        let at = damaged.len() / 2;
        damaged[at] ^= 1;
        let key = PrimaryKey(Bytes::copy_from_slice(&stored_key[16..]));
        bed.change_below(|batch| batch.put(Space::Rows, &stored_key, Bytes::from(damaged.clone())));
        let damage = bed.store.engine().damage().unwrap();
        assert!(damage.is_empty());
        let error = bed.table.get(&key).unwrap_err().to_string();
        assert!(error.contains(&table_id(7).to_string()) && error.contains(&key.to_string()), "{error}");
        let listed = damage.rows();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].0, stored_key);
        // All other rows are read, also by a scan before the damaged row.
        let before = KeyRange { start: KeyBound::Unbounded, end: KeyBound::Excluded(key.clone()) };
        let mut scan = bed.table.snapshot(whole()).unwrap().scan(&before, Direction::Ascending);
        let mut rows = 0;
        while scan.next().unwrap().is_some() {
            rows += 1;
        }
        assert!(rows > 0);
        for other in bed.rows.keys().filter(|other| **other != key) {
            assert!(bed.table.get(other).unwrap().is_some());
        }
        let mut scan = bed.table.snapshot(whole()).unwrap().scan(&KeyRange::all(), Direction::Ascending);
        let end = loop {
            match scan.next() {
                Ok(Some(_)) => {}
                end => break end,
            }
        };
        assert!(end.unwrap_err().to_string().contains("damaged"), "the scan of all rows fails");
        assert_eq!(damage.rows().len(), 1);
    }
}

#[test]
fn a_dropped_table_leaves_no_dictionary() {
    let mut bed = Bed::new(SMALL);
    bed.fill(&mut Draw(8), 0..300, "alpha");
    let snapshot = bed.table.snapshot(whole()).unwrap();
    assert!(!bed.dictionaries().is_empty());
    let mut batch = Batch::new();
    drop_table(&mut batch, table_id(7));
    bed.store.engine().write(batch).unwrap();
    assert!(bed.dictionaries().is_empty() && bed.stored_rows().is_empty());
    // Cursors that are still open read on, with the dictionaries of their own view.
    for (key, row) in &bed.rows {
        assert_eq!(snapshot.get_bytes(key).unwrap().as_ref(), Some(row));
        assert!(bed.table.get(key).unwrap().is_none());
    }
}

#[test]
fn dictionaries_that_do_not_fit_into_memory_are_read_again() {
    let tiny = CompressionOptions { memory_bytes: 256 << 10, ..SMALL };
    let mut bed = Bed::new(tiny);
    let mut draw = Draw(9);
    bed.fill(&mut draw, 0..300, "alpha");
    bed.fill(&mut draw, 300..1200, "zulu");
    bed.check();
    let memory = bed.store.engine().stats().memory.compression;
    assert!(memory > 0 && memory < 2 << 20, "{memory} bytes");
}

#[test]
fn a_thread_trains_while_rows_are_written() {
    let memory = MemoryEngine::new();
    let compressed = Arc::new(CompressedEngine::with_threads(Arc::new(memory.clone()), SMALL).unwrap());
    let store = Store::open(compressed.clone(), 0).unwrap();
    let table = Table::new(Arc::clone(&store), table_id(7));
    let mut bed = Bed { memory, options: SMALL, compressed, store, table, rows: BTreeMap::new() };
    let mut draw = Draw(seed());
    let mut id = 0;
    while bed.store.engine().stats().compression.rows < 500 {
        let document = object(&draw.document(id % 5000, "alpha"));
        bed.put(id % 5000, &document);
        id += 1;
    }
    bed.check();
    let bed = bed.restarted();
    bed.check();
}

#[test]
fn a_compressed_engine_keeps_the_contract() {
    let memory = || Arc::new(MemoryEngine::new());
    conformance::run(|| Arc::new(CompressedEngine::new(memory(), SMALL)), seed());
    conformance::run(
        || {
            let compressed = CompressedEngine::with_threads(memory(), SMALL).unwrap();
            Arc::new(BufferedEngine::new(Arc::new(compressed), 8000))
        },
        seed(),
    );
}
