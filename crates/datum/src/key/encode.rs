//! Values to ordered bytes: the pieces that primary keys, bounds and index keys are made of.

use crate::Kind;

/// Ends a string, a binary or an array that something may follow. Below every tag.
pub(super) const END: u8 = 0x00;
/// Begins an array; its items follow, then `END`.
pub(super) const ARRAY: u8 = 0x10;
/// The value `false`.
pub(super) const FALSE: u8 = 0x20;
/// The value `true`.
pub(super) const TRUE: u8 = 0x21;
/// Begins a number; eight bytes follow.
pub(super) const NUMBER: u8 = 0x30;
/// Begins bytes.
pub(super) const BINARY: u8 = 0x40;
/// Begins an instant; its seconds follow as a number's eight bytes.
pub(super) const TIME: u8 = 0x50;
/// Begins text.
pub(super) const STRING: u8 = 0x60;

/// Stands for zero and one in escaped bytes, before a digit telling which.
pub(super) const ESCAPE: u8 = 0x01;

/// Where a kind that has no key lies among those that have.
pub(super) fn keyless_tag(kind: Kind) -> u8 {
    match kind {
        Kind::MinVal => 0x02,
        Kind::Null => 0x28,
        Kind::Object | Kind::Geometry => 0x38,
        _ => 0xFF,
    }
}

/// The bytes of a double, in the order of doubles. The zeros are one.
pub(super) fn ordered_number(number: f64) -> [u8; 8] {
    let bits = if number == 0.0 { 0 } else { number.to_bits() };
    let negative = bits >> 63 == 1;
    (if negative { !bits } else { bits | 1 << 63 }).to_be_bytes()
}

/// The double of [`ordered_number`].
pub(super) fn number_of(bytes: [u8; 8]) -> f64 {
    let bits = u64::from_be_bytes(bytes);
    let positive = bits >> 63 == 1;
    f64::from_bits(if positive { bits & !(1 << 63) } else { !bits })
}

/// Appends `bytes` so that none of them is [`END`]: 0 becomes 1 1 and 1 becomes 1 2.
pub(super) fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte <= 1) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[ESCAPE, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}
