//! Events for the gateway's operators.

use std::{collections::BTreeMap, fmt};

use hookgate_proto::host::v1::{EmitEventRequest, Severity, event_service_client::EventServiceClient};

use crate::{HostError, host_service::HostClient};

/// An event for the gateway's operators: a log line, which `hookgate events` shows too. Emitted with
/// [`Context::emit`](crate::Context::emit) or [`Host::emit`](crate::Host::emit).
#[derive(Debug, Clone)]
pub struct Event(EmitEventRequest);

impl Event {
    /// Something normal happened. The `name` is like `catalog.updated`: 1 to 128 lower-case letters, digits, `_` and `-`, in
    /// parts joined by dots.
    pub fn info(name: impl Into<String>) -> Self {
        Self::new(Severity::Info, name)
    }

    /// Something happened that somebody should look at. See [`info`](Self::info) for the name.
    pub fn warn(name: impl Into<String>) -> Self {
        Self::new(Severity::Warn, name)
    }

    /// The plugin failed to do something. See [`info`](Self::info) for the name.
    pub fn error(name: impl Into<String>) -> Self {
        Self::new(Severity::Error, name)
    }

    fn new(severity: Severity, name: impl Into<String>) -> Self {
        let (name, severity) = (name.into(), severity.into());
        Event(EmitEventRequest { name, severity, message: String::new(), attributes: BTreeMap::new() })
    }

    /// A sentence for people, at most 1 KiB. No secrets, no payloads.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Adds an attribute, one of at most 32. The name has 1 to 64 letters, digits, `_`, `-` or `.`; the gateway cuts the
    /// value at 1 KiB.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.0.attributes.insert(name.into(), value.to_string());
        self
    }

    pub(crate) async fn emit(self, client: &HostClient) -> Result<(), HostError> {
        let emitted = client.call(self.0, |service, request| async move {
            EventServiceClient::new(service).emit_event(request).await
        });
        emitted.await.map(drop)
    }
}
