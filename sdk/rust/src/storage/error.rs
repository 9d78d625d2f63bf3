//! Why a call to the gateway's storage failed.

use std::error::Error;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Why a call to [`Storage`](super::Storage) failed.
///
/// `?` turns it into a [`PluginError`](crate::PluginError) or an [`InitError`](crate::InitError):
/// [`NotOffered`](Self::NotOffered) and [`Unavailable`](Self::Unavailable) become an unavailable one, so that the
/// gateway answers `PLUGIN_UNAVAILABLE`; the others become an internal one with their message. This also
/// holds for an error of your own whose [`source`](Error::source) is a `StorageError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The gateway offers this plugin no storage.
    #[error(
        "the gateway offers no host services to this plugin: set `server.host_addr` or `server.host_socket` in \
         the gateway's configuration, and list `storage:read` or `storage:write` in the plugin's CAPABILITIES"
    )]
    NotOffered,
    /// The gateway or its database doesn't answer, or the time of the call is over. A write may or may not have
    /// happened.
    #[error("the gateway's storage is unavailable: {0}")]
    Unavailable(String),
    /// The plugin lacks the capability for the method, or its token has expired. Nothing was written.
    #[error("the gateway's storage refused the call: {0}")]
    Denied(String),
    /// A key, a value or an option is outside its range. Nothing was written.
    #[error("invalid call to the gateway's storage: {0}")]
    Invalid(String),
    /// The plugin's data for the tenant would exceed its quota. Nothing was written.
    #[error("the gateway's storage is full: {0}")]
    QuotaExceeded(String),
    /// The key of an addition holds a value, not a counter. Nothing was written.
    #[error("not a counter: {0}")]
    NotACounter(String),
    /// The gateway answered something that the contract doesn't allow.
    #[error("the gateway's storage failed: {0}")]
    Failed(String),
}

impl StorageError {
    /// Whether the call may succeed later without a change of the plugin.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, StorageError::NotOffered | StorageError::Unavailable(_))
    }

    /// The first storage error among an error and its sources.
    pub(crate) fn find<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e StorageError> {
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
            return StorageError::Unavailable(message);
        }
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                StorageError::Unavailable(message)
            }
            Code::PermissionDenied | Code::Unauthenticated => StorageError::Denied(message),
            Code::InvalidArgument => StorageError::Invalid(named_field(status).unwrap_or(message)),
            Code::ResourceExhausted => StorageError::QuotaExceeded(message),
            Code::FailedPrecondition => StorageError::NotACounter(message),
            code => StorageError::Failed(format!("{code:?}: {message}")),
        }
    }
}

/// The field that the details of a status name, and what is wrong with it.
fn named_field(status: &Status) -> Option<String> {
    let details = status.get_details_bad_request()?;
    details.field_violations.first().map(|wrong| format!("`{}`: {}", wrong.field, wrong.description))
}
