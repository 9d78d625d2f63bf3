//! Counts and logs callers that were rejected on paths other than the extension points. There, the
//! rejection is part of an [`crate::records::invocation::Invocation`].

use opentelemetry::KeyValue;
use uuid::Uuid;

use crate::{
    auth::{AuthRefusal, Port},
    telemetry::{Telemetry, names::REASON},
};

impl Telemetry {
    /// Records that a caller of `port` was rejected.
    pub fn record_auth_failure(&self, port: Port, request_id: Uuid, refusal: &AuthRefusal) {
        let (code, reason, detail) = (refusal.reason.code(), refusal.reason.as_str(), &*refusal.detail);
        self.0.instruments.auth_failures.add(1, &[KeyValue::new(REASON, reason)]);
        let status = code.http();
        let port = match port {
            Port::Data => None,
            Port::Admin => Some("admin"),
            Port::Host => Some("host"),
        };
        if status >= 500 {
            tracing::warn!(event = "auth.refused", port, %request_id, status, %code, reason, detail, "a caller was \
                                                                                                      refused");
        } else {
            tracing::info!(event = "auth.refused", port, %request_id, status, %code, reason, detail, "a caller was \
                                                                                                      refused");
        }
    }
}
