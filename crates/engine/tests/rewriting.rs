//! Rows that are rewritten while RocksDB merges their files.

#![allow(clippy::unwrap_used)]
#![cfg(feature = "rocks")]

use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rekindle_engine::rocks::{EngineOptions, RocksEngine};
use rekindle_engine::{Batch, Engine, Occasion, RowRewriter, Space};

fn open(dir: &Path) -> RocksEngine {
    let small =
        EngineOptions { cache_bytes: 8 << 20, write_buffer_bytes: 16 << 20, ..EngineOptions::default() };
    RocksEngine::open(dir, &small).unwrap()
}

fn put(engine: &RocksEngine, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(Space::Rows, key, Bytes::copy_from_slice(value));
    engine.write(batch).unwrap();
}

/// Rewrites values that begin with `long` to `short`.
struct Shortening;

impl RowRewriter for Shortening {
    fn is_active(&self) -> bool {
        true
    }

    fn rewrite(&self, key: &[u8], value: &[u8], _: Occasion) -> Option<Bytes> {
        assert!(key.starts_with(b"row"), "only rows are asked for");
        value.starts_with(b"long").then(|| [&b"short"[..], &value[4..8]].concat().into())
    }
}

#[test]
fn rows_are_rewritten_in_place_when_files_are_compacted() {
    let whole = (Bound::Unbounded, Bound::Unbounded);
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let long = |round: u8| [&b"long"[..], &[round; 1000]].concat();
    let huge = [&b"long"[..], &[7; 400_000]].concat();
    for number in 0..500 {
        put(&engine, format!("row{number:04}").as_bytes(), &long(b'a'));
    }
    put(&engine, b"row-huge", &huge);
    engine.flush().unwrap();
    engine.compact(Space::Rows, whole).unwrap();
    assert_eq!(engine.get(Space::Rows, b"row0007").unwrap().unwrap(), long(b'a'), "no rewriter is set");

    engine.set_rewriter(Some(Arc::new(Shortening)));
    let snapshot = engine.snapshot().unwrap();
    // One row is written again, and one is deleted, after the snapshot and before the compaction.
    put(&engine, b"row0008", b"other");
    let mut batch = Batch::new();
    batch.delete(Space::Rows, b"row0009");
    engine.write(batch).unwrap();
    engine.compact(Space::Rows, whole).unwrap();
    let get = |key: &[u8]| engine.get(Space::Rows, key).unwrap();
    assert_eq!(get(b"row0007").unwrap(), "shortaaaa");
    assert_eq!(get(b"row-huge").unwrap(), "short\u{7}\u{7}\u{7}\u{7}");
    assert_eq!((get(b"row0008").unwrap(), get(b"row0009")), (Bytes::from_static(b"other"), None));
    assert_eq!(snapshot.get(Space::Rows, b"row0007").unwrap().unwrap(), "shortaaaa");
    assert!(snapshot.get(Space::Rows, b"row0009").unwrap().is_some());
    put(&engine, b"row0007", &long(b'b'));
    assert_eq!(get(b"row0007").unwrap(), long(b'b'));
    drop(snapshot);

    engine.flush().unwrap();
    engine.cancel_compactions();
    engine.compact(Space::Rows, whole).unwrap();
    assert_eq!(get(b"row0007").unwrap(), long(b'b'), "compactions have been cancelled");
    engine.set_rewriter(None);
    drop(engine);
    assert_eq!(open(dir.path()).get(Space::Rows, b"row0010").unwrap().unwrap(), "shortaaaa");
}

/// A rewriter whose first merge waits for a word.
struct Waiting {
    begun: Mutex<Option<mpsc::Sender<()>>>,
    word: Mutex<mpsc::Receiver<()>>,
}

impl RowRewriter for Waiting {
    fn is_active(&self) -> bool {
        if let Some(begun) = self.begun.lock().take() {
            begun.send(()).unwrap();
            self.word.lock().recv_timeout(Duration::from_secs(60)).unwrap();
        }
        true
    }

    fn rewrite(&self, key: &[u8], value: &[u8], occasion: Occasion) -> Option<Bytes> {
        Shortening.rewrite(key, value, occasion)
    }
}

#[test]
fn rows_that_another_merge_moves_meanwhile_are_rewritten_too() {
    let whole = (Bound::Unbounded, Bound::Unbounded);
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let key = |number: u32| format!("row{number:04}").into_bytes();
    for number in 0..500 {
        put(&engine, &key(number), &[&b"long"[..], &[b'a'; 1000]].concat());
    }
    engine.compact(Space::Rows, whole).unwrap();
    let ((begun, has_begun), (word, waits)) = (mpsc::channel(), mpsc::channel());
    let waiting = Waiting { begun: Mutex::new(Some(begun)), word: Mutex::new(waits) };
    engine.set_rewriter(Some(Arc::new(waiting)));
    // RocksDB soon merges a file that deletes many keys.
    let mut batch = Batch::new();
    batch.delete(Space::Rows, &key(0));
    batch.delete(Space::Rows, &key(499));
    engine.write(batch).unwrap();
    engine.flush().unwrap();
    has_begun.recv_timeout(Duration::from_secs(60)).expect("the file is merged");
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| engine.compact(Space::Rows, whole));
        word.send(()).unwrap();
        compaction.join().unwrap().unwrap();
    });
    for number in 1..499 {
        assert_eq!(engine.get(Space::Rows, &key(number)).unwrap().unwrap(), "shortaaaa", "row {number}");
    }
}
