//! Why an address can't be reached, as stable words for status and logs. They tell the operator what to fix
//! without the system's own error text.

use std::{fmt, io};

use super::codec;
use crate::tls::WrongIdentity;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DialErrorKind {
    /// Nothing listens on the port or socket.
    NobodyListens,
    /// The path of the Unix socket doesn't exist.
    NoSocket,
    /// The path isn't a socket.
    NotASocket,
    /// The system denies this process access to the socket.
    SocketPermission,
    /// No process of the plugin has registered an endpoint.
    NotRegistered,
    /// The host name can't be resolved.
    NameUnresolved,
    /// The host name resolves to no address.
    NoAddress,
    /// The gateway never dials this address.
    EgressDenied,
    /// The entry was written through the admin API, and names or leads to something that `egress` or
    /// `secrets` doesn't list.
    NotPermitted,
    /// The plugin's certificate has expired or is not valid yet.
    CertificateExpired,
    /// The plugin's certificate is for other names.
    CertificateName,
    /// No trusted CA issued the plugin's certificate.
    CertificateUntrusted,
    /// The plugin's certificate has another SPIFFE id.
    CertificateIdentity,
    /// The plugin rejects the gateway's certificate, or requires one.
    ClientCertificateRefused,
    /// The TLS handshake failed for another reason.
    TlsFailed,
    /// No connection within `limits.connect`.
    ConnectTimeout,
    /// The other end closed the connection before it answered anything.
    Closed,
    /// Anything else.
    Other,
}

impl DialErrorKind {
    pub const ALL: &'static [DialErrorKind] = &[
        DialErrorKind::NobodyListens,
        DialErrorKind::NoSocket,
        DialErrorKind::NotASocket,
        DialErrorKind::SocketPermission,
        DialErrorKind::NotRegistered,
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
            DialErrorKind::NotRegistered => "not_registered",
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

/// A failed dial.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct DialError {
    pub(super) cause: DialErrorKind,
    /// For the operator: what happened, and what to fix if that isn't obvious.
    pub(super) detail: String,
}

impl DialError {
    pub(super) fn new(cause: DialErrorKind, detail: impl Into<String>) -> Self {
        DialError { cause, detail: detail.into() }
    }

    /// Classifies a system error from connecting to a socket.
    pub(super) fn from_socket(error: &io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::ConnectionRefused => DialErrorKind::NobodyListens,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => DialErrorKind::Closed,
            io::ErrorKind::TimedOut => DialErrorKind::ConnectTimeout,
            _ => DialErrorKind::Other,
        };
        DialError::new(cause, error.to_string())
    }

    /// Classifies a TLS error. rustls's own messages don't say what to fix, so a remedy is added.
    pub(super) fn from_tls(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let (cause, remedy) = inner.map_or((DialErrorKind::TlsFailed, NO_TLS_HINT), classify_rustls);
        // rustls prints unknown certificate errors in debug form.
        let what = match inner {
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) => {
                other.0.to_string()
            }
            _ => error.to_string(),
        };
        // The message may quote names that the other end chose.
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
