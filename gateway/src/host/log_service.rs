//! LogService and EventService: what plugins write to the gateway's log, and what they tell operators.

use std::{sync::Arc, time::Instant};

use hookgate_proto::{
    Capability,
    host::v1::{
        EmitEventRequest, EmitEventResponse, LogRecord, Severity, WriteLogRequest, WriteLogResponse,
        event_service_server::EventService, log_service_server::LogService,
    },
};
use tonic::{Request, Response, Status, async_trait};
use tracing::Level;

use super::{
    HostServices,
    attributes::attributes_json,
    error::{self, FieldViolation},
    rate_limit::Allowance,
};
use crate::{
    records::plugin_output::{self, OutputKind, PluginEvent, PluginLine, PluginOrigin},
    telemetry::value::cut,
};

const MAX_RECORDS: usize = 100;
/// A line's message is cut at this length.
const MAX_MESSAGE_BYTES: usize = 8 << 10;
const MAX_EVENT_NAME_BYTES: usize = 128;
const MAX_EVENT_MESSAGE_BYTES: usize = 1 << 10;

pub(super) struct LogServer(Arc<HostServices>);

impl LogServer {
    pub(super) fn new(host: Arc<HostServices>) -> Self {
        LogServer(host)
    }
}

#[async_trait]
impl LogService for LogServer {
    async fn write_log(
        &self,
        request: Request<WriteLogRequest>,
    ) -> Result<Response<WriteLogResponse>, Status> {
        let HostServices { telemetry, log_limit, .. } = &*self.0;
        let claims = self.0.authorize(request.extensions(), Some(Capability::Log))?;
        let lines = checked_lines(request.into_inner().records).map_err(error::invalid)?;
        let costs: Vec<_> = lines.iter().map(cost).collect();
        let Allowance { allowed, begins_flood, .. } = log_limit.take(&claims.plugin, &costs, Instant::now());
        let dropped = lines.len() - allowed;
        let origin = origin(&claims);
        for line in lines.iter().take(allowed) {
            plugin_output::write_line(&origin, line);
        }
        if dropped > 0 {
            let limit = log_limit.per_second();
            telemetry.record_plugin_flood(
                &claims.plugin,
                OutputKind::Log,
                dropped,
                begins_flood.then_some(limit),
            );
        }
        Ok(Response::new(WriteLogResponse { dropped: u32::try_from(dropped).unwrap_or(u32::MAX) }))
    }
}

pub(super) struct EventServer(Arc<HostServices>);

impl EventServer {
    pub(super) fn new(host: Arc<HostServices>) -> Self {
        EventServer(host)
    }
}

#[async_trait]
impl EventService for EventServer {
    async fn emit_event(
        &self,
        request: Request<EmitEventRequest>,
    ) -> Result<Response<EmitEventResponse>, Status> {
        let HostServices { telemetry, event_limit, .. } = &*self.0;
        let claims = self.0.authorize(request.extensions(), Some(Capability::Emit))?;
        let event = checked_event(request.into_inner()).map_err(error::invalid)?;
        let Allowance { wait, begins_flood, .. } = event_limit.take(&claims.plugin, &[1], Instant::now());
        if let Some(wait) = wait {
            let limit = event_limit.per_second();
            telemetry.record_plugin_flood(
                &claims.plugin,
                OutputKind::Event,
                1,
                begins_flood.then_some(limit),
            );
            return Err(error::rate_limited(limit, wait));
        }
        plugin_output::write_event(&origin(&claims), &event);
        Ok(Response::new(EmitEventResponse {}))
    }
}

fn origin(claims: &super::TokenClaims) -> PluginOrigin<'_> {
    PluginOrigin { plugin: &claims.plugin, tenant: claims.tenant.as_deref(), request_id: claims.request_id() }
}

/// The lines of a request, checked.
fn checked_lines(records: Vec<LogRecord>) -> Result<Vec<PluginLine>, FieldViolation> {
    if !(1..=MAX_RECORDS).contains(&records.len()) {
        return Err(violation("records", "takes 1 to 100 lines"));
    }
    let line = |(index, record): (usize, LogRecord)| {
        let field = |name| format!("records[{index}].{name}");
        let level = level(record.severity)
            .ok_or_else(|| violation(field("severity"), "is DEBUG, INFO, WARN or ERROR"))?;
        if record.message.is_empty() {
            return Err(violation(field("message"), "is not empty"));
        }
        let attributes = attributes_json(&field("attributes"), record.attributes)?;
        Ok(PluginLine { level, message: cut(&record.message, MAX_MESSAGE_BYTES).to_owned(), attributes })
    };
    records.into_iter().enumerate().map(line).collect()
}

/// The event of a request, checked.
fn checked_event(request: EmitEventRequest) -> Result<PluginEvent, FieldViolation> {
    let EmitEventRequest { name, severity, message, attributes } = request;
    if !is_event_name(&name) {
        let rule = "has 1 to 128 lower-case letters, digits, `_` and `-`, in parts joined by dots";
        return Err(violation("name", rule));
    }
    let level = level(severity).filter(|level| *level != Level::DEBUG);
    let level = level.ok_or_else(|| violation("severity", "is INFO, WARN or ERROR"))?;
    if message.len() > MAX_EVENT_MESSAGE_BYTES {
        return Err(violation("message", "has at most 1024 bytes"));
    }
    Ok(PluginEvent { name, level, message, attributes: attributes_json("attributes", attributes)? })
}

/// What a line costs: 1, and 1 more for each KiB of JSON, because lines share the log's room.
fn cost(line: &PluginLine) -> u32 {
    let json = serde_json::Value::from(&*line.message).to_string();
    let bytes = json.len() + line.attributes.as_deref().map_or(0, str::len);
    1 + u32::try_from(bytes >> 10).unwrap_or(u32::MAX - 1)
}

fn violation(field: impl Into<String>, rule: &str) -> FieldViolation {
    FieldViolation { field: field.into(), rule: rule.to_owned() }
}

fn is_event_name(name: &str) -> bool {
    let is_letter = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_letter);
    name.len() <= MAX_EVENT_NAME_BYTES && name.split('.').all(is_part)
}

fn level(severity: i32) -> Option<Level> {
    match Severity::try_from(severity).ok()? {
        Severity::Debug => Some(Level::DEBUG),
        Severity::Unspecified | Severity::Info => Some(Level::INFO),
        Severity::Warn => Some(Level::WARN),
        Severity::Error => Some(Level::ERROR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(severity: i32, message: &str) -> LogRecord {
        LogRecord { severity, message: message.to_owned(), ..LogRecord::default() }
    }

    #[test]
    fn an_invalid_line_is_refused_with_its_index_and_field() {
        let good = || record(2, "x");
        for (records, field) in [
            (vec![], "records"),
            (vec![good(); MAX_RECORDS + 1], "records"),
            (vec![good(), record(7, "x")], "records[1].severity"),
            (vec![good(), good(), record(1, "")], "records[2].message"),
        ] {
            assert_eq!(checked_lines(records).err().map(|violation| violation.field).as_deref(), Some(field));
        }
        assert_eq!(checked_lines(vec![record(0, "x")]).map(|lines| lines[0].level).ok(), Some(Level::INFO));
    }

    #[test]
    fn an_invalid_event_is_refused_with_its_field() {
        let event_of = |name: &str, severity, message: &str| {
            let (name, message) = (name.to_owned(), message.to_owned());
            checked_event(EmitEventRequest { name, severity, message, ..EmitEventRequest::default() })
        };
        for name in ["", ".", "a.", "a..b", "Catalog", "a b", &"a".repeat(MAX_EVENT_NAME_BYTES + 1)] {
            assert_eq!(event_of(name, 2, "").err().map(|violation| violation.field).as_deref(), Some("name"));
        }
        let refused =
            |severity, message| event_of("a", severity, message).err().map(|violation| violation.field);
        assert_eq!(refused(1, "").as_deref(), Some("severity"));
        assert_eq!(refused(9, "").as_deref(), Some("severity"));
        assert_eq!(refused(2, &"x".repeat(MAX_EVENT_MESSAGE_BYTES + 1)).as_deref(), Some("message"));
        assert!(event_of("catalog.entry-1.updated", 4, &"x".repeat(MAX_EVENT_MESSAGE_BYTES)).is_ok());
    }
}
