//! A node's process: configuration, start-up order, connections, HTTP.
#![forbid(unsafe_code)]

mod bell;
pub mod config;
mod connection;
mod counters;
mod desk;
mod listen;
mod pool;
pub mod service;
mod worker;

pub use connection::Connection;
pub use counters::Counters;
pub use desk::{Desk, House};
pub use listen::{Listeners, accept_drivers, bind};
pub use worker::Workers;
