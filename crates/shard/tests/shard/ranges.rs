//! Tests of tables with several shards, which must behave like one.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use datum::{KeyBound, KeyRange, PrimaryKey};
use log::{GroupId, Log};
use rekindle_shard::{Decision, Direction, ReadError, Shard, WriteError, WriteRefusal};
use storage::RowTexts;

use crate::bed::{Bed, TABLE, content, increment, key, number, put, read};

/// The range of all keys, split before each of `names`.
pub fn cut_before(names: &[&str]) -> Vec<KeyRange> {
    let mut start = KeyBound::Unbounded;
    let mut ranges = Vec::new();
    for name in names {
        ranges.push(KeyRange { start, end: KeyBound::Excluded(key(*name)) });
        start = KeyBound::Included(key(*name));
    }
    ranges.push(KeyRange { start, end: KeyBound::Unbounded });
    ranges
}

fn open_all(bed: &Bed, ranges: &[KeyRange], first_group: u64) -> Vec<Arc<Shard>> {
    let groups = (first_group..).map(GroupId);
    ranges.iter().zip(groups).map(|(range, group)| bed.shard_of(group, range.clone())).collect()
}

fn shard_for<'a>(shards: &'a [Arc<Shard>], key: &PrimaryKey) -> &'a Shard {
    shards.iter().find(|shard| shard.range().contains(key)).unwrap()
}

pub fn content_of_all(shards: &[Arc<Shard>]) -> BTreeMap<PrimaryKey, f64> {
    shards.iter().flat_map(|shard| content(shard)).collect()
}

#[test]
fn many_shards_hold_what_one_would() {
    let whole_bed = Bed::running();
    let whole = whole_bed.shard();
    let bed = Bed::running();
    let shards = open_all(&bed, &cut_before(&["k10", "k2", "k55"]), 1);
    for n in 0..400_u32 {
        let name = format!("k{}", n * 37 % 90);
        drop(increment(&whole, &name));
        drop(increment(shard_for(&shards, &key(name.as_str())), &name));
    }
    whole.sync().wait().unwrap();
    for shard in &shards {
        shard.sync().wait().unwrap();
        assert!(shard.count() > 0);
    }
    assert_eq!(content_of_all(&shards), content(&whole));
    let bed = bed.crash();
    let shards = open_all(&bed, &cut_before(&["k10", "k2", "k55"]), 1);
    assert_eq!(content_of_all(&shards), content(&whole));
}

#[test]
fn a_shard_answers_only_for_its_range() {
    let bed = Bed::running();
    let shards = open_all(&bed, &cut_before(&["m"]), 1);
    put(&shards[0], "a", 1.0).1.wait().unwrap();
    put(&shards[1], "z", 2.0).1.wait().unwrap();
    assert!(matches!(shards[0].get(&key("z")), Err(ReadError::WrongShard { .. })));
    let write = shards[1].write(&key("a"), log::Durability::Soft, |_| (Decision::Delete, ()));
    assert!(matches!(write.err(), Some(WriteError::Definite { cause: WriteRefusal::WrongShard { .. } })));
    let snapshot = shards[0].snapshot().unwrap();
    assert!(matches!(snapshot.get(&key("z")), Err(ReadError::WrongShard { .. })));
    assert_eq!(snapshot.count().unwrap(), 1);
    assert_eq!(snapshot.count_range(&KeyRange::all()).unwrap(), 1);
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Descending);
    assert_eq!(number(&scan.next().unwrap().unwrap().1), 1.0);
    assert!(scan.next().unwrap().is_none());
}

#[test]
fn new_shards_take_over_the_rows_of_old_ones() {
    let bed = Bed::running();
    let old = bed.shard_of(GroupId(1), KeyRange::all());
    for n in 0..100_u32 {
        drop(put(&old, &format!("k{n:02}"), f64::from(n)));
    }
    old.retire();
    old.sync().wait().unwrap();
    let before = content(&old);
    engine::Engine::flush(&bed.engine).unwrap();
    let ranges = cut_before(&["k25", "k50"]);
    let shards = open_all(&bed, &ranges, 2);
    bed.log.close_group(GroupId(1)).unwrap();
    bed.replicas.forget(GroupId(1));
    assert_eq!(content_of_all(&shards), before);
    assert_eq!(shards.iter().map(|shard| shard.count()).collect::<Vec<_>>(), [25, 25, 50]);
    // A change that keeps the count, then a crash: the count must have been written with it.
    put(&shards[1], "k30", -1.0).1.wait().unwrap();
    engine::Engine::flush(&bed.engine).unwrap();
    drop((old, shards));
    let bed = bed.crash();
    let shards = open_all(&bed, &ranges, 2);
    assert_eq!(content_of_all(&shards).len(), 100);
    assert_eq!(read(&shards[1], "k30"), Some(-1.0));
}

#[test]
fn the_parts_of_a_range_cover_it() {
    let bed = Bed::running();
    let shard = bed.shard();
    for n in 0..2000_u32 {
        drop(put(&shard, &format!("k{n:04}"), f64::from(n)));
    }
    shard.sync().wait().unwrap();
    let snapshot = shard.snapshot().unwrap();
    let range = KeyRange { start: KeyBound::Excluded(key("k0100")), end: KeyBound::Included(key("k1899")) };
    for count in [1, 2, 7, 16] {
        let parts = snapshot.split(&range, count).unwrap();
        assert_eq!(parts.len(), count);
        let mut rows = Vec::new();
        for part in &parts {
            let mut scan = snapshot.scan(part, Direction::Ascending);
            let before = rows.len();
            while let Some((_, row)) = scan.next().unwrap() {
                rows.push(number(&row) as u32);
            }
            let fair = 1799 / count;
            assert!((rows.len() - before).abs_diff(fair) <= fair / 4 + 1);
        }
        assert!(rows.into_iter().eq(101..=1899));
    }
    let empty = KeyRange { start: KeyBound::Excluded(key("a")), end: KeyBound::Excluded(key("a")) };
    assert!(snapshot.split(&empty, 4).unwrap().is_empty());
}

#[test]
fn a_dropped_table_leaves_nothing() {
    let bed = Bed::running();
    let shard = bed.shard();
    put(&shard, "a", 1.0).1.wait().unwrap();
    let view = |bed: &Bed| engine::Engine::snapshot(&bed.engine).unwrap();
    assert_eq!(storage::tables_present(&view(&bed)).unwrap(), [TABLE]);
    bed.log.close_group(shard.group()).unwrap();
    bed.replicas.forget(shard.group());
    let mut batch = engine::Batch::new();
    storage::drop_table(&mut batch, TABLE);
    storage::forget_group(&mut batch, TABLE, shard.group());
    engine::Engine::write(&bed.engine, batch).unwrap();
    assert!(storage::tables_present(&view(&bed)).unwrap().is_empty());
    assert_eq!(engine::Engine::stats(&bed.engine).keys_estimate, 1, "only the format's version");
    let (sender, receiver) = std::sync::mpsc::channel();
    bed.log.propose(
        shard.group(),
        Bytes::new(),
        log::Durability::Soft,
        Box::new(move |outcome| sender.send(outcome).unwrap()),
    );
    assert!(receiver.recv().unwrap().is_err_and(|error| error.is_definite()));
}

#[test]
fn rows_being_replaced_are_a_wrong_shard_error() {
    let bed = Bed::running();
    let shard = bed.shard();
    put(&shard, "a", 1.0).1.wait().unwrap();
    bed.replicas.mark_recovering(shard.group());
    assert!(shard.is_recovering());
    assert!(matches!(shard.get(&key("a")), Err(ReadError::WrongShard { .. })));
    assert!(matches!(
        shard.get_texts(&[key("b"), key("a")], storage::Reach::Disk, &mut RowTexts::default(), usize::MAX),
        Err(ReadError::WrongShard { .. })
    ));
}
