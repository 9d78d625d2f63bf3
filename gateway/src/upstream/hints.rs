//! Remedies for a plugin that isn't ready, for states whose detail doesn't already name one.

use super::{DialErrorKind, Why};
use crate::core::object::Owner;

impl Why {
    /// What to do, addressed to the person who writes the `owner`'s entry. Returns `None` if there is nothing
    /// to do, or if the detail already says it.
    pub const fn remedy(self, owner: Owner) -> Option<&'static str> {
        match self {
            Why::Unreachable(cause) => cause.remedy(owner),
            Why::NotDialled => Some("wait longer (`--wait`), or check the address"),
            Why::Initializing => {
                Some("wait longer (`--wait`), or check the plugin's log for what Initialize waits for")
            }
            Why::Disconnected | Why::DescribeTimeout | Why::DescribeFailed | Why::InitializeUnavailable => {
                Some("see the plugin's own log")
            }
            Why::NotServing => Some("check the plugin's log for what it waits for"),
            Why::HealthUnanswered => {
                Some("check the plugin's log, and make it answer grpc.health.v1 while it works")
            }
            Why::Approval => Some("approve it: `hookgate plugin approve`"),
            Why::ManifestMismatch => Some("run the same build of the plugin at all of its endpoints"),
            Why::UpgradePending => Some(
                "grant the capabilities that it requests, or run a build that requests no more than before",
            ),
            Why::Disabled | Why::Serving | Why::Refused(_) | Why::ShuttingDown => None,
        }
    }
}

impl DialErrorKind {
    const fn remedy(self, owner: Owner) -> Option<&'static str> {
        match self {
            DialErrorKind::NobodyListens | DialErrorKind::NoSocket => Some(match owner {
                Owner::File => "start the plugin there, or correct `endpoint`",
                Owner::Api => "start the plugin there, or correct its endpoint: `hookgate plugin set`",
            }),
            DialErrorKind::NotRegistered => {
                Some("start the plugin, and see its log for why the gateway refuses its registration")
            }
            DialErrorKind::NoAddress => Some("correct the name, or fix DNS"),
            DialErrorKind::EgressDenied => {
                Some("use another address: that one is for the machine's own metadata")
            }
            DialErrorKind::ConnectTimeout => Some(match owner {
                Owner::File => {
                    "check that the host is up and no firewall is in between, or correct `endpoint`"
                }
                Owner::Api => {
                    "check that the host is up and no firewall is in between, or correct its endpoint: `hookgate \
                     plugin set`"
                }
            }),
            DialErrorKind::Closed => {
                Some("check that a gRPC server without TLS listens there; for TLS use `https://`")
            }
            DialErrorKind::Other => Some(match owner {
                Owner::File => "check that the host can be reached from here, or correct `endpoint`",
                Owner::Api => {
                    "check that the host can be reached from here, or correct its endpoint: `hookgate plugin set`"
                }
            }),
            DialErrorKind::NotASocket
            | DialErrorKind::SocketPermission
            | DialErrorKind::NameUnresolved
            | DialErrorKind::NotPermitted
            | DialErrorKind::CertificateExpired
            | DialErrorKind::CertificateName
            | DialErrorKind::CertificateUntrusted
            | DialErrorKind::CertificateIdentity
            | DialErrorKind::ClientCertificateRefused
            | DialErrorKind::TlsFailed => None,
        }
    }
}
