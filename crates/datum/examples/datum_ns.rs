//! Prints the cost of common operations on values, in nanoseconds.
//!
//! `cargo run --release -p rekindle-datum --example datum_ns`

use std::hint::black_box;
use std::time::Instant;

use rekindle_datum::{Bytes, Datum, Object, PrimaryKey, Text, json, row};

/// Rounds of every measurement. The best round counts, so that load from other programs does not distort it.
const ROUNDS: u32 = 40;

/// Prints the best of several rounds of `work`, per call.
fn time<R>(name: &str, calls: u32, mut work: impl FnMut() -> R) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS.max(100 / calls) {
        let start = Instant::now();
        for _ in 0..calls {
            black_box(work());
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    println!("{name:<56} {best:>12.1} ns");
    best
}

fn throughput(name: &str, bytes: usize, mut work: impl FnMut()) {
    let ns = time(name, 1, &mut work);
    println!("{:<56} {:>12.0} MB/s", "", bytes as f64 * 1000.0 / ns);
}

/// The document of the key-value workloads: ten fields of a hundred bytes and an id.
fn document() -> Object {
    let field = |i: usize| {
        let text: String = (0..100).map(|j| char::from(b'a' + ((i * 31 + j * 7) % 26) as u8)).collect();
        (Text::from(format!("field{i}")), Datum::from(text))
    };
    (0..10).map(field).chain([(Text::from("id"), Datum::from("user6284781860667377211"))]).collect()
}

fn blocks() -> Vec<(&'static str, String)> {
    let text = "In the beginning. ".repeat(5_000);
    let strings = (0..10).map(|i| format!("\"field{i}\":\"{text}\"")).collect::<Vec<_>>();
    let order = r#"{"id":"a81bc81b","qty":17,"price":12.95,"tags":["new","sale"],"to":{"city":"Lyon","zip":"69001"}}"#;
    let numbers = (0..150_000).map(|i| format!("{}", i * 7919 % 100_003)).collect::<Vec<_>>();
    let transaction = |i: usize| {
        let hash = format!("{:064x}", i * 7_919);
        format!(
            r#"{{"id":"{hash}","transaction":{{"condition":"{hash}","data":{{"hash":"{hash}","payload":null}},"fulfillments":[{{"condition":{{"uri":"cc:4:20:{hash}:96"}},"fid":0,"input":null}}],"operation":"CREATE","timestamp":"1460450439"}},"version":1}}"#
        )
    };
    let transactions: Vec<_> = (0..1_700).map(transaction).collect();
    vec![
        ("a block of transactions", format!(r#"{{"id":"b","transactions":[{}]}}"#, transactions.join(","))),
        ("ten 90 KB strings", format!("{{{}}}", strings.join(","))),
        ("9000 small objects", format!("[{}]", vec![order; 9_000].join(","))),
        ("150000 integers", format!("[{}]", numbers.join(","))),
        ("escaped text", format!("[{}]", vec![r#""line one\nline \"two\" of the text""#; 25_000].join(","))),
    ]
}

fn main() {
    println!("Datum {} bytes, Object {}", size_of::<Datum>(), size_of::<Object>());
    let tree = document();
    let bytes = Bytes::from(row::encode(&tree));
    let stored = row::decode(bytes.clone()).expect("a row");
    println!("row of {} bytes, {} of them text", bytes.len(), row::json(&bytes).len());

    let long = stored.get("field3").expect("a field");
    time("clone a string", 50_000, || long.clone());
    let whole = Datum::from(stored.clone());
    time("clone a stored row", 50_000, || whole.clone());
    let tree_datum = Datum::from(tree.clone());
    time("clone a tree", 50_000, || tree_datum.clone());
    let number = Datum::from(7);
    time("clone a number", 50_000, || number.clone());

    time("row: decode", 10_000, || row::decode(bytes.clone()));
    time("row: get a field of 100 bytes", 10_000, || stored.get("field7"));
    time("row: get an absent field", 10_000, || stored.get("nothing"));
    time("row: contains_key", 10_000, || stored.contains_key("field7"));
    time("row: read every field", 2_000, || stored.iter().count());
    time("row: to_builder, one change, encode", 2_000, || {
        let mut builder = stored.to_builder();
        builder.insert(Text::from_static("field3"), long.clone());
        row::encode(&builder.build())
    });
    time("row: with one change, encode", 2_000, || {
        let changed = stored.with_changes(vec![(Text::from_static("field3"), Some(long.clone()))]);
        row::encode_shared(&changed)
    });
    time("row: encode a tree", 5_000, || row::encode(&tree));
    let mut out = Vec::with_capacity(4096);
    time("row: write_json", 10_000, || {
        out.clear();
        stored.write_json(&mut out);
    });
    time("tree: write_json", 5_000, || {
        out.clear();
        tree.write_json(&mut out);
    });
    time("tree: get", 10_000, || tree.get("field7"));
    let text = Text::from(tree_datum.to_json_string());
    time("parse the document", 2_000, || json::parse(text.as_bytes()));
    time("parse the document, shared", 2_000, || json::parse_shared(&text));
    time("key: encode a string", 10_000, || PrimaryKey::encode(&Datum::String(text.slice_ref(&text[..20]))));
    time("key: encode a number", 10_000, || PrimaryKey::encode(&number));

    for (name, block) in blocks() {
        let block = Text::from(block);
        throughput(&format!("parse {} KB: {name}", block.len() / 1000), block.len(), || {
            black_box(json::parse(block.as_bytes())).expect("JSON");
        });
        throughput("   the same, shared", block.len(), || {
            black_box(json::parse_shared(&block)).expect("JSON");
        });
        throughput("   serde_json, for comparison", block.len(), || {
            black_box(serde_json::from_str::<serde_json::Value>(&block)).expect("JSON");
        });
    }
}
