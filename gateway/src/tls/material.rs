//! Checks files and turns them into usable certificates: complete, matching their key, and within their
//! validity. Each error is one sentence that names the key and the file to fix, and shows nothing of a key
//! file's contents.

use std::{sync::Arc, time::SystemTime};

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    sign::CertifiedKey,
};

use super::{
    certificate::CertificateFacts,
    files::{TlsFile, TlsFileContents, TlsFiles},
    provider,
};

/// The checked material of one end of TLS.
pub(super) struct TlsMaterial {
    /// The gateway's own certificate chain and key.
    pub(super) pair: Option<CertifiedPair>,
    /// The CAs trusted to issue the other end's certificate.
    pub(super) ca: Option<Ca>,
}

pub(super) struct CertifiedPair {
    pub(super) key: CertifiedKey,
    pub(super) facts: CertificateFacts,
}

pub(super) struct Ca {
    pub(super) roots: Arc<RootCertStore>,
    /// The facts of the certificate among them that expires first.
    pub(super) facts: CertificateFacts,
}

/// Checks what was read.
///
/// # Errors
/// The first error, as one sentence.
pub(super) fn check(files: &TlsFiles, contents: TlsFileContents) -> Result<TlsMaterial, String> {
    let pair = match (&files.pair, contents.pair) {
        (Some((chain_file, key_file)), Some((chain, key))) => {
            Some(pair(chain_file, key_file, &chain?, &key?)?)
        }
        _ => None,
    };
    let ca = match (&files.ca, contents.ca) {
        (Some(file), Some(content)) => Some(ca(file, &content?)?),
        _ => None,
    };
    Ok(TlsMaterial { pair, ca })
}

fn pair(chain_file: &TlsFile, key_file: &TlsFile, chain: &[u8], key: &[u8]) -> Result<CertifiedPair, String> {
    let chain = certificates(chain_file, chain)?;
    let facts = facts(chain_file, &chain)?.into_iter().next();
    let facts = facts.ok_or_else(|| none_in(chain_file))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            format!("{key_file} holds no private key in PEM (PKCS#8, SEC1 or PKCS#1): write one that isn't encrypted")
        }
        // Not the error itself: it may show what the file holds.
        _ => format!("{key_file} is an incomplete PEM file: replace it"),
    })?;
    let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("{key_file} is not the key of the certificate in {chain_file}: replace both together")
        }
        _ => format!(
            "{key_file} holds a key that can't be used: take RSA, ECDSA (P-256, P-384, P-521) or Ed25519"
        ),
    })?;
    Ok(CertifiedPair { key, facts })
}

fn ca(file: &TlsFile, content: &[u8]) -> Result<Ca, String> {
    let certificates = certificates(file, content)?;
    let first_to_end = facts(file, &certificates)?.into_iter().min_by_key(|facts| facts.not_after);
    let facts = first_to_end.ok_or_else(|| none_in(file))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| {
            format!("{file} holds a certificate that is not a CA's: {error}: use the CA's own")
        })?;
    }
    Ok(Ca { roots: Arc::new(roots), facts })
}

fn none_in(file: &TlsFile) -> String {
    format!("{file} holds no PEM certificate, which begins with `-----BEGIN CERTIFICATE-----`")
}

fn certificates(file: &TlsFile, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_slice_iter(content).collect::<Result<Vec<_>, _>>();
    all.map_err(|_| format!("{file} is an incomplete PEM file: replace it"))
}

fn facts(file: &TlsFile, certificates: &[CertificateDer<'_>]) -> Result<Vec<CertificateFacts>, String> {
    let all = certificates.iter().map(CertificateFacts::from_certificate).collect::<Option<_>>();
    all.ok_or_else(|| format!("{file} contains an invalid certificate (X.509): replace it"))
}

impl CertificateFacts {
    /// Why the certificate isn't valid now, as the end of a sentence. Returns `None` if it is valid.
    pub(super) fn untimely(&self) -> Option<String> {
        let now = seconds_now();
        if now > self.not_after {
            Some(format!("ended on {}", self.until))
        } else if now < self.not_before {
            Some("is not valid yet".to_owned())
        } else {
            None
        }
    }

    /// Seconds until it expires; negative afterwards.
    pub(super) fn seconds_left(&self) -> i64 {
        self.not_after - seconds_now()
    }
}

fn seconds_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
