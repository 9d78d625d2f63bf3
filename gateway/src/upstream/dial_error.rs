//! Why an address can't be reached: stable words for status and logs, so that an operator sees what to mend without
//! reading the system's own sentence.

use std::{fmt, io};

use super::codec;
use crate::tls::WrongIdentity;

/// Why there is no connection to an address of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DialErrorKind {
    /// Nobody listens there.
    NobodyListens,
    /// There is nothing at the path of a Unix socket.
    NoSocket,
    /// What is at the path is no socket.
    NotASocket,
    /// The system doesn't let this process use the socket.
    SocketPermission,
    /// The host's name is not known.
    NameUnresolved,
    /// The host's name is known and stands for no address.
    NoAddress,
    /// The address is one that is never dialled.
    EgressDenied,
    /// It was written through the admin API, and names what nothing lists in `egress` or `secrets`, or leads there.
    NotPermitted,
    /// The plugin's certificate has ended, or has yet to begin.
    CertificateExpired,
    /// The plugin's certificate is for other names.
    CertificateName,
    /// No CA that is trusted vouches for the plugin's certificate.
    CertificateUntrusted,
    /// The plugin's certificate is that of another SPIFFE id.
    CertificateIdentity,
    /// The plugin doesn't take the gateway's certificate, or wants one.
    ClientCertificateRefused,
    /// No TLS came about for another reason.
    TlsFailed,
    /// No connection within `limits.connect`.
    ConnectTimeout,
    /// The other end hung up before it answered anything.
    Closed,
    /// Anything else.
    Other,
}

impl DialErrorKind {
    /// All of them.
    pub const ALL: &'static [DialErrorKind] = &[
        DialErrorKind::NobodyListens,
        DialErrorKind::NoSocket,
        DialErrorKind::NotASocket,
        DialErrorKind::SocketPermission,
        DialErrorKind::NameUnresolved,
        DialErrorKind::NoAddress,
        DialErrorKind::EgressDenied,
        DialErrorKind::NotPermitted,
        DialErrorKind::CertificateExpired,
        DialErrorKind::CertificateName,
        DialErrorKind::CertificateUntrusted,
        DialErrorKind::CertificateIdentity,
        DialErrorKind::ClientCertificateRefused,
        DialErrorKind::TlsFailed,
        DialErrorKind::ConnectTimeout,
        DialErrorKind::Closed,
        DialErrorKind::Other,
    ];

    /// The name used in status and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            DialErrorKind::NobodyListens => "connection_refused",
            DialErrorKind::NoSocket => "no_socket",
            DialErrorKind::NotASocket => "not_a_socket",
            DialErrorKind::SocketPermission => "socket_permission",
            DialErrorKind::NameUnresolved => "name_unresolved",
            DialErrorKind::NoAddress => "no_address",
            DialErrorKind::EgressDenied => "egress_denied",
            DialErrorKind::NotPermitted => "not_permitted",
            DialErrorKind::CertificateExpired => "certificate_expired",
            DialErrorKind::CertificateName => "certificate_name",
            DialErrorKind::CertificateUntrusted => "certificate_untrusted",
            DialErrorKind::CertificateIdentity => "certificate_identity",
            DialErrorKind::ClientCertificateRefused => "client_certificate_refused",
            DialErrorKind::TlsFailed => "tls_failed",
            DialErrorKind::ConnectTimeout => "connect_timeout",
            DialErrorKind::Closed => "closed_without_answer",
            DialErrorKind::Other => "unreachable",
        }
    }
}

impl fmt::Display for DialErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A dial that came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct DialError {
    pub(super) cause: DialErrorKind,
    /// For the operator: what happened, and what to mend where that isn't plain.
    pub(super) detail: String,
}

impl DialError {
    pub(super) fn new(cause: DialErrorKind, detail: impl Into<String>) -> Self {
        DialError { cause, detail: detail.into() }
    }

    /// What the system said of a socket.
    pub(super) fn from_socket(error: &io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::ConnectionRefused => DialErrorKind::NobodyListens,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => DialErrorKind::Closed,
            io::ErrorKind::TimedOut => DialErrorKind::ConnectTimeout,
            _ => DialErrorKind::Other,
        };
        DialError::new(cause, error.to_string())
    }

    /// What came of TLS: rustls's own words, which don't say what to mend, and ours, which do.
    pub(super) fn from_tls(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let (cause, remedy) = inner.map_or((DialErrorKind::TlsFailed, NO_TLS_HINT), classify_rustls);
        // rustls shows what it doesn't know as a program would.
        let what = match inner {
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) => {
                other.0.to_string()
            }
            _ => error.to_string(),
        };
        // Names in it are the other end's word.
        DialError::new(cause, format!("{}: {remedy}", codec::display_text(&what)))
    }
}

const NO_TLS_HINT: &str = "check that the plugin speaks TLS at that port, or use `http://`";

fn classify_rustls(error: &rustls::Error) -> (DialErrorKind, &'static str) {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
    match error {
        Error::InvalidCertificate(certificate) => match certificate {
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. } => {
                (DialErrorKind::CertificateExpired, "give the plugin a certificate that is valid now")
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => (
                DialErrorKind::CertificateName,
                "give the plugin a certificate for the endpoint's host, or set `tls.server_name` to a name that it \
                 has",
            ),
            Certificate::Other(other) if other.0.is::<WrongIdentity>() => (
                DialErrorKind::CertificateIdentity,
                "correct `tls.spiffe_id`, or check which process answers instead of the plugin",
            ),
            _ => (
                DialErrorKind::CertificateUntrusted,
                "set `tls.ca_file` to the CA of the plugin's certificate, or get the certificate signed by that CA",
            ),
        },
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied,
        ) => (
            DialErrorKind::ClientCertificateRefused,
            "set `tls.cert_file` and `tls.key_file` to a certificate that the plugin accepts",
        ),
        Error::InvalidMessage(_) => (DialErrorKind::TlsFailed, NO_TLS_HINT),
        _ => (DialErrorKind::TlsFailed, "check the plugin's log for what it expects of TLS"),
    }
}
