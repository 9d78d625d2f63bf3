//! Tests how the admin API shows the tools of plugins: in plans, manifests and pending manifests.

use hookgate_tests::{
    agent::HttpAgent,
    fake::FakePlugin,
    gateway::Gateway,
    token::{Token, token},
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::registry::support::{Stored, apply, ask, get, put, stored, written},
    registry::consent::{named_plugin_is, reason_is},
};

async fn plan(agent: &HttpAgent, query: &str) -> Value {
    let answer = agent.get(&format!("/admin/v1/tenants/acme/plan{query}")).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

#[tokio::test]
async fn a_plan_lists_tools_by_name_with_their_bindings_and_rivals() {
    let memory = FakePlugin::named("memory").tools(&["memory.find", "find"]).start().await;
    let search = FakePlugin::named("search").only(&[]).tools(&["find", "search"]).start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&memory)
        .plugin(&search)
        .binding_with("memory", 1, &json!({ "name": "notes", "deny_tools": ["no.such.tool"] }))
        .binding("search", 2)
        .admin()
        .start()
        .await;
    let operator = gateway.admin(&Token::for_operators().mint());
    let acme = plan(&operator, "").await;
    let expected = json!([
        { "name": "find", "plugin": "memory", "binding": "notes", "rival": "search" },
        { "name": "memory.find", "plugin": "memory", "binding": "notes" },
        { "name": "search", "plugin": "search", "binding": "search" },
    ]);
    assert_eq!(acme["points"]["before_tool_call"]["tools"], expected, "{acme:#}");
    for point in ["before_llm_request", "after_tool_result", "before_response"] {
        assert_eq!(acme["points"][point].get("tools"), None, "{point}");
    }
    let one = plan(&operator, "?point=before_tool_call").await;
    assert_eq!(one["points"]["before_tool_call"], acme["points"]["before_tool_call"]);
    // Agents get those that they can call.
    let listed = gateway.http(&token("acme")).get("/v1/tools").await.unwrap().body;
    let names: Vec<_> =
        listed["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["memory.find", "search"]);
}

#[tokio::test]
async fn a_plan_without_tools_has_no_member_for_them() {
    let guard = FakePlugin::named("guard").start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&guard).binding("guard", 1).admin().start().await;
    let acme = plan(&gateway.admin(&Token::for_operators().mint()), "").await;
    assert_eq!(acme["points"]["before_tool_call"].get("tools"), None);
}

/// A plugin that provides `memory.find`, and may provide tools named `notes.*`.
async fn memory() -> FakePlugin {
    let plugin = FakePlugin::named("memory").only(&[]).tools(&["memory.find"]);
    plugin.manifest(|manifest| manifest.tools.push("notes.*".into())).start().await
}

#[tokio::test]
async fn the_names_of_tools_wait_for_consent_and_are_then_in_the_manifest() {
    let plugin = memory().await;
    let Stored { gateway, operator, folder: _folder } = stored().await;
    let document = json!({
        "plugins": [{ "name": "memory", "endpoint": plugin.endpoint() }],
        "bindings": [{ "plugin": "memory", "tenant": "*", "priority": 20 }],
    });
    written(&apply(&operator, "", document).await);
    let pending =
        named_plugin_is(&operator, "memory", |plugin| plugin["pending_manifests"][0].is_object()).await;
    let wants = &pending["pending_manifests"][0];
    let globs = json!(["memory.find", "notes.*"]);
    assert_eq!(wants["accepted"]["tools"], globs);
    assert_eq!(wants["difference"]["tools"], json!({ "added": globs, "removed": [] }));
    assert_eq!(wants["accepted"], plugin.accepted());
    assert_eq!(plan(&operator, "").await["points"]["before_tool_call"].get("tools"), None);

    let body = json!({ "accepted": wants["accepted"] });
    written(&ask(&operator, Method::POST, "plugins/memory/approve", Some(&body)).await);
    let shown = named_plugin_is(&operator, "memory", reason_is("serving")).await;
    assert_eq!(shown["manifest"]["tool_names"], globs);
    assert_eq!(shown["manifest"]["tools"], json!(["memory.find"]));
    let tools = plan(&operator, "").await["points"]["before_tool_call"]["tools"].clone();
    assert_eq!(tools, json!([{ "name": "memory.find", "plugin": "memory", "binding": "memory" }]));
    drop(gateway);
}

#[tokio::test]
async fn an_entry_with_consent_serves_at_once_and_no_other_manifest_has_tools() {
    let plugin = memory().await;
    let Stored { gateway: _gateway, operator, folder: _folder } = stored().await;
    let entry = json!({ "endpoint": plugin.endpoint(), "accepted": plugin.accepted() });
    written(&put(&operator, "plugins/memory?expected_version=0", entry).await);
    let shown = named_plugin_is(&operator, "memory", reason_is("serving")).await;
    assert_eq!(shown["manifest"]["tools"], json!(["memory.find"]));
    let builtin = get(&operator, "plugins/content-policy").await.body;
    assert_eq!((builtin["manifest"].get("tool_names"), builtin["manifest"].get("tools")), (None, None));
}
