//! The command line `rekindle migrate …`.

mod commands;
mod flags;

pub use commands::run;
pub use flags::MigrateArgs;
