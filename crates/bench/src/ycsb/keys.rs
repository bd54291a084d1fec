//! Record numbers and their keys.

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 1_099_511_628_211;

/// YCSB's 64-bit FNV hash: eight bytes, lowest first, then the absolute value of the signed result.
pub fn fnv64(mut number: u64) -> u64 {
    let mut hash = FNV_OFFSET;
    for _ in 0..8 {
        hash = (hash ^ (number & 0xff)).wrapping_mul(FNV_PRIME);
        number >>= 8;
    }
    (hash as i64).unsigned_abs()
}

/// How record numbers become keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyShape {
    /// Whether numbers are hashed (`insertorder=hashed`) or used as they are.
    pub hashed: bool,
    /// Minimum number of digits (`zeropadding`).
    pub digits_min: usize,
}

impl KeyShape {
    /// Appends the key of record `number`. Keys need no escaping in JSON.
    pub fn push(&self, number: u64, out: &mut Vec<u8>) {
        let number = if self.hashed { fnv64(number) } else { number };
        out.extend_from_slice(b"user");
        let mut digits = [0u8; 20];
        let mut start = digits.len();
        let mut rest = number;
        while rest > 0 || start == digits.len() {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let written = &digits[start..];
        out.extend(std::iter::repeat_n(b'0', self.digits_min.saturating_sub(written.len())));
        out.extend_from_slice(written);
    }

    /// The key of record `number`.
    pub fn key(&self, number: u64) -> String {
        let mut bytes = Vec::with_capacity(24);
        self.push(number, &mut bytes);
        bytes.into_iter().map(char::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::KeyShape;

    #[test]
    fn keys_are_those_of_the_original() {
        let hashed = KeyShape { hashed: true, digits_min: 1 };
        for (number, key) in [
            (0, "user6284781860667377211"),
            (1, "user8517097267634966620"),
            (2, "user1820151046732198393"),
            (3, "user4052466453699787802"),
            (999, "user2071219101098386137"),
            (1_000, "user5952875239596136740"),
            (24_999_999, "user6049542234712846908"),
        ] {
            assert_eq!(hashed.key(number), key);
        }
    }

    #[test]
    fn ordered_keys_are_padded() {
        let ordered = KeyShape { hashed: false, digits_min: 6 };
        assert_eq!(ordered.key(0), "user000000");
        assert_eq!(ordered.key(1_234_567), "user1234567");
        assert_eq!(KeyShape { hashed: false, digits_min: 1 }.key(42), "user42");
    }
}
