//! Sockets that wait for connections.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::time::sleep;

use crate::worker::Workers;

/// Connections the system keeps for us while we are busy.
const BACKLOG: i32 = 4096;

/// Pause after the system refused to give us a connection (too many open files).
const PAUSE: Duration = Duration::from_millis(50);

/// The sockets of one service: the same port on each of its addresses.
pub struct Listeners {
    /// Which port; chosen by the system if 0 was asked for.
    pub port: u16,
    /// One per address.
    pub sockets: Vec<TcpListener>,
}

/// Listens on `port` of each address. Port 0: a free one, the same for all. An IPv6 loopback
/// that this machine does not have is left out.
pub fn bind(addresses: &[IpAddr], port: u16) -> Result<Listeners, (SocketAddr, io::Error)> {
    let mut listeners = Listeners { port, sockets: Vec::new() };
    for address in addresses {
        let address = SocketAddr::new(*address, listeners.port);
        match bind_one(address) {
            Ok(socket) => {
                listeners.port = socket.local_addr().map_err(|error| (address, error))?.port();
                listeners.sockets.push(socket);
            }
            Err(error) if is_missing_ipv6(address.ip(), &error) && addresses.len() > 1 => {}
            Err(error) => return Err((address, error)),
        }
    }
    Ok(listeners)
}

fn is_missing_ipv6(address: IpAddr, error: &io::Error) -> bool {
    let missing = matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(97);
    address.is_ipv6() && (address.is_loopback() || address.is_unspecified()) && missing
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Gives every connection that arrives to a worker, until it is dropped.
pub async fn accept_drivers(listener: TcpListener, workers: Arc<Workers>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let arrived = listener.accept().await.and_then(|(stream, address)| {
            stream.set_nodelay(true)?;
            socket2::SockRef::from(&stream).set_keepalive(true)?;
            Ok((stream.into_std()?, address))
        });
        match arrived {
            Ok((stream, address)) => workers.welcome(stream, address),
            Err(error) => {
                tracing::warn!("a driver connection could not be accepted: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}
