//! Tests `hookgate env`: a shell that evaluates its lines reaches the gateway as the client would, and what can't work is
//! an error instead of lines.

use hookgate_tests::{
    gateway::{Gateway, Setup, binary},
    token::SECRET,
};
use serde_json::{Value, json};

use crate::{
    admin::registry::support::{Stored, apply, stored_as, written},
    cli::support::{CommandOutput, Folder, pasted, smallest},
};

const CLIENTS: [&str; 4] = ["openai", "anthropic", "claude-code", "codex"];

/// The smallest file with a model for clients of both APIs.
fn file() -> Value {
    let mut file = smallest();
    file["server"]["data_addr"] = json!("127.0.0.1:8080");
    file["llm"] = json!({
        "upstreams": [
            { "name": "demo", "builtin": "demo-model" },
            { "name": "demo-messages", "builtin": "demo-model", "format": "anthropic" },
        ],
        "models": [{ "match": "demo", "upstream": "demo" }, { "match": "demo", "upstream": "demo-messages" }],
    });
    file
}

fn folder(file: &Value) -> Folder {
    let folder = Folder::new();
    folder.write("f.yaml", &file.to_string());
    folder
}

async fn env(folder: &Folder, client: &str, more: &[&str]) -> CommandOutput {
    folder.run(&[&["env", client, "--config", "f.yaml"], more].concat()).await
}

/// The lines of a client, with `TOKEN` in place of the token.
async fn lines(folder: &Folder, client: &str, more: &[&str]) -> Vec<String> {
    let ran = env(folder, client, &[&["--tenant", "acme"], more].concat()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let hidden = |line: &str| match line.split_once("=eyJ") {
        Some((name, token)) if token.matches('.').count() == 2 => format!("{name}=TOKEN"),
        _ => line.to_owned(),
    };
    ran.stdout.lines().map(hidden).collect()
}

#[tokio::test]
async fn each_client_gets_the_variables_that_it_reads() {
    let folder = folder(&file());
    for (client, expected) in [
        (
            "openai",
            &["export OPENAI_BASE_URL=http://127.0.0.1:8080/openai/v1", "export OPENAI_API_KEY=TOKEN"][..],
        ),
        (
            "anthropic",
            &[
                "export ANTHROPIC_BASE_URL=http://127.0.0.1:8080/anthropic",
                "export ANTHROPIC_API_KEY=TOKEN",
                "unset ANTHROPIC_AUTH_TOKEN",
            ],
        ),
        (
            "claude-code",
            &[
                "export ANTHROPIC_BASE_URL=http://127.0.0.1:8080/anthropic",
                "export ANTHROPIC_AUTH_TOKEN=TOKEN",
                "unset ANTHROPIC_API_KEY",
            ],
        ),
        ("codex", &["export HOOKGATE_TOKEN=TOKEN"]),
    ] {
        assert_eq!(lines(&folder, client, &[]).await, expected, "{client}");
        // Only Codex needs something else, which is said where a shell doesn't evaluate it.
        let said = env(&folder, client, &["--tenant", "acme"]).await.stderr;
        assert_eq!(said.contains("--toml"), client == "codex", "{said}");
        assert_eq!(said.is_empty(), client != "codex", "{said}");
    }
}

/// Codex never gets the name `OpenAI`, with which it would compress requests and open WebSockets.
#[tokio::test]
async fn the_file_for_codex_is_toml_without_a_token() {
    let ran = env(&folder(&file()), "codex", &["--toml", "--url", "https://gw.example.com/"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let read: Value = toml::from_str(&ran.stdout).unwrap();
    let provider = json!({
        "name": "Hookgate",
        "base_url": "https://gw.example.com/openai/v1",
        "env_key": "HOOKGATE_TOKEN",
        "wire_api": "responses",
        "supports_websockets": false,
    });
    let expected = json!({ "model_provider": "hookgate", "model_providers": { "hookgate": provider } });
    assert_eq!(read, expected);
}

#[tokio::test]
async fn a_shell_that_evaluates_the_lines_reaches_the_models() {
    let mut served = file();
    served["server"]["data_addr"] = json!("127.0.0.1:0");
    let gateway = Setup::file(&served.to_string()).start().await;
    gateway.wait_until_ready().await;
    let folder = folder(&file());
    let program = tokio::task::spawn_blocking(|| binary().display().to_string()).await.unwrap();
    let config = folder.0.path().join("f.yaml").display().to_string();
    let url = format!("http://{}", gateway.data_addr());
    let lines =
        |client: &str| format!("$('{program}' env {client} --config '{config}' --tenant acme --url {url})");
    let bearer = |name: &str| format!("-H \"authorization: Bearer ${name}\"");
    let key = "${ANTHROPIC_API_KEY+-H \"x-api-key: $ANTHROPIC_API_KEY\"}";
    let token = "${ANTHROPIC_AUTH_TOKEN+-H \"authorization: Bearer $ANTHROPIC_AUTH_TOKEN\"}";
    for (client, request) in [
        ("openai", format!("$OPENAI_BASE_URL/models {}", bearer("OPENAI_API_KEY"))),
        // With the tokens that are set, as their SDK does.
        ("anthropic", format!("$ANTHROPIC_BASE_URL/v1/models {key} {token}")),
        ("claude-code", format!("$ANTHROPIC_BASE_URL/v1/models {key} {token}")),
        ("codex", format!("{url}/openai/v1/models {}", bearer("HOOKGATE_TOKEN"))),
    ] {
        let others = "export ANTHROPIC_API_KEY=other ANTHROPIC_AUTH_TOKEN=other OPENAI_API_KEY=other";
        let ran = pasted(&format!("{others}; eval \"{}\" && curl -sf {request}", lines(client))).await;
        assert!(ran.code == Some(0) && ran.stdout.contains(r#""id":"demo""#), "{client}: {ran:?}");
    }
    // Without the quotes the shell gets one line.
    let request = format!("$OPENAI_BASE_URL/models {}", bearer("OPENAI_API_KEY"));
    let ran = pasted(&format!("eval {} && curl -sf {request}", lines("openai"))).await;
    assert!(ran.code == Some(0) && ran.stdout.contains(r#""id":"demo""#), "{ran:?}");
}

#[tokio::test]
async fn the_token_is_made_like_any_other() {
    let folder = folder(&file());
    let args = ["--tenant", "acme", "--operator", "ada", "--ttl", "15m"];
    let ran = env(&folder, "openai", &args).await;
    let token = ran.stdout.lines().find_map(|line| line.strip_prefix("export OPENAI_API_KEY=")).unwrap();
    let inspect = ["token", "inspect", token, "--config", "f.yaml", "--output", "json"];
    let said = folder.run(&inspect).await.json();
    assert_eq!((&said["tenant"], &said["operator"]), (&json!("acme"), &json!("ada")), "{said}");
    assert_eq!(said["scopes"], json!(["hookgate:invoke"]), "{said}");
    let expiry = said["expiry"].as_str().unwrap();
    assert!(expiry.starts_with("in 14 min") || expiry.starts_with("in 15 min"), "{said}");

    let refused = env(&folder, "openai", &["--tenant", "nobody"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains("hookgate errors TENANT_UNKNOWN"), "{refused:?}");
}

#[tokio::test]
async fn the_address_is_the_first_that_is_given() {
    let mut wildcard = file();
    wildcard["server"]["data_addr"] = json!("0.0.0.0:8080");
    let (own, wildcard) = (folder(&file()), folder(&wildcard));
    let args = ["env", "openai", "--config", "f.yaml", "--tenant", "acme"];
    let variable = [("HOOKGATE_ADDR", "https://gw.example.com")];
    for (folder, more, env, expected) in [
        (&own, &[][..], &[][..], "http://127.0.0.1:8080"),
        (&own, &[], &variable[..], "https://gw.example.com"),
        (&own, &["--url", "http://[::1]:80"], &variable, "'http://[::1]"),
        (&wildcard, &[], &variable, "https://gw.example.com"),
    ] {
        let ran = folder.run_with(&[&args[..], more].concat(), env, "").await;
        let line = format!("export OPENAI_BASE_URL={expected}/openai/v1");
        assert!(ran.stdout.starts_with(&line), "{ran:?}");
    }
    for (folder, more, expected) in [
        (&wildcard, &[][..], "clients can't call `0.0.0.0:8080`, which is `server.data_addr` of f.yaml"),
        (&own, &["--url", "gw.example.com"], "--url is not a gateway's address"),
        (&own, &["--url", "https://gw.example.com/openai/v1"], "--url must end after the port"),
    ] {
        let ran = env(folder, "openai", &[&["--tenant", "acme"], more].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{expected}: {ran:?}");
    }
}

#[tokio::test]
async fn a_gateway_without_models_for_the_client_gets_no_lines() {
    let without = folder(&smallest());
    let mut only_openai = file();
    only_openai["llm"]["upstreams"].as_array_mut().unwrap().pop();
    only_openai["llm"]["models"].as_array_mut().unwrap().pop();
    let only_openai = folder(&only_openai);
    for client in CLIENTS {
        let ran = env(&without, client, &["--tenant", "acme"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains("f.yaml has no `llm`"), "{ran:?}");
        let ran = env(&only_openai, client, &["--tenant", "acme"]).await;
        let is_served = matches!(client, "openai" | "codex");
        assert_eq!(ran.code, Some(if is_served { 0 } else { 1 }), "{ran:?}");
        assert!(is_served || ran.stderr.contains("Anthropic's API") && ran.stdout.is_empty(), "{ran:?}");
        assert!(!ran.stderr.contains(SECRET) && !ran.stderr.contains("eyJ"), "{ran:?}");
    }
}

/// An upstream alone gives no model: a rule leads to it, and the tenant's own list may leave out what the rules have.
#[tokio::test]
async fn a_client_whose_tenant_can_name_no_model_gets_no_lines() {
    let mut without_rule = file();
    without_rule["llm"]["models"].as_array_mut().unwrap().pop();
    let without_rule = folder(&without_rule);
    assert_eq!(env(&without_rule, "openai", &["--tenant", "acme"]).await.code, Some(0));
    let ran = env(&without_rule, "anthropic", &["--tenant", "acme"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    let expected = "no rule in `llm.models` of f.yaml leads to an upstream that does: add one with `upstream: demo-messages`";
    assert!(ran.stderr.contains(expected), "{ran:?}");
    let toml = env(&without_rule, "codex", &["--toml"]).await;
    assert_eq!(toml.code, Some(0), "{toml:?}");

    for (rule, models, is_served) in [
        ("demo", json!(["dmeo"]), false),
        ("demo", json!(["dmeo*", "other"]), false),
        ("de*", json!(["fast"]), false),
        ("demo", json!([]), false),
        ("demo", json!(["dmeo", "demo"]), true),
        ("demo", json!(["dem*"]), true),
        ("de*", json!(["demo"]), true),
        ("de*", json!(["*mo"]), true),
        ("demo", Value::Null, true),
    ] {
        let mut file = file();
        file["llm"]["models"][0]["match"] = json!(rule);
        file["tenants"]["list"][0]["llm"] = json!({ "models": models });
        let ran = env(&folder(&file), "openai", &["--tenant", "acme"]).await;
        assert_eq!(ran.code, Some(if is_served { 0 } else { 1 }), "{rule} {models}: {ran:?}");
        let expected = format!(
            "tenant `acme` may name no model of OpenAI's API: no rule for that API matches anything of its `llm.models` in f.yaml, only `{rule}`: "
        );
        assert!(is_served || ran.stderr.contains(&expected) && ran.stdout.is_empty(), "{ran:?}");
    }
}

/// Only the gateway knows the models of its registry.
#[tokio::test]
async fn models_of_the_registry_are_asked_of_the_gateway() {
    let mut setup = Gateway::with().tenant("acme").tenant("globex").admin();
    setup = setup.set("/llm", json!({}));
    let Stored { gateway, operator, folder: _store } = stored_as(setup).await;
    let folder = Folder::new();
    std::fs::copy(gateway.file(), folder.0.path().join("f.yaml")).unwrap();
    let url = format!("http://{}", gateway.data_addr());
    let run = async |client: &str, tenant: &str, url: &str| {
        let ran = env(&folder, client, &["--tenant", tenant, "--url", url]).await;
        (ran.code, ran.stdout.lines().count(), ran.stderr)
    };
    let none = format!(
        "hookgate: {url} lists no model for the client: a request must name one that a rule with a wildcard matches \
         (`hookgate model list`)\n"
    );
    assert_eq!(run("openai", "acme", &url).await, (Some(0), 2, none.clone()));

    let document = json!({
        "upstreams": [{ "name": "demo", "builtin": "demo-model" }],
        "models": [{ "match": "demo", "upstream": "demo" }],
        "tenants": [{ "id": "nova" }, { "id": "vega", "llm": { "models": [] } }],
    });
    written(&apply(&operator, "", document).await);
    assert_eq!(run("openai", "acme", &url).await, (Some(0), 2, String::new()));
    let (code, lines, said) = run("openai", "nova", &url).await;
    assert!((code, lines) == (Some(0), 2) && said.contains("the file doesn't list tenant `nova`"), "{said}");
    let (code, lines, said) = run("openai", "vega", &url).await;
    assert!((code, lines) == (Some(0), 2) && said.ends_with(&none), "{said}");
    assert_eq!(run("claude-code", "acme", &url).await, (Some(0), 3, none));
    let (code, lines, said) = run("openai", "nobody", &url).await;
    assert_eq!((code, lines), (Some(1), 0), "{said}");
    assert!(said.contains(&format!("{url} refuses to list the client's models: ")), "{said}");
    assert!(!said.contains("eyJ"), "{said}");

    let (code, lines, said) = run("anthropic", "acme", "http://127.0.0.1:1").await;
    assert_eq!((code, lines), (Some(0), 3), "the gateway need not run yet: {said}");
    assert_eq!(
        said,
        "hookgate: whether the registry has models for the client was not checked: no gateway answers at http://127.0.0.1:1\n"
    );
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let folder = folder(&file());
    for (args, expected) in [
        (&["env", "openai", "--config", "f.yaml"][..], "--tenant <TENANT>"),
        (&["env", "openai", "--tenant", "acme"], "--config <FILE>"),
        (&["env", "--config", "f.yaml", "--tenant", "acme"], "<CLIENT>"),
        (
            &["env", "cursor", "--config", "f.yaml", "--tenant", "acme"],
            "openai, anthropic, claude-code, codex",
        ),
        (&["env", "openai", "--config", "f.yaml", "--toml"], "--toml is only for codex"),
    ] {
        let ran = folder.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{expected}: {ran:?}");
    }
}
