//! The parts of blocks: keys, signatures, hashes. Keys and signatures are random but well-formed; hashes are real.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha3::{Digest, Sha3_256};

use crate::rng::Rng;

const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// The length of every generated key. The few shorter or longer ones are drawn again, so that a block can be changed
/// without moving its bytes.
pub const KEY_BYTES: usize = 44;

/// The sha3-256 of `text` in hexadecimal, as BigchainDB hashes its canonical JSON.
pub fn sha3_hex(text: &[u8]) -> String {
    hex(&Sha3_256::digest(text))
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    bytes.iter().flat_map(digits).map(char::from).collect()
}

/// A compressed secp256k1 public key in base58.
pub fn secp256k1_key(rng: &mut Rng) -> String {
    key_of(rng, |rng, bytes| {
        bytes.resize(33, 0);
        rng.fill(bytes);
        bytes[0] = 2 + (bytes[0] & 1);
    })
}

/// An ed25519 public key in base58.
pub fn ed25519_key(rng: &mut Rng) -> String {
    key_of(rng, |rng, bytes| {
        bytes.resize(32, 0);
        rng.fill(bytes);
    })
}

/// An ECDSA signature in DER, in hexadecimal: 140 to 144 digits.
pub fn ecdsa_signature(rng: &mut Rng) -> String {
    let (r, s) = (der_integer(rng, 0xff), der_integer(rng, 0xff));
    der_sequence(&r, &s)
}

/// An ECDSA signature of exactly 140 digits.
pub fn short_ecdsa_signature(rng: &mut Rng) -> String {
    let (r, s) = (der_integer(rng, 0x7f), der_integer(rng, 0x7f));
    der_sequence(&r, &s)
}

/// An ed25519 signature in base58 with 88 characters; a shorter one is drawn again.
pub fn ed25519_signature(rng: &mut Rng) -> String {
    loop {
        let mut bytes = [0; 64];
        rng.fill(&mut bytes);
        let text = base58(&bytes);
        if text.len() == 88 {
            return text;
        }
    }
}

/// A crypto-condition fulfillment of an ed25519 key.
pub fn fulfillment(rng: &mut Rng) -> String {
    let mut bytes = [0; 96];
    rng.fill(&mut bytes);
    format!("cf:4:{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// The condition of such a fulfillment.
pub fn condition_uri(rng: &mut Rng) -> String {
    let mut bytes = [0; 32];
    rng.fill(&mut bytes);
    format!("cc:4:20:{}:96", URL_SAFE_NO_PAD.encode(bytes))
}

fn key_of(rng: &mut Rng, draw: impl Fn(&mut Rng, &mut Vec<u8>)) -> String {
    let mut bytes = Vec::new();
    loop {
        draw(rng, &mut bytes);
        let text = base58(&bytes);
        if text.len() == KEY_BYTES {
            return text;
        }
    }
}

/// A positive DER integer of 32 bytes, of which the first is masked by `mask` and not 0.
fn der_integer(rng: &mut Rng, mask: u8) -> Vec<u8> {
    let mut number = [0; 32];
    rng.fill(&mut number);
    number[0] = (number[0] & mask).max(1);
    let sign = (number[0] & 0x80 != 0).then_some(0);
    let body: Vec<u8> = sign.into_iter().chain(number).collect();
    [vec![2, body.len() as u8], body].concat()
}

fn der_sequence(r: &[u8], s: &[u8]) -> String {
    let length = (r.len() + s.len()) as u8;
    hex(&[&[0x30, length], r, s].concat())
}

fn base58(bytes: &[u8]) -> String {
    let mut digits: Vec<u8> = Vec::with_capacity(bytes.len() * 138 / 100 + 1);
    for byte in bytes {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            *digit = (carry % 58) as u8;
            carry /= 58;
        }
        while carry > 0 {
            digits.push((carry % 58) as u8);
            carry /= 58;
        }
    }
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let text = digits.iter().rev().map(|digit| BASE58[usize::from(*digit)]);
    std::iter::repeat_n(b'1', zeros).chain(text).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base58_and_sha3_are_the_known_ones() {
        assert_eq!(base58(b"Hello World!"), "2NEpo7TZRRrLZSi2U");
        assert_eq!(base58(&[0, 0, 1]), "112");
        assert_eq!(sha3_hex(b"abc"), "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532");
    }

    #[test]
    fn keys_and_signatures_have_the_lengths_of_their_kind() {
        let mut rng = Rng::new(6, 0);
        for _ in 0..200 {
            assert_eq!(secp256k1_key(&mut rng).len(), 44);
            assert_eq!(ed25519_key(&mut rng).len(), 44);
            let signature = ecdsa_signature(&mut rng);
            assert!((140..=144).contains(&signature.len()) && signature.starts_with("30"));
            assert_eq!(short_ecdsa_signature(&mut rng).len(), 140);
            assert_eq!(ed25519_signature(&mut rng).len(), 88);
            assert_eq!(fulfillment(&mut rng).len(), 133);
            assert_eq!(condition_uri(&mut rng).len(), 54);
        }
    }
}
