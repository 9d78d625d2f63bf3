//! What a client is told whose base URL is wrong, or whose gateway serves no models.

use hookgate_tests::{
    gateway::Gateway,
    provider::{FakeProvider, ProviderAct},
    token::token,
};
use serde_json::json;

use super::support::{ClientAnswer, send, setup};

/// What a client without and with a good token gets: the same, but for the ids.
async fn post(gateway: &Gateway, path: &str) -> ClientAnswer {
    let url = format!("http://{}{path}", gateway.data_addr());
    let request = || reqwest::Client::new().post(&url).header("content-type", "application/json").body("{}");
    let got = send(request().bearer_auth(token("acme"))).await;
    let stranger = send(request().bearer_auth("sk-something")).await;
    let message = |got: &ClientAnswer| got.json()["error"]["message"].clone();
    assert_eq!((got.status, message(&got)), (stranger.status, message(&stranger)), "{path}");
    got
}

#[tokio::test]
async fn a_client_with_a_wrong_base_url_is_told_the_right_one() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let gateway = setup(&provider).start().await;
    for path in [
        "/chat/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/openai/chat/completions",
        "/openai/v1/v1/chat/completions",
        "/anthropic/chat/completions",
    ] {
        let got = post(&gateway, path).await;
        got.assert_error(404, "NOT_FOUND");
        let message = got.json()["error"]["message"].clone();
        let expected = format!(
            "There is no path `{path}`. Set the client's base URL to the gateway's address with `/openai/v1` at its end"
        );
        assert_eq!(message, json!(expected));
    }
    for path in ["/v1/messages", "/v1/messages/count_tokens", "/anthropic/v1/v1/messages"] {
        let got = post(&gateway, path).await;
        got.assert_anthropic_error(404, "NOT_FOUND");
        let message = got.json()["error"]["message"].clone();
        let expected = format!(
            "There is no path `{path}`. Set the client's base URL to the gateway's address with `/anthropic` at its end, \
             without `/v1`"
        );
        assert_eq!(message, json!(expected));
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn a_client_of_a_gateway_without_models_is_told_so() {
    let gateway = Gateway::with().tenant("acme").start().await;
    for path in ["/openai/v1/chat/completions", "/v1/responses", "/openai/v1/files"] {
        let got = post(&gateway, path).await;
        got.assert_error(404, "NOT_FOUND");
        assert!(got.text.contains("its configuration has no `llm`"), "{}", got.text);
    }
    let got = post(&gateway, "/anthropic/v1/messages").await;
    got.assert_anthropic_error(404, "NOT_FOUND");
    assert!(got.text.contains("its configuration has no `llm`"), "{}", got.text);
}
