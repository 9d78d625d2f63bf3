//! Tests the page at `/` of the ops port: what it shows, what it hides, and what a browser may do with it.

use base64::{Engine, engine::general_purpose::STANDARD};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::FakePlugin,
    gateway::Gateway,
    token::Token,
};
use http::Method;
use serde_json::json;

async fn page(gateway: &Gateway) -> HttpAnswer {
    let answer = gateway.ops().get("/").await.expect("the ops port answers");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// The text between two texts.
fn between<'a>(text: &'a str, open: &str, close: &str) -> &'a str {
    let rest = text.split_once(open).unwrap_or_else(|| panic!("no {open}: {text}")).1;
    rest.split_once(close).unwrap_or_else(|| panic!("no {close}: {text}")).0
}

#[tokio::test]
async fn the_page_says_what_the_status_says_and_no_name() {
    let ready = FakePlugin::named("zzready").start().await;
    let mut away = FakePlugin::named("zzaway").start().await;
    away.stop().await;
    let gateway = Gateway::with()
        .tenant("zztenant")
        .tenant_with("zzoff", &json!({ "enabled": false }))
        .plugin(&ready)
        .plugin_with(&away, &json!({ "required": false }))
        .binding("zzready", 10)
        .binding("zzaway", 20)
        .admin()
        .start()
        .await;
    let unhealthy =
        |line: &hookgate_tests::gateway::Line| line.field("event") == Some(&json!("plugin.health_failed"));
    gateway.log().wait_for(unhealthy).await;
    let status = gateway.admin(&Token::for_operators().mint()).get("/admin/v1/status").await.unwrap().body;
    let page = page(&gateway).await.text;
    let row = |name: &str| between(between(&page, &format!(">{name}</th>"), "</tr>"), "<td>", "</td>");
    assert_eq!(between(&page, "<title>", "</title>"), "Hookgate: ready");
    assert_eq!(json!(row("Version")), status["version"]);
    assert_eq!(row("Instance"), format!("<code>{}</code>", status["instance"].as_str().unwrap()));
    assert_eq!(row("Revision of the table"), status["revision"].to_string());
    assert_eq!(row("Tenants"), "2 listed, 1 of them disabled; unlisted tenants are refused");
    for (state, number) in status["plugins"].as_object().unwrap() {
        assert_eq!(row(state), number.to_string(), "{state}");
    }
    assert_eq!((row("ready"), row("unhealthy")), ("1", "1"));
    for secret in ["zz", &ready.endpoint(), &away.endpoint(), "127.0.0.1"] {
        assert!(!page.contains(secret), "{secret} is the operators': {page}");
    }
}

#[tokio::test]
async fn the_page_says_what_a_gateway_waits_for() {
    let mut plugin = FakePlugin::named("needed").start().await;
    plugin.stop().await;
    let setup = Gateway::with().tenant("acme").plugin(&plugin).binding("needed", 10);
    let gateway = setup.set("/drain/grace", "60s").start_unready().await;
    let said = async || between(&page(&gateway).await.text, "<title>", "</title>").to_owned();
    assert_eq!(said().await, "Hookgate: not ready: the start is not finished");
    plugin.start().await;
    gateway.wait_until_ready().await;
    assert_eq!(said().await, "Hookgate: ready");
    gateway.terminate();
    gateway.log().wait_for(|line| line.message() == Some("draining")).await;
    assert_eq!(said().await, "Hookgate: not ready: draining");
    assert_eq!(gateway.stop().await.code, Some(0)); // the second SIGTERM skips the wait
}

#[tokio::test]
async fn a_browser_may_style_the_page_and_nothing_else() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let answer = page(&gateway).await;
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    let style = between(&answer.text, "<style>", "</style>");
    let hash = STANDARD.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, style.as_bytes()));
    let policy = answer.header("content-security-policy").expect("there is a policy");
    let expected = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    assert_eq!(policy, expected);
    for outside in ["<script", "<link", "<img", "src=", "style=", "http:", "https:", "url(", "@import"] {
        assert!(!answer.text.contains(outside), "{outside}: {}", answer.text);
    }
    for link in answer.text.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        let linked = gateway.ops().get(&format!("/{link}")).await.expect("the ops port answers");
        assert_eq!(linked.status, 200, "{link}: {linked:?}");
    }
}

#[tokio::test]
async fn other_paths_and_methods_of_the_ops_port_answer_with_nothing() {
    let gateway = Gateway::with().tenant("acme").start().await;
    for path in ["/index.html", "/admin/v1/status", "//", "/livez/"] {
        let answer = gateway.ops().get(path).await.expect("the ops port answers");
        assert_eq!((answer.status, answer.text.as_str()), (404, ""), "{path}");
    }
    let post = HttpAgent::send(gateway.ops().request(Method::POST, "/")).await.expect("the ops port answers");
    assert_eq!((post.status, post.header("allow")), (405, Some("GET,HEAD")), "{post:?}");
    let head = HttpAgent::send(gateway.ops().request(Method::HEAD, "/")).await.expect("the ops port answers");
    assert_eq!((head.status, head.text.as_str()), (200, ""), "{head:?}");
}
