//! Tests `hookgate demo` as a newcomer runs it.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{agent::HttpAgent, gateway::binary, openapi::Port};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(35);

fn demo(arguments: &[&str]) -> process::Command {
    let mut command = process::Command::new(binary());
    command.arg("demo").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Settings for another gateway don't affect the demo.
    command.kill_on_drop(true).env("HOOKGATE__SERVER__DATA_ADDR", "127.0.0.1:1");
    command
}

async fn built() {
    tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
}

/// The numbers that follow `pid ` in the text.
fn pids(text: &str) -> Vec<&str> {
    text.match_indices("pid ")
        .map(|(at, word)| {
            let rest = &text[at + word.len()..];
            &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]
        })
        .collect()
}

fn is_alive(pid: &str) -> bool {
    let mut shell = Command::new("sh");
    let sent = shell.args(["-c", &format!("kill -0 {pid}")]).stderr(Stdio::null()).status();
    sent.expect("a shell can be run").success()
}

/// The folder of the configuration file that the text names.
fn directory(text: &str) -> &Path {
    let file = text.split_whitespace().find(|word| word.ends_with("/hookgate.yaml"));
    Path::new(file.expect("the demo names its file")).parent().expect("the file is in a folder")
}

/// Whether a line begins and ends like this.
fn has_line(text: &str, start: &str, end: &str) -> bool {
    text.lines().any(|line| line.starts_with(start) && line.contains(end))
}

#[tokio::test]
async fn the_demo_shows_every_kind_of_answer_and_leaves_nothing_behind() {
    built().await;
    let output =
        timeout(PATIENCE, demo(&[]).output()).await.expect("it ends in time").expect("it can be run");
    let (shown, said) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{shown}");
    for (start, end) in [
        ("acme   before_llm_request http", "CONTINUE 200 content-policy"),
        ("globex before_tool_call   http orders.refund", "BLOCK 403 TOOL_NOT_ALLOWED tenant-auth"),
        ("acme   before_tool_call   http orders.refund", "CONTINUE 200 tenant-auth"),
        ("acme   after_tool_result  grpc", "CONTINUE OK"),
        ("acme   before_response    http", "CONTINUE 200 response-sanitizer"),
        ("acme   before_llm_request http", "BLOCK 413 INPUT_TOO_LONG content-policy"),
        ("acme   before_tool_call   http forged signature", "NO DECISION 401 TOKEN_INVALID"),
        ("globex before_tool_call   http tenant in the body", "NO DECISION 400 PAYLOAD_INVALID"),
        ("acme   before_tool_call   http orders.refund", "NO DECISION 503 PLUGIN_UNAVAILABLE"),
        ("acme   before_tool_call   grpc orders.refund", "NO DECISION UNAVAILABLE PLUGIN_UNAVAILABLE"),
        ("       -> ", "write to [EMAIL]"),
        ("       -> ", "[EMAIL]\\n[Response truncated]"),
        ("     args ", r#"{"order": 9007199254740993, "coupon": null}  (as sent)"#),
        ("acme   chat.completions   http   an e-mail address", "200"),
        ("       -> ", "You said: Refund my order and write to [EMAIL]"),
        ("acme   chat.completions   http   240 characters", "400 INPUT_TOO_LONG"),
        ("globex chat.completions   http   orders.refund", "200"),
        ("       -> ", "Tool call orders.refund was refused: "),
        ("acme   chat.completions   stream its result", "200"),
        ("       -> ", "The tool said: refunded, mail to [EMAIL]"),
        ("16 calls and 5 requests to a model: every status, code and payload is as expected.", ""),
        ("audit-log wrote 26 lines", ""),
    ] {
        assert!(has_line(&shown, start, end), "no line `{start} ... {end}` in\n{shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "too wide:\n{shown}");
    assert!(!shown.contains('\x1b'), "colours are for terminals:\n{shown}");
    let pids = pids(&shown);
    assert_eq!(pids.len(), 4, "two plugins, one of them killed, and its successor: {shown}");
    let alive: Vec<_> = pids.into_iter().filter(|pid| is_alive(pid)).collect();
    assert_eq!((alive, directory(&shown).exists()), (vec![], false), "left behind");
}

#[tokio::test]
async fn a_kept_demo_answers_calls_until_it_is_told_to_stop() {
    built().await;
    let mut child = demo(&["--keep"]).spawn().expect("it can be run");
    let mut lines = BufReader::new(child.stdout.take().expect("standard output is piped")).lines();
    let mut shown = String::new();
    while !shown.contains("\ntail ") {
        let line = timeout(PATIENCE, lines.next_line()).await.expect("it goes on").expect("it is text");
        shown.push_str(&line.expect("it says how to call it before it ends"));
        shown.push('\n');
    }
    let token = shown.lines().find_map(|line| line.strip_prefix("GLOBEX=")).expect("a token");
    let address = shown.split_once("curl -i http://").and_then(|(_, rest)| rest.split_once('/'));
    let address: SocketAddr = address.expect("a curl line").0.parse().expect("an address");
    let agent = HttpAgent::new(address).with_token(token);
    let payload = json!({ "tool_name": "orders.refund", "args": {} });
    let answer = agent.call(ExtensionPoint::BeforeToolCall, payload).await;
    assert_eq!((answer.status, &answer.body["code"]), (403, &json!("TOOL_NOT_ALLOWED")), "{answer:?}");

    let ops = shown.split_once("curl -s http://").and_then(|(_, rest)| rest.split_once("/metrics"));
    let ops = HttpAgent::new(ops.expect("a curl line").0.parse().expect("an address")).of(Port::Ops);
    let metrics = ops.get("/metrics").await.expect("the operators' port answers").text;
    assert!(metrics.contains("hookgate_blocks_total{hookgate_code=\"TOOL_NOT_ALLOWED\""), "{metrics}");

    let pid = child.id().expect("it runs");
    assert!(Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status().unwrap().success());
    let status =
        timeout(PATIENCE, child.wait()).await.expect("it ends in time").expect("it can be waited for");
    assert_eq!(status.code(), Some(0));
    let alive: Vec<_> = pids(&shown).into_iter().filter(|pid| is_alive(pid)).collect();
    assert_eq!((alive, directory(&shown).exists()), (vec![], false), "left behind");
}
