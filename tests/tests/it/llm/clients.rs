//! Unmodified clients: the SDKs and agent libraries that people have, each in a process of its own.

use std::process::Command;

use hookgate_tests::{
    clients,
    gateway::{Gateway, Setup},
    provider::{FakeProvider, ProviderAct, ProviderRequest, messages, responses},
    python, repository,
    token::token,
};
use serde_json::{Value, json};

use super::{messages_support, responses_support, support};

/// What a client speaks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Api {
    OpenAi,
    Responses,
    Anthropic,
}

impl Api {
    async fn provider(self) -> FakeProvider {
        match self {
            Api::OpenAi => FakeProvider::start(agent_model).await,
            Api::Responses => responses_support::provider(agent_model_of_responses).await,
            Api::Anthropic => messages_support::provider(agent_model_of_messages).await,
        }
    }

    fn setup(self, provider: &FakeProvider) -> Setup {
        match self {
            Api::OpenAi | Api::Responses => support::setup(provider),
            Api::Anthropic => messages_support::setup(provider),
        }
    }

    /// What clients of a gateway add their paths to.
    pub(super) fn address_at(self, gateway: &Gateway) -> String {
        let address = gateway.data_addr();
        match self {
            Api::OpenAi | Api::Responses => format!("http://{address}/openai/v1"),
            Api::Anthropic => format!("http://{address}/anthropic"),
        }
    }

    /// The last argument of clients, and the names of their variables for the address and the key.
    fn of(self) -> (&'static str, [&'static str; 2]) {
        let openai = ["OPENAI_BASE_URL", "OPENAI_API_KEY"];
        match self {
            Api::OpenAi => ("openai", openai),
            Api::Responses => ("responses", openai),
            Api::Anthropic => ("anthropic", ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"]),
        }
    }

    /// What a client prints that is given this address and key, `form` being `whole` or `stream`.
    pub(super) async fn printed(
        self,
        mut client: Command,
        form: &str,
        address: String,
        key: String,
    ) -> Value {
        let (name, [base_url, api_key]) = self.of();
        client.args([form, name]).env(base_url, address).env(api_key, key);
        let output =
            tokio::task::spawn_blocking(move || client.output()).await.expect("no panic").expect("it runs");
        assert!(output.status.success(), "{form}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// Calls two tools at first, and then says what a tool has told. As strict as a provider: each result has its call, and each call
/// its result.
fn agent_model(request: &ProviderRequest) -> ProviderAct {
    let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
    let mut open = Vec::new();
    for message in &messages {
        match message["tool_call_id"].as_str() {
            Some(id) if !open.contains(&id) => return ProviderAct::text(400, "a result without its call"),
            Some(id) => open.retain(|open| *open != id),
            None if !open.is_empty() => return ProviderAct::text(400, "a call without its result"),
            None => open.extend(
                message["tool_calls"].as_array().into_iter().flatten().filter_map(|call| call["id"].as_str()),
            ),
        }
    }
    let answer = match messages.last().filter(|last| last["role"] == "tool") {
        Some(result) => {
            ProviderAct::says(&format!("the notes are {}", result["content"].as_str().unwrap_or_default()))
        }
        None => ProviderAct::calls(&[("shell_exec", "{}"), ("fs_read", "{}")]),
    };
    answer.for_request(request)
}

/// The same for the other API. What is strict is the provider itself.
fn agent_model_of_messages(request: &ProviderRequest) -> ProviderAct {
    let body = request.json();
    let last = body["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    let result = &last["content"][0];
    if result["type"] != "tool_result" {
        return messages::calls(&[("shell_exec", json!({})), ("fs_read", json!({}))]);
    }
    // Some clients write a text as a block.
    let text = result["content"].as_str().or_else(|| result["content"][0]["text"].as_str());
    messages::says(&format!("the notes are {}", text.unwrap_or_default()))
}

/// The same for Responses: the model thinks before it calls. What is strict is the provider itself.
fn agent_model_of_responses(request: &ProviderRequest) -> ProviderAct {
    if request.path.ends_with("/embeddings") {
        return responses::embedded(request);
    }
    let body = request.json();
    let last = body["input"].as_array().and_then(|items| items.last()).cloned().unwrap_or_default();
    if last["type"] != "function_call_output" {
        let (shell, read) = (("0", "shell_exec"), ("1", "fs_read"));
        let [shell, read] = [shell, read].map(|(at, name)| responses::function_call(at, name, "{}"));
        let output = json!([responses::reasoning("rs_1", "two calls"), shell, read]);
        return responses::answer(&responses::response(&output));
    }
    // Some clients write a text as a part.
    let text = last["output"].as_str().or_else(|| last["output"][0]["text"].as_str());
    responses::says(&format!("the notes are {}", text.unwrap_or_default()))
}

/// What a client behind the gateway prints, `form` being `whole` or `stream`.
async fn run(client: Command, api: Api, form: &str) -> Value {
    let provider = api.provider().await;
    let tools = json!({ "default": "allow", "rules": [{ "name": "no-shell", "tools": ["shell_*"], "action": "deny" }] });
    let words = json!({ "abuse": { "terms": ["bomb"] } });
    let setup = api.setup(&provider).builtin("tool-policy", &tools).builtin("content-policy", &words);
    let setup = setup.builtin("redact", &json!({ "detectors": ["email"] }));
    let gateway =
        setup.binding("content-policy", 10).binding("redact", 20).binding("tool-policy", 30).start().await;
    gateway.wait_until_ready().await;
    let printed = api.printed(client, form, api.address_at(&gateway), token("acme")).await;
    let mut requests = provider.requests();
    requests
        .retain(|request| ["/count_tokens", "/embeddings"].iter().all(|end| !request.path.ends_with(end)));
    assert_eq!(requests.len(), 2, "a block is not asked again, and the provider is not asked at all");
    for request in provider.requests() {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("ada@example.com") && !body.contains("bomb"), "{body}");
    }
    printed
}

/// Checks that a client is guarded at all four points, and doesn't repeat a block, which it reports as `blocked`.
async fn assert_guarded(client: fn() -> Command, api: Api, blocked: &str) -> Value {
    let mut got = Value::Null;
    for form in ["whole", "stream"] {
        got = run(client(), api, form).await;
        assert_eq!(got["ran"], json!(["fs_read"]), "{form}: {got}");
        assert_eq!(
            (&got["answer"], &got["blocked"]),
            (&json!("the notes are by [EMAIL]"), &json!(blocked)),
            "{form}: {got}"
        );
    }
    got
}

pub(super) fn of_python(script: &str) -> Command {
    let mut client = Command::new(python::sdk().join(".venv/bin/python"));
    client.arg(repository::root().join("tests/clients").join(script));
    client
}

pub(super) fn of_node(script: &str) -> Command {
    let mut client = Command::new("node");
    client.arg(clients::folder().join(script));
    client
}

pub(super) const BAD_REQUEST: &str = "BadRequestError 400 CONTENT_BLOCKED";
pub(super) const REJECTED: &str = "ModelRequestRejectedError 400 CONTENT_BLOCKED";
pub(super) const CALL_ERROR: &str = "APICallError 400 CONTENT_BLOCKED";

#[tokio::test(flavor = "multi_thread")]
async fn openais_own_client_for_python_is_guarded_at_all_four_points() {
    let got = assert_guarded(|| of_python("openai_python.py"), Api::OpenAi, BAD_REQUEST).await;
    assert_eq!(got["models"], json!(["fast"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_own_client_for_node_is_guarded_at_all_four_points() {
    let got = assert_guarded(|| of_node("openai_node.mjs"), Api::OpenAi, BAD_REQUEST).await;
    assert_eq!(got["models"], json!(["fast"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_openais_sdk_for_python_are_guarded_at_all_four_points() {
    assert_guarded(|| of_python("openai_agents_python.py"), Api::OpenAi, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_openais_sdk_for_node_are_guarded_at_all_four_points() {
    assert_guarded(|| of_node("openai_agents_node.mjs"), Api::OpenAi, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_pydantic_ai_are_guarded_at_all_four_points() {
    assert_guarded(|| of_python("pydantic_ai_python.py"), Api::OpenAi, REJECTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_vercels_ai_sdk_are_guarded_at_all_four_points() {
    assert_guarded(|| of_node("vercel_ai.mjs"), Api::OpenAi, CALL_ERROR).await;
}

/// Checks what Anthropic's own clients print beside.
fn assert_counts_and_lists(got: &Value) {
    assert_eq!((&got["models"], &got["uncounted"]), (&json!(["fast"]), &json!(BAD_REQUEST)), "{got}");
    assert!(got["tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{got}");
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_own_client_for_python_is_guarded_at_all_four_points() {
    let got = assert_guarded(|| of_python("anthropic_python.py"), Api::Anthropic, BAD_REQUEST).await;
    assert_counts_and_lists(&got);
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_own_client_for_node_is_guarded_at_all_four_points() {
    let got = assert_guarded(|| of_node("anthropic_node.mjs"), Api::Anthropic, BAD_REQUEST).await;
    assert_counts_and_lists(&got);
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_tool_runner_for_python_goes_on_after_a_refused_call() {
    assert_guarded(|| of_python("anthropic_runner_python.py"), Api::Anthropic, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_tool_runner_for_node_goes_on_after_a_refused_call() {
    assert_guarded(|| of_node("anthropic_runner_node.mjs"), Api::Anthropic, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_pydantic_ai_with_anthropics_api_are_guarded_at_all_four_points() {
    assert_guarded(|| of_python("pydantic_ai_python.py"), Api::Anthropic, REJECTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_vercels_ai_sdk_with_anthropics_api_are_guarded_at_all_four_points() {
    assert_guarded(|| of_node("vercel_ai.mjs"), Api::Anthropic, CALL_ERROR).await;
}

/// Checks what OpenAI's own clients print beside, where they embed texts.
fn assert_embeds_and_lists(got: &Value) {
    assert_eq!((&got["models"], &got["unembedded"]), (&json!(["fast"]), &json!(BAD_REQUEST)), "{got}");
    assert_eq!(got["vectors"], json!([[0.5, -0.25], [0.5, -0.25]]), "{got}");
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_own_client_for_python_with_responses_is_guarded_at_all_four_points() {
    let got = assert_guarded(|| of_python("openai_python.py"), Api::Responses, BAD_REQUEST).await;
    assert_embeds_and_lists(&got);
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_own_client_for_node_with_responses_is_guarded_at_all_four_points() {
    let got = assert_guarded(|| of_node("openai_node.mjs"), Api::Responses, BAD_REQUEST).await;
    assert_embeds_and_lists(&got);
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_openais_sdk_for_python_with_responses_are_guarded_at_all_four_points() {
    assert_guarded(|| of_python("openai_agents_python.py"), Api::Responses, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_openais_sdk_for_node_with_responses_are_guarded_at_all_four_points() {
    assert_guarded(|| of_node("openai_agents_node.mjs"), Api::Responses, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_pydantic_ai_with_responses_are_guarded_at_all_four_points() {
    assert_guarded(|| of_python("pydantic_ai_python.py"), Api::Responses, REJECTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_vercels_ai_sdk_with_responses_are_guarded_at_all_four_points() {
    assert_guarded(|| of_node("vercel_ai.mjs"), Api::Responses, CALL_ERROR).await;
}
