//! Random numbers behind a trait, so that a simulation can repeat them.

/// A source of random numbers.
pub trait Random: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);

    /// The next 64 random bits.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}
