//! A migration from its plan to its end.

mod drive;
mod monitor;
mod options;
mod prepare;

pub use drive::run;
pub use options::{Mode, Options, Outcome};
pub use prepare::facts_of_tables;
