//! Tests of the checks of the LLM proxy.

use std::{fmt::Write as _, sync::Arc};

use serde_json::json;

use crate::{
    config::{
        BuiltinModel, LoadedConfig, MODELS as MODEL_LIST, ModelRule, ModelUpstream, ObjectSet, ProviderKey,
        TENANTS, Tenant, UPSTREAMS as UPSTREAM_LIST, check_object, fixtures::*, load::from_text, read,
    },
    core::object::Owner,
};

const UPSTREAMS: &str = "upstreams: [{ name: openai, base_url: \"https://api.openai.com/v1\" }]";
const MODELS: &str = "models: [{ match: \"*\", upstream: openai }]";

fn loaded(llm: &str) -> LoadedConfig {
    let env = [("KEY".to_owned(), "sk-of-the-provider".to_owned())];
    from_text(String::new(), &served(&format!("{AUTH}llm:\n{llm}")), env)
        .unwrap_or_else(|problems| panic!("{problems}"))
}

/// Tests an entry of `upstreams`.
#[track_caller]
fn upstream(entry: &str, message: &str, remedy: &str) {
    let text = format!("llm:\n  upstreams:\n    - {{ {entry} }}\n  models: []\n");
    let models = "models: [{ match: \"*\", upstream: u }]";
    rest(&text.replace("models: []", models), 4, message, remedy);
}

/// Tests further lines of `llm`.
#[track_caller]
fn more(lines: &str, message: &str, remedy: &str) {
    rest(&format!("llm:\n  {UPSTREAMS}\n  {MODELS}\n  {lines}\n"), 5, message, remedy);
}

#[test]
fn the_llm_proxy_has_upstreams_and_models() {
    let llm = "  upstreams:
    - { name: openai, base_url: https://api.openai.com/v1, credential: \"${KEY}\" }
    - { name: vllm, base_url: http://vllm.models:8000/v1/ }
    - { name: local, base_url: \"http://127.0.0.1:8000\", credential: \"${KEY}\" }
    - { name: lab, base_url: \"http://lab:8000\", credential: \"${KEY}\", allow_plaintext: true }
  models:
    - { match: \"gpt-*\", upstream: openai }
    - { match: fast, upstream: vllm, as: Qwen/Qwen3-32B }
  allow: [store]
  limits: { request: 1MiB, total: 10m }
";
    let llm = loaded(llm).config.llm.unwrap();
    assert_eq!((llm.upstreams.len(), llm.models.len(), llm.allow.len()), (4, 2, 1));
    assert_eq!(llm.limits.first_byte, llm.limits.total);
    let absent = from_text(String::new(), &served(AUTH), []).unwrap();
    assert_eq!(absent.config.llm, None);
    for text in [format!("  {UPSTREAMS}\n"), format!("  {UPSTREAMS}\n  models: []\n"), "  {}\n".to_owned()] {
        rest(
            &format!("llm:\n{text}"),
            2,
            "there are no `upstreams` or no `models`, so no model can be named",
            "list at least one of each, or set `store` to have them in the registry",
        );
    }
    let stored = from_text(
        String::new(),
        &served(&format!("{AUTH}store: {{ url: \"sqlite:///tmp/a.db\" }}\nllm: {{}}\n")),
        [],
    );
    assert_eq!(stored.unwrap().config.llm.map(|llm| llm.upstreams.len() + llm.models.len()), Some(0));
}

#[test]
fn a_rule_for_models_has_a_name_of_its_own_and_a_priority() {
    let rules = "[{ match: a, upstream: openai }, { match: b, upstream: openai, name: bee, priority: -1 }, { match: c, \
                 upstream: openai }]";
    let loaded = loaded(&format!("  {UPSTREAMS}\n  models: {rules}\n"));
    let of = |rule: &ModelRule| (rule.effective_name().into_owned(), rule.effective_priority());
    let rules = loaded.config.llm.as_ref().unwrap().models.iter().map(|rule| of(rule)).collect::<Vec<_>>();
    let expected = [("a@openai", 10), ("bee", -1), ("c@openai", 30)];
    assert_eq!(rules, expected.map(|(name, priority)| (name.to_owned(), priority)));
    let written: Vec<_> =
        loaded.written_values(MODEL_LIST).iter().map(|rule| rule["priority"].as_i64()).collect();
    assert_eq!(written, expected.map(|(_, priority)| Some(priority)));
    let of_api: ModelRule = read(r#"{ "match": "a", "upstream": "openai" }"#).unwrap();
    assert_eq!(of_api.effective_priority(), ModelRule::API_PRIORITY);

    let rule = "    - { match: a, upstream: openai }\n";
    rest(
        &format!("llm:\n  {UPSTREAMS}\n  models:\n{rule}{rule}"),
        6,
        "a rule for models `a@openai` is already defined, at /llm/models/0",
        "give one of the two another name, or remove it",
    );
    rest(
        &format!("llm:\n  {UPSTREAMS}\n  models:\n    - {{ match: a, upstream: openai, name: \"a b\" }}\n"),
        5,
        "`a b` is not a name",
        "a name is a letter and up to 63 letters, digits, `_` and `-`",
    );
}

#[test]
fn upstreams_of_the_file_keep_their_keys_and_the_registry_has_none() {
    let text = format!(
        "{AUTH}llm:\n  upstreams: [{{ name: openai, base_url: \"https://api.openai.com/v1\", credential: sk-of-file }}]\n  \
         {MODELS}\nstore: {{ url: \"sqlite:///tmp/a.db\" }}\n"
    );
    let loaded = from_text(String::new(), &served(&text), []).unwrap();
    let written = loaded.written_values(UPSTREAM_LIST);
    assert_eq!(written, [json!({ "name": "openai", "base_url": "https://api.openai.com/v1" })]);
    let of = |owner| {
        let spec = json!({ "name": "openai", "base_url": "https://other/v1" });
        let upstream = ModelUpstream { owner, ..serde_json::from_value(spec).unwrap() };
        let objects = ObjectSet { upstreams: vec![Arc::new(upstream)], ..ObjectSet::default() };
        loaded.with(objects).config.llm.unwrap().upstreams.remove(0)
    };
    assert_eq!(of(Owner::File).credential.as_ref().map(ProviderKey::expose), Some("sk-of-file"));
    assert_eq!(of(Owner::File).egress, None);
    let of_api = of(Owner::Api);
    assert_eq!((&of_api.credential, of_api.egress.is_some()), (&None, true), "it never gets the file's key");
    assert!(of_api.flaws()[0].message.contains("`egress` doesn't permit"), "{:?}", of_api.flaws());
}

#[test]
fn an_upstream_of_the_api_names_its_key() {
    let check = |key: &str| {
        let spec = json!({ "name": "u", "base_url": "https://a/v1", "credential": key });
        check_object(UPSTREAM_LIST, &spec)
    };
    for reference in ["${HOOKGATE_SECRET_A}", "${file:/run/secrets/a}"] {
        assert!(check(reference).is_empty(), "{reference}");
    }
    for text in ["sk-1", "", "$${A}", "${A}${B}", "Bearer ${A}", "${A:-sk-1}", "${A:-}", "${A", "${file:a}"] {
        let problems = check(text);
        let [problem] = &problems[..] else { panic!("{text}: {problems:?}") };
        assert_eq!(problem.message, "`credential` is not a reference: the registry holds no keys", "{text}");
        assert!(!format!("{problem:?}").contains("sk-1"), "{text}");
    }
    // Whether the upstream exists is known only where all objects are.
    assert!(check_object(MODEL_LIST, &json!({ "match": "a", "upstream": "nobody" })).is_empty());
}

#[test]
fn a_base_url_is_a_url_that_a_path_can_be_added_to() {
    let remedy = "write `https://host/path`, such as `https://api.openai.com/v1`";
    for (url, fault) in [
        ("api.openai.com/v1", "is not a URL with `http://` or `https://`"),
        ("ftp://a", "is not a URL with `http://` or `https://`"),
        ("https:a", "is not a URL with `http://` or `https://`"),
        ("https://", "is not a URL"),
        ("https://a b", "is not a URL"),
        ("https://a:99999", "is not a URL"),
        ("https://me@a", "names a user; the provider's key goes into `credential`"),
        ("https://me:secret@a/v1", "names a user; the provider's key goes into `credential`"),
        ("https://a/v1?key=1", "has a query"),
        ("https://a/v1#x", "has a fragment"),
    ] {
        upstream(&format!("name: u, base_url: \"{url}\""), &format!("`base_url` {fault}"), remedy);
    }
    for url in ["http://169.254.169.254/v1", "https://2852039166", "https://0xa9fea9fe"] {
        upstream(
            &format!("name: u, base_url: \"{url}\""),
            "`169.254.169.254` is a link-local or cloud metadata address, to which the gateway never connects",
            "write the host of the provider",
        );
    }
    upstream(
        "name: u, format: anthropic, base_url: \"https://a/v1/\"",
        "`base_url` ends with `/v1`, which is a part of the paths of Anthropic's API",
        "leave `/v1` out, such as `https://api.anthropic.com`",
    );
    upstream(
        "name: u, base_url: \"https://a/v1/chat/completions\"",
        "`base_url` ends with `/chat/completions`, which the gateway adds itself",
        "leave `/chat/completions` out",
    );
    upstream(
        "name: u, format: anthropic, base_url: \"https://a/v1/messages\"",
        "`base_url` ends with `/v1/messages`, which the gateway adds itself",
        "leave `/v1/messages` out",
    );
    upstream(
        "name: u, base_url: \"https://api.openai.com/\"",
        "`base_url` lacks `/v1`: all paths of OpenAI's API are below it",
        "write `https://api.openai.com/v1`",
    );
}

#[test]
fn upstreams_have_names_of_their_own() {
    let wrong = "llm:\n  upstreams: [{ name: \"a b\", base_url: \"https://a\" }]\n  models: [{ match: a, upstream: \"a b\" }]\n";
    rest(wrong, 3, "`a b` is not a name", "a name is a letter and up to 63 letters, digits, `_` and `-`");
    let twice = format!(
        "llm:\n  upstreams:\n{}  {MODELS}\n",
        "    - { name: openai, base_url: \"https://a\" }\n".repeat(2)
    );
    rest(
        &twice,
        5,
        "an upstream `openai` is already defined, at /llm/upstreams/0/name",
        "give one of the two another name, or remove it",
    );
}

#[test]
fn a_credential_is_one_header_s_value_and_goes_over_tls() {
    upstream(
        "name: u, base_url: \"https://a\", credential: \"\"",
        "`credential` is empty",
        "write the provider's key, or leave it out",
    );
    for wrong in ["Bearer sk-1", "sk-1\\nx: y", "sk-1\\u0000"] {
        upstream(
            &format!("name: u, base_url: \"https://a\", credential: \"{wrong}\""),
            "`credential` holds characters that no key has, such as a space or a line break",
            "write the provider's key alone, without `Bearer`",
        );
    }
    upstream(
        "name: u, base_url: \"http://vllm:8000\", credential: \"${SECRET}\"",
        "`credential` would go over the network in plaintext",
        "use `https://` or a loopback address, or set `allow_plaintext: true`",
    );
}

#[test]
fn models_are_globs_that_go_to_an_upstream() {
    let rule = |text: &str, message: &str, remedy: &str| {
        rest(&format!("llm:\n  {UPSTREAMS}\n  models:\n    - {{ {text} }}\n"), 5, message, remedy);
    };
    rule("match: a, upstream: opanai", "there is no upstream `opanai`", "did you mean `openai`?");
    let add = "add it to `llm.upstreams`, or name one that is there";
    rule("match: a, upstream: x", "there is no upstream `x`", add);
    rule(
        "match: \"a[\", upstream: openai",
        "`a[` has a `[` without its `]`; a literal `[` is written `[[]`",
        "globs support `*`, `?` and `[..]`; `[*]` matches a star",
    );
    let bytes = "write a glob of 1 to 128 bytes";
    rule("match: \"\", upstream: openai", "the glob has 0 bytes", bytes);
    let long = "x".repeat(129);
    rule(&format!("match: {long}, upstream: openai"), "the glob has 129 bytes", bytes);
    let remedy = "write the model's name at the provider, or leave `as` out";
    rule("match: a, upstream: openai, as: \"\"", "`as` is empty", remedy);
    rule("match: a", "`upstream` is missing here", "add `upstream`: text");
}

#[test]
fn the_limits_of_the_llm_proxy_have_ranges() {
    let size = "write a size from 1B to 64MiB";
    more("limits: { request: 0B }", "`request` is out of range", size);
    more("limits: { answer: 1GiB }", "`answer` is out of range", size);
    let time = "write a duration from 1ms to 3600s";
    more("limits: { first_byte: 0s }", "`first_byte` is out of range", time);
    more("limits: { idle: 0s }", "`idle` is out of range", time);
    more("limits: { idle: 61m }", "`idle` is out of range", time);
    more("limits: { total: 5m }", "`total` is out of range", "write a duration from 600s to 3600s");
    let number = "`exchanges` must be a whole number from 1 to 1000000, not `0`";
    more("limits: { exchanges: 0 }", number, "");
}

#[test]
fn members_that_are_allowed_have_names() {
    let (message, remedy) = (
        "an entry of `allow` is not a member's name",
        "write a name of 1 to 64 bytes, without control characters",
    );
    for wrong in ["", "a\\nb", &"x".repeat(65)] {
        more(&format!("allow: [\"{wrong}\"]"), message, remedy);
    }
    let many = ["a"; 65].join(", ");
    for glob in ["*", "web_*", "file_i?", "[a]udio"] {
        let remedy = "list each name; `hookgate explain --surface llm` shows what each one opens";
        let message = format!("`{glob}` is a glob, and `allow` lists whole names");
        more(&format!("allow: [\"{glob}\"]"), &message, remedy);
    }
    more(&format!("allow: [{many}]"), "`allow` has 65 entries", "list at most 64");
}

#[test]
fn lists_of_the_llm_proxy_have_an_end() {
    let mut models = String::from("  models:\n");
    for at in 0..257 {
        let _ = writeln!(models, "    - {{ match: m{at}, upstream: openai }}");
    }
    rest(&format!("llm:\n  {UPSTREAMS}\n{models}"), 4, "`models` has 257 entries", "list at most 256");
}

#[test]
fn a_tenant_s_models_are_globs() {
    let tenant =
        |models: &str| format!("tenants:\n  list:\n    - {{ id: acme, llm: {{ models: {models} }} }}\n");
    let bytes = "write a glob of 1 to 128 bytes";
    rest(&tenant("[a, \"\"]"), 4, "the glob has 0 bytes", bytes);
    let broken = "`a[` has a `[` without its `]`; a literal `[` is written `[[]`";
    rest(&tenant("[\"a[\"]"), 4, broken, "globs support `*`, `?` and `[..]`; `[*]` matches a star");
    let many = format!("[{}]", ["a"; 65].join(", "));
    rest(&tenant(&many), 4, "`models` has 65 entries", "list at most 64");
    for models in ["[]", "[\"gpt-5*\", fast]"] {
        from_text(String::new(), &format!("{AUTH}{}", tenant(models)), []).unwrap();
    }
}

#[test]
fn a_tenant_of_the_api_is_checked_alone() {
    let spec = json!({ "id": "acme", "llm": { "models": ["gpt-5*", "["] } });
    let places: Vec<_> = check_object(TENANTS, &spec).into_iter().map(|problem| problem.pointer).collect();
    assert_eq!(places, ["/llm/models/1"]);
    let tenant: Tenant = read(&spec.to_string()).unwrap();
    assert_eq!(tenant.llm.models.unwrap(), ["gpt-5*", "["]);
    let absent: Tenant = read("{\"id\":\"acme\"}").unwrap();
    assert_eq!(absent.llm.models, None);
}

#[test]
fn a_credential_is_never_shown() {
    let entry = |credential: &str| {
        format!(
            "  upstreams: [{{ name: openai, base_url: https://a/v1, credential: \"{credential}\" }}]\n  {MODELS}\n"
        )
    };
    for (credential, shown) in [("${KEY}", "${KEY}"), ("sk-of-the-provider", "***")] {
        let loaded = loaded(&entry(credential));
        let effective = serde_json::to_string(&loaded.effective()).unwrap();
        assert!(effective.contains(&format!("\"value\":\"{shown}\"")), "{effective}");
        let debug = format!("{loaded:?}");
        assert!(!effective.contains("sk-of") && !debug.contains("sk-of"), "{effective}\n{debug}");
    }
    let wrong = format!("{AUTH}llm:\n{}  limit: 1\n", entry("sk-of-the-provider"));
    let text = problems(&wrong).to_string();
    assert!(text.contains("`limit` is not a key here") && !text.contains("sk-of"), "{text}");
}

#[test]
fn an_upstream_has_a_url_or_is_a_built_in_model() {
    let upstreams =
        "  upstreams: [{ name: demo, builtin: demo-model }]\n  models: [{ match: m, upstream: demo }]\n";
    let llm = loaded(upstreams).config.llm.unwrap();
    assert_eq!(
        (llm.upstreams[0].builtin, &llm.upstreams[0].base_url),
        (Some(BuiltinModel::DemoModel), &None)
    );
    upstream("name: u", "none of `base_url`, `builtin` is given", "give exactly one of them");
    upstream(
        "name: u, builtin: demo-model, base_url: \"https://a\"",
        "`base_url` and `builtin` exclude each other",
        "give exactly one of `base_url`, `builtin`",
    );
    upstream(
        "name: u, builtin: demo-modell",
        "`builtin` must be `demo-model`, not `demo-modell`",
        "did you mean `demo-model`?",
    );
    upstream(
        "name: u, builtin: demo-model, credential: \"${SECRET}\"",
        "`credential` is of no use: a built-in model takes none",
        "leave it out",
    );
    upstream(
        "name: u, builtin: demo-model, allow_plaintext: true",
        "`allow_plaintext` is of no use: a built-in model takes no credential",
        "leave it out",
    );
}

/// Tests a tenant's `credentials`.
#[track_caller]
fn credentials(entries: &str, message: &str, remedy: &str) {
    let upstreams = "
    - { name: openai, base_url: https://api.openai.com/v1 }
    - { name: vllm, base_url: http://vllm:8000 }
    - { name: demo, builtin: demo-model }";
    let tenants = format!("tenants:\n  list:\n    - {{ id: acme, llm: {{ credentials: {entries} }} }}\n");
    rest(&format!("{tenants}llm:\n  upstreams:{upstreams}\n  {MODELS}\n"), 4, message, remedy);
}

#[test]
fn a_tenant_s_credential_is_a_key_for_an_upstream() {
    let add = "add it to `llm.upstreams`, or name one that is there";
    credentials("{ opanai: \"${SECRET}\" }", "there is no upstream `opanai`", "did you mean `openai`?");
    credentials("{ other: \"${SECRET}\" }", "there is no upstream `other`", add);
    let what = "the credential for `openai`";
    let alone = "write the provider's key alone, without `Bearer`";
    let wrong = format!("{what} holds characters that no key has, such as a space or a line break");
    credentials("{ openai: \"Bearer sk-1\" }", &wrong, alone);
    credentials("{ openai: \"sk-1\\nx: y\" }", &wrong, alone);
    let empty = format!("{what} is empty");
    credentials("{ openai: \"\" }", &empty, "write the provider's key, or leave it out");
    credentials(
        "{ vllm: \"${SECRET}\" }",
        "the credential for `vllm` would go over the network in plaintext",
        "use `https://` or a loopback address, or set `allow_plaintext: true`",
    );
    credentials(
        "{ demo: \"${SECRET}\" }",
        "the credential for `demo` is of no use: a built-in model takes none",
        "leave it out",
    );
    credentials("{ openai: [a] }", "`openai` must be text, not a list", "");
    let alone = "tenants:\n  list:\n    - { id: acme, llm: { credentials: { openai: \"${SECRET}\" } } }\n";
    rest(alone, 4, "there is no upstream `openai`", add);
}

#[test]
fn a_tenant_has_few_credentials() {
    let (mut upstreams, mut keys) = (String::new(), String::new());
    for at in 0..65 {
        let _ = writeln!(upstreams, "    - {{ name: u{at}, base_url: \"https://a\" }}");
        let _ = write!(keys, "u{at}: k, ");
    }
    let text = format!(
        "{AUTH}tenants:\n  list:\n    - {{ id: acme, llm: {{ credentials: {{ {keys} }} }} }}\n\
         llm:\n  upstreams:\n{upstreams}  models: [{{ match: a, upstream: u0 }}]\n"
    );
    let problems = problems(&text).to_string();
    assert!(problems.contains("`credentials` has 65 entries"), "{problems}");
}

/// A file with two tenants, of which `acme` has a key.
fn with_keys(more: &str) -> LoadedConfig {
    let env = [("ACME".to_owned(), "sk-of-acme".to_owned())];
    let text = format!(
        "{AUTH}tenants:\n  list:\n    - {{ id: acme, llm: {{ credentials: {{ openai: \"${{ACME}}\" }} }} }}\n\
         \x20   - {{ id: globex }}\nllm:\n  {UPSTREAMS}\n  {MODELS}\n{more}"
    );
    from_text(String::new(), &text, env).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn a_tenant_s_credentials_are_never_shown_and_no_object_of_the_registry_has_them() {
    let loaded = with_keys("");
    let keys = &loaded.config.llm.as_ref().unwrap().tenant_credentials;
    assert_eq!(keys.keys().collect::<Vec<_>>(), ["acme"]);
    assert_eq!(keys["acme"]["openai"].expose(), "sk-of-acme");
    let tenant = &loaded.config.tenants.list[0];
    assert!(tenant.llm.credentials.is_empty());
    let effective = serde_json::to_string(&loaded.effective()).unwrap();
    assert!(effective.contains("\"value\":\"${ACME}\""), "{effective}");
    let written = loaded.written_values(TENANTS);
    assert_eq!(written[0], json!({ "id": "acme", "llm": {} }));
    for text in [effective, format!("{loaded:?}"), format!("{written:?}")] {
        assert!(!text.contains("sk-of"), "{text}");
    }
    let wrong =
        format!("{AUTH}tenants: {{ list: [{{ id: a, llm: {{ credentials: {{ o: sk-of-a }}, x: 1 }} }}] }}\n");
    let text = problems(&wrong).to_string();
    assert!(text.contains("`x` is not a key here") && !text.contains("sk-of"), "{text}");
}

#[test]
fn credentials_of_the_file_s_tenants_count_while_these_tenants_do() {
    let keys = |more: &str| {
        let loaded = with_keys(more).with(ObjectSet::default());
        loaded.config.llm.unwrap().tenant_credentials.len()
    };
    assert_eq!(keys("store: { url: \"sqlite:///tmp/a.db\" }\n"), 1);
    assert_eq!(keys("store: { url: \"sqlite:///tmp/a.db\", apply_file: false }\n"), 0);
}

#[test]
fn a_tenant_of_the_api_has_no_credentials() {
    let spec = json!({ "id": "acme", "llm": { "credentials": { "openai": "sk-of-acme" } } });
    let problems = check_object(TENANTS, &spec);
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!(
        (&*problem.pointer, &*problem.message),
        ("/llm/credentials", "only tenants of the gateway's file have `credentials`")
    );
    assert!(!format!("{problem:?}").contains("sk-of"));
}
