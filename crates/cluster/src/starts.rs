//! Where a table's shards begin.

use datum::{Bytes, Datum, PrimaryKey};

/// The most shards one table may have.
pub(crate) const SHARDS_MAX: usize = 256;

/// Start keys for `shards` shards of a table without rows to learn from: the first is
/// empty, the others divide the space of generated keys (UUIDs, as hexadecimal text) evenly.
pub(crate) fn even_starts(shards: usize) -> Vec<Bytes> {
    (0..shards)
        .map(|i| match i {
            0 => Bytes::new(),
            _ => hex_key(i, shards),
        })
        .collect()
}

fn hex_key(i: usize, shards: usize) -> Bytes {
    let point = i * 0x1_0000 / shards;
    let key =
        PrimaryKey::encode(&Datum::from(format!("{point:04x}"))).expect("invariant: four digits fit a key");
    Bytes::copy_from_slice(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::even_starts;

    #[test]
    fn starts_rise_and_the_first_is_open() {
        for shards in [1, 2, 3, 16, 256] {
            let starts = even_starts(shards);
            assert_eq!(starts.len(), shards);
            assert!(starts[0].is_empty());
            assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
