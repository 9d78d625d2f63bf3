//! Recorded exchanges with real providers: what the gateway leaves as it is.

use std::sync::{Arc, Mutex};

use hookgate_tests::{
    fake::{FakePlugin, POINTS},
    gateway::{Gateway, Setup},
    provider::{FakeProvider, ProviderAct, ProviderRequest},
    token::token,
};
use serde_json::{Value, json};

use super::{
    recorded_support::{Api, Exception, Exchange, exceptions, remove},
    support::{CREDENTIAL, ClientAnswer, send},
};

/// A provider that answers as it did, and a gateway in front of it.
struct Replay {
    provider: FakeProvider,
    act: Arc<Mutex<ProviderAct>>,
    gateway: Gateway,
    client: reqwest::Client,
}

/// What became of a request, sent to the provider and to the gateway.
struct Round {
    direct: ClientAnswer,
    proxied: ClientAnswer,
    /// What the provider got from the gateway, if anything.
    sent: Option<ProviderRequest>,
}

impl Replay {
    async fn start(setup: impl FnOnce(Setup) -> Setup) -> Self {
        let act = Arc::new(Mutex::new(ProviderAct::Hang));
        let script = Arc::clone(&act);
        let provider = FakeProvider::start(move |_| script.lock().expect("no panic").clone()).await;
        let upstreams = json!([
            { "name": "openai", "base_url": provider.base_url(), "credential": CREDENTIAL },
            { "name": "anthropic", "format": "anthropic", "base_url": provider.root_url(), "credential": CREDENTIAL },
        ]);
        let models =
            json!([{ "match": "*", "upstream": "openai" }, { "match": "*", "upstream": "anthropic" }]);
        let gateway =
            Gateway::with().tenant("acme").set("/llm", json!({ "upstreams": upstreams, "models": models }));
        let gateway = setup(gateway).start().await;
        gateway.wait_until_ready().await;
        Replay { provider, act, gateway, client: reqwest::Client::new() }
    }

    async fn run(&self, api: Api, exchange: &Exchange) -> Round {
        *self.act.lock().expect("no panic") = exchange.act();
        let direct = self.post(format!("{}{}", self.provider.base_url(), api.path()), exchange).await;
        let root = if api == Api::Messages { "anthropic" } else { "openai" };
        let url = format!("http://{}/{root}/v1{}", self.gateway.data_addr(), api.path());
        let before = self.provider.requests().len();
        let proxied = self.post(url, exchange).await;
        let sent = self.provider.requests().get(before).cloned();
        Round { direct, proxied, sent }
    }

    async fn post(&self, url: String, exchange: &Exchange) -> ClientAnswer {
        let request = self.client.post(url).bearer_auth(token("acme"));
        send(request.header("content-type", "application/json").body(exchange.request.clone())).await
    }
}

/// Replays exchanges, and checks each of them. A check has the exchange's exception, if it is one.
async fn assert_all(
    exchanges: impl IntoIterator<Item = (Api, Exchange)>,
    replay: &Replay,
    check: impl Fn(Api, &Exchange, &Round, Option<&Exception>) -> Result<(), String>,
) {
    let exceptions = exceptions();
    let mut problems = Vec::new();
    for (api, exchange) in exchanges {
        let round = replay.run(api, &exchange).await;
        let exception = exceptions.get(&exchange.name);
        if let Err(problem) = check(api, &exchange, &round, exception) {
            problems.push(format!("{}: {problem}", exchange.name));
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

fn all() -> impl Iterator<Item = (Api, Exchange)> {
    Api::ALL.into_iter().flat_map(|api| api.exchanges().into_iter().map(move |exchange| (api, exchange)))
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}

/// Where two texts begin to differ.
fn difference(left: &str, right: &str) -> String {
    let same = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    let around = |text: &str| -> String {
        String::from_utf8_lossy(&text.as_bytes()[same.saturating_sub(60)..text.len().min(same + 120)])
            .into_owned()
    };
    format!("\n  direct  {}\n  proxied {}", around(left), around(right))
}

/// Checks that the answer is the gateway's error of this code, and has this text.
fn is_error(round: &Round, code: &str, text: &str) -> Result<(), String> {
    let body: Value = serde_json::from_str(&round.proxied.text).unwrap_or_default();
    let is_it = body["error"]["code"] == code && round.proxied.text.contains(text);
    ensure(is_it, || format!("not {code} {text}: {} {}", round.proxied.status, round.proxied.text))
}

/// Checks that the gateway refuses the request, and that the message has this text.
fn is_refused(round: &Round, text: &str) -> Result<(), String> {
    ensure(round.sent.is_none(), || "the provider was asked".to_owned())?;
    is_error(round, "UNSUPPORTED", text)
}

/// What the provider should get in place of this request.
fn expected_request(api: Api, request: &str, is_judged: bool) -> Option<Value> {
    let before: Value = json_of(request);
    let mut body = before.clone();
    if api == Api::Responses {
        body["store"] = json!(false);
        let is_lost = |item: &Value| {
            item["type"] == "reasoning" && item["encrypted_content"].is_null() && item["content"].is_null()
        };
        body["input"].as_array_mut().into_iter().for_each(|items| items.retain(|item| !is_lost(item)));
    }
    if api == Api::Chat && is_judged && body["stream"] == true {
        body["stream_options"]["include_usage"] = json!(true);
    }
    (body != before).then_some(body)
}

/// Checks that the provider got what the client sent, but for what the page of the proxy names.
fn is_forwarded(api: Api, exchange: &Exchange, round: &Round, is_judged: bool) -> Result<(), String> {
    let sent = round.sent.as_ref().ok_or_else(|| format!("not sent: {}", round.proxied.text))?;
    ensure(sent.path == format!("/v1{}", api.path()), || sent.path.clone())?;
    let got = String::from_utf8_lossy(&sent.body);
    match expected_request(api, &exchange.request, is_judged) {
        None => ensure(got == exchange.request, || difference(&exchange.request, &got)),
        Some(expected) => {
            ensure(sent.json() == expected, || difference(&expected.to_string(), &sent.json().to_string()))
        }
    }
}

/// Checks that the client got the provider's bytes.
fn is_same_answer(round: &Round) -> Result<(), String> {
    let Round { direct, proxied, .. } = round;
    let head = |answer: &ClientAnswer| (answer.status, answer.header("content-type").map(str::to_owned));
    ensure(head(direct) == head(proxied), || {
        format!("{:?} {:?} {}", head(direct), head(proxied), proxied.text)
    })?;
    ensure(direct.text == proxied.text, || difference(&direct.text, &proxied.text))
}

#[tokio::test]
async fn without_plugins_every_byte_of_a_recorded_exchange_passes() {
    let replay = Replay::start(|setup| setup).await;
    let check = |api: Api, exchange: &Exchange, round: &Round, exception: Option<&Exception>| match exception
    {
        Some(Exception::RefusedAlways(member)) => is_refused(round, &format!("`{member}` is refused")),
        Some(Exception::Error(code)) => is_error(round, code, ""),
        _ => {
            is_forwarded(api, exchange, round, false)?;
            is_same_answer(round)
        }
    };
    assert_all(all(), &replay, check).await;
}

/// Checks an answer that plugins have judged and not changed.
fn is_judged_answer(api: Api, exchange: &Exchange, round: &Round) -> Result<(), String> {
    let Round { direct, proxied, .. } = round;
    ensure(direct.status == proxied.status, || format!("{} {}", proxied.status, proxied.text))?;
    // Of Responses, the client reads its own words in place of the provider's, which is compared as JSON.
    let is_json = exchange.is_streamed() || api == Api::Responses || exchange.status != 200;
    if !is_json {
        return ensure(direct.text == proxied.text, || difference(&direct.text, &proxied.text));
    }
    let mut before = judged(api, exchange, &direct.text);
    if api == Api::Responses {
        with_own_words(exchange, &mut before);
    }
    let after = judged(api, exchange, &proxied.text);
    ensure(before == after, || difference(&before.to_string(), &after.to_string()))
}

/// Checks an exchange that plugins have judged at all points and not changed.
fn is_judged(
    api: Api,
    exchange: &Exchange,
    round: &Round,
    exception: Option<&Exception>,
) -> Result<(), String> {
    match exception {
        // Something else of it may be refused before.
        Some(Exception::RefusedAlways(_)) => return is_refused(round, "is refused"),
        Some(Exception::Refused(switch)) => return is_refused(round, &format!("`llm.allow: [{switch}]`")),
        Some(Exception::Error(code)) => return is_error(round, code, ""),
        Some(Exception::MessageAdded(_)) | None => {}
    }
    is_forwarded(api, exchange, round, true)?;
    let Some(Exception::MessageAdded(message)) = exception else {
        return is_judged_answer(api, exchange, round);
    };
    let mut expected = json_of(&round.direct.text);
    expected["choices"][0]["message"] = message.clone();
    let got = json_of(&round.proxied.text);
    ensure(got == expected, || difference(&expected.to_string(), &got.to_string()))
}

/// The members of the request that an answer of Responses repeats with the client's own words, while plugins judge answers.
const REPEATED: [&str; 9] = [
    "instructions",
    "tools",
    "tool_choice",
    "metadata",
    "text",
    "reasoning",
    "user",
    "safety_identifier",
    "prompt_cache_key",
];

/// What an answer says, however it is cut, but for what clients get otherwise than the provider wrote it.
fn judged(api: Api, exchange: &Exchange, answer: &str) -> Value {
    let request: Value = json_of(&exchange.request);
    let is_stream = exchange.is_streamed() && exchange.status == 200;
    let mut answer = if is_stream { api.assembled(answer) } else { json_of(answer) };
    if exchange.status != 200 {
        let error = &answer["error"];
        return json!([error["message"], error["type"], error["code"]]);
    }
    if api == Api::Chat && is_stream && request["stream_options"]["include_usage"] != true {
        // Some providers send it to clients that didn't ask.
        remove(&mut answer["whole"], "usage");
    }
    answer
}

/// Puts the request's words in place of what an answer of Responses repeats of it.
fn with_own_words(exchange: &Exchange, answer: &mut Value) {
    let request = json_of(&exchange.request);
    let whole = if answer.get("response").is_some() { &mut answer["response"] } else { answer };
    for name in REPEATED {
        if !request[name].is_null() && whole.get(name).is_some() {
            whole[name] = request[name].clone();
        }
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test]
async fn a_recorded_exchange_that_plugins_judge_and_leave_alone_says_what_it_said() {
    let plugin = FakePlugin::named("watcher").start().await;
    let replay = Replay::start(|setup| setup.plugin(&plugin).binding(plugin.name(), 10)).await;
    assert_all(all(), &replay, is_judged).await;
    let seen = plugin.seen();
    assert!(
        POINTS.iter().all(|point| seen.iter().any(|seen| seen.point == *point)),
        "asked at all four points"
    );
}

#[tokio::test]
async fn a_recorded_stream_that_plugins_judge_in_windows_says_what_it_said() {
    let plugin = FakePlugin::named("watcher").in_windows().start().await;
    let replay = Replay::start(|setup| setup.plugin(&plugin).binding(plugin.name(), 10)).await;
    assert_all(all().filter(|(_, exchange)| exchange.is_streamed()), &replay, is_judged).await;
    assert!(plugin.seen().iter().any(|seen| seen.call.window.is_some()), "asked in windows");
}

#[test]
fn every_exception_is_of_a_recorded_exchange_and_no_two_have_one_name() {
    let mut names: Vec<_> = all().map(|(_, exchange)| exchange.name).collect();
    let exceptions = exceptions();
    let unknown: Vec<_> = exceptions.keys().filter(|name| !names.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    let streamed = |api: Api| api.exchanges().iter().filter(|exchange| exchange.is_streamed()).count();
    for api in [Api::Chat, Api::Responses, Api::Messages] {
        assert!(api.exchanges().len() >= 60 && streamed(api) >= 20, "{api:?}");
    }
}
