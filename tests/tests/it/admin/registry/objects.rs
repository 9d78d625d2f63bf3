//! Tests creating, replacing, patching, deleting and listing plugins, tenants and bindings, each with the
//! version that the writer knew (docs/registry.md).

use hookgate::core::error::Code;
use hookgate_tests::{fake::FakePlugin, gateway::Gateway};
use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::registry::support::{
        apply, ask, delete, get, head, names, patch, pointers, post, put, stored, stored_as, written,
    },
    edge::support::assert_http_error,
    registry::support::{call, file_with},
};

#[tokio::test]
async fn an_object_is_created_replaced_patched_and_deleted_and_each_write_holds_for_the_next_call() {
    let it = stored().await;
    let globex = "tenants/globex";
    let created =
        put(&it.operator, "tenants/globex?expected_version=0&reason=new", json!({ "labels": { "a": "1" } }))
            .await;
    assert_eq!((created.status, written(&created)), (201, 2));
    let change = &created.body["changes"][0];
    assert_eq!(
        (&change["kind"], &change["name"], &change["before"]),
        (&json!("tenant"), &json!("globex"), &Value::Null)
    );
    assert_eq!(created.body["effects"]["sample"][0]["tenant"], "globex");
    assert_eq!(call(&it.gateway, "globex").await.body["revision"], 2);

    let shown = get(&it.operator, globex).await.body;
    assert_eq!(
        shown,
        json!({ "id": "globex", "owner": "api", "version": 2, "spec": { "id": "globex", "labels": { "a": "1" } } })
    );
    let replaced = put(&it.operator, "tenants/globex?expected_version=2", json!({ "enabled": false })).await;
    assert_eq!((replaced.status, written(&replaced)), (200, 3));
    assert_eq!(call(&it.gateway, "globex").await.body["code"], "TENANT_DISABLED");
    let patched = patch(
        &it.operator,
        "tenants/globex?expected_version=3",
        json!({ "enabled": null, "labels": { "b": "2" } }),
    )
    .await;
    assert_eq!(written(&patched), 4);
    assert_eq!(
        get(&it.operator, globex).await.body["spec"],
        json!({ "id": "globex", "labels": { "b": "2" } })
    );
    assert_eq!(call(&it.gateway, "globex").await.body["revision"], 4);
    assert_eq!(written(&delete(&it.operator, "tenants/globex?expected_version=4").await), 5);
    assert_eq!(call(&it.gateway, "globex").await.body["code"], "TENANT_UNKNOWN");
    assert_http_error(&get(&it.operator, globex).await, Code::NotFound);
    // A write without a change makes no revision.
    let spec = json!({ "id": "initech" });
    assert_eq!(written(&put(&it.operator, "tenants/initech?expected_version=0", spec.clone()).await), 6);
    let same = put(&it.operator, "tenants/initech?expected_version=6", spec).await;
    assert_eq!(
        (&same.body["revision"], &same.body["active"], same.status),
        (&Value::Null, &json!(true), 200)
    );
}

#[tokio::test]
async fn a_write_names_the_version_that_it_knows() {
    let it = stored().await;
    let path = |version: &str| format!("tenants/globex{version}");
    let spec = || json!({ "labels": {} });
    for (method, missing) in [(Method::PUT, true), (Method::PATCH, true), (Method::DELETE, false)] {
        let (body, may_be_new) = (missing.then(spec), method == Method::PUT);
        let answer = ask(&it.operator, method, &path(""), body.as_ref()).await;
        assert_http_error(&answer, Code::PayloadInvalid);
        let detail = answer.body["detail"].to_string();
        assert!(detail.contains("`expected_version`"), "{answer:?}");
        assert_eq!(detail.contains("or 0"), may_be_new, "{answer:?}");
    }
    assert_http_error(&put(&it.operator, &path("?expected_version=7"), spec()).await, Code::Conflict);
    assert_eq!(written(&put(&it.operator, &path("?expected_version=0"), spec()).await), 2);
    // A name that is taken.
    let taken = put(&it.operator, &path("?expected_version=0"), spec()).await;
    assert_eq!((taken.status, taken.body["code"].as_str()), (409, Some("CONFLICT")));
    for said in [&taken.body["detail"], &taken.body["errors"][0]["message"]] {
        assert!(said.as_str().is_some_and(|said| said.contains("its version is 2")), "{taken:?}");
    }
    for answer in [
        patch(&it.operator, &path("?expected_version=1"), json!({})).await,
        delete(&it.operator, &path("?expected_version=1")).await,
    ] {
        assert!(answer.body["detail"].to_string().contains("is 2, and 1 is expected"), "{answer:?}");
    }
    for answer in [
        patch(&it.operator, "tenants/nobody?expected_version=1", json!({})).await,
        delete(&it.operator, "tenants/nobody?expected_version=1").await,
        post(&it.operator, "plugins/nobody/disable").await,
    ] {
        assert_http_error(&answer, Code::NotFound);
    }
    assert_eq!(head(&it.operator).await, 2);
}

#[tokio::test]
async fn of_writers_who_know_the_same_version_one_succeeds() {
    let it = stored().await;
    let mut version = written(&put(&it.operator, "tenants/race?expected_version=0", json!({})).await);
    for round in 0..5 {
        let racing = (0..8).map(|writer| {
            let operator = it.operator.clone();
            let path = format!("tenants/race?expected_version={version}");
            async move {
                patch(&operator, &path, json!({ "labels": { "won": format!("{round}-{writer}") } })).await
            }
        });
        let answers = futures::future::join_all(racing).await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
        assert_eq!((won.len(), lost.len()), (1, 7), "{answers:?}");
        assert!(lost.iter().all(|answer| answer.body["code"] == "CONFLICT"), "{lost:?}");
        version = written(won[0]);
        let now = get(&it.operator, "tenants/race").await.body;
        assert_eq!(now["spec"], won[0].body["changes"][0]["after"]["spec"]);
    }
}

#[tokio::test]
async fn writers_of_different_objects_do_not_get_in_each_others_way() {
    let it = stored().await;
    let racing = (0..12).map(|at| {
        let operator = it.operator.clone();
        async move { put(&operator, &format!("tenants/t{at}?expected_version=0"), json!({})).await }
    });
    let answers = futures::future::join_all(racing).await;
    let mut revisions: Vec<_> = answers.iter().map(written).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (2..14).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_dry_run_says_what_the_write_then_does_and_changes_nothing() {
    let it = stored().await;
    assert_eq!(written(&put(&it.operator, "tenants/globex?expected_version=0", json!({})).await), 2);
    let binding = json!({ "plugin": "content-policy", "tenant": "globex", "priority": 20 });
    let document = json!({ "bindings": [binding.clone()], "remove": [], "tenants": [{ "id": "initech" }] });
    let writes: [(Method, &str, Option<Value>); 5] = [
        (Method::PUT, "bindings/own?expected_version=0", Some(binding)),
        (Method::PATCH, "tenants/globex?expected_version=2", Some(json!({ "limits": { "in_flight": 3 } }))),
        (Method::POST, "apply?", Some(document)),
        (Method::DELETE, "bindings/own?expected_version=3", None),
        (Method::POST, "revisions/2/rollback?", None),
    ];
    for (at, (method, path, body)) in writes.into_iter().enumerate() {
        if at == 2 {
            // A second binding of a plugin in one chain needs another priority.
            let moved =
                patch(&it.operator, "bindings/own?expected_version=3", json!({ "priority": 21 })).await;
            written(&moved);
            continue;
        }
        let path = path.replace("bindings/own?expected_version=3", "bindings/own?expected_version=5");
        let before = head(&it.operator).await;
        let tried = ask(&it.operator, method.clone(), &format!("{path}&dry_run=true"), body.as_ref()).await;
        let expected = (200, &Value::Null, &json!(true), &json!(false));
        let said = |answer: &'_ hookgate_tests::agent::HttpAnswer| answer.body.clone();
        let body_of = said(&tried);
        assert_eq!(
            (tried.status, &body_of["revision"], &body_of["dry_run"], &body_of["active"]),
            expected,
            "{tried:?}"
        );
        assert_eq!(head(&it.operator).await, before, "nothing was written");
        let done = ask(&it.operator, method, &path, body.as_ref()).await;
        assert_eq!(written(&done), before + 1);
        for member in ["changes", "effects", "unvalidated"] {
            assert_eq!(tried.body[member], done.body[member], "{path}: {member}");
        }
        assert_ne!(done.body["effects"]["tenants"], json!(0), "{done:?}");
    }
}

#[tokio::test]
async fn what_would_be_wrong_is_refused_with_its_place_and_nothing_changes() {
    let it = stored().await;
    let refused = [
        ("tenants/x?expected_version=0", json!({ "colour": "blue" }), "/colour"),
        ("tenants/x?expected_version=0", json!({ "id": "y" }), "/id"),
        ("tenants/x?expected_version=0", json!({ "config": { "nobody": {} } }), "/config/nobody"),
        ("tenants/x?expected_version=0", json!({ "disable": ["content-policy"] }), "/disable/0"),
        (
            "bindings/x?expected_version=0",
            json!({ "plugin": "nobody", "tenant": "*", "priority": 1 }),
            "/plugin",
        ),
        (
            "bindings/x?expected_version=0",
            json!({ "plugin": "content-policy", "tenant": "nobody", "priority": 1 }),
            "/tenant",
        ),
        ("plugins/x?expected_version=0", json!({ "builtin": "nobody" }), "/builtin"),
        (
            "plugins/x?expected_version=0",
            json!({ "endpoint": "http://127.0.0.1:1", "config": { "key": "***" } }),
            "/config/key",
        ),
        ("plugins/a b?expected_version=0", json!({ "endpoint": "http://127.0.0.1:1" }), "/name"),
    ];
    for (path, spec, pointer) in refused {
        let answer = put(&it.operator, path, spec).await;
        assert_http_error(&answer, Code::ConfigInvalid);
        assert_eq!(pointers(&answer), [pointer], "{answer:?}");
    }
    assert_eq!(head(&it.operator).await, 1);
    assert_eq!(call(&it.gateway, "acme").await.body["revision"], 1);
}

#[tokio::test]
async fn two_bindings_of_one_priority_are_refused_with_both_and_the_tenants() {
    let it = stored().await;
    written(&put(&it.operator, "tenants/globex?expected_version=0", json!({})).await);
    let clash = json!({ "plugin": "content-policy", "tenant": "*", "priority": 10 });
    let answer = put(&it.operator, "bindings/clash?expected_version=0", clash.clone()).await;
    assert_http_error(&answer, Code::ConfigInvalid);
    assert_eq!(pointers(&answer).len(), 1, "{answer:?}");
    for part in ["`clash`", "`content-policy`", "`acme`", "`globex`", "priority 10"] {
        assert!(answer.body["detail"].to_string().contains(part), "{part}: {answer:?}");
    }
    // A disabled binding is in no chain until it is enabled.
    let mut off = clash;
    off["enabled"] = json!(false);
    let version = written(&put(&it.operator, "bindings/clash?expected_version=0", off).await);
    let on = patch(
        &it.operator,
        &format!("bindings/clash?expected_version={version}"),
        json!({ "enabled": true }),
    )
    .await;
    assert_http_error(&on, Code::ConfigInvalid);
    let negative = json!({ "enabled": true, "priority": -10 });
    written(&patch(&it.operator, &format!("bindings/clash?expected_version={version}"), negative).await);
}

#[tokio::test]
async fn what_the_file_owns_is_refused_to_the_api() {
    let it = stored().await;
    for answer in [
        put(&it.operator, "tenants/acme?expected_version=1", json!({})).await,
        patch(&it.operator, "bindings/content-policy?expected_version=1", json!({ "priority": 5 })).await,
        delete(&it.operator, "plugins/content-policy?expected_version=1&force=true").await,
        post(&it.operator, "plugins/content-policy/disable").await,
        apply(&it.operator, "", json!({ "remove": [{ "kind": "tenant", "name": "acme" }] })).await,
    ] {
        assert_eq!((answer.status, answer.body["code"].as_str()), (409, Some("CONFLICT")), "{answer:?}");
        assert!(answer.body["detail"].to_string().contains("configuration file owns"), "{answer:?}");
    }
    assert_eq!(head(&it.operator).await, 1);
}

#[tokio::test]
async fn without_a_registry_everything_is_shown_and_nothing_written() {
    let gateway = file_with("acme").start().await;
    let operator = gateway.admin(&crate::admin::registry::support::administrator());
    let tenants = get(&operator, "tenants").await.body;
    assert_eq!(
        tenants["tenants"],
        json!([{ "id": "acme", "owner": "file", "version": null, "spec": { "id": "acme" } }])
    );
    assert_eq!(tenants["revision"], 1);
    let binding = get(&operator, "bindings/content-policy").await.body;
    assert_eq!(
        (&binding["owner"], &binding["version"], &binding["spec"]["priority"]),
        (&json!("file"), &Value::Null, &json!(10))
    );
    let plugin = get(&operator, "plugins/content-policy").await.body;
    assert_eq!(
        (&plugin["owner"], &plugin["version"], &plugin["state"]),
        (&json!("file"), &Value::Null, &json!("ready"))
    );
    for answer in [
        put(&operator, "tenants/x?expected_version=0", json!({})).await,
        delete(&operator, "tenants/acme?expected_version=1").await,
        apply(&operator, "", json!({})).await,
        post(&operator, "revisions/1/rollback").await,
        get(&operator, "revisions").await,
    ] {
        assert_eq!((answer.status, answer.body["code"].as_str()), (409, Some("CONFLICT")), "{answer:?}");
        assert!(answer.body["detail"].to_string().contains("`store`"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_plugin_is_added_switched_off_and_on_and_goes_with_its_bindings_when_that_is_said() {
    let guard = FakePlugin::named("guard").start().await;
    let it = stored().await;
    let off = json!({ "endpoint": guard.endpoint(), "accepted": guard.accepted(), "enabled": false });
    written(&put(&it.operator, "plugins/guard?expected_version=0", off).await);
    let shown = get(&it.operator, "plugins/guard").await.body;
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("disabled"), &json!("disabled")));
    assert_eq!(guard.counts().connections, 0, "what is switched off is not dialled");

    let bind = json!({ "plugin": "guard", "tenant": "acme", "priority": 50 });
    written(&put(&it.operator, "bindings/watch?expected_version=0", bind).await);
    assert_eq!(call(&it.gateway, "acme").await.body["steps"].as_array().map(Vec::len), Some(0));
    written(&post(&it.operator, "plugins/guard/enable?reason=now").await);
    guard.wait_until(|counts| counts.connections > 0).await;
    assert_eq!(call(&it.gateway, "acme").await.body["steps"].as_array().map(Vec::len), Some(1));
    it.gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.enabled"))).await;

    let version = get(&it.operator, "plugins/guard").await.body["version"].to_string();
    let used = delete(&it.operator, &format!("plugins/guard?expected_version={version}")).await;
    assert_eq!((used.status, used.body["code"].as_str()), (409, Some("CONFLICT")));
    assert_eq!(pointers(&used), ["/bindings/watch/plugin"], "{used:?}");
    assert!(used.body["detail"].to_string().contains("`watch`"), "{used:?}");
    let gone = delete(&it.operator, &format!("plugins/guard?expected_version={version}&force=true")).await;
    written(&gone);
    assert_eq!(gone.body["changes"].as_array().map(Vec::len), Some(2), "{gone:?}");
    assert_http_error(&get(&it.operator, "bindings/watch").await, Code::NotFound);
    assert_eq!(call(&it.gateway, "acme").await.body["steps"].as_array().map(Vec::len), Some(0));
}

#[tokio::test]
async fn a_configuration_waits_for_its_plugin_and_the_active_one_stays() {
    let mut late = FakePlugin::named("late").start_unix().await;
    late.stop().await;
    let it = stored_as(file_with("acme").set("/startup/wait", "30s")).await;
    let document = json!({
        "plugins": [{ "name": "late", "endpoint": late.endpoint(), "accepted": late.accepted(), "required": true }],
        "bindings": [{ "plugin": "late", "tenant": "*", "priority": 40 }],
    });
    let waits = apply(&it.operator, "", document).await;
    let said = ["revision", "active", "unvalidated"].map(|member| waits.body[member].clone());
    assert_eq!(said, [json!(2), json!(false), json!(["late"])], "{waits:?}");
    let shown = get(&it.operator, "plugins/late").await.body;
    assert_eq!(
        (&shown["state"], &shown["reason"], &shown["version"]),
        (&json!("connecting"), &json!("not_dialled"), &json!(2))
    );
    assert_eq!(names(&get(&it.operator, "plugins?state=connecting").await, "plugins"), ["late"]);
    assert_eq!(call(&it.gateway, "acme").await.body["revision"], 1);
    late.start().await;
    it.gateway.wait_for_revision(2).await;
    assert_eq!(call(&it.gateway, "acme").await.body["steps"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn lists_come_in_parts_that_miss_nothing_and_are_filtered() {
    let it = stored_as(
        Gateway::with()
            .tenant("acme")
            .builtin("content-policy", &json!({}))
            .binding("content-policy", 10)
            .admin(),
    )
    .await;
    let tenants: Vec<_> = (0..25).map(|at| json!({ "id": format!("t{at:02}"), "labels": { "half": (at % 2).to_string(), "all": "é" }, "enabled": at != 3 })).collect();
    let bindings: Vec<_> = (0..3).map(|at| json!({ "name": format!("b{at}"), "plugin": "content-policy", "tenant": format!("t{at:02}"), "priority": 20 })).collect();
    written(&apply(&it.operator, "", json!({ "tenants": tenants, "bindings": bindings })).await);
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let part = get(&it.operator, &format!("tenants?limit=7{cursor}")).await;
        found.extend(names(&part, "tenants").into_iter().map(str::to_owned));
        // Objects that are added between pages neither hide nor duplicate others.
        if found.len() == 14 {
            written(&delete(&it.operator, "tenants/t05?expected_version=2").await);
        }
        let Some(next) = part.body["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let mut all: Vec<_> = (0..25).map(|at| format!("t{at:02}")).collect();
    all.insert(0, "acme".into());
    assert_eq!(found, all);
    let of = |path: &'static str, kind: &'static str| {
        let operator = it.operator.clone();
        async move { names(&get(&operator, path).await, kind).into_iter().map(str::to_owned).collect::<Vec<_>>() }
    };
    assert_eq!(of("tenants?owner=file", "tenants").await, ["acme"]);
    assert_eq!(of("tenants?enabled=false", "tenants").await, ["t03"]);
    assert_eq!(of("tenants?label.half=1&label.all=%C3%A9&limit=2", "tenants").await, ["t01", "t03"]);
    assert_eq!(of("bindings?tenant=t01", "bindings").await, ["b1"]);
    assert_eq!(of("bindings?tenant=*", "bindings").await, ["content-policy"]);
    assert_eq!(of("bindings?plugin=nobody", "bindings").await, [""; 0]);
    assert_eq!(of("plugins?state=ready&owner=file", "plugins").await, ["content-policy"]);
    for (wrong, named) in [
        ("tenants?cursor=nonsense", "`cursor`"),
        ("bindings?cursor=dGVuYW50AHQwMQ", "`cursor`"),
        ("revisions?cursor=dGVuYW50AHQwMQ", "`cursor`"),
        ("tenants?limit=0", "`limit`"),
        ("tenants?limit=501", "`limit`"),
        ("tenants?owner=me", "`owner`"),
        ("tenants?plugin=x", "`plugin`"),
        ("plugins?state=nice", "`state`"),
        ("tenants?owner=api&owner=file", "`owner` twice"),
        ("tenants/acme?x=1", "`x`"),
    ] {
        let answer = get(&it.operator, wrong).await;
        assert_http_error(&answer, Code::PayloadInvalid);
        assert!(answer.body["detail"].to_string().contains(named), "{wrong}: {answer:?}");
    }
}
