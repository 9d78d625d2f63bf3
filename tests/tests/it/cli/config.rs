//! Tests `hookgate config`: it finds the same mistakes as a start, shows no secret, and its schema is the
//! one in git.

use std::fs;

use hookgate_tests::{gateway::Gateway, repository, token::token};
use serde_json::{Value, json};

use crate::{
    cli::support::{Folder, smallest},
    edge::support::{POINT, payload},
};

/// The smallest file with a member set.
fn with(pointer: &str, value: Value) -> String {
    let mut file = smallest();
    let (above, last) = pointer.rsplit_once('/').unwrap();
    file.pointer_mut(above).unwrap()[last] = value;
    file.to_string()
}

fn with_plugins(plugins: Value, bindings: Value) -> String {
    let mut file = smallest();
    file["plugins"] = plugins;
    file["bindings"] = bindings;
    file.to_string()
}

/// Files that are rejected, each by another part of the gateway.
fn broken() -> Vec<(&'static str, String)> {
    let golden = repository::root().join("gateway/src/config/golden/problems.yaml");
    let binding = |priority: i64| json!({ "plugin": "p", "tenant": "*", "priority": priority });
    let plugin = |members: Value| {
        let mut plugin = json!({ "name": "p" });
        plugin.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!([plugin])
    };
    let key = |key: Value| with("/auth/issuers/0/keys", json!([key]));
    vec![
        ("golden", fs::read_to_string(golden).unwrap()),
        ("no YAML", "auth: [".into()),
        ("empty", String::new()),
        ("routing", {
            let mut second = binding(1);
            second["name"] = json!("second");
            with_plugins(plugin(json!({ "builtin": "content-policy" })), json!([binding(1), second]))
        }),
        ("plugin", with_plugins(json!([]), json!([binding(1)]))),
        ("key file", key(json!({ "alg": "ES256", "pem_file": "/nowhere/key.pem" }))),
        ("JWK", key(json!({ "jwk_file": "/nowhere/key.jwk" }))),
        ("algorithm", key(json!({ "alg": "none", "secret": "x".repeat(32) }))),
        ("tls", with("/server/tls", json!({ "cert_file": "/nowhere/c.pem", "key_file": "/nowhere/k.pem" }))),
        (
            "tls of a plugin",
            with_plugins(
                plugin(json!({ "endpoint": "https://127.0.0.1:1", "tls": { "ca_file": "/nowhere/ca.pem" } })),
                json!([binding(1)]),
            ),
        ),
        ("collector", with("/telemetry", json!({ "otlp_endpoint": "http://127.0.0.1:1/path" }))),
        (
            "several at once",
            key(json!({ "jwk_file": "/nowhere/key.jwk" })).replacen(
                "\"log\"",
                r#""plugins":[{"name":"p","endpoint":"https://127.0.0.1:1","tls":{"ca_file":"/nowhere/ca.pem"}}],"log""#,
                1,
            ),
        ),
    ]
}

#[tokio::test]
async fn a_check_says_of_every_broken_file_what_a_start_says_of_it() {
    let folder = Folder::new();
    let env = [("LEVEL", "hunter2"), ("HOOKGATE__DRAIN__FINISH", "never"), ("HOOKGATE__LOG__LEVL", "info")];
    for (name, text) in broken() {
        folder.write("f.yaml", &text);
        for env in [&[][..], &env[..]] {
            let start = folder.run_with(&["serve", "--config", "f.yaml"], env, "").await;
            let check = folder.run_with(&["config", "check", "f.yaml"], env, "").await;
            assert_eq!((start.code, check.code), (Some(2), Some(2)), "{name}: {start:?} {check:?}");
            assert_eq!(check.stderr, start.stderr, "{name}");
            assert_eq!(check.stdout, "", "{name}");
            assert!(!check.stderr.contains("hunter2"), "{name}: {check:?}");

            let args = ["config", "check", "f.yaml", "--output", "json"];
            let listed = folder.run_with(&args, env, "").await;
            assert_eq!((listed.code, listed.stderr.as_str()), (Some(2), ""), "{name}");
            let list = listed.json();
            let list = list.as_array().unwrap();
            let count = start.stderr.lines().last().unwrap().split(' ').next().unwrap();
            assert_eq!(list.len().to_string(), count, "{name}: {start:?}");
            for mistake in list {
                for said in ["message", "remedy"].map(|member| mistake[member].as_str().unwrap_or_default()) {
                    assert!(start.stderr.contains(said), "{name}: {said} {start:?}");
                }
                let variable =
                    mistake["variable"].as_str().map(|name| format!("environment variable {name}: "));
                assert!(variable.is_none_or(|place| start.stderr.contains(&place)), "{name}: {mistake}");
                let place =
                    mistake["line"].as_u64().map(|line| format!("f.yaml:{line}:{}", mistake["column"]));
                assert!(place.is_none_or(|place| start.stderr.contains(&place)), "{name}: {mistake}");
            }
        }
    }
}

#[tokio::test]
async fn a_file_without_mistakes_passes_the_check_and_starts() {
    let folder = Folder::new();
    folder.write("f.yaml", &smallest().to_string());
    let check = folder.run(&["config", "check", "f.yaml"]).await;
    let said = "f.yaml: no mistakes: 2 tenants, 0 plugins, 0 bindings\n";
    assert_eq!((check.code, check.stdout.as_str(), check.stderr.as_str()), (Some(0), said, ""));
    let listed = folder.run(&["config", "check", "f.yaml", "--output", "json"]).await;
    assert_eq!((listed.code, listed.json()), (Some(0), json!([])));
    let gateway = hookgate_tests::gateway::Setup::file(&smallest().to_string()).start().await;
    assert_eq!(gateway.http(&token("acme")).call(POINT, payload()).await.status, 200);

    let example = repository::root().join("examples/hookgate.yaml");
    let secret = [("HOOKGATE_JWT_SECRET", "0123456789abcdef0123456789abcdef")];
    let check = folder.run_with(&["config", "check", example.to_str().unwrap()], &secret, "").await;
    assert!(check.stdout.ends_with(": no mistakes: 2 tenants, 4 plugins, 4 bindings\n"), "{check:?}");
}

/// The check needs no connection to know which config built-in plugins accept.
#[tokio::test]
async fn config_that_a_built_in_plugin_does_not_take_is_a_mistake() {
    let folder = Folder::new();
    let policy = json!([{ "name": "content-policy", "builtin": "content-policy", "config": { "max_input_chars": "sixty" } }]);
    let binding = json!([{ "plugin": "content-policy", "tenant": "*", "priority": 1 }]);
    folder.write("f.yaml", &with_plugins(policy, binding));
    let check = folder.run(&["config", "check", "f.yaml"]).await;
    assert_eq!((check.code, check.stdout.as_str()), (Some(2), ""), "{check:?}");
    for said in ["/plugins/0/config", "max_input_chars", "1 problem"] {
        assert!(check.stderr.contains(said), "{said}: {check:?}");
    }
    assert!(!check.stderr.contains("sixty"), "{check:?}");
}

/// A check opens no port and makes no connection, so it passes beside a gateway that has the ports.
#[tokio::test]
async fn a_check_takes_no_port() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let folder = Folder::new();
    let mut file = smallest();
    file["server"] = json!({ "data_addr": gateway.data_addr(), "ops_addr": gateway.ops_addr() });
    folder.write("f.yaml", &file.to_string());
    let check = folder.run(&["config", "check", "f.yaml"]).await;
    assert_eq!(check.code, Some(0), "{check:?}");
}

#[tokio::test]
async fn no_secret_of_file_environment_or_referenced_file_is_shown_in_any_form() {
    let folder = Folder::new();
    let referenced = folder.write("token", "CANARY-from-a-file\n");
    let text = format!(
        r#"
auth:
  issuers:
    - issuer: i
      audience: "${{AUDIENCE}}"  # CANARY-comment
      keys:
        - {{ kid: a, alg: HS256, secret: "${{KEY}}" }}
        - {{ kid: b, alg: HS256, secret: CANARY-literal-of-32-bytes-or-more }}
        - {{ kid: c, alg: HS256, secret: "${{UNSET:-CANARY-default-of-32-bytes-or-more}}" }}
tenants: {{ list: [{{ id: acme, config: {{ p: {{ password: CANARY-tenant, pin: 13571113 }} }} }}] }}
plugins:
  - name: p
    endpoint: http://127.0.0.1:7000
    config: {{ from_file: "${{file:{}}}", text: CANARY-config, mixed: "CANARY-${{KEY}}", list: [[CANARY-deep]] }}
bindings: [{{ plugin: p, tenant: "*", priority: 1, config: {{ key: CANARY-binding }} }}]
"#,
        referenced.display()
    );
    folder.write("f.yaml", &text);
    let env = [("KEY", "CANARY-from-the-environment-32-bytes"), ("AUDIENCE", "CANARY-audience")];
    for output in ["table", "json", "yaml"] {
        let args = ["config", "show", "--config", "f.yaml", "--output", output];
        let shown = folder.run_with(&args, &env, "").await;
        assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{shown:?}");
        for secret in ["CANARY", "13571113"] {
            assert!(!shown.stdout.contains(secret), "{output}: {}", shown.stdout);
        }
        for reference in ["${KEY}", "${AUDIENCE}", "${UNSET:-***}", "${file:/"] {
            assert!(shown.stdout.contains(reference), "{output} lacks {reference}: {}", shown.stdout);
        }
    }
}

#[tokio::test]
async fn every_form_of_show_says_the_same_values_and_origins() {
    let folder = Folder::new();
    folder.write("f.yaml", &smallest().to_string());
    let env = [("HOOKGATE__LIMITS__BUDGET", "7s")];
    let show = async |output| {
        folder.run_with(&["config", "show", "--config", "f.yaml", "--output", output], &env, "").await
    };
    let json = show("json").await.json();
    assert_eq!(
        json["limits"]["budget"],
        json!({ "value": "7s", "origin": "environment HOOKGATE__LIMITS__BUDGET" })
    );
    assert_eq!(json["limits"]["request"], json!({ "value": "4MiB", "origin": "default" }));
    assert_eq!(json["tenants"]["list"][0]["id"], json!({ "value": "acme", "origin": "f.yaml:1" }));
    let table = show("table").await.stdout;
    let row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows: Vec<_> = table.lines().map(row).collect();
    assert!(rows.contains(&"limits.budget 7s environment HOOKGATE__LIMITS__BUDGET".to_owned()), "{table}");
    assert!(rows.contains(&"tenants.list[0].id acme f.yaml:1".to_owned()), "{table}");
    let yaml = show("yaml").await.stdout;
    for line in ["  budget: 7s # environment HOOKGATE__LIMITS__BUDGET", "  request: 4MiB # default"] {
        assert!(yaml.lines().any(|written| written == line), "{yaml}");
    }
    // The output is a configuration again, except for the secret.
    let again = folder.write("again.yaml", &yaml.replace("\"***\"", &"x".repeat(32)));
    let check = folder.run(&["config", "check", again.to_str().unwrap()]).await;
    assert_eq!(check.code, Some(0), "{check:?}\n{yaml}");
}

/// Text that YAML would interpret unless it is quoted is unchanged.
#[tokio::test]
async fn yaml_of_any_text_is_that_text_again() {
    let odd = [
        "true",
        "1",
        "null",
        "",
        "a: b # c",
        "one\ntwo\n",
        " - x ",
        "~",
        "0x1f",
        "\u{7}",
        "\n",
        "*",
        "a\r\nb",
    ];
    let mut labels: serde_json::Map<_, _> =
        odd.iter().enumerate().map(|(index, text)| (format!("l{index}"), json!(text))).collect();
    labels.insert("long".into(), "word ".repeat(60).into());
    labels.extend(["true", "a: b", "#", "two\nlines"].map(|key| (key.to_owned(), json!("x"))));
    let mut file = smallest();
    file["tenants"]["list"][0]["labels"] = labels.into();
    let folder = Folder::new();
    folder.write("f.yaml", &file.to_string());
    let show =
        async |file, output| folder.run(&["config", "show", "--config", file, "--output", output]).await;
    let values = |shown: Value| -> Vec<(String, Value)> {
        let labels = shown["tenants"]["list"][0]["labels"].as_object().unwrap();
        labels.iter().map(|(key, shown)| (key.clone(), shown["value"].clone())).collect()
    };
    let before = values(show("f.yaml", "json").await.json());
    assert_eq!(before.len(), odd.len() + 5);
    let yaml = show("f.yaml", "yaml").await.stdout.replace("\"***\"", &"x".repeat(32));
    folder.write("again.yaml", &yaml);
    assert_eq!(values(show("again.yaml", "json").await.json()), before, "{yaml}");
}

#[tokio::test]
async fn the_schema_in_docs_is_the_printed_one_and_takes_the_examples() {
    let printed = Folder::new().run(&["config", "schema"]).await;
    let written = fs::read_to_string(repository::root().join("docs/hookgate.schema.json")).unwrap();
    assert!(written == printed.stdout, "docs/hookgate.schema.json is not what is printed");

    let schema = printed.json();
    assert_eq!(schema["title"], "hookgate.yaml");
    let validator = jsonschema::validator_for(&schema).expect("it is a schema");
    let page = fs::read_to_string(repository::root().join("docs/configuration.md")).unwrap();
    let shown = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let example = fs::read_to_string(repository::root().join("examples/hookgate.yaml")).unwrap();
    let template = fs::read_to_string(repository::root().join("cli/src/init/hookgate.yaml")).unwrap();
    let beside = "hookgate.schema.json";
    let files = [(shown, beside), (&template, beside), (&example, "../docs/hookgate.schema.json")];
    for (text, schema) in files {
        let first = text.lines().next().unwrap();
        assert_eq!(first, format!("# yaml-language-server: $schema={schema}"));
        let value: Value = serde_saphyr::from_str(text).unwrap();
        let faults: Vec<_> = validator.iter_errors(&value).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }
    let typo: Value = serde_saphyr::from_str(&example.replace("priority:", "priorty:")).unwrap();
    assert!(!validator.is_valid(&typo), "it bites");
}

/// A provider may give any member a meaning, so an unknown name is no mistake.
#[tokio::test]
async fn a_misspelled_name_in_allow_is_noted_and_is_no_mistake() {
    let folder = Folder::new();
    let mut file = smallest();
    file["llm"] = json!({
        "upstreams": [{ "name": "demo", "builtin": "demo-model" }],
        "models": [{ "match": "demo", "upstream": "demo" }],
        "allow": ["audio", "web_serach"],
    });
    folder.write("f.yaml", &file.to_string());
    let note = "hookgate: f.yaml: /llm/allow/1: `web_serach` opens nothing that the gateway knows; did you mean `web_search`?\n";
    let said = folder.run(&["config", "validate", "f.yaml"]).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), note), "{said:?}");
    assert!(said.stdout.starts_with("f.yaml: no mistakes: "), "{said:?}");
    let data = folder.run(&["config", "check", "f.yaml", "--output", "json"]).await;
    assert_eq!((data.code, data.json(), data.stderr.as_str()), (Some(0), json!([]), note), "{data:?}");
    let connected = folder.run(&["config", "check", "f.yaml", "--connect"]).await;
    assert_eq!((connected.code, connected.stderr.as_str()), (Some(0), note), "{connected:?}");
}
