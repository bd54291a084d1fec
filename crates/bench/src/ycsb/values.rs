//! Field values: YCSB's random text in an old and a current version, and the verifiable text of `dataintegrity`.

use crate::rng::Rng;

/// The characters of values, by version of YCSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// YCSB 0.1.4, the published RethinkDB runs: 32 characters, 0x20 to 0x3F.
    Ycsb014,
    /// Current YCSB: up to 0x7F, including quotes and backslashes.
    Ycsb,
}

impl Alphabet {
    /// The value of the property.
    pub fn name(self) -> &'static str {
        match self {
            Alphabet::Ycsb014 => "ycsb014",
            Alphabet::Ycsb => "ycsb",
        }
    }

    fn masks(self) -> [u32; 6] {
        match self {
            Alphabet::Ycsb014 => [31; 6],
            Alphabet::Ycsb => [31, 63, 95, 31, 63, 95],
        }
    }

    /// Appends `length` random characters, escaped for a JSON string. Returns the number of full stops.
    pub fn push(self, rng: &mut Rng, length: usize, out: &mut Vec<u8>) -> u64 {
        let masks = self.masks();
        let mut stops = 0;
        let mut left = length;
        while left > 0 {
            let bits = rng.next_u32();
            for (place, mask) in masks.iter().enumerate().take(left) {
                let byte = ((bits >> (5 * place)) & mask) as u8 + 0x20;
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(byte);
                stops += u64::from(byte == b'.');
            }
            left = left.saturating_sub(masks.len());
        }
        stops
    }
}

/// The value of `field` under `key` with `dataintegrity`.
pub fn integrity_value(key: &str, field: &str, length: usize) -> String {
    let mut value = format!("{key}:{field}");
    while value.len() < length {
        value.push(':');
        let hash = java_hash(&value);
        value.push_str(&hash.to_string());
    }
    value.truncate(length);
    value
}

fn java_hash(text: &str) -> i32 {
    text.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integrity_values_are_those_of_the_original() {
        assert_eq!(
            integrity_value("user6284781860667377211", "field0", 100),
            "user6284781860667377211:field0:-56807877:2032869390:-165488160:1762371712:\
             -169193395:-1039977118:-10"
        );
    }

    #[test]
    fn values_have_their_length_their_alphabet_and_their_full_stops() {
        for (alphabet, highest, sentences) in
            [(Alphabet::Ycsb014, 0x3F, 4.125), (Alphabet::Ycsb, 0x7F, 3.094)]
        {
            let mut rng = Rng::new(4, 0);
            let (mut stops, count) = (0, 40_000u32);
            for _ in 0..count {
                let mut text = vec![b'"'];
                stops += alphabet.push(&mut rng, 100, &mut text);
                text.push(b'"');
                let value: String = serde_json::from_slice(&text).expect("JSON");
                assert_eq!(value.len(), 100);
                assert!(value.bytes().all(|b| (0x20..=highest).contains(&b)));
            }
            let mean = stops as f64 / f64::from(count) + 1.0;
            assert!((mean - sentences).abs() < 0.03, "{alphabet:?}, seed 4: {mean}");
        }
    }

    #[test]
    fn full_stops_are_counted_as_split_counts_them() {
        let mut rng = Rng::new(9, 0);
        let mut text = vec![b'"'];
        let stops = Alphabet::Ycsb014.push(&mut rng, 1_000, &mut text);
        text.push(b'"');
        let value: String = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(value.split('.').count() as u64, stops + 1);
    }
}
