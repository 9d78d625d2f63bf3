//! What plugins write to the gateway's log, and what they tell operators.

use std::time::{Duration, Instant};

use futures::future::join_all;
use hookgate_proto::host::v1::{
    EmitEventRequest, LogRecord, Severity, WriteLogRequest, event_service_client::EventServiceClient,
    log_service_client::LogServiceClient,
};
use hookgate_tests::{
    collector::{Collector, attributes},
    fake::FakePlugin,
    gateway::{Gateway, Setup},
    metrics::Scrape,
    token::Token,
};
use serde_json::json;
use tempfile::TempDir;
use tonic::{Code, Status, service::interceptor::InterceptedService, transport::Channel};
use tonic_types::StatusExt as _;

use super::support::{BearerToken, call_token, dial, endpoint};
use crate::{
    admin::events_support::{Stream, events, names},
    telemetry::support::exporting_to,
};

async fn noisy(capabilities: &[&str]) -> FakePlugin {
    let wanted: Vec<_> = capabilities.iter().map(|&name| name.to_owned()).collect();
    FakePlugin::named("noisy").manifest(move |manifest| manifest.capabilities = wanted).start().await
}

fn setup(folder: &TempDir, plugin: &FakePlugin) -> Setup {
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    let setup = Gateway::with().tenant("acme").admin().store(&url, folder.path());
    let setup = setup.plugin_with(plugin, &json!({ "grants": ["log", "emit"] })).binding("noisy", 1);
    setup.set("/server/host_addr", "127.0.0.1:0")
}

type Authorized = InterceptedService<Channel, BearerToken>;

async fn log_of(plugin: &FakePlugin, token: &str) -> LogServiceClient<Authorized> {
    LogServiceClient::with_interceptor(dial(&endpoint(plugin)).await, BearerToken::new(token))
}

async fn events_of(plugin: &FakePlugin, token: &str) -> EventServiceClient<Authorized> {
    EventServiceClient::with_interceptor(dial(&endpoint(plugin)).await, BearerToken::new(token))
}

fn own_token(plugin: &FakePlugin) -> String {
    plugin.initialized().last().expect("it was initialised").host_token.clone()
}

fn record(severity: Severity, message: &str) -> LogRecord {
    let attributes = [("left".to_owned(), "7".to_owned())].into();
    LogRecord { severity: severity.into(), message: message.to_owned(), attributes }
}

fn event(name: &str) -> EmitEventRequest {
    EmitEventRequest { name: name.to_owned(), severity: Severity::Warn.into(), ..Default::default() }
}

fn reason(status: &Status) -> (Code, String) {
    (status.code(), status.get_details_error_info().map(|info| info.reason).unwrap_or_default())
}

#[tokio::test]
async fn a_plugins_line_is_in_the_log_and_the_collector_with_plugin_tenant_and_request() {
    let (folder, plugin, collector) =
        (tempfile::tempdir().unwrap(), noisy(&["log"]).await, Collector::start().await);
    let gateway = exporting_to(setup(&folder, &plugin), &collector).start().await;
    let token = call_token(&gateway, &plugin, "acme").await;
    let records = vec![
        record(Severity::Debug, "too fine"),
        record(Severity::Warn, "the budget is nearly used"),
        record(Severity::Error, "the budget is used"),
    ];
    log_of(&plugin, &token).await.write_log(WriteLogRequest { records }).await.unwrap();
    let request_id = plugin.seen().pop().unwrap().call.context.unwrap().request_id;
    let line = gateway.log().wait_for(|line| line.message() == Some("the budget is nearly used")).await;
    for (name, value) in [
        ("level", json!("WARN")),
        ("source", json!("plugin")),
        ("plugin", json!("noisy")),
        ("tenant", json!("acme")),
        ("request_id", json!(request_id)),
        ("attributes", json!({ "left": "7" })),
    ] {
        assert_eq!(line.field(name), Some(&value), "{}", line.text);
    }
    gateway.log().wait_for(|line| line.message() == Some("the budget is used")).await;
    assert!(gateway.log().lines().iter().all(|line| line.message() != Some("too fine")));
    let received = collector.wait_until(|received| received.log_of("budget is nearly").is_some()).await;
    let exported = attributes(&received.log_of("budget is nearly").unwrap().attributes);
    let origin = ["plugin", "tenant", "request_id"].map(|name| &*exported[name]);
    assert_eq!(origin, ["noisy", "acme", &request_id]);

    // Outside of calls there is no tenant.
    let records = vec![record(Severity::Info, "warmed up")];
    log_of(&plugin, &own_token(&plugin)).await.write_log(WriteLogRequest { records }).await.unwrap();
    let line = gateway.log().wait_for(|line| line.message() == Some("warmed up")).await;
    assert_eq!((line.field("plugin"), line.field("tenant")), (Some(&json!("noisy")), None));
}

#[tokio::test]
async fn an_emitted_event_reaches_operators_and_no_tenant() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), noisy(&["emit"]).await);
    let gateway = setup(&folder, &plugin).start().await;
    let operator = gateway.admin(&Token::for_operators().mint());
    let tenant =
        gateway.admin(&Token::for_operators().claim("tenant_id", "acme").scopes("hookgate:admin").mint());
    let mut stream = Stream::open(&operator, "event=plugin.emitted&plugin=noisy").await;
    let call = call_token(&gateway, &plugin, "acme").await;
    let mut request = event("catalog.updated");
    request.message = "12 entries".to_owned();
    request.attributes.insert("entries".to_owned(), "12".to_owned());
    events_of(&plugin, &call).await.emit_event(request).await.unwrap();
    let sent = stream.next_named("plugin.emitted").await;
    for (name, value) in [
        ("level", json!("WARN")),
        ("name", json!("catalog.updated")),
        ("message", json!("12 entries")),
        ("plugin", json!("noisy")),
        ("tenant", json!("acme")),
        ("attributes", json!({ "entries": "12" })),
    ] {
        assert_eq!(sent.data[name], value, "{sent:?}");
    }
    // It is a line of the gateway's own log too.
    let request_id = plugin.seen().pop().unwrap().call.context.unwrap().request_id;
    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.emitted"))).await;
    for (name, value) in [
        ("level", json!("WARN")),
        ("name", json!("catalog.updated")),
        ("message", json!("12 entries")),
        ("plugin", json!("noisy")),
        ("tenant", json!("acme")),
        ("request_id", json!(request_id)),
        ("attributes", json!({ "entries": "12" })),
    ] {
        assert_eq!(line.field(name), Some(&value), "{}", line.text);
    }
    events_of(&plugin, &own_token(&plugin)).await.emit_event(event("started")).await.unwrap();
    let sent = stream.next_named("plugin.emitted").await;
    assert_eq!((&sent.data["message"], sent.data.get("tenant")), (&json!("started"), None));
    assert!(!names(&events(&tenant, "").await).contains(&"plugin.emitted"));
}

#[tokio::test]
async fn events_beyond_a_hundred_a_second_are_dropped_counted_and_reported_once() {
    const EVENTS: u32 = 1000;
    let (folder, plugin) = (tempfile::tempdir().unwrap(), noisy(&["emit"]).await);
    let gateway = setup(&folder, &plugin).start().await;
    let client = events_of(&plugin, &own_token(&plugin)).await;
    let began = Instant::now();
    let emitted = join_all((0..EVENTS).map(|_| {
        let mut client = client.clone();
        async move { client.emit_event(event("flood")).await }
    }))
    .await;
    let took = began.elapsed().as_secs_f64();
    let dropped: Vec<_> = emitted.iter().filter_map(|emitted| emitted.as_ref().err()).collect();
    for status in &dropped {
        assert_eq!(reason(status), (Code::ResourceExhausted, "RATE_LIMITED".to_owned()));
        let wait = status.get_details_retry_info().and_then(|info| info.retry_delay).unwrap();
        assert!(wait <= Duration::from_millis(10), "{wait:?}");
    }
    let passed = emitted.len() - dropped.len();
    let most = 101.0 + 100.0 * took;
    assert!(passed >= 100 && passed as f64 <= most, "{passed} passed in {took} s");
    assert!(!dropped.is_empty(), "{took} s");
    let counted = Scrape::of(&gateway).await.sum(
        "hookgate_host_dropped_total",
        &[("hookgate_plugin_name", "noisy"), ("hookgate_output", "event")],
    );
    assert_eq!(counted, dropped.len() as f64);
    let operator = gateway.admin(&Token::for_operators().mint());
    assert_eq!(events(&operator, "event=plugin.output_dropped").await.len(), 1);
    assert_eq!(events(&operator, "event=plugin.emitted").await.len(), passed);
}

#[tokio::test]
async fn log_lines_beyond_a_thousand_a_second_are_dropped_and_the_plugin_is_told_how_many() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), noisy(&["log"]).await);
    let gateway = setup(&folder, &plugin).start().await;
    let client = log_of(&plugin, &own_token(&plugin)).await;
    let records = vec![record(Severity::Debug, "noise"); 100];
    let written = join_all((0..50).map(|_| {
        let (mut client, records) = (client.clone(), records.clone());
        async move { client.write_log(WriteLogRequest { records }).await.unwrap().into_inner().dropped }
    }))
    .await;
    let dropped: u32 = written.iter().sum();
    assert!((1..=4000).contains(&dropped), "{dropped}");
    let counted = Scrape::of(&gateway)
        .await
        .sum("hookgate_host_dropped_total", &[("hookgate_plugin_name", "noisy"), ("hookgate_output", "log")]);
    assert_eq!(counted, f64::from(dropped));
}

#[tokio::test]
async fn a_capability_for_the_log_is_none_for_events_and_bad_input_names_its_field() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), noisy(&["log"]).await);
    let _gateway = setup(&folder, &plugin).start().await;
    let token = own_token(&plugin);
    let refused = events_of(&plugin, &token).await.emit_event(event("x")).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::PermissionDenied, "CAPABILITY_MISSING".to_owned()));
    let records = vec![record(Severity::Info, "fine"), record(Severity::Info, "")];
    let mut log = log_of(&plugin, &token).await;
    let refused = log.write_log(WriteLogRequest { records }).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::InvalidArgument, "FIELD_INVALID".to_owned()));
    assert_eq!(refused.message(), "`records[1].message` is not empty");
}
