//! Reads a certificate's names and validity. Checks no trust.

use rustls::pki_types::CertificateDer;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer as _};

/// What an operator sees of a certificate.
#[derive(Debug, Clone)]
pub(super) struct CertificateFacts {
    /// The names it is for, or else its subject.
    pub(super) names: String,
    /// First and last second of its validity, since 1970.
    pub(super) not_before: i64,
    pub(super) not_after: i64,
    /// The last second, formatted for people.
    pub(super) until: String,
}

impl CertificateFacts {
    /// Returns `None` if the bytes aren't a certificate.
    pub(super) fn from_certificate(certificate: &CertificateDer<'_>) -> Option<CertificateFacts> {
        let parsed = parse(certificate)?;
        let mut names = alternative_names(&parsed)
            .filter_map(|name| match name {
                GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
                GeneralName::IPAddress(bytes) => address(bytes),
                _ => None,
            })
            .collect::<Vec<_>>()
            .join(", ");
        if names.is_empty() {
            names = parsed.subject().to_string();
        }
        let validity = parsed.validity();
        Some(CertificateFacts {
            names,
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            until: validity.not_after.to_string(),
        })
    }
}

/// The URIs that a certificate is for.
pub(super) fn uris(certificate: &CertificateDer<'_>) -> Vec<String> {
    let parsed = parse(certificate);
    let names = parsed.iter().flat_map(alternative_names);
    names
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        })
        .collect()
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(certificate).ok().map(|(_, parsed)| parsed)
}

fn alternative_names<'a>(parsed: &'a X509Certificate<'_>) -> impl Iterator<Item = &'a GeneralName<'a>> {
    let extension = parsed.subject_alternative_name().ok().flatten();
    extension.into_iter().flat_map(|extension| &extension.value.general_names)
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
    let v6 = <[u8; 16]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
    v4.or(v6).ok()
}
