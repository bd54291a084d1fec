//! New inputs out of old ones: small damage, and pieces put together anew.

use io::sim::Chance;

/// Longer inputs are cut.
pub const INPUT_BYTES_MAX: usize = 1 << 18;
/// Numbers at which lengths and counts go wrong.
const EDGES: [u64; 14] =
    [0, 1, 2, 7, 8, 16, 64, 127, 128, 255, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, u64::MAX];

/// Changes `input` in one to eight ways. `other` is an input to take pieces from, `words` what
/// inputs of this kind are made of.
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
        4 => repeat_piece(input, chance),
        5 => input.truncate(chance.below(input.len() + 1)),
        6 => splice(input, other, chance),
        7 => cross(input, other, chance),
        8 => write_number(input, chance),
        9 => swap(input, chance),
        10 if chance.once_in(20) => pile_up(input, words, chance),
        _ => word(input, words, chance),
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

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}

fn insert_noise(input: &mut Vec<u8>, chance: &mut Chance) {
    let noise: Vec<u8> = (0..chance.length(32)).map(|_| chance.draw() as u8).collect();
    insert(input, chance.below(input.len() + 1), &noise);
}

/// A piece of `bytes`: where it begins and ends.
fn piece(bytes: &[u8], chance: &mut Chance) -> std::ops::Range<usize> {
    if bytes.is_empty() {
        return 0..0;
    }
    let start = chance.below(bytes.len());
    start..start + chance.length(bytes.len() - start)
}

fn delete(input: &mut Vec<u8>, chance: &mut Chance) {
    let range = piece(input, chance);
    input.drain(range);
}

fn repeat_piece(input: &mut Vec<u8>, chance: &mut Chance) {
    let copy = input[piece(input, chance)].repeat(1 + chance.below(3));
    insert(input, chance.below(input.len() + 1), &copy);
}

/// Puts a piece of `other` in the place of a piece of `input`.
fn splice(input: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    let from = piece(other, chance);
    let place = piece(input, chance);
    input.splice(place, other[from].iter().copied());
}

/// The beginning of `input` and the end of `other`.
fn cross(input: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    input.truncate(chance.below(input.len() + 1));
    input.extend_from_slice(&other[chance.below(other.len() + 1)..]);
}

/// Writes a number at which lengths go wrong, or one near what is there.
fn write_number(input: &mut [u8], chance: &mut Chance) {
    let width = *chance.pick(&[1, 2, 4, 8]);
    let at = chance.below(input.len().saturating_sub(width));
    let Some(place) = input.get_mut(at..at + width) else { return };
    let mut number = [0; 8];
    number[..width].copy_from_slice(place);
    let near = u64::from_le_bytes(number).wrapping_add(chance.below(17) as u64).wrapping_sub(8);
    let written = if chance.once_in(2) { near } else { *chance.pick(&EDGES) };
    let bytes = if chance.once_in(4) { written.to_be_bytes() } else { written.to_le_bytes() };
    place.copy_from_slice(&bytes[..width]);
}

fn swap(input: &mut [u8], chance: &mut Chance) {
    let (first, second) = (piece(input, chance), piece(input, chance));
    let len = first.len().min(second.len());
    for i in 0..len {
        input.swap(first.start + i, second.start + i);
    }
}

fn word(input: &mut Vec<u8>, words: &[&[u8]], chance: &mut Chance) {
    if words.is_empty() {
        return;
    }
    let word = *chance.pick(words);
    let at = chance.below(input.len() + 1);
    let end = if chance.once_in(2) { at } else { (at + word.len()).min(input.len()) };
    input.splice(at..end, word.iter().copied());
}

/// Many times the same: what nests goes deep, what lists grows long.
fn pile_up(input: &mut Vec<u8>, words: &[&[u8]], chance: &mut Chance) {
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
