//! Which certificates of servers are trusted: those signed by an authority in a file, and those in the file themselves.
//!
//! The second case is the setup of RethinkDB's documentation: one self-signed certificate of the server, which clients trust. Such a
//! certificate may sign others, and by the usual rules a certificate authority's certificate cannot identify a server. It often has
//! no name but the subject, which the rules do not read. Here it identifies the server, which proves in the handshake that it has the key.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Verifies servers by the certificates of a file.
#[derive(Debug)]
pub(crate) struct TrustedServers {
    rules: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl TrustedServers {
    /// `roots` has the same certificates. Fails if there are none.
    pub(crate) fn new(
        certificates: Vec<CertificateDer<'static>>,
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<TrustedServers, VerifierBuilderError> {
        let rules = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(TrustedServers { rules, certificates })
    }
}

impl ServerCertVerifier for TrustedServers {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = self.rules.verify_server_cert(certificate, intermediates, name, ocsp, now);
        if !self.certificates.contains(certificate) {
            return verdict;
        }
        let verdict = match verdict {
            // The rules have checked the dates before that, and not the name.
            Err(error) if is_for_authorities(&error) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
                    .map(|()| ServerCertVerified::assertion())
            }
            verdict => verdict,
        };
        match verdict {
            Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented, ..
            })) if presented.is_empty() => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.rules.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.rules.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.rules.supported_verify_schemes()
    }
}

/// Whether the only error is that the certificate belongs to an authority.
fn is_for_authorities(error: &Error) -> bool {
    // The type of the inner error belongs to a crate below rustls.
    matches!(error, Error::InvalidCertificate(CertificateError::Other(why)) if why.to_string() == "CaUsedAsEndEntity")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    const AUTHORITY: &[u8] = include_bytes!("../../../tests/drivers/tls/authority.pem");
    const SERVER: &[u8] = include_bytes!("../../../tests/drivers/tls/server.pem");
    const SELF_SIGNED: &[u8] = include_bytes!("../../../tests/drivers/tls/self_signed.pem");
    const NAMELESS: &[u8] = include_bytes!("../../../tests/drivers/tls/nameless.pem");
    /// In the year 2030, and after the end of all of them.
    const NOW: u64 = 1_900_000_000;
    const LATER: u64 = 9_000_000_000;

    fn is_trusted(file: &[u8], shown: &[u8], name: &'static str, now: u64) -> bool {
        let certificate = |pem: &[u8]| CertificateDer::from_pem_slice(pem).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate(file)).unwrap();
        let provider = Arc::new(ring::default_provider());
        let trusted = TrustedServers::new(vec![certificate(file)], roots, provider).unwrap();
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        trusted.verify_server_cert(&certificate(shown), &[], &name, &[], now).is_ok()
    }

    #[test]
    fn certificates_of_an_authority_are_trusted_for_their_names() {
        assert!(is_trusted(AUTHORITY, SERVER, "localhost", NOW));
        assert!(
            !is_trusted(AUTHORITY, SERVER, "db", NOW) && !is_trusted(AUTHORITY, SERVER, "localhost", LATER)
        );
        assert!(!is_trusted(AUTHORITY, SELF_SIGNED, "localhost", NOW));
        assert!(!is_trusted(SELF_SIGNED, SERVER, "localhost", NOW));
    }

    #[test]
    fn a_self_signed_certificate_in_the_file_is_trusted() {
        assert!(is_trusted(SELF_SIGNED, SELF_SIGNED, "localhost", NOW));
        assert!(!is_trusted(SELF_SIGNED, SELF_SIGNED, "db", NOW));
        assert!(is_trusted(NAMELESS, NAMELESS, "db", NOW));
        assert!(!is_trusted(NAMELESS, SELF_SIGNED, "localhost", NOW));
        assert!(!is_trusted(SELF_SIGNED, SELF_SIGNED, "localhost", LATER));
        assert!(!is_trusted(NAMELESS, NAMELESS, "db", LATER));
    }
}
