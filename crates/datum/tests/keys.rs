//! Keys: their order, their limits and the error messages, word for word.

#[allow(dead_code, reason = "each test file uses some of it")]
mod values;

use rekindle_datum::{Bytes, Datum, KeyBound, KeyRange, Object, PrimaryKey, Text, Time, key};
use values::Random;

const ROUNDS: u64 = 20_000;

/// A random value that is a legal key, or nearly one.
fn candidate(random: &mut Random, depth: usize) -> Datum {
    match random.below(if depth == 0 { 9 } else { 12 }) {
        0 => Datum::Bool(random.below(2) == 0),
        1 | 2 => Datum::Number(values::number(random)),
        3 => Datum::Binary(values::bytes(random)),
        4 => Datum::Time(values::time(random)),
        5 if random.below(4) == 0 => values::value(random, 1),
        5..9 => Datum::String(values::text(random)),
        _ => (0..random.below(4)).map(|_| candidate(random, depth - 1)).collect::<Vec<_>>().into(),
    }
}

#[test]
fn key_bytes_have_the_order_of_their_values() {
    let mut compared = 0;
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let (a, b) = (candidate(&mut random, 2), candidate(&mut random, 2));
        if let (Ok(key_a), Ok(key_b)) = (PrimaryKey::encode(&a), PrimaryKey::encode(&b)) {
            assert_eq!(key_a.cmp(&key_b), a.cmp(&b), "seed {seed}: {a:?} {b:?}");
            compared += 1;
        }
    }
    assert!(compared > ROUNDS / 3, "only {compared} pairs were keys");
}

#[test]
fn keys_decode_to_equal_values() {
    for seed in 0..ROUNDS {
        let value = candidate(&mut Random::new(seed), 2);
        if let Ok(key) = PrimaryKey::encode(&value) {
            assert_eq!(key.try_decode().as_ref(), Ok(&value), "seed {seed}");
            assert_eq!(key.decode(), value);
        }
    }
}

#[test]
fn every_value_has_a_place_among_keys() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let key = candidate(&mut random, 2);
        let bound = match random.below(6) {
            0 => values::value(&mut random, 2),
            1 => Datum::MinVal,
            2 => Datum::from(vec![Datum::MaxVal]),
            3 => Datum::from(vec![candidate(&mut random, 1), values::value(&mut random, 1)]),
            _ => candidate(&mut random, 2),
        };
        if let Ok(encoded) = PrimaryKey::encode(&key) {
            let place = key::bound_position(&bound);
            assert_eq!(place.cmp(&encoded), bound.cmp(&key), "seed {seed}: {bound:?} {key:?}");
        }
    }
}

#[test]
fn bytes_that_no_key_has_are_refused_and_all_others_encode_back() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let mut bytes: Vec<u8> = match PrimaryKey::encode(&candidate(&mut random, 2)) {
            Ok(key) => key.as_bytes().to_vec(),
            Err(_) => Vec::new(),
        };
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() + 1);
            bytes.insert(at, *random.pick(&[0, 1, 2, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x61, 0xFF]));
        }
        let key = PrimaryKey(Bytes::from(bytes));
        if let Ok(value) = key.try_decode() {
            match PrimaryKey::encode(&value) {
                Ok(again) => assert_eq!(again, key, "seed {seed}: {value:?}"),
                Err(error) => assert!(error.to_string().contains("too long"), "seed {seed}: {error}"),
            }
        } else {
            assert_eq!(key.decode(), Datum::Null);
        }
    }
}

#[track_caller]
fn refused(value: Datum, message: &str, is_null: bool) {
    let error = PrimaryKey::encode(&value).expect_err("not a key");
    assert_eq!(error.to_string(), message);
    assert_eq!(error.is_null(), is_null);
}

#[test]
fn values_without_a_key_get_the_reference_messages() {
    let object = Datum::Object([(Text::from("a"), Datum::from(1))].into_iter().collect::<Object>());
    refused(
        Datum::Null,
        "Primary keys must be either a number, string, bool, pseudotype or array (got type NULL):\nnull",
        true,
    );
    refused(
        object.clone(),
        "Primary keys must be either a number, string, bool, pseudotype or array (got type OBJECT):\n{\n\t\"a\":\t1\n}",
        false,
    );
    refused(
        Datum::from(vec![Datum::from(1), Datum::Null]),
        "Array keys can only contain numbers, strings, bools,  pseudotypes, or arrays (got null of type NULL).",
        true,
    );
    refused(
        Datum::from(vec![object]),
        "Array keys can only contain numbers, strings, bools,  pseudotypes, or arrays (got {\n\t\"a\":\t1\n} of type OBJECT).",
        false,
    );
    refused(
        Datum::from("a\0b\"é"),
        "String \"a\\x00b\\\"\\xc3\\xa9\" (truncated) contains NULL byte at offset 1 in index key.",
        false,
    );
    refused(
        Datum::from("x".repeat(128)),
        &format!("Primary key too long (max 127 characters): \"{}\"", "x".repeat(128)),
        false,
    );
    let geometry =
        "Cannot use a geometry value as a key value in a primary or non-geospatial secondary index.";
    refused(Datum::Geometry(Object::default()), geometry, false);
    refused(Datum::from(vec![Datum::Geometry(Object::default())]), geometry, false);
}

#[test]
fn a_bound_is_looked_at_as_far_as_the_reference_writes_it() {
    let bound = |items: Vec<Datum>| key::check_bound(&Datum::from(items));
    let behind = |text: usize, last: Datum| bound(vec![Datum::from("x".repeat(text)), last]);
    // One letter for the array, one for the string, and a NUL: 247 bytes of text take 250 bytes.
    assert!(behind(246, Datum::Null).is_err_and(|error| error.is_null()));
    assert!(behind(247, Datum::Null).is_ok());
    assert!(behind(245, Datum::from(vec![Datum::Null])).is_err());
    assert!(behind(246, Datum::from(vec![Datum::Null])).is_ok());
    assert!(bound([vec![Datum::from(1); 12], vec![Datum::Null]].concat()).is_err());
    assert!(bound([vec![Datum::from(1); 13], vec![Datum::Null]].concat()).is_ok());
    assert!(bound(vec![Datum::MinVal, Datum::from("a\0")]).is_err());
    assert!(bound(vec![Datum::MinVal, Datum::MaxVal]).is_ok());
    assert!(key::check_bound(&Datum::Object(Object::default())).is_err());
}

/// Whether an array of `copies` copies of `item` is a legal key.
fn fits(item: &Datum, copies: usize) -> bool {
    PrimaryKey::encode(&Datum::from(vec![item.clone(); copies])).is_ok()
}

#[test]
fn lengths_are_counted_as_the_reference_counts_them() {
    assert!(PrimaryKey::encode(&Datum::from("x".repeat(127))).is_ok());
    assert!(PrimaryKey::encode(&Datum::from("é".repeat(64))).is_err());
    assert!(PrimaryKey::encode(&Datum::Binary(Bytes::from(vec![7; 120]))).is_ok());
    assert!(PrimaryKey::encode(&Datum::Binary(Bytes::from(vec![7; 121]))).is_err());
    assert!(PrimaryKey::encode(&Datum::Binary(Bytes::from(vec![0; 61]))).is_err());
    // One letter for the array; for each item one letter, sixteen digits, `#`, the number, NUL.
    let number = |n: f64| Datum::Number(n);
    assert!(fits(&number(1.0), 6) && !fits(&number(1.0), 7));
    assert!(fits(&number(0.1), 3) && !fits(&number(0.1), 4));
    assert!(fits(&Datum::Time(Time::new(1.0, 0)), 4) && !fits(&Datum::Time(Time::new(1.0, 0)), 5));
    assert!(fits(&Datum::Bool(true), 42) && !fits(&Datum::Bool(true), 43));
    assert!(fits(&Datum::from("abc"), 25) && !fits(&Datum::from("abc"), 26));
}

#[test]
fn ranges_contain_the_keys_between_their_bounds() {
    let key = |n: i32| PrimaryKey::encode(&Datum::from(n)).expect("a number");
    let bounds = |n: i32| [KeyBound::Unbounded, KeyBound::Included(key(n)), KeyBound::Excluded(key(n))];
    let mut ranges = vec![KeyRange::all(), KeyRange::one(key(2))];
    for (low, high) in [(1, 3), (2, 2), (3, 1)] {
        for start in bounds(low) {
            for end in bounds(high) {
                ranges.push(KeyRange { start: start.clone(), end });
            }
        }
    }
    for a in &ranges {
        assert!(!a.is_empty() || (0..5).all(|n| !a.contains(&key(n))));
        for b in &ranges {
            for n in 0..5 {
                let both = a.contains(&key(n)) && b.contains(&key(n));
                assert_eq!(a.intersect(b).contains(&key(n)), both, "{a:?} {b:?} {n}");
            }
        }
    }
    assert!(KeyRange::one(key(2)).contains(&key(2)) && !KeyRange::one(key(2)).is_empty());
}

#[test]
fn values_without_an_index_key_get_the_reference_messages() {
    let array = |item: Datum| Datum::from(vec![Datum::from(1), item]);
    for (value, message) in [
        (
            Datum::Null,
            "Secondary keys must be a number, string, bool, pseudotype, or array (got null of type NULL).",
        ),
        (
            Datum::MinVal,
            "Secondary keys must be a number, string, bool, pseudotype, or array (got r.minval of type MINVAL).",
        ),
        (
            array(Datum::MaxVal),
            "Array keys can only contain numbers, strings, bools,  pseudotypes, or arrays (got r.maxval of type MAXVAL).",
        ),
        (
            array(Datum::Null),
            "Array keys can only contain numbers, strings, bools,  pseudotypes, or arrays (got null of type NULL).",
        ),
    ] {
        let error = key::secondary::encode(&value).expect_err("not a key");
        assert_eq!(error.to_string(), message);
        assert_eq!(error.is_null(), message.contains("null"));
    }
    assert!(key::secondary::encode(&Datum::from("a\0b")).is_ok_and(|key| !key.truncated));
    assert!(key::secondary::encode(&Datum::from("x".repeat(500))).is_ok_and(|key| key.truncated));
}

#[test]
fn index_keys_have_the_order_of_their_values_as_far_as_they_go() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let (a, b) = (candidate(&mut random, 2), candidate(&mut random, 2));
        let (Ok(key_a), Ok(key_b)) = (key::secondary::encode(&a), key::secondary::encode(&b)) else {
            continue;
        };
        let whole = !key_a.truncated && !key_b.truncated;
        let order = key_a.bytes.cmp(&key_b.bytes);
        if whole || order.is_ne() {
            assert_eq!(order, a.cmp(&b), "seed {seed}: {a:?} {b:?}");
        }
    }
}
