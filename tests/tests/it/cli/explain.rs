//! Tests `hookgate explain`: a file and a running gateway give the same explanation, it agrees with a real
//! call, and it shows nothing to callers that it doesn't concern.

use hookgate::core::error::Code;
use hookgate_tests::{
    agent::HttpAgent,
    ca::Ca,
    fake::FakePlugin,
    gateway::{Gateway, Setup},
    openapi::Port,
    token::{ADMIN_AUDIENCE, Token, token},
};
use serde_json::{Value, json};

use crate::{
    cli::support::{CommandOutput, Folder, smallest},
    edge::support::{POINT, assert_http_error},
};

/// Part of every kind of configuration, and of no output.
const SENTINEL: &str = "config-value-of-somebody";

/// Two plugins that are up and one that isn't, bindings of every kind, and an admin port.
async fn plugins() -> (Vec<FakePlugin>, Value) {
    let guard =
        FakePlugin::named("guard").manifest(|manifest| manifest.version = "1.2.3".into()).start().await;
    let words = FakePlugin::named("words").start().await;
    let mut away = FakePlugin::named("away").start().await;
    away.stop().await;
    let mut file = smallest();
    file["auth"]["issuers"][0]["admin_audience"] = json!(ADMIN_AUDIENCE);
    file["auth"]["issuers"][0]["scopes"] = json!(["hookgate:invoke", "hookgate:read"]);
    file["limits"] = json!({ "budget": "6s" });
    let own = json!({ "guard": { "limit": SENTINEL, "more": 1 } });
    let acme = json!({ "id": "acme", "labels": { "plan": "pro" }, "disable": ["beta"], "config": own });
    file["tenants"]["list"][0] = acme;
    file["plugins"] = json!([
        { "name": "guard", "endpoint": guard.endpoint(), "config": { "key": SENTINEL } },
        { "name": "words", "endpoint": words.endpoint() },
        { "name": "away", "endpoint": away.endpoint(), "required": false, "limits": { "timeout": "2s" } },
    ]);
    file["bindings"] = json!([
        { "name": "floor", "plugin": "guard", "tenant": "*", "priority": 1, "match": { "tools": ["fs.*"] } },
        { "name": "gone", "plugin": "away", "selector": { "plan": "pro" }, "priority": 2, "blocking": false },
        { "name": "own", "plugin": "words", "tenant": "acme", "priority": 3, "timeout": "4s",
          "match": { "labels": { "team": ["a"] }, "agents": ["coder"], "agent_paths": ["main/*"] }, "config": { "list": SENTINEL } },
        { "name": "big", "plugin": "words", "selector": { "plan": "big" }, "priority": 4 },
        { "name": "beta", "plugin": "words", "tenant": "*", "priority": 5, "overridable": true },
        { "name": "off", "plugin": "words", "tenant": "*", "priority": 6, "enabled": false },
        { "name": "answers", "plugin": "words", "tenant": "*", "priority": 7, "points": ["before_response"] },
        { "name": "seen", "plugin": "words", "tenant": "*", "priority": 9, "mode": "observe" },
    ]);
    (vec![guard, words, away], file)
}

fn admin(gateway: &Gateway) -> String {
    format!("http://{}", gateway.admin_addr().expect("the admin port is open"))
}

async fn ask(folder: &Folder, url: &str, token: &str, more: &[&str]) -> CommandOutput {
    ask_at("before_tool_call", folder, url, token, more).await
}

/// Calls a gateway, with a dead proxy in the environment.
async fn ask_at(point: &str, folder: &Folder, url: &str, token: &str, more: &[&str]) -> CommandOutput {
    let args = [&["explain", "--addr", url, "--tenant", "acme", "--point", point], more].concat();
    let env = [
        ("HOOKGATE_TOKEN", token),
        ("http_proxy", "http://127.0.0.1:1"),
        ("ALL_PROXY", "http://127.0.0.1:1"),
    ];
    folder.run_with(&args, &env, "").await
}

const CALLS: &[&[&str]] = &[
    &["--tool", "fs.read", "--agent", "coder", "--agent-path", "main/coder", "--label", "team=a"],
    &["--tool", "web get&x=ü+", "--label", "team=b", "--label", "claim.role=x", "--timeout", "900ms"],
    &["--tool", "fs.read", "--agent", "other", "--model", "m", "--text", "a secret"],
    &["--tool", "fs.read", "--agent", "coder", "--agent-path", "batch/coder", "--label", "team=a"],
];

#[tokio::test]
async fn a_file_and_a_gateway_say_the_same_but_for_manifests() {
    let (_plugins, file) = plugins().await;
    let folder = Folder::new();
    folder.write("f.yaml", &file.to_string());
    let gateway = Setup::file(&file.to_string()).start().await;
    let operator = Token::for_operators().mint();
    for call in CALLS {
        let args =
            [&["explain", "--config", "f.yaml", "--tenant", "acme", "--point", "before_tool_call"], *call]
                .concat();
        let mut offline = folder.run(&[&args[..], &["--output", "json"]].concat()).await.json();
        let asked = ask(&folder, &admin(&gateway), &operator, &[*call, &["--output", "json"]].concat()).await;
        assert_eq!(asked.code, Some(0), "{asked:?}");
        let mut online = asked.json();
        assert_ne!(offline["plan_digest"], online["plan_digest"], "versions are part of it");
        // The missing plugin was never described, which only the gateway knows.
        assert_eq!(online["steps"][1]["reason"], json!("not_ready"));
        assert_eq!((&offline["revision"], &online["revision"]), (&Value::Null, &json!(1)));
        assert_eq!((&offline["manifests_known"], &online["manifests_known"]), (&json!(false), &json!(true)));
        for said in [&mut offline, &mut online] {
            for member in ["manifests_known", "plan_digest", "revision", "warnings"] {
                said[member].take();
            }
            said["steps"][1].take();
            for step in said["steps"].as_array_mut().unwrap() {
                step.as_object_mut().map(|step| (step.remove("version"), step.remove("worst_case")));
            }
        }
        assert_eq!(offline, online, "{call:?}");
    }
}

#[tokio::test]
async fn a_call_does_what_is_explained_of_it() {
    let (_plugins, file) = plugins().await;
    let folder = Folder::new();
    let gateway = Setup::file(&file.to_string()).start().await;
    let operator = Token::for_operators().mint();
    let of_coder = |path| json!({ "agent_id": "coder", "agent_path": path, "labels": { "team": "a" } });
    let calls = [
        (CALLS[0], of_coder("main/coder"), "fs.read"),
        (CALLS[1], json!({ "labels": { "team": "b" } }), "web get&x=ü+"),
        (CALLS[2], json!({ "agent_id": "other", "model": "m" }), "fs.read"),
        (CALLS[3], of_coder("batch/coder"), "fs.read"),
    ];
    let (mut outcomes, mut of_own) = (Vec::new(), Vec::new());
    for (args, context, tool) in calls {
        let said =
            ask(&folder, &admin(&gateway), &operator, &[args, &["--output", "json"]].concat()).await.json();
        let body = json!({ "context": context, "payload": { "tool_name": tool, "args": {} } });
        let answer = gateway.http(&token("acme")).post(POINT, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(said["plan_digest"], answer.body["plan_digest"]);
        let explained = said["steps"].as_array().unwrap().iter().map(|step| {
            let outcome =
                if step["outcome"] == "called" { json!("continued") } else { step["outcome"].clone() };
            json!([
                step["binding"],
                outcome,
                if outcome == "observed" { Value::Null } else { step["reason"].clone() }
            ])
        });
        let steps = answer.body["steps"].as_array().unwrap().iter();
        let real: Vec<_> =
            steps.map(|step| json!([step["binding"], step["outcome"], step["reason"]])).collect();
        assert_eq!(explained.collect::<Vec<_>>(), real, "{args:?}");
        of_own.extend(real.iter().filter(|step| step[0] == "own").map(|step| step[1].clone()));
        outcomes.extend(real.into_iter().map(|step| step[1].as_str().unwrap().to_owned()));
    }
    outcomes.sort();
    outcomes.dedup();
    assert_eq!(outcomes, ["continued", "failed_open", "observed", "skipped_condition"]);
    // The calls of `coder` differ in the agent's path alone.
    assert_eq!(of_own, ["continued", "skipped_condition", "skipped_condition", "skipped_condition"]);
}

#[tokio::test]
async fn a_plan_without_a_required_step_is_warned_of() {
    let folder = Folder::new();
    let mut file = smallest();
    file["tenants"]["list"][0] = json!({ "id": "acme", "require_steps": ["before_tool_call"] });
    folder.write("f.yaml", &file.to_string());
    let explain = async |point| {
        let args =
            ["explain", "--config", "f.yaml", "--tenant", "acme", "--point", point, "--output", "json"];
        folder.run(&args).await
    };
    let (warned, other) = (explain("before_tool_call").await, explain("before_response").await);
    let warnings = |ran: &CommandOutput| {
        let said: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        said["warnings"].as_array().expect("a list").clone()
    };
    let expected = "`require_steps` names this point, and the plan has no step in mode enforce or advise: calls \
                    are refused with STEPS_REQUIRED";
    assert_eq!(warnings(&warned), [json!(expected)]);
    let table = ["explain", "--config", "f.yaml", "--tenant", "acme", "--point", "before_tool_call"];
    let told = folder.run(&table).await.stdout;
    assert!(told.contains("\nNo binding applies here: the call is refused with STEPS_REQUIRED.\n"), "{told}");
    assert_eq!(warnings(&other), Vec::<Value>::new());
}

#[tokio::test]
async fn a_file_and_a_gateway_say_the_same_of_built_in_plugins() {
    let mut file = smallest();
    file["auth"]["issuers"][0]["admin_audience"] = json!(ADMIN_AUDIENCE);
    file["auth"]["issuers"][0]["scopes"] = json!(["hookgate:invoke", "hookgate:read"]);
    file["tenants"]["list"][0] = json!({ "id": "acme", "require_steps": ["before_tool_call"] });
    file["plugins"] = json!([{ "name": "response-sanitizer", "builtin": "response-sanitizer" }]);
    file["bindings"] = json!([{ "plugin": "response-sanitizer", "tenant": "*", "priority": 1 }]);
    let folder = Folder::new();
    folder.write("f.yaml", &file.to_string());
    let gateway = Setup::file(&file.to_string()).start().await;
    let operator = Token::for_operators().mint();
    for (point, steps, warnings) in [("before_tool_call", 0, 1), ("before_response", 1, 0)] {
        let args = ["explain", "--config", "f.yaml", "--tenant", "acme", "--point", point];
        let mut offline = folder.run(&[&args[..], &["--output", "json"]].concat()).await.json();
        let mut online =
            ask_at(point, &folder, &admin(&gateway), &operator, &["--output", "json"]).await.json();
        let count = |member: &str| online[member].as_array().unwrap().len();
        assert_eq!((count("steps"), count("warnings")), (steps, warnings), "{online}");
        for said in [&mut offline, &mut online] {
            for member in ["manifests_known", "revision"] {
                said[member].take();
            }
        }
        assert_eq!(offline, online);
        let told = folder.run(&args).await.stdout;
        assert!(!told.contains("unknown"), "{told}");
    }
    // A step that fails is what people look for, and the certificate is on the gateway's machine.
    file["bindings"][0]["points"] = json!(["before_tool_call", "before_response"]);
    file["server"]["tls"] = json!({ "cert_file": "/no/such/cert.pem", "key_file": "/no/such/key.pem" });
    folder.write("f.yaml", &file.to_string());
    let args = ["explain", "--config", "f.yaml", "--tenant", "acme", "--point", "before_tool_call"];
    let failing = folder.run(&[&args[..], &["--output", "json"]].concat()).await.json();
    assert_eq!(failing["steps"][0]["reason"], json!("point_not_offered"), "{failing}");
}

#[tokio::test]
async fn a_file_is_explained_without_the_variables_of_its_plugins() {
    let mut file = smallest();
    file["plugins"] = json!([
        { "name": "away", "endpoint": "unix:///nowhere.sock", "config": { "key": "${AWAY_KEY}" } },
        { "name": "tool-policy", "builtin": "tool-policy", "config": { "deny": ["${DENIED_TOOL}"] } },
    ]);
    file["bindings"] = json!([
        { "plugin": "away", "tenant": "*", "priority": 1 },
        { "plugin": "tool-policy", "tenant": "*", "priority": 2 },
    ]);
    let folder = Folder::new();
    let asked = [
        "explain",
        "--config",
        "f.yaml",
        "--tenant",
        "acme",
        "--point",
        "before_tool_call",
        "--output",
        "json",
    ];
    let mut explained = Vec::new();
    for variables in [&[][..], &[("AWAY_KEY", "k"), ("DENIED_TOOL", "k")]] {
        folder.write("f.yaml", &format!("{file:#}"));
        let ran = folder.run_with(&asked, variables, "").await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        explained.push(ran.json());
    }
    assert_eq!(explained[0], explained[1]);
    let plugins: Vec<_> =
        explained[0]["steps"].as_array().unwrap().iter().map(|step| &step["plugin"]).collect();
    assert_eq!(plugins, ["away", "tool-policy"], "{}", explained[0]);
    let llm = ["explain", "--config", "f.yaml", "--tenant", "acme", "--surface", "llm"];
    assert_eq!(folder.run(&llm).await.code, Some(0));
}

#[tokio::test]
async fn people_are_told_what_runs_what_does_not_and_why() {
    let (_plugins, file) = plugins().await;
    let folder = Folder::new();
    folder.write("f.yaml", &file.to_string());
    let gateway = Setup::file(&file.to_string()).start().await;
    let told = ask(&folder, &admin(&gateway), &Token::for_operators().mint(), CALLS[0]).await;
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""));
    for line in [
        "tenant  acme: listed",
        "call    before_tool_call, tool fs.read, agent coder, agent_path main/coder, label team=a",
        "1  floor  guard   1.2.3    1         enforce  fail      5s        called",
        "     the tenant's own configuration sets limit, more",
        "     tools fs.*: matched by `fs.read`",
        "2  gone   away    -        2         advise   skip      2s        failed_open",
        "     global: for tenants with plan=pro; timeout from the plugin",
        "     not_ready: it has not finished its handshake yet",
        "     tenant: for this tenant only; timeout from the binding",
        "     agent_paths main/*: matched by `main/coder`",
        "  big      words  is for tenants with plan=big",
        "  beta     words  the tenant's `disable` names it",
        "  off      words  the binding has `enabled: false`",
        "  answers  words  applies only at before_response",
        "BUDGET 6s: `limits.budget`, because the caller sets no deadline.",
        "  3  own    1s         0s        called, limited by the budget",
        "  - the timeouts of the steps with `on_error: fail` add up to 9s, the budget is 6s: if they take",
    ] {
        assert!(told.stdout.lines().any(|told| told == line), "no line `{line}` in\n{}", told.stdout);
    }
    assert!(told.stdout.lines().all(|line| line.chars().count() <= 100), "{}", told.stdout);
    for output in ["table", "json", "yaml"] {
        let from_file = ["--config", "f.yaml", "--tenant", "acme", "--point", "before_tool_call"];
        let ran = folder.run(&[&["explain", "--output", output], &from_file[..]].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{output}");
        assert!(!ran.stdout.contains(SENTINEL), "{}", ran.stdout);
    }
    assert!(!told.stdout.contains(SENTINEL), "{}", told.stdout);
}

#[tokio::test]
async fn a_tenant_that_is_refused_is_explained_too() {
    let (_plugins, file) = plugins().await;
    let folder = Folder::new();
    folder.write("f.yaml", &file.to_string());
    let gateway = Setup::file(&file.to_string()).start().await;
    let operator = gateway.admin(&Token::for_operators().mint());
    for (tenant, standing, code, hint) in [
        ("gone", "disabled", "TENANT_DISABLED", Value::Null),
        ("acmee", "refused", "TENANT_UNKNOWN", json!("did you mean `acme`?")),
    ] {
        let args = ["explain", "--config", "f.yaml", "--tenant", tenant, "--point", "before_response"];
        let ran = folder.run(&[&args[..], &["--output", "json"]].concat()).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let said = ran.json();
        let path = format!("/admin/v1/tenants/{tenant}/explain?point=before_response");
        let answer = operator.get(&path).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        for said in [&said, &answer.body] {
            let expected =
                json!({ "id": tenant, "status": standing, "unknown": "refuse", "code": code, "hint": hint });
            assert_eq!(said["tenant"], expected);
            assert_eq!((&said["plan_digest"], &said["steps"]), (&Value::Null, &json!([])));
        }
        let real = gateway.http(&token(tenant)).call(POINT, json!({ "tool_name": "x", "args": 1 })).await;
        assert_eq!(real.body["code"], json!(code));
    }
}

#[tokio::test]
async fn a_token_that_names_a_tenant_is_told_what_concerns_it_alone() {
    let (_plugins, file) = plugins().await;
    let gateway = Setup::file(&file.to_string()).start().await;
    let of = |tenant: &str| gateway.admin(&Token::for_operators().claim("tenant_id", tenant).mint());
    let path = "/admin/v1/tenants/acme/explain?point=before_tool_call";
    let own = of("acme").get(path).await.unwrap();
    assert_eq!(own.status, 200, "{own:?}");
    assert_eq!(own.header("cache-control"), Some("no-store"));
    let absent: Vec<_> =
        own.body["absent"].as_array().unwrap().iter().map(|absent| &absent["binding"]).collect();
    assert_eq!(absent, ["beta", "answers"], "not those of other tenants' selectors");
    assert!(!own.text.contains("\"big\"") && !own.text.contains(SENTINEL), "{}", own.text);
    assert_http_error(&of("acmee").get(path).await.unwrap(), Code::NotFound);
    let stranger = of("acmee").get("/admin/v1/tenants/acmee/explain?point=before_tool_call").await.unwrap();
    assert_eq!((stranger.status, &stranger.body["tenant"]["hint"]), (200, &Value::Null), "{stranger:?}");
    let anonymous = HttpAgent::new(gateway.admin_addr().unwrap()).of(Port::Admin);
    assert_http_error(&anonymous.get(path).await.unwrap(), Code::TokenMissing);
}

#[tokio::test]
async fn a_query_that_is_wrong_is_refused_and_says_what_is() {
    let (_plugins, file) = plugins().await;
    let gateway = Setup::file(&file.to_string()).start().await;
    let operator = gateway.admin(&Token::for_operators().mint());
    for (query, named) in [
        ("", "`point`"),
        ("?tool=x", "`point`"),
        ("?point=before_tol_call", "`point`"),
        ("?point=before_response&colour=red", "`colour`"),
        ("?point=before_response&label.=red", "`label.`"),
        ("?point=before_response&tool=a&tool=b", "`tool`"),
        ("?point=before_response&label.a=1&label.a=1", "`label.a`"),
        ("?point=before_response&point=before_response", "`point`"),
        ("?point=before_response&timeout_ms=0", "`timeout_ms`"),
        ("?point=before_response&timeout_ms=60001", "`timeout_ms`"),
        ("?point=before_response&text=%FF", "%FF"),
    ] {
        let answer = operator.get(&format!("/admin/v1/tenants/acme/explain{query}")).await.unwrap();
        assert_http_error(&answer, Code::PayloadInvalid);
        assert!(answer.body["detail"].as_str().unwrap().contains(named), "{query}: {answer:?}");
    }
    let post = operator.request(http::Method::POST, "/admin/v1/tenants/acme/explain?point=before_response");
    let answer = HttpAgent::send(post).await.unwrap();
    assert_http_error(&answer, Code::MethodNotAllowed);
}

/// Checks that the error is one sentence with its remedies, without the token.
fn assert_refused(ran: &CommandOutput, code: i32, said: &[&str], token: &str) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
    let remedies = ran.stderr.lines().skip(1).all(|line| line.starts_with("  = "));
    assert!(ran.stderr.starts_with("hookgate: ") && remedies, "{ran:?}");
    for part in said {
        assert!(ran.stderr.contains(part), "no `{part}` in {}", ran.stderr);
    }
    assert!(token.is_empty() || !ran.stderr.contains(token), "{ran:?}");
}

#[tokio::test]
async fn who_cannot_ask_a_gateway_is_told_why_and_what_to_do() {
    let (_plugins, file) = plugins().await;
    let folder = Folder::new();
    let gateway = Setup::file(&file.to_string()).start().await;
    let (url, good) = (admin(&gateway), Token::for_operators().mint());

    folder.write("token", &format!("{good}\n"));
    let ran = ask(&folder, &url, "not.a.token", &["--token-file", "token"]).await;
    assert_eq!(ran.code, Some(0), "the file overrides the environment: {ran:?}");

    assert_refused(&ask(&folder, &url, "", &[]).await, 2, &["HOOKGATE_TOKEN", "--token-file"], "");
    assert_refused(&ask(&folder, &url, &good, &["--token-file", "nowhere"]).await, 2, &["nowhere"], &good);
    let late = Token::for_operators().expiring_in(-300).mint();
    assert_refused(&ask(&folder, &url, &late, &[]).await, 1, &["expired", "hookgate token inspect"], &late);
    let stranger = Token::for_operators().claim("tenant_id", "other").mint();
    assert_refused(
        &ask(&folder, &url, &stranger, &[]).await,
        1,
        &["NOT_FOUND", "only that tenant"],
        &stranger,
    );

    let ops = format!("http://{}", gateway.ops_addr());
    assert_refused(&ask(&folder, &ops, &good, &[]).await, 1, &["answered 404", "server.admin_addr"], &good);
    for (url, said) in [
        ("127.0.0.1:9091", "--addr is not a gateway's address: write it as http://127.0.0.1:9091"),
        ("ftp://127.0.0.1", "is not a gateway's address"),
        ("http://me:pw@127.0.0.1:9", "contains a user or a password"),
    ] {
        assert_refused(&ask(&folder, url, &good, &[]).await, 2, &[said], &good);
    }
    gateway.stop().await;
    assert_refused(&ask(&folder, &url, &good, &[]).await, 1, &["no answer", "server.admin_addr"], &good);
}

#[tokio::test]
async fn a_gateway_over_tls_is_asked_where_its_ca_is_known() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (_plugins, mut file) = plugins().await;
    let files = ca.pair(&["127.0.0.1"]).files();
    file["server"]["tls"] = files.members(&json!({}));
    let gateway = Setup::file(&file.to_string()).start().await;
    let (url, good) = (admin(&gateway).replace("http:", "https:"), Token::for_operators().mint());
    let known = ask(&folder, &url, &good, &["--ca", ca.file().to_str().unwrap()]).await;
    assert_eq!((known.code, known.stderr.as_str()), (Some(0), ""));
    assert_refused(&ask(&folder, &url, &good, &[]).await, 1, &["certificate", "--ca"], &good);
    folder.write("none.pem", "no PEM");
    assert_refused(&ask(&folder, &url, &good, &["--ca", "none.pem"]).await, 2, &["none.pem"], &good);
}
