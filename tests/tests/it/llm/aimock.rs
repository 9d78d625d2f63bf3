//! The same clients with a provider that isn't this project's own: aimock, at first without a gateway, and then behind one.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use hookgate_proto::types::v1::{BeforeResponsePatch, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, POINTS, Payload, Seen},
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

use super::{
    clients::{Api, BAD_REQUEST, CALL_ERROR, REJECTED, of_node, of_python},
    support::{ClientAnswer, send},
};

/// A running aimock. It ends with its standard input, and so with these tests.
struct Aimock {
    address: String,
    _process: Child,
}

impl Aimock {
    async fn start() -> Self {
        let mut script = tokio::process::Command::from(of_node("aimock.mjs"));
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = script.spawn().expect("Node is installed");
        let output = process.stdout.take().expect("standard output is piped");
        let port = BufReader::new(output).lines().next_line().await.expect("a line").expect("it starts");
        Aimock { address: format!("http://127.0.0.1:{port}"), _process: process }
    }

    /// A gateway in front of it. Of its tenants, `plain` has no plugins, `watched` has one that judges at all points, and
    /// `guarded` has those that block and redact.
    async fn gateway(&self, watcher: &FakePlugin) -> Gateway {
        let openai = json!({ "name": "openai", "base_url": format!("{}/v1", self.address) });
        let anthropic = json!({ "name": "anthropic", "format": "anthropic", "base_url": self.address });
        let models = json!([{ "match": "gpt-*", "upstream": "openai" }, { "match": "claude-*", "upstream": "anthropic" }]);
        let tools = json!({ "default": "allow", "rules": [{ "name": "no-shell", "tools": ["shell_*"], "action": "deny" }] });
        let setup = ["plain", "watched", "guarded"].into_iter().fold(Gateway::with(), Setup::tenant);
        let setup = setup
            .set("/llm", json!({ "upstreams": [openai, anthropic], "models": models }))
            .builtin("content-policy", &json!({ "abuse": { "terms": ["bomb"] } }))
            .builtin("redact", &json!({ "detectors": ["email"] }))
            .builtin("tool-policy", &tools)
            .plugin(watcher)
            .binding_with(watcher.name(), 10, &json!({ "tenant": "watched" }));
        let guards = ["content-policy", "redact", "tool-policy"].into_iter().zip([10, 20, 30]);
        let bind = |setup: Setup, (plugin, priority)| {
            setup.binding_with(plugin, priority, &json!({ "tenant": "guarded" }))
        };
        guards.fold(setup, bind).start().await
    }

    /// What clients add their paths to.
    fn address(&self, api: Api) -> String {
        match api {
            Api::OpenAi | Api::Responses => format!("{}/v1", self.address),
            Api::Anthropic => self.address.clone(),
        }
    }

    async fn control(&self, path: &str, body: &Value) {
        let request = reqwest::Client::new().post(format!("{}/__aimock{path}", self.address)).json(body);
        let answer = request.send().await.expect("aimock answers");
        assert!(answer.status().is_success(), "{path}: {answer:?}");
    }

    /// The requests that have reached it since this was asked last.
    async fn requests(&self) -> Vec<Value> {
        let journal =
            reqwest::get(format!("{}/__aimock/journal", self.address)).await.expect("aimock answers");
        let journal: Vec<Value> = journal.json().await.expect("a list");
        self.control("/reset/journal", &json!({})).await;
        journal
            .into_iter()
            .map(|mut entry| json!({ "path": entry["path"].take(), "body": entry["body"].take() }))
            .collect()
    }
}

/// Where a client sends its requests.
#[derive(Debug, Clone, Copy)]
enum Route {
    Aimock,
    Gateway(&'static str),
}

/// What came of a client.
#[derive(Debug, PartialEq)]
struct ClientRun {
    printed: Value,
    /// What reached aimock.
    requests: Vec<Value>,
}

impl ClientRun {
    async fn of(
        client: Command,
        api: Api,
        form: &str,
        route: Route,
        (aimock, gateway): (&Aimock, &Gateway),
    ) -> Self {
        let (address, key) = match route {
            Route::Aimock => (aimock.address(api), "any".to_owned()),
            Route::Gateway(tenant) => (api.address_at(gateway), token(tenant)),
        };
        let mut printed = api.printed(client, form, address, key).await;
        // The gateway has a list of its own.
        printed.as_object_mut().expect("an object").remove("models");
        // Some clients run the calls of an answer at the same time.
        printed["ran"].as_array_mut().expect("a list").sort_by_key(Value::to_string);
        let mut requests = aimock.requests().await;
        for request in &mut requests {
            // The gateway always wants to know the usage.
            request["body"].as_object_mut().expect("an object").remove("stream_options");
        }
        ClientRun { printed, requests }
    }

    /// Checks that it is what aimock's script makes of an agent.
    fn assert_unguarded(&self) {
        let ClientRun { printed, requests } = self;
        assert_eq!(printed["ran"], json!(["fs_read", "shell_exec"]), "{self:?}");
        assert_eq!(printed["answer"], "the notes are by ada@example.com", "{self:?}");
        for refused in ["blocked", "uncounted", "unembedded"] {
            assert_eq!(printed[refused], Value::Null, "{self:?}");
        }
        assert!(requests.len() >= 3, "{self:?}");
    }

    /// Checks that plugins blocked and redacted, and that aimock got all of `unguarded` but what was blocked.
    fn assert_guarded(&self, unguarded: &Self, blocked: &str) {
        let ClientRun { printed, requests } = self;
        assert_eq!(printed["ran"], json!(["fs_read"]), "{self:?}");
        assert_eq!(printed["answer"], "the notes are by [EMAIL]", "{self:?}");
        for refused in ["blocked", "uncounted", "unembedded"] {
            let is_asked = refused == "blocked" || !printed[refused].is_null();
            assert!(!is_asked || printed[refused] == blocked, "{self:?}");
        }
        let paths = |requests: &[Value]| -> Vec<Value> {
            let sent = requests.iter().filter(|request| !request.to_string().contains("bomb"));
            sent.map(|request| request["path"].clone()).collect()
        };
        assert_eq!(paths(requests), paths(&unguarded.requests), "{self:?}");
        let all = json!(requests).to_string();
        assert!(!all.contains("bomb") && !all.contains("ada@example.com"), "{self:?}");
        let second = requests[1].to_string();
        assert!(
            second.contains("Tool call shell_exec was refused: ") && second.contains("by [EMAIL]"),
            "{self:?}"
        );
        assert!(second.contains("call_fs_read") && !second.contains("call_shell_exec"), "{self:?}");
    }
}

const EVERYWHERE: [Route; 3] = [Route::Aimock, Route::Gateway("plain"), Route::Gateway("watched")];
/// For agents, which call with one of the SDKs that go everywhere.
const WITH_PLUGINS: [Route; 2] = [Route::Aimock, Route::Gateway("watched")];
/// For Anthropic's tool runners. They ask for a `thread`, and then leave out what the provider should know. aimock ignores the
/// `thread`, and so knows too little; the gateway refuses it, and the runners go on without one.
const BEHIND_A_GATEWAY: [Route; 2] = [Route::Gateway("plain"), Route::Gateway("watched")];

/// Checks that the client does the same wherever nothing is blocked or changed, and else what plugins allow.
async fn assert_same(client: fn() -> Command, apis: &[Api], routes: &[Route], blocked: &str) {
    let aimock = Aimock::start().await;
    for &api in apis {
        let watcher = FakePlugin::named("watcher").start().await;
        let gateway = aimock.gateway(&watcher).await;
        let between = (&aimock, &gateway);
        for form in ["whole", "stream"] {
            let first = ClientRun::of(client(), api, form, routes[0], between).await;
            first.assert_unguarded();
            for &route in &routes[1..] {
                let run = ClientRun::of(client(), api, form, route, between).await;
                assert_eq!(run, first, "{api:?}, {form}, {route:?}");
            }
            let guarded = ClientRun::of(client(), api, form, Route::Gateway("guarded"), between).await;
            guarded.assert_guarded(&first, blocked);
        }
        let judged: BTreeSet<_> = watcher.seen().iter().map(|seen| seen.point.as_str_name()).collect();
        assert_eq!(judged, POINTS.iter().map(ExtensionPoint::as_str_name).collect(), "{api:?}");
    }
}

const OPENAI: [Api; 2] = [Api::OpenAi, Api::Responses];
const ANTHROPIC: [Api; 1] = [Api::Anthropic];
const ALL: [Api; 3] = [Api::OpenAi, Api::Responses, Api::Anthropic];

#[tokio::test(flavor = "multi_thread")]
async fn openais_own_client_for_python_does_the_same_behind_the_gateway() {
    assert_same(|| of_python("openai_python.py"), &OPENAI, &EVERYWHERE, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_own_client_for_node_does_the_same_behind_the_gateway() {
    assert_same(|| of_node("openai_node.mjs"), &OPENAI, &EVERYWHERE, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_openais_sdk_for_python_do_the_same_behind_the_gateway() {
    assert_same(|| of_python("openai_agents_python.py"), &OPENAI, &WITH_PLUGINS, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_openais_sdk_for_node_do_the_same_behind_the_gateway() {
    assert_same(|| of_node("openai_agents_node.mjs"), &OPENAI, &WITH_PLUGINS, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_pydantic_ai_do_the_same_behind_the_gateway() {
    assert_same(|| of_python("pydantic_ai_python.py"), &ALL, &WITH_PLUGINS, REJECTED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_vercels_ai_sdk_do_the_same_behind_the_gateway() {
    assert_same(|| of_node("vercel_ai.mjs"), &ALL, &EVERYWHERE, CALL_ERROR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_own_client_for_python_does_the_same_behind_the_gateway() {
    assert_same(|| of_python("anthropic_python.py"), &ANTHROPIC, &EVERYWHERE, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_own_client_for_node_does_the_same_behind_the_gateway() {
    assert_same(|| of_node("anthropic_node.mjs"), &ANTHROPIC, &EVERYWHERE, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_tool_runner_for_python_does_the_same_with_plugins_that_change_nothing() {
    assert_same(|| of_python("anthropic_runner_python.py"), &ANTHROPIC, &BEHIND_A_GATEWAY, BAD_REQUEST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_tool_runner_for_node_does_the_same_with_plugins_that_change_nothing() {
    assert_same(|| of_node("anthropic_runner_node.mjs"), &ANTHROPIC, &BEHIND_A_GATEWAY, BAD_REQUEST).await;
}

/// Removes the secret from answers.
fn keep_the_secret(seen: &Seen) -> Act {
    let Payload::BeforeResponse(answer) = &seen.payload else { return Act::pass() };
    let content = Some(answer.content.replace("secret", "[removed]"));
    Act::patch(BeforeResponsePatch { content, ..BeforeResponsePatch::default() })
}

/// A gateway in front of an aimock with a fault, and what plugins of `watched` were asked.
struct FaultyProvider {
    aimock: Aimock,
    gateway: Gateway,
    watcher: FakePlugin,
}

impl FaultyProvider {
    /// `chaos` says what happens to each request.
    async fn start(chaos: Value) -> Self {
        let aimock = Aimock::start().await;
        aimock.control("/chaos", &chaos).await;
        let watcher = FakePlugin::named("watcher").at_with(ExtensionPoint::BeforeResponse, keep_the_secret);
        let watcher = watcher.start().await;
        FaultyProvider { gateway: aimock.gateway(&watcher).await, aimock, watcher }
    }

    /// What the tenant's client gets. Checks that aimock got the request once.
    async fn ask(&self, tenant: &str, api: Api, stream: bool) -> ClientAnswer {
        let (path, model, input) = match api {
            Api::OpenAi => ("/chat/completions", "gpt-5", "messages"),
            Api::Responses => ("/responses", "gpt-5", "input"),
            Api::Anthropic => ("/v1/messages", "claude-sonnet-5", "messages"),
        };
        let body = json!({ "model": model, input: [{ "role": "user", "content": "break off" }], "max_tokens": 100, "stream": stream });
        let url = format!("{}{path}", api.address_at(&self.gateway));
        let got = send(reqwest::Client::new().post(url).bearer_auth(token(tenant)).json(&body)).await;
        assert_eq!(self.aimock.requests().await.len(), 1, "no request is repeated: {got:?}");
        got
    }

    /// Checks that no plugin was asked about an answer.
    fn assert_no_answers(&self) {
        assert!(self.watcher.seen().iter().all(|seen| seen.point == ExtensionPoint::BeforeLlmRequest));
    }
}

/// Checks that a stream has an error at its end, and not an ordinary end.
fn assert_ends_with_error(got: &ClientAnswer, code: &str) {
    assert_eq!(got.status, 200, "{got:?}");
    let events = got.text.split("\n\n").filter_map(|event| event.split_once("data: "));
    assert!(events.last().is_some_and(|(_, data)| data.contains(code)), "{got:?}");
    for end in ["[DONE]", "response.completed", "message_stop"] {
        assert!(!got.text.contains(end), "{got:?}");
    }
}

#[tokio::test]
async fn the_message_of_an_error_of_aimock_passes_where_nobody_judges_answers() {
    let faulty = FaultyProvider::start(json!({ "dropRate": 1 })).await;
    for (tenant, has_message) in [("plain", true), ("watched", false)] {
        for (api, stream) in ALL.into_iter().flat_map(|api| [(api, false), (api, true)]) {
            let got = faulty.ask(tenant, api, stream).await;
            let error = got.json()["error"].take();
            assert_eq!(got.status, 500, "{api:?}: {got:?}");
            assert_eq!(error["message"] == "Chaos: request dropped", has_message, "{api:?}: {got:?}");
            if tenant == "watched" && matches!(api, Api::Anthropic) {
                assert_eq!(error["type"], "api_error", "Anthropic has no other: {got:?}");
            } else {
                assert_eq!((&error["type"], &error["code"]), (&json!("server_error"), &json!("chaos_drop")));
            }
        }
    }
    faulty.assert_no_answers();
}

#[tokio::test]
async fn what_aimock_breaks_is_no_answer() {
    let faulty = FaultyProvider::start(json!({ "malformedRate": 1 })).await;
    for api in ALL {
        let got = faulty.ask("watched", api, false).await;
        assert_eq!(
            (got.status.as_u16(), &got.json()["error"]["code"]),
            (502, &json!("UPSTREAM_BAD_ANSWER")),
            "{got:?}"
        );
        let streamed = faulty.ask("watched", api, true).await;
        assert_ends_with_error(&streamed, "UPSTREAM_BAD_ANSWER");
        assert!(!got.text.contains("chaos") && !streamed.text.contains("chaos"), "{got:?}, {streamed:?}");
    }
    faulty.assert_no_answers();
}

#[tokio::test]
async fn aimocks_rate_limit_is_one_for_the_client() {
    let faulty = FaultyProvider::start(json!({ "rateLimitRate": 1 })).await;
    for (tenant, api) in ["plain", "watched"].into_iter().flat_map(|tenant| ALL.map(|api| (tenant, api))) {
        let got = faulty.ask(tenant, api, false).await;
        let error = got.json()["error"].take();
        assert_eq!((got.status.as_u16(), &error["type"]), (429, &json!("rate_limit_error")), "{got:?}");
        assert_eq!(error["message"], "Chaos: rate limit exceeded", "{got:?}");
        assert_eq!(
            (got.header("retry-after"), got.header("x-ratelimit-limit-requests")),
            (Some("1"), Some("60"))
        );
        assert_eq!(got.header("x-should-retry"), None, "{got:?}");
    }
    faulty.assert_no_answers();
}

#[tokio::test]
async fn an_aimock_that_hangs_up_is_away() {
    let faulty = FaultyProvider::start(json!({ "disconnectRate": 1 })).await;
    for (tenant, api) in ["plain", "watched"].into_iter().flat_map(|tenant| ALL.map(|api| (tenant, api))) {
        for stream in [false, true] {
            let got = faulty.ask(tenant, api, stream).await;
            let code = got.json()["error"]["code"].take();
            assert_eq!((got.status.as_u16(), code), (503, json!("UPSTREAM_UNAVAILABLE")), "{api:?}: {got:?}");
        }
    }
    faulty.assert_no_answers();
}

#[tokio::test]
async fn what_came_before_aimock_broke_off_is_judged() {
    let faulty = FaultyProvider::start(json!({})).await;
    for api in ALL {
        let got = faulty.ask("watched", api, true).await;
        assert!(got.text.contains("a [removed] ") && !got.text.contains("secret"), "{got:?}");
        assert_ends_with_error(&got, "UPSTREAM_UNAVAILABLE");
    }
}
