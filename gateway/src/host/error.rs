//! What a plugin is answered when its request fails. Every status has an `ErrorInfo` of the domain `hookgate`.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::token::Refusal;
use crate::store::StoreError;

const DOMAIN: &str = "hookgate";

/// A field of a request, and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldViolation {
    pub(super) field: String,
    pub(super) rule: String,
}

pub(super) fn status(code: Code, reason: &str, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, HashMap::new());
    Status::with_error_details(code, message, details)
}

pub(super) fn refused(refusal: Refusal) -> Status {
    let (reason, message) = match refusal {
        Refusal::Missing => (
            "TOKEN_MISSING",
            "send the call's `host_token`, or that of Initialize, as `authorization: Bearer TOKEN`",
        ),
        Refusal::Invalid => ("TOKEN_INVALID", "the token is not one that this gateway's replicas signed"),
        Refusal::Expired => {
            ("TOKEN_EXPIRED", "the token has expired: a call's ends 5 s after the call's deadline")
        }
        Refusal::Capability => ("CAPABILITY_MISSING", "the token lacks the capability that the method needs"),
        Refusal::Unregistered => {
            ("PLUGIN_UNREGISTERED", "the plugin isn't registered any more, or lost the capability")
        }
        Refusal::KeysUnavailable => {
            let message = "the gateway could not read its keys for tokens yet: try again";
            return status(Code::Unavailable, "STORE_UNAVAILABLE", message);
        }
    };
    status(Code::PermissionDenied, reason, message)
}

pub(super) fn invalid(violation: FieldViolation) -> Status {
    let FieldViolation { field, rule } = violation;
    let message = format!("`{field}` {rule}");
    let mut details = ErrorDetails::with_error_info("FIELD_INVALID", DOMAIN, HashMap::new());
    details.add_bad_request_violation(field, rule);
    Status::with_error_details(Code::InvalidArgument, message, details)
}

pub(super) fn not_a_counter(key: &str) -> Status {
    let message = format!("`{key}` holds a value, not a counter: delete it first, or use another key");
    status(Code::FailedPrecondition, "NOT_A_COUNTER", message)
}

pub(super) fn quota_full(what: &str) -> Status {
    status(
        Code::ResourceExhausted,
        "QUOTA_FULL",
        format!("the plugin's data for the tenant would exceed {what}"),
    )
}

/// A plugin emits more than `limit` events per second; after `wait` one more is taken.
pub(super) fn rate_limited(limit: u32, wait: Duration) -> Status {
    let message = format!("the plugin emits more than {limit} events per second; this one was dropped");
    let mut details = ErrorDetails::with_error_info("RATE_LIMITED", DOMAIN, HashMap::new());
    details.set_retry_info(Some(wait));
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

/// The database's message may name hosts and files, so it is logged and not answered.
pub(super) fn unavailable(error: &StoreError) -> Status {
    tracing::warn!(%error, "a plugin's request for its data failed");
    status(Code::Unavailable, "STORE_UNAVAILABLE", "the gateway's database doesn't answer: try again")
}
