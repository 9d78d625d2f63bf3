//! Tests bypasses over real sockets: a binding is left out of a tenant's chains for a while, and comes back
//! by itself (docs/registry.md).

use std::time::Duration;

use hookgate::core::error::Code;
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::{Act, FakePlugin},
    gateway::{Gateway, Setup},
    metrics::Scrape,
    postgres::Cluster,
    token::Token,
};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{
    admin::{
        events_support::{events, wait_for},
        registry::support::{
            administrator, apply, ask, confined, delete, get, head, post, put, stored_as, written,
        },
    },
    cli::registry::support::Desk,
    edge::support::{POINT, assert_http_error},
    registry::support::{SOON, call},
};

const GUARD: &str = "bindings/guard/bypass/acme";

/// A plugin that blocks every call.
async fn guard() -> FakePlugin {
    FakePlugin::named("guard").at(POINT, Act::cancel("BLOCKED", "not now")).start().await
}

/// A file with the tenants `acme` and `globex`, and `plugin` for both, which no tenant may disable.
fn file(plugin: &FakePlugin) -> Setup {
    Gateway::with().tenant("acme").tenant("globex").plugin(plugin).binding(plugin.name(), 10).admin()
}

async fn bypass(agent: &HttpAgent, path: &str, query: &str) -> HttpAnswer {
    ask(agent, Method::PUT, &format!("{path}?{query}"), None).await
}

/// The bypasses of a list that are in effect.
async fn active(agent: &HttpAgent) -> Vec<Value> {
    let list = get(agent, "bypasses").await;
    assert_eq!(list.status, 200, "{list:?}");
    let all = list.body["bypasses"].as_array().expect("a list").clone();
    all.into_iter().filter(|bypass| bypass["active"] == true).collect()
}

/// Waits until the tenant's calls are blocked, or no longer are.
async fn blocks(gateway: &Gateway, tenant: &str, is_blocked: bool) -> HttpAnswer {
    let end = Instant::now() + SOON;
    loop {
        let answer = call(gateway, tenant).await;
        if (answer.status == 403) == is_blocked {
            return answer;
        }
        assert!(Instant::now() < end, "{tenant}: {answer:?}\n{}", gateway.log());
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_global_binding_of_the_file_is_bypassed_for_one_tenant_and_returns_by_itself() {
    let plugin = guard().await;
    let it = stored_as(file(&plugin)).await;
    let before = call(&it.gateway, "acme").await;
    assert_eq!(before.status, 403, "{before:?}");

    let tried = bypass(&it.operator, GUARD, "for=6s&reason=INC-7&dry_run=true").await;
    assert_eq!((tried.status, &tried.body["revision"]), (200, &Value::Null), "{tried:?}");
    let effect = &tried.body["effects"]["sample"][0];
    assert_eq!((&tried.body["effects"]["tenants"], &effect["tenant"]), (&json!(1), &json!("acme")));
    assert_eq!(effect["points"]["before_tool_call"]["removed"], json!(["guard"]));
    assert_eq!(head(&it.operator).await, 1);
    assert_eq!(call(&it.gateway, "acme").await.status, 403);

    let broken = bypass(&it.operator, GUARD, "for=6s&reason=INC-7").await;
    assert_eq!((broken.status, written(&broken)), (201, 2));
    let during = call(&it.gateway, "acme").await;
    assert_eq!((during.status, &during.body["revision"]), (200, &json!(2)), "{during:?}");
    assert_ne!(during.body["plan_digest"], before.body["plan_digest"]);
    assert_eq!(call(&it.gateway, "globex").await.status, 403, "other tenants keep the rule");

    let after = blocks(&it.gateway, "acme", true).await;
    assert_eq!(after.body["plan_digest"], before.body["plan_digest"]);
    assert_eq!(after.body["revision"], 2, "nothing was written");
    it.gateway.log().wait_for(|line| line.field("event") == Some(&json!("binding.bypass_ended"))).await;
    assert!(active(&it.operator).await.is_empty());

    // Any other write deletes it, and the revisions keep its history.
    let next = bypass(&it.operator, "bindings/guard/bypass/globex", "for=1h&reason=INC-8").await;
    assert_eq!(written(&next), 3);
    let list = get(&it.operator, "bypasses").await;
    assert_eq!(list.body["bypasses"].as_array().map(Vec::len), Some(1), "{list:?}");
    let revision = get(&it.operator, "revisions/2").await.body;
    assert_eq!(revision["reason"], "INC-7");
    let (kind, name) = (&revision["changes"][0]["kind"], &revision["changes"][0]["name"]);
    assert_eq!((kind, name), (&json!("bypass"), &json!("guard@acme")));
}

#[tokio::test]
async fn a_bypass_ends_in_a_process_that_is_on_its_way_out() {
    let plugin = guard().await;
    let it = stored_as(file(&plugin).set("/drain/grace", "60s")).await;
    assert_eq!(written(&bypass(&it.operator, GUARD, "for=6s&reason=INC-9").await), 2);
    it.gateway.terminate();
    it.gateway.log().wait_for(|line| line.message() == Some("draining")).await;
    assert_eq!(call(&it.gateway, "acme").await.status, 200, "calls are still taken");
    let after = blocks(&it.gateway, "acme", true).await;
    assert_eq!(after.body["revision"], 2, "nothing was written");
    assert_eq!(it.gateway.stop().await.code, Some(0)); // the second SIGTERM skips the wait
}

#[tokio::test]
async fn a_bypass_shows_in_every_view_and_can_end_early() {
    let plugin = guard().await;
    let it = stored_as(file(&plugin)).await;
    assert_eq!(written(&bypass(&it.operator, GUARD, "for=15m&reason=it+blocks+every+order").await), 2);
    let [only] = active(&it.operator).await.try_into().expect("one");
    assert_eq!(
        (&only["binding"], &only["tenant"], &only["version"]),
        (&json!("guard"), &json!("acme"), &json!(2))
    );
    assert_eq!(call(&it.gateway, "acme").await.status, 200);

    let tenant = it.gateway.admin(&confined("acme"));
    for (agent, reason) in [(&it.operator, json!("it blocks every order")), (&tenant, Value::Null)] {
        let explained = get(agent, "tenants/acme/explain?point=before_tool_call").await.body;
        let absent = &explained["absent"][0];
        assert_eq!(
            (&absent["binding"], &absent["cause"]),
            (&json!("guard"), &json!("bypassed")),
            "{explained}"
        );
        assert_eq!((&absent["until"], &absent["reason"]), (&only["until"], &reason));
        let plan = get(agent, "tenants/acme/plan").await.body;
        let expected = json!([{ "binding": "guard", "until": only["until"], "reason": reason }]);
        assert_eq!(plan["bypassed"], expected);
        assert_eq!(plan["points"]["before_tool_call"]["steps"], json!([]));
    }
    assert_eq!(get(&it.operator, "tenants/globex/plan").await.body["bypassed"], json!([]));
    assert_http_error(&get(&tenant, "bypasses").await, Code::NotFound);
    let reader = it.gateway.admin(&Token::for_operators().mint());
    assert_eq!(active(&reader).await, std::slice::from_ref(&only), "who may read objects may read bypasses");
    assert_eq!(ask(&tenant, Method::PUT, &format!("{GUARD}?for=1h&reason=x"), None).await.status, 404);

    // Logged once it is active, which the answer doesn't wait for.
    wait_for(&it.operator, "event=binding.*", 1).await;
    let told = events(&it.operator, "event=binding.*").await;
    assert_eq!(
        (&told[0]["event"], &told[0]["reason"]),
        (&json!("binding.bypassed"), &only["reason"]),
        "{told:?}"
    );
    assert!(events(&tenant, "event=binding.*").await.is_empty());
    let scrape = Scrape::of(&it.gateway).await;
    let labels = [("hookgate_binding_name", "guard"), ("hookgate_point", "before_tool_call")];
    assert_eq!(scrape.sum("hookgate_bypassed_total", &labels), 1.0, "{}", scrape.text);
    assert_eq!(scrape.sum("hookgate_bypasses", &[]), 1.0);

    // Extended, then rolled back past it: only its expiry or an operator ends a bypass.
    let again = bypass(&it.operator, GUARD, "for=24h&reason=still").await;
    assert_eq!((again.status, written(&again)), (200, 3));
    let back = post(&it.operator, "revisions/1/rollback").await;
    assert_eq!((back.status, &back.body["revision"]), (200, &Value::Null), "{back:?}");
    assert_eq!(active(&it.operator).await[0]["reason"], "still");
    assert_eq!(written(&delete(&it.operator, &format!("{GUARD}?reason=mended")).await), 4);
    assert_eq!(call(&it.gateway, "acme").await.status, 403);
    assert_http_error(&delete(&it.operator, GUARD).await, Code::NotFound);
    assert_eq!(Scrape::of(&it.gateway).await.sum("hookgate_bypasses", &[]), 0.0);
}

#[tokio::test]
async fn what_is_no_bypass_is_refused_and_nothing_is_written() {
    let plugin = guard().await;
    let setup = file(&plugin).binding_with(
        "guard",
        20,
        &json!({ "name": "gold", "tenant": null, "selector": { "plan": "gold" } }),
    );
    let it = stored_as(setup).await;
    for (path, query, code, words) in [
        (GUARD, "reason=x", Code::PayloadInvalid, "`for`"),
        (GUARD, "for=25h&reason=x", Code::PayloadInvalid, "from 1s to 24h"),
        (GUARD, "for=999ms&reason=x", Code::PayloadInvalid, "from 1s to 24h"),
        (GUARD, "for=ever&reason=x", Code::PayloadInvalid, "such as 15m"),
        (GUARD, "for=15m", Code::PayloadInvalid, "`reason`"),
        (GUARD, "for=15m&reason=+", Code::PayloadInvalid, "`reason`"),
        (GUARD, "for=15m&reason=x&force=true", Code::PayloadInvalid, "`force`"),
        ("bindings/nobody/bypass/acme", "for=15m&reason=x", Code::NotFound, "no binding `nobody`"),
        ("bindings/guard/bypass/stranger", "for=15m&reason=x", Code::NotFound, "no tenant `stranger`"),
        (
            "bindings/gold/bypass/acme",
            "for=15m&reason=x",
            Code::ConfigInvalid,
            "doesn't apply to tenant `acme`",
        ),
    ] {
        let answer = bypass(&it.operator, path, query).await;
        assert_http_error(&answer, code);
        assert!(answer.body["detail"].to_string().contains(words), "{words}: {answer:?}");
    }
    let long = format!("for=15m&reason={}", "x".repeat(501));
    assert_http_error(&bypass(&it.operator, GUARD, &long).await, Code::PayloadInvalid);
    let reader = it.gateway.admin(&Token::for_operators().mint());
    assert_http_error(&bypass(&reader, GUARD, "for=15m&reason=x").await, Code::ScopeMissing);
    assert_http_error(&ask(&reader, Method::DELETE, GUARD, None).await, Code::ScopeMissing);
    let document = json!({ "remove": [{ "kind": "bypass", "name": "guard@acme" }] });
    let applied = apply(&it.operator, "", document).await;
    assert_http_error(&applied, Code::PayloadInvalid);
    assert_eq!(head(&it.operator).await, 1);
}

#[tokio::test]
async fn a_tenant_that_is_not_listed_but_served_has_its_own_bypass() {
    let plugin = guard().await;
    let it = stored_as(file(&plugin).set("/tenants/unknown", json!("accept"))).await;
    let broken = bypass(&it.operator, "bindings/guard/bypass/stranger", "for=15m&reason=x").await;
    assert_eq!(written(&broken), 2);
    assert_eq!(broken.body["effects"]["sample"][0]["tenant"], "stranger");
    assert_eq!(call(&it.gateway, "stranger").await.status, 200);
    for other in ["another", "acme"] {
        assert_eq!(call(&it.gateway, other).await.status, 403, "{other}");
    }
}

/// A write's changes: each object, and whether it exists afterwards.
fn changed(answer: &HttpAnswer) -> Vec<String> {
    let one = |change: &Value| {
        let sign = if change["after"].is_object() { '+' } else { '-' };
        format!("{sign}{}", change["name"].as_str().expect("a name"))
    };
    answer.body["changes"].as_array().expect("changes").iter().map(one).collect()
}

#[tokio::test]
async fn a_bypass_ends_with_its_binding_and_the_next_of_that_name_is_enforced() {
    let plugin = guard().await;
    let unbound = Gateway::with().tenant("acme").plugin(&plugin).admin();
    let it = stored_as(unbound).await;
    let rule = json!({ "plugin": "guard", "tenant": "acme", "priority": 10 });
    assert_eq!(written(&put(&it.operator, "bindings/audit?expected_version=0", rule.clone()).await), 2);
    let break_it = "bindings/audit/bypass/acme";
    assert_eq!(written(&bypass(&it.operator, break_it, "for=1h&reason=x").await), 3);
    assert_eq!(call(&it.gateway, "acme").await.status, 200);

    let tried = delete(&it.operator, "bindings/audit?expected_version=2&dry_run=true").await;
    assert_eq!(changed(&tried), ["-audit", "-audit@acme"], "{tried:?}");
    let gone = delete(&it.operator, "bindings/audit?expected_version=2").await;
    assert_eq!((written(&gone), &gone.body["changes"]), (4, &tried.body["changes"]));
    assert!(get(&it.operator, "bypasses").await.body["bypasses"].as_array().expect("a list").is_empty());
    wait_for(&it.operator, "event=binding.bypass_ended", 1).await;
    let told = events(&it.operator, "event=binding.bypass_ended").await;
    assert_eq!((told.len(), &told[0]["binding"]), (1, &json!("audit")), "{told:?}");
    let revision = get(&it.operator, "revisions?limit=1").await.body;
    let counts =
        json!({ "plugins": 0, "tenants": 0, "bindings": 1, "upstreams": 0, "models": 0, "bypasses": 1 });
    assert_eq!(revision["revisions"][0]["changes"], counts);

    assert_eq!(written(&put(&it.operator, "bindings/audit?expected_version=0", rule).await), 5);
    assert_eq!(call(&it.gateway, "acme").await.status, 403, "another rule of the same name");
    // The same if a rollback removes the binding and another one restores it.
    assert_eq!(written(&bypass(&it.operator, break_it, "for=1h&reason=x").await), 6);
    let back = post(&it.operator, "revisions/4/rollback").await;
    assert_eq!((written(&back), changed(&back)), (7, vec!["-audit".to_owned(), "-audit@acme".into()]));
    assert_eq!(changed(&post(&it.operator, "revisions/6/rollback").await), ["+audit"]);
    assert_eq!(call(&it.gateway, "acme").await.status, 403);
    // And if a document removes it, or the tenant is deleted.
    assert_eq!(written(&bypass(&it.operator, break_it, "for=1h&reason=x").await), 9);
    let removed = json!({ "remove": [{ "kind": "binding", "name": "audit" }] });
    let applied = apply(&it.operator, "", removed).await;
    assert_eq!(changed(&applied), ["-audit", "-audit@acme"]);
}

#[tokio::test]
async fn a_bypass_ends_with_what_leaves_the_file() {
    let plugin = guard().await;
    let folder = tempfile::tempdir().expect("there is room");
    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    let with = file(&plugin).store(&url, folder.path());
    let without = Gateway::with().tenant("acme").tenant("globex").plugin(&plugin).admin();
    let gateway = file(&plugin).store(&url, folder.path()).start().await;
    let operator = gateway.admin(&administrator());
    assert_eq!(written(&bypass(&operator, GUARD, "for=1h&reason=x").await), 2);
    assert_eq!(call(&gateway, "acme").await.status, 200);
    gateway.reload(&without.store(&url, folder.path()));
    gateway.wait_for_revision(3).await;
    let revision = get(&operator, "revisions/3").await;
    assert_eq!(changed(&revision), ["-guard", "-guard@acme"], "{revision:?}");
    gateway.reload(&with);
    gateway.wait_for_revision(4).await;
    assert_eq!(call(&gateway, "acme").await.status, 403);
}

/// A test's own PostgreSQL server, and folders for gateways.
struct Place {
    cluster: Cluster,
    url: String,
    folders: [TempDir; 2],
}

impl Place {
    async fn make() -> Self {
        let cluster = tokio::task::spawn_blocking(Cluster::start).await.expect("it starts");
        let url = cluster.database().await;
        Place { cluster, url, folders: [(); 2].map(|()| tempfile::tempdir().expect("there is room")) }
    }

    async fn gateway(&self, at: usize, plugin: &FakePlugin) -> Gateway {
        file(plugin).store(&self.url, self.folders[at].path()).start().await
    }
}

#[tokio::test]
async fn every_gateway_of_a_database_leaves_it_out_and_puts_it_back_though_the_database_is_away() {
    let (place, plugin) = (Place::make().await, guard().await);
    let gateways = [place.gateway(0, &plugin).await, place.gateway(1, &plugin).await];
    let operator = gateways[0].admin(&administrator());
    let since = Instant::now();
    assert_eq!(written(&bypass(&operator, GUARD, "for=8s&reason=x").await), 2);
    for gateway in &gateways {
        blocks(gateway, "acme", false).await;
    }
    place.cluster.stop();
    for gateway in &gateways {
        blocks(gateway, "acme", true).await;
    }
    let took = since.elapsed();
    // Because of its expiry, not because of the check for clock changes every 30 s.
    assert!((Duration::from_millis(7500)..Duration::from_secs(25)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_gateway_that_starts_again_keeps_the_bypass_for_the_rest_of_its_time_with_or_without_the_database()
{
    let (place, plugin) = (Place::make().await, guard().await);
    let gateway = place.gateway(0, &plugin).await;
    let operator = gateway.admin(&administrator());
    let since = Instant::now();
    assert_eq!(written(&bypass(&operator, GUARD, "for=15s&reason=x").await), 2);
    gateway.stop().await;
    let still = |answer: HttpAnswer| {
        assert!(answer.status == 200 || since.elapsed() > Duration::from_secs(15), "{answer:?}");
    };
    let gateway = place.gateway(0, &plugin).await;
    still(call(&gateway, "acme").await);
    gateway.stop().await;
    // With the last good table only.
    place.cluster.stop();
    let gateway = place.gateway(0, &plugin).await;
    still(call(&gateway, "acme").await);
    blocks(&gateway, "acme", true).await;
    assert!(since.elapsed() > Duration::from_secs(14));
    gateway.stop().await;
    // An expired bypass is never active.
    let gateway = place.gateway(0, &plugin).await;
    assert_eq!(call(&gateway, "acme").await.status, 403);
    let told =
        gateway.log().lines().iter().any(|line| line.field("event") == Some(&json!("binding.bypassed")));
    assert!(!told, "{}", gateway.log());
}

#[tokio::test]
async fn the_command_line_breaks_the_glass_shows_it_and_mends_it() {
    let plugin = guard().await;
    let desk = Desk::of(file(&plugin)).await;
    let bypass = ["binding", "bypass", "guard", "--tenant", "acme"];
    let with = |more: &[&'static str]| [&bypass, more].concat();
    let broken = with(&["--for", "15m", "--reason", "INC-7: blocks every order"]);
    let tried = desk.does(&[&broken[..], &["--dry-run"]].concat()).await;
    assert!(tried.starts_with("+ bypass guard@acme\n") && tried.contains("-guard: nothing runs"), "{tried}");
    assert!(tried.ends_with("Dry run: nothing was written.\n"), "{tried}");
    let done = desk.does(&broken).await;
    assert!(done.ends_with("Written as revision 2, which is active.\n"), "{done}");
    assert_eq!(call(&desk.gateway, "acme").await.status, 200);
    let list = desk.does(&["binding", "list"]).await;
    assert!(list.contains("\nBYPASSED  FOR   UNTIL") && list.contains("INC-7: blocks every order"), "{list}");
    assert_eq!(desk.json(&["binding", "list"]).await["bypasses"][0]["tenant"], "acme");
    let explained = desk.does(&["explain", "--tenant", "acme", "--point", "before_tool_call"]).await;
    assert!(
        explained.contains("is bypassed until 2") && explained.contains(": INC-7: blocks"),
        "{explained}"
    );
    let revisions = desk.does(&["revision", "list"]).await;
    assert!(revisions.contains("1 bypass "), "{revisions}");
    let ended = desk.does(&with(&["--end"])).await;
    assert!(ended.starts_with("- bypass guard@acme\n"), "{ended}");
    assert_eq!(call(&desk.gateway, "acme").await.status, 403);
    assert!(!desk.does(&["binding", "list"]).await.contains("BYPASSED"));

    desk.fails(&with(&["--end"]), 1, "there is no bypass `guard@acme`").await;
    desk.fails(&with(&["--for", "15m"]), 2, "--reason").await;
    desk.fails(&with(&["--reason", "x"]), 2, "--for").await;
    desk.fails(&with(&["--for", "2d", "--reason", "x"]), 2, "2d").await;
    desk.fails(&with(&["--for", "25h", "--reason", "x"]), 2, "1s to 24h").await;
    let nobody = ["binding", "bypass", "nobody", "--tenant", "acme", "--for", "1m", "--reason", "x"];
    desk.fails(&nobody, 1, "no binding `nobody`").await;
}
