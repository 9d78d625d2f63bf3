//! A line is the reply to one call only.

use serde_json::json;

use super::support::{each_call, serve, serve_bound, write};

#[tokio::test]
async fn a_reply_without_a_request_id_is_none_unless_the_process_is_for_one_call() {
    let script = "while read -r call; do echo '{\"continue\":{}}'; done";
    let served = serve(script, json!({})).await;
    let answer = served.call("acme", "t").await;
    assert_eq!(answer.status, 502);
    let (code, error) = served.fault(&answer).await;
    let expected = format!(
        "the program's reply has no `request_id`: copy it from the call's `context`, here \"request_id\": {}, or set \
         `process: per_call`",
        answer.body["request_id"]
    );
    assert_eq!((&*code, error), ("Internal", expected));

    let served = serve(script, json!({ "process": "per_call" })).await;
    assert_eq!(served.call("acme", "t").await.status, 200);
}

/// The line too many comes when the next call was read, so the runner can't see it before.
#[tokio::test]
async fn a_line_too_many_does_not_decide_the_next_call() {
    let script = each_call(
        r#"printf '%s' "$more"; more=
case $call in
    *'"tool_name":"unnamed"'*) more='{"continue":{}}
'; reply '{"continue":{}}' ;;
    *'"tool_name":"named"'*) more=$(reply '{"continue":{}}')'
'; reply '{"continue":{}}' ;;
    *) reply '{"cancel":{"code":"REFUSED","message":"No."}}' ;;
esac"#,
    );
    let served = serve(&script, json!({})).await;
    for (tool, expected) in [("unnamed", "has no `request_id`"), ("named", "has the `request_id`")] {
        assert_eq!(served.call("acme", tool).await.status, 200, "{tool}");
        let answer = served.call("acme", "refused").await;
        assert_eq!(answer.status, 502, "{tool}: {answer:?}");
        let (code, error) = served.fault(&answer).await;
        assert!(code == "Internal" && error.contains(expected), "{tool}: {code} {error}");
        assert_eq!(served.call("acme", "refused").await.status, 403, "{tool}");
    }
}

#[tokio::test]
async fn two_steps_of_a_chain_have_different_programs() {
    // Its line too many names the right call.
    let script = each_call(
        r#"[ "$id" = "$last" ] && reply '{"continue":{}}'
last=$id
echo $$ >> "$HOME/pids"
case $call in
    *'"refuse":true'*) reply '{"cancel":{"code":"REFUSED","message":"No."}}' ;;
    *) reply '{"continue":{}}' ;;
esac"#,
    );
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    write(directory.path(), &script, &json!({}));
    let served =
        serve_bound(directory, &[json!({}), json!({ "name": "second", "config": { "refuse": true } })]).await;
    for _ in 0..4 {
        let answer = served.call("acme", "t").await;
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    let pids = served.directory.path().join("homes/program/acme/pids");
    let text = std::fs::read_to_string(pids).expect("the programs wrote it");
    let pids: std::collections::BTreeSet<_> = text.lines().collect();
    assert_eq!((text.lines().count(), pids.len()), (8, 2), "no program is started in vain: {text}");
}
