//! Exceptions that are still to be removed. Entries may only shrink: one that is not needed any more is a finding.

/// Packages with more hidden subjects in their prose than the rule allows: hits in 1,000 lines.
pub(super) const PROSE: &[(&str, usize)] = &[
    ("bench", 156),
    ("cluster", 388),
    ("differential", 171),
    ("rekindle", 53),
    ("server", 26),
    ("simulation", 260),
];

/// Packages whose modules import each other: the number of these modules.
pub(super) const MODULE_CIRCLES: &[(&str, usize)] = &[("cluster", 25)];

/// Types with inherent `impl` blocks in more files than the rule allows: package, type, files.
pub(super) const SPREAD: &[(&str, &str, usize)] = &[
    ("cluster", "Core", 35),
    ("cluster", "Machine", 6),
    ("datum", "Datum", 4),
    ("datum", "Object", 7),
    ("differential", "Generator", 6),
];

/// Types whose methods call each other in circles over several files: package, type.
pub(super) const METHOD_CIRCLES: &[(&str, &str)] =
    &[("cluster", "Core"), ("cluster", "Machine"), ("differential", "Generator")];

/// Packages with constants without a meaning, such as `PAUSE`: their number.
pub(super) const BARE_CONSTANTS: &[(&str, usize)] =
    &[("bench", 6), ("cluster", 27), ("differential", 1), ("simulation", 11)];
