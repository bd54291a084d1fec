//! The bytes of a connection: TCP, or TLS over it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::trust::TrustedServers;

const CONNECT_SECONDS_MAX: Duration = Duration::from_secs(10);

/// A connection's socket.
pub enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Transport {
    /// Bounds the time of a read; `None` waits for ever. Fails with the system's error.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Transport::Plain(stream) => stream.set_read_timeout(timeout),
            Transport::Tls(stream) => stream.sock.set_read_timeout(timeout),
        }
    }
}

impl Read for Transport {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.read(out),
            Transport::Tls(stream) => stream.read(out),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.write(bytes),
            Transport::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(stream) => stream.flush(),
            Transport::Tls(stream) => stream.flush(),
        }
    }
}

/// Opens a TCP connection with `TCP_NODELAY`. Fails after ten seconds without an answer of any address of the host.
pub fn dial(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host name has no address");
    for target in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&target, CONNECT_SECONDS_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Files of TLS that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    #[error("{path} cannot be used as {what}: {why}")]
    File {
        /// The expected contents.
        what: &'static str,
        path: PathBuf,
        why: String,
    },
    #[error("TLS cannot be used")]
    Rustls(#[from] rustls::Error),
}

/// Trusted authorities, and a certificate of the client's own.
#[derive(Clone)]
pub struct TlsSettings(Arc<ClientConfig>);

impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsSettings")
    }
}

impl TlsSettings {
    /// Trusts servers whose certificate is in the file `authorities`, or signed by one that is; `own` is the client's certificate chain and its
    /// key, for servers that ask for one. All files are in PEM. Fails if a file cannot be read or has no such thing in it.
    pub fn read(authorities: &Path, own: Option<(&Path, &Path)>) -> Result<TlsSettings, TlsFilesError> {
        const WHAT: &str = "a file of authorities";
        let mut roots = RootCertStore::empty();
        let trusted = certificates(WHAT, authorities)?;
        for authority in &trusted {
            roots.add(authority.clone()).map_err(|e| file(WHAT, authorities, &e))?;
        }
        let provider = Arc::new(ring::default_provider());
        let servers = TrustedServers::new(trusted, roots, Arc::clone(&provider))
            .map_err(|e| file(WHAT, authorities, &e))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(servers));
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key_der =
                    PrivateKeyDer::from_pem_file(key).map_err(|e| file("a private key", key, &e))?;
                builder.with_client_auth_cert(certificates("a certificate", chain)?, key_der)?
            }
        };
        Ok(TlsSettings(Arc::new(config)))
    }

    /// A session over `stream`; its handshake runs with the first bytes. Fails if `host` is no name of a server.
    pub fn wrap(&self, host: &str, stream: TcpStream) -> io::Result<Transport> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        Ok(Transport::Tls(Box::new(StreamOwned::new(session, stream))))
    }
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|e| file(what, path, &e))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|e| file(what, path, &e))?;
    match found.is_empty() {
        true => Err(file(what, path, &"it has no certificate in PEM")),
        false => Ok(found),
    }
}

fn file(what: &'static str, path: &Path, why: &dyn std::fmt::Display) -> TlsFilesError {
    TlsFilesError::File { what, path: path.to_owned(), why: why.to_string() }
}
