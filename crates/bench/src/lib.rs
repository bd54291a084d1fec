//! Benchmarks: published workloads against any server of the RethinkDB protocol.
//!
//! This is an ordinary client that only uses the wire protocol, so the same command measures Rekindle and RethinkDB. In
//! the order of a run: [`cli`] and [`commands`] parse the command, [`sut`] finds the servers, [`ycsb`], [`blocks`],
//! [`wiki`] and [`shapes`] create the queries, [`drive`] sends them over many connections through [`client`], [`measure`] and
//! [`machine`] record, [`assemble`] builds a [`result`], [`terminal`] and [`report`] show it. [`fleet`] starts clusters
//! to measure, [`sweep`] combines runs at several cluster sizes.

#![forbid(unsafe_code)]

pub mod alarms;
pub mod assemble;
pub mod baseline;
pub mod blocks;
pub mod cli;
pub mod commands;
pub mod comparability;
pub mod conditions;
pub mod drive;
pub mod feeds;
pub mod flags;
pub mod fleet;
pub mod limits;
pub mod machine;
pub mod measure;
pub mod published;
pub mod report;
pub mod result;
pub mod rng;
pub mod secrets;
pub mod shapes;
pub mod sut;
pub mod sweep;
pub mod terminal;
pub mod units_result;
pub mod wiki;
pub mod ycsb;
