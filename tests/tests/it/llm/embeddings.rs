//! Texts that clients want as vectors.

use hookgate_proto::types::v1::{BeforeLlmRequestPatch, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    gateway::Gateway,
    provider::{
        ProviderAct,
        responses::{embedded, error, raw},
    },
    token::token,
};
use serde_json::{Value, json};

use super::{
    responses_support::{always, provider, request},
    support::{ClientAnswer, gateway, limited, send, setup},
};

const REQUEST: ExtensionPoint = ExtensionPoint::BeforeLlmRequest;

/// A body that a JSON library would write otherwise.
const EXACT: &str = r#"{ "input":["caf\u00e9", "\ud83d\ude00"] ,"model":"gpt-5","dimensions":2 }"#;

async fn post(gateway: &Gateway, body: String) -> ClientAnswer {
    send(request(gateway, "/embeddings", body).bearer_auth(token("acme"))).await
}

/// Asks for the vectors of these texts.
async fn embed(gateway: &Gateway, input: &Value) -> ClientAnswer {
    post(gateway, json!({ "model": "gpt-embedding", "input": input }).to_string()).await
}

/// Redacts an address, and blocks bombs.
fn redact(seen: &Seen) -> Act {
    match &seen.payload {
        Payload::BeforeLlmRequest(request) if request.text.contains("bomb") => {
            Act::cancel("POLICY", "Not that.")
        }
        Payload::BeforeLlmRequest(request) if request.text.contains("ada@example.com") => {
            let text = Some(request.text.replace("ada@example.com", "[EMAIL]"));
            Act::patch(BeforeLlmRequestPatch { text, ..BeforeLlmRequestPatch::default() })
        }
        _ => Act::pass(),
    }
}

#[tokio::test]
async fn every_text_is_judged_on_its_own_and_redacted_in_its_place() {
    let provider = provider(embedded).await;
    let plugin = FakePlugin::named("redactor").at_with(REQUEST, redact).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let texts = json!(["mail ada@example.com", "one", "ada@example.com", "two"]);
    let got = embed(&gateway, &texts).await;
    assert_eq!((got.status.as_u16(), got.json()["data"].as_array().map(Vec::len)), (200, Some(4)), "{got:?}");
    let sent = provider.request();
    assert_eq!(sent.path, "/v1/embeddings");
    assert_eq!(sent.json()["input"], json!(["mail [EMAIL]", "one", "[EMAIL]", "two"]));
    let mut seen: Vec<_> = plugin
        .seen()
        .into_iter()
        .map(|seen| match seen.payload {
            Payload::BeforeLlmRequest(request) => {
                assert_eq!((request.system_prompt, request.tools.as_ref()), (None, b"".as_slice()));
                request.text
            }
            other => panic!("an answer is not judged: {other:?}"),
        })
        .collect();
    seen.sort();
    assert_eq!(seen, ["ada@example.com", "mail ada@example.com", "one", "two"]);
    embed(&gateway, &json!("ada@example.com")).await;
    assert_eq!(provider.requests()[1].json()["input"], "[EMAIL]", "a string stays one");
}

#[tokio::test]
async fn what_nobody_changes_is_byte_for_byte_what_it_is_without_the_gateway() {
    let answer = r#"{"data":[ {"embedding":[1.0,-0.5e-7],"index":0}], "object":"list","new":{}}"#;
    let provider = always(raw(200, answer)).await;
    let plugin = FakePlugin::named("watcher").start().await;
    for gateway in [gateway(&provider, &plugin).await, setup(&provider).start().await] {
        let got = post(&gateway, EXACT.to_owned()).await;
        assert_eq!((got.status.as_u16(), got.text.as_str()), (200, answer));
        let sent = provider.requests().pop().expect("a request");
        assert_eq!(sent.body.as_ref(), EXACT.as_bytes());
    }
    let points: Vec<_> = plugin.seen().iter().map(|seen| seen.point).collect();
    assert_eq!(points, [REQUEST, REQUEST]);
}

#[tokio::test]
async fn a_block_of_one_text_is_a_400_and_the_provider_is_not_asked() {
    let provider = provider(embedded).await;
    let plugin = FakePlugin::named("policy").at_with(REQUEST, redact).start().await;
    let gateway = gateway(&provider, &plugin).await;
    for texts in [json!("a bomb"), json!(["a bomb", "x"]), json!(["x", "a bomb"])] {
        let got = embed(&gateway, &texts).await;
        got.assert_error(400, "POLICY");
        assert_eq!(
            (got.header("x-should-retry"), got.header("hookgate-decision")),
            (Some("false"), Some("block"))
        );
    }
    plugin.set(REQUEST, Act::no_verdict());
    embed(&gateway, &json!(["x", "y"])).await.assert_error(502, "PLUGIN_BAD_REPLY");
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn a_request_of_many_texts_counts_once_against_a_limit() {
    let provider = provider(embedded).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = limited(setup(&provider), &folder, 1).await;
    let texts = json!(["one", "two", "three", "four", "five"]);
    assert_eq!(embed(&gateway, &texts).await.status, 200);
    embed(&gateway, &texts).await.assert_error(400, "RATE_LIMITED");
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn tokens_are_refused_where_plugins_read_texts() {
    let provider = provider(embedded).await;
    let plugin = FakePlugin::named("policy").only(&[REQUEST]).start().await;
    let judged = gateway(&provider, &plugin).await;
    let plain = setup(&provider).start().await;
    for (asked, tokens) in [json!([1, 2]), json!([[1, 2], [3]])].into_iter().enumerate() {
        embed(&judged, &tokens).await.assert_error(400, "UNSUPPORTED");
        assert_eq!(provider.requests().len(), asked);
        assert_eq!(embed(&plain, &tokens).await.status, 200, "a tenant without plugins has a plain proxy");
    }
    for input in [json!(["x", [1]]), json!({ "text": "x" }), Value::Null] {
        embed(&plain, &input).await.assert_error(400, "PAYLOAD_INVALID");
    }
}

#[tokio::test]
async fn vectors_pass_however_many_they_are() {
    let vector = vec![0.25; 40_000];
    let data = json!([{ "object": "embedding", "index": 0, "embedding": vector }]);
    let body = json!({ "object": "list", "data": data, "model": "m" }).to_string();
    let provider = always(raw(200, &body)).await;
    let plugin = FakePlugin::named("watcher").start().await;
    let setup = setup(&provider).set("/llm/limits", json!({ "answer": "4KiB" }));
    let gateway = setup.plugin(&plugin).binding("watcher", 10).start().await;
    gateway.wait_until_ready().await;
    let got = embed(&gateway, &json!("x")).await;
    assert_eq!((got.status.as_u16(), got.text == body), (200, true), "{}", got.text.len());
}

#[tokio::test]
async fn the_providers_errors_pass_but_for_those_about_the_operators_credential() {
    for (act, status, code) in [
        (error(400, "too_long", "Too many tokens"), 400, "too_long"),
        (error(401, "invalid_api_key", "Incorrect API key"), 502, "UPSTREAM_CREDENTIAL"),
        (ProviderAct::Hang, 504, "UPSTREAM_TIMEOUT"),
    ] {
        let provider = always(act).await;
        let gateway = setup(&provider).set("/llm/limits", json!({ "first_byte": "300ms" })).start().await;
        embed(&gateway, &json!("x")).await.assert_error(status, code);
    }
}
