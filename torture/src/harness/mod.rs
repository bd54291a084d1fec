//! Nodes of the program under test and the means to disturb them: processes, clusters, network namespaces, and proxies that
//! delay messages.

pub mod checkout;
pub(crate) mod client;
pub mod cluster;
pub(crate) mod message_delay;
pub(crate) mod namespaces;
pub mod node;
pub mod options;
pub mod process;
pub(crate) mod replica_rows;
