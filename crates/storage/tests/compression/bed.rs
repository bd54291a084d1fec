//! A table with compressed rows over the memory engine, and random documents.

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::sync::Arc;

use bytes::Bytes;
use datum::{Datum, KeyRange, Object, PrimaryKey, json, row};
use engine::memory::MemoryEngine;
use engine::{Batch, BufferedEngine, Engine, Space, conformance};
use log::GroupId;
use rekindle_storage::{
    Changes, CompressedEngine, CompressionOptions, Direction, Reach, RowChange, RowTexts, ShardRange, Store,
    Table, TableId,
};

pub const SMALL: CompressionOptions =
    CompressionOptions { memory_bytes: 4 << 20, first_training_bytes: 16 << 10 };

/// The head of the bytes of a compressed row (docs/formats/row.md).
pub const COMPRESSED: [u8; 2] = [1, 1];
/// The kind of the record of a dictionary (docs/formats/engine-keys.md).
pub const DICTIONARY_RECORD: u8 = 4;

/// Random numbers from a seed: splitmix64.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) as usize % bound
    }

    pub fn words(&mut self, count: usize, theme: &str) -> String {
        const WORDS: [&str; 16] = [
            "the",
            "of",
            "and",
            "storage",
            "history",
            "which",
            "system",
            "\\\"quoted\\\"",
            "city",
            "river",
            "music",
            "was",
            "1984",
            "Größe",
            "日本",
            "population",
        ];
        let word = |draw: &mut Draw| match draw.below(6) {
            0 => theme.to_owned(),
            1 => format!("w{}", draw.below(500)),
            _ => WORDS[draw.below(WORDS.len())].to_owned(),
        };
        (0..count).map(|_| word(self)).collect::<Vec<_>>().join(" ")
    }

    /// A document of one of several shapes: mostly articles, some nested, some tiny, some long, some random.
    pub fn document(&mut self, id: usize, theme: &str) -> String {
        let text = match self.below(20) {
            0 => return format!(r#"{{"id":{id}}}"#),
            1 => {
                let noise: Vec<String> = (0..200).map(|_| self.below(1 << 30).to_string()).collect();
                return format!(r#"{{"id":{id},"noise":[{}]}}"#, noise.join(","));
            }
            2 => self.words(12_000, theme),
            _ => {
                let count = 5 + self.below(300);
                self.words(count, theme)
            }
        };
        let (parent, title) = (self.below(1000), self.words(3, theme));
        format!(
            r#"{{"comment":"","id":{id},"inner":{{"a":[1,2,{{"b":null}}],"parent":{parent}}},"k\"ey":true,"text":"{text}","title":"{title}"}}"#
        )
    }
}

pub fn seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {now}");
    now
}

pub fn object(text: &str) -> Object {
    match json::parse(text.as_bytes()).unwrap() {
        Datum::Object(object) => object,
        other => panic!("not an object: {other:?}"),
    }
}

pub fn key(id: usize) -> PrimaryKey {
    PrimaryKey::encode(&Datum::Number(id as f64)).unwrap()
}

pub fn table_id(number: u128) -> TableId {
    TableId::from_uuid(uuid::Uuid::from_u128(number))
}

pub fn whole() -> ShardRange {
    ShardRange { range: KeyRange::all(), group: GroupId(1) }
}

/// A table in a memory engine that survives the store, as files do.
pub struct Bed {
    pub memory: MemoryEngine,
    pub options: CompressionOptions,
    pub compressed: Arc<CompressedEngine>,
    pub store: Arc<Store>,
    pub table: Table,
    pub rows: BTreeMap<PrimaryKey, Bytes>,
}

impl Bed {
    pub fn new(options: CompressionOptions) -> Bed {
        Bed::over(MemoryEngine::new(), options)
    }

    pub fn over(memory: MemoryEngine, options: CompressionOptions) -> Bed {
        let compressed = Arc::new(CompressedEngine::new(Arc::new(memory.clone()), options));
        let buffered = BufferedEngine::new(compressed.clone(), 8 << 10);
        // Without a row cache, so that each read reads the engine.
        let store = Store::open(Arc::new(buffered), 0).unwrap();
        let table = Table::new(Arc::clone(&store), table_id(7));
        Bed { memory, options, compressed, store, table, rows: BTreeMap::new() }
    }

    /// Closes the store and opens another over the same engine.
    pub fn restarted(self) -> Bed {
        let Bed { memory, options, compressed, store, table, rows } = self;
        drop((compressed, store, table));
        Bed { rows, ..Bed::over(memory, options) }
    }

    pub fn put(&mut self, id: usize, document: &Object) {
        let (key, row) = (key(id), Bytes::from(row::encode(document)));
        let existed = self.rows.insert(key.clone(), row.clone()).is_some();
        let mut changes = Changes::default();
        changes.add(self.table.id(), &RowChange { key, row: Some(row), existed });
        self.store.write(changes).unwrap();
    }

    pub fn delete(&mut self, id: usize) {
        let key = key(id);
        let existed = self.rows.remove(&key).is_some();
        let mut changes = Changes::default();
        changes.add(self.table.id(), &RowChange { key, row: None, existed });
        self.store.write(changes).unwrap();
    }

    pub fn fill(&mut self, draw: &mut Draw, ids: std::ops::Range<usize>, theme: &str) {
        for id in ids {
            let document = object(&draw.document(id, theme));
            self.put(id, &document);
        }
        self.store.engine().flush().unwrap();
    }

    /// Compares each way of reading with the rows that were written.
    pub fn check(&self) {
        let snapshot = self.table.snapshot(whole()).unwrap();
        for (key, row) in &self.rows {
            let found = self.table.get(key).unwrap().expect("a row");
            assert_eq!(row::stored(&found), Some(row), "{key}");
            assert_eq!(snapshot.get_bytes(key).unwrap().as_ref(), Some(row), "{key}");
        }
        let keys: Vec<PrimaryKey> = self.rows.keys().cloned().collect();
        let mut texts = RowTexts::default();
        self.table.get_texts(&keys, Reach::Disk, &mut texts, usize::MAX).unwrap();
        assert_eq!(texts.len(), self.rows.len());
        for direction in [Direction::Ascending, Direction::Descending] {
            let mut batches = snapshot.scan(&KeyRange::all(), direction);
            let mut views = snapshot.scan(&KeyRange::all(), direction);
            let mut found = Vec::new();
            while let Some(batch) = batches.next_batch().unwrap() {
                for index in 0..batch.len() {
                    let (key, row) = batch.row(index).unwrap();
                    let view = views.next_view().unwrap().expect("as many rows");
                    assert_eq!(Some(view.json()), row::stored(&row).map(row::json));
                    found.push((key, row::stored(&row).unwrap().clone()));
                }
            }
            if direction == Direction::Descending {
                found.reverse();
            }
            assert!(views.next_view().unwrap().is_none());
            assert_eq!(found, self.rows.clone().into_iter().collect::<Vec<_>>());
        }
    }

    /// The pairs of a space of the engine below the compression.
    pub fn below(&self, space: Space) -> Vec<(Vec<u8>, Vec<u8>)> {
        let view = self.memory.snapshot().unwrap();
        conformance::collect(&view, space, (Unbounded, Unbounded), Direction::Ascending)
    }

    pub fn stored_rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.below(Space::Rows)
    }

    /// Settles rows until there is nothing left to do.
    pub fn settle(&self) {
        while self.compressed.settle().unwrap() {}
    }

    /// Bytes of all rows, as they are stored.
    pub fn stored_bytes(&self) -> usize {
        self.stored_rows().iter().map(|(_, row)| row.len()).sum()
    }

    pub fn dictionaries(&self) -> Vec<Vec<u8>> {
        let keys = self.below(Space::Meta).into_iter().map(|(key, _)| key);
        keys.filter(|key| key[0] == DICTIONARY_RECORD).collect()
    }

    pub fn change_below(&self, change: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        change(&mut batch);
        self.memory.write(batch).unwrap();
    }
}

pub fn total(rows: impl Iterator<Item = usize>) -> f64 {
    rows.sum::<usize>() as f64
}
