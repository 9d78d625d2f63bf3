//! The log and the events of a gateway, kept for tests of plugins.

use std::collections::BTreeMap;

use hookgate_proto::host::v1::{
    EmitEventRequest, EmitEventResponse, LogRecord, Severity, WriteLogRequest, WriteLogResponse,
    event_service_server::EventService, log_service_server::LogService,
};
use tonic::{Request, Response, Status, async_trait};

use super::{TestHost, test_host::invalid};
use crate::{
    Capability,
    record_rules::{check_event, check_records},
};

/// A line that the plugin wrote to the gateway's log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestLogLine {
    /// The plugin's name.
    pub plugin: String,
    /// The call's tenant; `None` outside of calls.
    pub tenant: Option<String>,
    /// How important it is.
    pub severity: Severity,
    /// What it says.
    pub message: String,
    /// The attributes.
    pub attributes: BTreeMap<String, String>,
}

/// An event that the plugin emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestEvent {
    /// The plugin's name.
    pub plugin: String,
    /// The call's tenant; `None` outside of calls.
    pub tenant: Option<String>,
    /// The event's name.
    pub name: String,
    /// How important it is.
    pub severity: Severity,
    /// What it says.
    pub message: String,
    /// The attributes.
    pub attributes: BTreeMap<String, String>,
}

impl TestHost {
    /// The lines in the log so far, at least `count`: waits for them, because lines are sent in the background.
    pub async fn log_lines(&self, count: usize) -> Vec<TestLogLine> {
        let mut written = self.written.subscribe();
        // The sender lives as long as `self`, so this never fails.
        let _ = written.wait_for(|written| *written >= count).await;
        self.state().log_lines.clone()
    }

    /// The events so far.
    pub fn events(&self) -> Vec<TestEvent> {
        self.state().events.clone()
    }
}

#[async_trait]
impl LogService for TestHost {
    async fn write_log(
        &self,
        request: Request<WriteLogRequest>,
    ) -> Result<Response<WriteLogResponse>, Status> {
        let (metadata, _, WriteLogRequest { records }) = request.into_parts();
        let written = {
            let mut state = self.state();
            let token = state.permitted(&metadata, Capability::Log)?;
            check_records(&records).map_err(invalid)?;
            let line = |record: LogRecord| TestLogLine {
                plugin: token.scope.plugin.clone(),
                tenant: token.scope.tenant.clone(),
                severity: record.severity(),
                message: record.message,
                attributes: record.attributes,
            };
            state.log_lines.extend(records.into_iter().map(line));
            state.log_lines.len()
        };
        self.written.send_replace(written);
        Ok(Response::new(WriteLogResponse { dropped: 0 }))
    }
}

#[async_trait]
impl EventService for TestHost {
    async fn emit_event(
        &self,
        request: Request<EmitEventRequest>,
    ) -> Result<Response<EmitEventResponse>, Status> {
        let (metadata, _, event) = request.into_parts();
        let mut state = self.state();
        let token = state.permitted(&metadata, Capability::Emit)?;
        check_event(&event).map_err(invalid)?;
        let severity = event.severity();
        let EmitEventRequest { name, message, attributes, .. } = event;
        let (plugin, tenant) = (token.scope.plugin, token.scope.tenant);
        state.events.push(TestEvent { plugin, tenant, name, severity, message, attributes });
        Ok(Response::new(EmitEventResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, HostError, host_service::HostClient};

    fn client(host: &TestHost) -> HostClient {
        host.client_of("p", None, &[Capability::Emit])
    }

    #[tokio::test]
    async fn an_event_is_kept_with_what_it_says() {
        let host = TestHost::new();
        let event = Event::warn("catalog.updated").message("12 entries").attribute("entries", 12);
        event.emit(&client(&host)).await.unwrap();
        let expected = TestEvent {
            plugin: "p".to_owned(),
            tenant: None,
            name: "catalog.updated".to_owned(),
            severity: Severity::Warn,
            message: "12 entries".to_owned(),
            attributes: [("entries".to_owned(), "12".to_owned())].into(),
        };
        assert_eq!(host.events(), [expected]);
    }

    #[tokio::test]
    async fn an_invalid_event_is_refused_with_the_field() {
        let host = TestHost::new();
        let many = (0..33).fold(Event::info("a"), |event, number| event.attribute(format!("a{number}"), ""));
        for (event, field) in [
            (Event::info(""), "name"),
            (Event::info("Catalog"), "name"),
            (Event::info("a..b"), "name"),
            (Event::info("a".repeat(129)), "name"),
            (Event::info("a").message("x".repeat(1025)), "message"),
            (Event::info("a").attribute("with space", 1), "attributes"),
            (many, "attributes"),
        ] {
            let error = event.emit(&client(&host)).await.unwrap_err();
            let HostError::Invalid(message) = &error else { panic!("{error}") };
            assert!(message.starts_with(&format!("`{field}`: ")), "{message}");
        }
        assert_eq!(host.events(), []);
    }
}
