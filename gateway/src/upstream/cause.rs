//! Why an address can't be reached: stable words for status and logs, so that an operator sees what to mend without
//! reading the system's own sentence.

use std::{fmt, io};

use super::codec;
use crate::tls::WrongIdentity;

/// Why there is no connection to an address of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
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

impl Cause {
    /// All of them.
    pub const ALL: &'static [Cause] = &[
        Cause::NobodyListens,
        Cause::NoSocket,
        Cause::NotASocket,
        Cause::SocketPermission,
        Cause::NameUnresolved,
        Cause::NoAddress,
        Cause::EgressDenied,
        Cause::NotPermitted,
        Cause::CertificateExpired,
        Cause::CertificateName,
        Cause::CertificateUntrusted,
        Cause::CertificateIdentity,
        Cause::ClientCertificateRefused,
        Cause::TlsFailed,
        Cause::ConnectTimeout,
        Cause::Closed,
        Cause::Other,
    ];

    /// The name used in status and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::NobodyListens => "connection_refused",
            Cause::NoSocket => "no_socket",
            Cause::NotASocket => "not_a_socket",
            Cause::SocketPermission => "socket_permission",
            Cause::NameUnresolved => "name_unresolved",
            Cause::NoAddress => "no_address",
            Cause::EgressDenied => "egress_denied",
            Cause::NotPermitted => "not_permitted",
            Cause::CertificateExpired => "certificate_expired",
            Cause::CertificateName => "certificate_name",
            Cause::CertificateUntrusted => "certificate_untrusted",
            Cause::CertificateIdentity => "certificate_identity",
            Cause::ClientCertificateRefused => "client_certificate_refused",
            Cause::TlsFailed => "tls_failed",
            Cause::ConnectTimeout => "connect_timeout",
            Cause::Closed => "closed_without_answer",
            Cause::Other => "unreachable",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A dial that came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct DialError {
    pub(super) cause: Cause,
    /// For the operator: what happened, and what to mend where that isn't plain.
    pub(super) detail: String,
}

impl DialError {
    pub(super) fn new(cause: Cause, detail: impl Into<String>) -> Self {
        DialError { cause, detail: detail.into() }
    }

    /// What the system said of a socket.
    pub(super) fn of_socket(error: &io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::ConnectionRefused => Cause::NobodyListens,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Cause::Closed,
            io::ErrorKind::TimedOut => Cause::ConnectTimeout,
            _ => Cause::Other,
        };
        DialError::new(cause, error.to_string())
    }

    /// What came of TLS: rustls's own words, which don't say what to mend, and ours, which do.
    pub(super) fn of_tls(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let (cause, remedy) = inner.map_or((Cause::TlsFailed, NO_TLS), of_rustls);
        // rustls shows what it doesn't know as a program would.
        let what = match inner {
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) => {
                other.0.to_string()
            }
            _ => error.to_string(),
        };
        // Names in it are the other end's word.
        DialError::new(cause, format!("{}: {remedy}", codec::shown(&what)))
    }
}

const NO_TLS: &str = "see whether the plugin speaks TLS at that port, or write `http://`";

fn of_rustls(error: &rustls::Error) -> (Cause, &'static str) {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
    match error {
        Error::InvalidCertificate(certificate) => match certificate {
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. } => {
                (Cause::CertificateExpired, "give the plugin a certificate that is valid now")
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => (
                Cause::CertificateName,
                "give the plugin a certificate for the endpoint's host, or write a name that it has as \
                 `tls.server_name`",
            ),
            Certificate::Other(other) if other.0.is::<WrongIdentity>() => (
                Cause::CertificateIdentity,
                "correct `tls.spiffe_id`, or look who answers in the plugin's place",
            ),
            _ => (
                Cause::CertificateUntrusted,
                "write the CA that vouches for the plugin as `tls.ca_file`, or have that CA sign its certificate",
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
            Cause::ClientCertificateRefused,
            "give the gateway a certificate that the plugin accepts as `tls.cert_file` and `tls.key_file`",
        ),
        Error::InvalidMessage(_) => (Cause::TlsFailed, NO_TLS),
        _ => (Cause::TlsFailed, "see the plugin's own log for what it expects of TLS"),
    }
}
