//! A sweep over cluster sizes: what the runs at each size say together.
//!
//! `document` is what is written (`docs/formats/bench-sweep.md`), [`summarize`] makes it of runs,
//! [`usl`] fits the Universal Scalability Law, [`table`] shows it in a terminal.

pub mod bars;
pub mod document;
pub mod run;
pub mod summarize;
mod surroundings;
pub mod table;
pub mod usl;
