//! Tests of one shard with many writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datum::Object;
use log::Durability;
use rekindle_shard::{Decision, Shard, WriteError, WriteRefusal};

use crate::bed::{Bed, content, delete, increment, key, number, put, read, row};

#[test]
fn a_row_is_written_read_and_deleted() {
    let bed = Bed::running();
    let shard = bed.shard();
    assert_eq!(read(&shard, "a"), None);
    let (old, ticket) = put(&shard, "a", 1.0);
    assert_eq!(old, None);
    let first = ticket.wait().unwrap();
    assert_eq!(read(&shard, "a"), Some(1.0));
    let (old, ticket) = put(&shard, "a", 2.0);
    assert_eq!(old, Some(1.0));
    assert!(ticket.wait().unwrap() > first);
    assert_eq!(shard.count(), 1);
    delete(&shard, "a").wait().unwrap();
    assert_eq!(read(&shard, "a"), None);
    assert_eq!(shard.count(), 0);
    assert!(content(&shard).is_empty());
}

#[test]
fn eight_writers_of_one_row_lose_nothing() {
    let bed = Bed::running();
    let shard = bed.shard();
    let (writers, rounds) = (8, 500);
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                for round in 0..rounds {
                    let (_, ticket) = increment(&shard, "hot");
                    // Some writers wait for each write, some drop the ticket.
                    if round % 3 == 0 {
                        ticket.wait().unwrap();
                    }
                }
            });
        }
    });
    shard.sync().wait().unwrap();
    assert_eq!(read(&shard, "hot"), Some(f64::from(writers * rounds)));
    assert_eq!(shard.count(), 1);
}

#[test]
fn writers_of_many_rows_count_each_row_once() {
    let bed = Bed::running();
    let shard = bed.shard();
    std::thread::scope(|scope| {
        for writer in 0..8_u64 {
            let shard = &shard;
            scope.spawn(move || {
                for round in 0..400_u64 {
                    let name = format!("row{}", (round * 7 + writer) % 50);
                    match (round + writer) % 5 {
                        0 => drop(delete(shard, &name)),
                        _ => drop(increment(shard, &name)),
                    }
                }
            });
        }
    });
    shard.sync().wait().unwrap();
    // `content` compares the counts.
    assert!(content(&shard).len() <= 50);
}

#[test]
fn the_log_has_writes_in_the_order_of_their_evaluation() {
    let bed = Bed::running();
    let shard = bed.shard();
    let clock = AtomicU64::new(0);
    let mut seen: Vec<_> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let one = || {
                        let decide = |_: Option<&Object>| {
                            let time = clock.fetch_add(1, Ordering::SeqCst);
                            (Decision::Put(row(time as f64)), time)
                        };
                        let (time, ticket) = shard.write(&key("k"), Durability::Soft, decide).unwrap();
                        (ticket.wait().unwrap(), time)
                    };
                    (0..200).map(|_| one()).collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    seen.sort_unstable();
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    assert_eq!(read(&shard, "k"), Some((seen.len() - 1) as f64));
}

#[test]
fn a_write_sees_proposed_rows_and_a_read_does_not() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    let (_, first) = put(&shard, "a", 1.0);
    let (old, second) = put(&shard, "a", 2.0);
    assert_eq!(old, Some(1.0));
    assert_eq!(read(&shard, "a"), None);
    assert_eq!(shard.count(), 0);
    let Err(first) = first.try_wait() else { panic!("nothing is applied yet") };
    assert_eq!(bed.log.step(), 2);
    first.wait().unwrap();
    second.wait().unwrap();
    assert_eq!(read(&shard, "a"), Some(2.0));
    assert_eq!(shard.count(), 1);
}

fn insert(shard: &Shard, name: &str, n: f64) -> Result<bool, WriteError> {
    let decide = |old: Option<&Object>| match old {
        Some(_) => (Decision::Unchanged, false),
        None => (Decision::Put(row(n)), true),
    };
    let (inserted, ticket) = shard.write(&key(name), Durability::Hard, decide)?;
    ticket.wait()?;
    Ok(inserted)
}

#[test]
fn one_of_many_inserts_of_a_key_wins() {
    let bed = Bed::running();
    let shard = bed.shard();
    let winners: Vec<_> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                (
                    n,
                    scope.spawn({
                        let shard = &shard;
                        move || insert(shard, "k", f64::from(n)).unwrap()
                    }),
                )
            })
            .collect();
        writers.into_iter().filter_map(|(n, writer)| writer.join().unwrap().then_some(n)).collect()
    });
    assert_eq!(winners.len(), 1);
    assert_eq!(read(&shard, "k"), Some(f64::from(winners[0])));
}

#[test]
fn a_decision_to_leave_the_row_writes_nothing() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    let leave = |_: Option<&Object>| (Decision::Unchanged, "no such field");
    let (answer, ticket) = shard.write(&key("a"), Durability::Hard, leave).unwrap();
    assert_eq!(answer, "no such field");
    ticket.wait().unwrap();
    delete(&shard, "a").wait().unwrap();
    assert_eq!(bed.log.proposed(), 0);
    drop(put(&shard, "a", 1.0));
    assert_eq!(bed.log.proposed(), 1);
}

#[test]
fn a_decision_that_panics_leaves_no_trace() {
    let bed = Bed::running();
    let shard = bed.shard();
    put(&shard, "a", 1.0).1.wait().unwrap();
    let write = std::panic::AssertUnwindSafe(|| {
        shard.write(&key("a"), Durability::Hard, |_| -> (Decision, ()) { panic!("on purpose") })
    });
    assert!(std::panic::catch_unwind(write).is_err());
    assert_eq!(read(&shard, "a"), Some(1.0));
    let (sum, ticket) = increment(&shard, "a");
    ticket.wait().unwrap();
    assert_eq!(sum, 2.0);
    assert_eq!(bed.log.proposed(), 2);
}

#[test]
fn rows_of_one_entry_come_together() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    let keys = [key("a"), key("b"), key("a"), key("c"), key("b")];
    let mut seen = Vec::new();
    let decide = |index: usize, old: Option<&Object>| {
        seen.push(old.map(number));
        match index {
            4 => (Decision::Delete, index),
            _ => (Decision::Put(row(index as f64)), index),
        }
    };
    let (context, ticket) = shard.write_many(&keys, Durability::Hard, decide).unwrap();
    assert_eq!(context, [0, 1, 2, 3, 4]);
    assert_eq!(seen, [None, None, Some(0.0), None, Some(1.0)]);
    assert_eq!(bed.log.proposed(), 1);
    let (old, _) = put(&shard, "a", 9.0);
    assert_eq!(old, Some(2.0), "the newest of the entry's rows is the proposed one");
    assert!(content(&shard).is_empty());
    bed.log.step();
    ticket.wait().unwrap();
    let rows: Vec<_> = content(&shard).into_iter().collect();
    assert_eq!(rows, [(key("a"), 9.0), (key("c"), 3.0)]);
}

#[test]
fn sync_waits_for_soft_writes() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    let (_, write) = put(&shard, "a", 1.0);
    let Err(sync) = shard.sync().try_wait() else { panic!("the write is not applied yet") };
    bed.log.step();
    assert_eq!(sync.wait().unwrap(), write.wait().unwrap());
}

#[test]
fn a_retired_shard_finishes_and_takes_nothing_new() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    let (_, ticket) = put(&shard, "a", 1.0);
    shard.retire();
    let refused = shard.write(&key("a"), Durability::Soft, |_| (Decision::Delete, ()));
    assert!(matches!(refused.err(), Some(WriteError::Definite { cause: WriteRefusal::Retired { .. } })));
    bed.log.step();
    ticket.wait().unwrap();
    assert_eq!(read(&shard, "a"), Some(1.0));
}

#[test]
fn nothing_slips_past_a_retirement() {
    let bed = Bed::running();
    let shard = bed.shard();
    let acknowledged: u64 = std::thread::scope(|scope| {
        let write_until_refused = || {
            let mut done = 0;
            loop {
                let decide = |old: Option<&Object>| (Decision::Put(row(old.map_or(0.0, number) + 1.0)), ());
                match shard.write(&key("k"), Durability::Soft, decide) {
                    Ok((_, ticket)) => ticket.wait().unwrap(),
                    Err(_) => return done,
                };
                done += 1;
            }
        };
        let writers: Vec<_> = (0..4).map(|_| scope.spawn(write_until_refused)).collect();
        while shard.count() == 0 {
            std::thread::yield_now();
        }
        shard.retire();
        shard.sync().wait().unwrap();
        let final_sum = read(&shard, "k").unwrap();
        let acknowledged = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert_eq!(final_sum, acknowledged as f64, "no write was proposed after the retirement");
        acknowledged
    });
    assert!(acknowledged > 0);
}

#[test]
fn a_damaged_row_is_an_error_and_never_an_answer() {
    let bed = Bed::running();
    let shard = bed.shard();
    put(&shard, "a", 1.0).1.wait().unwrap();
    let engine: Arc<dyn engine::Engine> = Arc::clone(bed.replicas.engine());
    let full = [crate::bed::TABLE.as_bytes(), key("a").as_bytes()].concat();
    let mut bytes = engine.get(engine::Space::Rows, &full).unwrap().unwrap().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    // The written row is cached and intact; only the engine's copy can be damaged.
    bed.replicas.store().set_row_cache_bytes(0);
    let mut batch = engine::Batch::new();
    batch.put(engine::Space::Rows, &full, bytes.into());
    engine.write(batch).unwrap();
    assert!(shard.get(&key("a")).is_err());
    let write = shard.write(&key("a"), Durability::Soft, |_| (Decision::Delete, ()));
    assert!(write.err().is_some_and(|error| error.is_definite()));
}

/// Counts down the running writers when one ends, even by a panic, so that waiting threads continue.
struct Leaving<'a>(&'a AtomicU64);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn no_read_goes_back_in_time() {
    let bed = Bed::running();
    let shard = bed.shard();
    let names = ["a", "b", "c", "d"];
    let writing = AtomicU64::new(4);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (shard, writing) = (&shard, &writing);
            scope.spawn(move || {
                let _leaving = Leaving(writing);
                for round in 0..600 {
                    let name = names[(round + writer) % names.len()];
                    let (sum, ticket) = increment(shard, name);
                    ticket.wait().unwrap();
                    assert!(read(shard, name).unwrap() >= sum, "an acknowledged write is read");
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(|| {
                let mut seen = [0.0; 4];
                while writing.load(Ordering::SeqCst) > 0 {
                    for (name, seen) in names.iter().zip(&mut seen) {
                        let now = read(&shard, name).unwrap_or(0.0);
                        assert!(now >= *seen, "{name} was {seen} and is {now}");
                        *seen = now;
                    }
                }
            });
        }
    });
    let cache = bed.replicas.store().row_cache_stats();
    assert!(cache.hits > 0 && cache.rows == 4, "{cache:?}");
    assert_eq!(content(&shard).into_values().sum::<f64>(), 2400.0);
}
