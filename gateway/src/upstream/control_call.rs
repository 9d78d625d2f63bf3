//! Calls to a plugin outside of the extension points: Describe, Initialize, Release and Shutdown. Each has a
//! client span and carries its trace, so the plugin's span of the call is a child of it.

use bytes::Bytes;
use tokio::time::Instant;
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    core::{
        control_span::{control_span, record_error},
        error::grpc_name,
    },
    telemetry,
    upstream::{
        classify,
        codec::ExchangeError,
        connection::{Connection, Rpc},
        registration::Registration,
    },
};

/// The span from the dial of an endpoint until its plugin is initialised.
pub(super) fn handshake_span(registration: &Registration, address: &str) -> Span {
    control_span!(
        "plugin handshake",
        "hookgate.plugin.name" = &*registration.plugin.name,
        "hookgate.plugin.endpoint" = address,
    )
}

/// Sends `frame` and reads a reply of at most `max_reply` bytes.
pub(super) async fn call(
    connection: &Connection,
    rpc: Rpc,
    frame: Bytes,
    deadline: Instant,
    max_reply: usize,
) -> Result<Bytes, ExchangeError> {
    let method = rpc.path().trim_start_matches('/');
    let span = control_span!(
        "plugin call",
        "otel.name" = method,
        "otel.kind" = "client",
        "rpc.system.name" = "grpc",
        "rpc.method" = method,
        "rpc.response.status_code" = Empty,
    );
    let exchange = async {
        connection.unary(rpc, frame, &telemetry::current_trace_headers(), deadline, max_reply, None).await
    };
    let reply = exchange.instrument(span.clone()).await;
    match &reply {
        Ok(_) => {
            span.record("rpc.response.status_code", "OK");
        }
        Err(error) => {
            if let ExchangeError::Status(status) = error {
                span.record("rpc.response.status_code", grpc_name(status.code()));
            }
            record_error(&span, classify::reason(error).as_str());
        }
    }
    reply
}
