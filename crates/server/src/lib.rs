//! A node's process: configuration, start-up order, connections, HTTP.
//!
//! In the order of a request: [`listen`] accepts, a [`worker`] owns the [`connection`], which
//! asks a [`service`] for answers. [`startup`] puts it all together from a [`config`].

// The event loop of `turns` watches a file descriptor that is no socket.
#![deny(unsafe_code)]

mod cache_size;
pub mod config;
mod connection;
mod counters;
mod data_directory;
mod give_way;
mod http;
#[cfg(feature = "js")]
mod js;
mod listen;
mod log_lines;
mod memory_plan;
mod node_service;
mod outside;
mod password;
mod peers;
mod pid_file;
mod pool;
mod ports;
mod proxy_folder;
mod server_name;
pub mod service;
mod shutdown;
mod start_error;
mod startup;
mod stores;
mod tls;
mod turns;
mod wake_queue;
#[cfg(feature = "http")]
mod web;
mod worker;
mod worker_state;

pub use connection::Connection;
pub use counters::Counters;
pub use data_directory::{DirectoryError, Opening};
#[cfg(feature = "js")]
pub use js::{JsPool, run_sandbox};
pub use listen::{Bound, accept_drivers, bind};
pub use start_error::StartError;
pub use startup::{create, serve, serve_proxy};
#[cfg(feature = "http")]
pub use web::WebClient;
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
