//! The mark that the same rows set: what they take in blocks of 16 KB, each compressed with zstd -3.

use zstd_safe::CCtx;

const BLOCK_BYTES: usize = 16 << 10;
const LEVEL: i32 = 3;

/// Compresses documents in blocks, as they come.
pub struct BlockMark {
    context: CCtx<'static>,
    block: Vec<u8>,
    compressed: Vec<u8>,
    plain_bytes: u64,
    stored_bytes: u64,
}

impl BlockMark {
    pub fn new() -> BlockMark {
        BlockMark {
            context: CCtx::default(),
            block: Vec::new(),
            compressed: Vec::new(),
            plain_bytes: 0,
            stored_bytes: 0,
        }
    }

    pub fn add(&mut self, document: &[u8]) {
        self.plain_bytes += document.len() as u64;
        self.block.extend_from_slice(document);
        while self.block.len() >= BLOCK_BYTES {
            let rest = self.block.split_off(BLOCK_BYTES);
            self.compress();
            self.block = rest;
        }
    }

    /// The share of their bytes that all documents take; `None` if there are none, or zstd has failed.
    pub fn finish(mut self) -> Option<f64> {
        self.compress();
        (self.plain_bytes > 0 && self.stored_bytes > 0)
            .then(|| self.stored_bytes as f64 / self.plain_bytes as f64)
    }

    fn compress(&mut self) {
        self.compressed.clear();
        self.compressed.reserve(zstd_safe::compress_bound(self.block.len()));
        let compressed = self.context.compress(&mut self.compressed, &self.block, LEVEL);
        self.stored_bytes += compressed.map_or(self.block.len(), |bytes| bytes) as u64;
    }
}

impl Default for BlockMark {
    fn default() -> Self {
        BlockMark::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_takes_a_part_and_nothing_is_no_mark() {
        let mut mark = BlockMark::new();
        for number in 0..5_000_u32 {
            let noise = number.wrapping_mul(2_654_435_761);
            mark.add(
                format!("{{\"title\":\"Article {noise}\",\"text\":\"the history of {noise}\"}}").as_bytes(),
            );
        }
        let share = mark.finish().expect("a mark");
        assert!(share > 0.1 && share < 0.5, "{share}");
        assert_eq!(BlockMark::new().finish(), None);
    }
}
