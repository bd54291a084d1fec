//! rekindle
fn main() {}
