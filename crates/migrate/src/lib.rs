//! `rekindle migrate`: moves databases between servers of RethinkDB's protocol while they run.
//!
//! It is a client of both sides and knows nothing of the inside of a server. Pure cores: [`coverage`] (which ranges of keys are
//! copied), [`gate`] (which changes of a feed are applied, and when), [`catalog`] (the plan), [`compare`] (equal rows), [`rate`],
//! [`split`], [`check`]. What drives them: [`server`] (connections), [`copy`] (readers of ranges), [`follow`] (feeds and the changes
//! of each), [`run`] (the order of a migration), [`verify`], [`cut_over`], [`cli`]. [`dump`] has the write hooks of dumps.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod check;
pub mod cli;
pub mod compare;
pub mod copy;
pub mod coverage;
pub mod cut_over;
pub mod dump;
pub mod error;
pub mod follow;
pub mod gate;
pub mod key;
pub mod only;
pub mod progress;
pub mod queries;
pub mod rate;
pub mod report;
pub mod row;
pub mod run;
pub mod server;
pub mod split;
pub mod state;
pub mod status;
pub mod table;
pub mod verify;
