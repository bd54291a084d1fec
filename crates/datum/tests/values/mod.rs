//! Seeded random values for the property tests.

use rekindle_datum::{Bytes, Datum, Object, Text, Time};

/// A small generator whose stream is fixed by its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed ^ 0x9E37_79B9_7F4A_7C15)
    }

    pub fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

const CHARACTERS: [char; 16] =
    ['a', 'b', 'z', '$', '!', '"', '\\', '\n', '\u{0}', '\u{1}', '\u{1f}', '\u{7f}', 'é', '漢', '😀', '/'];

pub fn number(random: &mut Random) -> f64 {
    match random.below(6) {
        0 => random.below(10) as f64 - 5.0,
        1 => *random.pick(&[0.0, -0.0, 0.1, 1e22, -1e-7, 9_007_199_254_740_993.0, f64::MAX, 5e-324]),
        2 => random.next() as i64 as f64,
        3 => random.below(1_000_000) as f64 / 1000.0,
        _ => {
            let number = f64::from_bits(random.next());
            if number.is_finite() { number } else { 1.5 }
        }
    }
}

pub fn text(random: &mut Random) -> Text {
    let len = match random.below(8) {
        0 => 0,
        7 => random.below(120),
        _ => random.below(8),
    };
    let plain = random.below(2) == 0;
    let text: String = (0..len)
        .map(|_| if plain { (b'a' + random.below(3) as u8) as char } else { *random.pick(&CHARACTERS) })
        .collect();
    Text::from(text)
}

pub fn bytes(random: &mut Random) -> Bytes {
    (0..random.below(10)).map(|_| *random.pick(&[0_u8, 1, 2, 0x61, 0xFF])).collect()
}

pub fn time(random: &mut Random) -> Time {
    let offset = random.below(2 * 1499) as i16 - 1499;
    Time::new(number(random), offset)
}

pub fn object(random: &mut Random, depth: usize) -> Object {
    (0..random.below(7)).map(|_| (text(random), value(random, depth))).collect()
}

fn shape(random: &mut Random) -> Datum {
    let place = Datum::from(vec![Datum::from(number(random)), Datum::from(number(random))]);
    let members = [("coordinates", place), ("type", Datum::from("Point"))];
    Datum::Geometry(members.into_iter().map(|(k, v)| (Text::from(k), v)).collect())
}

/// The JSON text of `value` as a careless program might write it: members in any order, white space anywhere,
/// characters and numbers in other spellings. Pseudotypes are left out.
pub fn scrambled(value: &Datum, random: &mut Random, out: &mut String) {
    space(random, out);
    match value {
        Datum::Number(n) if random.below(2) == 0 => out.push_str(&format!("{n:e}")),
        Datum::String(text) => scrambled_string(text, random, out),
        Datum::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                scrambled(item, random, out);
            }
            out.push(']');
        }
        Datum::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            for i in (1..members.len()).rev() {
                members.swap(i, random.below(i + 1));
            }
            out.push('{');
            for (i, (key, value)) in members.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                space(random, out);
                if random.below(20) == 0 {
                    scrambled_string(key, random, out);
                } else {
                    out.push_str(&Datum::String(key.clone()).to_json_string());
                }
                space(random, out);
                out.push(':');
                scrambled(value, random, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_json_string()),
    }
    space(random, out);
}

fn space(random: &mut Random, out: &mut String) {
    if random.below(6) == 0 {
        out.push_str(random.pick::<&str>(&[" ", "\n", "\t", "\r\n  "]));
    }
}

fn scrambled_string(text: &str, random: &mut Random, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        let plain = Datum::from(character.to_string()).to_json_string();
        match random.below(6) {
            0 => {
                character.encode_utf16(&mut [0; 2]).iter().for_each(|u| out.push_str(&format!("\\u{u:04x}")))
            }
            _ if character == '/' => out.push_str("\\/"),
            _ => out.push_str(&plain[1..plain.len() - 1]),
        }
    }
    out.push('"');
}

/// Any value that has JSON.
pub fn value(random: &mut Random, depth: usize) -> Datum {
    match random.below(if depth == 0 { 8 } else { 11 }) {
        0 => Datum::Null,
        1 => Datum::Bool(random.below(2) == 0),
        2 | 3 => Datum::Number(number(random)),
        4 | 5 => Datum::String(text(random)),
        6 => Datum::Binary(bytes(random)),
        7 if random.below(3) == 0 => shape(random),
        7 => Datum::Time(time(random)),
        8 => (0..random.below(6)).map(|_| value(random, depth - 1)).collect::<rekindle_datum::Array>().into(),
        _ => Datum::Object(object(random, depth - 1)),
    }
}
