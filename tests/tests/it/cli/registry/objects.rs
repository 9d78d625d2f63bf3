//! Tests `hookgate tenant`, `binding`, `plugin` and `revision`: what they show, which version a write
//! requires, and the messages for missing objects.

use std::time::Duration;

use hookgate_tests::fake::{FakePlugin, Handshake};
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::Status;

use crate::{
    cli::registry::support::Desk,
    edge::support::POINT,
    registry::support::{call, file_with},
};

#[tokio::test]
async fn a_tenant_is_created_changed_in_what_is_named_and_removed_for_the_next_call() {
    let plugin = FakePlugin::named("guard").start_unix().await;
    let desk = Desk::of(file_with("acme").plugin(&plugin).binding("guard", 20)).await;
    let set = ["tenant", "set", "nova", "--label", "plan=gold", "--rate", "100/s", "--reason", "they pay"];
    let tried = desk.does(&[&set[..], &["--dry-run"]].concat()).await;
    assert!(tried.starts_with("+ tenant nova\n    labels.plan  gold\n    limits.rate  100/s\n"), "{tried}");
    assert!(tried.contains("nova    calls               unknown -> served\n"), "{tried}");
    assert!(tried.ends_with("\nDry run: nothing was written.\n"), "{tried}");
    assert_eq!(call(&desk.gateway, "nova").await.body["code"], "TENANT_UNKNOWN");
    let done = desk.does(&set).await;
    assert!(done.ends_with("\nWritten as revision 2, which is active.\n"), "{done}");
    assert_eq!(call(&desk.gateway, "nova").await.body["revision"], 2);

    assert_eq!(desk.does(&set).await, "Nothing to change.\n");
    let config = r#"guard={"max_input_chars": 7, "redact_emails": true}"#;
    desk.does(&[
        "tenant",
        "set",
        "nova",
        "--label",
        "region=eu",
        "--limit-in-flight",
        "3",
        "--config",
        config,
    ])
    .await;
    desk.folder.write("smaller.yaml", "max_input_chars: 9\n");
    desk.does(&["tenant", "set", "nova", "--config", "guard=@smaller.yaml"]).await;
    desk.folder.write("more.yaml", "labels: { region: null }\nanswer: { detail: minimal }\n");
    desk.does(&["tenant", "set", "nova", "-f", "more.yaml"]).await;
    let shown = desk.json(&["tenant", "show", "nova"]).await;
    assert_eq!(
        shown["spec"],
        json!({
            "id": "nova",
            "labels": { "plan": "gold" },
            "limits": { "rate": "100/s", "in_flight": 3 },
            "config": { "guard": { "max_input_chars": 9 } },
            "answer": { "detail": "minimal" },
        })
    );
    desk.does(&["tenant", "set", "nova", "--enabled", "false"]).await;
    assert_eq!(call(&desk.gateway, "nova").await.body["code"], "TENANT_DISABLED");

    let all = desk.does(&["tenant", "list"]).await;
    assert!(all.contains("acme    yes      -          file   1\n") && all.contains("plan=gold"), "{all}");
    let some = desk.json(&["tenant", "list", "--selector", "plan=gold"]).await;
    assert_eq!(
        (some["tenants"].as_array().map(Vec::len), &some["tenants"][0]["id"]),
        (Some(1), &json!("nova"))
    );
    let none = desk.does(&["tenant", "list", "--selector", "plan=tin"]).await;
    assert_eq!(none, "There are no tenants.\n");
    desk.does(&["tenant", "remove", "nova"]).await;
    assert_eq!(call(&desk.gateway, "nova").await.body["code"], "TENANT_UNKNOWN");
}

/// Writes require the version that was read or given, so a faster writer is not overwritten.
#[tokio::test]
async fn a_write_with_another_version_is_refused_with_the_current_one() {
    let desk = Desk::new().await;
    desk.does(&["tenant", "set", "nova"]).await;
    desk.does(&["tenant", "set", "nova", "--label", "a=1"]).await;
    let stale = "hookgate: the version of tenant `nova` is 3, and 2 is expected; read it again: hookgate tenant show nova\n";
    let label = ["tenant", "set", "nova", "--label", "a=2", "--expected-version", "2"];
    desk.fails(&label, 1, stale).await;
    desk.fails(&["tenant", "remove", "nova", "--expected-version", "2"], 1, stale).await;
    let again = ["tenant", "set", "nova", "--expected-version", "0"];
    desk.fails(&again, 1, "there is already a tenant `nova`: its version is 3; read it again").await;
    let answer = desk.run(&[&label[..], &["--output", "json"]].concat()).await;
    assert_eq!((answer.code, &answer.json()["code"]), (Some(1), &json!("CONFLICT")), "{answer:?}");
    assert_eq!(desk.head().await, 3, "nothing was written");
    desk.does(&["tenant", "set", "nova", "--label", "a=2", "--expected-version", "3"]).await;
}

#[tokio::test]
async fn what_would_be_wrong_is_said_line_by_line_and_not_written() {
    let desk = Desk::new().await;
    let one = "hookgate: nothing was written because of a mistake:\n  /limits/in_flight: ";
    desk.fails(&["tenant", "set", "nova", "--limit-in-flight", "0"], 2, one).await;
    desk.folder.write("wrong.yaml", "limits: { in_flight: 0 }\ncolour: red\n");
    let two = desk.run(&["tenant", "set", "nova", "-f", "wrong.yaml"]).await;
    assert_eq!((two.code, two.stderr.lines().count()), (Some(2), 3), "{two:?}");
    assert!(
        two.stderr.contains("\n  /colour: ") && two.stderr.contains("\n  /limits/in_flight: "),
        "{two:?}"
    );
    let binding = ["binding", "set", "b", "--plugin", "nobody", "--all", "--priority", "7"];
    desk.fails(&binding, 2, "\n  /plugin: there is no plugin `nobody`").await;
    desk.fails(&["binding", "set", "b"], 2, "nothing was written").await;
    desk.fails(&["tenant", "set", "acme", "--label", "a=b"], 1, "the configuration file owns tenant `acme`")
        .await;
    desk.fails(&["tenant", "show", "nobody"], 1, "there is no tenant `nobody`; see `hookgate tenant list`")
        .await;
    desk.fails(&["binding", "disable", "nobody"], 1, "there is no binding `nobody`").await;
    let reason = "PAYLOAD_INVALID (the caller failed): --reason must be at most 500 bytes";
    desk.fails(&["tenant", "set", "nova", "--reason", &"x".repeat(501)], 2, reason).await;
    let bypass =
        ["binding", "bypass", "content-policy", "--tenant", "acme", "--reason", "INC", "--for", "25h"];
    desk.fails(&bypass, 2, "(the caller failed): --for must be a time from 1s to 24h").await;
    desk.fails(&["tenant", "set", ""], 2, "The id of a tenant must have 1 to 256 bytes").await;
    assert_eq!(desk.head().await, 1);
}

/// Whatever its name: the error is about the new object, not about existing ones.
#[tokio::test]
async fn of_two_bindings_in_one_place_the_one_that_is_written_is_wrong() {
    let desk = Desk::new().await;
    for name in ["clash", "zebra"] {
        let binding = ["binding", "set", name, "--plugin", "content-policy", "--all", "--priority", "10"];
        let said = format!("\n  /priority: bindings `content-policy` and `{name}` both have priority 10");
        desk.fails(&binding, 2, &said).await;
        desk.fails(&binding, 2, &format!(": give `{name}` another one")).await;
    }
    assert_eq!(desk.head().await, 1);
}

/// A wide cell makes the table wide, and changes nothing else.
#[tokio::test]
async fn a_list_is_shown_whatever_is_written_in_it_and_in_parts() {
    let desk = Desk::new().await;
    let label = "x".repeat(900_000);
    desk.folder.write("wide.yaml", &format!("labels: {{ wide: {label} }}\nenabled: false\n"));
    desk.does(&["tenant", "set", "wide", "-f", "wide.yaml"]).await;
    desk.does(&["tenant", "set", "nova"]).await;
    let list = desk.does(&["tenant", "list"]).await;
    assert_eq!(
        (list.lines().count(), list.lines().all(|line| line.chars().count() < 400)),
        (4, true),
        "{list}"
    );
    let all = desk.json(&["tenant", "list"]).await;
    assert_eq!(all["tenants"][2]["spec"]["labels"]["wide"], label);
    let names = async |args: &[&str]| {
        let list = desk.json(&[&["tenant", "list"], args].concat()).await;
        let ids = list["tenants"].as_array().expect("a list").iter().map(|tenant| tenant["id"].to_string());
        ids.collect::<Vec<_>>().join(" ").replace('"', "")
    };
    assert_eq!(names(&["--owner", "file"]).await, "acme");
    assert_eq!(names(&["--owner", "api", "--enabled", "true"]).await, "nova");
    assert_eq!(names(&["--enabled", "false"]).await, "wide");
}

/// The line itself says what happened to which object.
#[tokio::test]
async fn an_event_of_the_registry_says_who_wrote_what_and_of_a_bypass_what_until_when() {
    let desk = Desk::new().await;
    desk.does(&["tenant", "set", "nova", "--reason", "new"]).await;
    desk.does(&["binding", "bypass", "content-policy", "--tenant", "acme", "--for", "1h", "--reason", "INC"])
        .await;
    let written = desk.does(&["events", "--event", "registry.written"]).await;
    let author =
        format!("author={}", desk.json(&["revision", "show", "2"]).await["author"].as_str().expect("text"));
    assert!(written.contains(&author) && written.contains("objects=created tenant nova"), "{written}");
    let bypassed = desk.does(&["events", "--event", "binding.bypassed"]).await;
    assert!(bypassed.contains(" tenant=acme binding=content-policy until=20"), "{bypassed}");
}

#[tokio::test]
async fn a_binding_is_set_for_one_tenant_for_some_or_for_all_and_switched() {
    let desk = Desk::new().await;
    let observe = ["--plugin", "content-policy", "--priority", "-5", "--mode", "observe"];
    desk.does(&[&["binding", "set", "b", "--tenant", "acme"], &observe[..]].concat()).await;
    desk.does(&["binding", "set", "b", "--selector", "plan=gold", "--selector", "region=eu"]).await;
    desk.does(&["binding", "set", "b", "--selector", "plan=tin", "--points", "before-llm-request"]).await;
    let shown = desk.json(&["binding", "show", "b"]).await;
    let base = json!({ "name": "b", "plugin": "content-policy", "priority": -5, "mode": "observe" });
    let with = |more: Value| {
        let mut spec = base.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    assert_eq!(
        shown["spec"],
        with(json!({ "selector": { "plan": "tin" }, "points": ["before_llm_request"] }))
    );
    desk.does(&["binding", "set", "b", "--all", "--match", "models=gpt-*", "--match", "models=claude-*"])
        .await;
    desk.does(&[
        "binding",
        "set",
        "b",
        "--match",
        "label.team=a*",
        "--match",
        "contains=hi",
        "--timeout",
        "50ms",
    ])
    .await;
    let shown = desk.json(&["binding", "show", "b"]).await;
    let all = json!({
        "tenant": "*", "points": ["before_llm_request"], "timeout": "50ms",
        "match": { "labels": { "team": ["a*"] }, "text": { "contains": ["hi"] } },
    });
    assert_eq!(shown["spec"], with(all), "the conditions take the place of those that were");
    desk.fails(&["binding", "set", "b", "--match", "tool=x"], 2, "--match must be KEY=GLOB with the key")
        .await;
    desk.fails(&["binding", "set", "b", "--all", "--tenant", "acme"], 2, "cannot be used with").await;

    let switched = desk.does(&["binding", "disable", "b", "--reason", "noise"]).await;
    assert!(switched.starts_with("~ binding b\n    enabled  (absent) -> false\n"), "{switched}");
    desk.does(&["binding", "enable", "b"]).await;
    let listed = desk.does(&["binding", "list", "--plugin", "content-policy", "--tenant", "*"]).await;
    assert!(
        listed.contains("b               content-policy  every tenant  -5        observe  yes"),
        "{listed}"
    );
    desk.does(&["binding", "remove", "b", "--dry-run"]).await;
    desk.does(&["binding", "remove", "b"]).await;
    desk.fails(&["binding", "show", "b"], 1, "there is no binding `b`").await;
}

#[tokio::test]
async fn a_plugin_is_added_described_bound_and_goes_only_when_nothing_names_it() {
    let desk = Desk::new().await;
    let plugin = FakePlugin::named("guard").only(&[POINT]).start_unix().await;
    let endpoint = plugin.endpoint();
    let add = ["plugin", "add", "guard", "--endpoint", &endpoint];
    desk.does(&[&add[..], &["--dry-run"]].concat()).await;
    desk.fails(&["plugin", "show", "guard"], 1, "there is no plugin `guard`").await;
    let secret = r#"{"api_key": "hunter2", "kept": "${HOOKGATE_SECRET_KEPT:-none}"}"#;
    let added = desk.does(&[&add[..], &["--yes", "--config", secret]].concat()).await;
    for line in [
        "+ plugin guard\n",
        "\nWritten as revision 2.\n",
        "\nApproved guard in revision 3.\n",
        "\nstate     ready\n",
        "\nmanifest  guard ",
    ] {
        assert!(added.contains(line), "no {line} in {added}");
    }
    assert!(added.contains("\nat        before_tool_call: may rewrite, "), "{added}");
    assert!(added.contains("config.api_key  ***\n") && !added.contains("hunter2"), "{added}");
    desk.fails(&[&add[..], &["--yes"]].concat(), 1, "plugin `guard` already exists, at version 3").await;

    // Named members change; the others stay, including the secret.
    let shown = desk.does(&["plugin", "set", "guard", "--version", ">=0", "--grant", "log"]).await;
    assert!(!shown.contains("hunter2") && !shown.contains("api_key"), "{shown}");
    desk.does(&["binding", "set", "g", "--plugin", "guard", "--all", "--priority", "5"]).await;
    assert_eq!(call(&desk.gateway, "acme").await.status, 200);
    assert_eq!(plugin.seen().len(), 1);
    let listed = desk.does(&["plugin", "list", "--state", "ready"]).await;
    assert!(listed.contains("guard           ready  "), "{listed}");
    desk.does(&["plugin", "disable", "guard"]).await;
    assert_eq!(call(&desk.gateway, "acme").await.status, 200);
    assert_eq!(plugin.seen().len(), 1, "it is in no plan");
    desk.does(&["plugin", "enable", "guard"]).await;
    assert_eq!(call(&desk.gateway, "acme").await.status, 200);
    assert_eq!(plugin.seen().len(), 2);

    let kept =
        "hookgate: bindings use plugin `guard`: `g`; delete them first, or give --force to delete them too\n";
    desk.fails(&["plugin", "remove", "guard"], 1, kept).await;
    let gone = desk.does(&["plugin", "remove", "guard", "--force"]).await;
    assert!(gone.starts_with("- plugin guard\n- binding g\n"), "{gone}");
    assert_eq!(desk.json(&["binding", "list", "--plugin", "guard"]).await["bindings"], json!([]));
}

#[tokio::test]
async fn a_plugin_that_is_refused_or_away_is_told_of_and_stays() {
    let desk = Desk::new().await;
    let plugin = FakePlugin::named("guard").start_unix().await;
    let endpoint = plugin.endpoint();
    let other = ["plugin", "add", "other", "--yes", "--endpoint", &endpoint];
    desk.fails(&other, 1, "`other` was added, and is refused: NAME_MISMATCH: the plugin's name is `guard`")
        .await;
    let away = ["plugin", "add", "away", "--yes", "--endpoint", "http://127.0.0.1:1", "--wait", "3s"];
    desk.fails(&away, 1, "`away` was added, and is ").await;
    desk.fails(&away, 1, "plugin `away` already exists").await;
    for name in ["other", "away"] {
        assert_eq!(desk.json(&["plugin", "show", name]).await["spec"]["name"], name);
        desk.does(&["plugin", "remove", name]).await;
    }
    let late = ["plugin", "add", "late", "--yes", "--endpoint", "http://127.0.0.1:1", "--wait", "61s"];
    desk.fails(&late, 2, "--wait is 60s at most").await;
}

#[tokio::test]
async fn a_built_in_plugin_or_model_is_named_instead_of_an_address() {
    let desk = Desk::of(file_with("acme").set("/llm", json!({}))).await;
    desk.does(&["plugin", "create", "redact", "--builtin", "redact"]).await;
    assert_eq!(desk.json(&["plugin", "show", "redact"]).await["spec"]["builtin"], "redact");
    let other = ["plugin", "add", "other", "--builtin", "redact"];
    let named = "the plugin's name is `redact`, but it is registered as `other`: name the entry `redact`, as the built-in \
                 plugin is called";
    desk.fails(&other, 1, named).await;
    // An entry has one of the two.
    let plugin = FakePlugin::named("redact").start_unix().await;
    desk.does(&["plugin", "set", "redact", "--endpoint", &plugin.endpoint()]).await;
    let spec = desk.json(&["plugin", "show", "redact"]).await["spec"].clone();
    assert_eq!((&spec["builtin"], &spec["endpoint"]), (&Value::Null, &json!(plugin.endpoint())), "{spec}");
    desk.does(&["plugin", "set", "redact", "--builtin", "redact"]).await;
    let spec = desk.json(&["plugin", "show", "redact"]).await["spec"].clone();
    assert_eq!((&spec["builtin"], &spec["endpoint"]), (&json!("redact"), &Value::Null), "{spec}");
    desk.does(&["plugin", "delete", "redact"]).await;

    desk.does(&["upstream", "set", "demo", "--builtin", "demo-model"]).await;
    assert_eq!(desk.json(&["upstream", "show", "demo"]).await["spec"]["builtin"], "demo-model");
    desk.does(&["upstream", "delete", "demo"]).await;
}

#[tokio::test]
async fn revisions_say_who_did_what_and_why_and_lead_back() {
    let desk = Desk::new().await;
    desk.does(&["tenant", "set", "nova", "--label", "plan=gold", "--reason", "they pay"]).await;
    desk.does(&["tenant", "set", "nova", "--label", "plan=tin"]).await;
    desk.does(&["tenant", "set", "vega"]).await;
    let list = desk.does(&["revision", "list"]).await;
    let lines: Vec<_> = list.lines().collect();
    assert_eq!(lines.len(), 5, "{list}");
    assert!(
        lines[1].starts_with("4 ")
            && lines[3].contains("unix:")
            && lines[3].contains("  1 tenant ")
            && lines[3].ends_with("  they pay"),
        "{list}"
    );
    assert!(lines[4].contains("file") && lines[4].contains("1 plugin, 1 tenant, 1 binding"), "{list}");
    let shown = desk.does(&["revision", "show", "3"]).await;
    assert!(shown.ends_with("\n~ tenant nova\n    labels.plan  gold -> tin\n"), "{shown}");
    let differs = desk.does(&["revision", "diff", "2"]).await;
    assert_eq!(differs, "~ tenant nova\n    labels.plan  gold -> tin\n+ tenant vega\n");
    assert_eq!(
        desk.does(&["revision", "diff", "2", "3"]).await,
        "~ tenant nova\n    labels.plan  gold -> tin\n"
    );
    assert_eq!(desk.does(&["revision", "diff", "4"]).await, "No difference.\n");
    desk.fails(&["revision", "show", "9"], 1, "hookgate: there is no revision 9\n").await;

    let tried = desk.does(&["revision", "rollback", "2", "--dry-run"]).await;
    assert!(tried.starts_with("~ tenant nova\n    labels.plan  tin -> gold\n- tenant vega\n"), "{tried}");
    let unasked = ["revision", "rollback", "2"];
    desk.fails(&unasked, 2, "nothing was written: there is no terminal to ask on").await;
    assert_eq!(desk.head().await, 4);
    let done = desk.does(&["revision", "rollback", "2", "--yes", "--reason", "back"]).await;
    assert!(done.ends_with("Written as revision 5, which is active.\n"), "{done}");
    assert_eq!(desk.json(&["tenant", "show", "nova"]).await["spec"]["labels"]["plan"], "gold");
    assert_eq!(call(&desk.gateway, "vega").await.body["code"], "TENANT_UNKNOWN");
    assert_eq!(desk.does(&["revision", "rollback", "2", "--yes"]).await, "Nothing to change.\n");
}

#[tokio::test]
async fn a_rollback_without_a_reason_names_its_revision_and_revision_0_is_none() {
    let desk = Desk::new().await;
    desk.does(&["tenant", "set", "nova", "--label", "plan=gold"]).await;
    desk.does(&["tenant", "set", "nova", "--label", "plan=tin"]).await;
    for how in ["--dry-run", "--yes"] {
        let said = "hookgate: there is no revision 0\n";
        desk.fails(&["revision", "rollback", "0", how], 1, said).await;
        desk.fails(&["revision", "rollback", "0", how, "--expected-revision", "3"], 1, said).await;
    }
    assert_eq!(desk.head().await, 3);
    assert!(desk.does(&["revision", "diff", "0", "3"]).await.contains("+ tenant nova\n"));
    desk.does(&["revision", "rollback", "2", "--yes"]).await;
    assert_eq!(desk.json(&["revision", "show", "4"]).await["reason"], "rolled back to 2");
    let written = desk.does(&["events", "--event", "registry.written"]).await;
    assert!(written.contains("reason=rolled back to 2"), "{written}");
}

#[tokio::test]
async fn a_write_that_ends_a_refusal_says_so_and_whether_calls_are_guarded_then() {
    let plugin = FakePlugin::named("guard").start_unix().await;
    let desk = Desk::of(file_with("acme").plugin(&plugin)).await;
    let refused = desk.does(&["tenant", "set", "nova", "--require-steps", "before_response"]).await;
    assert!(refused.contains("before_response     nothing runs; refused: STEPS_REQUIRED\n"), "{refused}");
    desk.folder.write("none.json", r#"{ "require_steps": [] }"#);
    let ends = ["tenant", "set", "nova", "-f", "none.json", "--dry-run"];
    let row = "nova    before_response  nothing runs; calls were refused and now pass unguarded\n";
    assert!(desk.does(&ends).await.contains(row));

    let set = ["binding", "set", "g", "--plugin", "guard", "--tenant", "nova", "--priority", "30"];
    let observes = [&set[..], &["--points", "before_response", "--mode", "observe"]].concat();
    let observed = desk.does(&observes).await;
    assert!(observed.contains("before_response  +g: runs g; refused: STEPS_REQUIRED\n"), "{observed}");
    let row = "nova    before_response  runs g; calls were refused and now pass unguarded\n";
    assert!(desk.does(&ends).await.contains(row));
    let disabled = desk.does(&["tenant", "set", "nova", "--enabled", "false", "--dry-run"]).await;
    assert!(disabled.contains("served -> disabled\n") && !disabled.contains("refused"), "{disabled}");
    let guarded = desk.does(&["binding", "set", "g", "--mode", "enforce"]).await;
    assert!(guarded.contains("before_response  ~g: runs g; no longer refused\n"), "{guarded}");
}

/// A list is complete, however many pages it has.
#[tokio::test]
async fn a_list_of_several_pages_is_shown_as_one() {
    let desk = Desk::new().await;
    let tenants: String = (0..600).map(|at| format!("  - id: t{at:04}\n")).collect();
    desk.folder.write("many.yaml", &format!("tenants:\n{tenants}"));
    let applied = timeout(Duration::from_secs(60), desk.does(&["apply", "-f", "many.yaml", "--yes"])).await;
    assert!(applied.expect("it ends").contains("and 580 more\n"));
    assert_eq!(desk.does(&["tenant", "list"]).await.lines().count(), 1 + 601);
}

/// Without a registry, everything can be shown and nothing written.
#[tokio::test]
async fn without_a_registry_everything_is_shown_and_nothing_written() {
    let folder = crate::cli::support::Folder::new();
    let socket = folder.0.path().join("admin.sock").display().to_string();
    let _gateway = file_with("acme").set("/server/admin_socket", socket.as_str()).start().await;
    let address = format!("unix://{socket}");
    let env = [("HOOKGATE_ADMIN_ADDR", address.as_str())];
    let run = |args: &'static [&'static str]| folder.run_with(args, &env, "");
    let list = run(&["tenant", "list"]).await;
    assert!(list.code == Some(0) && list.stdout.contains("acme    yes      -       file   -\n"), "{list:?}");
    let nobody = "hookgate: without a `store`, the configuration file is the only source of objects";
    for args in [
        &["tenant", "set", "acme", "--label", "a=b"][..],
        &["tenant", "set", "nova"],
        &["revision", "list"],
        &["plugin", "disable", "content-policy"],
    ] {
        let ran = run(args).await;
        assert!(ran.code == Some(1) && ran.stderr.starts_with(nobody), "{args:?}: {ran:?}");
    }
}

#[tokio::test]
async fn a_rejected_entry_fails_the_write_and_shows_in_every_view_of_the_plugin() {
    let (desk, plugin) = (Desk::new().await, FakePlugin::named("guard").start().await);
    desk.does(&["plugin", "add", "guard", "--endpoint", &plugin.endpoint(), "--yes"]).await;
    plugin.set_initialize(Handshake::Fails(Status::invalid_argument("level 2 is too high")));
    let refused = desk.run(&["plugin", "set", "guard", "--config", r#"{"level": 2}"#]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let said = "hookgate: written, but the plugin `guard` rejected it: CONFIG_REFUSED: ";
    assert!(refused.stderr.starts_with(said), "{refused:?}");
    assert!(refused.stderr.trim_end().ends_with("; the previous entry stays active"), "{refused:?}");
    assert!(refused.stdout.ends_with(", which is active except for the rejected entries.\n"), "{refused:?}");
    assert!(desk.does(&["plugin", "list"]).await.contains("ready, new entry rejected: CONFIG_REFUSED"));
    let shown = desk.does(&["plugin", "show", "guard"]).await;
    assert!(shown.contains("\nrejected  the new entry: CONFIG_REFUSED: "), "{shown}");
    desk.fails(&["plugin", "describe", "guard"], 1, "the plugin rejected its new entry: CONFIG_REFUSED: ")
        .await;
    // Writing the same entry again fails again; writes of other objects aren't affected.
    let unchanged = desk.run(&["plugin", "set", "guard", "--config", r#"{"level": "***"}"#]).await;
    assert_eq!((unchanged.code, &*unchanged.stdout), (Some(1), "Nothing to change.\n"), "{unchanged:?}");
    let said = "hookgate: nothing to write, but the plugin `guard` rejected it: CONFIG_REFUSED: ";
    assert!(unchanged.stderr.starts_with(said), "{unchanged:?}");
    desk.does(&["tenant", "set", "nova"]).await;
    plugin.set_initialize(Handshake::Proper);
    desk.does(&["plugin", "describe", "guard"]).await;
    assert!(!desk.does(&["plugin", "show", "guard"]).await.contains("refuses"));
}

#[tokio::test]
async fn a_binding_is_set_at_hooks_or_at_points() {
    let plugin = FakePlugin::named("notes").hooks(&["recall", "turn_end"]).start_unix().await;
    let desk = Desk::of(file_with("acme").plugin(&plugin)).await;
    let set = ["binding", "set", "n", "--plugin", "notes", "--all", "--priority", "30"];
    let done = desk.does(&[&set[..], &["--hooks", "recall,turn_end"]].concat()).await;
    for said in
        ["    hooks     [\"recall\",\"turn_end\"]\n", "recall    +n: runs n\n", "turn_end  +n: runs n\n"]
    {
        assert!(done.contains(said), "{said}: {done}");
    }
    let list = desk.does(&["binding", "list"]).await;
    let row = list.lines().find(|line| line.starts_with("n ")).expect("it is listed");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[4..6], ["30", "advise"], "{list}");
    assert!(desk.does(&["binding", "show", "n"]).await.contains("  hooks:\n  - recall\n  - turn_end\n"));

    // One list replaces the other.
    desk.does(&["binding", "set", "n", "--points", "before_response"]).await;
    let spec = &desk.json(&["binding", "show", "n"]).await["spec"];
    assert_eq!((&spec["points"], &spec["hooks"]), (&json!(["before_response"]), &Value::Null));
    let done = desk.does(&["binding", "set", "n", "--hooks", "turn_end", "--mode", "observe"]).await;
    assert!(
        done.contains("before_response  -n: ") && done.contains("turn_end         +n: runs n\n"),
        "{done}"
    );

    let enforce = ["binding", "set", "n", "--hooks", "recall", "--mode", "enforce"];
    desk.fails(&enforce, 2, "\n  /mode: ").await;
    desk.fails(&["binding", "set", "n", "--hooks", "Recall"], 2, "the name of a hook is a lower-case letter")
        .await;
    let both = ["binding", "set", "n", "--hooks", "recall", "--points", "before_response"];
    desk.fails(&both, 2, "cannot be used with").await;
}
