//! Why a call to the gateway's services failed.

use std::error::Error;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Why a call to the gateway's services failed: to its [`Storage`](crate::Storage), or to emit an event.
///
/// `?` turns it into a [`PluginError`](crate::PluginError) or an [`InitError`](crate::InitError):
/// [`NotOffered`](Self::NotOffered) and [`Unavailable`](Self::Unavailable) become an unavailable one, so that the
/// gateway answers `PLUGIN_UNAVAILABLE`; the others become an internal one with their message. This also
/// holds for an error of your own whose [`source`](Error::source) is a `HostError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The gateway offers this plugin no services.
    #[error(
        "the gateway offers no host services to this plugin: set `server.host_addr` or `server.host_socket` in \
         the gateway's configuration, and list the capability in the plugin's CAPABILITIES"
    )]
    NotOffered,
    /// The gateway or its database doesn't answer, or the time of the call is over. A write may or may not have
    /// happened.
    #[error("the gateway's host services are unavailable: {0}")]
    Unavailable(String),
    /// The plugin lacks the capability for the method, or its token has expired. Nothing happened.
    #[error("the gateway refused the call: {0}")]
    Denied(String),
    /// A field is outside its range. Nothing happened.
    #[error("invalid call to the gateway: {0}")]
    Invalid(String),
    /// The plugin's data for the tenant would exceed its quota. Nothing was written.
    #[error("the gateway's storage is full: {0}")]
    QuotaExceeded(String),
    /// The plugin emits more events than the gateway takes. This one was dropped.
    #[error("the gateway dropped the event: {0}")]
    RateLimited(String),
    /// The key of an addition holds a value, not a counter. Nothing was written.
    #[error("not a counter: {0}")]
    NotACounter(String),
    /// The gateway answered something that the contract doesn't allow.
    #[error("the gateway's host services failed: {0}")]
    Failed(String),
}

impl HostError {
    /// Whether the call may succeed later without a change of the plugin.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, HostError::NotOffered | HostError::Unavailable(_))
    }

    /// The first host error among an error and its sources.
    pub(crate) fn find<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e HostError> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    pub(super) fn from_status(status: &Status) -> Self {
        let message = status.message().to_owned();
        // A status that the gateway sent has no source.
        if status.source().is_some() {
            return HostError::Unavailable(message);
        }
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => HostError::Unavailable(message),
            Code::PermissionDenied | Code::Unauthenticated => HostError::Denied(message),
            Code::InvalidArgument => HostError::Invalid(named_field(status).unwrap_or(message)),
            Code::ResourceExhausted if is_rate_limited(status) => HostError::RateLimited(message),
            Code::ResourceExhausted => HostError::QuotaExceeded(message),
            Code::FailedPrecondition => HostError::NotACounter(message),
            code => HostError::Failed(format!("{code:?}: {message}")),
        }
    }
}

/// Whether the details of a status ask for a later try.
fn is_rate_limited(status: &Status) -> bool {
    status.get_details_retry_info().is_some()
}

/// The field that the details of a status name, and what is wrong with it.
fn named_field(status: &Status) -> Option<String> {
    let details = status.get_details_bad_request()?;
    details.field_violations.first().map(|wrong| format!("`{}`: {}", wrong.field, wrong.description))
}
