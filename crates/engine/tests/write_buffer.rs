//! Tests of the write buffer beyond the contract of engines.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rekindle_engine::memory::MemoryEngine;
use rekindle_engine::{
    Batch, BufferedEngine, Change, Engine, EngineError, EngineStats, PreFlushHook, Snapshot, Space,
};

/// An engine in memory that records its batches and can be set to fail.
#[derive(Default)]
struct Spy {
    memory: MemoryEngine,
    // For each batch, the keys of the rows that it changes.
    batches: Mutex<Vec<Vec<Vec<u8>>>>,
    fails: AtomicBool,
    // The next write sends a message when it has begun, and then waits for one.
    gate: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
}

impl Engine for Spy {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.memory.get(space, key)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        self.memory.snapshot()
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        if let Some((begun, resume)) = self.gate.lock().take() {
            begun.send(()).unwrap();
            resume.recv_timeout(Duration::from_secs(20)).expect("a message while the write waits");
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(EngineError::Io { detail: "set to fail".to_owned() });
        }
        let keys = batch.changes().filter_map(|change| match change {
            Change::Put { space: Space::Rows, key, .. } => Some(key.to_vec()),
            _ => None,
        });
        self.batches.lock().push(keys.collect());
        self.memory.write(batch)
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.memory.flush()
    }

    fn set_pre_flush_hook(&self, hook: PreFlushHook) {
        self.memory.set_pre_flush_hook(hook);
    }

    fn stats(&self) -> EngineStats {
        self.memory.stats()
    }
}

/// A batch that sets a row and the key `last` to `number`.
fn numbered(key: &[u8], number: u64) -> Batch {
    let mut batch = Batch::new();
    let value = Bytes::copy_from_slice(&number.to_be_bytes());
    batch.put(Space::Rows, key, value.clone());
    batch.put(Space::Meta, b"last", value);
    batch
}

fn number(found: Option<Bytes>) -> Option<u64> {
    found.map(|bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()))
}

fn row(engine: &dyn Engine, key: &[u8]) -> Option<u64> {
    number(engine.get(Space::Rows, key).unwrap())
}

#[test]
fn a_row_written_again_and_again_arrives_once_and_rows_come_in_order() {
    let spy = Arc::new(Spy::default());
    let engine = BufferedEngine::new(spy.clone(), 1 << 20);
    for number in 0..300 {
        engine.write(numbered([b"c", b"a", b"b"][number as usize % 3], number)).unwrap();
    }
    assert_eq!(*spy.batches.lock(), Vec::<Vec<Vec<u8>>>::new());
    assert_eq!((row(&engine, b"a"), row(&engine, b"c"), row(&engine, b"d")), (Some(298), Some(297), None));
    assert_eq!(row(&*spy, b"a"), None);
    drop(engine.snapshot().unwrap());
    assert_eq!(*spy.batches.lock(), [[b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]]);
    assert_eq!((row(&engine, b"a"), row(&*spy, b"a")), (Some(298), Some(298)));
}

#[test]
fn buffered_batches_are_written_before_a_large_batch_or_a_deleted_range() {
    let spy = Arc::new(Spy::default());
    let engine = BufferedEngine::with_writer_thread(spy.clone(), 1 << 16).unwrap();
    engine.write(numbered(b"a", 1)).unwrap();
    let mut large = numbered(b"a", 2);
    large.put(Space::Rows, b"b", Bytes::from(vec![0; 1 << 16]));
    engine.write(large).unwrap();
    assert_eq!((row(&engine, b"a"), row(&*spy, b"a")), (Some(2), Some(2)));
    engine.write(numbered(b"a", 3)).unwrap();
    let mut range = Batch::new();
    range.delete_range(Space::Rows, b"a", b"b");
    engine.write(range).unwrap();
    assert_eq!((row(&engine, b"a"), row(&*spy, b"a")), (None, None));
    engine.write(numbered(b"a", 4)).unwrap();
    assert_eq!((row(&engine, b"a"), row(&*spy, b"a")), (Some(4), None));
}

#[test]
fn a_crash_leaves_what_was_written_before_the_last_flush() {
    for bytes_max in [0, 1000, 1 << 20] {
        let memory = MemoryEngine::new();
        let engine = BufferedEngine::with_writer_thread(Arc::new(memory.clone()), bytes_max).unwrap();
        for number in 1..=50 {
            engine.write(numbered(&[number as u8], number)).unwrap();
            if number == 30 {
                engine.flush().unwrap();
            }
        }
        let survivor = memory.after_crash();
        assert_eq!(number(survivor.get(Space::Meta, b"last").unwrap()), Some(30));
        for number in 1..=50 {
            assert_eq!(row(&survivor, &[number as u8]), (number <= 30).then_some(number));
        }
    }
}

/// Room for about twenty rows of the next two tests, which write more.
const SOME_ROWS_BYTES: usize = 2000;
const KEYS: u64 = 64;
const WRITES: u64 = 20_000;

#[track_caller]
fn check_was_buffered(spy: &Spy) {
    let batches = spy.batches.lock().len() as u64;
    assert!((100..WRITES / 2).contains(&batches), "{WRITES} writes arrived as {batches}");
}

/// The engine may flush by itself at any moment, so it must always hold whole batches, and all up to the newest of
/// them.
#[test]
fn the_engine_never_has_half_a_batch_nor_one_before_another() {
    let spy = Arc::new(Spy::default());
    let engine = BufferedEngine::with_writer_thread(spy.clone(), SOME_ROWS_BYTES).unwrap();
    let mut looked = 0;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1..=WRITES {
                engine.write(numbered(&[(number % KEYS) as u8], number)).unwrap();
            }
        });
        let mut is_over = false;
        while !is_over {
            // Checked once more after all is written.
            is_over = writer.is_finished();
            let view = spy.snapshot().unwrap();
            let Some(last) = number(view.get(Space::Meta, b"last").unwrap()) else { continue };
            looked += 1;
            for newest in last.saturating_sub(KEYS - 1).max(1)..=last {
                let found = number(view.get(Space::Rows, &[(newest % KEYS) as u8]).unwrap());
                assert_eq!(found, Some(newest), "of {last} batches");
            }
        }
    });
    assert!(looked > 0);
    check_was_buffered(&spy);
}

#[test]
fn readers_never_go_back_while_rows_are_flushed() {
    let spy = Arc::new(Spy::default());
    let engine = BufferedEngine::with_writer_thread(spy.clone(), SOME_ROWS_BYTES).unwrap();
    let written = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..3 {
            let (engine, written) = (&engine, &written);
            scope.spawn(move || {
                let (mut seen, mut is_over) = (0, false);
                while !is_over {
                    is_over = written.load(Ordering::Acquire);
                    let found = match reader {
                        0 => engine.get(Space::Meta, b"last").unwrap(),
                        1 => engine.get_many(Space::Meta, &[b"last"]).unwrap()[0].clone(),
                        _ => engine.snapshot().unwrap().get(Space::Meta, b"last").unwrap(),
                    };
                    let found = number(found).unwrap_or(0);
                    assert!(found >= seen, "{found} after {seen}");
                    seen = found;
                }
                assert_eq!(seen, WRITES);
            });
        }
        for number in 1..=WRITES {
            let key = [(number % KEYS) as u8];
            engine.write(numbered(&key, number)).unwrap();
            assert_eq!(row(&engine, &key), Some(number));
            // An earlier row may be in either buffer or in the engine.
            let before = number.saturating_sub(KEYS / 2).max(1);
            assert_eq!(row(&engine, &[(before % KEYS) as u8]), Some(before));
        }
        written.store(true, Ordering::Release);
    });
    let batches = spy.batches.lock().len() as u64;
    assert!(batches > 100, "{batches} flushes");
}

#[test]
fn readers_do_not_wait_for_a_large_batch_and_writers_do() {
    let spy = Arc::new(Spy::default());
    let engine = BufferedEngine::with_writer_thread(spy.clone(), 1 << 16).unwrap();
    engine.write(numbered(b"a", 1)).unwrap();
    engine.flush().unwrap();
    let (begun_sender, begun) = mpsc::channel();
    let (resume, resume_receiver) = mpsc::channel();
    *spy.gate.lock() = Some((begun_sender, resume_receiver));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut large = numbered(b"a", 2);
            large.put(Space::Rows, b"b", Bytes::from(vec![0; 1 << 16]));
            engine.write(large).unwrap();
        });
        begun.recv().unwrap();
        assert_eq!(row(&engine, b"a"), Some(1));
        assert_eq!(number(engine.snapshot().unwrap().get(Space::Rows, b"a").unwrap()), Some(1));
        engine.stats();
        scope.spawn(|| engine.write(numbered(b"a", 3)).unwrap());
        resume.send(()).unwrap();
    });
    assert_eq!(row(&engine, b"a"), Some(3));
    assert_eq!(row(&*spy, b"a"), Some(2));
}

#[test]
fn try_snapshot_succeeds_only_while_little_is_buffered() {
    let engine = BufferedEngine::with_writer_thread(Arc::new(MemoryEngine::new()), 1 << 20).unwrap();
    engine.write(numbered(b"a", 1)).unwrap();
    let view = engine.try_snapshot().unwrap().expect("little was buffered");
    assert_eq!(number(view.get(Space::Rows, b"a").unwrap()), Some(1));
    let mut batch = Batch::new();
    batch.put(Space::Rows, b"b", Bytes::from(vec![0; 20_000]));
    engine.write(batch).unwrap();
    assert!(engine.try_snapshot().unwrap().is_none());
    drop(engine.snapshot().unwrap());
    assert!(engine.try_snapshot().unwrap().is_some());
}

#[test]
fn after_the_engine_fails_buffered_rows_stay_visible_and_new_writes_fail() {
    for has_writer_thread in [false, true] {
        let spy = Arc::new(Spy::default());
        let engine = match has_writer_thread {
            true => BufferedEngine::with_writer_thread(spy.clone(), 1 << 20).unwrap(),
            false => BufferedEngine::new(spy.clone(), 1 << 20),
        };
        engine.write(numbered(b"a", 1)).unwrap();
        spy.fails.store(true, Ordering::SeqCst);
        assert!(engine.flush().is_err() && engine.snapshot().is_err());
        assert_eq!((row(&engine, b"a"), row(&*spy, b"a")), (Some(1), None));
        // The disk has room again.
        spy.fails.store(false, Ordering::SeqCst);
        assert!(engine.write(numbered(b"a", 2)).is_err());
        assert_eq!(number(engine.snapshot().unwrap().get(Space::Rows, b"a").unwrap()), Some(1));
        assert_eq!((row(&engine, b"a"), row(&*spy, b"a")), (Some(1), Some(1)));
        assert!(engine.write(numbered(b"a", 3)).is_err() && engine.flush().is_err());
    }
}

#[test]
fn after_a_large_batch_that_failed_nothing_is_written() {
    let spy = Arc::new(Spy::default());
    let engine = BufferedEngine::with_writer_thread(spy.clone(), 1 << 16).unwrap();
    engine.write(numbered(b"a", 1)).unwrap();
    drop(engine.snapshot().unwrap());
    spy.fails.store(true, Ordering::SeqCst);
    let mut range = Batch::new();
    range.delete_range(Space::Rows, b"a", b"b");
    assert!(engine.write(range).is_err());
    spy.fails.store(false, Ordering::SeqCst);
    assert!(engine.write(numbered(b"a", 2)).is_err() && engine.flush().is_err());
    assert_eq!(number(engine.snapshot().unwrap().get(Space::Rows, b"a").unwrap()), Some(1));
}
