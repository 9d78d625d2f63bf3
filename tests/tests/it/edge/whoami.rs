//! Tests `GET /v1/whoami`: it describes a valid token, even one without any scope for calls. An invalid
//! token gets the same error as for calls.

use hookgate::core::error::Code;
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::FakePlugin,
    gateway::Gateway,
    metrics::Scrape,
    token::{ADMIN_AUDIENCE, ISSUER, Token, token},
};
use serde_json::{Value, json};

use crate::edge::support::{POINT, assert_http_error, good_request, payload, send};

const PATH: &str = "/v1/whoami";

async fn ask(agent: &HttpAgent) -> HttpAnswer {
    let answer = agent.get(PATH).await.expect("the gateway answers");
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    assert!(answer.header("x-request-id").is_some_and(|id| id.len() == 36), "{answer:?}");
    assert!(answer.header("server-timing").is_some_and(|timing| timing.starts_with("total;")), "{answer:?}");
    assert!(!answer.headers.contains_key("hookgate-decision"), "{answer:?}");
    answer
}

/// `guard` enforces for all and `watch` observes acme's tools. Two tenants have different levels of detail.
async fn gateway() -> (FakePlugin, FakePlugin, Gateway) {
    let (guard, watch) = (FakePlugin::named("guard").start().await, FakePlugin::named("watch").start().await);
    let own = json!({ "tenant": "acme", "mode": "observe", "points": ["before_tool_call"] });
    let setup = Gateway::with()
        .tenant("acme")
        .tenant_with("quiet", &json!({ "answer": { "detail": "minimal" } }))
        .tenant_with("gone", &json!({ "enabled": false }))
        .plugin(&guard)
        .plugin(&watch)
        .binding_with("guard", 10, &json!({ "name": "floor" }))
        .binding_with("watch", 20, &own);
    let gateway =
        setup.set("/auth/issuers/0/scopes", json!(["hookgate:invoke", "hookgate:read"])).start().await;
    (guard, watch, gateway)
}

#[tokio::test]
async fn a_token_is_shown_with_the_chains_of_its_tenant() {
    let (guard, _watch, gateway) = gateway().await;
    let exp = 4_102_444_799_i64; // the last second of 2099
    let scopes = "hookgate:read openid hookgate:invoke hookgate:admin"; // its issuer grants the first two of ours
    let minted = Token::for_tenant("acme").scopes(scopes).claim("exp", exp).mint();
    let answer = ask(&gateway.http(&minted)).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
    let call = gateway.http(&minted).call(POINT, payload()).await;
    let floor = json!({ "binding": "floor", "plugin": "guard", "mode": "enforce" });
    let watch = json!({ "binding": "watch@acme", "plugin": "watch", "mode": "observe" });
    let mut said = answer.body;
    let tools = said["points"]["before_tool_call"].take();
    assert_eq!(
        tools,
        json!({ "plan_digest": call.body["plan_digest"], "step_count": 2, "steps": [floor, watch] })
    );
    for point in ["before_llm_request", "after_tool_result", "before_response"] {
        let mut chain = said["points"][point].take();
        assert!(chain["plan_digest"].take().as_str().is_some_and(|digest| digest.len() == 64));
        assert_eq!(chain, json!({ "plan_digest": null, "step_count": 1, "steps": [floor] }), "{point}");
    }
    assert_eq!(said["points"].as_object_mut().map(std::mem::take).map(|points| points.len()), Some(4));
    let expected = json!({
        "tenant": "acme",
        "operator": "operator-of-acme",
        "scopes": ["hookgate:invoke", "hookgate:read"],
        "expires": "2099-12-31T23:59:59Z",
        "issuer": ISSUER,
        "revision": 1,
        "points": {},
    });
    assert_eq!(said, expected);
    assert_eq!(guard.counts().calls, 1, "only the call reached the plugin");
}

#[tokio::test]
async fn a_token_that_may_call_nothing_still_learns_what_it_is() {
    let (guard, _watch, gateway) = gateway().await;
    for (scopes, shown) in [("", json!([])), ("hookgate:read", json!(["hookgate:read"])), ("else", json!([]))]
    {
        let agent = gateway.http(&Token::for_tenant("acme").scopes(scopes).mint());
        let answer = ask(&agent).await;
        assert_eq!((answer.status, &answer.body["scopes"]), (200, &shown), "{answer:?}");
        assert_http_error(&send(good_request(&agent)).await, Code::ScopeMissing);
    }
    assert_eq!(guard.counts().calls, 0);
}

#[tokio::test]
async fn what_the_answers_leave_out_is_left_out_here_too() {
    let (_guard, _watch, gateway) = gateway().await;
    let answer = ask(&gateway.http(&token("quiet"))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    for name in ["guard", "floor", "enforce"] {
        assert!(!answer.text.contains(name), "{name}: {}", answer.text);
    }
    let tools = &answer.body["points"]["before_tool_call"];
    assert_eq!((&tools["step_count"], tools.get("steps")), (&json!(1), None), "{tools}");
}

#[tokio::test]
async fn a_refused_token_is_refused_as_for_calls_and_counted() {
    let (_guard, _watch, gateway) = gateway().await;
    let good = Token::for_tenant("acme");
    let minted = good.mint();
    let cases = [
        (None, Code::TokenMissing, Some("missing")),
        (Some(format!("{}AAAA", &minted[..minted.len() - 4])), Code::TokenInvalid, Some("signature")),
        (Some(good.clone().audience(ADMIN_AUDIENCE).mint()), Code::TokenInvalid, Some("audience")),
        (Some(good.clone().expiring_in(-120).mint()), Code::TokenExpired, Some("expired")),
        (Some(good.clone().without("tenant_id").mint()), Code::TokenInvalid, Some("claims")),
        (Some(token("nobody")), Code::TenantUnknown, None),
        (Some(token("gone")), Code::TenantDisabled, None),
    ];
    for (token, code, reason) in cases {
        let agent = HttpAgent::new(gateway.data_addr());
        let agent = token.iter().fold(agent, |agent, token| agent.with_token(token));
        let (mut answer, mut call) = (ask(&agent).await, send(good_request(&agent)).await);
        assert_http_error(&answer, code);
        let id = answer.body["request_id"].take();
        call.body["request_id"].take();
        assert_eq!(answer.body, call.body, "one mechanism");
        assert_eq!(answer.header("www-authenticate"), call.header("www-authenticate"));
        if let Some(reason) = reason {
            let line = gateway.log().wait_for(|line| line.field("request_id") == Some(&id)).await;
            let said = ["event", "port", "code", "reason"].map(|field| line.field(field).cloned());
            let text = |text: &str| Some(Value::from(text));
            assert_eq!(said, [text("auth.refused"), None, text(code.as_str()), text(reason)], "{line:?}");
        }
    }
    let scrape = Scrape::of(&gateway).await;
    // Five invalid tokens, each for whoami and for a call.
    assert_eq!(scrape.sum("hookgate_auth_failures_total", &[]), 10.0);
    assert_eq!(
        scrape.sum("hookgate_invocation_duration_seconds_count", &[]),
        7.0,
        "whoami isn't an invocation"
    );
    let asked = scrape.sum("http_server_request_duration_seconds_count", &[("http_route", PATH)]);
    assert_eq!(asked, 7.0);
}

#[tokio::test]
async fn the_path_takes_get_and_is_listed() {
    let (_guard, _watch, gateway) = gateway().await;
    let agent = gateway.http(&token("acme"));
    for method in [http::Method::POST, http::Method::PUT, http::Method::DELETE, http::Method::OPTIONS] {
        let answer = send(agent.request(method, PATH)).await;
        assert_http_error(&answer, Code::MethodNotAllowed);
        assert_eq!(answer.header("allow"), Some("GET"), "{answer:?}");
    }
    let answer = agent.get("/v1/who-am-i").await.expect("the gateway answers");
    assert_http_error(&answer, Code::NotFound);
    assert!(answer.body["detail"].as_str().is_some_and(|detail| detail.contains(PATH)), "{answer:?}");
}
