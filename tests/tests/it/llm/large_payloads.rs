//! Work on large payloads leaves the worker, wherever they come from (docs/decisions/0091-work-on-large-payloads.md).

use std::fs;

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    fake::FakePlugin,
    gateway::Gateway,
    provider::{FakeProvider, ProviderAct},
    token::token,
};
use serde_json::json;

use crate::llm::support::{ask, chat, gateway, stream, user};

/// Who sends the text.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// An agent, at a point.
    Agent,
    /// The client of a model.
    Client,
    /// The model.
    Answer,
    /// The model, in one event.
    Event,
}

/// Whether the gateway has threads for large payloads. The first one starts them.
fn has_compute_threads(gateway: &Gateway) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", gateway.id())).expect("it runs");
    let names = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim() == "compute")
}

/// Has a gateway whose plugin asks about everything carry `text`. Returns whether it has threads for large payloads then.
async fn carry(source: Source, text: &str) -> bool {
    let (says, asks) = match source {
        Source::Answer => (ProviderAct::says(text), "short"),
        Source::Event => (ProviderAct::streams(&[text]), "short"),
        Source::Client | Source::Agent => (ProviderAct::says("short"), text),
    };
    let (provider, plugin) = (FakeProvider::always(says).await, FakePlugin::named("asked").start().await);
    let gateway = gateway(&provider, &plugin).await;
    let request = ask(&json!([user(asks)]));
    match source {
        Source::Agent => {
            let payload = json!({ "tool_name": "t", "args": text });
            let answer = gateway.http(&token("acme")).call(ExtensionPoint::BeforeToolCall, payload).await;
            assert_eq!(answer.status, 200, "{source:?}");
        }
        Source::Client => assert_eq!(chat(&gateway, &request).await.status, 200, "{source:?}"),
        Source::Answer => assert_eq!(chat(&gateway, &request).await.message()["content"], text, "{source:?}"),
        Source::Event => assert_eq!(stream(&gateway, request).await.text(0), text, "{source:?}"),
    }
    assert!(plugin.counts().calls > 0, "{source:?}");
    has_compute_threads(&gateway)
}

#[tokio::test]
async fn a_large_payload_leaves_the_worker_and_a_small_one_stays() {
    let large = "a ".repeat(64 << 10);
    for source in [Source::Agent, Source::Client, Source::Answer, Source::Event] {
        assert!(!carry(source, "a short text").await, "{source:?}");
        assert!(carry(source, &large).await, "{source:?}");
    }
}
