//! `rekindle check` and `rekindle salvage`: reads a data directory that no server has open, damaged or not, without
//! changing it (decision 0056). [`online`] verifies the data of a running server.
//!
//! [`folder`] opens the directory, or says why it cannot; [`walk`] reads the pairs of an engine and goes on after damaged
//! blocks; [`large_values`] reads the files of separately stored large values; [`catalog`] reads the tables. [`check`]
//! verifies everything and fills a [`report`]; [`salvage`] writes out the rows that can be read. [`cli`] is the command
//! line of both.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod check;
pub mod cli;
pub mod folder;
pub mod large_values;
pub mod online;
pub mod progress;
pub mod report;
pub mod salvage;
pub mod walk;
