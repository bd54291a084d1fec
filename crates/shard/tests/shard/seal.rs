//! Tests of sealed groups: they accept nothing, permanently or until they are opened again, and other groups take over
//! their rows.

use datum::KeyRange;
use log::{Durability, GroupId, InitialConfig};
use rekindle_shard::{Decision, Predecessor, SealState, Shard, WriteError, WriteRefusal, WriteTicket};

use crate::bed::{Bed, GROUP, TABLE, content, increment, key, put, read};
use crate::ranges::{content_of_all, cut_before};

#[track_caller]
fn is_retired(error: &WriteError) {
    let retired = matches!(error, WriteError::Definite { cause: WriteRefusal::Retired { .. } });
    assert!(retired, "{error:?}");
}

fn refused(ticket: WriteTicket) {
    is_retired(&ticket.wait().unwrap_err());
}

#[test]
fn a_sealed_group_takes_nothing_and_confirms_nothing_until_it_is_opened_again() {
    let bed = Bed::running();
    let shard = bed.shard();
    put(&shard, "a", 1.0).1.wait().unwrap();
    shard.set_seal_state(SealState::sealed(0)).wait().unwrap();
    assert_eq!(shard.seal_state(), SealState::sealed(0));
    let write = shard.write(&key("a"), Durability::Hard, |_| (Decision::Delete, ()));
    is_retired(&write.err().unwrap());
    refused(shard.confirm());
    assert!(!shard.is_leader() && shard.leads());
    assert_eq!(read(&shard, "a"), Some(1.0));
    shard.set_seal_state(SealState::open(1)).wait().unwrap();
    // This entry comes too late.
    shard.set_seal_state(SealState::sealed(0)).wait().unwrap();
    assert_eq!(shard.seal_state(), SealState::open(1));
    assert!(!shard.is_sealed_or_sealing(), "its members may change");
    put(&shard, "a", 2.0).1.wait().unwrap();
    shard.confirm().wait().unwrap();
    assert_eq!(read(&shard, "a"), Some(2.0));
}

#[test]
fn writes_during_a_seal_are_refused_before_anything_is_proposed() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    let (_, before) = put(&shard, "a", 1.0);
    shard.block_writes(SealState::sealed(0));
    let write = shard.write(&key("a"), Durability::Hard, |_| (Decision::Delete, ()));
    is_retired(&write.err().unwrap());
    let seal = shard.set_seal_state(SealState::sealed(0));
    bed.log.step();
    before.wait().unwrap();
    seal.wait().unwrap();
    let open = shard.set_seal_state(SealState::open(1));
    bed.log.step();
    open.wait().unwrap();
    let (_, after) = put(&shard, "a", 2.0);
    bed.log.step();
    after.wait().unwrap();
    // Another seal was abandoned.
    shard.block_writes(SealState::sealed(1));
    shard.abandon_seal(SealState::sealed(1));
    assert_eq!(increment(&shard, "a").0, 3.0);
    bed.log.step();
}

#[test]
fn proposals_behind_a_seal_have_no_effect_and_are_refused() {
    let bed = Bed::stepped();
    let shard = bed.shard();
    let (_, before) = put(&shard, "before", 1.0);
    let seal = shard.set_seal_state(SealState::sealed(3));
    let (_, applied_state) = put(&shard, "behind", 2.0);
    let chain: Vec<WriteTicket> = (0..3).map(|_| increment(&shard, "before").1).collect();
    bed.log.step();
    before.wait().unwrap();
    seal.wait().unwrap();
    refused(applied_state);
    chain.into_iter().for_each(refused);
    assert_eq!((read(&shard, "before"), read(&shard, "behind")), (Some(1.0), None));
    let rows = content(&shard);
    drop(shard);
    // A replay gives the same result.
    let bed = bed.crash();
    let shard = bed.shard();
    assert_eq!(content(&shard), rows);
    assert_eq!(shard.seal_state(), SealState::sealed(3));
    // Earlier entries do not take effect after the opening.
    shard.set_seal_state(SealState::open(4)).wait().unwrap();
    assert_eq!(content(&shard), rows);
    assert_eq!(increment(&shard, "before").0, 2.0);
}

/// The shards that follow group 1, which is opened first.
fn divided(bed: &Bed, ranges: &[KeyRange]) -> Vec<std::sync::Arc<Shard>> {
    let predecessors = [Predecessor { group: GROUP, range: KeyRange::all() }];
    let open = |(i, range): (usize, &KeyRange)| {
        let (group, log) = (GroupId(10 + i as u64), std::sync::Arc::clone(&bed.log) as _);
        let opened = Shard::open_after(
            &bed.replicas,
            log,
            TABLE,
            group,
            range.clone(),
            InitialConfig::Single,
            &predecessors,
        );
        opened.unwrap()
    };
    ranges.iter().enumerate().map(open).collect()
}

#[test]
fn new_groups_continue_from_a_seal_without_a_flush_whenever_the_machine_stops() {
    // When the engine is flushed: never, before the new groups, after them, after their writes.
    for flushed in 0..4 {
        let bed = Bed::running();
        let old = bed.shard();
        for n in 0..90_u32 {
            put(&old, &format!("k{n:02}"), f64::from(n)).1.wait().unwrap();
        }
        old.set_seal_state(SealState::sealed(0)).wait().unwrap();
        let flush = |when: u32| {
            if flushed == when {
                engine::Engine::flush(&bed.engine).unwrap();
            }
        };
        flush(1);
        let ranges = cut_before(&["k25", "k50"]);
        let new = divided(&bed, &ranges);
        assert_eq!(new.iter().map(|shard| shard.count()).collect::<Vec<_>>(), [25, 25, 40]);
        flush(2);
        put(&new[0], "k07", -7.0).1.wait().unwrap();
        put(&new[2], "k99", 99.0).1.wait().unwrap();
        new[1].write(&key("k30"), Durability::Hard, |_| (Decision::Delete, ())).unwrap().1.wait().unwrap();
        flush(3);
        let rows = content_of_all(&new);
        assert_eq!((rows.len(), rows[&key("k07")]), (90, -7.0));
        drop((old, new));
        let bed = bed.crash();
        // The old group first: its rows are there up to the seal, and no later ones.
        let old = bed.shard();
        assert_eq!(old.seal_state(), SealState::sealed(0), "flushed {flushed}");
        let new = divided(&bed, &ranges);
        assert_eq!(content_of_all(&new), rows, "flushed {flushed}");
    }
}

#[test]
fn a_group_over_several_whole_ones_has_the_rows_of_all() {
    let bed = Bed::running();
    let ranges = cut_before(&["g", "p"]);
    let old: Vec<_> =
        (0..).zip(&ranges).map(|(i, range)| bed.shard_of(GroupId(20 + i), range.clone())).collect();
    for (shard, names) in old.iter().zip([&["a", "b"][..], &["h"], &["q", "r", "s"]]) {
        for name in names {
            put(shard, name, 1.0).1.wait().unwrap();
        }
        shard.set_seal_state(SealState::sealed(0)).wait().unwrap();
    }
    let predecessors: Vec<Predecessor> =
        old.iter().map(|shard| Predecessor { group: shard.group(), range: shard.range().clone() }).collect();
    let log = std::sync::Arc::clone(&bed.log) as _;
    let one = Shard::open_after(
        &bed.replicas,
        log,
        TABLE,
        GroupId(30),
        KeyRange::all(),
        InitialConfig::Single,
        &predecessors,
    );
    assert_eq!(content(&one.unwrap()).len(), 6);
}
