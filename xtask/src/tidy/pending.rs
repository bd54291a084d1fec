//! What does not keep a rule yet. Entries may only shrink: one that is not needed any more is a finding.

/// Crates with more hidden subjects in their prose than the rule allows: hits in 1,000 lines.
pub(super) const PROSE: &[(&str, usize)] = &[];

/// Types with inherent `impl` blocks in more files than the rule allows: crate, type, files.
pub(super) const SPREAD: &[(&str, &str, usize)] = &[];

/// Types whose methods call each other in circles over several files: crate, type.
pub(super) const METHOD_CIRCLES: &[(&str, &str)] = &[];

/// Crates with constants named for nothing, as `PATIENCE`: how many.
pub(super) const BARE_CONSTANTS: &[(&str, usize)] = &[];
