//! Tests operations on a running process: reload, describe again, drain (L47).

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use hookgate_tests::{
    agent::HttpAgent,
    fake::{Act, FakePlugin, Gate, Handshake},
    gateway::{Gateway, Setup},
    token::{Token, token},
};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;

use crate::{
    admin::registry::support::{
        Stored, administrator, ask, confined, get, patch, pointers, post, put, stored_as, written,
    },
    edge::support::{POINT, payload},
    registry::support::{SOON, call, file_with},
};

/// A gateway whose registry has the API's plugin `guard` for all tenants.
async fn guarded(plugin: &FakePlugin) -> Stored {
    // Calls may be held back for long.
    let setup = file_with("acme").set("/egress/cidrs", json!(["127.0.0.0/8"])).set("/limits/budget", "60s");
    let stored = stored_as(setup).await;
    let entry = json!({
        "endpoint": plugin.endpoint(), "config": { "level": 1 }, "accepted": plugin.accepted(),
        "limits": { "timeout": "60s" },
    });
    written(&put(&stored.operator, "plugins/guard?expected_version=0", entry).await);
    let binding = json!({ "plugin": "guard", "tenant": "*", "priority": 20 });
    written(&put(&stored.operator, "bindings/guard?expected_version=0", binding).await);
    assert_eq!(call(&stored.gateway, "acme").await.status, 200);
    stored
}

fn by_file(plugin: &FakePlugin) -> Setup {
    Gateway::with().tenant("acme").plugin(plugin).binding(plugin.name(), 10).admin()
}

async fn asked_in_log(gateway: &Gateway, operation: &str) -> Value {
    let line = gateway.log().wait_for(|line| {
        line.field("event") == Some(&json!("process.operation"))
            && line.field("operation") == Some(&json!(operation))
    });
    let line = line.await;
    json!({ "author": line.field("author"), "reason": line.field("reason"), "plugin": line.field("plugin") })
}

#[tokio::test]
async fn a_reload_answers_once_the_file_is_active() {
    let gateway = file_with("acme").start().await;
    let operator = gateway.admin(&administrator());
    let same = post(&operator, "reload?reason=just+looking").await;
    assert_eq!(
        (same.status, &same.body["outcome"], &same.body["revision"]),
        (200, &json!("unchanged"), &json!(1))
    );
    assert_eq!(asked_in_log(&gateway, "reload").await["reason"], json!("just looking"));

    assert_eq!(call(&gateway, "globex").await.body["code"], json!("TENANT_UNKNOWN"));
    std::fs::write(gateway.file(), file_with("globex").text()).expect("there is room");
    let taken = post(&operator, "reload").await;
    assert_eq!(
        (taken.status, &taken.body["outcome"], &taken.body["revision"]),
        (200, &json!("applied"), &json!(2))
    );
    assert_eq!(call(&gateway, "globex").await.status, 200, "nothing is waited for after the answer");

    std::fs::write(gateway.file(), file_with("globex").set("/limits/budget", "soon").text())
        .expect("there is room");
    let refused = post(&operator, "reload").await;
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("CONFIG_INVALID")), "{refused:?}");
    assert_eq!(pointers(&refused), ["/limits/budget"]);
    assert_eq!(call(&gateway, "globex").await.status, 200, "the active configuration stays");
}

#[tokio::test]
async fn a_reload_that_waits_for_a_plugin_says_for_which() {
    // A Unix socket, because a released TCP port may be taken by others.
    let mut plugin = FakePlugin::named("late").start_unix().await;
    plugin.stop().await;
    let gateway = file_with("acme").start().await;
    let operator = gateway.admin(&administrator());
    let wanted = file_with("acme").plugin(&plugin).binding("late", 20);
    std::fs::write(gateway.file(), wanted.text()).expect("there is room");
    let waiting = post(&operator, "reload").await;
    assert_eq!((waiting.status, &waiting.body["outcome"]), (202, &json!("waiting")), "{waiting:?}");
    let what = waiting.body["waiting_for"].to_string();
    assert!(what.contains("late"), "{what}");
    plugin.start().await;
    gateway.wait_for_revision(2).await;
}

#[tokio::test]
async fn only_an_administrator_of_everything_may_ask() {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = by_file(&plugin).start().await;
    let paths = ["reload", "check-upstreams"].into_iter().chain([
        "plugins/guard/describe",
        "plugins/guard/drain",
        "plugins/guard/call",
        "plugins/guard/delete-data",
    ]);
    let reader = gateway.admin(&Token::for_operators().scopes("hookgate:read").mint());
    let tenants = gateway.admin(&confined("acme"));
    let operator = gateway.admin(&administrator());
    let before = plugin.counts();
    for path in paths {
        let answer = post(&reader, path).await;
        assert_eq!((answer.status, &answer.body["code"]), (403, &json!("SCOPE_MISSING")), "{path}");
        let answer = post(&tenants, path).await;
        assert_eq!((answer.status, &answer.body["code"]), (404, &json!("NOT_FOUND")), "{path}");
        let answer = get(&operator, path).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{path}");
        let answer = post(&operator, &format!("{path}?nonsense=1")).await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
    }
    let missing = post(&operator, "plugins/nobody/describe").await;
    assert_eq!((missing.status, &missing.body["code"]), (404, &json!("NOT_FOUND")));
    assert_eq!(plugin.counts(), before, "the plugin got no request");
}

#[tokio::test]
async fn describing_a_plugin_again_fails_no_call() {
    let (first, second) = {
        let first =
            FakePlugin::named("guard").at(POINT, Act::pass().after(Duration::from_millis(5))).start().await;
        let second = first.twin_unix().await;
        (first, second)
    };
    let setup = Gateway::with().tenant("acme").admin().plugin_with(
        &first,
        &json!({ "endpoint": null, "endpoints": [first.endpoint(), second.endpoint()] }),
    );
    let gateway = setup.binding("guard", 10).start().await;
    let operator = gateway.admin(&administrator());
    let (agent, stop, done) = (gateway.http(&token("acme")), AtomicBool::new(false), AtomicU64::new(0));
    let callers = async {
        let one = || async {
            while !stop.load(Ordering::Relaxed) {
                let answer = agent.call(POINT, payload()).await;
                assert_eq!(answer.status, 200, "{answer:?}");
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        futures::future::join_all((0..8).map(|_| one())).await;
    };
    let asking = async {
        for _ in 0..10 {
            let before = (first.counts(), second.counts(), done.load(Ordering::Relaxed));
            let answer = post(&operator, "plugins/guard/describe").await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let endpoints = answer.body["endpoints"].as_array().expect("a list");
            assert!(
                endpoints.len() == 2 && endpoints.iter().all(|one| one["described"] == true),
                "{answer:?}"
            );
            assert_eq!(answer.body["plugin"]["state"], json!("ready"));
            for (before, now) in [(before.0, first.counts()), (before.1, second.counts())] {
                assert!(now.describes > before.describes, "{before:?} {now:?}");
                assert!(now.initializes > before.initializes, "{before:?} {now:?}");
                assert!(now.connections > before.connections, "{before:?} {now:?}");
            }
            let end = Instant::now() + SOON;
            while done.load(Ordering::Relaxed) < before.2 + 20 {
                assert!(Instant::now() < end, "calls go on");
                sleep(Duration::from_millis(5)).await;
            }
        }
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(callers, asking);
}

#[tokio::test]
async fn a_call_in_flight_keeps_its_connection_while_the_plugin_is_described_again() {
    let (gate, plugin) = (Gate::closed(), FakePlugin::named("guard").start().await);
    plugin.set(POINT, Act::pass().behind(&gate));
    let gateway = by_file(&plugin).start().await;
    let operator = gateway.admin(&administrator());
    let agent = gateway.http(&token("acme"));
    let calling = tokio::spawn(async move { agent.call(POINT, payload()).await });
    plugin.wait_until(|counts| counts.calls == 1).await;
    let answer = post(&operator, "plugins/guard/describe").await;
    assert_eq!(answer.body["endpoints"][0]["described"], json!(true), "{answer:?}");
    gate.open();
    assert_eq!(calling.await.expect("it ends").status, 200);
    assert_eq!(plugin.counts().calls, 1, "nothing was sent a second time");
}

#[tokio::test]
async fn a_plugin_that_describes_itself_anew_is_taken_by_what_it_says_and_one_that_errs_goes_on() {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = by_file(&plugin).start().await;
    let operator = gateway.admin(&administrator());
    plugin.set_describe(Handshake::Fails(Status::internal("not today")));
    let refused = post(&operator, "plugins/guard/describe").await;
    assert_eq!(
        (refused.status, &refused.body["endpoints"][0]["described"]),
        (200, &json!(false)),
        "{refused:?}"
    );
    assert!(refused.body["endpoints"][0]["detail"].to_string().contains("not today"), "{refused:?}");
    assert_eq!(call(&gateway, "acme").await.status, 200, "the connections that it had go on");

    plugin.set_describe(Handshake::Proper);
    plugin.change_manifest(|manifest| {
        manifest.version = "7.8.9".into();
        manifest.points.retain(|offer| offer.point == i32::from(POINT));
    });
    let taken = post(&operator, "plugins/guard/describe").await;
    assert_eq!(taken.body["endpoints"][0]["described"], json!(true), "{taken:?}");
    assert_eq!(taken.body["plugin"]["manifest"]["version"], json!("7.8.9"), "{taken:?}");
    assert_eq!(taken.body["plugin"]["manifest"]["points"].as_array().map(Vec::len), Some(1), "{taken:?}");
    assert_eq!(call(&gateway, "acme").await.status, 200);
}

#[tokio::test]
async fn a_refused_plugin_that_was_mended_need_not_wait() {
    let plugin = FakePlugin::named("guard").start().await;
    plugin.set_initialize(Handshake::Fails(Status::invalid_argument("level is too high")));
    let gateway = by_file(&plugin).set("/plugins/0/required", false).start().await;
    let operator = gateway.admin(&administrator());
    let end = Instant::now() + SOON;
    while get(&operator, "plugins/guard").await.body["state"] != json!("refused") {
        assert!(Instant::now() < end, "it is refused");
        sleep(Duration::from_millis(10)).await;
    }
    plugin.set_initialize(Handshake::Proper);
    // Without the request, it would be asked again only after a minute.
    let taken = timeout(SOON, post(&operator, "plugins/guard/describe")).await.expect("it answers");
    assert_eq!(taken.body["plugin"]["state"], json!("ready"), "{taken:?}");
    assert_eq!(call(&gateway, "acme").await.status, 200);
}

#[tokio::test]
async fn an_entry_that_was_held_back_is_taken_once_its_plugin_is_mended() {
    let plugin = FakePlugin::named("guard").start().await;
    let Stored { gateway, operator, folder: _folder } = &guarded(&plugin).await;
    plugin.set_initialize(Handshake::Fails(Status::invalid_argument("level is too high")));
    let version = get(operator, "plugins/guard").await.body["version"].clone();
    let path = format!("plugins/guard?expected_version={version}");
    written(&patch(operator, &path, json!({ "config": { "level": 2 } })).await);
    let refused = |status: &Value| {
        status["configuration"]["rejected"]["problems"].to_string().contains("rejected its new entry")
    };
    crate::registry::support::status_is(gateway, refused).await;

    let still = post(operator, "plugins/guard/describe").await;
    assert_eq!(still.status, 200, "{still:?}");
    crate::registry::support::status_is(gateway, refused).await;

    plugin.set_initialize(Handshake::Proper);
    let given = || plugin.initialized().last().map(|given| given.config.clone());
    let before = given();
    let taken = post(operator, "plugins/guard/describe").await;
    assert_eq!((taken.status, &taken.body["plugin"]["state"]), (200, &json!("ready")), "{taken:?}");
    assert_ne!(given(), None);
    assert!(String::from_utf8_lossy(&given().expect("it was initialised")).contains('2'), "{before:?}");
    crate::registry::support::status_is(gateway, |status| status["configuration"]["rejected"].is_null())
        .await;
}

#[tokio::test]
async fn a_drain_waits_for_the_call_in_flight_and_for_shutdown() {
    let (gate, plugin) = (Gate::closed(), FakePlugin::named("guard").start().await);
    let Stored { gateway, operator, folder: _folder } = &guarded(&plugin).await;
    plugin.set(POINT, Act::pass().behind(&gate));
    let calls = plugin.counts().calls;
    let agent = gateway.http(&token("acme"));
    let calling = tokio::spawn(async move { agent.call(POINT, payload()).await });
    plugin.wait_until(|counts| counts.calls == calls + 1).await;

    let held = post(operator, "plugins/guard/drain?timeout=3s&reason=new+disk").await;
    assert_eq!((held.status, &held.body["drained"]), (200, &json!(false)), "{held:?}");
    assert_eq!((&held.body["in_flight"], &held.body["active"]), (&json!(1), &json!(true)), "{held:?}");
    assert_eq!(plugin.counts().shutdowns, 0);
    let said = asked_in_log(gateway, "drain").await;
    assert_eq!((&said["reason"], &said["plugin"]), (&json!("new disk"), &json!("guard")));
    assert_eq!(call(gateway, "acme").await.status, 200, "calls go on without it");
    assert_eq!(plugin.counts().calls, calls + 1);

    let again = post(operator, "plugins/guard/drain?reason=once+more");
    let opening = async {
        gateway.log().wait_for(|line| line.field("reason") == Some(&json!("once more"))).await;
        gate.open();
    };
    let (again, ()) = tokio::join!(again, opening);
    assert_eq!(calling.await.expect("it ends").status, 200);
    let wanted = json!({ "revision": null, "active": true, "in_flight": 0, "drained": true });
    assert_eq!((again.status, again.body), (200, wanted));
    assert_eq!(plugin.counts().shutdowns, 1);
    assert_eq!(get(operator, "plugins/guard").await.body["state"], json!("disabled"));

    written(&post(operator, "plugins/guard/enable").await);
    assert_eq!(call(gateway, "acme").await.status, 200);
    assert_eq!(plugin.counts().calls, calls + 2, "it is back");
}

#[tokio::test]
async fn a_drain_that_is_not_the_apis_to_ask_for_changes_nothing() {
    let plugin = FakePlugin::named("guard").start().await;
    let Stored { operator, folder: _folder, .. } = &guarded(&plugin).await;
    let of_file = post(operator, "plugins/content-policy/drain").await;
    assert_eq!((of_file.status, &of_file.body["code"]), (409, &json!("CONFLICT")), "{of_file:?}");
    let stale = post(operator, "plugins/guard/drain?expected_version=1").await;
    assert_eq!((stale.status, &stale.body["code"]), (409, &json!("CONFLICT")), "{stale:?}");
    let missing = post(operator, "plugins/nobody/drain").await;
    assert_eq!((missing.status, &missing.body["code"]), (404, &json!("NOT_FOUND")), "{missing:?}");
    for patience in ["3m", "soon", "-1s"] {
        let answer = post(operator, &format!("plugins/guard/drain?timeout={patience}")).await;
        assert_eq!(answer.status, 400, "{patience}: {answer:?}");
    }
    assert_eq!(get(operator, "plugins/guard").await.body["state"], json!("ready"));

    let gateway = by_file(&plugin).start().await;
    let operator: &HttpAgent = &gateway.admin(&administrator());
    let alone = ask(operator, Method::POST, "plugins/guard/drain", None).await;
    assert_eq!((alone.status, &alone.body["code"]), (409, &json!("CONFLICT")), "{alone:?}");
    assert_eq!(call(&gateway, "acme").await.status, 200);
}
