//! Tests the spans of the control plane: reloads, registry writes, handshakes and migrations.

use hookgate::telemetry::names::{SPANS, SpanName};
use hookgate_tests::{
    agent::HttpAgent,
    collector::{Collector, Received, attributes},
    fake::{FakePlugin, Handshake},
    gateway::{Gateway, Setup},
    token::token,
};
use http::Method;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use serde_json::json;
use tonic::Status;

use crate::{
    admin::registry::support::administrator,
    telemetry::{
        plugins::traced_plugin,
        support::{AGENT_SPAN, PARENT, TRACE, exporting_to, hex, tenants, traced_call},
    },
};

const DESCRIBE: &str = "hookgate.plugin.v1.PluginService/Describe";
const INITIALIZE: &str = "hookgate.plugin.v1.PluginService/Initialize";
/// Logged during the handshake.
const LINE: &str = "configuration handed over";
const CLIENT_KIND: i32 = 3;
const SERVER_KIND: i32 = 2;

/// A gateway with the tenants acme and globex and a registry in SQLite.
async fn stored(setup: Setup, folder: &tempfile::TempDir) -> Gateway {
    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    setup.admin().store(&url, folder.path()).start().await
}

/// Creates a tenant, as part of the agent's trace.
async fn write(gateway: &Gateway, path: &str, tenant: &serde_json::Value) -> u16 {
    let operator = gateway.admin(&administrator());
    let request = operator.request(Method::PUT, path).header("traceparent", PARENT);
    let request = request.header("content-type", "application/json").body(tenant.to_string());
    HttpAgent::send(request).await.expect("the admin port answers").status
}

fn called<'a>(received: &'a Received, name: &str, kind: i32) -> Option<&'a Span> {
    received.spans.iter().find(|span| span.name == name && span.kind == kind)
}

fn is_failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

#[tokio::test]
async fn a_handshake_is_one_trace_of_the_gateway_and_the_plugin() {
    let collector = Collector::start().await;
    let environment =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.endpoint()), ("OTEL_BSP_SCHEDULE_DELAY", "20")];
    let plugin = traced_plugin(&environment).await;
    let setup = exporting_to(tenants(), &collector)
        .set("/plugins", json!([{ "name": "traced", "endpoint": plugin.address }]))
        .binding("traced", 10);
    let _gateway = setup.start().await;
    let received = collector
        .wait_until(|received| {
            let both =
                |name| [CLIENT_KIND, SERVER_KIND].iter().all(|kind| called(received, name, *kind).is_some());
            both(DESCRIBE)
                && both(INITIALIZE)
                && received.log_of(LINE).is_some()
                && received.span("plugin handshake", "hookgate.plugin.name", "traced").is_some()
        })
        .await;
    let handshake = received.span("plugin handshake", "hookgate.plugin.name", "traced").expect("waited for");
    assert_eq!(handshake.parent_span_id, Vec::<u8>::new(), "it is a trace of its own");
    assert!(!is_failed(handshake));
    assert_eq!(attributes(&handshake.attributes)["hookgate.plugin.endpoint"], plugin.address);
    for name in [DESCRIBE, INITIALIZE] {
        let client = called(&received, name, CLIENT_KIND).expect("waited for");
        let server = called(&received, name, SERVER_KIND).expect("waited for");
        assert_eq!(client.parent_span_id, handshake.span_id, "{name}");
        assert_eq!(server.parent_span_id, client.span_id, "the plugin's span is the client span's child");
        assert_eq!(server.trace_id, handshake.trace_id, "{name}");
        assert_eq!(attributes(&client.attributes)["rpc.response.status_code"], "OK");
    }
    let line = received.log_of(LINE).expect("waited for");
    assert_eq!((&line.trace_id, &line.span_id), (&handshake.trace_id, &handshake.span_id));
}

#[tokio::test]
async fn a_failed_handshake_says_why() {
    let collector = Collector::start().await;
    let plugin = FakePlugin::named("guard")
        .on_initialize(Handshake::Fails(Status::invalid_argument("the level is too high")))
        .start()
        .await;
    let setup = exporting_to(
        tenants().plugin_with(&plugin, &json!({ "required": false })).binding("guard", 10),
        &collector,
    );
    let _gateway = setup.start_unready().await;
    let received = collector
        .wait_until(|received| {
            received.span("plugin handshake", "error.type", "CONFIG_REFUSED").is_some()
                && called(received, INITIALIZE, CLIENT_KIND).is_some()
        })
        .await;
    let handshake = received.span("plugin handshake", "error.type", "CONFIG_REFUSED").expect("waited for");
    assert!(is_failed(handshake), "{handshake:?}");
    let initialize = called(&received, INITIALIZE, CLIENT_KIND).expect("waited for");
    let said = attributes(&initialize.attributes);
    assert_eq!(said["rpc.response.status_code"], "INVALID_ARGUMENT", "{said:?}");
    assert!(is_failed(initialize));
}

#[tokio::test]
async fn a_write_belongs_to_the_operators_trace_and_its_activation_is_a_reload() {
    let (collector, folder) = (Collector::start().await, tempfile::tempdir().unwrap());
    let gateway = stored(exporting_to(tenants(), &collector), &folder).await;
    let path = "/admin/v1/tenants/initech?expected_version=0";
    assert_eq!(write(&gateway, path, &json!({ "labels": 3 })).await, 422);
    assert_eq!(write(&gateway, &format!("{path}&dry_run=true"), &json!({})).await, 200);
    assert_eq!(write(&gateway, path, &json!({})).await, 201);
    let received = collector
        .wait_until(|received| {
            received.span("config reload", "hookgate.revision", "2").is_some()
                && received.spans.iter().filter(|span| span.name == "registry write").count() >= 4
                && received.log_of("the registry was written").is_some()
                && received.log_of("a new routing table is active").is_some()
        })
        .await;
    let migrated = received.span("store migration", "db.system.name", "sqlite").expect("the store is new");
    assert!(!is_failed(migrated));

    let of_file =
        received.span("registry write", "hookgate.operator.id", "file").expect("the file was written");
    assert_eq!(attributes(&of_file.attributes)["hookgate.revision"], "1");
    let refused = received.span("registry write", "error.type", "refused").expect("a label isn't a number");
    assert!(is_failed(refused));
    let dry_run = received.span("registry write", "hookgate.dry_run", "true").expect("there was one");
    assert!(!attributes(&dry_run.attributes).contains_key("hookgate.revision"), "nothing was written");
    let written = received.span("registry write", "hookgate.revision", "2").expect("it was written");
    assert_eq!((hex(&written.trace_id).as_str(), hex(&written.parent_span_id).as_str()), (TRACE, AGENT_SPAN));
    let line = received.log_of("the registry was written").expect("waited for");
    assert_eq!((&line.trace_id, &line.span_id), (&written.trace_id, &written.span_id));

    let reload = received.span("config reload", "hookgate.revision", "2").expect("waited for");
    let said = attributes(&reload.attributes);
    assert_eq!((&*said["hookgate.reload.trigger"], &*said["hookgate.outcome"]), ("registry", "active"));
    let published = received.log_of("a new routing table is active").expect("waited for");
    assert_eq!((&published.trace_id, &published.span_id), (&reload.trace_id, &reload.span_id));
}

#[tokio::test]
async fn every_end_of_a_reload_is_told() {
    let collector = Collector::start().await;
    let setup = || exporting_to(tenants(), &collector);
    let gateway = setup().start().await;
    let ended = |outcome: &'static str| {
        move |received: &Received| received.span("config reload", "hookgate.outcome", outcome).is_some()
    };
    gateway.hang_up();
    collector.wait_until(ended("unchanged")).await;
    gateway.reload(&setup().set("/limits/in_flight", "many"));
    let received = collector.wait_until(ended("rejected")).await;
    assert!(is_failed(received.span("config reload", "error.type", "rejected").expect("waited for")));
    // Nothing listens there, so it stays pending until another configuration takes its place.
    let away = json!([{ "name": "away", "endpoint": "http://127.0.0.1:9", "required": true }]);
    gateway.reload(&setup().set("/plugins", away).binding("away", 10));
    gateway.log().wait_for(|line| line.message().is_some_and(|text| text.contains("is pending"))).await;
    gateway.reload(&setup().tenant("initech"));
    let received =
        collector.wait_until(|received| ended("active")(received) && ended("abandoned")(received)).await;
    let abandoned = received.span("config reload", "hookgate.outcome", "abandoned").expect("waited for");
    assert!(!is_failed(abandoned));
}

#[tokio::test]
async fn exporters_do_not_trace_themselves_and_every_span_is_documented() {
    for protocol in ["grpc", "http"] {
        let (collector, folder) = (Collector::start().await, tempfile::tempdir().unwrap());
        let plugin = FakePlugin::named("pass").start().await;
        let setup = exporting_to(tenants().plugin(&plugin).binding("pass", 10), &collector);
        let gateway = stored(setup.set("/telemetry/otlp_protocol", protocol), &folder).await;
        assert_eq!(write(&gateway, "/admin/v1/tenants/initech?expected_version=0", &json!({})).await, 201);
        traced_call(&gateway.http(&token("acme"))).await;
        // Each of these exports would have caused another one.
        collector.wait_for_exports(30).await;
        let received = collector.received();
        assert!(received.spans.len() > 6 && received.spans.len() < 30, "{}", received.spans.len());
        received.spans.iter().for_each(assert_documented);
    }
}

/// The table has the name of a span, or names of its form.
fn assert_documented(span: &Span) {
    let is_named =
        |row: &&SpanName| match row.name.split('`').nth(1).expect("each row has a name or an example") {
            name if !name.contains('/') => name == span.name,
            example => {
                let of_plugin = |name: &str| name.contains(".plugin.");
                let of_point = |name: &str| name.ends_with("ool-call") || name.ends_with("ToolCall");
                span.name.contains('/')
                    && of_plugin(example) == of_plugin(&span.name)
                    && of_point(example) == of_point(&span.name)
            }
        };
    let row = SPANS.iter().find(is_named).unwrap_or_else(|| panic!("no row has `{}`", span.name));
    for attribute in attributes(&span.attributes).keys() {
        let is_listed = attribute == "error.type" || row.attributes.contains(&attribute.as_str());
        assert!(is_listed, "`{attribute}` of {}", span.name);
    }
}
