//! Seeded random values for the property tests.

use rekindle_datum::{Bytes, Datum, Object, Text, Time};

/// A small generator whose stream is fixed by its seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed ^ 0x9E37_79B9_7F4A_7C15)
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

pub fn number(chance: &mut Chance) -> f64 {
    match chance.below(6) {
        0 => chance.below(10) as f64 - 5.0,
        1 => *chance.pick(&[0.0, -0.0, 0.1, 1e22, -1e-7, 9_007_199_254_740_993.0, f64::MAX, 5e-324]),
        2 => chance.next() as i64 as f64,
        3 => chance.below(1_000_000) as f64 / 1000.0,
        _ => {
            let number = f64::from_bits(chance.next());
            if number.is_finite() { number } else { 1.5 }
        }
    }
}

pub fn text(chance: &mut Chance) -> Text {
    let len = match chance.below(8) {
        0 => 0,
        7 => chance.below(120),
        _ => chance.below(8),
    };
    let plain = chance.below(2) == 0;
    let text: String = (0..len)
        .map(|_| if plain { (b'a' + chance.below(3) as u8) as char } else { *chance.pick(&CHARACTERS) })
        .collect();
    Text::from(text)
}

pub fn bytes(chance: &mut Chance) -> Bytes {
    (0..chance.below(10)).map(|_| *chance.pick(&[0_u8, 1, 2, 0x61, 0xFF])).collect()
}

pub fn time(chance: &mut Chance) -> Time {
    let offset = chance.below(2 * 1499) as i16 - 1499;
    Time::new(number(chance), offset)
}

pub fn object(chance: &mut Chance, depth: usize) -> Object {
    (0..chance.below(7)).map(|_| (text(chance), value(chance, depth))).collect()
}

fn shape(chance: &mut Chance) -> Datum {
    let place = Datum::from(vec![Datum::from(number(chance)), Datum::from(number(chance))]);
    let members = [("coordinates", place), ("type", Datum::from("Point"))];
    Datum::Geometry(members.into_iter().map(|(k, v)| (Text::from(k), v)).collect())
}

/// The JSON text of `value` as a careless program might write it: members in any order, white
/// space anywhere, characters and numbers spelled in other ways. Pseudotypes are left out.
pub fn scrambled(value: &Datum, chance: &mut Chance, out: &mut String) {
    space(chance, out);
    match value {
        Datum::Number(n) if chance.below(2) == 0 => out.push_str(&format!("{n:e}")),
        Datum::String(text) => scrambled_string(text, chance, out),
        Datum::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                scrambled(item, chance, out);
            }
            out.push(']');
        }
        Datum::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            for i in (1..members.len()).rev() {
                members.swap(i, chance.below(i + 1));
            }
            out.push('{');
            for (i, (key, value)) in members.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                space(chance, out);
                if chance.below(20) == 0 {
                    scrambled_string(key, chance, out);
                } else {
                    out.push_str(&Datum::String(key.clone()).to_json_string());
                }
                space(chance, out);
                out.push(':');
                scrambled(value, chance, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_json_string()),
    }
    space(chance, out);
}

fn space(chance: &mut Chance, out: &mut String) {
    if chance.below(6) == 0 {
        out.push_str(chance.pick::<&str>(&[" ", "\n", "\t", "\r\n  "]));
    }
}

fn scrambled_string(text: &str, chance: &mut Chance, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        let plain = Datum::from(character.to_string()).to_json_string();
        match chance.below(6) {
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
pub fn value(chance: &mut Chance, depth: usize) -> Datum {
    match chance.below(if depth == 0 { 8 } else { 11 }) {
        0 => Datum::Null,
        1 => Datum::Bool(chance.below(2) == 0),
        2 | 3 => Datum::Number(number(chance)),
        4 | 5 => Datum::String(text(chance)),
        6 => Datum::Binary(bytes(chance)),
        7 if chance.below(3) == 0 => shape(chance),
        7 => Datum::Time(time(chance)),
        8 => (0..chance.below(6)).map(|_| value(chance, depth - 1)).collect::<rekindle_datum::Array>().into(),
        _ => Datum::Object(object(chance, depth - 1)),
    }
}
