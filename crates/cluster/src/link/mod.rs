//! The links between nodes: one connection for each pair of servers, and everything that goes over it.
//!
//! [`Links`] is the handle: it asks requests ([`crate::RpcClient`]), sends log_messages of the log, and says who is
//! there. [`LinkParty`] is what a network drives, real or simulated. What arrives goes to a
//! [`Receiver`]. The bytes are described in docs/formats/link.md. Knows nothing of what is asked or
//! written.

mod book;
mod contract;
mod dialer;
mod frame;
mod hello;
mod links;
mod log_message;
mod machine;
mod outbox;
mod parts;
mod said;
mod stats;
mod stream;

pub use book::{Book, BookEntry};
pub use contract::{LinkOptions, LinkTimings, MayFound, Me, PeerInfo, Receiver};
pub use frame::Damage;
pub use links::{LinkParty, Links};
pub use log_message::{Message, PeerId};
pub use outbox::QueueLimits;
pub use stats::PeerStats;
pub use stream::{StreamReading, read_stream, sample_frame, sample_hello};
