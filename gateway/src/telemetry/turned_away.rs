//! Callers turned away at the admin port, counted and logged as those of the data port are: there a refusal is part of
//! an [`super::Invocation`], here there is none.

use opentelemetry::KeyValue;
use uuid::Uuid;

use super::{Telemetry, names::REASON};
use crate::auth::Refusal;

impl Telemetry {
    /// A caller of the admin port was turned away.
    pub fn turned_away(&self, request_id: Uuid, refusal: &Refusal) {
        let (code, reason, detail) = (refusal.reason.code(), refusal.reason.as_str(), &*refusal.detail);
        self.0.instruments.auth_failures.add(1, &[KeyValue::new(REASON, reason)]);
        let status = code.http();
        if status >= 500 {
            tracing::warn!(event = "auth.refused", port = "admin", %request_id, status, %code, reason, detail, "a caller was turned away");
        } else {
            tracing::info!(event = "auth.refused", port = "admin", %request_id, status, %code, reason, detail, "a caller was turned away");
        }
    }
}
