//! Provokes every error code that this version can produce, over HTTP and gRPC.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hookgate::core::error::Code;
use hookgate_tests::{
    fake::{Act, FakePlugin, Gate, Seen},
    gateway::{Gateway, Setup},
    token::{AUDIENCE, ISSUER, SECRET, Token, token},
};
use serde_json::json;
use tokio::sync::Mutex;
use tonic::Status;

use crate::edge::support::{
    METHOD, POINT, assert_grpc_error, assert_http_error, assert_no_panic, frame, frame_of, good_request,
    grpc_request, payload, request, send, send_grpc,
};

/// Codes that can't be provoked over the wire, and why.
const NOT_HERE: [(Code, &str); 11] = [
    (Code::Conflict, "nothing is written on the data port"),
    (Code::ConfigInvalid, "nothing is written on the data port"),
    (Code::RecordUnavailable, "there are no records"),
    (Code::Cancelled, "nobody is left to receive it"),
    (Code::ModelUnknown, "only requests to models have it: llm::requests"),
    (Code::Unsupported, "only requests to models have it: llm::requests"),
    (Code::UpstreamUnavailable, "only requests to models have it: llm::answers"),
    (Code::UpstreamTimeout, "only requests to models have it: llm::answers"),
    (Code::UpstreamCredential, "only requests to models have it: llm::answers"),
    (Code::UpstreamBadAnswer, "only requests to models have it: llm::answers"),
    (Code::AnswerTooLarge, "only requests to models have it: llm::answers"),
];

/// The codes that were provoked, each over both protocols.
#[derive(Clone, Default)]
struct Provoked(Arc<Mutex<BTreeSet<&'static str>>>);

impl Provoked {
    async fn both(&self, code: Code, http: reqwest::RequestBuilder, grpc: reqwest::RequestBuilder) {
        let (http, grpc) = tokio::join!(send(http), send_grpc(grpc));
        assert_http_error(&http, code);
        assert_grpc_error(&grpc.status(), code);
        self.0.lock().await.insert(code.as_str());
    }

    /// Sends a good call with this token.
    async fn with_token(&self, gateway: &Gateway, code: Code, token: &str) {
        let http = good_request(&gateway.http(token));
        self.both(code, http, grpc_request(gateway.data_addr(), METHOD, token, frame(&request()))).await;
    }

    /// Sends a good call with this header.
    async fn with_header(&self, gateway: &Gateway, code: Code, name: &str, value: &str) {
        let token = token("acme");
        let http = good_request(&gateway.http(&token)).header(name, value);
        let grpc = grpc_request(gateway.data_addr(), METHOD, &token, frame(&request()));
        self.both(code, http, grpc.header(name, value)).await;
    }
}

/// The reaction depends on the tenant.
fn by_tenant(seen: &Seen) -> Act {
    match seen.call.context.as_ref().map(|context| context.tenant.as_str()) {
        Some("erring") => Act::status(tonic::Code::Internal, "no idea"),
        Some("away") => Act::status(tonic::Code::Unavailable, "back soon"),
        Some("hanging") => Act::hang(),
        Some("garbled") => Act::no_verdict(),
        _ => Act::pass(),
    }
}

async fn caller_and_plugin_errors(provoked: &Provoked) {
    let plugin = FakePlugin::named("actor").at_with(POINT, by_tenant).start().await;
    let mut setup = Gateway::with()
        .tenant_with("off", &json!({ "enabled": false }))
        .tenant_with("busy", &json!({ "limits": { "rate": "1/h" } }))
        .tenant_with("bare", &json!({ "require_steps": ["before_tool_call"], "disable": ["actor"] }))
        .plugin(&plugin)
        // One call hangs for this long; every other call must take less, however busy the machine is.
        .binding_with("actor", 10, &json!({ "timeout": "5s", "overridable": true }))
        .set("/limits/request", "64KiB");
    for tenant in ["acme", "erring", "away", "hanging", "garbled"] {
        setup = setup.tenant(tenant);
    }
    let gateway = setup.start().await;
    let good = token("acme");
    let of = |tenant| Token::for_tenant(tenant);

    for (code, token) in [
        (Code::TokenInvalid, of("acme").issuer("https://else.example.com").mint()),
        (Code::TokenExpired, of("acme").expiring_in(-120).mint()),
        (Code::ScopeMissing, of("acme").scopes("hookgate:read").mint()),
        (Code::TenantUnknown, token("nobody")),
        (Code::TenantDisabled, token("off")),
        (Code::StepsRequired, token("bare")),
        (Code::PluginError, token("erring")),
        (Code::PluginUnavailable, token("away")),
        (Code::PluginTimeout, token("hanging")),
        (Code::PluginBadReply, token("garbled")),
    ] {
        provoked.with_token(&gateway, code, &token).await;
        // a successful call in between keeps the breaker closed
        assert_eq!(gateway.http(&good).call(POINT, payload()).await.status, 200, "{code}");
    }
    assert_eq!(gateway.http(&token("busy")).call(POINT, payload()).await.status, 200);
    provoked.with_token(&gateway, Code::TenantLimited, &token("busy")).await;

    Box::pin(request_errors(provoked, &gateway)).await;
    assert_no_panic(&gateway);
}

/// Errors that depend on the request only.
async fn request_errors(provoked: &Provoked, gateway: &Gateway) {
    let good = token("acme");
    let data = gateway.data_addr();
    let grpc = |body: Vec<u8>| grpc_request(data, METHOD, &good, body);
    let http = gateway.http(&good);
    let post = |path| http.request(http::Method::POST, path).header("content-type", "application/json");
    let point = "/v1/before-tool-call";
    let huge = vec![b' '; (64 << 10) + 1];
    for (code, http, grpc) in [
        (Code::TokenMissing, without_token(good_request(&http)), without_token(grpc(frame(&request())))),
        (Code::PayloadInvalid, post(point).body("{"), grpc(frame_of(b"\xff\xff"))),
        (Code::PayloadTooLarge, post(point).body(huge.clone()), grpc(frame_of(&huge))),
        (
            Code::NotFound,
            post("/v1/elsewhere").body("{}"),
            grpc_request(data, &METHOD.replace("Tool", "Fool"), &good, ""),
        ),
        (Code::MethodNotAllowed, http.request(http::Method::GET, point), getting(data, &good)),
        (
            Code::ContentType,
            post(point).header("content-encoding", "gzip").body("{}"),
            grpc([&[1, 0, 0, 0, 1][..], b"x"].concat()),
        ),
    ] {
        provoked.both(code, http, grpc).await;
    }

    provoked.with_header(gateway, Code::Loop, "hookgate-depth", "4").await;
    let expecting = hookgate_proto::gateway::v1::BeforeToolCallRequest {
        expect_plan_digest: Some("0".repeat(64)),
        ..request()
    };
    let body = json!({ "payload": payload(), "expect_plan_digest": "0".repeat(64) });
    provoked.both(Code::PlanChanged, post(point).body(body.to_string()), grpc(frame(&expecting))).await;

    // less than the step's own timeout, so the budget is exhausted first
    let hanging = token("hanging");
    let http = good_request(&gateway.http(&hanging)).header("hookgate-timeout-ms", "100");
    let grpc = grpc_request(data, METHOD, &hanging, frame(&request())).header("grpc-timeout", "100m");
    provoked.both(Code::BudgetExhausted, http, grpc).await;
}

fn without_token(builder: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    let (client, request) = builder.build_split();
    let mut request = request.expect("it is a request");
    request.headers_mut().remove("authorization");
    reqwest::RequestBuilder::from_parts(client, request)
}

/// A call with the wrong HTTP method.
fn getting(address: std::net::SocketAddr, token: &str) -> reqwest::RequestBuilder {
    let request = crate::edge::support::http2_client().get(format!("http://{address}{METHOD}"));
    request.header("content-type", "application/grpc").bearer_auth(token)
}

async fn overload(provoked: &Provoked) {
    let gate = Gate::closed();
    let plugin = FakePlugin::named("slow").at(POINT, Act::pass().behind(&gate)).start().await;
    // The first call must outlast the second one, however busy the machine is.
    let setup = Gateway::with().tenant("acme").plugin(&plugin);
    let setup = setup.binding_with("slow", 10, &json!({ "timeout": "60s" })).set("/limits/budget", "60s");
    let gateway = setup.set("/limits/in_flight", 1).start().await;
    let agent = gateway.http(&token("acme"));
    let first = tokio::spawn(async move { agent.call(POINT, payload()).await });
    plugin.wait_until(|counts| counts.calls == 1).await;
    provoked.with_token(&gateway, Code::Overloaded, &token("acme")).await;
    gate.open();
    assert_eq!(first.await.unwrap().status, 200);
}

async fn draining(provoked: &Provoked) {
    let plugin = FakePlugin::named("stuck").at(POINT, Act::hang()).start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&plugin)
        .binding_with("stuck", 10, &json!({ "timeout": "60s" }))
        .set("/limits/budget", "60s")
        .set("/drain/finish", "200ms")
        .start()
        .await;
    let token = token("acme");
    let (under_way, http) = (provoked.clone(), good_request(&gateway.http(&token)));
    let grpc = grpc_request(gateway.data_addr(), METHOD, &token, frame(&request()));
    let calls = tokio::spawn(async move { under_way.both(Code::Draining, http, grpc).await });
    plugin.wait_until(|counts| counts.calls == 2).await;
    let exit = gateway.stop().await;
    calls.await.expect("both calls are answered");
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    plugin.wait_until(|counts| counts.cancelled == 2).await;
}

/// The issuer's keys can't be fetched, which is not the token's fault.
async fn own_fault(provoked: &Provoked) {
    let local = json!({
        "issuer": ISSUER, "audience": AUDIENCE, "tenants": "*", "keys": [{ "alg": "HS256", "secret": SECRET }],
    });
    let dead = json!({
        "issuer": "https://dead.example.com", "audience": AUDIENCE, "tenants": "*",
        "jwks_url": "http://127.0.0.1:1/jwks.json",
    });
    let setup: Setup = Gateway::with().tenant("acme").set("/auth/issuers", json!([local, dead]));
    let gateway = setup.start_unready().await;
    gateway.log().wait_for(|line| line.message() == Some("started")).await;
    let token = Token::for_tenant("acme").issuer("https://dead.example.com").mint();
    provoked.with_token(&gateway, Code::Internal, &token).await;
    assert_eq!(gateway.http(&self::token("acme")).call(POINT, payload()).await.status, 200);
    let ready = gateway.ops().get("/readyz").await.unwrap();
    assert_eq!((ready.status, ready.text.as_str()), (503, "not ready: an issuer has no keys\n"));
}

/// The store is away, so the tenants are unknown.
async fn store_away(provoked: &Provoked) {
    let folder = tempfile::tempdir().unwrap();
    let setup = Gateway::with().tenant("acme").store("postgres://nobody@127.0.0.1:1/nothing", folder.path());
    let gateway = setup.start_unready().await;
    provoked.with_token(&gateway, Code::StoreUnavailable, &token("acme")).await;
}

#[tokio::test]
async fn every_error_code_is_the_same_error_over_http_and_grpc() {
    let provoked = Provoked::default();
    let groups = async {
        tokio::join!(overload(&provoked), draining(&provoked), own_fault(&provoked), store_away(&provoked))
    };
    tokio::time::timeout(Duration::from_secs(120), async {
        Box::pin(caller_and_plugin_errors(&provoked)).await;
        Box::pin(groups).await
    })
    .await
    .expect("no answer takes long");
    let provoked = provoked.0.lock().await.clone();
    let expected: BTreeSet<_> = Code::ALL
        .iter()
        .filter(|code| NOT_HERE.iter().all(|(not_here, _)| not_here != *code))
        .map(|code| code.as_str())
        .collect();
    assert_eq!(provoked, expected, "a code is provoked, or NOT_HERE says why it can't be");
}

#[tokio::test]
async fn an_error_over_grpc_names_the_members_that_are_wrong() {
    use tonic_types::StatusExt as _;
    let gateway = Gateway::with().tenant("acme").start().await;
    let mut wrong = request();
    wrong.payload.as_mut().unwrap().tool_name = String::new();
    wrong.payload.as_mut().unwrap().args = "{\"a\":1,\"a\":2}".into();
    let status: Status = gateway.grpc(&token("acme")).await.client.before_tool_call(wrong).await.unwrap_err();
    assert_grpc_error(&status, Code::PayloadInvalid);
    let request = status.get_details_bad_request().expect("a wrong request is a BadRequest");
    let fields: Vec<_> = request.field_violations.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, ["/payload/tool_name", "/payload/args/a"]);
}

#[tokio::test]
async fn violations_without_number_do_not_flood_a_grpc_clients_headers() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let labels = (0..32).map(|n| (format!("{n}{}", "é".repeat(300)), "v".into())).collect();
    let context = hookgate_proto::gateway::v1::RequestContext { labels, ..Default::default() };
    let wrong = hookgate_proto::gateway::v1::BeforeToolCallRequest { context: Some(context), ..request() };
    let answer = send_grpc(grpc_request(gateway.data_addr(), METHOD, &token("acme"), frame(&wrong))).await;
    assert_grpc_error(&answer.status(), Code::PayloadInvalid);
    let bytes: usize =
        answer.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
    assert!(bytes < 8 << 10, "{bytes} bytes of headers are more than gRPC clients take");
}
