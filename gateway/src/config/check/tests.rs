//! Tests each mistake that the checks reject: the position, message and remedy, and that nothing else is
//! reported.

use crate::config::{fixtures::*, load::from_text};

const NAME_RULE: &str = "a name is a letter and up to 63 letters, digits, `_` and `-`";
const ENDPOINT_REMEDY: &str =
    "write `unix:///path/of.sock`, `http://host:port`, `https://host:port` or `dns:///name:port`";

#[test]
fn names_follow_one_rule() {
    for name in ["1p", "p p", "p.q", "_p", "p@acme", "é", &"p".repeat(65)] {
        plugin(
            &format!("name: \"{name}\", endpoint: \"http://a:1\""),
            &format!("`{name}` is not a name"),
            NAME_RULE,
        );
    }
    binding("plugin: p, name: \"p@acme\", tenant: acme, priority: 2", "`p@acme` is not a name", NAME_RULE);
    for name in ["p", "P-1_x", &"p".repeat(64)] {
        from_text(
            String::new(),
            &served(&format!("{AUTH}plugins: [{{ name: {name}, endpoint: \"http://a:1\" }}]")),
            [],
        )
        .unwrap();
    }
}

#[test]
fn names_stand_once() {
    let remedy = "give one of the two another name, or remove it";
    rest(
        "plugins:\n  - { name: p, endpoint: \"http://a:1\" }\n  - { name: p, builtin: content-policy }\n",
        4,
        "a plugin `p` is already defined, at /plugins/0/name",
        remedy,
    );
    rest(
        "tenants:\n  list:\n    - id: acme\n    - id: acme\n",
        5,
        "a tenant `acme` is already defined, at /tenants/list/0/id",
        remedy,
    );
    let bindings =
        "  - { plugin: p, tenant: acme, priority: 2 }\n  - { plugin: p, tenant: acme, priority: 3 }\n";
    let rest_of = REST.replace("bindings: [", "bindings:\n  - ").replace("1 }]", "1 }");
    rest(
        &format!("{rest_of}{bindings}"),
        7,
        "a binding `p@acme` is already defined, at /bindings/1/plugin",
        remedy,
    );
    let named = REST.replace(
        "bindings: [",
        "bindings:\n  - { plugin: p, name: p, selector: { a: b }, priority: 2 }\n  - ",
    );
    rest(&named.replace("1 }]", "1 }"), 6, "a binding `p` is already defined, at /bindings/0/name", remedy);
    let twice = "  - { issuer: i, audience: a, jwks_url: \"https://x\", tenants: \"*\" }\n".repeat(2);
    refused(
        &format!("auth:\n  issuers:\n{twice}"),
        4,
        "issuer `i` is already defined, at /auth/issuers/0/issuer",
        remedy,
    );
}

#[test]
fn one_of_several_keys_is_chosen() {
    let both = |a: &str, b: &str| format!("`{a}` and `{b}` exclude each other");
    let all = "`endpoint`, `endpoints`, `self_registration`, `builtin`";
    plugin("name: p", &format!("none of {all} is given"), "give exactly one of them");
    plugin(
        "name: p, endpoint: \"http://a:1\", builtin: content-policy",
        &both("endpoint", "builtin"),
        &format!("give exactly one of {all}"),
    );
    binding(
        "plugin: p, name: b, priority: 2",
        "none of `tenant`, `selector` is given",
        "give exactly one of them",
    );
    binding(
        "plugin: p, name: b, priority: 2, tenant: \"*\", selector: { a: b }",
        &both("tenant", "selector"),
        "give exactly one of `tenant`, `selector`",
    );
    issuer("tenants: \"*\"", "none of `jwks_url`, `keys` is given", "give exactly one of them");
    issuer(
        "jwks_url: \"https://x\", keys: [{ jwk_file: /x }]",
        &both("jwks_url", "keys"),
        "give exactly one of `jwks_url`, `keys`",
    );
    key("kid: a", "none of `secret`, `pem_file`, `jwk_file` is given", "give exactly one of them");
    key(
        "alg: RS256, pem_file: /x, jwk_file: /x",
        &both("pem_file", "jwk_file"),
        "give exactly one of `secret`, `pem_file`, `jwk_file`",
    );
}

#[test]
fn endpoints_are_unix_sockets_or_urls_of_a_port() {
    let begins = "an endpoint begins with `unix:///`, `http://`, `https://` or `dns:///`";
    for (endpoint, message) in [
        ("ftp://a:1", begins),
        ("https://a", "this endpoint has no port"),
        ("https://a:1/path", "an endpoint must end after the port"),
        ("dns://a:1", begins),
        ("dns:///a", "this endpoint has no port"),
        ("a:1", begins),
        ("http://a", "this endpoint has no port"),
        ("http://a:0", "this endpoint has no port"),
        ("http://a:1/path", "an endpoint must end after the port"),
        ("http://a:1?q", "an endpoint must end after the port"),
        ("http://u:p@a:1", "an endpoint must be a host and a port, and nothing else"),
        ("http://a b:1", "this endpoint is not a URL"),
        ("", begins),
        ("unix://run/x.sock", "the path of a Unix socket must be absolute"),
        ("unix:///", "the path of a Unix socket must be absolute"),
        (&format!("unix:///{}", "x".repeat(107)), "the path of a Unix socket has at most 107 bytes"),
    ] {
        plugin(&format!("name: p, endpoint: \"{endpoint}\""), message, ENDPOINT_REMEDY);
    }
    for endpoint in ["http://a:1", "http://a:1/", "https://a:1", "http://[::1]:1", "unix:///x", "dns:///a:1"]
    {
        let text = format!("{AUTH}plugins: [{{ name: p, endpoint: \"{endpoint}\" }}]");
        from_text(String::new(), &served(&text), []).unwrap();
    }
    let several = |list: &str| format!("name: p, endpoints: [{list}]");
    plugin(&several("\"http://a:1\", \"ftp://a:1\""), begins, ENDPOINT_REMEDY);
    let twice = several("\"http://a:1\", \"http://b:1\", \"http://a:1\"");
    plugin(&twice, "`http://a:1` is listed twice", "name each endpoint once");
    plugin(
        "name: p, builtin: content-polcy",
        "`content-polcy` is not built in",
        "did you mean `content-policy`?",
    );
    let remedy = "write `circuit-breaker`, `content-policy`, `loop-detect`, `output-validate`, `rate-limit`, `redact`, `response-sanitizer`, `secrets` or `tool-policy`";
    plugin("name: p, builtin: x", "`x` is not built in", remedy);
}

#[test]
fn a_file_that_refuses_everybody_is_refused() {
    for tenants in ["", "tenants: {}\n", "tenants: { list: [] }\n", "tenants: { unknown: refuse }\n"] {
        let problems = from_text(String::new(), &format!("{AUTH}{tenants}"), []).unwrap_err();
        let said: Vec<_> = problems.iter().map(|at| at.problem.message.as_str()).collect();
        let refused = "no tenant is listed and unknown tenants are refused: every call would be refused";
        assert_eq!(said, [refused], "{tenants}");
    }
    for tenants in ["{ unknown: accept }", "{ list: [{ id: acme, enabled: false }] }"] {
        from_text(String::new(), &format!("{AUTH}tenants: {tenants}\n"), []).unwrap();
    }
}

#[test]
fn a_config_with_references_stays_off_the_network_unless_allowed() {
    let text = |endpoint: &str, more: &str| {
        format!("name: p, endpoint: \"{endpoint}\", config: {{ a: [\"x-${{SECRET}}\"] }}{more}")
    };
    plugin(
        &text("http://plugin:1", ""),
        "`config` holds references, which would go over the network in plaintext",
        "use `https://`, a Unix socket or a loopback address, or set `allow_plaintext: true`",
    );
    for (endpoint, more) in [
        ("http://plugin:1", ", allow_plaintext: true"),
        ("http://127.0.0.9:1", ""),
        ("http://[::1]:1", ""),
        ("http://localhost:1", ""),
        ("unix:///x", ""),
    ] {
        let file = format!("{AUTH}plugins: [{{ {} }}]", text(endpoint, more));
        from_text(String::new(), &served(&file), [("SECRET".to_owned(), "x".to_owned())]).unwrap();
    }
}

#[test]
fn ranges_hold() {
    let duration = |least: &str, most: &str| format!("write a duration from {least} to {most}");
    let range = |key: &str| format!("`{key}` is out of range");
    for (key, value, least, most) in [
        ("timeout", "9ms", "10ms", "60s"),
        ("timeout", "61s", "10ms", "60s"),
        ("connect", "0s", "1ms", "60s"),
        ("connect", "61s", "1ms", "60s"),
        ("initialize", "121s", "1ms", "120s"),
        ("shutdown", "31s", "1ms", "30s"),
        ("queue_wait", "2m", "0s", "60s"),
    ] {
        let text = format!("name: p, endpoint: \"http://a:1\", limits: {{ {key}: {value} }}");
        plugin(&text, &range(key), &duration(least, most));
    }
    binding(
        "plugin: p, name: b, tenant: \"*\", priority: 2, timeout: 5ms",
        &range("timeout"),
        &duration("10ms", "60s"),
    );
    issuer("jwks_url: \"https://x\", leeway: 6m", &range("leeway"), &duration("0s", "300s"));
    issuer("jwks_url: \"https://x\", jwks_ttl: 0s", &range("jwks_ttl"), &duration("1s", "3600s"));
    for (section, key, value, most) in [
        ("limits", "request", "17MiB", "16MiB"),
        ("limits", "request", "0B", "16MiB"),
        ("limits", "notice_bytes", "0B", "16MiB"),
        ("limits", "details_bytes", "0B", "16MiB"),
        ("observers", "bytes", "0B", "1024GiB"),
    ] {
        let text = format!("{section}: {{ {key}: {value} }}\n");
        rest(&text, 2, &range(key), &format!("write a size from 1B to {most}"));
    }
    rest("limits: { budget: 61s }\n", 2, &range("budget"), &duration("10ms", "60s"));
    rest("drain: { finish: 2h }\n", 2, &range("finish"), &duration("0s", "3600s"));
    rest("startup: { wait: 2h }\n", 2, &range("wait"), &duration("0s", "3600s"));
    rest(
        "limits: { bytes_in_flight: 1MiB }\n",
        2,
        "`bytes_in_flight` is below `request` (4MiB), so that no request of that size fits",
        "raise it, or lower `limits.request`",
    );
    rest(
        "server: { ops_addr: \"127.0.0.1:8080\" }\n",
        2,
        "`ops_addr` is the same address as `data_addr`",
        "use different ports",
    );
    let opened = AUTH.replace("audience: a,", "audience: a, admin_audience: o, scopes: [\"hookgate:read\"],");
    refused(
        &format!("{opened}server: {{ admin_addr: \"127.0.0.1:9090\" }}\n"),
        2,
        "`admin_addr` is the same address as `ops_addr`",
        "use different ports",
    );
}

#[test]
fn an_admin_audience_is_another_and_lets_somebody_in() {
    issuer(
        "jwks_url: \"https://x\", admin_audience: a, scopes: [\"hookgate:admin\"]",
        "`admin_audience` equals `audience`: agents' tokens would also be operators' tokens",
        "use different values",
    );
    issuer(
        "jwks_url: \"https://x\", admin_audience: o, scopes: [\"hookgate:invoke\"]",
        "`admin_audience` has no effect: `scopes` contains none of `hookgate:read`, `hookgate:admin` and `hookgate:plugin`",
        "add one of them to `scopes`, or leave `admin_audience` out",
    );
}

#[test]
fn verdict_rules_are_written_one_way() {
    let remedy =
        "omit `blocking`: true is `mode: enforce, on_error: fail`, false is `mode: advise, on_error: skip`";
    for rule in ["blocking: true, mode: enforce", "blocking: false, on_error: skip"] {
        binding(
            &format!("plugin: p, name: b, tenant: \"*\", priority: 2, {rule}"),
            "`blocking` can't be combined with `mode` and `on_error`, which it abbreviates",
            remedy,
        );
    }
    binding(
        "plugin: p, name: b, tenant: \"*\", priority: 2, mode: observe, on_error: skip",
        "`on_error` has no effect with `mode: observe`, whose failures change nothing",
        "leave `on_error` out",
    );
}

#[test]
fn bindings_name_what_exists() {
    binding(
        "plugin: pp, name: b, tenant: \"*\", priority: 2",
        "there is no plugin `pp`",
        "did you mean `p`?",
    );
    binding(
        "plugin: other, name: b, tenant: \"*\", priority: 2",
        "there is no plugin `other`",
        "add it to `plugins`, or name one that is there",
    );
    binding(
        "plugin: p, name: b, tenant: acmee, priority: 2",
        "there is no tenant `acmee` in `tenants.list`",
        "did you mean `acme`?",
    );
    binding(
        "plugin: p, name: b, selector: {}, priority: 2",
        "`selector` has no label",
        "write the labels that a tenant must have, or `tenant: \"*\"` for all",
    );
}

#[test]
fn writable_fields_exist_at_a_point_of_the_binding() {
    binding(
        "plugin: p, name: b, tenant: \"*\", priority: 2, points: [before_tool_call], writable: [args, text]",
        "`text` can't be patched at any point of this binding",
        "write `args`, `extra` or `tool_name`",
    );
    binding(
        "plugin: p, name: b, tenant: \"*\", priority: 2, writable: [contents]",
        "`contents` can't be patched at any point of this binding",
        "did you mean `content`?",
    );
    let good = "bindings: [{ plugin: p, tenant: \"*\", priority: 1, writable: [result, reasoning, images, tool_name] }]";
    let text =
        format!("{AUTH}{}", REST.replace("bindings: [{ plugin: p, tenant: \"*\", priority: 1 }]", good));
    from_text(String::new(), &served(&text), []).unwrap();
}

#[test]
fn match_conditions_are_checked_when_read() {
    let start = "plugin: p, name: b, tenant: \"*\", priority: 2";
    let globs = "globs support `*`, `?` and `[..]`; `[*]` matches a star";
    for list in ["tools: [\"[a\"]", "agents: [\"[a\"]", "models: [\"[a\"]", "labels: { k: [\"[a\"] }"] {
        binding(
            &format!("{start}, match: {{ {list} }}"),
            "`[a` has a `[` without its `]`; a literal `[` is written `[[]`",
            globs,
        );
    }
    binding(
        &format!("{start}, match: {{ text: {{ regex: ['(a'] }} }}"),
        "not a regular expression: unclosed group",
        "write it in the syntax of the Rust crate regex, in single quotes",
    );
    binding(
        &format!(
            "{start}, points: [before_response, after_tool_result], match: {{ text: {{ contains: [a] }} }}"
        ),
        "`match.text` can't be evaluated at the tool points, which `points` lists",
        "split the binding in two, one for the tool points without `text`",
    );
    let good = format!(
        "{start}, match: {{ text: {{ contains: [a], regex: ['^a$'] }}, tools: [\"fs.*\", \"[*]\"] }}"
    );
    let text = format!("{AUTH}{}", REST.replace("plugin: p, tenant: \"*\", priority: 1", &good));
    from_text(String::new(), &served(&text), []).unwrap();
}

#[test]
fn block_statuses_leave_the_tables_alone() {
    let status = |code: &str| format!("block_status: {{ \"{code}\": 422 }}\n");
    for (code, _) in crate::core::block_status::FIXED_BLOCK_STATUSES {
        let message = format!("`{code}` has a fixed status");
        rest(&status(code), 2, &message, "leave it out, or choose another code");
    }
    for code in crate::core::error::Code::ALL {
        let message = format!("`{code}` is an error code of the gateway");
        rest(&status(code.as_str()), 2, &message, "choose another code");
    }
    let rule = "a code is a letter and up to 63 letters, digits, `_`, `.`, `:` and `-`";
    for code in ["1A", "A B", ""] {
        rest(&status(code), 2, &format!("`{code}` is not a code"), rule);
    }
    for wrong in ["399", "500", "70000"] {
        let text = format!("block_status: {{ MY.CODE: {wrong} }}\n");
        rest(&text, 2, &format!("`MY.CODE` must be a whole number from 400 to 499, not `{wrong}`"), "");
    }
    plugin(
        "name: p, endpoint: \"http://a:1\", block_status: { BLOCKED: 422 }",
        "`BLOCKED` has a fixed status",
        "leave it out, or choose another code",
    );
}

#[test]
fn issuers_say_for_whom_they_speak() {
    let entry = |name: &str, more: &str| {
        format!("    - {{ issuer: {name}, audience: a, jwks_url: \"https://x\"{more} }}\n")
    };
    refused(
        &format!("auth:\n  issuers:\n{}{}", entry("a", ""), entry("b", ", tenants: [acme]")),
        3,
        "`tenants` is missing: with more than one issuer, each needs it",
        "add `tenants: [ids]`, `tenants: {fixed: id}` or `tenants: \"*\"`",
    );
    issuer(
        "jwks_url: \"https://x\", tenants: acme",
        "`tenants` must be `\"*\"`, a list of ids, or `{fixed: id}`, not `acme`",
        "",
    );
    issuer(
        "jwks_url: \"https://x\", tenants: { fixd: a }",
        "`fixd` is not a key here",
        "did you mean `fixed`?",
    );
    let remedy = "write one tenant's id; for all tenants write `tenants: \"*\"`";
    issuer("jwks_url: \"https://x\", tenants: [\"*\"]", "`*` is not a tenant id", remedy);
    issuer("jwks_url: \"https://x\", tenants: { fixed: \"\" }", "a tenant's id has 1 to 256 bytes", remedy);
    issuer(
        "jwks_url: \"https://x\", scopes: [hookgate:invok]",
        "an entry of `scopes` must be `hookgate:invoke`, `hookgate:read`, `hookgate:admin` or `hookgate:plugin`, not `hookgate:invok`",
        "did you mean `hookgate:invoke`?",
    );
    for url in ["http://id.example.com/x", "ftp://x", "x", "https://u:p@x/"] {
        issuer(
            &format!("jwks_url: \"{url}\""),
            "`jwks_url` must be an https URL, or an http one on loopback",
            "write `https://host/path`",
        );
    }
    for url in ["http://127.0.0.1:1/x", "http://[::1]/x", "http://localhost/x"] {
        from_text(String::new(), &served(&AUTH.replace("https://id/keys", url)), []).unwrap();
    }
}

#[test]
fn keys_name_their_algorithm() {
    let long = "x".repeat(32);
    let shared = "add `alg`: `HS256`, `HS384` or `HS512`";
    let missing = "`alg` is missing: a secret or a PEM file doesn't name its algorithm";
    key(&format!("secret: {long}"), missing, shared);
    let public = "`RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384` or `EdDSA`";
    key("pem_file: /x", missing, &format!("add `alg`: {public}"));
    key(
        &format!("alg: RS256, secret: {long}"),
        "`RS256` is not an algorithm for this key",
        "did you mean `HS256`?",
    );
    key("alg: none, pem_file: /x", "`none` is not an algorithm for this key", &format!("write {public}"));
    key("alg: hs265, jwk_file: /x", "`hs265` is not an algorithm for this key", "did you mean `HS256`?");
    key(
        "alg: HS256, secret: short",
        "`secret` has fewer than 32 bytes",
        "use a random secret of 32 bytes or more, such as from `openssl rand -hex 32`",
    );
}

#[test]
fn tenants_have_ids_and_disable_what_may_be_disabled() {
    for (id, message) in [
        ("*", "`*` is not a tenant id"),
        ("", "a tenant's id has 1 to 256 bytes"),
        (&"x".repeat(257), "a tenant's id has 1 to 256 bytes"),
        ("a\\tb", "a tenant's id holds no control characters"),
    ] {
        let text = format!("tenants: {{ list: [{{ id: \"{id}\" }}] }}\n");
        rest(&text, 2, message, "write the id that tokens carry");
    }
    let tenant = |more: &str| REST.replace("id: acme", &format!("id: acme, {more}"));
    rest(&tenant("disable: [pp]"), 3, "there is no binding `pp`", "did you mean `p`?");
    rest(&tenant("config: { pp: {} }"), 3, "there is no plugin `pp`", "did you mean `p`?");
    rest(
        &tenant("disable: [p]"),
        3,
        "binding `p` can't be disabled by a tenant",
        "set `overridable: true` in the binding, or remove it from `disable`",
    );
    let own = tenant("disable: [\"p@acme\"]").replace("tenant: \"*\"", "tenant: acme, overridable: true");
    rest(
        &own,
        3,
        "binding `p@acme` applies to one tenant only, and can't be disabled by `disable`",
        "set `enabled: false` in the binding, or remove it",
    );
    let good = tenant("disable: [p]").replace("priority: 1", "priority: 1, overridable: true");
    from_text(String::new(), &served(&format!("{AUTH}{good}")), []).unwrap();
}

#[test]
fn telemetry_goes_to_a_url_that_holds_no_credentials() {
    let remedy = "write `http://host:port` or `https://host:port`";
    for (endpoint, fault) in [
        ("collector:4317", "is not a URL with `http://` or `https://`"),
        ("ftp://collector", "is not a URL with `http://` or `https://`"),
        ("http://a b", "is not a URL"),
        (
            "http://me:secret@collector",
            "names a user; credentials go into the variable OTEL_EXPORTER_OTLP_HEADERS",
        ),
        ("http://collector?a=b", "has a query"),
        (
            "http://2852039166:4318",
            "is a link-local or cloud metadata address, to which the gateway never connects",
        ),
        ("http://collector/v1", "has a path, which gRPC has no use for"),
    ] {
        let text = format!("telemetry: {{ otlp_endpoint: \"{endpoint}\" }}\n");
        rest(&text, 2, &format!("`otlp_endpoint` {fault}"), remedy);
    }
    let remedy = "write ids of tenants";
    rest("telemetry: { tenant_labels: [acme, \"*\"] }\n", 2, "`*` is not a tenant id", remedy);
    let remedy = "write a duration from 1ms to 3600s";
    rest("telemetry: { slow_invocation: 0s }\n", 2, "`slow_invocation` is out of range", remedy);
}

#[test]
fn breaker_and_health_keep_to_their_ranges() {
    let plugin = |text: &str, message, remedy| {
        plugin(&format!("name: p, endpoint: \"http://a:1\", {text}"), message, remedy)
    };
    plugin("breaker: { open: 0s }", "`open` is out of range", "write a duration from 1ms to 3600s");
    plugin(
        "breaker: { open: 10s, max_open: 5s }",
        "`max_open` is out of range",
        "write a duration from 10s to 3600s",
    );
    plugin("health: { interval: 1ms }", "`interval` is out of range", "write a duration from 10ms to 3600s");
    plugin("health: { timeout: 2m }", "`timeout` is out of range", "write a duration from 1ms to 60s");
}
