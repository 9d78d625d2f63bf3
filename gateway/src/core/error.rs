//! Why no decision could be made: one closed [`Code`], and the only table of what it means over HTTP and gRPC
//! (docs/protocol.md, section 4). Knows nothing of how an answer is written; that is `edge::response`.

use std::{sync::Arc, time::Duration};

use tonic::Code as Grpc;

use crate::core::{point::Point, step::Reason};

/// Whose failure an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// Who sent the request, or who set up its token or tenant.
    Caller,
    /// A plugin of the chain, or the time that the chain had.
    Plugin,
    /// The gateway itself, or what it keeps its data in.
    Gateway,
}

impl Party {
    /// As docs/errors.md and `hookgate errors` name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Party::Caller => "caller",
            Party::Plugin => "plugin",
            Party::Gateway => "gateway",
        }
    }
}

const fn without_full_stop(sentence: &'static str) -> &'static str {
    match sentence.as_bytes() {
        [.., b'.'] => sentence.split_at(sentence.len() - 1).0,
        _ => sentence,
    }
}

macro_rules! error_codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal, $http:literal, $grpc:ident, $party:ident, $remedy:literal;)+) => {
        /// Why no decision could be made. The names are reserved: no block carries one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $variant,)+ }

        impl Code {
            /// All of them, in the order of docs/errors.md.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)+];

            /// The name on the wire and in metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)+ }
            }

            /// What it means, in one sentence that names nobody, without its full stop as every detail is.
            pub const fn meaning(self) -> &'static str {
                match self { $(Code::$variant => without_full_stop(concat!($($doc),+).trim_ascii()),)+ }
            }

            /// The HTTP status.
            pub const fn http(self) -> u16 {
                match self { $(Code::$variant => $http,)+ }
            }

            /// The gRPC status.
            pub const fn grpc(self) -> Grpc {
                match self { $(Code::$variant => Grpc::$grpc,)+ }
            }

            /// Whose failure it is.
            pub const fn party(self) -> Party {
                match self { $(Code::$variant => Party::$party,)+ }
            }

            /// What the caller does about it, beside making no use of its payload: one sentence without its full stop.
            pub const fn remedy(self) -> &'static str {
                match self { $(Code::$variant => $remedy,)+ }
            }
        }
    };
}

error_codes! {
    /// No bearer token.
    TokenMissing = "TOKEN_MISSING", 401, Unauthenticated, Caller,
        "Send `Authorization: Bearer TOKEN`";
    /// The token is not one of ours: signature, issuer, audience, algorithm or shape.
    TokenInvalid = "TOKEN_INVALID", 401, Unauthenticated, Caller,
        "Get a token from an issuer that the gateway accepts; `detail` says what is wrong with this one";
    /// The token is past its `exp`.
    TokenExpired = "TOKEN_EXPIRED", 401, Unauthenticated, Caller,
        "Get a new token and call again";
    /// The token lacks the scope that the call needs.
    ScopeMissing = "SCOPE_MISSING", 403, PermissionDenied, Caller,
        "Ask the issuer for a token with the scope that `detail` names";
    /// The tenant is not configured, or the issuer may not speak for it.
    TenantUnknown = "TENANT_UNKNOWN", 403, PermissionDenied, Caller,
        "Have the tenant added, to the gateway or to what the issuer may speak for";
    /// The tenant is switched off.
    TenantDisabled = "TENANT_DISABLED", 403, PermissionDenied, Caller,
        "Have the tenant switched on again";
    /// The request breaks the contract; the violations name each member.
    PayloadInvalid = "PAYLOAD_INVALID", 400, InvalidArgument, Caller,
        "Correct what `detail` names, or the members that `errors` points at";
    /// The call went through too many gateways.
    Loop = "LOOP", 400, FailedPrecondition, Caller,
        "Look for a plugin that calls the gateway inside a call of its own";
    /// No path, method or object of this name.
    NotFound = "NOT_FOUND", 404, NotFound, Caller,
        "Correct the path, the method or the name in it; a token that names a tenant sees that tenant alone";
    /// The path takes another HTTP method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405, Unimplemented, Caller,
        "Use the HTTP method that the header `Allow` names";
    /// The body is of a type or encoding that is not taken.
    ContentType = "CONTENT_TYPE", 415, Unimplemented, Caller,
        "Send `application/json` or `application/grpc`, not compressed";
    /// What is there now does not allow it: by its version, its owner, its state, or what else names it.
    Conflict = "CONFLICT", 409, Aborted, Caller,
        "Look at what is there now, change what `detail` names, and repeat it on that";
    /// The chain is not the one the caller expects.
    PlanChanged = "PLAN_CHANGED", 409, Aborted, Caller,
        "Start the run anew, or decide again without `expect_plan_digest`";
    /// The written configuration is not valid.
    ConfigInvalid = "CONFIG_INVALID", 422, InvalidArgument, Caller,
        "Correct the fields that `errors` points at";
    /// The request is over the size limit.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", 413, ResourceExhausted, Caller,
        "Send less, or have `limits.request` raised";
    /// The tenant has too many calls under way, or calls too often.
    TenantLimited = "TENANT_LIMITED", 429, ResourceExhausted, Caller,
        "Wait as `Retry-After` says, then call again";
    /// The gateway has too many calls under way.
    Overloaded = "OVERLOADED", 503, Unavailable, Gateway,
        "Wait as `Retry-After` says, then call again";
    /// The gateway is shutting down.
    Draining = "DRAINING", 503, Unavailable, Gateway,
        "Wait as `Retry-After` says, then call again on a new connection";
    /// The gateway's database cannot be reached for a write, or could not be read since the gateway started.
    StoreUnavailable = "STORE_UNAVAILABLE", 503, Unavailable, Gateway,
        "Wait as `Retry-After` says, then call again; before a write is repeated, look whether it was written";
    /// The decision could not be recorded.
    RecordUnavailable = "RECORD_UNAVAILABLE", 503, Unavailable, Gateway,
        "Wait as `Retry-After` says, then call again";
    /// A plugin cannot be called.
    PluginUnavailable = "PLUGIN_UNAVAILABLE", 503, Unavailable, Plugin,
        "Stop; call again later";
    /// A plugin did not answer within its time-out.
    PluginTimeout = "PLUGIN_TIMEOUT", 504, DeadlineExceeded, Plugin,
        "Stop; call again later";
    /// The invocation's budget ran out.
    BudgetExhausted = "BUDGET_EXHAUSTED", 504, DeadlineExceeded, Plugin,
        "Stop; call again later, with more time if the call set a limit of its own";
    /// A plugin answered with an error.
    PluginError = "PLUGIN_ERROR", 502, Internal, Plugin,
        "Stop; give the request id to whoever runs the gateway";
    /// A plugin's answer breaks the contract.
    PluginBadReply = "PLUGIN_BAD_REPLY", 502, Internal, Plugin,
        "Stop; give the request id to whoever runs the gateway";
    /// Our own fault, never a plugin's.
    Internal = "INTERNAL", 500, Internal, Gateway,
        "Stop; give the request id to whoever runs the gateway";
    /// The caller went away; a label, never seen over HTTP.
    Cancelled = "CANCELLED", 499, Cancelled, Caller,
        "Nothing: nobody waits for an answer";
}

impl Code {
    /// The one by this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Code::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// Whether `name` is one of ours, so that no plugin may block with it.
    pub fn is_reserved(name: &str) -> bool {
        Code::from_name(name).is_some()
    }

    /// The code of a step that failed in a chain that must not go on. `status` is the plugin's own gRPC
    /// status where it answered with one.
    pub const fn for_step(reason: Reason, status: Option<Grpc>) -> Code {
        match reason {
            Reason::Unreachable
            | Reason::BreakerOpen
            | Reason::BulkheadFull
            | Reason::NotReady
            | Reason::PointNotOffered
            | Reason::UnknownPlugin => Code::PluginUnavailable,
            Reason::Timeout => Code::PluginTimeout,
            Reason::Budget => Code::BudgetExhausted,
            Reason::RpcError => match status {
                Some(Grpc::Unavailable) => Code::PluginUnavailable,
                Some(Grpc::DeadlineExceeded) => Code::PluginTimeout,
                Some(_) | None => Code::PluginError,
            },
            Reason::BadReply | Reason::ForbiddenPatch | Reason::TooLarge => Code::PluginBadReply,
            Reason::ConditionError => Code::Internal,
        }
    }
}

/// A status code as gRPC writes it.
pub const fn grpc_name(code: Grpc) -> &'static str {
    match code {
        Grpc::Ok => "OK",
        Grpc::Cancelled => "CANCELLED",
        Grpc::Unknown => "UNKNOWN",
        Grpc::InvalidArgument => "INVALID_ARGUMENT",
        Grpc::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Grpc::NotFound => "NOT_FOUND",
        Grpc::AlreadyExists => "ALREADY_EXISTS",
        Grpc::PermissionDenied => "PERMISSION_DENIED",
        Grpc::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Grpc::FailedPrecondition => "FAILED_PRECONDITION",
        Grpc::Aborted => "ABORTED",
        Grpc::OutOfRange => "OUT_OF_RANGE",
        Grpc::Unimplemented => "UNIMPLEMENTED",
        Grpc::Internal => "INTERNAL",
        Grpc::Unavailable => "UNAVAILABLE",
        Grpc::DataLoss => "DATA_LOSS",
        Grpc::Unauthenticated => "UNAUTHENTICATED",
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer (RFC 6901) to the member, from the root of the request; empty for the whole.
    pub pointer: String,
    /// What is wrong and what would be right, for people.
    pub message: String,
}

impl Violation {
    /// A violation at `pointer`.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Violation { pointer: pointer.into(), message: message.into() }
    }
}

/// Why no decision could be made, for the caller (`detail`, `violations`) and for the operator (`source`).
#[derive(Debug, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Error {
    /// What went wrong.
    pub code: Code,
    /// One sentence for the caller, without a full stop; holds no secret and no inner detail.
    pub detail: String,
    /// What is wrong with the request, member by member.
    pub violations: Vec<Violation>,
    /// When to try again, where that makes sense.
    pub retry_after: Option<Duration>,
    /// The step that ended the chain, where one did; left out of answers with `answer.detail: minimal`.
    pub step: Option<Box<FailedStep>>,
}

/// The step that ended a chain without a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStep {
    /// The plugin that failed.
    pub plugin: Arc<str>,
    /// Its binding.
    pub binding: Arc<str>,
    /// Where the chain ran.
    pub point: Point,
    /// Why it failed.
    pub reason: Reason,
}

impl Error {
    /// An error with one sentence for the caller.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Error { code, detail: detail.into(), violations: Vec::new(), retry_after: None, step: None }
    }

    /// A request that breaks the contract in the ways listed (at least one).
    pub fn invalid(violations: Vec<Violation>) -> Self {
        let detail = match violations.as_slice() {
            [only] => only.message.clone(),
            several => format!("The request has {} invalid members", several.len()),
        };
        Error { violations, ..Error::new(Code::PayloadInvalid, detail) }
    }

    /// Adds when to try again.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}
