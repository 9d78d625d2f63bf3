//! Tests `answer.detail: minimal`: an answer reveals nothing about plugins, bindings, steps or the reason
//! of a failure.

use hookgate::core::error::Code;
use hookgate_proto::types::v1::NoticeKind;
use hookgate_tests::{
    fake::{Act, FakePlugin, Seen, notice},
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};

use crate::edge::support::{POINT, assert_grpc_error, assert_http_error, payload, request};

/// Names and words for operators only.
const SECRETS: [&str; 4] = ["zzplugin", "zzbinding", "zzdetail", "skipped"];

/// Two plugins: one that fails and is skipped, and one whose session id says what it does.
async fn setup() -> (FakePlugin, FakePlugin, Setup) {
    let failing = Act::status(tonic::Code::Internal, "zzdetail");
    let failing = FakePlugin::named("zzplugin-failing").at(POINT, failing).start().await;
    let script = |seen: &Seen| {
        let said = notice(NoticeKind::Warn, "TOLD", "what the plugin says", &Value::Null);
        match seen.call.context.as_ref().and_then(|context| context.session_id.as_deref()) {
            Some("block") => Act::cancel("TOOL_NOT_ALLOWED", "no").with_notice(said),
            Some("fail") => Act::status(tonic::Code::PermissionDenied, "zzdetail"),
            Some("reply") => Act::no_verdict(),
            _ => Act::pass().with_notice(said),
        }
    };
    let deciding = FakePlugin::named("zzplugin-deciding").at_with(POINT, script).start().await;
    let setup = Gateway::with()
        .tenant("acme")
        .tenant_with("quiet", &json!({ "answer": { "detail": "minimal" } }))
        .tenant_with("loud", &json!({ "answer": { "detail": "full" } }))
        .plugin_without_breaker(&failing)
        .plugin(&deciding)
        .binding_with(
            "zzplugin-failing",
            10,
            &json!({ "name": "zzbinding-1", "on_error": "skip", "mode": "enforce" }),
        )
        .binding_with("zzplugin-deciding", 20, &json!({ "name": "zzbinding-2" }));
    (failing, deciding, setup)
}

/// The complete answers of both protocols to a call of this session.
async fn said(gateway: &Gateway, tenant: &str, session: &str) -> (hookgate_tests::agent::HttpAnswer, String) {
    let token = token(tenant);
    let body = json!({ "payload": payload(), "context": { "session_id": session } });
    let answer = gateway.http(&token).post(POINT, &body).await;
    let context = hookgate_proto::gateway::v1::RequestContext {
        session_id: Some(session.into()),
        ..Default::default()
    };
    let message = hookgate_proto::gateway::v1::BeforeToolCallRequest { context: Some(context), ..request() };
    let grpc = match gateway.grpc(&token).await.client.before_tool_call(message).await {
        Ok(reply) => format!("{reply:?}"),
        Err(status) => {
            let code = Code::ALL.iter().find(|code| code.as_str() == answer.body["code"]).unwrap();
            assert_grpc_error(&status, *code);
            format!("{status:?} {}", String::from_utf8_lossy(status.details()))
        }
    };
    let everything = format!("{:?} {} {grpc}", answer.headers, answer.text);
    (answer, everything)
}

async fn assert_quiet(gateway: &Gateway, tenant: &str) {
    for session in ["pass", "block", "fail", "reply"] {
        let (answer, everything) = said(gateway, tenant, session).await;
        for secret in SECRETS {
            assert!(!everything.contains(secret), "{tenant} {session}: {secret} is in {everything}");
        }
        assert!(answer.body.get("steps").is_none_or(|steps| steps == &json!([])), "{answer:?}");
        assert_eq!(answer.header("server-timing").unwrap().matches(';').count(), 2, "{answer:?}");
    }
    let (pass, _) = said(gateway, tenant, "pass").await;
    let told = json!([{ "kind": "warn", "code": "TOLD", "message": "what the plugin says" }]);
    assert_eq!((pass.status, &pass.body["notices"]), (200, &told), "what plugins say to users stays");
    let (block, _) = said(gateway, tenant, "block").await;
    assert_eq!(block.body["block"], json!({ "code": "TOOL_NOT_ALLOWED", "message": "no", "scope": "step" }));
    let (failed, _) = said(gateway, tenant, "fail").await;
    assert_http_error(&failed, Code::PluginError);
    assert_eq!(failed.body["detail"], json!(Code::PluginError.meaning()));
}

async fn assert_loud(gateway: &Gateway, tenant: &str) {
    let (pass, everything) = said(gateway, tenant, "pass").await;
    for secret in SECRETS {
        assert!(everything.contains(secret), "{tenant}: {secret} is not in {everything}");
    }
    assert_eq!(pass.body["steps"].as_array().map(Vec::len), Some(2), "{pass:?}");
    assert_eq!(pass.body["notices"][0]["code"], json!("PLUGIN_ERROR"), "{pass:?}");
    let (failed, _) = said(gateway, tenant, "fail").await;
    assert_http_error(&failed, Code::PluginError);
    let detail = failed.body["detail"].as_str().unwrap();
    assert!(detail.contains("zzplugin-deciding") && detail.contains("zzdetail"), "{detail}");
}

#[tokio::test]
async fn a_tenant_may_be_told_less_than_the_others() {
    let (_failing, _deciding, setup) = setup().await;
    let gateway = setup.start().await;
    assert_quiet(&gateway, "quiet").await;
    assert_loud(&gateway, "acme").await;
    assert_loud(&gateway, "loud").await;
}

#[tokio::test]
async fn all_may_be_told_less_and_one_tenant_more() {
    let (_failing, _deciding, setup) = setup().await;
    let gateway = setup.set("/answer", json!({ "detail": "minimal" })).start().await;
    assert_quiet(&gateway, "acme").await;
    assert_quiet(&gateway, "quiet").await;
    assert_loud(&gateway, "loud").await;
}

#[tokio::test]
async fn an_outage_tells_as_little() {
    let (_failing, mut deciding, setup) = setup().await;
    let gateway = setup.start().await;
    deciding.stop().await;
    let (answer, everything) = said(&gateway, "quiet", "pass").await;
    assert_http_error(&answer, Code::PluginUnavailable);
    for secret in SECRETS {
        assert!(!everything.contains(secret), "{secret} is in {everything}");
    }
    let endpoint = deciding.endpoint();
    let address = endpoint.trim_start_matches("http://");
    assert!(!everything.contains(address), "{everything}");
}
