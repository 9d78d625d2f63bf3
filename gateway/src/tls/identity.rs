//! Verifies a plugin by its SPIFFE id (the X.509-SVID specification, sections 2 and 5): its certificate comes
//! from the CA and has that id as its only URI. The host that the plugin runs on doesn't matter.

use std::{fmt, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::certificate;

/// The peer's certificate is valid, but for another identity.
#[derive(Debug, thiserror::Error)]
pub(crate) struct WrongIdentity {
    expected: Arc<str>,
    presented: Vec<String>,
}

impl fmt::Display for WrongIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the certificate's URIs are {:?}, not {:?} alone", self.presented, self.expected)
    }
}

/// Accepts servers with one SPIFFE id.
#[derive(Debug)]
pub(super) struct SpiffeVerifier {
    pub(super) id: Arc<str>,
    pub(super) roots: Arc<RootCertStore>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SpiffeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        let presented = certificate::uris(end_entity);
        if presented == [&*self.id] {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongIdentity { expected: Arc::clone(&self.id), presented };
        Err(CertificateError::Other(OtherError(Arc::new(wrong))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
