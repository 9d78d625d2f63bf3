use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::{super::load::from_text, *};

const FILE: &str = r#"server: { data_addr: 127.0.0.1:1 }
auth:
  issuers:
    - issuer: ${ISSUER}
      audience: hookgate
      keys: [{ alg: HS256, secret: "${KEY:-CANARY-default}" }, { alg: HS384, secret: CANARY-literal-secret-of-32-bytes }]
      tenants: [acme]
tenants:
  list:
    - { id: acme, config: { p: { list: [CANARY-1], on: true, pin: 4711 } } }
plugins:
  - name: p
    endpoint: http://127.0.0.1:7000
    config: { url: "CANARY://x:${PASSWORD}@host", deep: [{ a: CANARY-2 }], file: "${file:/CANARY-is-not-read}" }
bindings: [{ plugin: p, tenant: "*", priority: 1 }]
limits: { tenant_in_flight: 4 }
"#;

fn loaded(text: &str, env: &[(&str, &str)]) -> LoadedConfig {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    from_text("f.yaml".into(), text, env).unwrap_or_else(|problems| panic!("{problems}"))
}

fn ours() -> EffectiveValue {
    let env = [
        ("ISSUER", "CANARY-issuer"),
        ("KEY", "CANARY-key-of-at-least-32-bytes-here"),
        ("PASSWORD", "CANARY-password"),
        ("HOOKGATE__LIMITS__IN_FLIGHT", "9"),
        ("HOOKGATE__LOG__LEVEL", "debug"),
    ];
    loaded(FILE, &env).effective()
}

fn flat(effective: &EffectiveValue) -> BTreeMap<String, (Value, String)> {
    let mut values = BTreeMap::new();
    effective.values("", &mut |path, shown| {
        values.insert(path.to_owned(), (shown.value.clone(), shown.origin.clone()));
    });
    values
}

#[test]
fn every_value_says_where_it_comes_from() {
    let values = flat(&ours());
    for (path, value, origin) in [
        ("server.data_addr", json!("127.0.0.1:1"), "f.yaml:1"),
        ("server.ops_addr", json!("127.0.0.1:9090"), "default"),
        ("auth.issuers[0].audience", json!("hookgate"), "f.yaml:5"),
        ("auth.issuers[0].scopes[0]", json!("hookgate:invoke"), "default"),
        ("auth.issuers[0].tenants[0]", json!("acme"), "f.yaml:7"),
        ("limits.tenant_in_flight", json!(4), "f.yaml:16"),
        ("limits.in_flight", json!(9), "environment HOOKGATE__LIMITS__IN_FLIGHT"),
        ("limits.budget", json!("15s"), "default"),
        ("log.level", json!("debug"), "environment HOOKGATE__LOG__LEVEL"),
        ("plugins[0].limits.timeout", json!("5s"), "default"),
        ("bindings[0].enabled", json!(true), "default"),
        ("tenants.unknown", json!("refuse"), "default"),
    ] {
        assert_eq!(values.get(path), Some(&(value, origin.to_owned())), "{path}: {values:#?}");
    }
    // Absent keys without a default are not listed.
    for path in
        ["server.tls", "limits.tenant_rate", "log.format", "plugins[0].tls", "auth.issuers[0].jwks_url"]
    {
        assert!(!values.keys().any(|key| key.starts_with(path)), "{path}");
    }
}

#[test]
fn no_secret_is_shown_and_references_stay_references() {
    let effective = ours();
    let all = format!("{effective:?} {}", serde_json::to_string(&effective).unwrap());
    assert!(!all.replace("CANARY-is-not-read", "").contains("CANARY"), "{all}");
    assert!(!all.contains("4711"), "a number may be a secret too: {all}");
    let values = flat(&effective);
    for (path, value) in [
        ("auth.issuers[0].issuer", json!("${ISSUER}")),
        ("auth.issuers[0].keys[0].secret", json!("${KEY:-***}")),
        ("auth.issuers[0].keys[1].secret", json!("***")),
        ("plugins[0].config.url", json!("***${PASSWORD}***")),
        ("plugins[0].config.deep[0].a", json!("***")),
        ("plugins[0].config.file", json!("${file:/CANARY-is-not-read}")),
        ("tenants.list[0].config.p.on", json!(true)),
        ("tenants.list[0].config.p.pin", json!("***")),
    ] {
        assert_eq!(values[path].0, value, "{path}");
    }
}

#[test]
fn a_resolved_reference_is_hidden_everywhere_else_too() {
    let text = FILE.replace("audience: hookgate", "audience: for-CANARY-issuer");
    let loaded = loaded(&text, &[("ISSUER", "CANARY-issuer"), ("KEY", &"k".repeat(32)), ("PASSWORD", "x")]);
    assert_eq!(flat(&loaded.effective())["auth.issuers[0].audience"].0, json!("for-***"));
}

/// The value as a file would contain it.
fn plain(effective: &EffectiveValue) -> Value {
    match effective {
        EffectiveValue::Value(shown) => shown.value.clone(),
        EffectiveValue::List(items) => items.iter().map(plain).collect(),
        EffectiveValue::Map(members) => {
            members.iter().map(|(key, value)| (key.clone(), plain(value))).collect::<Map<_, _>>().into()
        }
    }
}

/// Nothing is lost, and every default is the one that applies.
#[test]
fn the_effective_configuration_is_the_configuration() {
    let text = r#"
auth: { issuers: [{ issuer: i, audience: a, jwks_url: "https://id/keys", tenants: { fixed: acme } }] }
tenants: { list: [{ id: acme, labels: { plan: pro }, disable: [q], limits: { rate: 5/s } }, { id: other }] }
plugins:
  - { name: p, endpoints: ["http://127.0.0.1:7000"], config: { on: true }, breaker: { failures: 2 } }
  - { name: q, builtin: content-policy }
bindings:
  - { plugin: p, selector: { plan: pro }, priority: 1, match: { tools: [a] }, points: [before_tool_call] }
  - { plugin: q, tenant: "*", priority: 2, overridable: true, blocking: false }
block_status: { NO: 410 }
telemetry: { tenant_labels: [acme] }
"#;
    let loaded = loaded(text, &[("HOOKGATE__DRAIN__GRACE", "3s")]);
    let again: super::super::Config = serde_json::from_value(plain(&loaded.effective())).unwrap();
    assert_eq!(format!("{again:#?}"), format!("{:#?}", loaded.config));
}
