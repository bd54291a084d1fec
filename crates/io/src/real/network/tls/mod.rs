//! TLS: of services with their clients ([`server_config`]), and between nodes ([`Tls`]).
//!
//! Between nodes both sides show a certificate that one authority has signed, or that is trusted itself. Which
//! those are is the operator's choice (`--cluster-tls-ca`), and that is what makes a node welcome: names in
//! certificates are not compared, as nodes are reached by whatever address they have.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, Error, InconsistentKeys, RootCertStore,
    ServerConfig, ServerConnection,
};
use verify::{AnyClient, AnyServer, Trusted};

mod describe;
mod verify;

pub(super) use describe::describe;

/// The TLS configuration of a node, for both directions. Clones share it.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The private key.
    Key,
    /// The certificate of the key, and its intermediate certificates.
    Certificate,
    /// The certificates of trusted authorities.
    Authorities,
}

impl fmt::Display for TlsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsFile::Key => "private key",
            TlsFile::Certificate | TlsFile::Authorities => "certificate",
        })
    }
}

/// Errors of reading certificates and keys.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not contain the expected item.
    #[error("no {what} can be read from {path}: {why}")]
    File {
        /// The purpose of the file.
        what: TlsFile,
        path: String,
        /// The reason.
        why: String,
    },
    /// The files do not belong together, or cannot be used.
    #[error("the certificate of {chain} and the key of {key} cannot be used: {}", explained(.cause))]
    Unusable {
        /// The certificate's file.
        chain: String,
        /// The key's file.
        key: String,
        /// The reason.
        cause: Box<Error>,
    },
}

impl Tls {
    /// Reads a private key, its certificate chain, and the certificates of trusted authorities, all in PEM format.
    pub fn mutual(key: &Path, chain: &Path, authorities: &Path) -> Result<Tls, TlsError> {
        let unusable = |cause| unusable(key, chain, cause);
        let server = server_config(key, chain, Some(authorities))?;
        let (key_der, chain_ders) = (private_key(key)?, certificates(TlsFile::Certificate, chain)?);
        let (trusted, provider) = (trusted(authorities)?, Arc::new(ring::default_provider()));
        let verifier = Arc::new(AnyServer { trusted, provider: provider.clone() });
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(chain_ders, key_der)
            .map_err(unusable)?;
        Ok(Tls { client: Arc::new(client), server })
    }

    /// A session of the side that dialed.
    pub(super) fn client(&self) -> io::Result<Box<Connection>> {
        // Never checked, but a name is required.
        let name = ServerName::try_from("node.rekindle.invalid").map_err(io::Error::other)?;
        let session = ClientConnection::new(self.client.clone(), name).map_err(io::Error::other)?;
        Ok(unbounded(session.into()))
    }

    /// A session of the side that was dialed.
    pub(super) fn server(&self) -> io::Result<Box<Connection>> {
        let session = ServerConnection::new(self.server.clone()).map_err(io::Error::other)?;
        Ok(unbounded(session.into()))
    }
}

/// The TLS configuration of a service: reads a private key, its certificate chain, and, if clients must present
/// certificates too, the certificates of trusted authorities. All in PEM format. TLS 1.2 and 1.3.
pub fn server_config(
    key: &Path,
    chain: &Path,
    authorities: Option<&Path>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let unusable = |cause| unusable(key, chain, cause);
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match authorities {
        Some(authorities) => {
            let clients = AnyClient::new(trusted(authorities)?, provider)
                .map_err(|error| file(TlsFile::Authorities, authorities, error))?;
            builder.with_client_cert_verifier(Arc::new(clients))
        }
        None => builder.with_no_client_auth(),
    };
    let (chain_ders, key_der) = (certificates(TlsFile::Certificate, chain)?, private_key(key)?);
    Ok(Arc::new(builder.with_single_cert(chain_ders, key_der).map_err(unusable)?))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| file(TlsFile::Key, path, error))
}

fn trusted(authorities: &Path) -> Result<Trusted, TlsError> {
    let mut roots = RootCertStore::empty();
    let certificates = certificates(TlsFile::Authorities, authorities)?;
    for authority in &certificates {
        let failed = |error| file(TlsFile::Authorities, authorities, explained(&error));
        roots.add(authority.clone()).map_err(failed)?;
    }
    Ok(Trusted { roots: Arc::new(roots), certificates })
}

/// A session without a limit on its buffer; the caller limits the bytes it writes.
fn unbounded(mut session: Connection) -> Box<Connection> {
    session.set_buffer_limit(None);
    Box::new(session)
}

fn file(what: TlsFile, path: &Path, why: impl ToString) -> TlsError {
    TlsError::File { what, path: path.display().to_string(), why: why.to_string() }
}

fn unusable(key: &Path, chain: &Path, cause: Error) -> TlsError {
    TlsError::Unusable {
        chain: chain.display().to_string(),
        key: key.display().to_string(),
        cause: Box::new(cause),
    }
}

fn certificates(what: TlsFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error: rustls::pki_types::pem::Error| file(what, path, error);
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    if found.is_empty() { Err(file(what, path, "there is none")) } else { Ok(found) }
}

/// Describes the problem of a certificate or key, and the remedy if it is not obvious.
fn explained(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::Other(why)) if why.to_string() == "UnsupportedCertVersion" => {
            "it is a certificate of version 1, and only those of version 3 can be used: give `openssl x509 -req` a file \
             with the line `basicConstraints=CA:FALSE` as `-extfile`, or make one with `openssl req -x509`"
                .to_owned()
        }
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the key does not belong to the certificate".to_owned()
        }
        error => error.to_string(),
    }
}
