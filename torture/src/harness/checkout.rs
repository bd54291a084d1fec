//! The checkout of the repository and the cache beside it.

use std::env;
use std::path::PathBuf;

/// The repository's root. Cargo names the checkout that it runs a program for, which is another one than the program was
/// built in where two checkouts build in one folder.
pub fn root() -> PathBuf {
    let built_in = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    env::var_os("CARGO_MANIFEST_DIR").map_or_else(built_in, PathBuf::from).join("..")
}

/// Where set-up leaves the virtual environment and the Node packages.
pub fn cache() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/rekindle");
    env::var_os("REKINDLE_CACHE").map_or_else(home, PathBuf::from)
}
