//! Blocks of rows: each feed has one.

/// Rows of each feed.
pub const ROWS_PER_BLOCK: u64 = 4;
/// Rows that a feed of first rows has.
pub const LIMIT_ROWS: usize = 2;
/// Distance of the lowest ranks of two blocks.
pub const RANK_STEP: i64 = 10;

/// Number of a block of rows: that of the feed that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(pub u32);

impl Block {
    /// Primary key of its first row.
    pub fn first_row(self) -> u64 {
        u64::from(self.0) * ROWS_PER_BLOCK
    }

    /// Lowest rank of its rows.
    pub fn first_rank(self) -> i64 {
        i64::from(self.0) * RANK_STEP
    }
}
