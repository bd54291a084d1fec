//! Binaries of stored functions, as clients give them to `index_create` and `set_write_hook`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use io::sim::Chance;
use reql::{IndexFunc, StoredFunc};

use super::{Outcome, Target};

/// Functions that a RethinkDB stored.
const INDEXES: &str = include_str!("../../../crates/reql/testdata/rethinkdb/index-functions.jsonl");
const HOOKS: &str = include_str!("../../../crates/reql/testdata/rethinkdb/write-hooks.jsonl");

/// The bytes behind the text of a function: a zero, its number, and the flags of an index.
const END_BYTES: usize = 7;

pub struct StoredFunction;

impl Target for StoredFunction {
    fn name(&self) -> &'static str {
        "stored_function"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let function = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            STANDARD.decode(line.get("function")?.as_str()?).ok()
        };
        let mut seeds: Vec<Vec<u8>> = INDEXES.lines().chain(HOOKS.lines()).filter_map(function).collect();
        for body in [
            r#"[170,[[10,[1]],"a"]]"#,
            r#"[24, [[10,[[1,1]]],[1,"a",0],1.0]]"#,
            r#"{"b":[1,[5]],"a":[1,{"$reql_type$":"x"}]}"#,
            "[64,[[69,[[2,[2]],[10,[2]]],{}],[10,[1]]],{}]",
        ] {
            let text = format!("[69,[[2,[1]],{body}]]");
            seeds.push([b"$reql_index_function$rekindle\x01\x03", text.as_bytes()].concat());
            seeds.push([b"$reql_write_hook_function$", text.as_bytes()].concat());
        }
        // `row => row["a"]`, of RethinkDB 2.0 and 2.1.
        let term = b"\x08\xaa\x01\x1a\x13\x08\x0a\x1a\x0f\x08\x01\x12\x0b\x08\x03\x19\0\0\0\0\0\0\xf0\x3f";
        let term = [&term[..], b"\x1a\x09\x08\x01\x12\x05\x08\x04\x22\x01a"].concat();
        for (version, backtrace) in [(5, &[2, 0, 0, 0, 0x0a, 0][..]), (6, &[8, 0, 0, 0])] {
            let head = [
                &b"$reql_index_function$"[..],
                &[version, 3, 3, 3][..],
                &[0; 6],
                &[1, 1, 0, 0, 0, 0, 0, 0, 0],
            ];
            let size = (term.len() as u32).to_le_bytes();
            seeds.push([&head.concat()[..], &size, &term, backtrace, &[0, 0]].concat());
        }
        seeds
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[
            b"$reql_index_function$",
            b"$reql_write_hook_function$",
            b"rekindle\x01",
            b"\x09\x07\x07\x07",
            b"\x06\x04\x04\x04",
            b"\x05\x03\x03\x03",
            b"\x01\0\0\0\0\0\0\0",
            b"\x01\0\0\0\x01\x03",
            b"\0\0\0\0",
            b"[1,5,0]",
            b"[13,8]",
            b"[10,[[1,1,0]],0]",
            b"[3,{\"a\":[1,1,0]},0]",
            b"[69,[[2,[[1,2,0]],0],",
            b",0]",
            b"[1,{\"a\":[1]},0]",
            b"\x0a\x04\x02\x01\x03\x03",
            b"\x0b\x05\x01\x01a\x03",
            b"\x06\x01a",
            b"\x0d",
            b"\x04\0\0\0\0\0\0\xf8\x3f",
            b"\x08\xaa\x01",
            b"\x1a\x02\x08\x0d",
            b"\xff\xff\xff\xff\x0f",
        ]
    }

    /// Corrects the size of the term tree.
    fn repair(&self, input: &mut Vec<u8>, _chance: &mut Chance) {
        let Some(start) = input.iter().position(|byte| *byte == b'[') else { return };
        let end = input.len().saturating_sub(END_BYTES);
        if let (Some(at), true) = (start.checked_sub(4), end > start) {
            let size = (end + 1 - start) as u32;
            input[end] = 0;
            input[at..start].copy_from_slice(&size.to_le_bytes());
        }
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let index = StoredFunc::of_index_binary(input);
        let hook = StoredFunc::of_hook_binary(input);
        match (index, hook) {
            (Ok(IndexFunc { function, flags }), _) => {
                let again =
                    StoredFunc::of_index_binary(&function.index_binary(flags)).expect("it was written here");
                assert_eq!(again.flags, flags);
                check_function(&function, &again.function);
                Outcome::of((
                    function.stored_binary().is_some(),
                    function.source().len() / 8,
                    flags.multi,
                    flags.geo,
                ))
            }
            (_, Ok(hook)) => {
                let again = StoredFunc::of_hook_binary(&hook.hook_binary()).expect("it was written here");
                check_function(&hook, &again);
                Outcome::of((hook.func().params.len(), hook.source().len() / 8))
            }
            (Err(index), Err(hook)) => {
                let stem = |message: String| Outcome::of_message(&message);
                Outcome::of((stem(index.message()), stem(hook.message())))
            }
        }
    }
}

/// A function is read as it was written, and its two parts can be stored.
fn check_function(function: &StoredFunc, again: &StoredFunc) {
    assert_eq!(function, again);
    let parsed = StoredFunc::parse(function.text().clone()).expect("its text is a function");
    let stored = match function.stored_binary() {
        Some(binary) => parsed.with_binary(binary.clone()),
        None => parsed,
    };
    assert_eq!(&stored, function);
}
