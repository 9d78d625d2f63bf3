//! What the runner says of a program that ended, or should have.

use std::time::Duration;

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::token::token;
use serde_json::{Value, json};

use super::support::{SECRET, each_call, serve};

#[tokio::test]
async fn a_program_that_used_its_cpu_time_is_told_apart_from_one_that_was_killed() {
    let script = each_call(
        r#"case $call in
    *'"tool_name":"loop"'*) while :; do :; done ;;
    *'"tool_name":"catch"'*) trap '' XCPU; while :; do :; done ;;
    *) kill -9 $$ ;;
esac"#,
    );
    let served = serve(&script, json!({ "limits": { "cpu": "1s" } })).await;
    for (tool, signal, has_limit) in [("loop", 24, true), ("catch", 9, true), ("killed", 9, false)] {
        let answer = served.call("acme", tool).await;
        let (code, error) = served.fault(&answer).await;
        assert_eq!((answer.status, &*code), (502, "Aborted"));
        let ended = format!("the program ended by signal {signal} before it replied");
        let limit = error.strip_prefix(&ended).expect(&error);
        let is_limit =
            limit.starts_with(": it had used ") && limit.ends_with(" of CPU time, and `limits.cpu` is 1s");
        assert!(if has_limit { is_limit } else { limit.is_empty() }, "{tool}: {error}");
    }
}

#[tokio::test]
async fn a_reply_that_is_not_complete_in_time_is_told_apart_from_none() {
    for (process, script, did, remedy) in [
        (
            "per_call",
            r#"cat > /dev/null; echo '{"continue":{}}'; sleep 60"#,
            "replied, but did not end",
            ": with `process: per_call` it must end after its reply",
        ),
        ("per_call", "cat > /dev/null; sleep 60", "did not reply", ""),
        (
            "persistent",
            r#"read -r call; printf '{"continue":{}}'; sleep 60"#,
            "replied, but did not end the line",
            "",
        ),
        ("persistent", r#"read -r call; printf '{"cont'; sleep 60"#, "wrote only a part of its reply", ""),
    ] {
        let served = serve(script, json!({ "process": process, "limits": { "time": "1s" } })).await;
        let answer = served.call("acme", "t").await;
        let (code, error) = served.fault(&answer).await;
        let expected = format!("the program {did} within 1s (`limits.time`){remedy}");
        assert_eq!((answer.status, &*code, error), (504, "DeadlineExceeded", expected));
    }
}

/// The gateway gives most calls up before the runner does.
#[tokio::test]
async fn a_call_that_is_given_up_names_a_program_that_replied_and_did_not_end() {
    let script = r#"cat > /dev/null; echo '{"continue":{}}'; echo "still busy" >&2; sleep 60"#;
    let served = serve(script, json!({ "process": "per_call" })).await;
    let agent = served.gateway.http(&token("acme"));
    let call = agent.call(ExtensionPoint::BeforeToolCall, json!({ "tool_name": "t", "args": {} }));
    let is_busy = async {
        while !served.runner.lines().iter().any(|line| line["message"] == "still busy") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        answer = call => panic!("it has no answer: {answer:?}"),
        () = is_busy => {}
    }
    let line = served.runner.wait_for(
        "the gateway gave the call up: the program had replied, but not ended: with `process: per_call` it must end \
         after its reply",
    );
    assert_eq!(line.await["stderr"], "still busy");
}

#[tokio::test]
async fn a_fault_has_the_last_line_that_the_program_wrote_for_this_call() {
    let script = each_call(
        r#"case $call in
    *'"tool_name":"fine"'*) echo "of another call" >&2; reply '{"continue":{}}' ;;
    *'"tool_name":"flood"'*) seq 1000 >&2; printf 'the last of %s\n\n' "$WORD" >&2; exit 3 ;;
    *) exit 3 ;;
esac"#,
    );
    let served = serve(&script, json!({ "env": { "WORD": "${RUNNERS_OWN}" } })).await;
    assert_eq!(served.call("acme", "fine").await.status, 200);
    served.runner.wait_for("of another call").await;
    for (tool, expected) in [("silent", Value::Null), ("flood", json!("the last of ***"))] {
        let answer = served.call("acme", tool).await;
        assert_eq!(served.fault_line(&answer).await["stderr"], expected, "{tool}");
    }
    assert!(!Value::Array(served.runner.lines()).to_string().contains(SECRET));
}

#[tokio::test]
async fn a_script_without_its_folder_fails_with_the_word_that_finds_it() {
    let served = serve("", json!({ "command": ["/usr/bin/python3", "program"] })).await;
    let answer = served.call("acme", "t").await;
    let line = served.fault_line(&answer).await;
    let expected = "the program ended with the exit code 2 before it replied; for the file beside the runner's file, \
                    write `./program` in `command`";
    assert_eq!((answer.status, &line["error"]), (502, &json!(expected)));
    assert!(line["stderr"].as_str().is_some_and(|said| said.contains("can't open file")), "{line}");
}
