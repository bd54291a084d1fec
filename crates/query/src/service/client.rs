//! The client of a session.

use std::net::SocketAddr;

use datum::Text;

/// A client, for permissions and the list of running queries.
#[derive(Clone, Debug)]
pub struct Client {
    /// The user account.
    pub user: Text,
    /// The client's end of the connection.
    pub address: SocketAddr,
}
