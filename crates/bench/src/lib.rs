//! The laboratory: published workloads against any server of the RethinkDB protocol.
//!
//! It is a client like any other and speaks only the wire protocol. What it writes is described in
//! `docs/formats/bench-result.md`.

pub mod baseline;
pub mod chance;
pub mod drive;
pub mod machine;
pub mod measure;
pub mod result;
pub mod wire;
pub mod ycsb;
