//! A sweep over cluster sizes: combines the runs at each size.
//!
//! `document` is the written result (`docs/formats/bench-sweep.md`), [`summarize`] derives it from runs, [`usl`] fits
//! the Universal Scalability Law, [`table`] shows it in a terminal.

pub mod bars;
mod condition_alarms;
pub mod document;
pub mod run;
pub mod summarize;
pub mod table;
pub mod usl;
