//! A certificate authority of one run, and the certificate of everything on 127.0.0.1, as PEM files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::BenchError;

/// The paths of the files.
pub(crate) struct CertificateFiles {
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl CertificateFiles {
    /// Makes an authority and a certificate, and writes them to `directory`.
    pub(crate) fn create(directory: &Path) -> Result<Self, BenchError> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let files = CertificateFiles {
            ca: directory.join("ca.pem"),
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
        };
        fs::write(&files.ca, ca.self_signed(&ca_key)?.pem())?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?;
        fs::write(&files.certificate, certificate.signed_by(&key, &Issuer::new(ca, ca_key))?.pem())?;
        fs::write(&files.key, key.serialize_pem())?;
        Ok(files)
    }
}
