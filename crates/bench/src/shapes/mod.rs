//! What `bench reql` measures: shapes of queries that applications send.
//!
//! `shape` says what each asks and what its answer must be, `table` makes the rows that are asked for,
//! `asker` asks over many connections, `rest` waits until the servers have nothing left to do by
//! themselves.

pub mod asker;
pub mod rest;
pub mod shape;
pub mod table;
