//! Assigns each row to one of eight buckets by a hash of its key, as RethinkDB does.
//!
//! RethinkDB keeps the rows of a shard in eight B-trees and reads from them round robin, which determines the order
//! of rows in unordered results. See docs/decisions/0042-unordered-rows-in-eight-buckets.md. Source:
//! `hash_region_hasher`, `cpu_sharding_subspace` and `datum_t::print_primary` in RethinkDB.

use std::fmt::Write;

use super::decode;
use super::encode::{NUMBER, STRING, number_of};
use crate::{Bytes, Datum, deep};

pub const BUCKETS: u8 = 8;

/// The bucket of the row with this key, below [`BUCKETS`]; 0 for bytes that are not a key.
#[must_use]
pub fn bucket_of(key: &[u8]) -> u8 {
    let mut hash = Hash::new();
    match key.split_first() {
        Some((&STRING, text)) => {
            hash.add(b"S");
            hash.add(text);
        }
        Some((&NUMBER, bytes)) if bytes.len() == size_of::<f64>() => {
            write_number(bytes.try_into().map_or(0.0, number_of), &mut hash);
        }
        _ => {
            let Ok(value) = decode::primary(&Bytes::copy_from_slice(key)) else { return 0 };
            write_value(&value, &mut hash);
        }
    }
    hash.bucket()
}

/// RethinkDB's hash of a key, computed byte by byte.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0x47a5_9e38_1fb2_dc06)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let sum = self.0.wrapping_add(SPREAD[usize::from(byte)]);
            self.0 = sum ^ (sum >> 11) ^ (sum << 21);
        }
    }

    /// The highest three of the 63 significant bits.
    fn bucket(&self) -> u8 {
        ((self.0 >> 60) & 0b111) as u8
    }
}

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// Contribution of each byte to the hash: its bits in reverse order below the highest bit, and some of them again
/// further down.
static SPREAD: [u64; 256] = {
    let mut spread = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let picked = (byte as u64).wrapping_mul(0x8020_0802) & 0x08_8442_2110;
        spread[byte] = picked.wrapping_mul(0x01_0101_0101) << 23;
        byte += 1;
    }
    spread
};

/// Writes a value as RethinkDB does in a primary key, where bytes are escaped and text is not.
fn write_value(value: &Datum, hash: &mut Hash) {
    match value {
        Datum::Bool(truth) => hash.add(if *truth { b"Bt" } else { b"Bf" }),
        Datum::Number(number) => write_number(*number, hash),
        Datum::Time(time) => {
            hash.add(b"PTIME:");
            write_number(time.epoch_seconds, hash);
        }
        Datum::String(text) => {
            hash.add(b"S");
            hash.add(text.as_bytes());
        }
        Datum::Binary(bytes) => {
            hash.add(b"PBINARY:");
            write_escaped(bytes, hash);
        }
        Datum::Array(items) => {
            hash.add(b"A");
            deep::level(|| {
                for item in items.iter() {
                    write_value(item, hash);
                    hash.add(&[0]);
                }
            });
        }
        // Keys contain no other values.
        _ => {}
    }
}

fn write_escaped(bytes: &[u8], hash: &mut Hash) {
    for byte in bytes {
        match byte {
            0 | 1 => hash.add(&[1, byte + 1]),
            _ => hash.add(std::slice::from_ref(byte)),
        }
    }
}

/// Writes digits that sort like the numbers, then the number as C's `%.20g` prints it.
fn write_number(number: f64, hash: &mut Hash) {
    let bits = number.to_bits();
    let ordered = if number.is_sign_negative() { !bits } else { bits ^ (1 << 63) };
    let digit = |place: usize| b"0123456789abcdef"[(ordered >> (60 - 4 * place)) as usize & 0xf];
    let digits: [u8; 16] = std::array::from_fn(digit);
    hash.add(b"N");
    hash.add(&digits);
    hash.add(b"#");
    // Writing into a hash cannot fail.
    let _ = write_twenty_digits(number, hash);
}

/// Writes up to twenty significant digits, without trailing zeros.
fn write_twenty_digits(number: f64, out: &mut impl Write) -> std::fmt::Result {
    /// Below this limit every integer has a distinct double.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    const DIGITS: i32 = 20;
    if number.trunc() == number && number.abs() < WHOLE_MAX {
        return write!(out, "{}", number as i64);
    }
    let printed = format!("{number:.*e}", DIGITS as usize - 1);
    let (digits, exponent) = printed.split_once('e').unwrap_or((&printed, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent) as usize;
        return out.write_str(without_zeros(&format!("{number:.decimals$}")));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(out, "{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

/// A decimal without trailing zeros.
fn without_zeros(decimal: &str) -> &str {
    match decimal.contains('.') {
        true => decimal.trim_end_matches('0').trim_end_matches('.'),
        false => decimal,
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, bucket_of, write_twenty_digits};
    use crate::{Bytes, Datum, PrimaryKey, Time, json};

    fn bucket(value: impl Into<Datum>) -> u8 {
        bucket_of(PrimaryKey::encode(&value.into()).expect("a key").as_bytes())
    }

    /// RethinkDB's own test suite expects these keys of a fold over the rows 0 to 99 that emits every twentieth key
    /// (`transform/fold.yaml`).
    #[test]
    fn rows_interleaved_from_buckets_match_its_suite() {
        let mut buckets = vec![Vec::new(); usize::from(BUCKETS)];
        (0..100).for_each(|id| buckets[usize::from(bucket(f64::from(id)))].push(id));
        let shortest = buckets.iter().map(Vec::len).min().expect("eight buckets");
        let interleaved: Vec<i32> =
            (0..shortest).flat_map(|round| buckets.iter().map(move |bucket| bucket[round])).collect();
        let expected = [20, 15, 46, 78];
        let seen: Vec<i32> = interleaved.iter().step_by(20).take(expected.len()).copied().collect();
        assert_eq!(seen, expected[..seen.len()]);
        assert!(seen.len() >= 3, "{shortest} rounds before a bucket is empty");
    }

    #[test]
    fn numbers_are_printed_as_c_does() {
        let cases = [
            (0.0, "0"),
            (-17.0, "-17"),
            (0.5, "0.5"),
            (0.1, "0.10000000000000000555"),
            (1e-5, "1.0000000000000000818e-05"),
            (0.0001, "0.00010000000000000000479"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (1e19, "10000000000000000000"),
            (1e20, "1e+20"),
            (-1.5e300, "-1.5000000000000000788e+300"),
        ];
        for (number, printed) in cases {
            let mut out = String::new();
            write_twenty_digits(number, &mut out).expect("written");
            assert_eq!(out, printed);
        }
    }

    /// Expected values come from an implementation of the same rule in another language.
    #[test]
    fn each_kind_of_key_has_its_bucket() {
        let buckets = [
            (r#""a""#, 5),
            (r#""\u00e9""#, 6),
            (r#"true"#, 7),
            (r#"false"#, 1),
            (r#"-2.5"#, 7),
            (r#"0.1"#, 6),
            (r#"1e300"#, 3),
            (r#"["a",1,[true]]"#, 4),
            (r#"["a\u0001b"]"#, 6),
        ];
        for (text, number) in buckets {
            assert_eq!(bucket(json::parse(text.as_bytes()).expect("JSON")), number, "{text}");
        }
        assert_eq!(bucket(Datum::Time(Time::new(12.5, 60))), 6);
        assert_eq!(bucket(Datum::Binary(Bytes::from_static(&[0, 1, 0xff]))), 1);
        assert_eq!(bucket_of(&[]), 0);
    }
}
