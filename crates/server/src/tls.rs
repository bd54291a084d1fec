//! TLS between this node's services and their clients.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::io::real::{TlsError, server_config};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::ServiceTls;

/// How long a browser or scraper may take for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that have finished the handshake and wait to be served.
const READY_MAX: usize = 64;

/// Delay after the system refused to accept a connection.
const ACCEPT_RETRY_BACKOFF: Duration = Duration::from_millis(50);

/// The TLS acceptor of a service. Fails when the files cannot be used.
pub fn acceptor(files: &ServiceTls) -> Result<TlsAcceptor, TlsError> {
    let config = server_config(&files.key, &files.certificate, files.authorities.as_deref())?;
    Ok(TlsAcceptor::from(config))
}

/// Performs the TLS handshake with a client; returns `None` and logs it when that fails or takes too long.
pub async fn shake_hands(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
    handshake_timeout: Duration,
) -> Option<TlsStream<TcpStream>> {
    match timeout(handshake_timeout, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::debug!("refused a connection from {address}: TLS: {error}"),
        Err(_) => tracing::debug!("closed a connection from {address} that did not finish its TLS handshake"),
    }
    None
}

/// The encrypted connections of one socket, in the order in which they finish their handshake: a slow one does not
/// delay others.
pub struct Encrypted {
    ready: Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
}

impl Encrypted {
    /// Accepts the connections of `listener` until the returned value is dropped.
    pub fn start(listener: TcpListener, acceptor: TlsAcceptor) -> io::Result<Encrypted> {
        let address = listener.local_addr()?;
        let (sender, ready) = channel(READY_MAX);
        tokio::spawn(accept(listener, acceptor, sender));
        Ok(Encrypted { ready, address })
    }
}

impl axum::serve::Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accepting task ends only with the runtime.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    ready: Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    while !ready.is_closed() {
        match listener.accept().await {
            Ok((stream, address)) => {
                // A failure costs time, nothing else.
                drop(stream.set_nodelay(true));
                let (acceptor, ready) = (acceptor.clone(), ready.clone());
                tokio::spawn(async move {
                    if let Some(stream) = shake_hands(&acceptor, stream, address, HANDSHAKE_TIMEOUT).await {
                        // Fails only when the port is no longer served.
                        drop(ready.send((stream, address)).await);
                    }
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept an HTTP connection: {error}");
                sleep(ACCEPT_RETRY_BACKOFF).await;
            }
        }
    }
}
