//! Tests `hookgate explain --surface llm`: people are told how answers are streamed, which models a tenant has, and what is
//! refused, and a gateway does what they are told.

use hookgate_tests::{
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};

use crate::{
    admin::registry::support::{confined, get},
    cli::{
        registry::support::Desk,
        support::{CommandOutput, Folder, smallest},
    },
};

/// Part of what must not be shown.
const SENTINEL: &str = "sk-somebody";

fn file() -> Value {
    let mut file = smallest();
    file["tenants"]["list"] = json!([
        { "id": "acme" },
        { "id": "globex", "disable": ["guard", "audit"], "llm": { "models": ["fast"] } },
        { "id": "gone", "enabled": false },
    ]);
    file["plugins"] = json!([
        { "name": "tool-policy", "builtin": "tool-policy", "config": { "default": "allow", "rules": [] } },
        { "name": "audit", "endpoint": "http://127.0.0.1:1", "required": false },
    ]);
    file["bindings"] = json!([
        { "name": "guard", "plugin": "tool-policy", "tenant": "*", "priority": 10, "overridable": true },
        { "name": "audit", "plugin": "audit", "tenant": "*", "priority": 20, "mode": "observe",
          "points": ["before_response"], "overridable": true },
    ]);
    file["llm"] = json!({
        "upstreams": [
            { "name": "demo", "builtin": "demo-model" },
            { "name": "openai", "base_url": "https://api.openai.com/v1", "credential": SENTINEL },
            { "name": "anthropic", "builtin": "demo-model", "format": "anthropic" },
        ],
        "models": [
            { "match": "fast", "upstream": "demo", "as": "gpt-5-mini" },
            { "match": "gpt-*", "upstream": "openai" },
            { "match": "claude-*", "upstream": "anthropic" },
        ],
        "allow": ["web_search_options"],
    });
    file
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("f.yaml", &file().to_string());
    folder
}

async fn explain(folder: &Folder, tenant: &str, more: &[&str]) -> CommandOutput {
    let args = ["explain", "--surface", "llm", "--config", "f.yaml", "--tenant", tenant];
    folder.run(&[&args[..], more].concat()).await
}

fn assert_lines(told: &CommandOutput, lines: &[&str]) {
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""), "{told:?}");
    for line in lines {
        assert!(told.stdout.lines().any(|told| told == *line), "no line `{line}` in\n{}", told.stdout);
    }
    assert!(told.stdout.lines().all(|line| line.chars().count() <= 120), "{}", told.stdout);
    assert!(!told.stdout.contains(SENTINEL), "{}", told.stdout);
}

#[tokio::test]
async fn people_are_told_what_the_proxy_does_for_a_tenant_and_why() {
    let folder = folder();
    let lines = [
        "tenant   acme: listed",
        "open     points of plugins that aren't built in are unknown",
        "  before_llm_request  nobody is asked",
        "  before_tool_call    may block or change  guard",
        "  before_response     observes             audit (observes)",
        "  /openai/v1/chat/completions          in windows, the rest held for before_tool_call and before_response",
        "  /openai/v1/embeddings                never streamed",
        "  - held for before_response by audit (observes)",
        "fast      openai     demo       gpt-5-mini",
        "gpt-*     openai     openai     -",
        "`llm.allow` has web_search_options. It is for all tenants.",
        "REFUSED BY DEFAULT IN ALL FORMATS",
        "    refused  `previous_response_id`; `conversation`; `thread`; `cached_content`; `cachedContent`",
        "    allowed  `web_search_options`",
        "    refused  `plugins`; `mcp_servers`; `web_search`; `enable_search`; `search_options`;",
        "             `enable_code_interpreter`; `search_parameters`; `enable_enhancement`;",
        "             `force_search_enhancement`",
        "    refused  a model named `*-search-preview*`, `*-search-api*`, `*sonar*` or `*:online` (allow:",
        "             web_search)",
        "    passes   `background`",
        "REFUSED BY DEFAULT AT /anthropic/v1/messages/count_tokens: as at /anthropic/v1/messages",
    ];
    assert_lines(&explain(&folder, "acme", &[]).await, &lines);
    let lines = [
        "  before_tool_call    nobody is asked",
        "  /openai/v1/chat/completions          pass: nobody is asked about answers",
        "The tenant's `llm.models` allows only: fast",
    ];
    assert_lines(&explain(&folder, "globex", &[]).await, &lines);
    let gone = explain(&folder, "gone", &[]).await;
    assert_lines(&gone, &["tenant   gone: disabled, its calls are refused: TENANT_DISABLED"]);
    assert!(!gone.stdout.contains("REFUSED"), "{gone:?}");
}

/// What is refused of one request, by the row of its member.
#[tokio::test]
async fn a_gateway_refuses_what_is_explained() {
    let folder = folder();
    let gateway = Setup::file(&file().to_string()).start().await;
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    for tenant in ["acme", "globex"] {
        let said = explain(&folder, tenant, &["--output", "json"]).await.json();
        let rows = said["proxy"]["refused"].as_array().expect("rows");
        let rows: Vec<_> = rows.iter().filter(|row| row["opened_by"]["entry"].is_string()).collect();
        let mut seen = Vec::new();
        for row in rows.iter().filter(|row| row["what"].as_str().is_some_and(|what| what.starts_with('`'))) {
            let name = row["opened_by"]["entry"].as_str().expect("a name");
            let mut request = json!({ "model": "fast", "messages": [{ "role": "user", "content": "hi" }] });
            request[name] = json!("x");
            let url = format!("http://{}/openai/v1/chat/completions", gateway.data_addr());
            let request = client.post(url).bearer_auth(token(tenant)).json(&request);
            let status = request.send().await.expect("the gateway answers").status().as_u16();
            let expected = if row["status"] == "refused" { 400 } else { 200 };
            assert_eq!(status, expected, "{tenant} {name}");
            seen.push(row["status"].clone());
        }
        assert!(seen.len() > 10 && seen.contains(&json!("refused")), "{seen:?}");
        assert!(seen.contains(&json!("passes")), "{seen:?}");
    }
}

#[tokio::test]
async fn a_running_gateway_explains_its_surface_with_the_models_of_the_registry() {
    let setup = Gateway::with().tenant("acme").tenant("globex").admin().set("/llm", json!({}));
    let desk = Desk::of(setup.builtin("redact", &json!({})).binding("redact", 10)).await;
    let explain = ["explain", "--surface", "llm", "--tenant", "acme"];
    let without = desk.does(&explain).await;
    assert!(
        without.contains(", revision 1\n") && without.contains("The tenant may use no model."),
        "{without}"
    );
    assert!(without.contains("in windows, the rest held for"), "{without}");
    desk.folder.write("demo.yaml", "builtin: demo-model");
    desk.does(&["upstream", "set", "demo", "--file", "demo.yaml"]).await;
    desk.does(&["model", "set", "fast", "--match", "fast", "--upstream", "demo", "--as", "gpt-5-mini"]).await;
    let with = desk.does(&explain).await;
    assert!(with.contains(", revision 3\n"), "{with}");
    assert!(with.contains("fast   openai  demo      gpt-5-mini\n"), "{with}");
    // A token that names a tenant is told of that tenant alone.
    let own = desk.gateway.admin(&confined("acme"));
    let path = |tenant: &str| format!("tenants/{tenant}/explain?surface=llm");
    assert_eq!(get(&own, &path("acme")).await.body["proxy"]["models"][0]["name"], "fast");
    assert_eq!(get(&own, &path("globex")).await.status, 404);
    for query in ["surface=mcp", "surface=llm&point=before_response", "surface=llm&surface=llm"] {
        let refused = get(&own, &format!("tenants/acme/explain?{query}")).await;
        assert_eq!((refused.status, &refused.body["code"]), (400, &json!("PAYLOAD_INVALID")), "{query}");
    }
}

#[tokio::test]
async fn a_surface_needs_a_source_and_takes_no_properties_of_a_call() {
    let folder = folder();
    let ran = folder.run(&["explain", "--surface", "llm", "--tenant", "acme"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("give a file with --config"), "{ran:?}");
    for call in [["--point", "before_response"], ["--tool", "x"], ["--label", "a=b"], ["--timeout", "1s"]] {
        let ran = explain(&folder, "acme", &call).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("cannot be used with"), "{ran:?}");
    }
    folder.write("f.yaml", &smallest().to_string());
    let without = explain(&folder, "acme", &[]).await;
    assert_lines(&without, &["The configuration has no `llm`."]);
}
