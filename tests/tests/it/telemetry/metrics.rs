//! Tests `/metrics`: it has exactly the documented metrics and attributes, and values from callers and
//! plugins create no series.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use hookgate::telemetry::names::{InstrumentKind, METRICS, Metric, TENANT};
use hookgate_proto::{
    host::v1::{
        LogRecord, PutRequest, Severity, WriteLogRequest, log_service_client::LogServiceClient,
        storage_service_client::StorageServiceClient,
    },
    plugin::v1::DescribeResponse,
};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer, path},
    ca::Ca,
    fake::{Act, FakePlugin, Gate, HOOKS},
    gateway::{Gateway, Setup},
    metrics::Scrape,
    provider::{FakeProvider, ProviderAct, completion},
    repository,
    token::{AUDIENCE, ISSUER, SECRET, Token, token},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    auth::{
        jwks::{Answer, Idp, published},
        keys::Keys,
    },
    telemetry::support::{POINT, payload, tenants, traced_call},
};

/// A metric's name in Prometheus' notation.
pub(crate) fn prometheus(metric: &Metric) -> String {
    let name = metric.name.replace('.', "_");
    let unit = if metric.unit == "s" { "_seconds" } else { "" };
    let total = if metric.kind == InstrumentKind::Counter { "_total" } else { "" };
    format!("{name}{unit}{total}")
}

pub(crate) fn label(attribute: &str) -> String {
    attribute.replace('.', "_")
}

/// The documented metrics with their labels.
fn promised() -> BTreeMap<String, BTreeSet<String>> {
    let labels = |metric: &Metric| {
        let tenant = metric.by_tenant.then_some(TENANT);
        metric.attributes.iter().copied().chain(tenant).map(label).collect()
    };
    // Nothing is bypassed here; `bypass.rs` tests that metric.
    let here = METRICS.iter().filter(|metric| metric.name != "hookgate.bypassed");
    here.map(|metric| (prometheus(metric), labels(metric))).collect()
}

/// Scrapes until `condition` holds, because observers and dropped calls are counted after the answer.
async fn scrape_until(gateway: &Gateway, condition: impl Fn(&Scrape) -> bool) -> Scrape {
    for _ in 0..500 {
        let scrape = Scrape::of(gateway).await;
        if condition(&scrape) {
            return scrape;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // polling is the only way
    }
    panic!("never so: {}", Scrape::of(gateway).await.text);
}

/// A key set on a free port.
async fn published_keys() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/jwks.json", listener.local_addr().expect("it is bound"));
    tokio::spawn(async move {
        let set = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", set.len());
            let _ = stream.write_all(format!("{head}{set}").as_bytes()).await;
        }
    });
    url
}

/// A gateway at which everything that is counted happens.
pub(crate) struct Eventful {
    pub(crate) gateway: Gateway,
    _plugins: Vec<FakePlugin>,
    _provider: FakeProvider,
    _folder: tempfile::TempDir,
}

pub(crate) async fn eventful() -> Eventful {
    let gate = Gate::closed();
    let named = FakePlugin::named;
    let reads =
        |manifest: &mut DescribeResponse| manifest.capabilities = vec!["storage:read".into(), "log".into()];
    let advisor = named("advisor").manifest(reads).at(POINT, Act::cancel("X", "would")).start().await;
    let broken = named("broken").at(POINT, Act::no_verdict()).start_tls(&Ca::new()).await;
    let slow = named("slow").at(POINT, Act::hang()).start().await;
    let guard = named("guard").at(POINT, Act::cancel("TOOL_NOT_ALLOWED", "no")).start_unix().await;
    let observer = named("observer").at(POINT, Act::pass().behind(&gate)).start().await;
    let gatherer = gatherer().await;
    let issuer = json!({
        "issuer": "https://other.example.com", "audience": "hookgate", "jwks_url": published_keys().await,
        "tenants": ["globex"],
    });
    let gateway = tenants()
        .plugin_with(&advisor, &json!({ "grants": ["storage:read", "log"] }))
        .plugin_without_breaker(&broken)
        .plugin_without_breaker(&slow)
        .plugin(&guard)
        .plugin(&observer)
        .plugin_without_breaker(&gatherer)
        // A start doesn't wait for plugins that may be skipped, but these must be called each time.
        .set("/plugins/0/required", true)
        .set("/plugins/1/required", true)
        .set("/plugins/4/required", true)
        .set("/plugins/5/required", true)
        .binding_with("advisor", 10, &json!({ "mode": "advise" }))
        .binding_with("broken", 20, &json!({ "mode": "advise" }))
        .binding_with("slow", 30, &json!({ "tenant": "globex", "timeout": "60s" }))
        .binding("guard", 40)
        .binding_with("observer", 50, &json!({ "mode": "observe" }))
        .binding_with("gatherer", 60, &json!({ "tenant": "acme", "hooks": ["recall"] }))
        .binding_with(
            "gatherer",
            70,
            &json!({ "name": "waits", "tenant": "globex", "hooks": ["recall"], "on_error": "fail", "timeout": "60s" }),
        )
        .set("/observers/items", 1)
        .set("/telemetry/tenant_labels", json!(["acme", "globex"]));
    let provider = provider().await;
    let upstream = json!({ "name": "openai", "base_url": provider.base_url() });
    let models = json!([{ "match": "gpt-*", "upstream": "openai" }]);
    let gateway = gateway.set("/llm", json!({ "upstreams": [upstream], "models": models }));
    let folder = tempfile::tempdir().expect("there is room");
    let database = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    let gateway = gateway.store(&database, folder.path()).set("/server/host_addr", "127.0.0.1:0");
    let gateway = with_issuer(gateway, &issuer).start().await;
    make_calls(&gateway).await;
    ask_models(&gateway).await;
    write_without_permission(&advisor).await;
    write_too_much(&advisor).await;
    gate.open();
    let plugins = vec![advisor, broken, slow, guard, observer, gatherer];
    Eventful { gateway, _plugins: plugins, _provider: provider, _folder: folder }
}

/// A provider whose answer has an unknown member.
async fn provider() -> FakeProvider {
    let message = json!({ "role": "assistant", "content": "hi", "new": "x".repeat(100) });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
    FakeProvider::always(ProviderAct::json(&completion(&json!([choice])))).await
}

/// A conversation that goes on, and a model that isn't there.
async fn ask_models(gateway: &Gateway) {
    let said = |role: &str| json!({ "role": role, "content": "hi" });
    let messages = json!([said("user"), said("assistant"), said("user")]);
    for (model, status) in [("gpt-5", 200), ("nobody", 404)] {
        let acme = gateway.http(&token("acme"));
        let request = acme.request(http::Method::POST, "/openai/v1/chat/completions");
        let body = json!({ "model": model, "messages": messages }).to_string();
        let request = request.header("content-type", "application/json").body(body);
        assert_eq!(HttpAgent::send(request).await.expect("an answer").status, status, "{}", gateway.log());
    }
}

/// Contributes what its hook doesn't take for one tenant, and hangs for others.
async fn gatherer() -> FakePlugin {
    let plugin = FakePlugin::named("gatherer").only(&[]).hooks(&["recall"]).at_with(HOOKS, |seen| {
        let tenant = seen.call.context.as_ref().map(|caller| caller.tenant.as_str());
        if tenant == Some("acme") { Act::contribute("memory", "{}") } else { Act::hang() }
    });
    plugin.start().await
}

/// Calls that end in every way.
async fn make_calls(gateway: &Gateway) {
    let (acme, globex) = (gateway.http(&token("acme")), gateway.http(&token("globex")));
    for _ in 0..12 {
        assert_eq!(traced_call(&acme).await.status, 403, "{}", gateway.log());
    }
    // Only this call must run out of time: the timeout leaves the steps before `slow` enough, however busy
    // the machine is.
    let request = globex.request(http::Method::POST, path(POINT)).header("hookgate-timeout-ms", "2000");
    let request = request.header("content-type", "application/json");
    let body = json!({ "payload": payload() }).to_string();
    let answer = HttpAgent::send(request.body(body)).await.expect("an answer");
    assert_eq!((answer.status, &answer.body["code"]), (504, &json!("BUDGET_EXHAUSTED")), "{answer:?}");
    assert_eq!(recall(&acme, 30_000).await.status, 200);
    assert_eq!(recall(&globex, 300).await.body["code"], json!("BUDGET_EXHAUSTED"));
    assert_eq!(gateway.http("no.token.at-all").call(POINT, payload()).await.status, 401);
    assert_eq!(acme.get("/secret/path").await.expect("an answer").status, 404);
    let mut grpc = gateway.grpc(&token("acme")).await.client;
    grpc.before_tool_call(hookgate_proto::gateway::v1::BeforeToolCallRequest::default())
        .await
        .expect_err("it has no payload");
}

/// Runs the hook `recall` with this deadline.
async fn recall(agent: &HttpAgent, timeout_ms: u32) -> HttpAnswer {
    let request = agent.request(http::Method::POST, "/v1/hooks/recall");
    let request = request.header("hookgate-timeout-ms", timeout_ms.to_string());
    let body = json!({ "body": { "message": "hi" } }).to_string();
    HttpAgent::send(request.header("content-type", "application/json").body(body)).await.expect("an answer")
}

/// Writes as a plugin that may only read.
async fn write_without_permission(plugin: &FakePlugin) {
    let endpoint = plugin.initialized().pop().expect("it was initialised").host_endpoint;
    let token = plugin.seen().pop().expect("it was called").call.host_token;
    let mut client = StorageServiceClient::connect(endpoint).await.expect("the host port is open");
    let mut request = tonic::Request::new(PutRequest { key: "k".into(), ..Default::default() });
    let header = format!("Bearer {token}").parse().expect("a header");
    request.metadata_mut().insert("authorization", header);
    client.put(request).await.expect_err("it may not write");
}

/// Writes more log lines than a plugin may in a second.
async fn write_too_much(plugin: &FakePlugin) {
    let request = plugin.initialized().pop().expect("it was initialised");
    let mut client = LogServiceClient::connect(request.host_endpoint).await.expect("the host port is open");
    let line = LogRecord { message: "noise".into(), severity: Severity::Debug.into(), ..Default::default() };
    for _ in 0..1000 {
        let mut request = tonic::Request::new(WriteLogRequest { records: vec![line.clone(); 100] });
        let header = format!("Bearer {}", plugin.initialized()[0].host_token).parse().expect("a header");
        request.metadata_mut().insert("authorization", header);
        if client.write_log(request).await.expect("it may write").into_inner().dropped > 0 {
            return;
        }
    }
    panic!("no line was dropped");
}

/// Adds an issuer whose keys are fetched.
fn with_issuer(setup: Setup, issuer: &Value) -> Setup {
    let first = json!({
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "keys": [{ "alg": "HS256", "secret": SECRET }],
        "tenants": "*",
    });
    setup.set("/auth/issuers", json!([first, issuer]))
}

#[tokio::test]
async fn every_metric_of_the_docs_is_served_with_its_attributes_and_none_besides() {
    let docs =
        fs::read_to_string(repository::root().join("docs/metrics.md")).expect("docs/metrics.md is there");
    assert_eq!(docs, hookgate::telemetry::document(), "docs/metrics.md is of another version");

    let eventful = eventful().await;
    // The last request is recorded after its answer.
    let rpc = [("rpc_response_status_code", "INVALID_ARGUMENT")];
    let done = |scrape: &Scrape| {
        scrape.sum("hookgate_observer_dropped_total", &[]) > 0.0
            && scrape.sum("rpc_server_call_duration_seconds_count", &rpc) > 0.0
            && scrape.sum("hookgate_in_flight", &[]) == 0.0
    };
    let scrape = scrape_until(&eventful.gateway, done).await;
    let mut served = scrape.families();
    served.remove("target_info").expect("it says who serves");
    assert_eq!(served, promised(), "{}", scrape.text);

    // Each of them counts its own.
    let acme = ("hookgate_tenant_id", "acme");
    let sum = |name: &str, labels: &[(&str, &str)]| scrape.sum(name, labels);
    assert_eq!(sum("hookgate_blocks_total", &[("hookgate_code", "TOOL_NOT_ALLOWED"), acme]), 12.0);
    assert_eq!(sum("hookgate_would_block_total", &[("hookgate_plugin_name", "advisor"), acme]), 12.0);
    let broken = ("hookgate_plugin_name", "broken");
    assert_eq!(sum("hookgate_failed_open_total", &[broken, ("hookgate_reason", "bad_reply"), acme]), 12.0);
    assert_eq!(sum("hookgate_budget_exhausted_total", &[("hookgate_point", "before_tool_call")]), 1.0);
    let at_hook = [("hookgate_point", "hook"), ("hookgate_hook", "recall")];
    assert_eq!(sum("hookgate_budget_exhausted_total", &at_hook), 1.0);
    assert_eq!(sum("hookgate_failed_open_total", &at_hook), 1.0);
    assert_eq!(sum("hookgate_invocation_duration_seconds_count", &at_hook), 2.0);
    assert_eq!(sum("hookgate_auth_failures_total", &[("hookgate_reason", "malformed")]), 1.0);
    let blocks = [("hookgate_decision", "block"), ("hookgate_point", "before_tool_call")];
    assert_eq!(sum("hookgate_invocation_duration_seconds_count", &blocks), 12.0);
    let outcome = ("hookgate_outcome", "failed_open");
    assert_eq!(sum("hookgate_steps_total", &[broken, outcome, ("hookgate_reason", "bad_reply")]), 13.0);
    assert_eq!(sum("hookgate_plugin_call_duration_seconds_count", &[broken, outcome]), 13.0);
    let ready = [broken, ("hookgate_state", "ready")];
    assert_eq!((sum("hookgate_plugin_state", &ready), sum("hookgate_plugin_state", &[broken])), (1.0, 1.0));
    assert_eq!((sum("hookgate_table_revision", &[]), sum("hookgate_in_flight", &[])), (1.0, 0.0));
    let route = [("http_route", "/v1/before-tool-call"), ("http_response_status_code", "403")];
    assert_eq!(sum("http_server_request_duration_seconds_count", &route), 12.0);
    assert_eq!(sum("rpc_server_call_duration_seconds_count", &rpc), 1.0);
    assert!(!scrape.text.contains("secret"), "{}", scrape.text);
    assert!(!scrape.text.contains("otel_scope"), "the scope isn't a label");
}

#[tokio::test]
async fn readiness_and_the_keys_that_it_waits_for_are_told_from_the_start_on() {
    let unavailable = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let issuer = Idp::start(Answer::Raw(unavailable.to_vec())).await;
    let setup = with_issuer(tenants(), &issuer.issuer()).set("/drain/grace", "60s");
    let gateway = setup.start_unready().await;
    let started = |scrape: &Scrape| scrape.series.iter().any(|series| series.name == "hookgate_ready");
    let scrape = scrape_until(&gateway, started).await;
    let keys = |scrape: &Scrape, name: &str| -> Vec<f64> {
        let of_keys = scrape.series.iter().filter(|series| series.name == name);
        of_keys.map(|series| series.value).collect()
    };
    assert_eq!(scrape.sum("hookgate_ready", &[]), 0.0, "{}", scrape.text);
    assert_eq!(keys(&scrape, "hookgate_jwks_expiry_seconds"), [0.0], "of the issuer that publishes its keys");
    assert_eq!(keys(&scrape, "hookgate_jwks_age_seconds"), [0.0; 0], "they were never fetched");

    issuer.answers(published(&[("k", &Keys::ed25519())]));
    gateway.wait_until_ready().await;
    let scrape = Scrape::of(&gateway).await;
    assert_eq!(scrape.sum("hookgate_ready", &[]), 1.0, "{}", scrape.text);
    let expiry = scrape.sum("hookgate_jwks_expiry_seconds", &[]);
    assert!((3600.0..=3900.0).contains(&expiry), "{expiry}");
    assert_eq!(keys(&scrape, "hookgate_jwks_age_seconds").len(), 1);

    gateway.terminate();
    scrape_until(&gateway, |scrape| scrape.sum("hookgate_ready", &[]) == 0.0).await;
}

#[tokio::test]
async fn plugins_that_calls_fail_without_are_told_from_the_others() {
    let cases = [
        ("enforces", json!({}), 1.0),
        ("advises-and-fails", json!({ "mode": "advise", "on_error": "fail" }), 1.0),
        ("is-skipped", json!({ "on_error": "skip" }), 0.0),
        ("advises", json!({ "mode": "advise" }), 0.0),
        ("observes", json!({ "mode": "observe" }), 0.0),
        ("is-off", json!({ "enabled": false }), 0.0),
    ];
    let (mut setup, mut plugins) = (tenants(), Vec::new());
    for (priority, (name, settings, _)) in (1..).zip(&cases) {
        let plugin = FakePlugin::named(name).start().await;
        setup = setup.plugin(&plugin).binding_with(name, priority, settings);
        plugins.push(plugin);
    }
    let gateway = setup.start().await;
    let scrape = Scrape::of(&gateway).await;
    for (name, _, expected) in cases {
        let found = scrape.sum("hookgate_plugin_fails_closed", &[("hookgate_plugin_name", name)]);
        assert_eq!(found, expected, "{name}: {}", scrape.text);
    }
}

#[tokio::test]
async fn calls_in_flight_are_counted() {
    let gate = Gate::closed();
    let slow = FakePlugin::named("slow").at(POINT, Act::pass().behind(&gate)).start().await;
    let gateway = tenants().plugin(&slow).binding("slow", 10).start().await;
    let agent = gateway.http(&token("acme"));
    let call = tokio::spawn(async move { agent.call(POINT, payload()).await });
    slow.wait_until(|counts| counts.calls == 1).await;
    assert_eq!(Scrape::of(&gateway).await.sum("hookgate_in_flight", &[]), 1.0);
    gate.open();
    assert_eq!(call.await.expect("no panic").status, 200);
    scrape_until(&gateway, |scrape| scrape.sum("hookgate_in_flight", &[]) == 0.0).await;
}

#[tokio::test]
async fn a_caller_that_goes_away_is_counted_as_cancelled_with_the_running_step() {
    let slow = FakePlugin::named("slow").at(POINT, Act::hang()).start().await;
    let gateway = tenants().plugin(&slow).binding("slow", 10).start().await;
    let agent = gateway.http(&token("acme"));
    let call = tokio::spawn(async move { agent.call(POINT, payload()).await });
    slow.wait_until(|counts| counts.calls == 1).await;
    call.abort();
    // Inner records come first, so the request's comes last.
    let cancelled = |scrape: &Scrape| {
        let count = "http_server_request_duration_seconds_count";
        scrape.sum(count, &[("error_type", "CANCELLED")]) == 1.0
    };
    let scrape = scrape_until(&gateway, cancelled).await;
    let step = [("hookgate_plugin_name", "slow"), ("hookgate_outcome", "cancelled_by_caller")];
    assert_eq!(scrape.sum("hookgate_steps_total", &step), 1.0);
    let labels = [("hookgate_decision", "cancelled"), ("error_type", "CANCELLED")];
    assert_eq!(scrape.sum("hookgate_invocation_duration_seconds_count", &labels), 1.0);
    let labels = [("error_type", "CANCELLED"), ("hookgate_plugin_name", "slow")];
    assert_eq!(scrape.sum("rpc_client_call_duration_seconds_count", &labels), 1.0);
}

#[tokio::test]
async fn every_execution_is_counted_with_plugin_point_outcome_and_duration() {
    let changes =
        hookgate_proto::types::v1::BeforeToolCallPatch { args: Some("1".into()), ..Default::default() };
    let rewriter = FakePlugin::named("rewriter").at(POINT, Act::patch(changes)).start().await;
    let pass = FakePlugin::named("pass").start().await;
    let observer = FakePlugin::named("observer").at(POINT, Act::cancel("X", "would")).start().await;
    let gateway = tenants()
        .plugin(&rewriter)
        .plugin(&pass)
        // Observers are connected before the start completes only if they are required.
        .plugin_with(&observer, &json!({ "required": true }))
        .binding("rewriter", 10)
        .binding("pass", 20)
        .binding_with("observer", 30, &json!({ "mode": "observe" }))
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    for _ in 0..3 {
        agent.call(POINT, payload()).await;
    }
    let point = ("hookgate_point", "before_tool_call");
    let observed = [("hookgate_plugin_name", "observer"), point, ("hookgate_outcome", "would_block")];
    let scrape = scrape_until(&gateway, |scrape| scrape.sum("hookgate_steps_total", &observed) == 3.0).await;
    for (plugin, outcome) in [("rewriter", "modified"), ("pass", "continued")] {
        let labels = [("hookgate_plugin_name", plugin), point, ("hookgate_outcome", outcome)];
        assert_eq!(scrape.sum("hookgate_steps_total", &labels), 3.0, "{plugin}");
        assert_eq!(scrape.sum("hookgate_plugin_call_duration_seconds_count", &labels), 3.0, "{plugin}");
    }
    assert_eq!(
        scrape.sum("hookgate_steps_total", &[("hookgate_plugin_name", "observer")]),
        3.0,
        "counted once"
    );
    let would = [("hookgate_plugin_name", "observer"), ("hookgate_mode", "observe")];
    assert_eq!(scrape.sum("hookgate_would_block_total", &would), 3.0);
}

#[tokio::test]
async fn series_do_not_grow_with_what_callers_and_plugins_say() {
    let guard = FakePlugin::named("guard")
        .at_with(POINT, |seen| {
            let number = seen.number;
            if number % 2 == 0 {
                Act::cancel(&format!("CODE_{number}"), &format!("message {number}"))
            } else {
                Act::status(tonic::Code::Unknown, &format!("error {number}"))
            }
        })
        .start()
        .await;
    let gateway = tenants()
        .plugin(&guard)
        .binding("guard", 10)
        .set("/tenants/unknown", "accept")
        .set("/block_status", json!({ "CODE_4": 451 }))
        .start()
        .await;
    let fuzz = async |round: u32| {
        let tenant = format!("tenant-{round}");
        let operator = Token::for_tenant(&tenant).claim("sub", format!("operator-{round}")).mint();
        let agent = gateway.http(&operator);
        let context = json!({ "session_id": format!("s{round}"), "agent_id": format!("a{round}") });
        let payload =
            json!({ "tool_name": format!("tool-{round}"), "args": round, "call_id": format!("c{round}") });
        for _ in 0..2 {
            agent.post(POINT, &json!({ "context": context, "payload": payload })).await;
        }
        agent.get(&format!("/path-{round}")).await.expect("an answer");
        let method = http::Method::from_bytes(format!("M{round}").as_bytes()).expect("a method");
        HttpAgent::send(agent.request(method, path(POINT))).await.expect("an answer");
        gateway.http(&format!("bad-{round}")).call(POINT, payload).await;
    };
    // Everything has happened once, including the configured code, so no new series appears from here on.
    for round in 0..4 {
        fuzz(round).await;
    }
    let before = Scrape::of(&gateway).await;
    for round in 4..40 {
        fuzz(round).await;
    }
    let after = Scrape::of(&gateway).await;
    let names = |scrape: &Scrape| -> BTreeSet<_> {
        scrape.series.iter().map(|series| format!("{}{:?}", series.name, series.labels)).collect()
    };
    let new: Vec<_> = names(&after).difference(&names(&before)).cloned().collect();
    assert_eq!(new, Vec::<String>::new());
    let blocks = |code: &str| after.sum("hookgate_blocks_total", &[("hookgate_code", code)]);
    assert_eq!((blocks("other"), blocks("CODE_4")), (39.0, 1.0), "{}", after.text);
}

#[tokio::test]
async fn metrics_name_the_tenants_of_the_list_alone() {
    let pass = FakePlugin::named("pass").start().await;
    let setup = tenants().plugin(&pass).binding("pass", 10);
    let gateway = setup.set("/telemetry/tenant_labels", json!(["globex"])).start().await;
    for tenant in ["acme", "globex"] {
        assert_eq!(gateway.http(&token(tenant)).call(POINT, payload()).await.status, 200);
    }
    let scrape = Scrape::of(&gateway).await;
    let of = |labels: &[(&str, &str)]| scrape.sum("hookgate_steps_total", labels);
    assert_eq!((of(&[]), of(&[("hookgate_tenant_id", "globex")])), (2.0, 1.0));
    assert!(!scrape.text.contains("acme"), "{}", scrape.text);
}
