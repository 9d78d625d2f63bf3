//! The resource: describes the process that exports spans and log records.

use opentelemetry::KeyValue;
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
};

use super::variables;

/// The process's name and version, unless the environment overrides them.
pub(super) fn resource(service: &'static str, version: &'static str) -> Resource {
    let own = [KeyValue::new("service.name", service), KeyValue::new("service.version", version)];
    let resource = Resource::builder_empty()
        .with_attributes(own)
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match variables::read("OTEL_SERVICE_NAME") {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}
