//! Tests of restarts: all rows are there again.

use std::collections::BTreeMap;

use datum::{Object, PrimaryKey};
use engine::Engine;
use log::Durability;
use rekindle_shard::Decision;

use crate::bed::{Bed, GROUP, content, increment, key, put, read, row};

#[test]
fn nothing_flushed_is_replayed_whole() {
    let bed = Bed::running();
    let shard = bed.shard();
    for _ in 0..10 {
        increment(&shard, "k").1.wait().unwrap();
    }
    drop(shard);
    let bed = bed.crash();
    assert_eq!(bed.engine.stats().keys_estimate, 1, "only the format's version is left");
    let shard = bed.shard();
    assert_eq!(read(&shard, "k"), Some(10.0));
    assert_eq!(content(&shard).len(), 1);
}

#[test]
fn the_position_and_the_rows_are_flushed_together() {
    let bed = Bed::running();
    let shard = bed.shard();
    put(&shard, "a", 1.0).1.wait().unwrap();
    let at = put(&shard, "b", 2.0).1.wait().unwrap();
    bed.engine.flush().unwrap();
    put(&shard, "c", 3.0).1.wait().unwrap();
    assert!(shard.applied() > at);
    let crashed = bed.engine.after_crash();
    let applied = storage::Applied::read(&crashed, GROUP).unwrap().unwrap();
    assert_eq!(applied.lsn, at);
    assert_eq!(storage::Count::read(&crashed, crate::bed::TABLE, GROUP).unwrap().0, 2);
}

#[test]
fn an_entry_that_cannot_be_read_stops_the_replay() {
    let bed = Bed::running();
    let shard = bed.shard();
    put(&shard, "a", 1.0).1.wait().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let done = Box::new(move |outcome| sender.send(outcome).unwrap());
    log::Log::propose(&*bed.log, GROUP, bytes::Bytes::from_static(b"not an entry"), Durability::Hard, done);
    let outcome: Result<_, log::ProposeError> = receiver.recv().unwrap();
    assert!(outcome.is_err_and(|error| !error.is_definite()));
    assert_eq!(read(&shard, "a"), Some(1.0));
}

struct Random(u64);

impl Random {
    fn draw(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// One write of one to four rows, in the shard and in the model.
fn write_some(shard: &rekindle_shard::Shard, model: &mut BTreeMap<PrimaryKey, f64>, random: &mut Random) {
    let keys: Vec<_> = (0..=random.draw(4)).map(|_| key(format!("k{}", random.draw(20)))).collect();
    let plan: Vec<_> = keys.iter().map(|_| (random.draw(4), random.draw(1000) as f64)).collect();
    let decide = |index: usize, _: Option<&Object>| match plan[index] {
        (0, _) => (Decision::Delete, ()),
        (1, _) => (Decision::Unchanged, ()),
        (_, n) => (Decision::Put(row(n)), ()),
    };
    let durability = if random.draw(2) == 0 { Durability::Hard } else { Durability::Soft };
    let (_, ticket) = shard.write_many(&keys, durability, decide).unwrap();
    if random.draw(3) == 0 {
        ticket.wait().unwrap();
    }
    for (key, (what, n)) in keys.into_iter().zip(plan) {
        match what {
            0 => drop(model.remove(&key)),
            1 => {}
            _ => drop(model.insert(key, n)),
        }
    }
}

#[test]
fn any_history_is_replayed_to_the_same_rows() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut bed = Bed::running();
    let mut model = BTreeMap::new();
    for _life in 0..12 {
        let shard = bed.shard();
        assert_eq!(content(&shard), model, "seed {seed}");
        for _ in 0..random.draw(150) {
            write_some(&shard, &mut model, &mut random);
            if random.draw(25) == 0 {
                bed.engine.flush().unwrap();
            }
        }
        shard.sync().wait().unwrap();
        assert_eq!(content(&shard), model, "seed {seed}");
        drop(shard);
        bed = bed.crash();
    }
}
