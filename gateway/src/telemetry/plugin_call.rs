//! One call to a plugin at an extension point or a hook: its client span, headers and duration.

use std::sync::Arc;

use http::{HeaderMap, Uri};
use opentelemetry::{
    Context, KeyValue,
    trace::{SpanKind, Status, TraceContextExt as _, Tracer as _},
};
use tokio::time::Instant;

use super::{
    Inner, Telemetry,
    names::{
        ERROR_TYPE, HOOK, PLUGIN, POINT, RPC_METHOD, RPC_STATUS, RPC_SYSTEM, SERVER_ADDRESS, SERVER_PORT,
        TEST,
    },
    trace::{self, Parent},
};
use crate::core::{call_site::CallSite, error::grpc_name, point::Point, step::Reason};

/// Telemetry of the calls to one plugin.
pub struct PluginCalls {
    inner: Arc<Inner>,
    /// Attributes of every call, by [`CallSite::kind`].
    attributes: [Vec<KeyValue>; CallSite::KINDS],
}

/// Attributes of a call's endpoint. They are as configured, so that metrics have one value for each
/// configured endpoint.
pub struct ServerAttributes(Vec<KeyValue>);

impl ServerAttributes {
    /// The endpoint at `address`: a URL, `unix:///path` or `builtin:name`.
    pub fn new(address: &str) -> Self {
        ServerAttributes(server(address))
    }
}

impl Telemetry {
    /// Telemetry of calls to the plugin `name`.
    pub fn plugin_calls(&self, name: &Arc<str>) -> PluginCalls {
        let [llm_request, tool_call, tool_result, response] = Point::ALL.map(method);
        let attributes = [llm_request, tool_call, tool_result, response, ON_HOOK].map(|method| {
            let common = [
                KeyValue::new(RPC_SYSTEM, "grpc"),
                KeyValue::new(RPC_METHOD, method),
                KeyValue::new(PLUGIN, Arc::clone(name)),
            ];
            common.to_vec()
        });
        PluginCalls { inner: Arc::clone(&self.0), attributes }
    }
}

impl PluginCalls {
    /// Starts a call that has its permit and is about to be sent.
    pub fn start(&self, site: &CallSite, parent: &Parent) -> PluginCall<'_> {
        let attributes = &self.attributes[site.kind()];
        let context = match &self.inner.tracer {
            None => parent.context().clone(),
            Some(tracer) => {
                let (method, site) = match site {
                    CallSite::Point(point) => (method(*point), KeyValue::new(POINT, point.as_str())),
                    CallSite::Hook(hook) => (ON_HOOK, KeyValue::new(HOOK, hook.to_string())),
                };
                let attributes = attributes.iter().cloned().chain([site]);
                let span = tracer.span_builder(method).with_kind(SpanKind::Client);
                let span = span.with_attributes(attributes);
                let parent = parent.context();
                parent.with_span(span.start_with_context(tracer, parent))
            }
        };
        PluginCall {
            calls: self,
            attributes,
            server: None,
            context,
            started: Instant::now(),
            is_ended: false,
        }
    }
}

/// A call in flight. If it is dropped before [`PluginCall::ended`], it counts as cancelled.
#[must_use = "dropped, it records that the call was broken off"]
pub struct PluginCall<'a> {
    calls: &'a PluginCalls,
    attributes: &'a [KeyValue],
    /// The endpoint that the call was last sent to.
    server: Option<Arc<ServerAttributes>>,
    context: Context,
    started: Instant,
    is_ended: bool,
}

impl PluginCall<'_> {
    /// Puts `traceparent` and `tracestate` into the call's headers.
    pub fn inject(&self, headers: &mut HeaderMap) {
        trace::inject(&self.context, headers);
    }

    /// Marks the call as an operator's trial.
    pub fn is_trial(&self) {
        self.context.span().set_attribute(KeyValue::new(TEST, true));
    }

    /// Records that the call is being sent to `server`.
    pub fn sent_to(&mut self, server: &Arc<ServerAttributes>) {
        self.server = Some(Arc::clone(server));
    }

    /// Records a reply or a failure, with the plugin's own status if there is one.
    pub fn ended(mut self, result: Result<(), (Reason, Option<tonic::Code>)>) {
        self.is_ended = true;
        match result {
            Ok(()) => self.record(Some("OK"), None),
            Err((reason, status)) => self.record(status.map(grpc_name), Some(reason.as_str())),
        }
    }

    fn record(&self, status: Option<&'static str>, error: Option<&'static str>) {
        let status = status.map(|status| KeyValue::new(RPC_STATUS, status));
        let error = error.map(|error| KeyValue::new(ERROR_TYPE, error));
        let span = self.context.span();
        if error.is_some() {
            span.set_status(Status::error(""));
        }
        let server = self.server.iter().flat_map(|server| server.0.iter().cloned());
        let ending: Vec<_> = status.into_iter().chain(error).chain(server).collect();
        let attributes: Vec<_> = self.attributes.iter().chain(&ending).cloned().collect();
        span.set_attributes(ending);
        span.end(); // the caller's own, where there is no tracer, is not ours to end, and this does nothing
        self.calls.inner.instruments.rpc_client.record(self.started.elapsed().as_secs_f64(), &attributes);
    }
}

impl Drop for PluginCall<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.record(Some("CANCELLED"), Some("CANCELLED"));
        }
    }
}

/// The full name of the method for hooks.
const ON_HOOK: &str = "hookgate.plugin.v1.PluginService/OnHook";

/// The full method name, as the semantic conventions define it.
const fn method(point: Point) -> &'static str {
    match point {
        Point::BeforeLlmRequest => "hookgate.plugin.v1.PluginService/BeforeLlmRequest",
        Point::BeforeToolCall => "hookgate.plugin.v1.PluginService/BeforeToolCall",
        Point::AfterToolResult => "hookgate.plugin.v1.PluginService/AfterToolResult",
        Point::BeforeResponse => "hookgate.plugin.v1.PluginService/BeforeResponse",
    }
}

/// Host and port, the path of a Unix socket, or nothing for a plugin in this process.
fn server(address: &str) -> Vec<KeyValue> {
    if let Some(path) = address.strip_prefix("unix://") {
        return vec![KeyValue::new(SERVER_ADDRESS, path.to_owned())];
    }
    if address.starts_with("builtin:") {
        return Vec::new();
    }
    let named = address.strip_prefix("dns:///").map(|name| format!("http://{name}"));
    let Ok(uri) = named.as_deref().unwrap_or(address).parse::<Uri>() else { return Vec::new() };
    let Some(host) = uri.host() else { return Vec::new() };
    let host = KeyValue::new(SERVER_ADDRESS, host.to_owned());
    let port = uri.port_u16().map(|port| KeyValue::new(SERVER_PORT, i64::from(port)));
    std::iter::once(host).chain(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugins_address_is_host_and_port_or_the_sockets_path() {
        let path = KeyValue::new(SERVER_ADDRESS, "/run/a.sock");
        assert_eq!(server("unix:///run/a.sock"), [path]);
        let (host, port) = (KeyValue::new(SERVER_ADDRESS, "plugin"), KeyValue::new(SERVER_PORT, 7000));
        assert_eq!(server("http://plugin:7000"), [host.clone(), port.clone()]);
        assert_eq!(server("dns:///plugin:7000"), [host, port]);
        assert_eq!(server("builtin:content-policy"), []);
    }
}
