//! The `tracing` span around each call of the plugin service. Its fields follow OpenTelemetry's semantic
//! conventions for RPC servers, so exported spans need no translation.

use tonic::{Code, Response, Status, metadata::MetadataMap};
use tracing::{Instrument as _, Span, field::Empty};

use crate::{Plugin, Point, context::CallSite};

/// Target of these spans. A gateway disables it for built-in plugins, whose calls have the gateway's own client spans.
pub(crate) const TARGET: &str = "hookgate_sdk::call";

const STATUS_CODE: &str = "rpc.response.status_code";

/// The span of one call. If it is dropped without a result, it records that the gateway cancelled the call.
pub(crate) struct CallSpan {
    span: Span,
    has_result: bool,
}

impl CallSpan {
    /// Span of the method `method` of the plugin service.
    pub(crate) fn for_method<P: Plugin>(method: &'static str, metadata: &MetadataMap) -> Self {
        Self::new::<P>(method, None, metadata)
    }

    /// Span of a call at a point or a hook, if the request says at which.
    pub(crate) fn for_call<P: Plugin>(
        method: &'static str,
        site: Option<&CallSite>,
        metadata: &MetadataMap,
    ) -> Self {
        Self::new::<P>(method, site, metadata)
    }

    fn new<P: Plugin>(method: &'static str, site: Option<&CallSite>, metadata: &MetadataMap) -> Self {
        let span = tracing::info_span!(
            target: TARGET,
            "call",
            "otel.name" = method,
            "otel.kind" = "server",
            "otel.status_code" = Empty,
            "rpc.system.name" = "grpc",
            "rpc.method" = method,
            "rpc.response.status_code" = Empty,
            "error.type" = Empty,
            "hookgate.plugin.name" = P::NAME,
            "hookgate.point" = site.and_then(CallSite::point).map(Point::as_str),
            "hookgate.hook" = site.and_then(CallSite::hook),
        );
        #[cfg(feature = "otel")]
        crate::telemetry::set_parent(&span, metadata);
        #[cfg(not(feature = "otel"))]
        let _ = metadata;
        CallSpan { span, has_result: false }
    }

    /// Runs the call inside the span and records its status.
    pub(crate) async fn run<T>(
        mut self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Response<T>, Status> {
        let result = call.instrument(self.span.clone()).await;
        self.has_result = true;
        self.record(result.as_ref().err().map_or(Code::Ok, Status::code));
        result
    }

    fn record(&self, code: Code) {
        let name = code_name(code);
        self.span.record(STATUS_CODE, name);
        if is_servers_fault(code) {
            self.span.record("error.type", name);
            self.span.record("otel.status_code", "ERROR");
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if !self.has_result {
            self.record(Code::Cancelled);
        }
    }
}

/// Whether the conventions count the status as an error of the server. The caller causes the other
/// statuses.
const fn is_servers_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// Name of a status as gRPC's specification writes it.
const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
