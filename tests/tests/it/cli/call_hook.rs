//! Tests `hookgate call-hook`: what plugins contribute and its exit code, usage errors, and the blame if there is no
//! result.

use hookgate_proto::types::v1::NoticeKind;
use hookgate_tests::{
    fake::{Act, FakePlugin, HOOKS, Payload, notice},
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::{Value, json};
use tonic::Status;

use crate::cli::support::{CommandOutput, Folder};

/// Parsing it with rounding, sorting or dropping would change it.
const BODY: &str = r#"{"message":"Where did we leave off?","z":9007199254740993,"a":1.10}"#;

/// Two plugins that remember things, and one at no hook.
async fn gateway() -> ([FakePlugin; 2], Gateway) {
    let notes = FakePlugin::named("notes").hooks(&["recall", "my_hook"]).start().await;
    let facts = FakePlugin::named("facts").only(&[]).hooks(&["recall"]).start().await;
    let quiet = json!({ "answer": { "detail": "minimal" } });
    let setup = Gateway::with().tenant("acme").tenant_with("quiet", &quiet);
    let setup = setup.plugin_without_breaker(&notes).plugin_without_breaker(&facts);
    let setup = setup.binding_with("notes", 2, &json!({ "hooks": ["recall", "my_hook"] }));
    let setup =
        setup.binding_with("facts", 1, &json!({ "name": "first", "hooks": ["recall"], "on_error": "fail" }));
    let gateway = setup.start().await;
    ([notes, facts], gateway)
}

async fn call_as(gateway: &Gateway, token: &str, args: &[&str], input: &str) -> CommandOutput {
    let address = format!("http://{}", gateway.data_addr());
    let env = [("HOOKGATE_ADDR", address.as_str()), ("HOOKGATE_TOKEN", token)];
    let ran = Folder::new().run_with(&[&["call-hook"], args].concat(), &env, input).await;
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!all.contains('\u{1b}') && !all.contains("panicked"), "{all}");
    ran
}

async fn call(gateway: &Gateway, args: &[&str]) -> CommandOutput {
    call_as(gateway, &token("acme"), args, "").await
}

/// The output without ids and durations.
fn steady(text: &str) -> String {
    let line = |line: &str| {
        let line = line.split_once("  (").map_or(line, |(before, _)| before);
        let words: Vec<_> = line.split_whitespace().collect();
        words.strip_suffix(&["ms"]).map_or(words.join(" "), |cut| cut[..cut.len() - 1].join(" "))
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn contributions_are_shown_in_the_order_of_the_chain() {
    let ([notes, facts], gateway) = gateway().await;
    let said = notice(NoticeKind::Info, "TOLD", "two notes", &Value::Null);
    let first = r#"{"content":"the user is Ada","score":1.10}"#;
    let second = Act::contribute("memory", r#"{"content":"a\u001b"}"#)
        .with_contribution("memory", r#"{"content":"b"}"#);
    facts.set(HOOKS, Act::contribute("memory", first));
    notes.set(HOOKS, second.with_notice(said));
    let args = ["recall", "--body", BODY, "--agent-id", "coder", "--label", "env=prod"];
    let ran = call(&gateway, &args).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let expected = format!(
        "CONTRIBUTED 3 contributions\n\nPLUGIN KIND VALUE\nfacts memory {first}\nnotes memory {{\"content\":\"a\\u001b\"}}\n\
         notes memory {{\"content\":\"b\"}}\n\nNOTICE PLUGIN CODE MESSAGE\ninfo notes TOLD two notes\n\n\
         STEP PLUGIN BINDING OUTCOME REASON TIME\n1 facts first contributed\n2 notes notes contributed"
    );
    assert_eq!(steady(&ran.stdout), expected);

    let seen = facts.seen().pop().expect("it was called");
    let Payload::Hook(payload) = seen.payload else { panic!("{seen:?}") };
    assert_eq!((payload.hook.as_str(), &payload.body[..]), ("recall", BODY.as_bytes()), "to the byte");
    let context = seen.call.context.expect("it has one");
    assert_eq!((context.agent_id.as_deref(), context.labels["env"].as_str()), (Some("coder"), "prod"));

    let json = call(&gateway, &[&args[..], &["--output", "json"]].concat()).await;
    assert!(
        json.code == Some(0) && json.stdout.contains(&format!(r#""value":{first}"#)),
        "as it came: {json:?}"
    );
    let quiet = call_as(&gateway, &token("quiet"), &args, "").await;
    assert!(
        quiet.code == Some(0) && quiet.stdout.contains("memory") && !quiet.stdout.contains("facts"),
        "{quiet:?}"
    );
}

#[tokio::test]
async fn nobody_who_contributes_is_a_result_too() {
    let ([notes, _facts], gateway) = gateway().await;
    let ran = call(&gateway, &["recall", "--body", BODY]).await;
    let expected = "NOTHING no plugin contributed\n\nSTEP PLUGIN BINDING OUTCOME REASON TIME\n1 facts first continued\n\
                    2 notes notes continued";
    assert_eq!((ran.code, steady(&ran.stdout).as_str()), (Some(0), expected), "{ran:?}");
    // Where nothing is bound; the body is {} by default.
    let ran = call(&gateway, &["session_start"]).await;
    assert_eq!(
        (ran.code, steady(&ran.stdout).as_str()),
        (Some(0), "NOTHING no plugin contributed"),
        "{ran:?}"
    );
    // A plugin that fails is skipped.
    notes.set(HOOKS, Act::fail(Status::internal("no")));
    let ran = call(&gateway, &["my_hook"]).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("failed_open  rpc_error"), "{ran:?}");
}

#[tokio::test]
async fn the_body_comes_from_a_file_or_a_pipe_too() {
    let ([notes, _facts], gateway) = gateway().await;
    let ran = call_as(&gateway, &token("acme"), &["my_hook", "--body-file", "-"], BODY).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let folder = Folder::new();
    folder.write("body.json", BODY);
    folder.write("token.txt", &token("acme"));
    let address = format!("http://{}", gateway.data_addr());
    let args =
        ["call-hook", "my_hook", "--body-file", "body.json", "--token-file", "token.txt", "--addr", &address];
    assert_eq!(folder.run(&args).await.code, Some(0));
    let bodies: Vec<_> = notes.seen().into_iter().map(|seen| seen.payload).collect();
    let expected = |payload: &Payload| matches!(payload, Payload::Hook(payload) if payload.body == BODY);
    assert!(bodies.len() == 2 && bodies.iter().all(expected), "{bodies:?}");
}

#[tokio::test]
async fn without_a_result_it_says_who_failed_and_what_to_do() {
    let ([_notes, facts], gateway) = gateway().await;
    let args = ["recall", "--body", BODY];
    let no_result = |ran: &CommandOutput, said: &str| {
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("hookgate: no result: {said}")), "{said}: {ran:?}");
    };
    let expired = Token::for_tenant("acme").expiring_in(-120).mint();
    let ran = call_as(&gateway, &expired, &args, "").await;
    no_result(&ran, "TOKEN_EXPIRED (the caller failed): The token has expired");

    facts.set(HOOKS, Act::contribute("memories", "{}"));
    let ran = call(&gateway, &args).await;
    no_result(&ran, "PLUGIN_BAD_REPLY (the plugin failed): Plugin 'facts' failed: ");
    assert!(ran.stderr.contains("\n  plugin facts, binding first, at recall: bad_reply\n  = "), "{ran:?}");
    assert!(steady(&ran.stderr).contains("\n1 facts first failed bad_reply"), "{ran:?}");
    let ran = call(&gateway, &[&args[..], &["--output", "json"]].concat()).await;
    assert_eq!((ran.code, ran.json()["hook"].as_str()), (Some(4), Some("recall")), "{ran:?}");

    let address = format!("http://{}", gateway.ops_addr());
    let ran = call(&gateway, &[&args[..], &["--addr", &address]].concat()).await;
    assert!(
        ran.code == Some(4) && ran.stderr.contains("must be the gateway's `server.data_addr`"),
        "{ran:?}"
    );
    let address = format!("http://{}", gateway.data_addr());
    gateway.stop().await;
    let folder = Folder::new();
    let env = [("HOOKGATE_ADDR", address.as_str()), ("HOOKGATE_TOKEN", "a.b.c")];
    let ran = folder.run_with(&["call-hook", "my_hook"], &env, "").await;
    no_result(&ran, &format!("no answer from {address}: Connection refused"));
}

#[tokio::test]
async fn wrong_arguments_make_no_call() {
    let ([notes, facts], gateway) = gateway().await;
    for (args, said) in [
        (&["Recall"][..], "the name of a hook is a lower-case letter, then up to 63 lower-case letters"),
        (&["before_tool_call"], "this is the name of a point, which no hook may have"),
        (&["recall"], "/body/message: `message` is required: a text"),
        (&["recall", "--body", r#"{"message":1}"#], "/body/message: "),
        (&["my_hook", "--body", "[]"], "--body must be a JSON object, not an array"),
        (&["my_hook", "--body", r#"{"a":1,"a":2}"#], "--body is not valid JSON: "),
        (&["my_hook", "--body", "{}", "--body-file", "-"], "cannot be used with"),
        (&["my_hook", "--body-file", "none.json"], "the body can't be read from `none.json`"),
        (&["my_hook", "--body-file", "-"], "standard input is empty"),
        (&["my_hook", "--label", "claim.role=boss"], "/context/labels"),
        (&["my_hook", "--timeout", "0s"], "a timeout must be from 1ms to 60s"),
        (&["my_hook", "--addr", "127.0.0.1:8080"], "is not a gateway's address"),
    ] {
        let ran = call(&gateway, args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
    }
    assert_eq!((notes.counts().calls, facts.counts().calls), (0, 0));
}
