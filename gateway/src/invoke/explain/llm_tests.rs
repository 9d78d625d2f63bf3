use serde_json::{Value, json};

use super::*;
use crate::llm::explain::{FormatReport, ModelReport, RefusalStatus, StreamWay};

fn config(bindings: Value, allow: &[&str], models: &Value) -> Config {
    let tenants = json!([
        { "id": "acme", "llm": { "models": models } },
        { "id": "gone", "enabled": false },
        { "id": "strict", "require_steps": ["before_response"] },
    ]);
    let file = json!({
        "auth": { "issuers": [] },
        "tenants": { "list": tenants },
        "plugins": [{ "name": "p", "endpoint": "http://p" }],
        "bindings": bindings,
        "llm": {
            "upstreams": [
                { "name": "demo", "builtin": "demo-model" },
                { "name": "other", "builtin": "demo-model", "format": "anthropic" },
            ],
            "models": [
                { "match": "fast", "upstream": "demo", "as": "gpt-5-mini" },
                { "match": "*", "upstream": "demo" },
                { "match": "claude-*", "upstream": "other" },
            ],
            "allow": allow,
        },
    });
    serde_json::from_value(file).expect("a configuration")
}

fn explained(config: &Config, tenant: &str) -> LlmExplanation {
    let table = RouteTable::build(config, &[], 1).expect("a table");
    let routes = config.llm.as_ref().map(|llm| ModelRoutes::build(llm, &[]).expect("routes"));
    explain_llm(config, &table, routes.as_ref(), false, tenant)
}

fn proxy_of(config: &Config, tenant: &str) -> ProxyReport {
    explained(config, tenant).proxy.expect("the tenant is served")
}

/// A binding at a point, with its name.
fn at(name: &str, point: &str, mode: &str) -> Value {
    json!([{ "name": name, "plugin": "p", "tenant": "*", "priority": 1, "points": [point], "mode": mode }])
}

fn format_of<'p>(proxy: &'p ProxyReport, path: &str) -> &'p FormatReport {
    proxy.formats.iter().find(|format| format.path == path).expect("a format")
}

#[test]
fn streams_are_held_where_anybody_is_asked_about_answers() {
    let cases = [
        (json!([]), "acme", StreamWay::Pass, vec![]),
        (at("a", "before_llm_request", "enforce"), "acme", StreamWay::Pass, vec![]),
        (at("a", "after_tool_result", "enforce"), "acme", StreamWay::Pass, vec![]),
        (at("a", "before_response", "enforce"), "acme", StreamWay::Whole, vec![Point::BeforeResponse]),
        (at("a", "before_response", "observe"), "acme", StreamWay::Windows, vec![Point::BeforeResponse]),
        (at("a", "before_tool_call", "enforce"), "acme", StreamWay::Text, vec![Point::BeforeToolCall]),
        (json!([]), "strict", StreamWay::Whole, vec![Point::BeforeResponse]),
    ];
    for (bindings, tenant, way, held_for) in cases {
        let proxy = proxy_of(&config(bindings.clone(), &[], &json!(null)), tenant);
        for path in ["/openai/v1/chat/completions", "/openai/v1/responses", "/anthropic/v1/messages"] {
            let format = format_of(&proxy, path);
            assert_eq!((format.streams, &format.held_for), (way, &held_for), "{path} {bindings}");
        }
        for path in ["/openai/v1/embeddings", "/anthropic/v1/messages/count_tokens"] {
            let format = format_of(&proxy, path);
            assert_eq!((format.streams, &*format.held_for), (StreamWay::Never, &[][..]), "{path} {bindings}");
        }
    }
}

#[test]
fn those_who_are_asked_are_named() {
    let said = explained(&config(at("audit", "before_response", "observe"), &[], &json!(null)), "strict");
    let points: Vec<_> = said.points.iter().map(|report| report.point).collect();
    assert_eq!(points, Point::ALL);
    let answers = &said.points[Point::BeforeResponse.index()];
    let steps: Vec<_> = answers.steps.iter().map(|step| (&*step.binding, &*step.plugin)).collect();
    assert_eq!(steps, [("audit", "p")]);
    assert!(answers.is_guarded && answers.lacks_steps, "who observes is not what is required");
    let said = explained(&config(at("audit", "before_response", "observe"), &[], &json!(null)), "acme");
    assert!(!said.points[Point::BeforeResponse.index()].is_guarded);
}

#[test]
fn what_is_refused_follows_from_the_plan_and_from_what_is_allowed() {
    let guarded = at("a", "before_tool_call", "enforce");
    let status = |config: &Config, what: &str| {
        let proxy = proxy_of(config, "acme");
        let all = proxy.refused.iter().chain(proxy.formats.iter().flat_map(|format| &format.refused));
        all.clone().find(|row| row.what == what).expect("a row").status
    };
    use RefusalStatus::{Allowed, Passes, Refused};
    let plain = config(json!([]), &["fallbacks"], &json!(null));
    let tools = config(guarded, &["web_search_options", "web_search", "file_id"], &json!(null));
    for (what, in_plain, in_tools) in [
        ("`previous_response_id`", Refused, Refused),
        ("`fallbacks`", Allowed, Refused),
        ("`web_search_options`", Passes, Allowed),
        ("`mcp_servers`", Passes, Refused),
        ("a model named `*-search-preview*`, `*-search-api*`, `*sonar*` or `*:online`", Passes, Allowed),
        ("`file_id` in a content part", Refused, Allowed),
        ("`n` above 8", Passes, Refused),
        ("`prompt`", Passes, Passes),
        ("a name that differs from a known one in case only", Refused, Refused),
    ] {
        assert_eq!((status(&plain, what), status(&tools, what)), (in_plain, in_tools), "{what}");
    }
}

#[test]
fn models_are_those_that_the_tenant_may_name() {
    let models = |limit: Value, tenant| {
        let proxy = proxy_of(&config(json!([]), &[], &limit), tenant);
        let models = proxy.models.into_iter().map(|model| {
            let ModelReport { api, name, upstream, upstream_model } = model;
            format!("{} {name} {upstream} {}", api.as_str(), upstream_model.unwrap_or_default())
        });
        (proxy.limited_to, models.collect::<Vec<_>>())
    };
    let all = ["openai fast demo gpt-5-mini", "openai * demo ", "anthropic claude-* other "];
    assert_eq!(models(json!(null), "acme"), (None, all.map(str::to_owned).to_vec()));
    let limit = vec!["claude-5".to_owned(), "fast".to_owned()];
    let own = ["openai claude-5 demo ", "openai fast demo gpt-5-mini", "anthropic claude-5 other "];
    assert_eq!(models(json!(limit), "acme"), (Some(limit), own.map(str::to_owned).to_vec()));
    assert_eq!(models(json!([]), "acme"), (Some(vec![]), vec![]));
    assert_eq!(models(json!([]), "strict").1.len(), 3);
}

#[test]
fn who_is_not_served_has_no_proxy() {
    let mut served = config(json!([]), &[], &json!(null));
    for (tenant, code) in [("gone", "TENANT_DISABLED"), ("nobody", "TENANT_UNKNOWN")] {
        let said = explained(&served, tenant);
        assert_eq!((said.proxy, said.tenant.code.as_deref()), (None, Some(code)), "{tenant}");
    }
    served.llm = None;
    let said = explained(&served, "acme");
    assert_eq!((said.proxy, said.tenant.code, said.points.len()), (None, None, 4));
}
