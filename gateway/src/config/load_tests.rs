//! Tests of loading a text: references, environment, rendering, secrets.

use std::{fmt::Write as _, time::Duration};

use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use std::sync::Arc;

use super::*;
use crate::{
    config::{IssuerTenants, Plugin, Scope, Size, UnknownTenant, fixtures::served},
    core::step::{Mode, OnError},
};

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn read_with(text: &str, pairs: &[(&str, &str)]) -> Result<Config, Problems> {
    from_text("hookgate.yaml".into(), &served(text), env(pairs)).map(|loaded| loaded.config)
}

const AUTH: &str =
    "auth: { issuers: [{ issuer: i, audience: a, jwks_url: \"https://id/keys\", tenants: \"*\" }] }\n";

#[test]
fn absent_keys_take_the_defaults_of_the_protocol() {
    let config = read_with(AUTH, &[]).unwrap();
    assert_eq!(config.server.data_addr.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.ops_addr.to_string(), "127.0.0.1:9090");
    assert_eq!(config.tenants.unknown, UnknownTenant::Refuse);
    assert_eq!(config.limits.request, Size(4 << 20));
    assert_eq!(config.limits.budget.0, Duration::from_secs(15));
    assert_eq!((config.limits.in_flight, config.limits.tenant_in_flight), (1024, 128));
    assert_eq!((config.drain.grace.0.as_secs(), config.drain.finish.0.as_secs()), (5, 20));
    assert_eq!(config.startup.wait.0.as_secs(), 30);
    let issuer = &config.auth.issuers[0];
    assert_eq!(issuer.tenants, Some(IssuerTenants::Any));
    assert_eq!(issuer.scopes, [Scope::Invoke]);
    assert_eq!((issuer.leeway.0.as_secs(), issuer.jwks_ttl.0.as_secs()), (30, 300));
    assert_eq!(issuer.claims.tenant, "tenant_id");
}

#[test]
fn a_binding_enforces_and_fails_closed_unless_it_says_otherwise() {
    for (rules, mode, on_error, required) in [
        ("", Mode::Enforce, OnError::Fail, true),
        (", blocking: true", Mode::Enforce, OnError::Fail, true),
        (", blocking: false", Mode::Advise, OnError::Skip, false),
        (", mode: enforce", Mode::Enforce, OnError::Fail, true),
        (", mode: enforce, on_error: skip", Mode::Enforce, OnError::Skip, false),
        (", mode: advise", Mode::Advise, OnError::Skip, false),
        (", mode: advise, on_error: fail", Mode::Advise, OnError::Fail, true),
        (", mode: observe", Mode::Observe, OnError::Skip, false),
        (", on_error: skip", Mode::Enforce, OnError::Skip, false),
        (", enabled: false", Mode::Enforce, OnError::Fail, false),
    ] {
        let text = format!(
            "{AUTH}plugins: [{{ name: p, endpoint: \"http://a:1\" }}]\nbindings: [{{ plugin: p, tenant: \"*\", priority: 1{rules} }}]"
        );
        let config = read_with(&text, &[]).unwrap();
        let binding = &config.bindings[0];
        assert_eq!((binding.mode(), binding.on_error()), (mode, on_error), "{rules}");
        assert_eq!(config.required().contains(&*config.plugins[0].name), required, "{rules}");
        let off = Plugin { enabled: false, required: Some(true), ..(*config.plugins[0]).clone() };
        let config = Config { plugins: vec![Arc::new(off)], ..config };
        assert_eq!(config.required().len(), 0, "a plugin that is switched off is not waited for");
    }
}

#[test]
fn an_unnamed_binding_is_named_after_its_plugin_and_its_one_tenant() {
    let text = format!(
        "{AUTH}plugins: [{{ name: p, endpoint: \"http://a:1\" }}]\ntenants: {{ list: [{{ id: a b }}] }}\nbindings:
  - {{ plugin: p, tenant: \"*\", priority: 1 }}
  - {{ plugin: p, tenant: a b, priority: 2 }}
  - {{ plugin: p, name: x, selector: {{ k: v }}, priority: 3 }}"
    );
    let config = read_with(&text, &[]).unwrap();
    let names: Vec<_> = config.bindings.iter().map(|binding| binding.effective_name()).collect();
    assert_eq!(names, ["p", "p@a b", "x"]);
}

#[test]
fn references_resolve_to_the_type_the_key_asks_for() {
    let text = format!(
        "{AUTH}limits: {{ in_flight: \"${{N}}\", budget: \"${{B:-7s}}\" }}\ntenants: {{ list: [{{ id: a$$b }}] }}
plugins:
  - {{ name: \"p${{SUFFIX}}\", endpoint: \"http://${{HOST}}:${{N}}\", allow_plaintext: \"${{YES}}\" }}"
    );
    let config = read_with(&text, &[("N", "7"), ("SUFFIX", "-1"), ("HOST", "h"), ("YES", "true")]).unwrap();
    assert_eq!(config.limits.in_flight, 7);
    assert_eq!(config.limits.budget.0, Duration::from_secs(7));
    assert_eq!(config.tenants.list[0].id, "a$b");
    assert_eq!(config.plugins[0].name, "p-1");
    assert_eq!(config.plugins[0].endpoint.as_deref(), Some("http://h:7"));
    assert!(config.plugins[0].allow_plaintext);
}

#[test]
fn a_secret_of_digits_stays_text() {
    let digits = "1".repeat(40);
    let text = "auth: { issuers: [{ issuer: i, audience: a, keys: [{ alg: HS256, secret: \"${S}\" }] }] }";
    let config = read_with(text, &[("S", &digits)]).unwrap();
    let secret = config.auth.issuers[0].keys[0].secret.as_ref().unwrap();
    assert_eq!(secret.expose_secret(), digits);
}

#[test]
fn what_a_reference_resolves_to_is_not_resolved_again() {
    let text = format!("{AUTH}tenants: {{ list: [{{ id: \"${{A}}\" }}] }}");
    let config = read_with(&text, &[("A", "${B}$$"), ("B", "b")]).unwrap();
    assert_eq!(config.tenants.list[0].id, "${B}$$");
}

#[test]
fn plugin_config_keeps_its_references_until_they_are_resolved() {
    let text = format!(
        "{AUTH}plugins: [{{ name: p, builtin: content-policy, config: {{ a: [\"x${{UNSET}}\", 1], b: $$ }} }}]"
    );
    let config = read_with(&text, &[("UNSET", "not yet")]).unwrap();
    let object = &config.plugins[0].config;
    assert_eq!(serde_json::to_string(object).unwrap(), r#"{"a":["x${UNSET}",1],"b":"$$"}"#);
    let resolved = crate::config::resolve_references(
        object,
        env(&[("UNSET", "canary")]),
        crate::config::ReferenceScope::Anywhere,
    )
    .unwrap();
    assert_eq!(serde_json::to_string(resolved.expose()).unwrap(), r#"{"a":["xcanary",1],"b":"$"}"#);
    assert_eq!(format!("{resolved:?}"), "Resolved(***)");
    assert_eq!(resolved.into_exposed().1, ["canary", "xcanary"]);
    let refused =
        crate::config::resolve_references(object, env(&[]), crate::config::ReferenceScope::Anywhere)
            .unwrap_err();
    assert_eq!(
        refused,
        "/a/0: the environment variable UNSET is not set: set it, or write `${UNSET:-default}`"
    );
}

#[test]
fn a_variable_that_nobody_set_is_found_with_all_other_mistakes() {
    let text = format!(
        "{AUTH}plugins:
  - {{ name: p, builtin: content-policy, config: {{ a: [{{ b: \"x${{UNSET}}\" }}, \"${{UNSET:-d}}\"] }} }}
  - {{ name: q, builtin: content-policy, config: {{ a: \"${{UNSET}}\" }}, enabled: false }}
  - {{ name: r, builtin: content-policy, config: {{ a: \"${{file:/not/there/yet}}\" }} }}
"
    );
    let not_set = "the environment variable UNSET is not set: set it, or write `${UNSET:-default}`";
    let found = |text: &str| {
        let problems = read_with(text, &[]).unwrap_err();
        let each = problems.iter().map(|at| (at.problem.pointer.clone(), at.problem.message.clone()));
        each.collect::<Vec<_>>()
    };
    let expected = ("/plugins/0/config/a/0/b".to_owned(), not_set.to_owned());
    assert_eq!(found(&text), std::slice::from_ref(&expected));
    let both = found(&format!("{text}limits: {{ in_flight: 0 }}\n"));
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both.contains(&expected), "{both:?}");
}

#[test]
fn references_are_refused_where_nothing_resolves_them() {
    let only = |text: &str| {
        let problems = read_with(&format!("{AUTH}{text}"), &[("A", "a")]).unwrap_err();
        assert_eq!(problems.count(), 1, "{problems}");
        let located = problems.iter().next().unwrap().clone();
        (located.position.unwrap().0, located.problem.pointer, located.problem.message)
    };
    let plugin = "plugins: [{ name: p, builtin: content-policy }]\n";
    let refused = "tenant-level config holds no references: write the value (`$$` for a `$`), or move the key to the \
                   plugin's `config`";
    assert_eq!(
        only(&format!("{plugin}tenants: {{ list: [{{ id: a, config: {{ p: {{ k: \"${{A}}\" }} }} }}] }}")),
        (3, "/tenants/list/0/config/p/k".into(), refused.into())
    );
    assert_eq!(
        only(&format!(
            "{plugin}bindings: [{{ plugin: p, tenant: \"*\", priority: 1, config: {{ k: [\"${{file:/x}}\"] }} }}]"
        )),
        (3, "/bindings/0/config/k/0".into(), refused.into())
    );
    let (line, pointer, message) = only(&plugin.replace(" }]", ", config: { k: \"${A\" } }]"));
    assert_eq!((line, pointer.as_str()), (2, "/plugins/0/config/k"));
    assert_eq!(message, "a reference is not closed: write `${NAME}`, or `$$` for a `$`");
}

#[test]
fn the_environment_lies_over_the_file_and_is_named_as_origin() {
    let text = format!("{AUTH}limits: {{ in_flight: nonsense }}\nanswer:\n");
    let pairs = [
        ("HOOKGATE__SERVER__DATA_ADDR", "0.0.0.0:1"),
        ("HOOKGATE__LIMITS__IN_FLIGHT", "5"),
        ("HOOKGATE__LIMITS__TENANT_RATE", "9/m"),
        ("HOOKGATE__ANSWER__DETAIL", "minimal"),
        ("HOOKGATE_SECRET_X", "not ours"),
        ("HOOKGATE_CONFIG", "not ours"),
    ];
    let config = read_with(&text, &pairs).unwrap();
    assert_eq!(config.server.data_addr.to_string(), "0.0.0.0:1");
    assert_eq!(config.limits.in_flight, 5);
    assert_eq!(config.limits.tenant_rate, "9/m".parse().ok());
    assert_eq!(config.answer.detail, crate::config::Detail::Minimal);

    for (name, value, rendered) in [
        (
            "HOOKGATE__LIMITS__IN_FLIGHT",
            "many",
            "/limits/in_flight: `in_flight` must be a whole number from 1 to 1000000, not `many`\n",
        ),
        (
            "HOOKGATE__LIMITS__BUDGET",
            "1h",
            "/limits/budget: `budget` is out of range\n  = write a duration from 10ms to 60s\n",
        ),
        (
            "HOOKGATE__SERVR__DATA_ADDR",
            "x",
            "there is no key `servr`\n  = did you mean `HOOKGATE__SERVER`?\n",
        ),
        (
            "HOOKGATE__SERVER__DATA_ADR",
            "x",
            "`server` has no key `data_adr`\n  = did you mean `HOOKGATE__SERVER__DATA_ADDR`?\n",
        ),
        ("HOOKGATE__SERVER", "x", "`server` is not a single value; lists and mappings must be in the file\n"),
        ("HOOKGATE__PLUGINS__0__NAME", "x", "`plugins` is a list, and lists are written in the file\n"),
        (
            "HOOKGATE__BLOCK_STATUS__X",
            "400",
            "`block_status` has no fixed keys, and is written in the file\n",
        ),
        ("HOOKGATE__SHOP__URL", "x", "there is no key `shop`\n"),
        ("HOOKGATE__", "x", "there is no key ``\n"),
        (
            "HOOKGATE__server__data_addr",
            "x",
            "variable names must be upper case, with `__` between keys\n  = write `HOOKGATE__SERVER__DATA_ADDR` for `server.data_addr`\n",
        ),
    ] {
        let problems = read_with(AUTH, &[(name, value)]).unwrap_err();
        let expected = format!("environment variable {name}: {rendered}\n1 problem in the configuration");
        assert_eq!(problems.to_string(), expected, "{name}");
    }
}

#[test]
fn a_config_never_shows_secrets_in_debug() {
    let text = "auth: { issuers: [{ issuer: i, audience: a, keys: [{ alg: HS256, secret: \"${S}\" }] }] }
plugins: [{ name: p, builtin: content-policy, config: { token: canary-in-config } }]";
    let secret = "canary-in-the-secret-of-32-bytes-";
    let loaded = from_text("f".into(), &served(text), env(&[("S", secret)])).unwrap();
    let shown = format!("{loaded:?} {:?} {:#?}", loaded.config, loaded.config);
    assert!(!shown.contains("canary"), "{shown}");
    assert!(shown.contains("content-policy"), "the rest is shown");
}

#[test]
fn problems_of_others_are_shown_with_their_lines() {
    let text = format!(
        "{AUTH}plugins: [{{ name: p, endpoint: \"http://a:1\" }}]\nbindings:\n  - {{ plugin: p, tenant: \"*\", priority: 1 }}\n"
    );
    let loaded = from_text("f.yaml".into(), &served(&text), []).unwrap();
    let problems = loaded.render(&[
        Problem::new("/bindings/0/priority", "equal priorities").remedy("change one"),
        Problem::new("/bindings/0/points", "a default is marked at what it belongs to"),
    ]);
    assert_eq!(
        problems.to_string(),
        "f.yaml:4:5: /bindings/0/points: a default is marked at what it belongs to
  4 |   - { plugin: p, tenant: \"*\", priority: 1 }
    |     ^

f.yaml:4:41: /bindings/0/priority: equal priorities
  4 |   - { plugin: p, tenant: \"*\", priority: 1 }
    |                                         ^
  = change one

2 problems in the configuration"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_one_problem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hookgate.yaml");
    let refused = |path: &Path| load(path, env(&[])).unwrap_err().to_string();
    assert!(refused(&path).contains("hookgate.yaml: can't be read: "), "{}", refused(&path));
    std::fs::write(&path, b"\xff\xfe\xff").unwrap();
    assert!(refused(&path).contains("hookgate.yaml: is not UTF-8 text"));
    std::fs::write(&path, " ".repeat((MAX_FILE + 1) as usize)).unwrap();
    assert!(refused(&path).contains("hookgate.yaml: is larger than 16 MiB"));
    std::fs::write(&path, served(AUTH)).unwrap();
    assert!(load(&path, env(&[])).is_ok());
}

/// Files full of mistakes, with `CANARY` wherever a secret could be.
const LEAKY: &[&str] = &[
    "auth: { issuers: [{ issuer: i, audience: a, keys: [{ alg: HS256, secret: CANARY, bogus: 1 }] }] } # CANARY\n",
    "auth: { issuers: [{ issuer: i, audience: a, keys: [{ alg: HS256, secrets: CANARY }] }] }\n",
    "auth: { issuers: [{ issuer: i, audience: a, keys: [{ alg: HS256, secret: [CANARY] }] }] }\n",
    "auth: { issuers: [{ issuer: i, audience: a, keys: [{ alg: HS256, secret: { a: CANARY } }] }] }\n",
    "auth: { issuers: [{ issuer: i, audience: a, keys: CANARY }] }\n",
    "auth: { issuers: [{ issuer: i, audience: a, keys: [CANARY] }] }\n",
    "auth: { issuers: [{ issuer: i, audience: a, secret: CANARY }] }\n",
    "auth:\n  issuers:\n    - issuer: i\n      keys:\n        - secret: |\n            CANARY\n            CANARY\n",
    "auth:\n  issuers:\n    - keys:\n        - secret: \"CANARY\n            CANARY\"\n",
    "auth: CANARY\n",
    "CANARY\n",
    "- CANARY\n",
    "secret: CANARY\n",
    "secret: \"CANARY\n",
    "secret: @CANARY\n",
    "secret: *CANARY\n",
    "secret: !CANARY x\n",
    "a: b: CANARY\n",
    "limits: { requst: 1MiB }\rauth: { issuers: [{ issuer: i, keys: [{ alg: HS256, secret: CANARY }] }] }\n",
    "plugins: [{ name: p, config: { a: CANARY, b: [CANARY, \"${UNSET CANARY\"] }, bogus: CANARY }]\n",
    "plugins: [{ name: p, config: CANARY }]\n",
    "plugins: { config: { token: CANARY } }\n",
    "plugins: [{ name: p, endpoint: \"${REF}\", builtin: \"${REF}\", version: \"${REF}\", required: \"${REF}\" }]\n",
    "plugins: [{ name: \"${UNSET:-CANARY}\", endpoint: \"${UNSET:-CANARY}\" }]\n",
    "bindings: [{ plugin: \"${REF}\", name: \"x ${REF}\", tenant: \"${REF}\", mode: \"${REF}\", writable: [\"${REF}\"] }]\n",
    "tenants: { list: [{ id: \"${REF}\", disable: [\"${REF}\"], config: { p: { x: CANARY, x: CANARY } } }, { id: \"${REF}\" }] }\n",
    "limits: { request: \"${REF}\", in_flight: \"${REF}\", tenant_rate: \"${REF}\" }\n",
    "server: { data_addr: \"${REF}\" }\nlog: { level: \"${REF}\", format: \"x${REF}\" }\n",
    "limits: &l { request: CANARY }\ndrain: *l\n",
    "x: &s CANARY\nauth: { issuers: [{ issuer: *s, keys: [{ kid: *s, secret: *s, alg: *s }] }] }\n",
];

#[test]
fn no_rendering_shows_a_secret() {
    let canary = "kestrel-4242-canary";
    for text in LEAKY {
        // Text at a key of the schema may be shown; in these files the secrets are elsewhere, or come from a
        // reference.
        let text = text.replace("CANARY", canary).replace("request: kestrel-4242-canary", "request: 1MiB");
        let text = text.replace("x: &s kestrel-4242-canary", "x: &s xx");
        let problems = read_with(&text, &[("REF", canary)]).unwrap_err();
        let mut shown = String::new();
        write!(shown, "{problems} {problems:?}").unwrap();
        assert!(!shown.contains("kestrel") && !shown.contains("4242"), "{text}\n{problems}");
    }
}

/// The parser ignores a byte order mark, and defines where lines end.
#[test]
fn a_secret_is_hidden_to_its_last_character_wherever_lines_begin() {
    for (before, line) in [("\u{feff}", 1), ("# a\r", 2), ("# a\r\n\r", 3), ("# \u{2028}\u{85}\n", 2)] {
        let text = format!("{before}auth: {{ issuers: [{{ issuer: i, secret: qqzz, bogus: 1 }}] }}\n");
        let problems = read_with(&text, &[]).unwrap_err().to_string();
        let shown = format!("  {line} | auth: {{ issuers: [{{ issuer: i, secret: ***, bogus: *** }}] }}\n");
        assert!(problems.contains(&shown) && !problems.contains('z'), "{text:?}\n{problems}");
    }
}

#[test]
fn only_the_first_of_many_mistakes_are_printed_with_how_many_there_are() {
    let text = |mistakes| {
        let list: Vec<_> = (0..mistakes).map(|i| format!("{{ id: t{i}, lables: {{}} }}")).collect();
        format!("{AUTH}tenants: {{ list: [{}] }}\n", list.join(", "))
    };
    let all = read_with(&text(100), &[]).unwrap_err();
    assert!(all.to_string().ends_with("\n\n100 problems in the configuration"), "{all}");
    let problems = read_with(&text(101), &[]).unwrap_err();
    let printed = problems.to_string();
    assert!(printed.contains("/tenants/list/99/lables") && !printed.contains("/tenants/list/100/lables"));
    let end = "\n\n101 problems in the configuration; only the first 100 are shown";
    assert!(printed.ends_with(end), "{printed}");
    let listed = problems.printed();
    assert!(listed.len() == 101 && printed.ends_with(&listed[100]), "{listed:?}");
    assert_eq!((all.printed().len(), problems.iter().count()), (100, 101), "programs are told of all");
}

#[test]
fn short_secrets_from_references_are_not_shown_either() {
    let text =
        format!("{AUTH}log: {{ level: \"${{REF}}\" }}\nplugins: [{{ name: p, builtin: \"${{REF}}\" }}]");
    let problems = read_with(&text, &[("REF", "zq")]).unwrap_err();
    assert_eq!(problems.count(), 2);
    assert!(!format!("{problems} {problems:?}").contains("zq"), "{problems}");
}

proptest! {
    #[test]
    fn no_text_makes_the_loader_panic(text in any::<String>(), name in "HOOKGATE__[A-Z_.0-9é]{0,20}") {
        let _ = read_with(&text, &[(name.as_str(), text.as_str())]);
    }

    #[test]
    fn no_yaml_makes_the_loader_panic(text in yaml_like()) {
        let _ = read_with(&text, &[("A", "a")]).map_err(|problems| problems.to_string());
    }
}

/// Words of the configuration, and characters special to YAML.
const WORDS: &str = "auth issuers issuer keys secret tenants list id plugins name endpoint config bindings plugin \
    priority match text limits request block_status { } [ ] , \" ' &a *a ${A} ${ $$ \"*\" 1 -1 1e999 0x1 \
    99999999999999999999 true null 5s 4MiB é \u{feff} !!str << ? @ \u{0} --- ... %YAML";

/// Separators between words.
const SIGNS: &[&str] =
    &[": ", ":\n  ", "\n", "\n- ", "\n  - ", "\n    ", ", ", "|\n ", ">-\n ", " # ", "\t", " 1.2\n", " "];

fn yaml_like() -> impl Strategy<Value = String> {
    let word = prop::sample::select(WORDS.split(' ').chain(SIGNS.iter().copied()).collect::<Vec<_>>());
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

#[test]
fn aliases_cannot_blow_the_file_up() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        writeln!(text, "a{n}: &a{n} [{aliases}]").unwrap();
    }
    let problems = read_with(&text, &[]).unwrap_err().to_string();
    assert!(problems.contains("more than 500000 keys and values, aliases written out"), "{problems}");
}

/// With `HOOKGATE_REGENERATE=1` the file is written, to be reviewed before it is committed.
#[test]
fn renderings_are_those_of_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/config/golden/problems.txt");
    let text = include_str!("golden/problems.yaml");
    let pairs = [("LEVEL", "hunter2"), ("HOOKGATE__DRAIN__GRACE", "5"), ("HOOKGATE__LOG__LEVL", "info")];
    let rendered = format!("{}\n", read_with(text, &pairs).unwrap_err());
    if std::env::var_os("HOOKGATE_REGENERATE").is_some() {
        return std::fs::write(path, rendered).unwrap();
    }
    assert_eq!(rendered, std::fs::read_to_string(path).unwrap());
    assert!(!rendered.contains("hunter2"));
}
