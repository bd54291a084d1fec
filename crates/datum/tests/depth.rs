//! Values nested deeper than any stack, and documents of the largest size allowed.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rekindle_datum::cancel::{self, CancelToken};
use rekindle_datum::{Bytes, Datum, Object, PrimaryKey, Text, deep, json, key, row};

const DEPTH: usize = 20_000;

/// Runs `work` on a stack too small for plain recursion to this depth.
fn on_a_small_stack(work: fn()) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(work).expect("thread");
    thread.join().expect("no panic");
}

fn deep_array() -> Datum {
    (0..DEPTH).fold(Datum::Null, |inner, _| Datum::from(vec![inner]))
}

fn deep_object() -> Datum {
    (0..DEPTH)
        .fold(Datum::Null, |inner, _| Datum::Object([(Text::from_static("a"), inner)].into_iter().collect()))
}

#[test]
fn deep_values_are_printed_read_compared_hashed_and_dropped() {
    on_a_small_stack(|| {
        for value in [deep_array(), deep_object()] {
            let text = value.to_json_string();
            let read = json::parse(text.as_bytes()).expect("deep JSON");
            assert!(read == value);
            assert!(value.not_json().is_none());
            let hashes = RandomState::new();
            assert_eq!(hashes.hash_one(&read), hashes.hash_one(&value));
            assert!(value.pretty().len() > text.len());
            assert_eq!(value.truncated().len(), 300);
        }
    });
}

/// Neither reading a value nor dropping it needs stack.
#[test]
fn text_of_half_a_million_levels_is_read_and_freed() {
    on_a_small_stack(|| {
        const LEVELS: usize = 500_000;
        for (before, after) in [("[", "]"), ("{\"a\":", "}")] {
            let text = [before.repeat(LEVELS), "1".to_owned(), after.repeat(LEVELS)].concat();
            drop(json::parse(text.as_bytes()).expect("deep JSON"));
            let unfinished = json::parse(before.repeat(LEVELS).as_bytes());
            assert!(matches!(unfinished, Err(json::JsonError::Syntax { .. })));
        }
    });
}

#[test]
fn reading_ends_when_it_is_cancelled() {
    for text in [format!("[{}1]", "1,".repeat(100_000)), "[".repeat(100_000)] {
        let asked = Cell::new(0);
        let go_on = || asked.replace(asked.get() + 1) < 2;
        assert_eq!(json::parse_while(&Text::from(text), &go_on), Err(json::JsonError::Cancelled));
        assert_eq!(asked.get(), 3);
    }
}

/// Is cancelled when a walk goes too deep.
#[derive(Default)]
struct Shallow(AtomicBool);

impl CancelToken for Shallow {
    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn cancel_too_deep(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A walk whose levels take much stack, whatever the compiler makes of them.
fn descend(levels: usize) -> u8 {
    let room = black_box([0_u8; 16 << 10]);
    let below = match levels.checked_sub(1) {
        Some(left) if cancel::may_continue(1) => deep::level(|| descend(left)),
        _ => 0,
    };
    below | black_box(&room)[0]
}

#[test]
fn cancellable_walks_end_before_they_take_all_stack() {
    on_a_small_stack(|| {
        let token = Arc::new(Shallow::default());
        let _cancel_scope = cancel::scope(Some(token.clone()));
        assert!(descend(10_000) == 0 && !token.is_cancelled());
        assert!(descend(1_000_000) == 0 && token.is_cancelled());
    });
}

#[test]
fn deep_rows_are_written_and_read() {
    on_a_small_stack(|| {
        let tree: Object = [("array", deep_array()), ("object", deep_object())]
            .into_iter()
            .map(|(k, v)| (Text::from(k), v))
            .collect();
        let stored = row::decode(Bytes::from(row::encode(&tree))).expect("a row");
        assert!(stored == tree);
        assert!(stored.get("array") == tree.get("array"));
        assert!(stored.to_tree() == tree);
        let mut level = stored.get("object");
        for _ in 0..50 {
            let Some(Datum::Object(object)) = level else { panic!("an object inside") };
            level = object.get("a");
        }
    });
}

#[test]
fn deep_values_are_refused_as_keys_or_placed_among_them() {
    on_a_small_stack(|| {
        let deep = deep_array();
        assert!(PrimaryKey::encode(&deep).is_err());
        assert!(key::bound_position(&deep).as_bytes().len() > DEPTH);
        assert!(key::secondary::encode(&deep).is_ok_and(|key| key.truncated));
        let nested = PrimaryKey(vec![0x10; DEPTH].into());
        assert!(nested.try_decode().is_err());
    });
}

#[test]
fn large_documents_are_stored_and_read() {
    let start = Instant::now();
    let words = "the quick brown fox. ".repeat(50_000);
    let tree: Object = (0..16)
        .map(|i| (Text::from(format!("field{i:02}")), Datum::from(words.as_str())))
        .chain([(Text::from_static("list"), (0..100_000).map(Datum::from).collect::<Vec<_>>().into())])
        .collect();
    let bytes = Bytes::from(row::encode(&tree));
    assert!(bytes.len() > 16 << 20);
    let stored = row::decode(bytes).expect("a row");
    assert_eq!(stored.get("field15"), Some(Datum::from(words)));
    assert!(stored == tree);
    println!("16 MB document written, read and compared in {:?}", start.elapsed());
}

#[test]
fn many_members_in_any_order_take_no_quadratic_time() {
    let members = 200_000_u64;
    let text: Vec<String> =
        (0..members).map(|i| format!("\"{}\":1", i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let text = format!("{{{}}}", text.join(","));
    let start = Instant::now();
    let Ok(Datum::Object(object)) = json::parse(text.as_bytes()) else { panic!("an object") };
    assert_eq!(object.len() as u64, members);
    let stored = row::decode(row::encode(&object).into()).expect("a row");
    assert!(stored.iter().all(|(key, _)| stored.contains_key(&key)));
    println!("{members} members read, stored and found in {:?}", start.elapsed());
}
