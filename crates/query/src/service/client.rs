//! Who asks.

use std::net::SocketAddr;

use datum::Text;

/// Who asks, for permissions and the list of running queries.
#[derive(Clone, Debug)]
pub struct Client {
    /// The account.
    pub user: Text,
    /// The other end of the connection.
    pub address: SocketAddr,
}
