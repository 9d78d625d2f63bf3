//! Checks of the collector's address, the tenants that metrics name, and the threshold for slow calls.

use http::Uri;

use super::{
    ConfigChecker,
    issuers::denied_host,
    limits::{HOUR, ms},
    tenant_id_fault,
};
use crate::config::{model::OtlpProtocol, problem::item};

impl ConfigChecker<'_> {
    pub(super) fn telemetry(&mut self) {
        let Some(telemetry) = &self.draft.telemetry else { return };
        self.span("/telemetry/slow_invocation", telemetry.slow_invocation, (ms(1), HOUR));
        let fault = telemetry.otlp_endpoint.as_ref().and_then(|url| fault(url, telemetry.otlp_protocol));
        if let Some(fault) = fault {
            self.report(
                "/telemetry/otlp_endpoint",
                format!("`otlp_endpoint` {fault}"),
                "write `http://host:port` or `https://host:port`",
            );
        }
        for (index, tenant) in telemetry.tenant_labels.iter().enumerate() {
            if let Some(fault) = tenant_id_fault(tenant) {
                let pointer = item("/telemetry/tenant_labels", index);
                self.report(pointer, fault, "write ids of tenants");
            }
        }
    }
}

/// What is wrong with a collector's URL.
fn fault(url: &str, protocol: OtlpProtocol) -> Option<&'static str> {
    let Ok(uri) = url.parse::<Uri>() else { return Some("is not a URL") };
    let Some(authority) = uri.authority().filter(|_| matches!(uri.scheme_str(), Some("http" | "https")))
    else {
        return Some("is not a URL with `http://` or `https://`");
    };
    if authority.as_str().contains('@') {
        Some("names a user; credentials go into the variable OTEL_EXPORTER_OTLP_HEADERS")
    } else if denied_host(url).is_some() {
        Some("is a link-local or cloud metadata address, to which the gateway never connects")
    } else if uri.query().is_some() {
        Some("has a query")
    } else if protocol == OtlpProtocol::Grpc && !matches!(uri.path(), "" | "/") {
        Some("has a path, which gRPC has no use for")
    } else {
        None
    }
}
