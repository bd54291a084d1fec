//! Many replicas of one group in one thread, with crashes, power losses, partitions, lost and repeated messages,
//! membership changes and copies of rows. Compiled as a module of the library's unit tests, since it uses the runner. The
//! guarantees:
//!
//! - an acknowledged hard entry is never lost, an acknowledged soft one only by a power loss;
//! - a refused entry is never applied anywhere;
//! - no two replicas lead in one term;
//! - a linearizable read has applied everything that was acknowledged before it began;
//! - after healing there is a leader, entries are accepted, and all replicas have the same rows.

mod check;
mod events;
mod node;
mod world;

use crate::contract::Applier;
use crate::lsn::Lsn;
use crate::mutant::{self, Mutant};
use world::World;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let start = number("LOG_FLEET_START").unwrap_or(0);
    start..start + number("LOG_FLEET_SEEDS").unwrap_or(count)
}

/// The first violation that a seed finds, if any.
fn found(mutant: Mutant, seeds: std::ops::Range<u64>) -> Option<String> {
    mutant::set(mutant);
    let found = seeds.into_iter().find_map(|seed| World::new(seed).run().err());
    mutant::set(Mutant::None);
    found
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn a_fleet_keeps_its_guarantees() {
    let mut acknowledged = 0;
    for seed in seeds(1000) {
        acknowledged += World::new(seed)
            .run()
            .unwrap_or_else(|broken| panic!("{broken}; again with LOG_FLEET_START={seed} LOG_FLEET_SEEDS=1"));
    }
    let count = seeds(1000).count() as u64;
    assert!(acknowledged > 5 * count, "{acknowledged} acknowledged in {count} seeds");
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn seeds_that_once_failed_pass() {
    // A leader removed after a torn tail; a leader that did not know of its removal; the term of a single voter that a power
    // loss erased; rows ahead of the entries that the voters after a membership change can commit; a leader that led in the
    // same term before and lost its knowledge of another replica.
    for seed in [562, 1894, 2891, 204_146, 303_712] {
        World::new(seed).run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn a_seed_repeats_itself() {
    for seed in 0..5 {
        let trace = || {
            let mut world = World::new(seed);
            world.run_steps().map(|()| world.trace())
        };
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

macro_rules! is_found {
    ($($name:ident: $mutant:ident within $seeds:literal;)*) => { $(
        #[test]
        #[cfg(not(feature = "ack-before-append"))]
        fn $name() {
            assert!(found(Mutant::$mutant, seeds($seeds)).is_some(), "{:?} was not found", Mutant::$mutant);
        }
    )* };
}

is_found! {
    an_answer_before_the_fsync_is_found: AckBeforeFsync within 400;
    a_forgotten_vote_is_found: ForgetVote within 400;
    an_entry_applied_twice_is_found: ApplyTwice within 400;
    a_soft_position_of_one_replica_is_found: SoftAlone within 1500;
    a_copy_without_its_last_row_is_found: DropRow within 400;
}

/// Two of three replicas apply a soft entry; the leader loses it in a power loss, and the replica that never had it is
/// elected while the other is unreachable. Returns how many replicas then took a copy of the rows.
fn lose_a_soft_entry(seed: u64) -> Result<u64, String> {
    let mut world = World::of_three(seed)?;
    let leader = world.wait_for_leader(&[0, 1, 2])?;
    let (kept, without) = ((leader + 1) % 3, (leader + 2) % 3);
    for _ in 0..4 {
        world.exchange()?;
    }
    world.cut_off(without);
    world.soft_entry_without_fsync(leader)?;
    world.lose_power(leader)?;
    world.cut_off(kept);
    world.wait_for_leader(&[leader, without])?;
    world.heal()?;
    Ok(world.invalidated)
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn a_replica_whose_applied_entry_was_replaced_takes_a_copy_of_the_rows() {
    // Sometimes the entry survives the power loss.
    let taken: Vec<u64> = (0..10).map(|seed| lose_a_soft_entry(seed).unwrap()).collect();
    assert!(taken.contains(&1), "{taken:?}");

    mutant::set(Mutant::KeepVoidRows);
    let kept = (0..10).find_map(|seed| lose_a_soft_entry(seed).err());
    mutant::set(Mutant::None);
    assert!(kept.is_some(), "replicas kept invalid rows, and no check detected it");
}

/// Two of three replicas have every acknowledged entry in their logs, and both lose their rows: their disks lose log entries
/// that the engines had applied. The third has its rows, but not the entries acknowledged while it was unreachable.
/// Then `steps` random events follow, and everything is healed.
fn lose_the_rows_of_a_majority(seed: u64, steps: u64) -> Result<World, String> {
    let mut world = World::of_three(seed)?;
    let leader = world.wait_for_leader(&[0, 1, 2])?;
    let (kept, without) = ((leader + 1) % 3, (leader + 2) % 3);
    world.cut_off(without);
    for _ in 0..3 {
        world.hard_entry(leader)?;
    }
    world.soft_entry_without_fsync(leader)?;
    for nth in [leader, kept] {
        world.step_log(nth);
        world.flush_ahead(nth);
    }
    for nth in [leader, kept] {
        world.lose_power(nth)?;
    }
    world.run_events(steps)?;
    world.heal()?;
    Ok(world)
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn a_replica_with_the_log_and_without_rows_hands_over_to_one_with_rows() {
    for steps in [0, 100, 2000] {
        let mut stand_in_terms = 0;
        for seed in seeds(300) {
            let world = lose_the_rows_of_a_majority(seed, steps).unwrap_or_else(|why| {
                panic!("{why}; again with LOG_FLEET_START={seed} LOG_FLEET_SEEDS=1, {steps} steps")
            });
            stand_in_terms += world.stand_in_terms.len();
        }
        // Sometimes the entry survives the power loss. Random events may cost all replicas their rows.
        let count = seeds(300).count();
        assert!(
            3 * stand_in_terms > count,
            "{stand_in_terms} were elected without rows in {count} seeds, {steps} steps"
        );
    }
}

/// Two of three replicas lose their rows and the last soft entry, and start. The third has both on its disk, and starts
/// `late` rounds later. Returns whether two were without rows, and whether all are in the end.
fn start_late_with_the_only_rows(seed: u64, late: u64) -> Result<(bool, bool), String> {
    let mut world = World::of_three(seed)?;
    let leader = world.wait_for_leader(&[0, 1, 2])?;
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    for _ in 0..3 {
        world.hard_entry(leader)?;
    }
    for _ in 0..4 {
        world.exchange()?;
    }
    world.soft_entry_without_fsync(leader)?;
    for nth in others {
        world.step_log(nth);
        world.flush_ahead(nth);
    }
    world.begin_sync(leader);
    world.nodes[leader].end_sync();
    world.flush_ahead(leader);
    world.stop_without_power(leader);
    for nth in others {
        world.lose_power(nth)?;
    }
    let lacks = |world: &World, nth: &usize| world.status(*nth).is_some_and(|status| status.needs_rows);
    let are_two = others.iter().all(|nth| lacks(&world, nth));
    for _ in 0..late {
        world.exchange()?;
    }
    world.start(leader)?;
    let healed = world.heal();
    let are_all = (0..3).all(|nth| lacks(&world, &nth));
    healed.map(|()| (are_two, are_all))
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn an_absent_replica_with_the_only_rows_does_not_lose_them() {
    for late in [0, 60, 200] {
        let mut without = 0;
        for seed in 0..40 {
            let (are_two, are_all) = start_late_with_the_only_rows(seed, late).unwrap();
            assert!(!are_all, "seed {seed}: no replica has rows after one starts {late} rounds late");
            without += u32::from(are_two);
        }
        assert!(without > 10, "{without} times of 40 two were without rows");
    }
}

/// One of three replicas has applied a soft entry that a power loss took from another. It is unreachable while the others
/// elect a leader, continue, and lose their rows. Then it is reachable again, and requests votes. Returns whether the
/// others had no rows by then, and whether it has rows in the end.
fn come_back_with_other_entries(seed: u64) -> Result<(bool, bool), String> {
    let mut world = World::of_three(seed)?;
    let first = world.wait_for_leader(&[0, 1, 2])?;
    let others = [(first + 1) % 3, (first + 2) % 3];
    world.hard_entry(first)?;
    (0..4).try_for_each(|_| world.exchange())?;
    world.cut_off(others[1]);
    world.soft_entry_without_fsync(first)?;
    world.begin_sync(first);
    world.nodes[first].end_sync();
    world.cut_off(first);
    world.lose_power(others[0])?;
    let leader = world.wait_for_leader(&others)?;
    world.hard_entry(leader)?;
    world.soft_entry_without_fsync(leader)?;
    for nth in others {
        world.step_log(nth);
        world.flush_ahead(nth);
        world.lose_power(nth)?;
    }
    world.cut.clear();
    let lacks = |world: &World, nth: &usize| world.status(*nth).is_some_and(|status| status.needs_rows);
    let are_two = others.iter().all(|nth| lacks(&world, nth)) && !lacks(&world, &first);
    (0..300).try_for_each(|_| world.exchange())?;
    Ok((are_two, !lacks(&world, &first)))
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn a_replica_with_the_only_rows_does_not_lose_them_to_other_entries() {
    let mut without = 0;
    for seed in 0..60 {
        let (are_two, has_rows) = come_back_with_other_entries(seed).unwrap();
        assert!(has_rows || !are_two, "seed {seed}: no replica has rows");
        without += u32::from(are_two);
    }
    assert!(without > 5, "{without} times of 60 two were without rows");
}

/// Hard entries are applied on all nodes, and one node flushes its rows and loses power. Returns the commit position that
/// its log has when it starts again, and the position of its rows.
fn start_with_rows(seed: u64) -> Result<(Lsn, Lsn), String> {
    let mut world = World::of_three(seed)?;
    let leader = world.wait_for_leader(&[0, 1, 2])?;
    for _ in 0..5 {
        world.hard_entry(leader)?;
    }
    (0..4).try_for_each(|_| world.exchange())?;
    let nth = (leader + seed as usize) % 3;
    world.step_log(nth);
    world.nodes[nth].engine.flush().map_err(|cause| cause.to_string())?;
    world.lose_power(nth)?;
    let status = world.status(nth).ok_or("it does not start")?;
    Ok((status.committed, status.applied))
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn a_replica_that_starts_knows_that_its_rows_are_committed() {
    for seed in 0..30 {
        let (committed, applied) = start_with_rows(seed).unwrap();
        assert!(applied > Lsn(4), "seed {seed}: {applied}");
        assert!(committed >= applied, "seed {seed}: {committed} is committed, rows are at {applied}");
    }
}

/// The files of a follower are replaced by an older copy, without the last entries, while nothing is written.
fn restore_an_older_copy(seed: u64) -> Result<(), String> {
    let mut world = World::of_three(seed)?;
    let leader = world.wait_for_leader(&[0, 1, 2])?;
    let follower = (leader + 1) % 3;
    world.hard_entry(leader)?;
    let backup = world.back_up(follower)?;
    for _ in 0..5 {
        world.hard_entry(leader)?;
    }
    for _ in 0..10 {
        world.exchange()?;
    }
    world.put_back(follower, backup)?;
    let last = |world: &World, nth| world.status(nth).map(|status| (status.last, status.applied));
    let is_back = |world: &World| world.leads(leader) && last(world, follower) == last(world, leader);
    for _ in 0..100 {
        world.exchange()?;
        if is_back(&world) {
            return world.heal();
        }
    }
    Err(format!("the follower is at {:?}, its leader at {:?}", last(&world, follower), last(&world, leader)))
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn a_replica_with_an_older_copy_of_its_files_gets_the_missing_entries_from_its_leader() {
    (0..20).for_each(|seed| restore_an_older_copy(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}")));
}

/// Of three replicas, the leader and one follower have the last entry. The follower loses it and learns so from the leader,
/// which becomes unreachable before it can send the entry again. The third replica never had it.
fn lose_an_entry_and_the_leader(seed: u64) -> Result<(), String> {
    let mut world = World::of_three(seed)?;
    let leader = world.wait_for_leader(&[0, 1, 2])?;
    let (forgetful, without) = ((leader + 1) % 3, (leader + 2) % 3);
    world.hard_entry(leader)?;
    let backup = world.back_up(forgetful)?;
    (0..4).try_for_each(|_| world.exchange())?;
    world.cut_off(without);
    world.hard_entry(leader)?;
    (0..4).try_for_each(|_| world.exchange())?;
    // It receives messages of the leader, which receives none from it.
    world.cut.insert((forgetful, leader));
    world.put_back(forgetful, backup)?;
    (0..4).try_for_each(|_| world.exchange())?;
    world.cut_off(leader);
    if let Ok(elected) = world.wait_for_leader(&[forgetful, without]) {
        return Err(format!("{elected} is elected without an acknowledged entry"));
    }
    world.heal()
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn a_replica_that_lost_an_entry_does_not_elect_one_without_it() {
    (0..10).for_each(|seed| {
        lose_an_entry_and_the_leader(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"))
    });
}

/// Two of three replicas have written a soft entry when the leader fails. The other one needs the third for a quorum,
/// which is so far behind that it needs a copy of the rows first, and that copy includes the entry.
fn need_the_copy_for_a_majority(seed: u64) -> Result<(), String> {
    let mut world = World::of_three(seed)?;
    let leader = world.wait_for_leader(&[0, 1, 2])?;
    let (kept, behind) = ((leader + 1) % 3, (leader + 2) % 3);
    world.cut_off(behind);
    while world.status(kept).is_some_and(|status| status.start == Lsn(0)) {
        world.hard_entry(leader)?;
        world.shorten_log(kept);
    }
    world.soft_entry_without_fsync(leader)?;
    let soft = world.acknowledged();
    world.stop_without_power(leader);
    world.cut.clear();
    world.wait_for_leader(&[kept])?;
    let applied = |world: &World, nth| world.status(nth).map(|status| status.applied);
    for _ in 0..100 {
        world.exchange()?;
        if applied(&world, behind) >= Some(soft) {
            return world.heal();
        }
    }
    Err(format!("{:?} is applied, and {soft} was acknowledged", applied(&world, behind)))
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn uncommitted_rows_are_copied_to_the_replica_that_is_needed_to_commit_them() {
    (0..20).for_each(|seed| {
        need_the_copy_for_a_majority(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    });
}
