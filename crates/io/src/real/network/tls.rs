//! TLS: of services with their clients ([`server_config`]), and between nodes ([`Tls`]).
//!
//! Between nodes both sides show a certificate that one authority has signed. Which authority is the
//! operator's choice (`--cluster-tls-ca`), and being signed by it is what makes a node welcome: names in
//! certificates are not compared, as nodes are reached by whatever address they have.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

/// What a node needs to speak TLS with others. Clones share it.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds nothing of what is wanted.
    #[error("no {what} can be read from {path}: {why}")]
    File {
        /// Private key or certificate.
        what: &'static str,
        /// Which file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// The files do not belong together, or are of a kind nobody can use.
    #[error("the certificate and key of {path} cannot be used: {cause}")]
    Unusable {
        /// The certificate's file.
        path: String,
        /// Why.
        cause: Error,
    },
}

impl Tls {
    /// Reads a private key, the chain of certificates that goes with it, and the certificates of
    /// those whose signature is trusted, all PEM.
    pub fn mutual(key: &Path, chain: &Path, authorities: &Path) -> Result<Tls, TlsError> {
        let unusable = |cause| TlsError::Unusable { path: chain.display().to_string(), cause };
        let server = server_config(key, chain, Some(authorities))?;
        let (key_der, chain_ders) = (private_key(key)?, certificates(chain)?);
        let (roots, provider) = (Arc::new(trusted(authorities)?), Arc::new(ring::default_provider()));
        let verifier = Arc::new(SignedByAuthority { roots, provider: provider.clone() });
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(chain_ders, key_der)
            .map_err(unusable)?;
        Ok(Tls { client: Arc::new(client), server })
    }

    /// The side that dialed.
    pub(super) fn client(&self) -> io::Result<Box<Connection>> {
        // Nobody looks at it; a name has to be given.
        let name = ServerName::try_from("node.rekindle.invalid").map_err(io::Error::other)?;
        let session = ClientConnection::new(self.client.clone(), name).map_err(io::Error::other)?;
        Ok(unbounded(session.into()))
    }

    /// The side that was dialed.
    pub(super) fn server(&self) -> io::Result<Box<Connection>> {
        let session = ServerConnection::new(self.server.clone()).map_err(io::Error::other)?;
        Ok(unbounded(session.into()))
    }
}

/// What a service needs to speak TLS with its clients: reads a private key, the chain of certificates
/// that goes with it, and, for clients that must show a certificate too, the certificates of those
/// whose signature is trusted. All PEM. TLS 1.2 and 1.3.
pub fn server_config(
    key: &Path,
    chain: &Path,
    authorities: Option<&Path>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let unusable = |cause| TlsError::Unusable { path: chain.display().to_string(), cause };
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match authorities {
        Some(authorities) => {
            let clients =
                WebPkiClientVerifier::builder_with_provider(Arc::new(trusted(authorities)?), provider)
                    .build()
                    .map_err(|error| file("certificate", authorities, error))?;
            builder.with_client_cert_verifier(clients)
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(certificates(chain)?, private_key(key)?).map_err(unusable)?;
    Ok(Arc::new(config))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| file("private key", path, error))
}

fn trusted(authorities: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots.add(authority).map_err(|error| file("certificate", authorities, error))?;
    }
    Ok(roots)
}

/// A session that takes whatever it is given: what it is given is bounded by whoever gives it.
fn unbounded(mut session: Connection) -> Box<Connection> {
    session.set_buffer_limit(None);
    Box::new(session)
}

fn file(what: &'static str, path: &Path, why: impl ToString) -> TlsError {
    TlsError::File { what, path: path.display().to_string(), why: why.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| file("certificate", path, error);
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(failed)?
        .collect::<Result<_, _>>()
        .map_err(|error| file("certificate", path, error))?;
    if found.is_empty() { Err(file("certificate", path, "there is none")) } else { Ok(found) }
}

/// Trusts whom an authority has signed, whatever the name.
#[derive(Debug)]
struct SignedByAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SignedByAuthority {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
