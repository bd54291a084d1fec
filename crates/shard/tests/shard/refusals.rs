//! Tests of refused proposals: neither they nor writes computed from them take effect.

use datum::Object;
use log::Durability;
use rekindle_shard::{Decision, WriteError, WriteRefusal};

use crate::bed::{Bed, assert_definite, content, increment, key, number, put, read, row};

#[test]
fn dependants_of_a_refused_write_do_not_happen() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    bed.log.refuse([1]);
    let (_, first) = increment(&shard, "k");
    let (_, refused) = increment(&shard, "k");
    let (sum, dependant) = increment(&shard, "k");
    let (_, other) = put(&shard, "other", 7.0);
    assert_eq!(sum, 3.0);
    bed.log.tell_refusals();
    bed.log.step();
    first.wait().unwrap();
    assert_definite(refused.wait());
    assert!(matches!(dependant.wait(), Err(WriteError::Definite { cause: WriteRefusal::Dependency })));
    other.wait().unwrap();
    assert_eq!(read(&shard, "k"), Some(1.0));
    assert_eq!(read(&shard, "other"), Some(7.0));
    let (sum, ticket) = increment(&shard, "k");
    assert_eq!(sum, 2.0);
    bed.log.step();
    ticket.wait().unwrap();
    assert_eq!(content(&shard).len(), 2);
}

#[test]
fn a_write_after_a_refusal_sees_the_rows_before_it() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    bed.log.refuse([1]);
    let (_, first) = increment(&shard, "k");
    let (_, refused) = increment(&shard, "k");
    let (_, dependant) = increment(&shard, "k");
    // The refusal arrives before anything is applied.
    bed.log.tell_refusals();
    let (sum, next) = increment(&shard, "k");
    assert_eq!(sum, 2.0, "the first is still on its way");
    let (sum, after) = increment(&shard, "k");
    assert_eq!(sum, 3.0);
    bed.log.step();
    first.wait().unwrap();
    assert_definite(refused.wait());
    assert_definite(dependant.wait());
    next.wait().unwrap();
    after.wait().unwrap();
    assert_eq!(read(&shard, "k"), Some(3.0));
}

#[test]
fn a_refusal_propagates_through_other_rows() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    bed.log.refuse([0]);
    let (_, refused) = put(&shard, "a", 1.0);
    // Copies a to b in one entry, so b depends on a.
    let keys = [key("a"), key("b")];
    let mut seen = None;
    let copy = |_: usize, old: Option<&Object>| {
        seen = seen.or(old.map(number));
        (seen.map_or(Decision::Unchanged, |n| Decision::Put(row(n))), ())
    };
    let (_, copied) = shard.write_many(&keys, Durability::Hard, copy).unwrap();
    let (sum, incremented) = increment(&shard, "b");
    assert_eq!(sum, 2.0);
    bed.log.step();
    bed.log.tell_refusals();
    assert_definite(refused.wait());
    assert_definite(copied.wait());
    assert_definite(incremented.wait());
    assert!(content(&shard).is_empty());
}

#[test]
fn a_result_computed_from_a_refused_row_is_refused() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    bed.log.refuse([0]);
    let (_, refused) = put(&shard, "k", 1.0);
    let conflict = |old: Option<&Object>| (Decision::Unchanged, old.is_some());
    let (exists, ticket) = shard.write(&key("k"), Durability::Hard, conflict).unwrap();
    assert!(exists);
    bed.log.step();
    bed.log.tell_refusals();
    assert_definite(refused.wait());
    assert_definite(ticket.wait());
    let (exists, ticket) = shard.write(&key("k"), Durability::Hard, conflict).unwrap();
    assert!(!exists);
    ticket.wait().unwrap();
}

#[test]
fn a_log_that_has_stopped_refuses_without_a_deadlock() {
    let bed = Bed::running();
    let shard = bed.shard();
    put(&shard, "k", 1.0).1.wait().unwrap();
    bed.log.stop();
    assert_definite(put(&shard, "k", 2.0).1.wait());
    let keys = [key("k"), key("j"), key("i")];
    let put_all = |_: usize, _: Option<&Object>| (Decision::Put(row(3.0)), ());
    assert_definite(shard.write_many(&keys, Durability::Hard, put_all).unwrap().1.wait());
    assert_eq!(read(&shard, "k"), Some(1.0));
    assert_eq!(increment(&shard, "k").0, 2.0, "nothing refused is seen as proposed");
}

#[test]
fn a_replay_skips_what_was_skipped() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    bed.log.refuse([1, 4]);
    for name in ["k", "k", "k", "j", "j", "j", "k", "other"] {
        drop(increment(&shard, name));
    }
    bed.log.step();
    bed.log.tell_refusals();
    let before = content(&shard);
    assert_eq!(before.get(&key("k")), Some(&1.0));
    assert_eq!(before.get(&key("j")), Some(&1.0));
    drop(shard);
    let bed = bed.crash();
    let shard = bed.shard();
    assert_eq!(content(&shard), before);
    let (sum, ticket) = increment(&shard, "k");
    ticket.wait().unwrap();
    assert_eq!(sum, 2.0);
    assert_eq!(read(&shard, "k"), Some(2.0));
}

#[test]
fn random_refusals_never_show_a_lost_update() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let mut random = seed;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let bed = Bed::stepped();
    let shard = bed.shard();
    let names = ["a", "b", "c"];
    let mut open = Vec::new();
    let mut acknowledged = [0.0; 3];
    for number in 0..3000 {
        let which = draw(3) as usize;
        if draw(6) == 0 {
            bed.log.refuse([bed.log.proposed()]);
        }
        open.push((which, increment(&shard, names[which]).1));
        match draw(8) {
            0 => bed.log.tell_refusals(),
            1 => drop(bed.log.step()),
            _ => {}
        }
        if number % 100 == 99 {
            bed.log.step();
            bed.log.tell_refusals();
            for (which, ticket) in open.drain(..) {
                match ticket.wait() {
                    Ok(_) => acknowledged[which] += 1.0,
                    Err(error) => assert!(error.is_definite()),
                }
            }
            for (which, name) in names.iter().enumerate() {
                assert_eq!(read(&shard, name).unwrap_or(0.0), acknowledged[which], "seed {seed}");
            }
        }
    }
}
