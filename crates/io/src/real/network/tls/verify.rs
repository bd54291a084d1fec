//! Verifies certificates: accepts those signed by a trusted authority, and trusted certificates themselves.
//!
//! The second case is the cluster setup of RethinkDB's documentation: one self-signed certificate, used by all servers
//! and trusted by all. Such a certificate may sign others, and by the usual rules a certificate authority's certificate
//! cannot identify a server. Here it can, if the other side proves in the handshake that it has the key.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

/// Trusted certificates, also as roots of trust.
#[derive(Debug)]
pub(super) struct Trusted {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

impl Trusted {
    /// The verdict of the usual rules, except that a trusted certificate is accepted although it may sign others; the
    /// rules check its dates before that. All other untrusted certificates get the same error: the rules would
    /// distinguish whether the certificate could sign itself, and whether its issuer has the name of a trusted one.
    fn judge<T>(
        &self,
        certificate: &CertificateDer<'_>,
        verdict: Result<T, Error>,
        good: T,
    ) -> Result<T, Error> {
        match verdict {
            Err(error) if is_for_authorities(&error) && self.certificates.contains(certificate) => Ok(good),
            Err(error)
                if is_for_authorities(&error)
                    || error == Error::InvalidCertificate(CertificateError::BadSignature) =>
            {
                Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
            }
            verdict => verdict,
        }
    }
}

/// Whether the only error is that the certificate belongs to an authority.
fn is_for_authorities(error: &Error) -> bool {
    // The type of the inner error belongs to a crate below rustls.
    matches!(error, Error::InvalidCertificate(CertificateError::Other(why)) if why.to_string() == "CaUsedAsEndEntity")
}

/// Verifies servers, regardless of their names.
#[derive(Debug)]
pub(super) struct AnyServer {
    pub(super) trusted: Trusted,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let (roots, algorithms) = (&self.trusted.roots, self.provider.signature_verification_algorithms.all);
        let verdict =
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms);
        self.trusted.judge(certificate, verdict, ())?;
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

/// Verifies clients.
#[derive(Debug)]
pub(super) struct AnyClient {
    trusted: Trusted,
    rules: Arc<dyn ClientCertVerifier>,
}

impl AnyClient {
    pub(super) fn new(
        trusted: Trusted,
        provider: Arc<CryptoProvider>,
    ) -> Result<AnyClient, VerifierBuilderError> {
        let rules = WebPkiClientVerifier::builder_with_provider(trusted.roots.clone(), provider).build()?;
        Ok(AnyClient { trusted, rules })
    }
}

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.rules.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verdict = self.rules.verify_client_cert(certificate, intermediates, now);
        self.trusted.judge(certificate, verdict, ClientCertVerified::assertion())
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
