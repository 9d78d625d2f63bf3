//! Tests access to the admin port: when it is open, the audience and the scopes that tokens need, and that
//! a token with a tenant sees only that tenant's plan.

use std::{net::TcpListener, time::Duration};

use hookgate::core::error::Code;
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::{Act, FakePlugin, Gate},
    gateway::Gateway,
    metrics::Scrape,
    openapi::Port,
    token::{ADMIN_AUDIENCE, AUDIENCE, Token, token},
};
use serde_json::json;

use crate::edge::support::{
    METHOD, POINT, assert_grpc_error, assert_http_error, frame, grpc_request, payload, request, send,
    send_grpc,
};

const PATHS: [&str; 5] = [
    "/admin/v1/status",
    "/admin/v1/plugins",
    "/admin/v1/plugins/guard",
    "/admin/v1/tenants/acme/plan",
    "/admin/v1/nothing",
];

fn operator() -> String {
    Token::for_operators().mint()
}

async fn get(agent: &HttpAgent, path: &str) -> HttpAnswer {
    let answer = agent.get(path).await.expect("the admin port answers");
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    assert!(answer.header("x-request-id").is_some_and(|id| id.len() == 36), "{answer:?}");
    answer
}

#[tokio::test]
async fn every_path_wants_a_good_token_with_a_scope_and_every_refusal_is_told_and_counted() {
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    let good = Token::for_operators();
    let minted = good.mint();
    let forged = format!("{}AAAA", &minted[..minted.len() - 4]);
    let cases = [
        (None, Code::TokenMissing, "missing"),
        (Some(forged), Code::TokenInvalid, "signature"),
        (Some("nonsense".into()), Code::TokenInvalid, "malformed"),
        (Some(good.clone().issuer("https://else").mint()), Code::TokenInvalid, "issuer"),
        (Some(good.clone().audience("else").mint()), Code::TokenInvalid, "audience"),
        (Some(good.clone().expiring_in(-120).mint()), Code::TokenExpired, "expired"),
        (Some(good.clone().valid_in(120).mint()), Code::TokenInvalid, "not_yet_valid"),
        (Some(good.clone().without("sub").mint()), Code::TokenInvalid, "claims"),
        (Some(good.clone().without("scope").mint()), Code::ScopeMissing, "scope"),
        (Some(good.clone().scopes("hookgate:invoke hookgate:plugin").mint()), Code::ScopeMissing, "scope"),
    ];
    let admin = gateway.admin_addr().expect("the admin port is open");
    let count = cases.len();
    for (token, code, reason) in cases {
        let agent =
            token.iter().fold(HttpAgent::new(admin).of(Port::Admin), |agent, token| agent.with_token(token));
        for path in PATHS {
            let answer = get(&agent, path).await;
            assert_http_error(&answer, code);
            let id = answer.header("x-request-id").expect("checked above").to_owned();
            let line = gateway.log().wait_for(|line| line.field("request_id") == Some(&json!(id))).await;
            let said = ["event", "port", "code", "reason"].map(|field| line.field(field).cloned());
            let expected = ["auth.refused", "admin", code.as_str(), reason].map(|text| Some(json!(text)));
            assert_eq!(said, expected, "{line:?}");
        }
    }
    let counted = Scrape::of(&gateway).await.sum("hookgate_auth_failures_total", &[]);
    assert_eq!(counted, (count * PATHS.len()) as f64);
    for scopes in ["hookgate:read", "hookgate:admin", "other hookgate:admin"] {
        let agent = gateway.admin(&good.clone().scopes(scopes).mint());
        assert_eq!(get(&agent, PATHS[0]).await.status, 200, "{scopes}");
    }
}

#[tokio::test]
async fn a_token_is_good_at_the_port_of_its_audience_alone() {
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    let both = Token::for_tenant("acme").scopes("hookgate:invoke hookgate:read hookgate:admin");
    let (data, admin) = (both.clone().audience(AUDIENCE).mint(), both.audience(ADMIN_AUDIENCE).mint());
    // Twice, because the ports must not share their caches.
    for _ in 0..2 {
        assert_eq!(gateway.http(&data).call(POINT, payload()).await.status, 200);
        assert_eq!(get(&gateway.admin(&admin), PATHS[3]).await.status, 200);
        assert_http_error(&gateway.http(&admin).call(POINT, payload()).await, Code::TokenInvalid);
        let call = grpc_request(gateway.data_addr(), METHOD, &admin, frame(&request()));
        assert_grpc_error(&send_grpc(call).await.status(), Code::TokenInvalid);
        assert_http_error(&get(&gateway.admin(&data), PATHS[3]).await, Code::TokenInvalid);
    }
}

#[tokio::test]
async fn an_issuer_grants_no_more_scopes_and_tenants_than_it_may() {
    let setup = Gateway::with().tenant("acme").tenant("globex").admin();
    let narrow = setup.clone().set("/auth/issuers/0/scopes", json!(["hookgate:invoke", "hookgate:admin"]));
    let gateway = narrow.start().await;
    assert_http_error(&get(&gateway.admin(&operator()), PATHS[0]).await, Code::ScopeMissing);

    let gateway = setup.set("/auth/issuers/0/tenants", json!(["acme"])).start().await;
    // An operator for all tenants needs an issuer that may speak for all.
    assert_http_error(&get(&gateway.admin(&operator()), PATHS[0]).await, Code::TokenInvalid);
    let of = |tenant| Token::for_operators().claim("tenant_id", tenant).mint();
    assert_http_error(&get(&gateway.admin(&of("globex")), PATHS[3]).await, Code::TenantUnknown);
    assert_eq!(get(&gateway.admin(&of("acme")), PATHS[3]).await.status, 200);
}

#[tokio::test]
async fn a_token_with_a_tenant_sees_that_tenants_plan_and_nothing_else() {
    let plugin = FakePlugin::named("guard").start().await;
    let setup = Gateway::with().tenant("acme").tenant("globex").plugin(&plugin).binding("guard", 10);
    let gateway = setup.admin().start().await;
    for scope in ["hookgate:read", "hookgate:admin"] {
        let agent = gateway.admin(&Token::for_operators().claim("tenant_id", "acme").scopes(scope).mint());
        let own = get(&agent, "/admin/v1/tenants/acme/plan").await;
        assert_eq!((own.status, &own.body["tenant"]), (200, &json!("acme")));
        assert_eq!(get(&agent, "/admin/v1/tenants/%61cme/plan").await.text, own.text);

        let mut without_ids = Vec::new();
        for hidden in [
            "/admin/v1/tenants/globex/plan", // exists
            "/admin/v1/tenants/nobody/plan", // doesn't exist
            "/admin/v1/tenants/ACME/plan",
            "/admin/v1/tenants/acme%00/plan",
            "/admin/v1/tenants",
            "/admin/v1/tenants/globex",
            "/admin/v1/revisions",
            "/admin/v1/plugins",
            "/admin/v1/plugins/guard",
            "/admin/v1/plugins/nobody",
            "/admin/v1/status",
            "/admin/v1/nothing",
        ] {
            let mut answer = get(&agent, hidden).await;
            assert_http_error(&answer, Code::NotFound);
            answer.body["request_id"].take();
            without_ids.push(answer.body);
        }
        assert!(without_ids.iter().all(|body| *body == without_ids[0]), "they can't be told apart");
    }
}

#[tokio::test]
async fn an_unknown_path_and_another_method_are_told_once_the_token_is_good() {
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    let agent = gateway.admin(&operator());
    for unknown in [
        "/",
        "/livez",
        "/v1/before-tool-call",
        "/admin/v1",
        "/admin/v1/",
        "/admin/v2/status",
        "/admin/v1/plugins/",
        "/admin/v1/plugins/nobody",
        "/admin/v1/tenants/nobody/plan",
        "/admin/v1/tenants//plan",
        "/admin/v1/tenants/%2A/plan",
        "/admin/v1/tenants/%FF/plan",
        "/admin/v1/status/x",
    ] {
        assert_http_error(&get(&agent, unknown).await, Code::NotFound);
    }
    for method in [http::Method::POST, http::Method::PUT, http::Method::DELETE, http::Method::PATCH] {
        let answer = send(agent.request(method.clone(), PATHS[0])).await;
        assert_http_error(&answer, Code::MethodNotAllowed);
        assert_eq!(answer.header("allow"), Some("GET"), "{answer:?}");
        let unseen = HttpAgent::new(gateway.admin_addr().unwrap()).of(Port::Admin);
        assert_http_error(&send(unseen.request(method, PATHS[0])).await, Code::TokenMissing);
    }
    assert_http_error(&get(&agent, "/admin/v1/tenants/acme/plan?point=before").await, Code::PayloadInvalid);
    assert_http_error(
        &get(&agent, "/admin/v1/tenants/acme/plan?pont=before_response").await,
        Code::PayloadInvalid,
    );
    // The other ports don't have these paths.
    assert_eq!(gateway.http(&token("acme")).get(PATHS[0]).await.unwrap().status, 404);
    assert_eq!(gateway.ops().get(PATHS[0]).await.unwrap().status, 404);
}

#[tokio::test]
async fn the_port_stays_closed_without_an_issuer_for_it() {
    // The test holds the port: a gateway that listened on it would not start.
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let gateway = Gateway::with().tenant("acme").set("/server/admin_addr", address).start().await;
    assert_eq!(gateway.admin_addr(), None);
    let said = |text: &str| gateway.log().lines().iter().any(|line| line.message() == Some(text));
    assert!(
        said("the admin port stays closed, because no issuer has an `admin_audience`"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn a_taken_port_ends_the_start_with_its_key() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let exit =
        Gateway::with().tenant("acme").admin().set("/server/admin_addr", address).run_to_the_end().await;
    assert_eq!(exit.code, Some(1), "{}", exit.log);
    assert!(exit.log.to_string().contains("`server.admin_addr`"), "{}", exit.log);
}

#[tokio::test]
async fn status_passes_no_chain_and_needs_no_place_among_the_calls() {
    let (gate, plugin) = (Gate::closed(), FakePlugin::named("stuck").start().await);
    for point in hookgate_tests::fake::POINTS {
        plugin.set(point, Act::pass().behind(&gate));
    }
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&plugin)
        .binding("stuck", 10)
        .set("/limits/in_flight", 1)
        .set("/limits/budget", "60s")
        .set("/plugins/0/limits", json!({ "timeout": "60s", "in_flight": 1 }))
        .admin()
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    let call = tokio::spawn(async move { agent.call(POINT, payload()).await.status });
    plugin.wait_until(|counts| counts.calls == 1).await;
    assert_http_error(&gateway.http(&token("acme")).call(POINT, payload()).await, Code::Overloaded);

    let operator = gateway.admin(&operator());
    for path in ["/admin/v1/status", "/admin/v1/plugins", "/admin/v1/tenants/acme/plan"] {
        let asked = tokio::time::timeout(Duration::from_secs(10), get(&operator, path)).await;
        assert_eq!(asked.expect("it does not wait for the call").status, 200, "{path}");
    }
    let stuck = get(&operator, "/admin/v1/plugins/stuck").await.body;
    assert_eq!((&stuck["in_flight"], &stuck["capacity"]), (&json!(1), &json!(1)));
    assert_eq!(plugin.counts().calls, 1);
    assert_eq!(Scrape::of(&gateway).await.sum("hookgate_in_flight", &[]), 1.0);
    gate.open();
    assert_eq!(call.await.expect("it goes on"), 200);
}
