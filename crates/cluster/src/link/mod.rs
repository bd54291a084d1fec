//! The links between nodes: one connection for each pair of servers, and everything that goes over it.
//!
//! [`Links`] is the handle: it sends requests ([`crate::RpcClient`]) and replication messages, and lists the
//! connected servers. [`LinkHandler`] is driven by a network, real or simulated. A [`Receiver`] takes the events and
//! the data received. The format is in docs/formats/link.md. This module does not know the contents of requests and
//! messages.

mod address_book;
mod contract;
mod dialer;
mod frame;
mod hello;
mod links;
mod log_message;
mod log_once;
mod machine;
mod outbox;
mod parts;
mod stats;
mod stream;

pub use address_book::{AddressBook, AddressBookEntry};
pub use contract::{BootstrapPermission, LinkOptions, LinkTimings, LocalServer, PeerInfo, Receiver};
pub use frame::Damage;
pub use links::{LinkHandler, Links};
pub use log_message::{Message, PeerId};
pub use outbox::QueueLimits;
pub use stats::PeerStats;
pub use stream::{StreamReading, read_stream, sample_frame, sample_hello};
