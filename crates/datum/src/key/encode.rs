//! Building blocks of ordered bytes, shared by primary keys, bounds and index keys.

use crate::Kind;

/// Ends a string, a binary or an array that may be followed by more. Sorts below every tag.
pub(super) const END: u8 = 0x00;
/// Begins an array; its items follow, then `END`.
pub(super) const ARRAY: u8 = 0x10;
pub(super) const FALSE: u8 = 0x20;
pub(super) const TRUE: u8 = 0x21;
/// Begins a number; eight bytes follow.
pub(super) const NUMBER: u8 = 0x30;
/// Begins bytes.
pub(super) const BINARY: u8 = 0x40;
/// Begins an instant; its seconds follow as a number's eight bytes.
pub(super) const TIME: u8 = 0x50;
/// Begins text.
pub(super) const STRING: u8 = 0x60;

/// Escapes the bytes zero and one; the next byte tells which.
pub(super) const ESCAPE: u8 = 0x01;

/// The position of a kind without keys among the tags of kinds with keys.
pub(super) fn keyless_tag(kind: Kind) -> u8 {
    match kind {
        Kind::MinVal => 0x02,
        Kind::Null => 0x28,
        Kind::Object | Kind::Geometry => 0x38,
        _ => 0xFF,
    }
}

/// The bytes of a double, in the order of doubles. Both zeros have the same bytes.
pub(super) fn ordered_number(number: f64) -> [u8; 8] {
    let bits = if number == 0.0 { 0 } else { number.to_bits() };
    let negative = bits >> 63 == 1;
    (if negative { !bits } else { bits | 1 << 63 }).to_be_bytes()
}

/// Inverse of [`ordered_number`].
pub(super) fn number_of(bytes: [u8; 8]) -> f64 {
    let bits = u64::from_be_bytes(bytes);
    let positive = bits >> 63 == 1;
    f64::from_bits(if positive { bits & !(1 << 63) } else { !bits })
}

/// Appends `bytes` escaped so that none of them is [`END`]: 0 becomes 1 1 and 1 becomes 1 2.
pub(super) fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte <= 1) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[ESCAPE, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}
