//! Tests `hookgate config check --connect` with a registry: it shows what a start would find, and writes
//! nothing.

use hookgate::{
    core::object::{ObjectKind, Owner},
    store::{ObjectContent, Tables},
};
use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::fake::FakePlugin;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::{
    cli::support::{CommandOutput, Folder, smallest},
    store::support::{Place, api, change, draft},
};

/// A file with two tenants, and its store at `url`.
fn file(url: &str) -> Value {
    let mut file = smallest();
    file["store"] = json!({ "url": url });
    file
}

async fn check(file: &Value, more: &[&str]) -> CommandOutput {
    let folder = Folder::new();
    folder.write("f.yaml", &format!("{file:#}"));
    folder.run(&[&["config", "check", "f.yaml"], more].concat()).await
}

async fn connect(file: &Value) -> CommandOutput {
    check(file, &["--connect"]).await
}

async fn by_hand(place: &Place, sql: &str) {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    if place.url.starts_with("sqlite") {
        sql.execute(&mut SqliteConnection::connect(&place.url).await.unwrap()).await.map(drop)
    } else {
        sql.execute(&mut PgConnection::connect(&place.url).await.unwrap()).await.map(drop)
    }
    .unwrap();
}

#[tokio::test]
async fn a_check_says_what_a_start_would_find_and_leaves_the_store_as_it_was() {
    for place in Place::every().await {
        let file = file(&place.url);
        let plain = check(&file, &[]).await;
        assert!(
            plain.code == Some(0) && plain.stdout.contains(" was not read; use --connect to read it\n"),
            "{plain:?}"
        );
        assert_eq!(plain.stdout.lines().count(), 2, "{plain:?}");
        for _ in 0..2 {
            let ran = connect(&file).await;
            let says = ": revision 0, 0 objects owned by the API; a start creates its tables; a start writes 2 objects from the file\n";
            assert!(ran.code == Some(0) && ran.stdout.contains(says), "{place}: {ran:?}");
        }
        assert_eq!(place.open().look().await.unwrap().tables, Tables::Absent, "{place}: nothing was made");

        let store = place.prepared().await;
        let spec = |id: &str| api(json!({ "id": id }));
        let first = draft(0, vec![change(ObjectKind::Tenant, "nova", None, spec("nova"))]);
        store.commit(&first).await.unwrap();
        let ran = connect(&file).await;
        let says = ": revision 1, 1 object owned by the API; a start writes 2 objects from the file\n";
        assert!(ran.code == Some(0) && ran.stdout.contains(says), "{place}: {ran:?}");
        let told = check(&file, &["--connect", "--output", "json"]).await.json()["store"].take();
        let read =
            (&told["revision"], &told["tables"], &told["of_api"], &told["to_write"], &told["unreachable"]);
        assert_eq!(read, (&json!(1), &json!("current"), &json!(1), &json!(2), &Value::Null), "{place}");
        let mut alone = file.clone();
        alone["store"]["apply_file"] = json!(false);
        let ran = connect(&alone).await;
        assert!(
            ran.code == Some(0) && ran.stdout.contains("(`store.apply_file: false`)\n"),
            "{place}: {ran:?}"
        );

        let columns = "(version, description, success, checksum, execution_time)";
        let checksum = if place.url.starts_with("sqlite") { "x'00'" } else { "'\\x00'" };
        by_hand(
            &place,
            &format!("INSERT INTO hookgate_migrations {columns} VALUES (9999, 'later', TRUE, {checksum}, 1)"),
        )
        .await;
        let ran = connect(&file).await;
        assert!(
            ran.code == Some(0) && ran.stdout.contains("; its tables are of a later version, which"),
            "{place}: {ran:?}"
        );
        let older = "DELETE FROM hookgate_migrations WHERE version > 1; DROP TABLE hookgate_bypasses;
                     DROP TABLE hookgate_plugin_data; DROP TABLE hookgate_signing_keys";
        by_hand(&place, older).await;
        let ran = connect(&file).await;
        let says = "1 object owned by the API; a start migrates its tables to this version; a start writes";
        assert!(ran.code == Some(0) && ran.stdout.contains(says), "{place}: {ran:?}");
        assert_eq!(
            (store.head().await.unwrap(), place.open().look().await.unwrap().tables),
            (1, Tables::Older),
            "{place}"
        );
    }
}

#[tokio::test]
async fn what_would_keep_a_process_from_starting_is_a_mistake_with_its_place() {
    let binding = |members: Value| {
        let mut spec = json!({ "name": "own", "plugin": "content-policy", "tenant": "acme", "priority": 7 });
        spec.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        change(ObjectKind::Binding, "own", None, api(spec))
    };
    for place in Place::every().await {
        let mut file = file(&place.url);
        file["plugins"] = json!([{ "name": "content-policy", "builtin": "content-policy" }]);
        file["bindings"] = json!([{ "plugin": "content-policy", "tenant": "*", "priority": 1 }]);
        let store = place.prepared().await;
        let taken = change(ObjectKind::Tenant, "acme", None, api(json!({ "id": "acme" })));
        let strange = change(ObjectKind::Tenant, "x", None, api(json!({ "id": "x", "colour": "red" })));
        let steps: [(_, &[&str]); 4] = [
            (
                taken,
                &[
                    "/tenants/list/0: tenant `acme` of the file already exists in the registry, written through the API (revision 1)",
                    "f.yaml:",
                ],
            ),
            (strange, &["tenant `x` in the registry can't be read by this version: unknown field `colour`"]),
            (
                binding(json!({ "plugin": "nobody" })),
                &["binding `own` in the registry: /plugin: ", "`nobody`"],
            ),
            // The file's binding conflicts with one of the API.
            (binding(json!({ "priority": 1 })), &["f.yaml:", ": /bindings/0/priority: ", "`own`"]),
        ];
        let mut base = 0;
        for (what, says) in steps {
            base = store.commit(&draft(base, vec![what.clone()])).await.unwrap();
            let ran = connect(&file).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{place}: {ran:?}");
            for part in says {
                assert!(ran.stderr.contains(part), "{place}: no {part} in {ran:?}");
            }
            assert_eq!(check(&file, &[]).await.code, Some(0), "the file by itself is valid");
            let gone = change(what.kind, &what.name, what.after, None);
            base = store.commit(&draft(base, vec![gone])).await.unwrap();
        }
        assert_eq!(connect(&file).await.code, Some(0));
    }
}

/// Mistakes that only asking plugins finds.
#[tokio::test]
async fn what_plugins_refuse_in_the_file_is_shown_with_its_line_as_without_a_store() {
    let guard = FakePlugin::named("guard")
        .only(&[ExtensionPoint::BeforeToolCall])
        .config_schema(json!({ "properties": { "level": { "type": "integer" } } }))
        .tenant_config_schema(json!({ "properties": { "tools": { "type": "array" } } }))
        .start()
        .await;
    let mut bindings = smallest();
    bindings["egress"] = json!({ "cidrs": ["127.0.0.0/8"] });
    bindings["plugins"] = json!([{ "name": "guard", "endpoint": guard.endpoint() }]);
    bindings["bindings"] = json!([{ "plugin": "guard", "tenant": "*", "priority": 9, "points": ["before_tool_call", "before_response"] }]);
    bindings["tenants"]["list"][0]["config"] = json!({ "guard": { "tools": "all" } });
    let mut plugin = bindings.clone();
    plugin["plugins"][0]["config"] = json!({ "level": "high" });
    // The registry lists these before the file's.
    let place = Place::file();
    let store = place.prepared().await;
    let api_plugin = json!({ "name": "a", "endpoint": guard.endpoint(), "enabled": false });
    let own = json!({ "name": "own", "plugin": "guard", "tenant": "a", "priority": 3, "points": ["before_response"] });
    let objects = [(ObjectKind::Plugin, "a", api_plugin), (ObjectKind::Tenant, "a", json!({ "id": "a" }))];
    let changes = objects.map(|(kind, name, spec)| change(kind, name, None, api(spec)));
    store.commit(&draft(0, changes.to_vec())).await.unwrap();
    let mistakes = |ran: &CommandOutput| -> (Option<i32>, Vec<Value>) {
        let place =
            |mistake: &Value| json!([mistake["pointer"], mistake["message"], mistake["line"].is_u64()]);
        (ran.code, ran.json()["mistakes"].as_array().unwrap().iter().map(place).collect())
    };
    let as_json = &["--connect", "--output", "json"];
    for (mut file, pointers) in [
        (bindings.clone(), &["/bindings/0/points/1", "/tenants/list/0/config/guard"][..]),
        (plugin, &["/plugins/0/config"]),
    ] {
        let without = mistakes(&check(&file, as_json).await);
        for pointer in pointers {
            let is_found = without.1.iter().any(|mistake| mistake[0] == *pointer && mistake[2] == true);
            assert!(is_found, "{without:?}");
        }
        file["store"] = json!({ "url": &place.url });
        assert_eq!(mistakes(&check(&file, as_json).await), without);
    }
    // What the API owns has no line.
    bindings["store"] = json!({ "url": &place.url });
    let own = change(ObjectKind::Binding, "own", None, api(own));
    store.commit(&draft(1, vec![own])).await.unwrap();
    let ran = connect(&bindings).await;
    assert!(ran.stderr.contains("binding `own` in the registry: /points/0: "), "{ran:?}");
    assert!(ran.stderr.contains(": /bindings/0/points/1: "), "{ran:?}");
}

#[tokio::test]
async fn a_store_that_can_not_be_reached_is_told_of_and_the_file_is_checked_all_the_same() {
    for (url, said) in [
        (
            "postgres://olga:hunter2@127.0.0.1:1/registry",
            "the store can't be reached: PostgreSQL at 127.0.0.1:1: ",
        ),
        ("sqlite:/nowhere/hookgate.db", "the store can't be reached: the folder /nowhere of the file"),
    ] {
        let ran = connect(&file(url)).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(said) && ran.stderr.contains("the last good table"), "{ran:?}");
        assert!(
            ran.stdout.starts_with("f.yaml: no mistakes: 2 tenants") && !ran.stderr.contains("hunter2"),
            "{ran:?}"
        );
    }
    let folder = Folder::new();
    let path = folder
        .write("hookgate.db", "this is no database, whatever it is called, and it is long enough to be none");
    let ran = connect(&file(&format!("sqlite:{}", path.display()))).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("is not a SQLite database"), "{ran:?}");
}

#[tokio::test]
async fn plugins_of_the_api_are_asked_as_a_start_would() {
    let plugin = FakePlugin::named("guard").start().await;
    let waiting = FakePlugin::named("waiting").start().await;
    let place = Place::file();
    let mut file = file(&place.url);
    file["egress"] = json!({ "cidrs": ["127.0.0.0/8"] });
    let store = place.prepared().await;
    let spec = json!({ "name": "guard", "endpoint": plugin.endpoint(), "accepted": plugin.accepted() });
    let new = |name: &str, spec: Value| change(ObjectKind::Plugin, name, None, api(spec));
    store.commit(&draft(0, vec![new("guard", spec)])).await.unwrap();
    let ran = connect(&file).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("guard   http://127"), "{ran:?}");
    assert_eq!(plugin.initialized().len(), 1);
    let spec = json!({ "name": "waiting", "endpoint": waiting.endpoint() });
    store.commit(&draft(1, vec![new("waiting", spec)])).await.unwrap();
    let ran = connect(&file).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("plugin `waiting` at"), "{ran:?}");
    assert!(ran.stderr.contains("is waiting for approval"), "{ran:?}");
    assert_eq!(waiting.initialized().len(), 0);
}

/// docs/decisions/0037-what-the-registry-requires.md
#[tokio::test]
async fn what_only_the_registry_requires_ends_no_start_and_so_no_check_with_4() {
    let mut plugin = FakePlugin::named("guard").start().await;
    let place = Place::file();
    let mut file = file(&place.url);
    file["egress"] = json!({ "cidrs": ["127.0.0.0/8"] });
    let store = place.prepared().await;
    let accepted = plugin.accepted();
    let spec = |accepted: Value| {
        api(json!({ "name": "guard", "endpoint": plugin.endpoint(), "accepted": accepted, "required": true }))
    };
    let unapproved = spec(Value::Null);
    let approved = spec(accepted);
    store
        .commit(&draft(0, vec![change(ObjectKind::Plugin, "guard", None, unapproved.clone())]))
        .await
        .unwrap();
    let ran = connect(&file).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("is waiting for approval"), "{ran:?}");
    assert!(!ran.stderr.contains("not ready without it"), "it holds nothing up: {ran:?}");

    store.commit(&draft(1, vec![change(ObjectKind::Plugin, "guard", unapproved, approved)])).await.unwrap();
    assert_eq!(connect(&file).await.code, Some(0));
    plugin.stop().await;
    let ran = connect(&file).await;
    assert!(ran.code == Some(1) && ran.stderr.starts_with("plugin `guard` at http://127."), "{ran:?}");
    let remedy = "; a gateway is not ready without it: start the plugin there, or correct its endpoint: `hookgate plugin set`\n";
    assert!(ran.stderr.ends_with(remedy), "{ran:?}");

    // What the file requires does hold up a start.
    file["plugins"] = json!([{ "name": "own", "endpoint": "http://127.0.0.1:1", "required": true }]);
    let ran = connect(&file).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("required plugin `own` at http://127.0.0.1:1 is unhealthy: "), "{ran:?}");
    assert!(ran.stderr.contains("there, or correct `endpoint`\n"), "{ran:?}");

    // Except in a process that doesn't apply the file.
    let own = ObjectContent { owner: Owner::File, spec: file["plugins"][0].clone().into() };
    store.commit(&draft(2, vec![change(ObjectKind::Plugin, "own", None, Some(own))])).await.unwrap();
    file["store"]["apply_file"] = json!(false);
    let ran = connect(&file).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = "; a gateway is not ready without it: start the plugin there, or correct `endpoint`\n";
    assert!(ran.stderr.contains(said), "{ran:?}");
}

#[tokio::test]
async fn a_plugin_that_cannot_reach_the_services_is_refused_as_a_start_refuses_it() {
    let plugin = FakePlugin::named("storing")
        .manifest(|manifest| manifest.capabilities = vec!["storage:read".into()])
        .start()
        .await;
    let mut file = file("sqlite:new.db");
    file["plugins"] =
        json!([{ "name": "storing", "endpoint": plugin.endpoint(), "grants": ["storage:read"] }]);
    let ran = connect(&file).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("set `server.host_addr`"), "{ran:?}");
    file["server"]["host_addr"] = json!("127.0.0.1:0");
    let ran = connect(&file).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[tokio::test]
async fn a_built_in_plugin_that_keeps_counts_needs_a_database() {
    for name in ["circuit-breaker", "loop-detect", "rate-limit"] {
        let mut file = smallest();
        file["plugins"] = json!([{ "name": name, "builtin": name }]);
        let ran = check(&file, &["--output", "json"]).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let mistakes = ran.json();
        assert_eq!(mistakes.as_array().map(Vec::len), Some(1), "{mistakes}");
        let message = mistakes[0]["message"].as_str().unwrap_or_default();
        assert!(
            mistakes[0]["pointer"] == "/plugins/0/builtin" && message.contains("set `store`"),
            "{mistakes}"
        );
        file["store"] = json!({ "url": "sqlite:new.db" });
        let ran = check(&file, &[]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}
