//! What a plugin is answered when it can't register.

use tonic::{Code, Status};

use super::MAX_ENDPOINTS;
use crate::{
    auth::{AuthRefusal, RefusalReason},
    host::error::{status, unavailable},
    registry::{RegistryError, operations::OperationError},
};

pub(super) fn token_refused(refusal: &AuthRefusal) -> Status {
    let code = refusal.reason.code();
    status(code.grpc(), code.as_str(), &*refusal.detail)
}

/// A valid token that may not register the plugin.
pub(super) fn plugin_not_covered(refusal: &AuthRefusal) -> Status {
    let is_scope = refusal.reason == RefusalReason::Scope;
    let reason = if is_scope { refusal.reason.code().as_str() } else { "PLUGIN_NOT_COVERED" };
    status(Code::PermissionDenied, reason, &*refusal.detail)
}

pub(super) fn token_expired() -> Status {
    let message = "the token has expired: register again with a new one";
    status(Code::Unauthenticated, "TOKEN_EXPIRED", message)
}

pub(super) fn endpoint_not_permitted(flaw: &str) -> Status {
    status(Code::PermissionDenied, "ENDPOINT_NOT_PERMITTED", flaw)
}

pub(super) fn unknown_plugin(name: &str) -> Status {
    let message = format!(
        "the plugin `{name}` is unknown, and `self_registration.unknown_plugins` is `deny`: add it with `hookgate plugin \
         add {name} --self-registration`"
    );
    status(Code::PermissionDenied, "PLUGIN_UNKNOWN", message)
}

pub(super) fn endpoints_configured(name: &str) -> Status {
    let message = format!(
        "the entry of the plugin `{name}` doesn't have `self_registration: true`: set it, or don't register"
    );
    status(Code::FailedPrecondition, "ENDPOINTS_CONFIGURED", message)
}

pub(super) fn plugin_removed(name: &str) -> Status {
    status(Code::NotFound, "PLUGIN_REMOVED", format!("the plugin `{name}` doesn't register itself any more"))
}

pub(super) fn too_many_endpoints(name: &str) -> Status {
    let message = format!("the plugin `{name}` has {MAX_ENDPOINTS} endpoints already");
    status(Code::ResourceExhausted, "TOO_MANY_ENDPOINTS", message)
}

pub(super) fn too_many_streams() -> Status {
    status(Code::ResourceExhausted, "TOO_MANY_STREAMS", "too many plugins register here: try another replica")
}

pub(super) fn not_renewed() -> Status {
    status(Code::DeadlineExceeded, "LEASE_ENDED", "no renewal came within the lease: register again")
}

pub(super) fn shutting_down() -> Status {
    status(Code::Unavailable, "SHUTTING_DOWN", "the gateway is shutting down: register with another replica")
}

pub(super) fn not_added(name: &str) -> Status {
    let message = format!("the plugin `{name}` was added and removed at the same time: try again");
    status(Code::Unavailable, "CONFLICT", message)
}

/// The registry can't be read or written. Its message may name hosts and files, so it is logged and not answered.
pub(super) fn not_written(error: &OperationError) -> Status {
    match error {
        OperationError::Registry(RegistryError::Store(error)) => unavailable(error),
        error => {
            tracing::warn!(?error, "the registry could not be used for a plugin that registers itself");
            let message = "the gateway can't use its registry: see the gateway's log";
            status(Code::Unavailable, "REGISTRY_UNAVAILABLE", message)
        }
    }
}
