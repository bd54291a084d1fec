//! A node's process: configuration, start-up order, connections, HTTP.
//!
//! In the order of a request: [`listen`] accepts, a [`worker`] owns the [`connection`], which passes queries to a
//! [`service`]. [`startup`] assembles all of it from a [`config`].

// The event loop in `worker::drive` watches a file descriptor that is not a socket.
#![deny(unsafe_code)]

mod background_check;
pub mod config;
mod connection;
mod counters;
mod http;
#[cfg(feature = "js")]
mod js;
mod listen;
mod log_lines;
mod memory;
mod metrics_history;
mod node_service;
#[cfg(feature = "http")]
mod outbound_http;
pub mod service;
mod space;
mod startup;
mod tls;
mod worker;
mod worker_state;

pub use connection::Connection;
pub use counters::Counters;
#[cfg(feature = "js")]
pub use js::{JsPool, run_sandbox};
pub use listen::{BoundSockets, accept_drivers, bind};
#[cfg(feature = "http")]
pub use outbound_http::OutboundHttp;
pub use startup::{DirectoryError, OpenMode, StartError, create, serve, serve_proxy};
pub use worker::Workers;
pub use worker_state::{Shared, WorkerState};

/// The kind of machine the program was built for, as in `x86_64-linux`.
pub const PLATFORM: &str = platform();

const fn platform() -> &'static str {
    if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        "x86_64-linux"
    } else if cfg!(all(target_arch = "aarch64", target_os = "linux")) {
        "aarch64-linux"
    } else {
        std::env::consts::OS
    }
}
