//! Stored rows.

use datum::{Bytes, CorruptRow, Datum, json, row};
use io::sim::Chance;

use super::{Outcome, Target, object};

pub struct Row;

const TEXT_LEN: std::ops::Range<usize> = 4..8;
const MEMBER_COUNT: std::ops::Range<usize> = 8..12;
const HEADER_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;

impl Target for Row {
    fn name(&self) -> &'static str {
        "row"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let long = format!(r#"{{"a":"{}","b":{{"c":[1,2]}}}}"#, "x".repeat(70_000));
        let texts = [
            r#"{}"#,
            r#"{"id":1}"#,
            r#"{"a":{"b":{"c":null}},"id":"k","list":[{"x":1},[2,{"y":"z"}]],"s":"text \"quoted\""}"#,
            r#"{"":0,"\n":1,"\"":2,"é":3}"#,
            r#"{"b":{"$reql_type$":"BINARY","data":"AAE="},"t":{"$reql_type$":"TIME","epoch_time":1,"timezone":"+00:00"}}"#,
            &long,
        ];
        texts
            .iter()
            .filter_map(|text| match json::parse(text.as_bytes()) {
                Ok(Datum::Object(object)) => Some(row::encode(&object)),
                _ => None,
            })
            .collect()
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\"",
            b"\\",
            b"\"a\":",
            b"{\"$reql_type$\":\"TIME\"}",
            b"{\"!\":1,\"$reql_type$\":\"x\"}",
            b"null",
            b"1e999",
            b"\\u0000",
            b"\xff",
            b"{\"a\":",
            b"\x01\0\0\0",
            b"\0\0",
            b"\xff\xff",
        ]
    }

    /// Sets fitting lengths and the checksum, mostly.
    fn repair(&self, input: &mut Vec<u8>, chance: &mut Chance) {
        if input.len() < HEADER_BYTES + CHECKSUM_BYTES {
            return;
        }
        if !chance.once_in(4) {
            input[0] = 1;
            input[1] = 0;
            let body = input.len() - HEADER_BYTES - CHECKSUM_BYTES;
            let entry = if input[2] & 1 == 1 { 8 } else { 4 };
            let members = chance.below(5.min(body / entry + 1));
            let text = body - members * entry;
            input[TEXT_LEN].copy_from_slice(&(text as u32).to_le_bytes());
            input[MEMBER_COUNT].copy_from_slice(&(members as u32).to_le_bytes());
        }
        let (checked, _) = input.split_at(input.len() - CHECKSUM_BYTES);
        let checksum = crc32c::crc32c(checked).to_le_bytes();
        let at = input.len() - CHECKSUM_BYTES;
        input[at..].copy_from_slice(&checksum);
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let bytes = Bytes::copy_from_slice(input);
        let text_len = row::json(&bytes).len();
        let object = match row::decode(bytes) {
            Ok(object) => object,
            Err(CorruptRow::Checksum { .. }) => return Outcome::of("checksum"),
            Err(CorruptRow::Length { .. }) => return Outcome::of("length"),
            Err(other) => return Outcome::of(other.to_string().len()),
        };
        // The row is sound if encoding its own text gives the same bytes.
        let text = Datum::from(object.clone());
        let mut printed = Vec::new();
        text.write_json(&mut printed);
        assert_eq!(printed.len(), text_len);
        let sound = match json::parse(&printed) {
            Ok(Datum::Object(read)) => row::encode(&read) == input,
            _ => false,
        };
        object::check_object(&object, sound);
        Outcome::of((sound, object.len().min(6), object.iter().count().min(6), text_len.min(100) / 10))
    }
}
