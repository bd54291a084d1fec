//! Key bytes to values and values to key bytes.

use datum::{Bytes, Datum, PrimaryKey, json, key};

use super::{Outcome, Target, stem};

pub struct Key;

impl Target for Key {
    fn name(&self) -> &'static str {
        "key"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let texts = [
            "1",
            "-2.5",
            "true",
            "\"abc\"",
            "[1,\"a\",[false,\"b\"]]",
            r#"{"$reql_type$":"TIME","epoch_time":5.5,"timezone":"Z"}"#,
            r#"[{"$reql_type$":"BINARY","data":"AAECAw=="},"x"]"#,
            "[[[]],[\"a\"],null]",
            "{\"a\":1}",
        ];
        let keys = texts.iter().filter_map(|text| {
            let value = json::parse(text.as_bytes()).ok()?;
            Some(PrimaryKey::encode(&value).ok()?.as_bytes().to_vec())
        });
        keys.chain(texts.iter().map(|text| text.as_bytes().to_vec())).collect()
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[
            b"\x00",
            b"\x01",
            b"\x02",
            b"\x10",
            b"\x20",
            b"\x21",
            b"\x30",
            b"\x40",
            b"\x50",
            b"\x60",
            b"\xff",
            b"\x01\x01",
            b"\x01\x02",
            b"\x10\x00",
            b"\x80\0\0\0\0\0\0\0",
            b"\x7f\xf0\0\0\0\0\0\0",
            b"[",
            b"]",
            b",",
            b"\"a\"",
            b"null",
            b"1e9",
            b"{\"$reql_type$\":\"BINARY\",\"data\":\"AAE=\"}",
            b"\"\\u0000\"",
            b"[1,",
            b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ]
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let decoded = PrimaryKey(Bytes::copy_from_slice(input));
        let from_bytes = decoded.try_decode().ok().map(|value| check_decoded(&decoded, &value));
        let from_text = json::parse(input).ok().map(|value| check_value(&value));
        Outcome::of((from_bytes, from_text))
    }
}

/// Longer positions are truncated.
const PLACE_BYTES_MAX: usize = 1 << 16;

/// Decodable bytes are the only key of their value.
fn check_decoded(key: &PrimaryKey, value: &Datum) -> (usize, bool) {
    match PrimaryKey::encode(value) {
        Ok(again) => assert_eq!(again, *key),
        Err(error) => assert!(matches!(error, key::KeyError::TooLong(_)), "{error}"),
    }
    // Longer bytes are not a key, and their position is truncated.
    if key.as_bytes().len() <= PLACE_BYTES_MAX {
        assert_eq!(key::bound_position(value), *key, "a key's place is the key");
    }
    (value.kind() as usize, key.as_bytes().len() > 128)
}

/// A value has a position among keys, and a key if it may have one, and both agree.
fn check_value(value: &Datum) -> (usize, String) {
    let place = key::bound_position(value);
    if let Ok(index) = key::secondary::encode(value) {
        assert!(index.bytes.len() <= 192);
    }
    let outcome = match PrimaryKey::encode(value) {
        Ok(key) => {
            assert_eq!(key, place);
            assert_eq!(key.try_decode().as_ref(), Ok(value));
            assert!(key.as_bytes().len() <= 129, "no key is longer than the reference's, but for a tag");
            String::new()
        }
        Err(error) => stem(&error.to_string()).to_owned(),
    };
    (value.kind() as usize, outcome)
}
