//! Programs that contribute at lifecycle hooks.

use serde_json::{Value, json};

use super::support::{each_call, notice, serve_bound, serve_in, write};
use crate::{cli::support::Folder, plugins::process::PluginProcess};

const RECALL: &str =
    r#"reply '{"contributions":[{"kind":"memory","value":{"content":"Ada","weight":9007199254740993}}]}'"#;

fn directory(body: &str, members: &Value) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    write(directory.path(), &each_call(body), members);
    directory
}

#[tokio::test]
async fn a_program_contributes_at_a_hook_and_decides_at_a_point() {
    let body = format!(
        r#"case $call in
    *'"hook":"recall"'*) {RECALL} ;;
    *) reply '{{"continue":{{}},"notices":[{{"kind":"info","message":"point"}}]}}' ;;
esac"#
    );
    let hooks = json!({ "hooks": ["recall", { "hook": "my_hook", "side_effects": "none" }] });
    let bindings = [json!({}), json!({ "name": "at-hooks", "hooks": ["recall"] })];
    let served = serve_bound(directory(&body, &hooks), &bindings).await;
    let answer = served.hook("acme", "recall", json!({ "message": "Who?" })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body["contributions"][0]["plugin"], "program");
    assert_eq!(answer.body["contributions"][0]["kind"], "memory");
    assert!(answer.text.contains(r#"{"content":"Ada","weight":9007199254740993}"#), "{}", answer.text);
    assert_eq!(notice(&served.call("acme", "t").await), "point");
}

#[tokio::test]
async fn a_call_at_a_hook_has_the_hook_and_its_body() {
    let body = r#"printf '%s' "$call" |
        jq -c '{contributions:[{kind:"seen",value:.}],request_id:.context.request_id}'"#;
    let served = serve_bound(
        directory(body, &json!({ "points": [], "hooks": ["my_hook"] })),
        &[json!({ "hooks": ["my_hook"] })],
    )
    .await;
    let answer = served.hook("acme", "my_hook", json!({ "a": [1, { "b": "c\nd" }] })).await;
    let call = &answer.body["contributions"][0]["value"];
    assert_eq!(call["hook"], "my_hook", "{answer:?}");
    assert_eq!(call["point"], Value::Null);
    assert_eq!(call["context"]["tenant"], "acme");
    assert_eq!(call["config"], json!({ "word": "a-word-of-the-configuration" }));
    assert_eq!(call["payload"], json!({ "a": [1, { "b": "c\nd" }] }));
}

#[tokio::test]
async fn a_wrong_reply_at_a_hook_contributes_nothing_and_says_what_is_wrong() {
    let body = r#"case $call in
    *'"message":"member"'*) reply '{"continue":{}}' ;;
    *'"message":"list"'*) reply '{"contributions":{}}' ;;
    *'"message":"value"'*) reply '{"contributions":[{"kind":"memory","text":"Ada"}]}' ;;
    *'"message":"id"'*) echo '{"contributions":[]}' ;;
    *) reply '{"contributions":[]}' ;;
esac"#;
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &each_call(body), &json!({ "hooks": ["recall"] }));
    let served = serve_bound(directory, &[json!({ "hooks": ["recall"], "on_error": "fail" })]).await;
    for (message, error) in [
        ("member", "/continue Unknown member `continue`; known here: contributions, notices, request_id"),
        ("list", "/contributions `contributions` must be an array"),
        ("value", "/contributions/0/text Unknown member `text`; known here: kind, value"),
        ("id", "the program's reply has no `request_id`"),
    ] {
        let answer = served.hook("acme", "recall", json!({ "message": message })).await;
        assert_eq!(answer.status, 502, "{message}: {answer:?}");
        let (code, said) = served.fault(&answer).await;
        assert!(code == "Internal" && said.contains(error), "{message}: {code} {said}");
        let empty = served.hook("acme", "recall", json!({ "message": "hi" })).await;
        assert_eq!((empty.status, &empty.body["contributions"]), (200, &json!([])), "after {message}");
    }
}

#[tokio::test]
async fn a_mistake_in_the_hooks_is_named_with_its_key() {
    let folder = Folder::new();
    let entry =
        |members: &str| format!("plugins: [{{ name: p, version: 1.0.0, command: [cat], {members} }}]");
    for (text, expected) in [
        (
            entry("config_schema: {}"),
            "points: at least one point or hook is required, in `points` or `hooks`",
        ),
        (
            entry("hooks: [Recall]"),
            "plugins[0].hooks[0]: `Recall`: the name of a hook is a lower-case letter",
        ),
        (entry("hooks: [before_response]"), "`before_response`: this is the name of a point"),
        (
            entry("points: [{ point: before_tool_call, reads: [text] }]"),
            "plugins[0].points[0]: `reads` of before_tool_call names `text`: choose from args, extra",
        ),
        (
            entry("points: [{ point: before_tool_call, windows: true }]"),
            "plugins[0].points[0]: `windows` is set at before_tool_call: only before_response has windows",
        ),
        (entry("hooks: [recall, recall]"), "plugins[0].hooks: `recall` is listed twice"),
        (entry("hooks: [{ hook: recall, access: read }]"), "expected a hook, or a mapping with `hook`"),
    ] {
        folder.write("f.yaml", &text);
        let ran = folder.run(&["runner", "stdio", "f.yaml", "--listen", "unix:///no/such/folder/s"]).await;
        assert_eq!(ran.code, Some(2), "{text}: {ran:?}");
        assert!(ran.stderr.contains(expected), "{text}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn a_program_with_hooks_keeps_every_rule_of_the_protocol() {
    let script = r#"import json, sys
for line in sys.stdin:
    call = json.loads(line)
    reply = {"continue": {}} if "point" in call else {"contributions": []}
    print(json.dumps({**reply, "request_id": call["context"]["request_id"]}), flush=True)
"#;
    let directory = tempfile::tempdir().unwrap();
    let members = json!({ "command": ["/usr/bin/python3", "./program"], "hooks": ["recall", "my_hook"] });
    write(directory.path(), script, &members);
    let runner: PluginProcess = super::support::run(directory.path()).await;
    let ran =
        Folder::new().run(&["conformance", &runner.address, "--name", "program", "--timeout", "20s"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[tokio::test]
async fn a_program_that_answers_at_other_hooks_only_is_not_bound_there() {
    let served = serve_in(directory(RECALL, &json!({ "hooks": ["recall"] }))).await;
    let answer = served.hook("acme", "turn_end", json!({ "messages": [] })).await;
    assert_eq!((answer.status, &answer.body["steps"]), (200, &json!([])));
}
