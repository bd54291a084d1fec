//! Tests of replacing rows by a copy, with any rows before and any interruption.

use std::sync::Arc;

use datum::{KeyBound, KeyRange, PrimaryKey};
use log::{Durability, GroupId};
use rekindle_shard::{
    CopyEnd, CopyRangeSizes, Decision, Difference, Direction, PresentRows, Restoration, RestoreError, Shard,
    TableSnapshot,
};

use crate::bed::{Bed, content, key, put};
use crate::indexes::{Chance, build, change, check, defs};

const TO: GroupId = GroupId(2);

/// The rows of a shard as they are stored.
fn stored(shard: &Shard) -> Vec<(PrimaryKey, Vec<u8>)> {
    let mut scan = shard.snapshot().unwrap().scan(&KeyRange::all(), Direction::Ascending).to_the_end();
    let mut rows = Vec::new();
    while let Some(batch) = scan.next_batch().unwrap() {
        rows.extend((0..batch.len()).map(|i| (batch.key(i), batch.row_bytes(i).to_vec())));
    }
    rows
}

fn end_of(snapshot: &TableSnapshot) -> CopyEnd {
    let applied = snapshot.applied().unwrap();
    CopyEnd { at: applied.lsn, progress: applied.progress, builds: snapshot.builds().unwrap() }
}

/// Copies rows of `from` until the copy is complete, or for a number of requests. Returns the bytes sent and whether it
/// is complete.
fn copy(
    from: &Shard,
    to: &Shard,
    response_bytes: usize,
    sizes: CopyRangeSizes,
    responses_max: usize,
) -> (usize, bool) {
    copy_over(PresentRows::Compared, from, to, response_bytes, sizes, responses_max)
}

/// As [`copy`], over rows that are compared or replaced.
fn copy_over(
    present: PresentRows,
    from: &Shard,
    to: &Shard,
    response_bytes: usize,
    sizes: CopyRangeSizes,
    responses_max: usize,
) -> (usize, bool) {
    let snapshot = from.snapshot().unwrap();
    let mut restoration = Restoration::begin(to, end_of(&snapshot), present).unwrap();
    let mut sent = 0;
    for _ in 0..responses_max {
        let copy_ranges = restoration.copy_ranges(sizes).unwrap();
        let response =
            Difference::with(&snapshot, restoration.after(), &copy_ranges, response_bytes).unwrap();
        sent += response.rows.iter().map(|(key, row)| key.as_bytes().len() + row.len()).sum::<usize>();
        let before = restoration.after().cloned();
        restoration.take(&copy_ranges, response).unwrap();
        if restoration.is_whole() {
            assert_eq!(restoration.rows(), snapshot.count().unwrap());
            restoration.finish().unwrap();
            return (sent, true);
        }
        assert!(restoration.after() > before.as_ref(), "it makes progress with every response");
    }
    (sent, false)
}

#[test]
fn a_repeatedly_interrupted_copy_ends_equal_to_its_source() {
    for seed in 0..60 {
        let mut chance = Chance(seed);
        let (here, there) = (Bed::running(), Bed::running());
        let (from, to) = (here.shard(), there.shard_of(TO, KeyRange::all()));
        from.set_indexes(defs());
        build(&from);
        to.set_indexes(defs());
        if seed % 2 == 0 {
            // A replica that was disconnected: it has other rows and identical rows, with index entries.
            build(&to);
        }
        let mut same = Chance(seed + 1000);
        (0..200).for_each(|_| change(&from, &mut chance, 60));
        (0..50).for_each(|_| change(&to, &mut same, 60));
        loop {
            let sizes =
                CopyRangeSizes { bytes: 1 + chance.below(300) as usize, count: chance.below(6) as usize };
            let (response_bytes, responses_max) = (1 + chance.below(800) as usize, chance.below(12) as usize);
            // Rows are written between the attempts, both rows already sent and others.
            (0..chance.below(4)).for_each(|_| change(&from, &mut chance, 60));
            if copy(&from, &to, response_bytes, sizes, responses_max).1 {
                break;
            }
        }
        assert_eq!(stored(&to), stored(&from), "seed {seed}");
        assert_eq!(to.count(), from.count(), "seed {seed}");
        check(&to, seed);
    }
}

const SIZES: CopyRangeSizes = CopyRangeSizes { bytes: 400, count: 4 };

/// Two shards, one with a thousand rows and one without rows.
fn two() -> (Bed, Arc<Shard>, Bed, Arc<Shard>) {
    let (here, there) = (Bed::running(), Bed::running());
    let (from, to) = (here.shard(), there.shard_of(TO, KeyRange::all()));
    for n in 0..1000_u32 {
        drop(put(&from, &format!("k{n:04}"), f64::from(n)));
    }
    from.sync().wait().unwrap();
    (here, from, there, to)
}

#[test]
fn rows_sent_before_an_interruption_are_not_sent_again() {
    let (_here, from, _there, to) = two();
    let whole: usize = stored(&from).iter().map(|(key, row)| key.as_bytes().len() + row.len()).sum();
    let (before, is_done) = copy(&from, &to, 2000, SIZES, 10);
    assert!(!is_done && before > whole / 5);
    // A row deleted before the point of interruption, one changed and one added.
    from.write(&key("k0010"), Durability::Soft, |_| (Decision::Delete, ())).unwrap().1.wait().unwrap();
    put(&from, "k0100", -1.0).1.wait().unwrap();
    put(&from, "k0200x", 7.0).1.wait().unwrap();
    let (after, is_done) = copy(&from, &to, 2000, SIZES, usize::MAX);
    assert!(is_done);
    assert_eq!(content(&to), content(&from));
    assert_eq!(stored(&to), stored(&from));
    assert!(before + after < whole + 3 * 2000, "{before} bytes and then {after} of {whole}");
    // A replica with all rows only gets the changes.
    put(&from, "k0500", -2.0).1.wait().unwrap();
    let (again, _) = copy(&from, &to, 2000, SIZES, usize::MAX);
    assert!(again < 1000, "{again} bytes for one row");
    assert_eq!(stored(&to), stored(&from));
}

#[test]
fn rows_absent_from_the_copy_are_removed_with_their_entries() {
    let (here, there) = (Bed::running(), Bed::running());
    let (from, to) = (here.shard(), there.shard_of(TO, KeyRange::all()));
    from.set_indexes(defs());
    build(&from);
    to.set_indexes(defs());
    build(&to);
    let mut chance = Chance(5);
    (0..100).for_each(|_| change(&to, &mut chance, 80));
    assert!(copy(&from, &to, 1000, SIZES, usize::MAX).1);
    assert_eq!(stored(&to), []);
    check(&to, 5);
}

#[test]
fn replaced_rows_are_not_read_and_none_stays() {
    for seed in 0..20 {
        let mut chance = Chance(seed);
        let (here, there) = (Bed::running(), Bed::running());
        let (from, to) = (here.shard(), there.shard_of(TO, KeyRange::all()));
        for shard in [&from, &to] {
            shard.set_indexes(defs());
            build(shard);
        }
        (0..200).for_each(|_| change(&from, &mut chance, 60));
        (0..100).for_each(|_| change(&to, &mut chance, 80));
        // Rows in the cache must not outlive their deletion.
        let cached: Vec<PrimaryKey> = stored(&to).into_iter().map(|(key, _)| key).collect();
        cached.iter().for_each(|key| drop(to.get(key).unwrap()));
        loop {
            let (response_bytes, responses_max) = (1 + chance.below(800) as usize, chance.below(12) as usize);
            (0..chance.below(4)).for_each(|_| change(&from, &mut chance, 60));
            // An attempt may find out that rows are damaged.
            let present = if chance.below(2) == 0 { PresentRows::Compared } else { PresentRows::Replaced };
            if copy_over(present, &from, &to, response_bytes, SIZES, responses_max).1 {
                break;
            }
        }
        assert!(copy_over(PresentRows::Replaced, &from, &to, 1000, SIZES, usize::MAX).1);
        assert_eq!(stored(&to), stored(&from), "seed {seed}");
        for key in &cached {
            assert_eq!(to.get(key).unwrap(), from.get(key).unwrap(), "seed {seed}");
        }
        check(&to, seed);
    }
}

#[test]
fn a_response_to_another_request_is_refused() {
    let (_here, from, _there, to) = two();
    let snapshot = from.snapshot().unwrap();
    let mut restoration = Restoration::begin(&to, end_of(&snapshot), PresentRows::Compared).unwrap();
    let copy_ranges = restoration.copy_ranges(SIZES).unwrap();
    let response = Difference::with(&snapshot, None, &copy_ranges, 2000).unwrap();
    let last = response.reach.clone();
    restoration.take(&copy_ranges, response.clone()).unwrap();
    let misfits = [
        // A repeated response; more identical ranges than were sent; rows that do not ascend; rows beyond its end.
        response.clone(),
        Difference { same: 1, reach: None, rows: Vec::new() },
        Difference { same: 0, reach: None, rows: response.rows.iter().rev().cloned().collect() },
        Difference { same: 0, reach: last, rows: vec![(key("k0999"), bytes::Bytes::new())] },
    ];
    for misfit in misfits {
        let refused = restoration.take(&[], misfit);
        assert!(matches!(refused, Err(RestoreError::Misfit)), "{refused:?}");
    }
    assert!(matches!(restoration.finish(), Err(RestoreError::Misfit)), "not all rows are there");
}

#[test]
fn a_whole_copy_between_two_reads_is_noticed() {
    let (_here, from, there, to) = two();
    let before = to.rows_generation();
    assert!(to.is_current(before));
    let old = to.snapshot().unwrap();
    there.replicas.mark_recovering(TO);
    let between = to.rows_generation();
    assert!(!to.is_current(before) && !to.is_current(between));
    assert!(copy(&from, &to, 2000, SIZES, usize::MAX).1);
    assert!(
        !to.is_recovering() && !to.is_current(before) && !to.is_current(between),
        "rows of before the copy may be shown"
    );
    assert_eq!(old.count().unwrap(), 0);
    assert!(to.is_current(to.rows_generation()));
}

#[test]
fn rows_outside_of_the_range_are_refused() {
    let (here, there) = (Bed::running(), Bed::running());
    let from = here.shard();
    (0..4_u32).for_each(|n| drop(put(&from, &format!("k{n:04}"), f64::from(n))));
    let range = KeyRange { start: KeyBound::Included(key("k0001")), end: KeyBound::Excluded(key("k0003")) };
    from.sync().wait().unwrap();
    let to = there.shard_of(TO, range);
    let snapshot = from.snapshot().unwrap();
    let mut restoration = Restoration::begin(&to, end_of(&snapshot), PresentRows::Compared).unwrap();
    let all = Difference::with(&snapshot, None, &[], usize::MAX).unwrap();
    for some in [&all.rows[..3], &all.rows[1..]] {
        let refused = restoration.take(&[], Difference { rows: some.to_vec(), ..all.clone() });
        assert!(matches!(refused, Err(RestoreError::Misfit)), "{refused:?}");
    }
    restoration.take(&[], Difference { rows: all.rows[1..3].to_vec(), ..all }).unwrap();
    restoration.finish().unwrap();
    assert_eq!(to.count(), 2);
}
