//! Errors: why no decision could be made. [`Code`] is the closed list of codes, and the only table of their HTTP and
//! gRPC statuses (docs/protocol.md, section 4). Knows nothing of how an answer is encoded; that is `edge::response`.

use std::{borrow::Cow, sync::Arc, time::Duration};

use tonic::Code as Grpc;

use crate::core::{call_site::CallSite, step::Reason};

/// Whose failure an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// The sender of the request, or the owner of its token or tenant.
    Caller,
    /// A plugin of the chain, or the chain's time budget.
    Plugin,
    /// The gateway itself, or its database.
    Gateway,
    /// The provider of a model.
    Provider,
}

impl Party {
    /// The name in docs/errors.md and `hookgate errors`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Party::Caller => "caller",
            Party::Plugin => "plugin",
            Party::Gateway => "gateway",
            Party::Provider => "provider",
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
        /// Why no decision could be made. The names are reserved: no block may use one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $variant,)+ }

        impl Code {
            /// All of them, in the order of docs/errors.md.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)+];

            /// The name on the wire and in metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)+ }
            }

            /// The meaning in one impersonal sentence, without a full stop, as in every `detail`.
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

            /// What the caller should do, beside not using its payload: one sentence without a full stop.
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
    /// The token is not valid here: signature, issuer, audience, algorithm or format.
    TokenInvalid = "TOKEN_INVALID", 401, Unauthenticated, Caller,
        "Get a token from an issuer that the gateway accepts; `detail` says what is wrong with this one";
    /// The token has expired.
    TokenExpired = "TOKEN_EXPIRED", 401, Unauthenticated, Caller,
        "Get a new token and call again";
    /// The token lacks the scope that the call needs.
    ScopeMissing = "SCOPE_MISSING", 403, PermissionDenied, Caller,
        "Ask the issuer for a token with the scope that `detail` names";
    /// The tenant is unknown, or the issuer may not issue tokens for it.
    TenantUnknown = "TENANT_UNKNOWN", 403, PermissionDenied, Caller,
        "Add the tenant to the gateway, or to `tenants` of the issuer";
    /// The tenant is disabled.
    TenantDisabled = "TENANT_DISABLED", 403, PermissionDenied, Caller,
        "Enable the tenant";
    /// The request is invalid; the violations name each member.
    PayloadInvalid = "PAYLOAD_INVALID", 400, InvalidArgument, Caller,
        "Correct what `detail` names, or the members that `errors` points at";
    /// The call passed through too many gateways.
    Loop = "LOOP", 400, FailedPrecondition, Caller,
        "Find the plugin that calls the gateway while it handles a call";
    /// There is no path, method or object with this name.
    NotFound = "NOT_FOUND", 404, NotFound, Caller,
        "Correct the path, the method or the name; a token that names a tenant sees only that tenant";
    /// No model has this name, or the tenant may not use it.
    ModelUnknown = "MODEL_UNKNOWN", 404, NotFound, Caller,
        "Use a model of the list at `/openai/v1/models` or `/anthropic/v1/models`";
    /// The gateway does not serve this part of the provider's API, because what it carries could not be judged.
    Unsupported = "UNSUPPORTED", 400, InvalidArgument, Caller,
        "Leave out what `detail` names; an operator may allow some members with `llm.allow`";
    /// The path does not support this HTTP method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405, Unimplemented, Caller,
        "Use the HTTP method that the header `Allow` names";
    /// The body's media type or encoding is not supported.
    ContentType = "CONTENT_TYPE", 415, Unimplemented, Caller,
        "Send uncompressed `application/json` or `application/grpc`";
    /// The current state does not allow the request: a version, an owner, a state, or another object that uses it.
    Conflict = "CONFLICT", 409, Aborted, Caller,
        "Read the current state, correct what `detail` names, and repeat the request";
    /// The plan is not the one that the caller expects.
    PlanChanged = "PLAN_CHANGED", 409, Aborted, Caller,
        "Restart the run, or call again without `expect_plan_digest`";
    /// The configuration to be written is invalid.
    ConfigInvalid = "CONFIG_INVALID", 422, InvalidArgument, Caller,
        "Correct the fields that `errors` points at";
    /// The request exceeds the size limit.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", 413, ResourceExhausted, Caller,
        "Send less, or raise `limits.request`, for requests to models `llm.limits.request`";
    /// The tenant exceeds its limit of calls in flight, or its rate.
    TenantLimited = "TENANT_LIMITED", 429, ResourceExhausted, Caller,
        "Wait as `Retry-After` says, then call again";
    /// The gateway has too many calls in flight.
    Overloaded = "OVERLOADED", 503, Unavailable, Gateway,
        "Wait as `Retry-After` says, then call again";
    /// The gateway is shutting down.
    Draining = "DRAINING", 503, Unavailable, Gateway,
        "Wait as `Retry-After` says, then call again on a new connection";
    /// The gateway's database is unreachable for a write, or has been unreadable since the gateway started.
    StoreUnavailable = "STORE_UNAVAILABLE", 503, Unavailable, Gateway,
        "Wait as `Retry-After` says, then call again; before you repeat a write, check whether it happened";
    /// The decision could not be recorded.
    RecordUnavailable = "RECORD_UNAVAILABLE", 503, Unavailable, Gateway,
        "Wait as `Retry-After` says, then call again";
    /// The tenant requires a step at this extension point, and its plan has none.
    StepsRequired = "STEPS_REQUIRED", 503, Unavailable, Gateway,
        "Stop; ask the gateway's operator for a binding at this extension point";
    /// A plugin cannot be called.
    PluginUnavailable = "PLUGIN_UNAVAILABLE", 503, Unavailable, Plugin,
        "Stop; call again later";
    /// A plugin did not answer within its timeout.
    PluginTimeout = "PLUGIN_TIMEOUT", 504, DeadlineExceeded, Plugin,
        "Stop; call again later";
    /// The invocation's time budget ran out.
    BudgetExhausted = "BUDGET_EXHAUSTED", 504, DeadlineExceeded, Plugin,
        "Stop; call again later, with more time if the call set a limit of its own";
    /// A plugin answered with an error.
    PluginError = "PLUGIN_ERROR", 502, Internal, Plugin,
        "Stop; report the request id to the gateway's operator";
    /// A plugin's reply is invalid.
    PluginBadReply = "PLUGIN_BAD_REPLY", 502, Internal, Plugin,
        "Stop; report the request id to the gateway's operator";
    /// The provider of the model cannot be reached.
    UpstreamUnavailable = "UPSTREAM_UNAVAILABLE", 503, Unavailable, Provider,
        "Call again later";
    /// The provider of the model did not answer in time.
    UpstreamTimeout = "UPSTREAM_TIMEOUT", 504, DeadlineExceeded, Provider,
        "Call again later";
    /// The provider of the model does not accept the gateway's credential, or this gateway lacks it.
    UpstreamCredential = "UPSTREAM_CREDENTIAL", 502, Internal, Provider,
        "Report the request id to the gateway's operator, who should check `credential` of the upstream";
    /// The answer of the model's provider is not in the form of its API.
    UpstreamBadAnswer = "UPSTREAM_BAD_ANSWER", 502, Internal, Provider,
        "Stop; report the request id to the gateway's operator";
    /// The answer of the model exceeds the size limit.
    AnswerTooLarge = "ANSWER_TOO_LARGE", 502, Internal, Provider,
        "Ask for a shorter answer, or raise `llm.limits.answer`";
    /// An error of the gateway itself, never of a plugin.
    Internal = "INTERNAL", 500, Internal, Gateway,
        "Stop; report the request id to the gateway's operator";
    /// The caller disconnected. Used in logs and metrics, never sent over HTTP.
    Cancelled = "CANCELLED", 499, Cancelled, Caller,
        "None: nobody is waiting for an answer";
}

impl Code {
    /// The code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Code::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// Whether `name` is a code of the gateway, so that no plugin may block with it.
    pub fn is_reserved(name: &str) -> bool {
        Code::from_name(name).is_some()
    }

    /// The code for a failed step that ends its chain. `status` is the plugin's own gRPC status, if it answered with
    /// one.
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

/// The canonical name of a gRPC status code.
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

/// One mistake in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer (RFC 6901) to the member, from the root of the request; empty for the whole.
    pub pointer: String,
    /// The mistake and the remedy, for people.
    pub message: String,
}

impl Violation {
    /// A violation at `pointer`.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Violation { pointer: pointer.into(), message: message.into() }
    }

    /// The message with its place, for a reader who gets the message alone.
    pub fn message_with_place(&self) -> Cow<'_, str> {
        let place = self.pointer.trim_start_matches('/');
        if place.is_empty() || self.message.contains(&format!("`{place}`")) {
            return Cow::Borrowed(&self.message);
        }
        Cow::Owned(format!("{} (at `{place}`)", self.message))
    }
}

/// Why no decision could be made.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Error {
    /// What went wrong.
    pub code: Code,
    /// One sentence for the caller, without a full stop; contains no secret and no internal detail.
    pub detail: String,
    /// The mistakes in the request, by member.
    pub violations: Vec<Violation>,
    /// When to retry, if a retry makes sense.
    pub retry_after: Option<Duration>,
    /// The step that ended the chain, if one did; omitted from answers with `answer.detail: minimal`.
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
    pub site: CallSite,
    /// Why it failed.
    pub reason: Reason,
}

impl Error {
    /// An error with one sentence for the caller.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Error { code, detail: detail.into(), violations: Vec::new(), retry_after: None, step: None }
    }

    /// An invalid request, with at least one violation.
    pub fn invalid(violations: Vec<Violation>) -> Self {
        let detail = match violations.as_slice() {
            [only] => only.message.clone(),
            several => format!("The request has {} invalid members", several.len()),
        };
        Error { violations, ..Error::new(Code::PayloadInvalid, detail) }
    }

    /// Sets when to retry.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}
