//! Tests that secrets appear nowhere: not in the log, metrics, spans, log records or answers.

use hookgate_proto::types::v1::NoticeKind;
use hookgate_tests::{
    collector::{Collector, Received},
    fake::{Act, FakePlugin, notice},
    metrics::Scrape,
    token::{SECRET, token},
};
use serde_json::{Value, json};

use crate::telemetry::support::{POINT, exporting_to, tenants};

const PLUGIN_SECRET: &str = "canary-plugin-secret-7f3a9c";
const PAYLOAD: &str = "canary-payload-51d0e2";
const DETAILS: &str = "canary-details-c88b17";

fn payload() -> Value {
    json!({ "tool_name": "fs.read", "args": { "path": PAYLOAD }, "extra": { "note": PAYLOAD } })
}

/// Whether all signals were exported, including the block.
fn is_enough(received: &Received) -> bool {
    let has_block = format!("{:?}", received.logs).contains("decision.block");
    let calls = received.spans.iter().filter(|span| span.name == "POST /v1/before-tool-call");
    has_block && received.logs.len() >= 7 && calls.count() >= 7 && !received.metrics.is_empty()
}

#[tokio::test]
async fn no_token_secret_or_payload_is_in_any_log_metric_or_span() {
    let collector = Collector::start().await;
    let schema = json!({ "type": "object", "properties": { "key": { "type": "string" } } });
    let plugin = FakePlugin::named("plugin").config_schema(schema).start().await;
    let setup =
        tenants().plugin_with(&plugin, &json!({ "config": { "key": "${CANARY}" } })).binding("plugin", 10);
    let setup = exporting_to(setup, &collector)
        .environment("CANARY", PLUGIN_SECRET)
        .set("/log/level", "trace")
        .set("/plugins/0/limits", json!({ "timeout": "2s" }))
        .set("/telemetry/slow_invocation", "1ms");
    let gateway = setup.start().await;
    let told = &plugin.initialized()[0].config;
    assert!(String::from_utf8_lossy(told).contains(PLUGIN_SECRET), "the plugin got it");

    let (good, other) = (token("acme"), token("globex"));
    let forged = format!("{}x", &good[..good.len() - 2]);
    let remark = notice(NoticeKind::Warn, "N", "a remark", &json!({ "inside": DETAILS }));
    let mut answers = String::new();
    for act in [
        Act::pass().with_notice(remark),
        Act::cancel("X", "no"),
        Act::no_verdict(),
        Act::hang(),
        // A plugin that returns its own configuration to the gateway.
        Act::status(tonic::Code::Internal, &format!("my key is {PLUGIN_SECRET}")),
    ] {
        plugin.set(POINT, act);
        let answer = gateway.http(&good).call(POINT, payload()).await;
        answers.push_str(&format!("{:?}{}{}", answer.headers, answer.body["detail"], answer.body["notices"]));
    }
    for token in [&other, &forged] {
        let answer = gateway.http(token).post(POINT, &json!({ "payload": payload(), "bad": 1 })).await;
        answers.push_str(&answer.text);
    }
    let received = collector.wait_until(is_enough).await;
    let metrics = Scrape::of(&gateway).await.text;
    let exit = gateway.stop().await;
    let exported = format!("{received:?}");
    let log = exit.log.to_string();

    let signature = |token: &str| token.rsplit('.').next().expect("a token has three parts").to_owned();
    let secrets =
        [signature(&good), signature(&other), signature(&forged), SECRET.into(), PLUGIN_SECRET.into()];
    for (place, text) in
        [("the log", &log), ("/metrics", &metrics), ("OTLP", &exported), ("an answer", &answers)]
    {
        for secret in &secrets {
            assert!(!text.contains(secret), "{secret} is in {place}");
        }
    }
    for (place, text) in [("the log", &log), ("/metrics", &metrics), ("OTLP", &exported)] {
        for canary in [PAYLOAD, DETAILS] {
            assert!(!text.contains(canary), "{canary} is in {place}");
        }
    }
    assert!(
        log.contains("decision.block") && exported.contains("decision.block"),
        "there was something to look at"
    );
}
