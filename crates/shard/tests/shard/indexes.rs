//! Tests of indexes: after any history, an index contains the values of its function for the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use datum::{Datum, KeyBound, KeyRange, Object, PrimaryKey, Text};
use log::{Durability, GroupId, InitialConfig};
use rekindle_shard::{
    Bounds, BuildStep, Decision, Direction, IndexBuild, IndexBuilder, IndexCursor, IndexDef, IndexDefs,
    IndexError, IndexId, IndexKind, IndexQuery, Predecessor, RowOrder, SealState, Shard, Side, WriteError,
    WriteRefusal,
};
use reql::StoredFunc;

use crate::bed::{Bed, TABLE, key};

const A: IndexId = IndexId(1);
const MULTI: IndexId = IndexId(2);

/// `row => row["a"]`, and `row => row["m"]` of several values.
pub fn defs() -> IndexDefs {
    let field = |name: &str| {
        let text = format!(r#"[69,[[2,[1]],[170,[[10,[1]],"{name}"]]]]"#);
        StoredFunc::parse(text.into()).unwrap()
    };
    let list = vec![
        IndexDef::new(A, IndexKind::One, &field("a")),
        IndexDef::new(MULTI, IndexKind::Multi, &field("m")),
    ];
    IndexDefs { list, highest_assigned: MULTI }
}

/// Random numbers determined by a seed.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// A value that an index may or may not contain; some are longer than an index key.
    fn value(&mut self) -> Datum {
        match self.below(8) {
            0 => Datum::Null,
            1 => Datum::from("x".repeat(190) + &"y".repeat(self.below(9) as usize)),
            2 => Datum::from(vec![Datum::from(self.below(3) as i32), Datum::Bool(true)]),
            3 => Datum::from("word"),
            _ => Datum::from(self.below(5) as i32),
        }
    }

    fn row(&mut self) -> Object {
        let mut fields = vec![("n", Datum::from(self.below(100) as i32))];
        if self.below(5) > 0 {
            fields.push(("a", self.value()));
        }
        let items: Vec<Datum> = (0..self.below(5)).map(|_| self.value()).collect();
        fields.push(("m", if self.below(4) == 0 { self.value() } else { items.into() }));
        fields.into_iter().map(|(name, value)| (Text::from(name), value)).collect()
    }
}

pub fn change(shard: &Shard, chance: &mut Chance, keys: u64) {
    let key = key(chance.below(keys) as i32);
    let decision = match chance.below(4) {
        0 => Decision::Delete,
        _ => Decision::Put(chance.row()),
    };
    shard.write(&key, Durability::Soft, |_| (decision, ())).unwrap().1.wait().unwrap();
}

/// The expected content of the index: each value with the keys of its rows, from a scan of the rows.
fn expected(shard: &Shard, index: &IndexDef) -> Vec<(Datum, PrimaryKey)> {
    let snapshot = shard.snapshot().unwrap();
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Ascending);
    let mut found = Vec::new();
    while let Some((key, row)) = scan.next().unwrap() {
        found.extend(index.values(&row).into_iter().map(|(_, value)| (value, key.clone())));
    }
    found.sort();
    found
}

fn query(index: IndexId, bounds: Bounds, order: RowOrder) -> IndexQuery {
    IndexQuery::of(index, [(bounds, 1)].into(), order, 100_000)
}

fn held(shard: &Shard, query: &IndexQuery) -> Vec<(Datum, PrimaryKey)> {
    let mut rows = shard.read_index(query).unwrap();
    let index = rows.index().clone();
    let mut found = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let pair = (row.value(&index), row.position.primary.clone());
        found.extend(std::iter::repeat_n(pair, row.times as usize));
    }
    found
}

/// Checks both orders, the count, and some ranges of every index.
#[track_caller]
pub fn check(shard: &Shard, seed: u64) {
    for index in &*shard.indexes() {
        let all = expected(shard, index);
        let ascending = query(index.id(), Bounds::all(), RowOrder::By(Direction::Ascending));
        assert_eq!(held(shard, &ascending), all, "seed {seed}, index {}", index.id());
        let mut reversed =
            held(shard, &query(index.id(), Bounds::all(), RowOrder::By(Direction::Descending)));
        reversed.reverse();
        assert_eq!(reversed, all, "seed {seed}, index {}", index.id());
        assert_eq!(shard.read_index(&ascending).unwrap().count().unwrap(), all.len() as u64, "seed {seed}");
        let mut chance = Chance(seed);
        for _ in 0..20 {
            check_range(shard, index, &all, &mut chance, seed);
            check_values(shard, index, &all, &mut chance, seed);
        }
    }
}

#[track_caller]
fn check_range(shard: &Shard, index: &IndexDef, all: &[(Datum, PrimaryKey)], chance: &mut Chance, seed: u64) {
    let mut side = || if chance.below(2) == 0 { Side::Open } else { Side::Closed };
    let (left_side, right_side) = (side(), side());
    let bounds = Bounds { left: chance.value(), left_side, right: chance.value(), right_side };
    let inside: Vec<_> = all.iter().filter(|(value, _)| bounds.contains(value)).cloned().collect();
    let read = query(index.id(), bounds.clone(), RowOrder::By(Direction::Ascending));
    assert_eq!(held(shard, &read), inside, "seed {seed}, index {}, {bounds:?}", index.id());
    for order in [Direction::Ascending, Direction::Descending].map(RowOrder::By) {
        check_parts(shard, &IndexQuery { order, ..read.clone() }, chance, seed);
    }
    let mut any = held(shard, &IndexQuery { order: RowOrder::Any, ..read.clone() });
    any.sort();
    assert_eq!(any, inside, "seed {seed}, index {}, {bounds:?}", index.id());
    assert_eq!(shard.read_index(&read).unwrap().count().unwrap(), inside.len() as u64, "{bounds:?}");
}

/// Checks reads that continue after any row, and reads of a range of row keys.
#[track_caller]
fn check_parts(shard: &Shard, read: &IndexQuery, chance: &mut Chance, seed: u64) {
    let mut rows = shard.read_index(read).unwrap();
    let mut positions = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        positions.push((IndexCursor { wanted: row.wanted, position: row.position }, row.times));
    }
    let all = held(shard, read);
    if !positions.is_empty() {
        let last = chance.below(positions.len() as u64) as usize;
        let before: u64 = positions[..=last].iter().map(|(_, times)| times).sum();
        let rest = IndexQuery { after: Some(positions[last].0.clone()), ..read.clone() };
        assert_eq!(held(shard, &rest), all[before as usize..], "seed {seed}, {rest:?}");
        let count = shard.read_index(&rest).unwrap().count().unwrap();
        assert_eq!(count, all.len() as u64 - before, "seed {seed}, {rest:?}");
    }
    let mut ends = [chance.below(60), chance.below(60)].map(|end| key(end as i32));
    ends.sort();
    let [start, end] = ends;
    let within = KeyRange { start: KeyBound::Included(start), end: KeyBound::Excluded(end) };
    let some = IndexQuery { rows: within.clone(), ..read.clone() };
    let expected: Vec<_> = all.into_iter().filter(|(_, key)| within.contains(key)).collect();
    assert_eq!(held(shard, &some), expected, "seed {seed}, {some:?}");
    let count = shard.read_index(&some).unwrap().count().unwrap();
    assert_eq!(count, expected.len() as u64, "seed {seed}, {some:?}");
}

/// Checks several values at once, some of them several times.
#[track_caller]
fn check_values(
    shard: &Shard,
    index: &IndexDef,
    all: &[(Datum, PrimaryKey)],
    chance: &mut Chance,
    seed: u64,
) {
    let mut values: Vec<Datum> = (0..4).map(|_| chance.value()).collect();
    values.sort();
    values.dedup();
    values.retain(|value| *value != Datum::Null);
    let wanted: Vec<_> =
        values.into_iter().map(|value| (Bounds::one(value), 1 + chance.below(2) as u32)).collect();
    let times = |value: &Datum| {
        let times = wanted.iter().filter(|(bounds, _)| bounds.contains(value)).map(|(_, times)| *times);
        times.sum::<u32>() as usize
    };
    let found = all.iter().flat_map(|pair| std::iter::repeat_n(pair.clone(), times(&pair.0)));
    let expected: Vec<_> = found.collect();
    let read = IndexQuery::of(index.id(), wanted.into(), RowOrder::Any, 100);
    let mut any = held(shard, &read);
    any.sort();
    assert_eq!(any, expected, "seed {seed}, index {}, {read:?}", index.id());
    check_parts(shard, &read, chance, seed);
    assert_eq!(shard.read_index(&read).unwrap().count().unwrap(), expected.len() as u64, "{read:?}");
}

pub fn build(shard: &Arc<Shard>) {
    let mut builder = IndexBuilder::new(shard.clone());
    while builder.step().unwrap() != BuildStep::Done {}
}

#[test]
fn writes_keep_an_index_equal_to_its_function() {
    for seed in 0..10 {
        let mut chance = Chance(seed);
        let bed = Bed::running();
        let shard = bed.shard();
        shard.set_indexes(defs());
        build(&shard);
        for _ in 0..300 {
            change(&shard, &mut chance, 60);
        }
        check(&shard, seed);
    }
}

#[test]
fn an_index_that_is_not_built_is_not_read() {
    let bed = Bed::running();
    let shard = bed.shard();
    let read = query(A, Bounds::all(), RowOrder::Any);
    assert!(matches!(shard.read_index(&read), Err(IndexError::Missing(A))));
    shard.set_indexes(defs());
    assert!(matches!(shard.read_index(&read), Err(IndexError::NotReady(A))));
    build(&shard);
    assert_eq!(shard.index_build(A), IndexBuild::Ready);
    assert_eq!(held(&shard, &read), []);
}

#[test]
fn an_index_built_during_writes_is_equal_to_its_function() {
    for seed in 0..6 {
        let bed = Bed::running();
        let shard = bed.shard();
        let mut chance = Chance(seed);
        for _ in 0..1500 {
            change(&shard, &mut chance, 3000);
        }
        // The first index is being built when the second is created.
        shard.set_indexes(IndexDefs { list: defs().list[..1].to_vec(), highest_assigned: A });
        let mut builder = IndexBuilder::new(shard.clone());
        builder.step().unwrap();
        shard.set_indexes(defs());
        let other = shard.clone();
        let writer = std::thread::spawn(move || {
            let mut chance = Chance(seed + 1000);
            (0..1500).for_each(|_| change(&other, &mut chance, 3000));
        });
        while builder.step().unwrap() != BuildStep::Done {}
        writer.join().unwrap();
        check(&shard, seed);
    }
}

#[test]
fn a_build_continues_after_a_crash() {
    for seed in 0..12 {
        let mut chance = Chance(seed);
        let mut bed = Bed::running();
        let shard = bed.shard();
        for _ in 0..2500 {
            change(&shard, &mut chance, 6000);
        }
        drop(shard);
        bed = bed.crash();
        let mut crashes = 0;
        loop {
            let shard = bed.shard();
            shard.set_indexes(defs());
            let mut builder = IndexBuilder::new(shard.clone());
            let looked_at = |shard: &Shard| match shard.index_build(A) {
                IndexBuild::Under { rows, .. } => rows,
                IndexBuild::Ready => u64::MAX,
            };
            let before = looked_at(&shard);
            let step = builder.step().unwrap();
            for _ in 0..20 {
                change(&shard, &mut chance, 6000);
            }
            // Some entries are on disk, some only in the log.
            if chance.below(3) == 0 {
                shard.sync().wait().unwrap();
                bed.replicas.engine().flush().unwrap();
            }
            if step == BuildStep::Done {
                check(&shard, seed);
                break;
            }
            shard.sync().wait().unwrap();
            assert!(looked_at(&shard) > before, "seed {seed}: a step makes progress");
            drop((builder, shard));
            bed = bed.crash();
            crashes += 1;
        }
        assert!(crashes > 2, "seed {seed}: the build took {crashes} crashes");
    }
}

#[test]
fn a_refused_step_of_a_build_is_not_skipped_over() {
    let bed = Bed::running();
    let shard = bed.shard();
    let mut chance = Chance(3);
    for _ in 0..1200 {
        change(&shard, &mut chance, 4000);
    }
    shard.set_indexes(defs());
    // The third entry of the build is refused; later ones depend on it.
    let next = bed.log.proposed();
    bed.log.refuse([next + 2]);
    let mut builder = IndexBuilder::new(shard.clone());
    let failed = std::thread::scope(|scope| {
        let build = scope.spawn(move || {
            loop {
                match builder.step() {
                    Ok(BuildStep::Done) => return false,
                    Ok(BuildStep::Rows(_)) => {}
                    Err(_) => return true,
                }
            }
        });
        // The builder waits for its oldest entries before it continues.
        while !build.is_finished() {
            bed.log.tell_refusals();
            std::thread::yield_now();
        }
        build.join().unwrap()
    });
    assert!(failed, "the builder gets the error");
    assert_ne!(shard.index_build(A), IndexBuild::Ready);
    shard.sync().wait().unwrap();
    build(&shard);
    check(&shard, 3);
}

#[test]
fn a_shard_that_does_not_know_an_index_of_its_group_writes_nothing() {
    let bed = Bed::running();
    let shard = bed.shard();
    shard.set_indexes(defs());
    build(&shard);
    let mut chance = Chance(1);
    (0..50).for_each(|_| change(&shard, &mut chance, 20));
    drop(shard);
    // As on another leader whose catalog is behind.
    let bed = bed.crash();
    let shard = bed.shard();
    shard.set_indexes(IndexDefs { list: defs().list[..1].to_vec(), highest_assigned: A });
    let write = || shard.write(&key(1), Durability::Soft, |_| (Decision::Put(Chance(2).row()), ()));
    let refused = matches!(write(), Err(WriteError::Definite { cause: WriteRefusal::IndexesBehind { .. } }));
    assert!(refused);
    // The catalog says that it was dropped: then it need not be maintained.
    shard.set_indexes(IndexDefs { highest_assigned: MULTI, list: defs().list[..1].to_vec() });
    write().unwrap().1.wait().unwrap();
    check(&shard, 1);
}

#[test]
fn an_index_not_registered_with_the_group_is_not_maintained_yet() {
    let bed = Bed::running();
    let shard = bed.shard();
    shard.set_indexes(defs());
    let mut chance = Chance(1);
    (0..100).for_each(|_| change(&shard, &mut chance, 20));
    drop(shard);
    // A node without known indexes leads for a while and writes nothing wrong.
    let bed = bed.crash();
    let shard = bed.shard();
    (0..100).for_each(|_| change(&shard, &mut chance, 20));
    shard.set_indexes(defs());
    build(&shard);
    (0..100).for_each(|_| change(&shard, &mut chance, 20));
    check(&shard, 1);
}

#[test]
fn unchanged_values_write_nothing() {
    let bed = Bed::running();
    let shard = bed.shard();
    shard.set_indexes(defs());
    build(&shard);
    let put = |n: i32| {
        let fields = [("a", Datum::from("same")), ("m", vec![1.into(), 1.into()].into()), ("n", n.into())];
        let row: Object = fields.into_iter().map(|(name, value)| (Text::from(name), value)).collect();
        shard.write(&key("row"), Durability::Soft, |_| (Decision::Put(row), ())).unwrap().1.wait().unwrap();
    };
    put(1);
    let entries = || -> BTreeMap<Vec<u8>, Vec<u8>> {
        let view = bed.replicas.engine().snapshot().unwrap();
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let mut scan = view.scan(engine::Space::Index, all, Direction::Ascending);
        let mut found = BTreeMap::new();
        while let Some((key, value)) = scan.next().unwrap() {
            found.insert(key.to_vec(), value.to_vec());
        }
        found
    };
    let before = entries();
    assert_eq!(before.len(), 2, "one entry for two equal values");
    put(2);
    assert_eq!(entries(), before);
    check(&shard, 0);
}

#[test]
fn a_group_with_predecessors_keeps_their_indexes_and_builds_the_rest() {
    for seed in 0..4 {
        let bed = Bed::running();
        let mut chance = Chance(seed);
        let cut = key(1500);
        let ranges = [
            KeyRange { start: KeyBound::Unbounded, end: KeyBound::Excluded(cut.clone()) },
            KeyRange { start: KeyBound::Included(cut), end: KeyBound::Unbounded },
        ];
        let old = [(5, &ranges[0]), (6, &ranges[1])];
        let old = old.map(|(group, range)| bed.shard_of(GroupId(group), range.clone()));
        let write = |chance: &mut Chance| {
            let key = key(chance.below(3000) as i32);
            let shard = old.iter().find(|shard| shard.range().contains(&key)).unwrap();
            let row = chance.row();
            shard.write(&key, Durability::Soft, |_| (Decision::Put(row), ())).unwrap().1.wait().unwrap();
        };
        (0..2000).for_each(|_| write(&mut chance));
        // One group has built the first index, the other has begun it, and the second is registered with neither.
        old.iter().for_each(|shard| {
            shard.set_indexes(IndexDefs { list: defs().list[..1].to_vec(), highest_assigned: A });
        });
        build(&old[0]);
        IndexBuilder::new(old[1].clone()).step().unwrap();
        (0..200).for_each(|_| write(&mut chance));
        for shard in &old {
            shard.set_seal_state(SealState::sealed(0)).wait().unwrap();
        }
        let before: Vec<Predecessor> = old
            .iter()
            .map(|shard| Predecessor { group: shard.group(), range: shard.range().clone() })
            .collect();
        let open = |group, range: &KeyRange, before: &[Predecessor]| {
            let (log, group) = (Arc::clone(&bed.log) as _, GroupId(group));
            Shard::open_after(&bed.replicas, log, TABLE, group, range.clone(), InitialConfig::Single, before)
                .unwrap()
        };
        let whole = open(9, &KeyRange::all(), &before);
        whole.set_indexes(defs());
        assert_eq!(whole.index_build(A), IndexBuild::Under { after: None, rows: 0 });
        (0..300).for_each(|_| change(&whole, &mut chance, 3000));
        build(&whole);
        check(&whole, seed);
        // A built index stays built when the range is split.
        whole.set_seal_state(SealState::sealed(1)).wait().unwrap();
        let before = [Predecessor { group: GroupId(9), range: KeyRange::all() }];
        for (group, range) in [(10, &ranges[0]), (11, &ranges[1])] {
            let shard_range = open(group, range, &before);
            shard_range.set_indexes(defs());
            check(&shard_range, seed);
        }
    }
}
