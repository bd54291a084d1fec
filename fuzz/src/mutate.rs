//! Mutates inputs: small damage, and recombination.

use io::sim::Chance;

/// Longer inputs are truncated.
pub const INPUT_BYTES_MAX: usize = 1 << 18;
/// Numbers at which lengths and counts often fail.
const EDGES: [u64; 14] =
    [0, 1, 2, 7, 8, 16, 64, 127, 128, 255, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, u64::MAX];

/// Changes `input` one to eight times. `other` is an input to take chunks from, `words` are typical parts of such
/// inputs.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], words: &[&[u8]], chance: &mut Chance) {
    let times = 1 << chance.below(4);
    for _ in 0..times {
        once(input, other, words, chance);
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn once(input: &mut Vec<u8>, other: &[u8], words: &[&[u8]], chance: &mut Chance) {
    match chance.below(14) {
        0 => flip(input, chance),
        1 => set(input, chance),
        2 => insert_noise(input, chance),
        3 => delete(input, chance),
        4 => repeat_chunk(input, chance),
        5 => input.truncate(chance.below(input.len() + 1)),
        6 => splice(input, other, chance),
        7 => cross(input, other, chance),
        8 => write_number(input, chance),
        9 => swap(input, chance),
        10 if chance.once_in(20) => repeat_word(input, words, chance),
        _ => insert_word(input, words, chance),
    }
}

fn flip(input: &mut [u8], chance: &mut Chance) {
    let at = chance.below(input.len());
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << chance.below(8);
    }
}

fn set(input: &mut [u8], chance: &mut Chance) {
    let value = *chance.pick(&[0, 1, 0x7F, 0x80, 0xFF, b'0', b'"', b'{', b'[', chance.clone().draw() as u8]);
    let at = chance.below(input.len());
    if let Some(byte) = input.get_mut(at) {
        *byte = value;
    }
}

fn insert(input: &mut Vec<u8>, at: usize, chunk: &[u8]) {
    input.splice(at..at, chunk.iter().copied());
}

fn insert_noise(input: &mut Vec<u8>, chance: &mut Chance) {
    let noise: Vec<u8> = (0..chance.length(32)).map(|_| chance.draw() as u8).collect();
    insert(input, chance.below(input.len() + 1), &noise);
}

/// The bounds of a random chunk of `bytes`.
fn chunk(bytes: &[u8], chance: &mut Chance) -> std::ops::Range<usize> {
    if bytes.is_empty() {
        return 0..0;
    }
    let start = chance.below(bytes.len());
    start..start + chance.length(bytes.len() - start)
}

fn delete(input: &mut Vec<u8>, chance: &mut Chance) {
    let range = chunk(input, chance);
    input.drain(range);
}

fn repeat_chunk(input: &mut Vec<u8>, chance: &mut Chance) {
    let copy = input[chunk(input, chance)].repeat(1 + chance.below(3));
    insert(input, chance.below(input.len() + 1), &copy);
}

/// Replaces a chunk of `input` by a chunk of `other`.
fn splice(input: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    let from = chunk(other, chance);
    let target = chunk(input, chance);
    input.splice(target, other[from].iter().copied());
}

/// Joins the beginning of `input` and the end of `other`.
fn cross(input: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    input.truncate(chance.below(input.len() + 1));
    input.extend_from_slice(&other[chance.below(other.len() + 1)..]);
}

/// Overwrites a number: with one of `EDGES`, or with one near the present value.
fn write_number(input: &mut [u8], chance: &mut Chance) {
    let width = *chance.pick(&[1, 2, 4, 8]);
    let at = chance.below(input.len().saturating_sub(width));
    let Some(field) = input.get_mut(at..at + width) else { return };
    let mut number = [0; 8];
    number[..width].copy_from_slice(field);
    let near = u64::from_le_bytes(number).wrapping_add(chance.below(17) as u64).wrapping_sub(8);
    let written = if chance.once_in(2) { near } else { *chance.pick(&EDGES) };
    let bytes = if chance.once_in(4) { written.to_be_bytes() } else { written.to_le_bytes() };
    field.copy_from_slice(&bytes[..width]);
}

fn swap(input: &mut [u8], chance: &mut Chance) {
    let (first, second) = (chunk(input, chance), chunk(input, chance));
    let len = first.len().min(second.len());
    for i in 0..len {
        input.swap(first.start + i, second.start + i);
    }
}

fn insert_word(input: &mut Vec<u8>, words: &[&[u8]], chance: &mut Chance) {
    if words.is_empty() {
        return;
    }
    let word = *chance.pick(words);
    let at = chance.below(input.len() + 1);
    let end = if chance.once_in(2) { at } else { (at + word.len()).min(input.len()) };
    input.splice(at..end, word.iter().copied());
}

/// Inserts a word many times: nested structures become deep, lists long.
fn repeat_word(input: &mut Vec<u8>, words: &[&[u8]], chance: &mut Chance) {
    if words.is_empty() {
        return;
    }
    let word = *chance.pick(words);
    let times = chance.length(INPUT_BYTES_MAX / (2 * word.len().max(1)));
    insert(input, chance.below(input.len() + 1), &word.repeat(times));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_they_stay_bounded() {
        let make = |seed| {
            let mut chance = Chance::new(seed);
            let mut input = b"{\"a\":[1,2,3]}".to_vec();
            for _ in 0..2_000 {
                mutate(&mut input, b"other", &[b"[", b"\"x\":"], &mut chance);
                assert!(input.len() <= INPUT_BYTES_MAX);
            }
            input
        };
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
    }
}
