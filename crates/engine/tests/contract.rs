//! Every engine passes the same suite.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use rekindle_engine::memory::MemoryEngine;
use rekindle_engine::{BufferedEngine, conformance};

/// Different every run; a failure prints it.
fn seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {now}");
    now
}

#[test]
fn the_memory_engine_keeps_the_contract() {
    conformance::run(|| Arc::new(MemoryEngine::new()), seed());
}

/// Engines with a buffer that is flushed all the time, never by itself, and on another thread.
#[test]
fn an_engine_with_a_write_buffer_keeps_the_contract() {
    let memory = || Arc::new(MemoryEngine::new());
    for bytes_max in [0, 1000, 8000, 1 << 20] {
        conformance::run(|| Arc::new(BufferedEngine::new(memory(), bytes_max)), seed());
        conformance::run(
            || Arc::new(BufferedEngine::with_writer_thread(memory(), bytes_max).unwrap()),
            seed(),
        );
    }
}

#[cfg(feature = "rocks")]
mod rocks {
    use std::ops::Bound;
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    use bytes::Bytes;
    use parking_lot::Mutex;
    use rekindle_engine::rocks::{EngineOptions, RocksEngine};
    use rekindle_engine::{
        Batch, BufferedEngine, DeletedKeys, Direction, Engine, EngineError, Scan, Snapshot, Space,
    };

    use super::*;

    fn open(dir: &Path) -> RocksEngine {
        let small =
            EngineOptions { cache_bytes: 8 << 20, write_buffer_bytes: 16 << 20, ..EngineOptions::default() };
        RocksEngine::open(dir, &small).unwrap()
    }

    fn put(engine: &RocksEngine, key: &[u8], value: &[u8]) {
        let mut batch = Batch::new();
        batch.put(Space::Rows, key, Bytes::copy_from_slice(value));
        batch.put(Space::Meta, b"last", Bytes::copy_from_slice(key));
        engine.write(batch).unwrap();
    }

    /// The content that another process would find if the process with `alive` open ended now.
    fn crashed(alive: &Path, copy: &Path) -> RocksEngine {
        // RocksDB removes obsolete files in the background, perhaps while they are being copied.
        while let Err(cause) = copied(alive, copy) {
            assert_eq!(cause.kind(), std::io::ErrorKind::NotFound, "{cause}");
            std::fs::remove_dir_all(copy).unwrap();
        }
        open(copy)
    }

    fn copied(alive: &Path, copy: &Path) -> std::io::Result<()> {
        std::fs::create_dir(copy)?;
        for file in std::fs::read_dir(alive)? {
            let file = file?;
            std::fs::copy(file.path(), copy.join(file.file_name()))?;
        }
        Ok(())
    }

    #[test]
    fn the_engine_on_disk_keeps_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = 0;
        conformance::run(
            || {
                opened += 1;
                Arc::new(open(&dir.path().join(opened.to_string())))
            },
            seed(),
        );
    }

    #[test]
    fn the_engine_on_disk_keeps_the_contract_with_a_write_buffer() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = 0;
        conformance::run(
            || {
                opened += 1;
                let below = Arc::new(open(&dir.path().join(opened.to_string())));
                Arc::new(BufferedEngine::with_writer_thread(below, 4000).unwrap())
            },
            seed(),
        );
    }

    #[test]
    fn a_closed_engine_opens_with_the_buffered_batches() {
        let dir = tempfile::tempdir().unwrap();
        let engine = BufferedEngine::with_writer_thread(Arc::new(open(dir.path())), 1 << 20).unwrap();
        let mut batch = Batch::new();
        batch.put(Space::Rows, b"a", Bytes::from_static(b"1"));
        engine.write(batch).unwrap();
        drop(engine);
        assert_eq!(open(dir.path()).get(Space::Rows, b"a").unwrap().unwrap(), "1");
    }

    #[test]
    fn a_closed_engine_opens_with_everything() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        put(&engine, b"a", b"1");
        drop(engine);
        let engine = open(dir.path());
        assert_eq!(engine.get(Space::Rows, b"a").unwrap().unwrap(), "1");
    }

    #[test]
    fn a_crash_leaves_exactly_what_was_flushed() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(&dir.path().join("alive"));
        put(&engine, b"flushed", b"1");
        engine.flush().unwrap();
        put(&engine, b"lost", b"1");
        let engine = crashed(&dir.path().join("alive"), &dir.path().join("crashed"));
        assert!(engine.get(Space::Rows, b"flushed").unwrap().is_some());
        assert!(engine.get(Space::Rows, b"lost").unwrap().is_none());
        assert_eq!(engine.get(Space::Meta, b"last").unwrap().unwrap(), "flushed");
    }

    #[test]
    fn a_flush_that_rocksdb_begins_by_itself_waits_for_the_hook() {
        const ROWS: u32 = 2000;
        let dir = tempfile::tempdir().unwrap();
        let tiny = EngineOptions { write_buffer_bytes: 256 << 10, ..EngineOptions::default() };
        let alive = dir.path().join("alive");
        let engine = RocksEngine::open(&alive, &tiny).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (word, words) = mpsc::channel::<()>();
        let words = Mutex::new(words);
        engine.set_pre_flush_hook(Arc::new(move || {
            begun.send(()).unwrap();
            // Blocks until the other end is dropped.
            words.lock().recv().unwrap_err();
            Ok(())
        }));
        let row = |number: u32| format!("{number:08}").into_bytes();
        std::thread::scope(|scope| {
            // RocksDB blocks the write when all its memtables are full.
            scope.spawn(|| (0..ROWS).for_each(|number| put(&engine, &row(number), &[7; 500])));
            has_begun.recv_timeout(Duration::from_secs(60)).expect("memtables this small are flushed");
            let before = crashed(&alive, &dir.path().join("before"));
            assert_eq!(before.get(Space::Rows, &row(0)).unwrap(), None, "nothing is durable before the hook");
            drop(word);
        });
        engine.flush().unwrap();
        let after = crashed(&alive, &dir.path().join("after"));
        assert!(after.get(Space::Rows, &row(ROWS - 1)).unwrap().is_some());
    }

    #[test]
    fn a_hook_that_panics_or_fails_does_not_hold_a_flush_of_rocksdb_up() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(&dir.path().join("alive"));
        put(&engine, b"a", b"1");
        engine.set_pre_flush_hook(Arc::new(|| panic!("told to panic")));
        // RocksDB flushes when it is closed.
        drop(engine);
        let engine = open(&dir.path().join("alive"));
        assert_eq!(engine.get(Space::Rows, b"a").unwrap().unwrap(), "1");
        put(&engine, b"b", b"1");
        engine.set_pre_flush_hook(Arc::new(|| Err(std::io::Error::other("told to fail"))));
        engine.flush().unwrap_err();
        let asked = crashed(&dir.path().join("alive"), &dir.path().join("asked"));
        assert_eq!(asked.get(Space::Rows, b"b").unwrap(), None, "a flush that is asked for is refused");
        drop(engine);
        let engine = open(&dir.path().join("alive"));
        assert_eq!(engine.get(Space::Rows, b"b").unwrap().unwrap(), "1");
    }

    #[test]
    fn a_dropped_range_leaves_the_disk_once_no_snapshot_sees_it() {
        const BYTES: u64 = 4 << 20;
        for keys in [DeletedKeys::NeverWrittenAgain, DeletedKeys::MayBeWrittenAgain] {
            let dir = tempfile::tempdir().unwrap();
            let engine = open(dir.path());
            for number in 0..BYTES / 1024 {
                put(&engine, format!("a{number:08}").as_bytes(), &[7; 1024]);
            }
            put(&engine, b"a large one", &vec![1; 1 << 20]);
            put(&engine, b"b", b"1");
            engine.flush().unwrap();
            let snapshot = engine.snapshot().unwrap();
            let mut batch = Batch::new();
            batch.delete_range(Space::Rows, b"a", b"b");
            engine.write(batch).unwrap();
            engine.reclaim(Space::Rows, b"a", b"b", keys);
            assert!(engine.get(Space::Rows, b"a00000001").unwrap().is_none());
            assert_eq!(snapshot.get(Space::Rows, b"a00000001").unwrap().unwrap().len(), 1024);
            assert!(engine.stats().disk_bytes() > BYTES);
            drop(snapshot);
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while engine.stats().disk_bytes() > BYTES / 16 {
                assert!(std::time::Instant::now() < deadline, "{} bytes", engine.stats().disk_bytes());
                std::thread::yield_now();
            }
            assert_eq!(engine.get(Space::Rows, b"b").unwrap().unwrap(), "1");
        }
    }

    #[test]
    fn dropped_large_values_leave_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        for number in 0..8 {
            put(&engine, format!("a{number}").as_bytes(), &vec![number; 1 << 20]);
            put(&engine, format!("b{number}").as_bytes(), b"1");
            if number == 4 {
                engine.flush().unwrap();
            }
        }
        engine.flush().unwrap();
        let mut batch = Batch::new();
        batch.delete_range(Space::Rows, b"a", b"b");
        engine.write(batch).unwrap();
        engine.reclaim(Space::Rows, b"a", b"b", DeletedKeys::NeverWrittenAgain);
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while engine.stats().disk_bytes() > 100 << 10 {
            assert!(std::time::Instant::now() < deadline, "{} bytes", engine.stats().disk_bytes());
            std::thread::yield_now();
        }
        assert_eq!(engine.get(Space::Rows, b"b7").unwrap().unwrap(), "1");
    }

    #[test]
    fn a_second_opening_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = open(dir.path());
        let second = RocksEngine::open(dir.path(), &EngineOptions::default());
        assert!(matches!(second.err(), Some(EngineError::Locked { .. })));
    }

    #[test]
    fn damage_differs_from_absence() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        for number in 0..2000_u32 {
            put(&engine, &number.to_be_bytes(), &[7; 500]);
        }
        drop(engine);
        for file in std::fs::read_dir(dir.path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "sst") {
                let mut bytes = std::fs::read(&path).unwrap();
                // Somewhere in the data blocks of a file that is large enough to hold the rows.
                if bytes.len() > 500_000 {
                    bytes[100_000] ^= 1;
                    std::fs::write(&path, bytes).unwrap();
                }
            }
        }
        let engine = open(dir.path());
        let damaged = (0..2000_u32)
            .filter(|number| match engine.get(Space::Rows, &number.to_be_bytes()) {
                Ok(value) => {
                    assert_eq!(value.as_deref(), Some(&[7; 500][..]));
                    false
                }
                Err(EngineError::Corrupt { .. }) => true,
                Err(other) => panic!("{other}"),
            })
            .count();
        assert!((1..40).contains(&damaged), "{damaged} rows of one damaged block");
        // The scan reports that it verifies: it must reach the damage, and return nothing wrong before it.
        let whole = (Bound::Unbounded, Bound::Unbounded);
        let mut scan = engine.snapshot().unwrap().scan(Space::Rows, whole, Direction::Ascending);
        assert!(scan.is_verified());
        let failed = loop {
            match scan.next() {
                Ok(Some((_, value))) => assert_eq!(value, [7; 500]),
                Ok(None) => panic!("the scan went over the damage"),
                Err(error) => break error,
            }
        };
        assert!(matches!(failed, EngineError::Corrupt { .. }), "{failed}");
    }

    /// Whether the value of `key` is in memory, and the value.
    fn in_memory(engine: &RocksEngine, key: &[u8]) -> Option<Option<Bytes>> {
        match engine.get_in_memory(Space::Rows, key) {
            Ok(value) => Some(value),
            Err(EngineError::NotInMemory) => None,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_read_in_memory_does_not_wait_for_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        for number in 0..2000_u32 {
            put(&engine, &(2 * number).to_be_bytes(), &[7; 500]);
        }
        put(&engine, b"large", &vec![1; 1 << 20]);
        assert_eq!(in_memory(&engine, &2_u32.to_be_bytes()), Some(Some(Bytes::from_static(&[7; 500]))));
        drop(engine);
        let engine = open(dir.path());
        // The first read opens the file, with its index and its filter.
        assert!(engine.get(Space::Rows, &0_u32.to_be_bytes()).unwrap().is_some());
        assert!(in_memory(&engine, &0_u32.to_be_bytes()).is_some(), "its block is cached");
        let on_disk = (0..2000_u32).filter(|n| in_memory(&engine, &(2 * n).to_be_bytes()).is_none());
        assert!(on_disk.count() > 1900);
        let unknown = (0..2000_u32).filter(|n| match in_memory(&engine, &(2 * n + 1).to_be_bytes()) {
            Some(value) => {
                assert_eq!(value, None);
                false
            }
            None => true,
        });
        let unknown = unknown.count();
        assert!(unknown < 100, "the filter does not know {unknown} of 2000 absent keys");
        put(&engine, &2_u32.to_be_bytes(), b"new");
        assert_eq!(in_memory(&engine, &2_u32.to_be_bytes()).flatten().as_deref(), Some(&b"new"[..]));
        assert!(engine.get(Space::Rows, b"large").unwrap().is_some());
        assert_eq!(in_memory(&engine, b"large"), None, "large values are not cached");
    }

    /// The keys of a scan and the bytes of its values.
    fn walk(scan: &mut dyn Scan) -> (Vec<u32>, usize) {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while let Some((key, value)) = scan.next().unwrap() {
            keys.push(u32::from_be_bytes(key.try_into().unwrap()));
            bytes += value.len();
        }
        (keys, bytes)
    }

    #[test]
    fn a_long_scan_of_a_file_continues_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        for number in 0..6000_u32 {
            put(&engine, &number.to_be_bytes(), &[7; 500]);
        }
        drop(engine);
        let engine = open(dir.path());
        let (start, end) = (10_u32.to_be_bytes(), 5990_u32.to_be_bytes());
        let range = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
        for direction in [Direction::Ascending, Direction::Descending] {
            let ordered = |from: u32, to: u32| match direction {
                Direction::Ascending => (from..to).collect::<Vec<_>>(),
                Direction::Descending => (from..to).rev().collect(),
            };
            let mut scan = engine.snapshot().unwrap().scan(Space::Rows, range, direction);
            assert_eq!(walk(&mut *scan), (ordered(10, 5990), 5980 * 500));
            let (start, end) = (20_u32.to_be_bytes(), 4000_u32.to_be_bytes());
            scan.restart((Bound::Included(&start), Bound::Excluded(&end)));
            assert_eq!(walk(&mut *scan), (ordered(20, 4000), 3980 * 500));
        }
    }

    #[test]
    fn a_view_for_callers_that_must_not_block_does_not_wait_for_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        (0..2000_u32).for_each(|number| put(&engine, &number.to_be_bytes(), &[7; 500]));
        drop(engine);
        let engine = open(dir.path());
        let scan = |view: Arc<dyn Snapshot>| {
            let mut scan = view.scan(Space::Rows, (Bound::Unbounded, Bound::Unbounded), Direction::Ascending);
            let mut rows = 0;
            loop {
                match scan.next() {
                    Ok(Some(_)) => rows += 1,
                    Ok(None) => return Ok(rows),
                    Err(EngineError::NotInMemory) => return Err(rows),
                    Err(other) => panic!("{other}"),
                }
            }
        };
        let view = || engine.try_snapshot().unwrap().expect("nothing is buffered");
        assert_eq!(scan(view()), Err(0));
        assert!(matches!(view().get(Space::Rows, &5_u32.to_be_bytes()), Err(EngineError::NotInMemory)));
        assert_eq!(scan(engine.snapshot().unwrap()), Ok(2000));
        assert_eq!(scan(view()), Ok(2000), "the blocks are cached now");
    }

    #[test]
    fn stats_name_files_and_memory() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        put(&engine, b"large", &vec![1; 1 << 20]);
        let before = engine.stats();
        assert!(before.memory.memtables > 1 << 20);
        assert_eq!(before.disk_bytes(), 0);
        put(&engine, b"small", b"1");
        engine.flush().unwrap();
        let after = engine.stats();
        assert!(after.levels.iter().map(|level| level.files).sum::<u64>() >= 2);
        assert!(after.large_value_bytes > 1 << 20);
        assert!(after.memory.memtables < 1 << 20);
        assert_eq!(after.keys_estimate, 3);
        let _held = engine.snapshot().unwrap();
        assert_eq!(engine.stats().snapshots, 1);
    }
}
