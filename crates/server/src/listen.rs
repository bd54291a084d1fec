//! Listening sockets.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::time::sleep;

use crate::worker::Workers;

/// How many connections the kernel queues until they are accepted.
const BACKLOG: i32 = 4096;

/// Delay after the system refused to accept a connection (too many open files).
const ACCEPT_RETRY_BACKOFF: Duration = Duration::from_millis(50);

/// The warning about it is logged at most this often.
const ACCEPT_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The bound sockets of one service: the same port on each of its addresses. They do not accept connections yet.
pub struct BoundSockets {
    /// The port; chosen by the system if 0 was requested.
    pub port: u16,
    sockets: Vec<(SocketAddr, Socket)>,
}

/// Binds `port` on each address. Port 0 means a free one, the same for all. An IPv6 address that this machine does not
/// have is skipped.
pub fn bind(addresses: &[IpAddr], port: u16) -> Result<BoundSockets, BindError> {
    let mut bound = BoundSockets { port, sockets: Vec::new() };
    for address in addresses {
        let address = SocketAddr::new(*address, bound.port);
        match bind_one(address) {
            Ok((port, socket)) => {
                bound.port = port;
                bound.sockets.push((address, socket));
            }
            Err(cause) if is_missing_ipv6(address.ip(), &cause) && addresses.len() > 1 => {}
            Err(cause) => return Err(BindError { address, cause }),
        }
    }
    Ok(bound)
}

/// An address on which the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {cause}")]
pub struct BindError {
    pub address: SocketAddr,
    /// The system's error.
    pub cause: io::Error,
}

impl BoundSockets {
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.sockets.iter().map(|(address, _)| address.ip())
    }

    /// Starts to accept connections.
    pub fn listen(self) -> Result<Vec<TcpListener>, BindError> {
        let listen = |(address, socket): (SocketAddr, Socket)| {
            socket.listen(BACKLOG).map_err(|cause| BindError { address, cause })?;
            Ok(socket.into())
        };
        self.sockets.into_iter().map(listen).collect()
    }
}

fn is_missing_ipv6(address: IpAddr, error: &io::Error) -> bool {
    let missing = matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(97);
    address.is_ipv6() && (address.is_loopback() || address.is_unspecified()) && missing
}

fn bind_one(address: SocketAddr) -> io::Result<(u16, Socket)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    let port = socket.local_addr()?.as_socket().map_or(address.port(), |address| address.port());
    Ok((port, socket))
}

/// Raises the limit of open files and connections to the maximum that the system allows: the usual limit, 1024, is
/// meant for programs that use `select`.
pub fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!("the limit of open files and connections stays at {current:?}: {error}");
    }
}

/// Assigns every new connection to a worker, until the future is dropped.
pub async fn accept_drivers(listener: TcpListener, workers: Arc<Workers>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut warned: Option<Instant> = None;
    loop {
        let accepted = listener.accept().await.and_then(|(stream, address)| {
            stream.set_nodelay(true)?;
            socket2::SockRef::from(&stream).set_keepalive(true)?;
            Ok((stream.into_std()?, address))
        });
        match accepted {
            Ok((stream, address)) => workers.assign(stream, address),
            Err(error) => {
                if warned.is_none_or(|at| at.elapsed() > ACCEPT_WARNING_INTERVAL) {
                    tracing::warn!("cannot accept driver connections: {error}");
                    warned = Some(Instant::now());
                }
                sleep(ACCEPT_RETRY_BACKOFF).await;
            }
        }
    }
}
