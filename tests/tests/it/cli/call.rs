//! Tests `hookgate call`: the decision and its exit code, usage errors, and the blame if there is no
//! decision.

use std::time::Duration;

use hookgate_proto::types::v1::{BeforeLlmRequestPatch, BeforeToolCallPatch, ExtensionPoint, NoticeKind};
use hookgate_tests::{
    ca::Ca,
    fake::{Act, FakePlugin, Gate, notice},
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    cli::support::{CommandOutput, Folder},
    edge::support::POINT,
};

/// Parsing it with rounding, sorting or dropping would change it.
const ARGS: &str = r#"{"z":9007199254740993,"a":null,"m":1.10}"#;

async fn gateway() -> (FakePlugin, Gateway) {
    let guard = FakePlugin::named("guard").start().await;
    let setup = Gateway::with().tenant("acme").plugin_without_breaker(&guard);
    let gateway = setup.binding("guard", 10).start().await;
    (guard, gateway)
}

async fn call_at(address: &str, token: &str, args: &[&str], input: &str) -> CommandOutput {
    let env = [("HOOKGATE_ADDR", address), ("HOOKGATE_TOKEN", token), ("HTTP_PROXY", "http://127.0.0.1:1")];
    let ran = Folder::new().run_with(&[&["call"], args].concat(), &env, input).await;
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!all.contains('\u{1b}') && !all.contains("panicked"), "{all}");
    assert!(token.is_empty() || !all.contains(token.rsplit('.').next().unwrap()), "the token shows: {all}");
    ran
}

async fn call(gateway: &Gateway, args: &[&str]) -> CommandOutput {
    call_at(&format!("http://{}", gateway.data_addr()), &token("acme"), args, "").await
}

#[tokio::test]
async fn a_decision_has_an_exit_code_and_a_text() {
    let (guard, gateway) = gateway().await;
    let args = ["before_tool_call", "--tool", "fs.read", "--args", ARGS, "--call-id", "c1"];
    let ran = call(&gateway, &args).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.starts_with("CONTINUE  the payload is unchanged"), "{ran:?}");
    assert!(ran.stdout.contains(&format!("\n  args       {ARGS}\n")), "to the byte: {ran:?}");

    let said = notice(NoticeKind::Warn, "TOLD", "look out", &Value::Null);
    guard.set(POINT, Act::cancel("TOOL_NOT_ALLOWED", "not that one").retry_after_ms(1500).with_notice(said));
    let ran = call(&gateway, &args).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{ran:?}");
    for part in [
        "BLOCK  TOOL_NOT_ALLOWED: not that one",
        "by guard, binding guard, scope step, retry after 1500 ms",
        "warn    guard   TOLD  look out",
        "1     guard   guard    cancelled",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    let block = call(&gateway, &[&args[..], &["--output", "json"]].concat()).await;
    assert_eq!((block.code, block.json()["code"].as_str()), (Some(3), Some("TOOL_NOT_ALLOWED")));
    assert!(block.stdout.contains(&format!(r#""args":{ARGS}"#)), "as it came: {block:?}");
}

#[tokio::test]
async fn what_is_typed_reaches_the_plugin_at_every_point() {
    let (guard, gateway) = gateway().await;
    let label = ["--label", "env=prod", "--agent-id", "coder", "--depth", "2", "--project-id", "p"];
    let cases: [(&[&str], Value); 4] = [
        (
            &["before_llm_request", "--text", "hi \"there\"", "--messages", "[{}]", "--extra", r#"{"k":1}"#],
            json!({ "text": "hi \"there\"", "messages": [{}], "extra": { "k": 1 } }),
        ),
        (&["before-tool-call", "--tool", "t"], json!({ "tool_name": "t", "args": {} })),
        (
            &[
                "after_tool_result",
                "--tool",
                "t",
                "--result",
                "null",
                "--success",
                "false",
                "--duration-ms",
                "7",
            ],
            json!({ "tool_name": "t", "result": null, "success": false, "duration_ms": 7 }),
        ),
        (
            &["before_response", "--content", "hi", "--reasoning", "because"],
            json!({ "content": "hi", "reasoning": "because" }),
        ),
    ];
    for (args, payload) in cases {
        let ran = call(&gateway, &[args, &label, &["--output", "json"]].concat()).await;
        assert_eq!((ran.code, &ran.json()["payload"]), (Some(0), &payload), "{ran:?}");
        let context = guard.seen().pop().unwrap().call.context.unwrap();
        assert_eq!(context.labels.get("env").map(String::as_str), Some("prod"));
        assert_eq!((context.agent_id.as_deref(), context.depth), (Some("coder"), Some(2)));
        assert_eq!(context.project_id.as_deref(), Some("p"));
    }
    // The whole payload, from a pipe and from a file.
    let whole = format!(r#"{{"tool_name":"piped","args":{ARGS}}}"#);
    let address = format!("http://{}", gateway.data_addr());
    let piped = ["before_tool_call", "--payload", "-", "--output", "json"];
    let ran = call_at(&address, &token("acme"), &piped, &whole).await;
    assert!(ran.stdout.contains(&format!(r#""payload":{whole}"#)), "{ran:?}");
    let folder = Folder::new();
    folder.write("payload.json", &whole);
    folder.write("token.txt", &format!("Bearer {}\n", token("acme")));
    let args = [
        "call",
        "before_tool_call",
        "--payload",
        "payload.json",
        "--token-file",
        "token.txt",
        "--addr",
        &address,
    ];
    assert_eq!(folder.run(&args).await.code, Some(0));
}

#[tokio::test]
async fn a_trace_shows_what_each_step_made_of_the_payload() {
    let (first, second) = (
        BeforeToolCallPatch { tool_name: Some("renamed".into()), ..Default::default() },
        BeforeToolCallPatch {
            args: Some("null".into()),
            extra: Some(r#"{"k":1}"#.into()),
            ..Default::default()
        },
    );
    let first = FakePlugin::named("first").at(POINT, Act::patch(first)).start().await;
    let second = FakePlugin::named("second").at(POINT, Act::patch(second)).start().await;
    let looks = FakePlugin::named("looks").start().await;
    let setup =
        Gateway::with().tenant("acme").tenant_with("quiet", &json!({ "answer": { "detail": "minimal" } }));
    let setup = setup.plugin(&first).plugin(&looks).plugin(&second);
    let setup = setup.binding("first", 1).binding("looks", 2).binding("second", 3);
    let gateway = setup.start().await;
    let args = ["before_tool_call", "--tool", "t", "--args", ARGS, "--trace"];
    let ran = call(&gateway, &args).await;
    let expected = format!(
        "\ntrace\n  1 first\n      - tool_name  \"t\"\n      + tool_name  \"renamed\"\n  2 looks  changed nothing\n  \
         3 second\n      - args  {ARGS}\n      + args  null\n      + extra  {{\"k\":1}}\n"
    );
    assert!(ran.code == Some(0) && ran.stdout.ends_with(&expected), "{}", ran.stdout);
    let plain = call(&gateway, &args[..5]).await;
    assert!(plain.code == Some(0) && !plain.stdout.contains("trace"), "{plain:?}");

    let address = format!("http://{}", gateway.data_addr());
    let quiet = call_at(&address, &token("quiet"), &args, "").await;
    assert_eq!(quiet.code, Some(0));
    assert!(quiet.stdout.ends_with("or `answer.detail` is `minimal`\n"), "{quiet:?}");
    assert!(!quiet.stdout.contains("first"), "{quiet:?}");
}

#[tokio::test]
async fn without_a_decision_it_says_who_failed_and_what_to_do() {
    let (mut guard, gateway) = gateway().await;
    let address = format!("http://{}", gateway.data_addr());
    let args = ["before_tool_call", "--tool", "t"];
    let no_decision = |ran: &CommandOutput, said: &str| {
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("hookgate: no decision: {said}")), "{said}: {ran:?}");
    };
    let expired = Token::for_tenant("acme").expiring_in(-120).mint();
    let ran = call_at(&address, &expired, &args, "").await;
    no_decision(&ran, "TOKEN_EXPIRED (the caller failed): The token has expired");
    assert!(ran.stderr.ends_with("\n  = Get a new token and call again\n"), "{ran:?}");

    let gate = Gate::closed();
    guard.set(POINT, Act::pass().behind(&gate));
    let ran = call(&gateway, &[&args[..], &["--timeout", "600ms"]].concat()).await;
    no_decision(&ran, "BUDGET_EXHAUSTED (the plugin failed): ");
    gate.open();
    guard.set(POINT, Act::no_verdict());
    no_decision(
        &call(&gateway, &args).await,
        "PLUGIN_BAD_REPLY (the plugin failed): Plugin 'guard' failed: ",
    );
    guard.stop().await;
    let ran = call(&gateway, &args).await;
    no_decision(&ran, "PLUGIN_UNAVAILABLE (the plugin failed): Plugin 'guard' failed: ");
    let ran = call(&gateway, &[&args[..], &["--output", "json"]].concat()).await;
    assert_eq!((ran.code, ran.json()["code"].as_str()), (Some(4), Some("PLUGIN_UNAVAILABLE")));

    gateway.stop().await;
    let ran = call_at(&address, &token("acme"), &args, "").await;
    no_decision(&ran, &format!("no answer from {address}: Connection refused"));
    assert!(ran.stderr.contains("--addr must be the gateway's `server.data_addr`"), "{ran:?}");
}

/// The rows of the table of steps without their durations, after checking that called steps have one.
fn step_rows(text: &str) -> Vec<String> {
    let rows = text.lines().skip_while(|line| !line.starts_with("STEP ")).skip(1);
    let words = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    words
        .map(|words| {
            words.strip_suffix(&["ms"]).map_or(words.join(" "), |cut| cut[..cut.len() - 1].join(" "))
        })
        .collect()
}

#[tokio::test]
async fn without_a_decision_it_shows_the_failed_step_and_the_steps_so_far() {
    let advises = FakePlugin::named("advises").at(POINT, Act::cancel("TOO_DEAR", "no")).start().await;
    let guard = FakePlugin::named("guard").start().await;
    let setup =
        Gateway::with().tenant("acme").tenant_with("quiet", &json!({ "answer": { "detail": "minimal" } }));
    let setup = setup.plugin_with(&advises, &json!({ "required": true })).plugin_without_breaker(&guard);
    let setup = setup.binding_with("advises", 1, &json!({ "mode": "advise" }));
    let gateway = setup.binding_with("guard", 2, &json!({ "name": "floor" })).start().await;
    let args = ["before_tool_call", "--tool", "t"];
    let ran = call(&gateway, &args).await;
    let advised = "1 advises advises would_block TOO_DEAR";
    assert_eq!(
        (ran.code, step_rows(&ran.stdout)),
        (Some(0), vec![advised.into(), "2 guard floor continued".into()]),
        "{ran:?}"
    );

    guard.set(POINT, Act::no_verdict());
    let ran = call(&gateway, &args).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
    let named = "\n  plugin guard, binding floor, at before_tool_call: bad_reply\n  = Stop; ";
    assert!(ran.stderr.contains(named), "{ran:?}");
    assert_eq!(step_rows(&ran.stderr), [advised, "2 guard floor failed bad_reply"], "{ran:?}");

    let address = format!("http://{}", gateway.data_addr());
    let quiet = call_at(&address, &token("quiet"), &args, "").await;
    assert_eq!((quiet.code, quiet.stderr.lines().count()), (Some(4), 2), "{quiet:?}");
    assert!(!quiet.stderr.contains("guard") && !quiet.stderr.contains("floor"), "{quiet:?}");
}

/// Servers that don't answer, redirect, or aren't gateways.
#[tokio::test]
async fn what_is_no_gateway_gives_no_decision() {
    for (answer, said) in [
        (None, "within 500ms"),
        (
            Some("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"),
            "answered 302, but not",
        ),
        (Some("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"), "answered 200, but not like a gateway"),
        (
            Some("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
            "neither a result nor an error of a gateway",
        ),
        (
            Some(
                "HTTP/1.1 200 OK\r\nhookgate-decision: continue\r\ncontent-length: 33\r\n\r\n\
                 {\"decision\":\"maybe\",\"payload\":{}}",
            ),
            "`hookgate-decision` is `continue`, and of the members `decision` is `maybe`",
        ),
        (
            Some(
                "HTTP/1.1 200 OK\r\nhookgate-decision: continue\r\nhookgate-decision: block\r\n\
                 content-length: 36\r\n\r\n{\"decision\":\"continue\",\"payload\":{}}",
            ),
            "`hookgate-decision` is `continue, block`",
        ),
        (
            Some(
                "HTTP/1.1 200 OK\r\nhookgate-decision: continue\r\ncontent-length: 70\r\n\r\n\
                 {\"decision\":\"block\",\"payload\":{},\"block\":{\"code\":\"NO\",\"message\":\"no\"}}",
            ),
            "and of the members `decision` is `block`, `payload` is there and `block` is there",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut taken = [0; 4096];
            let _ = stream.read(&mut taken).await;
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                None => tokio::time::sleep(Duration::from_secs(20)).await,
            }
        });
        // A server that answers gets enough time.
        let timeout = if answer.is_some() { "60s" } else { "500ms" };
        let args = ["before_tool_call", "--tool", "t", "--timeout", timeout];
        let ran = call_at(&address, "no.real.signature", &args, "").await;
        server.abort();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
    }
}

#[tokio::test]
async fn over_tls_it_trusts_the_ca_that_it_is_given() {
    let ca = Ca::new();
    let files = ca.pair(&["127.0.0.1"]).files();
    let gateway = Gateway::with().tenant("acme").set("/server/tls", files.members(&json!({}))).start().await;
    let address = format!("https://{}", gateway.data_addr());
    let file = ca.file().display().to_string();
    let args = ["before_response", "--content", "hi"];
    let ran = call_at(&address, &token("acme"), &[&args[..], &["--ca", &file]].concat(), "").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = call_at(&address, &token("acme"), &args, "").await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("and --ca the CA of its certificate"), "{ran:?}");
    let plain = format!("http://{}", gateway.data_addr());
    let ran = call_at(&plain, &token("acme"), &args, "").await;
    assert!(ran.code == Some(4) && ran.stderr.contains("with `https://` if it has `server.tls`"), "{ran:?}");
}

#[tokio::test]
async fn an_empty_text_is_called_with_and_no_text_at_all_is_asked_for() {
    let (_guard, gateway) = gateway().await;
    let ran = call(&gateway, &["before_llm_request", "--text", ""]).await;
    assert!(ran.code == Some(0) && ran.stdout.starts_with("CONTINUE"), "{ran:?}");
    let ran = call(&gateway, &["before_llm_request"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("before_llm_request needs --text"), "{ran:?}");
}

#[tokio::test]
async fn wrong_arguments_make_no_call() {
    let (guard, gateway) = gateway().await;
    let secret = "http://user:hunter2@127.0.0.1:1";
    for (args, said) in [
        (&["before_tool_cal"][..], "a similar value exists: 'before_tool_call'"),
        (&["before_tool_call"], "before_tool_call needs --tool, or --payload with a file"),
        (&["before_tool_call", "--tool", "t", "--args", "{\"a\":nul}"], "--args is not valid JSON: "),
        (&["before_tool_call", "--tool", "t", "--args", "{\"a\":1,\"a\":2}"], "--args is not valid JSON: "),
        (&["before_tool_call", "--tool", "t", "--args", "hello"], "put a text in double quotes"),
        (
            &["before_tool_call", "--tool", "t", "--text", "x"],
            "--text doesn't belong to before_tool_call: it has --tool,",
        ),
        (&["before_tool_call", "--tool", "t", "--extra", "[]"], "/payload/extra: "),
        (&["before_tool_call", "--tool", "t", "--label", "x"], "a label must be KEY=VALUE"),
        (&["before_tool_call", "--tool", "t", "--label", "claim.role=boss"], "/context/labels"),
        (&["before_tool_call", "--tool", "t", "--payload", "-"], "cannot be used with"),
        (&["before_tool_call", "--payload", "none.json"], "the payload can't be read from `none.json`"),
        (&["before_tool_call", "--payload", "-"], "standard input is empty"),
        (&["after_tool_result", "--tool", "t", "--result", "1"], "after_tool_result needs --success"),
        (&["after_tool_result", "--tool", "t", "--success", "yes", "--result", "1"], "invalid value 'yes'"),
        (&["before_tool_call", "--tool", "t", "--timeout", "0s"], "a timeout must be from 1ms to 60s"),
        (&["before_tool_call", "--tool", "t", "--addr", "127.0.0.1:8080"], "is not a gateway's address"),
        (&["before_tool_call", "--tool", "t", "--addr", secret], "contains a user or a password"),
        (&["before_tool_call", "--tool", "t", "--addr", "http://h:1/v1"], "must end after the port"),
        (&["before_tool_call", "--tool", "t", "--token-file", "none"], "--token-file `none` can't be read"),
        (
            &["before_tool_call", "--tool", "t", "--addr", "https://h:1", "--ca", "none"],
            "--ca `none` can't be read",
        ),
    ] {
        let ran = call(&gateway, args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
        assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    }
    let address = format!("http://{}", gateway.data_addr());
    for (token, said) in [
        ("", "there is no token in HOOKGATE_TOKEN"),
        ("two secretwords", "HOOKGATE_TOKEN does not hold a token"),
    ] {
        let ran = call_at(&address, token, &["before_tool_call", "--tool", "t"], "").await;
        assert!(ran.code == Some(2) && ran.stderr.contains(said), "{ran:?}");
        assert!(!ran.stderr.contains("secretwords"), "{ran:?}");
    }
    let body = r#"{"text":"hi","colour":1}"#;
    let ran = call_at(&address, &token("acme"), &["before_llm_request", "--payload", "-"], body).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("/payload/colour: Unknown member"), "{ran:?}");
    assert_eq!(guard.counts().calls, 0);
}

/// A plugin's text is not a terminal command.
#[tokio::test]
async fn control_characters_of_others_are_not_printed() {
    let point = ExtensionPoint::BeforeLlmRequest;
    let patch = BeforeLlmRequestPatch { text: Some("a\u{9b}31mb".into()), ..Default::default() };
    let guard = FakePlugin::named("guard")
        .at(point, Act::cancel("NO", "\u{1b}[2Jgone").with_patch(patch))
        .start()
        .await;
    let gateway = Gateway::with().tenant("acme").plugin(&guard).binding("guard", 1).start().await;
    let ran = call(&gateway, &["before_llm_request", "--text", "x", "--trace"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(!ran.stdout.chars().any(|c| c.is_control() && c != '\n'), "{ran:?}");
}
