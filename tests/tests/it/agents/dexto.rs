//! `examples/dexto-agent`: what Dexto's sessions get of a gateway, and what happens without one.

use hookgate_proto::{
    plugin::v1::CallContext,
    types::v1::{
        BeforeLlmRequestPatch,
        ExtensionPoint::{AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall},
        MediaList,
    },
};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload},
    gateway::Gateway,
    token::{AUDIENCE, ISSUER, SECRET, Token, token},
};
use serde_json::{Value, json};

use super::{
    stand_in::{LARGE, Run, args_patch, content_patch, name_patch, nobody, result_patch, run, text_patch},
    support::url,
};

/// The plugin's entry in agent.yml: blocking, with the first secret as its token.
fn entry(url: &str) -> Value {
    json!({ "blocking": true, "config": { "url": url, "token": { "env": "SECRET_0" } } })
}

/// A turn with one call of a tool.
fn turn() -> Value {
    json!({
        "sessionId": "ses-1", "userId": "ada", "llmConfig": { "provider": "anthropic", "model": "m-1" },
        "text": "Read my mail.", "answer": "It is from Bob.", "reasoning": "It says so.",
        "tools": [{ "name": "mail.read", "args": { "id": LARGE }, "result": { "id": LARGE }, "callId": "call-1" }],
    })
}

async fn dexto(entry: &Value, turns: &Value, secrets: &[&str]) -> Run {
    run("dexto", &json!({ "entry": entry, "turns": turns }), secrets).await
}

/// What came of one turn.
async fn outcome(entry: &Value, turn: &Value) -> Value {
    let mut run = dexto(entry, &json!([turn]), &[&token("acme")]).await;
    run.outcome[0].take()
}

/// A gateway that asks this plugin at all points.
async fn asking(plugin: &FakePlugin) -> Gateway {
    let gateway = Gateway::with().tenant("acme").tenant("globex").plugin_without_breaker(plugin);
    gateway.binding(plugin.name(), 10).start().await
}

fn contexts(plugin: &FakePlugin) -> Vec<CallContext> {
    plugin.seen().into_iter().map(|seen| seen.call.context.expect("a call has a context")).collect()
}

#[tokio::test]
async fn the_gateways_plugins_see_a_dexto_session_as_it_is() {
    let plugin = FakePlugin::named("reader").start().await;
    let gateway = asking(&plugin).await;
    let mut turn = turn();
    turn["imageData"] = json!({ "image": "aGk=", "mimeType": "image/png" });
    turn["fileData"] =
        json!({ "data": "https://example.com/a.pdf", "mimeType": "application/pdf", "filename": "a" });
    turn["tenantId"] = json!(null);
    let outcome = outcome(&entry(&url(&gateway)), &turn).await;
    assert_eq!(outcome["model"], json!(["Read my mail.", { "id": LARGE }]));
    assert_eq!(outcome["ran"], json!([{ "toolName": "mail.read", "args": { "id": LARGE } }]));
    assert_eq!(outcome["shown"], "It is from Bob.");

    let payloads: Vec<_> = plugin.seen().into_iter().map(|seen| seen.payload).collect();
    let [
        Payload::BeforeLlmRequest(request),
        Payload::BeforeToolCall(call),
        Payload::AfterToolResult(result),
        Payload::BeforeResponse(response),
    ] = &payloads[..]
    else {
        panic!("{payloads:?}")
    };
    assert_eq!((&*request.text, request.images.len(), request.files.len()), ("Read my mail.", 1, 1));
    assert_eq!(request.files[0].filename.as_deref(), Some("a"));
    let large = format!(r#"{{"id":{LARGE}}}"#);
    assert_eq!((&call.args[..], call.call_id.as_deref()), (large.as_bytes(), Some("call-1")));
    assert_eq!((&result.result[..], result.success), (large.as_bytes(), Some(true)));
    assert_eq!((&*response.content, response.reasoning.as_deref()), ("It is from Bob.", Some("It says so.")));
    for context in contexts(&plugin) {
        assert_eq!((&*context.tenant, context.session_id.as_deref()), ("acme", Some("ses-1")));
        assert_eq!(
            (context.user_id.as_deref(), context.provider.as_deref()),
            (Some("ada"), Some("anthropic"))
        );
        assert_eq!(context.model.as_deref(), Some("m-1"));
    }
}

#[tokio::test]
async fn what_the_gateways_plugins_change_reaches_a_dexto_session() {
    let plugin = FakePlugin::named("rewriter")
        .at(BeforeLlmRequest, Act::patch(text_patch("Read my post.")))
        .at(BeforeToolCall, Act::patch(args_patch(&json!({ "id": LARGE, "limit": 1 }))))
        .at(AfterToolResult, Act::patch(result_patch(&json!({ "id": LARGE, "from": "[NAME]" }))))
        .at(BeforeResponse, Act::patch(content_patch("It is from [NAME].")))
        .start()
        .await;
    let gateway = asking(&plugin).await;
    let outcome = outcome(&entry(&url(&gateway)), &turn()).await;
    assert_eq!(outcome["model"], json!(["Read my post.", { "id": LARGE, "from": "[NAME]" }]));
    assert_eq!(outcome["ran"], json!([{ "toolName": "mail.read", "args": { "id": LARGE, "limit": 1 } }]));
    assert_eq!(outcome["shown"], "It is from [NAME].");
}

#[tokio::test]
async fn a_dexto_session_is_redacted_by_a_builtin_plugin() {
    let gateway = Gateway::with().tenant("acme").builtin("redact", &json!({})).binding("redact", 10);
    let gateway = gateway.start().await;
    let mut turn = turn();
    turn["text"] = json!("Write to ada@example.com");
    turn["answer"] = json!("Done: ada@example.com");
    turn["tools"] = json!([
        { "name": "mail.read", "args": {}, "result": { "id": LARGE, "from": "ada@example.com" } },
        { "name": "mail.read", "args": {}, "error": "no mail" },
    ]);
    let outcome = outcome(&entry(&url(&gateway)), &turn).await;
    let expected = json!(["Write to [EMAIL]", { "id": LARGE, "from": "[EMAIL]" }, { "error": "no mail" }]);
    assert_eq!((&outcome["model"], &outcome["shown"]), (&expected, &json!("Done: [EMAIL]")));
    assert_eq!(outcome["ran"].as_array().map(Vec::len), Some(2), "{outcome}");
    assert_eq!(outcome["notices"], json!(["REDACTED", "REDACTED", "REDACTED"]));
}

#[tokio::test]
async fn a_block_stops_a_dexto_session_at_each_point() {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = asking(&plugin).await;
    let message = "Not on your plan.";
    let error = json!({ "error": message });
    for (point, model, runs, shown) in [
        (BeforeLlmRequest, json!([]), 0, message),
        (BeforeToolCall, json!(["Read my mail.", error]), 0, "It is from Bob."),
        (AfterToolResult, json!(["Read my mail.", error]), 1, "It is from Bob."),
        (BeforeResponse, json!(["Read my mail.", { "id": LARGE }]), 1, message),
    ] {
        plugin.set(point, Act::cancel("QUOTA_EXCEEDED", message));
        let outcome = outcome(&entry(&url(&gateway)), &turn()).await;
        assert_eq!((&outcome["model"], &outcome["shown"]), (&model, &json!(shown)), "{point:?}");
        assert_eq!(outcome["ran"].as_array().map(Vec::len), Some(runs), "{point:?}: {outcome}");
        assert_eq!(outcome["notices"], json!(["QUOTA_EXCEEDED"]), "Dexto's status is that of the code");
        plugin.set(point, Act::pass());
    }
}

/// The session ends with an error, before the model is asked.
async fn assert_stops(entry: &Value, secret: &str, why: &str) {
    let run = dexto(entry, &json!([turn()]), &[secret]).await;
    let outcome = &run.outcome[0];
    let failed = outcome["failed"].as_str().unwrap_or_else(|| panic!("{why}: {run:?}"));
    assert!(
        failed.starts_with("Plugin 'hookgate' failed: no decision at beforeLlmRequest: "),
        "{why}: {failed}"
    );
    assert_eq!((&outcome["model"], &outcome["ran"]), (&json!([]), &json!([])), "{why}");
}

#[tokio::test]
async fn a_dexto_session_stops_without_a_decision() {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = asking(&plugin).await;
    let (_port, nobody) = nobody();
    assert_stops(&entry(&nobody), &token("acme"), "nobody listens").await;
    let expired = Token::for_tenant("acme").expiring_in(-100).mint();
    assert_stops(&entry(&url(&gateway)), &expired, "the token has expired").await;
    plugin.set(BeforeLlmRequest, Act::hang());
    let mut short = entry(&url(&gateway));
    short["config"]["timeoutMs"] = json!(300);
    assert_stops(&short, &token("acme"), "a plugin hangs").await;

    plugin.set(BeforeLlmRequest, Act::pass());
    for (point, runs) in [(BeforeToolCall, 0), (AfterToolResult, 1), (BeforeResponse, 1)] {
        plugin.set(point, Act::status(tonic::Code::Internal, "broken"));
        let outcome = outcome(&entry(&url(&gateway)), &turn()).await;
        let seen = if point == BeforeResponse { &outcome["failed"] } else { &outcome["model"][1]["error"] };
        let seen = seen.as_str().unwrap_or_default();
        assert!(seen.starts_with("Plugin 'hookgate' failed: no decision at "), "{point:?}: {outcome}");
        assert!(seen.contains("PLUGIN_ERROR"), "{point:?}: {outcome}");
        assert_eq!(outcome["ran"].as_array().map(Vec::len), Some(runs), "{point:?}: {outcome}");
        plugin.set(point, Act::pass());
    }
}

#[tokio::test]
async fn a_dexto_session_stops_where_dexto_cannot_apply_a_change() {
    let plugin = FakePlugin::named("rewriter").start().await;
    let gateway = asking(&plugin).await;
    let mut turn = turn();
    turn["imageData"] = json!({ "image": "aGk=", "mimeType": "image/png" });
    for patch in [
        BeforeLlmRequestPatch { images: Some(MediaList::default()), ..Default::default() },
        BeforeLlmRequestPatch { system_prompt: Some("Be brief.".into()), ..Default::default() },
    ] {
        plugin.set(BeforeLlmRequest, Act::patch(patch));
        let outcome = outcome(&entry(&url(&gateway)), &turn).await;
        let failed = outcome["failed"].as_str().unwrap_or_default();
        assert!(failed.contains("Dexto can't apply that"), "{outcome}");
    }
    plugin.set(BeforeLlmRequest, Act::pass());
    plugin.set(BeforeToolCall, Act::patch(name_patch("mail.peek")));
    let outcome = outcome(&entry(&url(&gateway)), &turn).await;
    let error = outcome["model"][1]["error"].as_str().unwrap_or_default();
    assert!(error.contains("renamed the tool"), "{outcome}");
    assert_eq!(outcome["ran"], json!([]));
}

/// Dexto itself goes on then: the README says so.
#[tokio::test]
async fn a_dexto_plugin_that_is_not_blocking_stops_nothing() {
    let (_port, nobody) = nobody();
    let mut entry = entry(&nobody);
    entry["blocking"] = json!(false);
    let outcome = outcome(&entry, &turn()).await;
    assert_eq!(outcome["shown"], "It is from Bob.");
    assert_eq!(outcome["ran"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn the_tenants_of_a_dexto_agent_are_never_mixed() {
    let plugin = FakePlugin::named("guard")
        .at_with(BeforeToolCall, |seen| match &*seen.call.context.as_ref().expect("it has one").tenant {
            "acme" => Act::cancel("TOOL_NOT_ALLOWED", "Not for acme."),
            _ => Act::pass(),
        })
        .start()
        .await;
    let gateway = asking(&plugin).await;
    let (acme, globex) = (token("acme"), token("globex"));
    let tokens = json!({ "tokens": { "acme": { "env": "SECRET_0" }, "globex": { "env": "SECRET_1" } } });
    let signer = json!({
        "signer": { "secret": { "env": "SECRET_2" }, "issuer": ISSUER, "audience": AUDIENCE, "operator": "dexto" },
    });
    for (mut config, unknown) in [(tokens, "config has no token"), (signer, "TENANT_UNKNOWN")] {
        config["url"] = json!(url(&gateway));
        config["token"] = json!({ "env": "SECRET_0" });
        let tenants = ["acme", "globex"].into_iter().cycle().take(12).chain(["initech", ""]);
        let turn_of = |tenant: &str| {
            let mut turn = turn();
            turn["tenantId"] = json!(tenant);
            turn["sessionId"] = json!(format!("session-of-{tenant}"));
            turn
        };
        let turns: Vec<_> = tenants.clone().map(turn_of).collect();
        let entry = json!({ "blocking": true, "config": config });
        let run = dexto(&entry, &json!(turns), &[&acme, &globex, SECRET]).await;
        for (tenant, outcome) in tenants.zip(run.outcome.as_array().expect("a list")) {
            match tenant {
                "acme" => assert_eq!(outcome["model"][1]["error"], "Not for acme.", "{outcome}"),
                "globex" => assert_eq!(outcome["model"][1], json!({ "id": LARGE }), "{outcome}"),
                tenant => {
                    let failed = outcome["failed"].as_str().unwrap_or_default();
                    let expected = if tenant.is_empty() { "tenantId is empty" } else { unknown };
                    assert!(failed.contains(expected), "{outcome}");
                }
            }
        }
    }
    for context in contexts(&plugin) {
        assert_eq!(context.session_id, Some(format!("session-of-{}", context.tenant)));
    }
}

#[tokio::test]
async fn a_mistake_in_the_configuration_ends_dextos_start() {
    let token = json!({ "env": "SECRET_0" });
    let signer = json!({
        "secret": { "env": "SECRET_0" }, "issuer": "i", "audience": "a", "operator": "o",
    });
    let url = "http://127.0.0.1:1";
    for (config, mistake) in [
        (json!({ "token": token }), "config.url is missing"),
        (json!({ "url": url }), "config has no token"),
        (json!({ "url": url, "token": token, "tokken": token }), "config.tokken is unknown"),
        (json!({ "url": url, "tokens": { "acme": token }, "signer": signer }), "leave one of them out"),
        (json!({ "url": url, "token": token, "timeoutMs": 6000 }), "config.timeoutMs must be"),
        (json!({ "url": url, "token": "a token in the file" }), "config.token must be"),
        (json!({ "url": url, "tokens": { "acme": null } }), "config.tokens.acme must be"),
        (json!({ "url": url, "signer": signer }), "config.signer.secret: the secret has 14 bytes"),
        (json!(null), "config is missing"),
        (json!({ "url": url, "token": null }), "config.token must be"),
        (json!({ "url": url, "token": "" }), "config.token must be"),
        (json!({ "url": url, "token": { "env": "" } }), "config.token must be"),
        (json!({ "url": url, "token": { "env": "UNSET" } }), "config.token: the environment has no UNSET"),
        (json!({ "url": url, "tokens": {} }), "config.tokens names no tenant"),
        (json!({ "url": url, "tokens": null }), "config.tokens names no tenant"),
        (
            json!({ "url": url, "tokens": { "a": { "env": "UNSET" } } }),
            "config.tokens.a: the environment has no",
        ),
        (json!({ "url": url, "token": token, "signer": null }), "config.signer must have"),
        (json!({ "url": url, "signer": { "secret": token } }), "config.signer.issuer is missing"),
        (
            json!({ "url": url, "signer": { "secret": { "env": "UNSET" }, "issuer": "i", "audience": "a", "operator": "o" } }),
            "config.signer.secret: the environment has no UNSET",
        ),
    ] {
        let entry = json!({ "blocking": true, "config": config });
        let run = dexto(&entry, &json!([turn()]), &["a short secret"]).await;
        let failed = run.outcome["startFailed"].as_str().unwrap_or_default();
        assert!(failed.contains(mistake), "{mistake}: {run:?}");
        assert!(!failed.contains("a token in the file"), "{failed}");
    }
}
