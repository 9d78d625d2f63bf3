//! Tests of checks of upstreams: providers that answer, refuse, answer something else, or can't be reached.

use hookgate_proto::admin::v1 as wire;
use hookgate_tests::{
    gateway::{Gateway, Setup},
    provider::{FakeProvider, ProviderAct},
};
use serde_json::{Value, json};

use crate::admin::{
    grpc::support::{dial, violations},
    registry::support::{administrator, post},
};

pub(crate) const KEY: &str = "sk-of-the-operator";

/// Providers of all kinds, and a gateway's file that has them as upstreams.
pub(crate) struct CheckedProviders {
    fine: FakeProvider,
    claude: FakeProvider,
    _others: Vec<FakeProvider>,
    pub(crate) setup: Setup,
}

fn models(ids: &[&str]) -> ProviderAct {
    let data: Vec<_> = ids.iter().map(|id| json!({ "id": id, "object": "model" })).collect();
    ProviderAct::json(&json!({ "object": "list", "data": data }))
}

impl CheckedProviders {
    pub(crate) async fn start() -> Self {
        let fine = FakeProvider::always(models(&["gpt-5", "gpt-5-nano"])).await;
        let claude = FakeProvider::always(models(&["claude-x-4-20250514"])).await;
        // As some providers do.
        let refusal =
            json!({ "error": { "message": format!("Incorrect API key provided: {KEY}") } }).to_string();
        let wrong_key = FakeProvider::always(ProviderAct::text(401, &refusal)).await;
        let page = ProviderAct::Answer(200, vec![("content-type", "text/html".into())], "<html>".into());
        let html = FakeProvider::always(page).await;
        let missing = FakeProvider::always(ProviderAct::text(404, "{}")).await;
        let upstream =
            |name: &str, base_url: &str| json!({ "name": name, "base_url": base_url, "credential": KEY });
        let mut anthropic = upstream("claude", &claude.root_url());
        anthropic["format"] = json!("anthropic");
        let upstreams = json!([
            upstream("fine", &fine.base_url()),
            anthropic,
            upstream("wrong-key", &wrong_key.base_url()),
            upstream("html", &html.base_url()),
            upstream("missing", &missing.base_url()),
            upstream("closed", "http://127.0.0.1:1/v1"),
            { "name": "demo", "builtin": "demo-model" },
        ]);
        let rules = json!([
            { "match": "gpt-5", "upstream": "fine" },
            { "match": "fast", "upstream": "fine", "as": "gpt-5-nanno" },
            { "match": "gpt-*", "upstream": "fine" },
            { "match": "claude-x-4", "upstream": "claude" },
            { "match": "claude-x-5", "upstream": "claude" },
            { "match": "anything", "upstream": "html" },
            { "match": "demo", "upstream": "demo" },
        ]);
        let setup = Gateway::with().tenant("acme").admin();
        let setup = setup.set("/llm", json!({ "upstreams": upstreams, "models": rules }));
        CheckedProviders { fine, claude, _others: vec![wrong_key, html, missing], setup }
    }
}

/// The checks of an answer, without their times: name, result, detail, number of models, and unlisted models with their rules.
fn checks(body: &Value) -> Vec<Value> {
    let checks = body["upstreams"].as_array().unwrap_or_else(|| panic!("no checks: {body}"));
    let brief = |check: &Value| {
        assert!(check["duration_us"].is_u64(), "{check}");
        let unlisted: Vec<_> = check["unlisted"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| json!([one["rule"], one["model"]]))
            .collect();
        json!([check["name"], check["result"], check["detail"], check["models"], unlisted])
    };
    checks.iter().map(brief).collect()
}

#[tokio::test]
async fn a_check_says_what_each_provider_answers() {
    let providers = CheckedProviders::start().await;
    let gateway = providers.setup.start().await;
    let answer = post(&gateway.admin(&administrator()), "check-upstreams").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut found = checks(&answer.body);
    let closed = found.remove(5);
    assert_eq!((&closed[0], &closed[1]), (&json!("closed"), &json!("unreachable")));
    let why = closed[2].as_str().unwrap();
    assert!(why.starts_with("the provider is unavailable: ") && why.contains("Connection refused"), "{why}");
    let status =
        |status: u16, check: &str| format!("the provider answers with the status {status}: check {check}");
    let address = "`base_url` and `format`";
    let no_list = format!("the provider's answer is not a list of models: check {address}");
    assert_eq!(
        found,
        [
            json!(["fine", "ok", "", 2, [["fast@fine", "gpt-5-nanno"]]]),
            json!(["claude", "ok", "", 1, [["claude-x-5@claude", "claude-x-5"]]]),
            json!(["wrong-key", "credential_refused", status(401, "`credential`"), null, []]),
            json!(["html", "no_model_list", no_list, null, []]),
            json!(["missing", "no_model_list", status(404, address), null, []]),
            json!(["demo", "ok", "", null, []]),
        ]
    );
    let (openai, anthropic) = (providers.fine.request(), providers.claude.request());
    assert_eq!((&*openai.path, &*anthropic.path), ("/v1/models", "/v1/models"));
    assert_eq!(openai.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(anthropic.headers["x-api-key"], KEY);
    let log = gateway.log().to_string();
    assert!(!answer.text.contains("sk-") && !log.contains("sk-"), "{answer:?} {log}");
}

#[tokio::test]
async fn named_upstreams_are_checked_and_no_others() {
    let providers = CheckedProviders::start().await;
    let gateway = providers.setup.start().await;
    let operator = gateway.admin(&administrator());
    let named = post(&operator, "check-upstreams?upstreams=claude,demo&reason=new+key").await;
    let names: Vec<_> = checks(&named.body).iter().map(|check| check[0].clone()).collect();
    assert_eq!(names, ["claude", "demo"]);
    assert!(providers.fine.requests().is_empty(), "{:?}", providers.fine.requests());
    let line =
        gateway.log().wait_for(|line| line.field("operation") == Some(&json!("check_upstreams"))).await;
    assert_eq!(line.field("reason"), Some(&json!("new key")));

    for (query, status, detail) in [
        ("upstreams=demo,nobody", 404, "There is no active upstream `nobody` in this process"),
        ("upstreams=", 400, "`upstreams` in the query must be names of upstreams, separated by commas"),
        ("upstreams=demo,", 400, "`upstreams` in the query must be names of upstreams, separated by commas"),
    ] {
        let refused = post(&operator, &format!("check-upstreams?{query}")).await;
        assert_eq!((refused.status, &refused.body["detail"]), (status, &json!(detail)), "{query}");
    }
    let requests = providers.claude.requests().len();
    assert_eq!(requests, 1, "a request with an unknown name asks nobody");
}

#[tokio::test]
async fn a_check_over_grpc_is_one_over_http() {
    let providers = CheckedProviders::start().await;
    let gateway = providers.setup.start().await;
    let over_http = post(&gateway.admin(&administrator()), "check-upstreams").await;
    let mut client = dial(&gateway, &administrator()).await;
    let over_grpc =
        client.check_upstreams(wire::CheckUpstreamsRequest::default()).await.unwrap().into_inner();
    let same = |check: &wire::UpstreamCheck| {
        let result = check.result().as_str_name().strip_prefix("UPSTREAM_CHECK_RESULT_").unwrap();
        let unlisted: Vec<_> = check.unlisted.iter().map(|one| json!([one.rule, one.model])).collect();
        json!([check.name, result.to_lowercase(), check.detail, check.models, unlisted])
    };
    assert_eq!(over_grpc.upstreams.iter().map(same).collect::<Vec<_>>(), checks(&over_http.body));

    let of = |name: &str| wire::CheckUpstreamsRequest { names: vec![name.to_owned()], ..Default::default() };
    let unknown = client.check_upstreams(of("nobody")).await.unwrap_err();
    assert_eq!(unknown.message(), "There is no active upstream `nobody` in this process");
    let invalid = client.check_upstreams(of("")).await.unwrap_err();
    assert_eq!(violations(&invalid)[0]["message"], "`names` must be names of upstreams");
}

#[tokio::test]
async fn a_gateway_without_upstreams_has_nothing_to_check() {
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    let answer = post(&gateway.admin(&administrator()), "check-upstreams").await;
    assert_eq!((answer.status, &answer.body), (200, &json!({ "upstreams": [] })));
}
