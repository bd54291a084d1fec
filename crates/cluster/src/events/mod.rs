//! What wakes the threads of a node.
//!
//! - [`EventQueue`]: events of the log and of the links, which wait for the node's event loop.
//! - [`Notifier`]: wakes threads that wait for a change of state.

mod event_queue;
mod notifier;

pub(crate) use event_queue::Event;
pub use event_queue::EventQueue;
pub use notifier::Notifier;
