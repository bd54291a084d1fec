//! Tests of the row cache.

use super::*;
use datum::{Datum, Text};

fn row(n: f64) -> Object {
    [(Text::from("n"), Datum::Number(n))].into_iter().collect()
}

fn found(cache: &RowCache, key: &[u8]) -> Option<Object> {
    match cache.find(key) {
        CacheLookup::Row(row) => Some(row),
        CacheLookup::Missing(_) => None,
    }
}

fn permit(cache: &RowCache, key: &[u8]) -> FillPermit {
    match cache.find(key) {
        CacheLookup::Row(_) => panic!("the row is there already"),
        CacheLookup::Missing(permit) => permit,
    }
}

#[test]
fn a_row_is_kept_until_it_changes() {
    let cache = RowCache::new(1 << 20);
    cache.keep(&permit(&cache, b"k"), b"k", &row(1.0), 20);
    assert_eq!(found(&cache, b"k"), Some(row(1.0)));
    let changing = cache.begin_change(b"k", Some(20));
    assert_eq!(found(&cache, b"k"), None);
    cache.end_change(&changing, || Some((row(2.0), 20)));
    assert_eq!(found(&cache, b"k"), Some(row(2.0)));
    let changing = cache.begin_change(b"k", None);
    cache.end_change(&changing, || None);
    assert_eq!(found(&cache, b"k"), None);
    assert_eq!((cache.stats().rows, cache.stats().bytes), (0, 0));
}

#[test]
fn a_row_that_is_found_is_shown() {
    let cache = RowCache::new(64 << 20);
    let large: Object = [(Text::from("t"), Datum::String(Text::from("x".repeat(LOCKED_READ_BYTES_MAX))))]
        .into_iter()
        .collect();
    for (key, row) in [(b"k", row(1.0)), (b"l", large)] {
        let Err((permit, read_row)) = cache.with_row(key, |row| row.cloned()) else {
            panic!("nothing is here")
        };
        assert_eq!(read_row(None), None);
        cache.keep(&permit, key, &row, row.json_size());
        assert_eq!(cache.with_row(key, |row| row.cloned()).ok(), Some(Some(row)));
    }
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (2, 2));
}

#[test]
fn a_row_that_is_written_is_kept_where_there_is_room() {
    let cache = RowCache::new(4 << 20);
    let mut before = cache.stats();
    for n in 0..50_000_u32 {
        let changing = cache.begin_change(&n.to_be_bytes(), Some(1000));
        assert_eq!(found(&cache, &n.to_be_bytes()), None);
        cache.end_change(&changing, || Some((row(f64::from(n)), 1000)));
        let after = cache.stats();
        assert!(after.rows >= before.rows, "row {n} took the place of another");
        before = after;
    }
    assert!(before.bytes <= 4 << 20 && before.bytes > 3 << 20, "{before:?}");
    assert_eq!(found(&cache, &0_u32.to_be_bytes()), Some(row(0.0)));
    assert_eq!(found(&cache, &49_999_u32.to_be_bytes()), None);
}

#[test]
fn of_changes_together_the_last_is_shown_and_none_before() {
    let cache = RowCache::new(1 << 20);
    let new = |n| move || Some((row(n), 20));
    let (first, second) = (cache.begin_change(b"k", Some(20)), cache.begin_change(b"k", Some(20)));
    cache.end_change(&first, new(1.0));
    assert_eq!(found(&cache, b"k"), None, "the engine has the second already");
    cache.end_change(&second, new(2.0));
    assert_eq!(found(&cache, b"k"), Some(row(2.0)));

    let (put, delete) = (cache.begin_change(b"k", Some(20)), cache.begin_change(b"k", None));
    cache.end_change(&put, new(3.0));
    cache.end_change(&delete, || None);
    assert_eq!(found(&cache, b"k"), None);

    let (delete, put) = (cache.begin_change(b"k", None), cache.begin_change(b"k", Some(20)));
    cache.end_change(&delete, || None);
    assert_eq!(found(&cache, b"k"), None);
    cache.end_change(&put, new(4.0));
    assert_eq!(found(&cache, b"k"), Some(row(4.0)));
}

#[test]
fn a_row_that_changes_keeps_its_place_while_others_go() {
    let cache = RowCache::new(1 << 20);
    let changing = cache.begin_change(b"k", Some(20));
    cache.resize(0);
    cache.resize(1 << 20);
    for n in 0..10_000_u32 {
        let other = cache.begin_change(&n.to_be_bytes(), Some(500));
        cache.end_change(&other, || Some((row(0.0), 500)));
    }
    cache.end_change(&changing, || Some((row(1.0), 20)));
    assert_eq!(found(&cache, b"k"), Some(row(1.0)));
    // A failed change leaves nothing in the cache.
    let failed = cache.begin_change(b"k", Some(20));
    cache.end_change(&failed, || None);
    assert_eq!(found(&cache, b"k"), None);
}

#[test]
fn what_was_read_before_a_change_is_not_kept_after() {
    let cache = RowCache::new(1 << 20);
    let before = permit(&cache, b"k");
    let changing = cache.begin_change(b"k", None);
    let during = permit(&cache, b"k");
    cache.keep(&before, b"k", &row(1.0), 20);
    // The old row, read while others may already read the new one.
    cache.keep(&during, b"k", &row(1.0), 20);
    assert_eq!(found(&cache, b"k"), None);
    cache.end_change(&changing, || None);
    cache.keep(&during, b"k", &row(1.0), 20);
    assert_eq!(found(&cache, b"k"), None);
    cache.keep(&permit(&cache, b"k"), b"k", &row(2.0), 20);
    assert_eq!(found(&cache, b"k"), Some(row(2.0)));
}

#[test]
fn used_rows_stay_and_the_bound_holds() {
    let cache = RowCache::new(4 << 20);
    let name = |n: u32| n.to_be_bytes();
    for n in 0..50_000_u32 {
        cache.keep(&permit(&cache, &name(n)), &name(n), &row(0.0), 1000);
        // A few rows are read all the time.
        for hot in 0..n.min(5) {
            found(&cache, &name(hot));
        }
    }
    let stats = cache.stats();
    assert!(stats.bytes <= 4 << 20 && stats.bytes > 3 << 20, "{stats:?}");
    assert!((2000..4200).contains(&stats.rows), "{stats:?}");
    for hot in 0..5 {
        assert!(found(&cache, &name(hot)).is_some(), "row {hot} was used and went");
    }
    for partition in &cache.partitions {
        assert!(partition.lock().is_sound());
    }
}

/// The share of hits among reads of rows with a skewed popularity, whose rows are ten times as many as fit. After
/// each of them, `swept` rows are read that are never read again.
fn hit_share(swept: u32, admits_all: bool) -> f64 {
    let (cache, row) = (RowCache::new(4 << 20), row(0.0));
    for partition in &cache.partitions {
        partition.lock().admits_all = admits_all;
    }
    let read = |key: u32| match cache.find(&key.to_be_bytes()) {
        CacheLookup::Row(_) => true,
        CacheLookup::Missing(permit) => {
            cache.keep(&permit, &key.to_be_bytes(), &row, 1000);
            false
        }
    };
    let (mut seed, mut once, mut hits) = (7_u64, 1 << 30, 0);
    const READS: u32 = 300_000;
    for n in 0..2 * READS {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (seed >> 11) as f64 / (1_u64 << 53) as f64;
        // The density is that of Zipf's law with the exponent 1.
        let rank = 36_000_f64.powf(uniform) as u32;
        hits += u32::from(read(rank) && n >= READS);
        for _ in 0..swept {
            once += 1;
            read(once);
        }
    }
    f64::from(hits) / f64::from(READS)
}

#[test]
fn rows_that_are_read_once_do_not_displace_others() {
    let shares = [0, 1, 8].map(|swept| [true, false].map(|admits_all| hit_share(swept, admits_all)));
    println!("hits with 0, 1 and 8 rows swept after each read, all admitted and not: {shares:.3?}");
    let [[alone_before, alone], _, [swept_before, swept]] = shares;
    assert!(alone >= alone_before, "{shares:?}");
    assert!(swept > alone - 0.1 && swept > swept_before + 0.1, "{shares:?}");
}

#[test]
fn a_huge_row_is_not_kept() {
    let cache = RowCache::new(1 << 20);
    cache.keep(&permit(&cache, b"k"), b"k", &row(1.0), 1 << 20);
    assert_eq!(found(&cache, b"k"), None);
}

#[test]
fn a_cache_grows_and_shrinks() {
    let cache = RowCache::new(0);
    let fill = || {
        for n in 0..10_000_u32 {
            if let CacheLookup::Missing(permit) = cache.find(&n.to_be_bytes()) {
                cache.keep(&permit, &n.to_be_bytes(), &row(0.0), 1000);
            }
        }
        cache.stats().bytes
    };
    assert!(cache.is_off());
    assert_eq!(fill(), 0);
    cache.resize(8 << 20);
    assert!(fill() > 7 << 20);
    cache.resize(4 << 20);
    let left = cache.stats();
    assert!(left.bytes <= 4 << 20 && left.bytes > 3 << 20, "{left:?}");
    cache.resize(0);
    assert_eq!((cache.stats().bytes, cache.stats().rows), (0, 0));
    assert_eq!(fill(), 0);
}
