//! Properties of all values, checked on seeded random ones.

#[allow(dead_code, reason = "each test file uses some of it")]
mod values;

use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};

use rekindle_datum as datum;

use datum::{Bytes, Datum, Kind, Object, Text, json, pseudo, row};
use values::Random;

const ROUNDS: u64 = 8_000;

/// Runs `law` on many seeds; a failure names its seed.
fn for_seeds(law: impl Fn(&mut Random)) {
    for seed in 0..ROUNDS {
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| law(&mut Random::new(seed))));
        if let Err(panic) = run {
            eprintln!("failing seed: {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Also compares properties that the order ignores: zones, signs of zeros, kinds.
#[track_caller]
fn assert_same(a: &Datum, b: &Datum) {
    assert_eq!(a.kind(), b.kind());
    assert_eq!(a, b);
    assert_eq!(a.to_json_string(), b.to_json_string());
}

#[test]
fn printed_values_read_back_as_themselves() {
    for_seeds(|random| {
        let value = values::value(random, 3);
        let text = Text::from(value.to_json_string());
        assert_same(&json::parse(text.as_bytes()).expect("canonical"), &value);
        assert_same(&json::parse_shared(&text).expect("canonical"), &value);
    });
}

#[test]
fn values_are_read_alike_however_they_are_spelled() {
    for_seeds(|random| {
        let value = values::value(random, 4);
        let mut text = String::new();
        values::scrambled(&value, random, &mut text);
        let read = json::parse(text.as_bytes()).expect("valid JSON");
        assert_same(&read, &value);
        if let (Datum::Object(read), Datum::Object(tree)) = (read, value) {
            let stored = row::decode(row::encode_shared(&read)).expect("a row");
            assert_eq!(row::encode(&stored), row::encode(&tree), "{text}");
        }
    });
}

#[test]
fn compact_text_agrees_with_serde_json() {
    for_seeds(|random| {
        let value = values::value(random, 3);
        let text = value.to_json_string();
        let oracle: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
        let again = json::parse(oracle.to_string().as_bytes()).expect("valid JSON");
        assert_same(&again, &value);
        let spread = serde_json::to_vec_pretty(&oracle).expect("printable");
        assert_same(&json::parse(&spread).expect("valid JSON"), &value);
        let pretty: serde_json::Value = serde_json::from_str(&value.pretty()).expect("valid JSON");
        assert_eq!(pretty, oracle);
    });
}

#[test]
fn a_row_reads_as_the_object_it_was_made_of() {
    for_seeds(|random| {
        let tree = values::object(random, 3);
        let bytes = Bytes::from(row::encode(&tree));
        let stored = row::decode(bytes.clone()).expect("a row just written");
        assert_same(&stored.clone().into(), &tree.clone().into());
        assert_eq!(row::json(&bytes), Datum::from(tree.clone()).to_json_string().as_bytes());
        assert_eq!(stored.len(), tree.len());
        assert_eq!(stored.is_empty(), tree.is_empty());
        assert_eq!(stored.keys().collect::<Vec<_>>(), tree.keys().collect::<Vec<_>>());
        for ((key, value), (stored_key, stored_value)) in tree.iter().zip(stored.iter()) {
            assert_eq!(key, stored_key);
            assert_same(&stored_value, &value);
            assert_same(&stored.get(&key).expect("present"), &value);
            assert!(stored.contains_key(&key));
        }
        let absent = values::text(random);
        assert_eq!(stored.contains_key(&absent), tree.contains_key(&absent));
        assert_eq!(stored.get(&absent).is_some(), tree.get(&absent).is_some());
        assert_same(&stored.to_tree().into(), &tree.clone().into());
        assert_same(&stored.to_builder().build().into(), &tree.clone().into());
        assert_eq!(row::encode(&stored), row::encode(&tree));
        inner_text_reads_as_trees(&tree, &stored);
    });
}

/// Checks the same for objects inside the row, whose stored form is text only.
fn inner_text_reads_as_trees(tree: &Object, stored: &Object) {
    for (key, value) in tree.iter() {
        let (Datum::Object(inner), Some(Datum::Object(text))) = (&value, stored.get(&key)) else { continue };
        assert_eq!(text.len(), inner.len());
        for (key, value) in inner.iter() {
            assert_same(&text.get(&key).expect("present"), &value);
        }
        assert!(!text.contains_key("no such key"));
        assert_eq!(row::encode(&text), row::encode(inner));
        inner_text_reads_as_trees(inner, &text);
    }
}

#[test]
fn changed_rows_are_refused() {
    for_seeds(|random| {
        let mut bytes = row::encode(&values::object(random, 2));
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        assert!(row::decode(Bytes::from(bytes.clone())).is_err(), "changed at {at}");
        bytes.truncate(at);
        assert!(row::decode(Bytes::from(bytes)).is_err(), "cut at {at}");
    });
}

#[test]
fn the_order_is_total_and_hashes_agree_with_it() {
    let hashes = RandomState::new();
    for_seeds(|random| {
        let mut pick = || match random.below(20) {
            0 => Datum::MinVal,
            1 => Datum::MaxVal,
            _ => values::value(random, 2),
        };
        let (a, b, c) = (pick(), pick(), pick());
        assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        if a <= b && b <= c {
            assert!(a <= c, "{a:?} {b:?} {c:?}");
        }
        assert_eq!(a.cmp(&a.clone()), Ordering::Equal);
        if a == b {
            assert_eq!(hashes.hash_one(&a), hashes.hash_one(&b), "{a:?} {b:?}");
        }
        assert!(Datum::MinVal <= a && a <= Datum::MaxVal);
    });
}

#[test]
fn stored_text_compares_and_hashes_as_its_tree() {
    let hashes = RandomState::new();
    for_seeds(|random| {
        let trees = [values::object(random, 2), values::object(random, 2)];
        let rows = trees.clone().map(|tree| row::decode(row::encode(&tree).into()).expect("a row"));
        assert_eq!(rows[0].cmp(&rows[1]), trees[0].cmp(&trees[1]));
        assert_eq!(rows[0].cmp(&trees[1]), trees[0].cmp(&trees[1]));
        assert_eq!(trees[0].cmp(&rows[0]), Ordering::Equal);
        assert_eq!(hashes.hash_one(&rows[0]), hashes.hash_one(&trees[0]));
    });
}

#[test]
fn pseudotypes_equal_their_parsed_objects() {
    for_seeds(|random| {
        let value = values::value(random, 0);
        if let Some(object) = pseudo::to_object(&value) {
            assert_same(&pseudo::from_object(object).expect("well made"), &value);
        }
    });
}

#[test]
fn kinds_are_ordered_by_name() {
    let shape = Datum::Geometry(Object::default());
    let in_order = [
        Datum::MinVal,
        Datum::empty_array(),
        Datum::Bool(false),
        Datum::Bool(true),
        Datum::Null,
        Datum::from(-1),
        Datum::from(0),
        Datum::Object(Object::default()),
        shape,
        Datum::Object([(Text::from("a"), Datum::Null)].into_iter().collect()),
        Datum::Binary(Bytes::new()),
        Datum::Time(datum::Time::new(0.0, 0)),
        Datum::from(""),
        Datum::MaxVal,
    ];
    assert!(in_order.is_sorted_by(|a, b| a < b));
    assert_eq!(Datum::from(0.0), Datum::from(-0.0));
    assert_eq!(Datum::Time(datum::Time::new(5.0, 60)), Datum::Time(datum::Time::new(5.0, -60)));
    assert_eq!(Datum::MinVal.kind(), Kind::MinVal);
}

#[test]
fn detached_values_are_the_same_and_share_nothing() {
    for_seeds(|random| {
        let tree = values::object(random, 3);
        let stored = row::decode(row::encode(&tree).into()).expect("a row");
        for object in [&tree, &stored] {
            let detached = object.detach();
            assert_same(&detached.clone().into(), &tree.clone().into());
            for (before, after) in object.iter().zip(detached.iter()) {
                if let (Datum::String(a), Datum::String(b)) = (&before.1, &after.1) {
                    assert!(a.is_empty() || a.as_ptr() != b.as_ptr());
                }
            }
        }
    });
}

#[test]
fn changed_rows_are_rows_of_the_changed_object() {
    for_seeds(|random| {
        let tree = values::object(random, 2);
        let stored = row::decode(row::encode(&tree).into()).expect("a row");
        let mut changes = Vec::new();
        for _ in 0..random.below(5) {
            let key = match tree.keys().nth(random.below(8)) {
                Some(key) => key,
                None => values::text(random),
            };
            let value = (random.below(3) > 0).then(|| match random.below(30) {
                0 => Datum::MaxVal,
                _ => values::value(random, 1),
            });
            changes.push((key, value));
        }
        let mut builder = tree.to_builder();
        for (key, value) in changes.clone() {
            match value {
                Some(value) => builder.insert(key, value),
                None => builder.remove(&key),
            };
        }
        let expected = Datum::from(builder.build());
        assert_same(&tree.with_changes(changes.clone()).into(), &expected);
        let changed = stored.with_changes(changes);
        assert_same(&changed.clone().into(), &expected);
        if expected.not_json().is_none() {
            let again = row::decode(row::encode_shared(&changed)).expect("a row");
            assert_same(&again.into(), &expected);
        }
    });
}

#[test]
fn builders_take_keys_in_any_order() {
    for_seeds(|random| {
        let mut builder = datum::ObjectBuilder::new();
        let mut model = std::collections::BTreeMap::new();
        for _ in 0..random.below(200) {
            let key = Text::from(format!("{}", random.below(150)));
            if random.below(4) == 0 {
                assert_eq!(builder.remove(&key), model.remove(&key));
            } else {
                let value = Datum::from(random.below(9) as i32);
                assert_eq!(builder.insert(key.clone(), value.clone()), model.insert(key.clone(), value));
            }
            assert_eq!(builder.get(&key), model.get(&key));
            assert_eq!(builder.len(), model.len());
        }
        let built: Vec<_> = builder.build().iter().collect();
        assert_eq!(built, model.into_iter().collect::<Vec<_>>());
    });
}
