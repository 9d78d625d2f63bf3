//! Programs that hang, fork, use too much or write too much leave nothing behind, and every call has an answer.

use std::{sync::LazyLock, time::Duration};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::token::token;
use serde_json::{Value, json};

use super::support::{
    ServedProgram, each_call, processes, serve, serve_in, until_gone, until_running, write,
};

/// Runs the shell command in the call's arguments, then continues.
static SHELL: LazyLock<String> = LazyLock::new(|| {
    each_call(
        r#"eval "$(printf '%s' "$call" | jq -r .payload.args.command)"
reply '{"continue":{}}'"#,
    )
});

async fn shell(served: &ServedProgram, tenant: &str, command: &str) -> u16 {
    served.call_with(tenant, "t", json!({ "command": command })).await.status
}

/// Asserts that `command` of acme gets this status, and the runner's own `code` and `error`.
async fn assert_fault(served: &ServedProgram, command: &str, status: u16, code: &str, error: &str) {
    let answer = served.call_with("acme", "t", json!({ "command": command })).await;
    let (found, said) = served.fault(&answer).await;
    assert!(found == code && said.contains(error), "{found} {said}");
    assert_eq!(answer.status, status, "{answer:?}");
}

#[tokio::test]
async fn a_program_that_hangs_is_ended_with_its_children_and_theirs() {
    let served = serve(&SHELL, json!({ "limits": { "time": "1s" } })).await;
    let command = "sleep 91001 & (setsid sleep 91001 &) ; (sh -c 'sleep 91001 & wait' &) ; sleep 91001";
    assert_fault(&served, command, 504, "DeadlineExceeded", "the program did not reply within 1s").await;
    until_gone("91001").await;
    assert_eq!(shell(&served, "acme", "true").await, 200);
}

#[tokio::test]
async fn a_call_that_is_given_up_ends_its_program() {
    let served = serve(&SHELL, json!({})).await;
    let agent = served.gateway.http(&token("acme"));
    let payload = json!({ "tool_name": "t", "args": { "command": "sleep 91002" } });
    let call = agent.call(ExtensionPoint::BeforeToolCall, payload);
    assert!(tokio::time::timeout(Duration::from_secs(2), call).await.is_err(), "it hangs");
    until_gone("91002").await;
    let line = served.runner.wait_for(
        "the gateway gave the call up: the program had not replied: does it write each reply at once?",
    );
    assert_eq!(line.await["tenant"], "acme");
    assert_eq!(shell(&served, "acme", "true").await, 200);
}

#[tokio::test]
async fn a_process_can_not_leave_its_program_and_ends_with_it() {
    let served = serve(&SHELL, json!({})).await;
    let command = "setsid sh -c 'echo > $HOME/left' || echo > $HOME/refused; sleep 91003 &";
    assert_eq!(shell(&served, "acme", command).await, 200);
    let home = served.directory.path().join("homes/program/acme");
    assert!(home.join("refused").exists() && !home.join("left").exists());
    // A persistent program may have children.
    until_running("91003").await;
    assert_eq!(shell(&served, "acme", "exit 3").await, 502);
    until_gone("91003").await;
}

/// What a process could leave with is denied without the sandbox too.
#[tokio::test]
async fn a_process_without_the_sandbox_ends_with_its_program_too() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    write(directory.path(), &SHELL, &json!({}));
    let file = directory.path().join("runner.yaml");
    let text = std::fs::read_to_string(&file).expect("it was written");
    std::fs::write(&file, text.replacen('{', r#"{"sandbox":false,"#, 1)).expect("the directory is ours");
    let served = serve_in(directory).await;
    let marker = served.directory.path().join("left");
    let command = format!("setsid sh -c 'echo > {0}' || echo > {0}.refused; sleep 91008 &", marker.display());
    assert_eq!(shell(&served, "acme", &command).await, 200);
    assert!(marker.with_extension("refused").exists() && !marker.exists());
    assert_eq!(shell(&served, "acme", "exit 3").await, 502);
    until_gone("91008").await;
}

#[tokio::test]
async fn a_program_with_too_many_processes_is_ended_and_another_tenant_is_not_affected() {
    let served = serve(&SHELL, json!({ "limits": { "processes": 8 } })).await;
    let forks = "for i in 1 2 3 4 5 6 7 8 9; do sleep 91004 & done; wait";
    let ((), other) = tokio::join!(
        assert_fault(&served, forks, 502, "ResourceExhausted", "it had more than 8 processes"),
        shell(&served, "globex", "sleep 1"),
    );
    assert_eq!(other, 200);
    until_gone("91004").await;
}

#[tokio::test]
async fn memory_of_a_process_and_of_all_together_is_limited() {
    let served = serve(&SHELL, json!({ "limits": { "memory": "64MiB" } })).await;
    let one = "/usr/bin/python3 -c 'print(len(bytearray(100 << 20)))' >&2 || exit 9";
    assert_fault(&served, one, 502, "Aborted", "exit code 9").await;
    let each = "/usr/bin/python3 -c 'import time; a = bytearray(b\"x\" * (15 << 20)); time.sleep(9)' &";
    let all = format!("{each} {each} {each} {each} wait");
    assert_fault(&served, &all, 502, "ResourceExhausted", "bytes of memory").await;
}

#[tokio::test]
async fn cpu_time_is_limited() {
    let served = serve(&SHELL, json!({ "limits": { "cpu": "1s" } })).await;
    assert_fault(&served, "while :; do :; done", 502, "Aborted", "the program ended by signal").await;
}

#[tokio::test]
async fn a_reply_that_is_too_long_is_refused() {
    let served = serve(&SHELL, json!({ "limits": { "output": "1MiB" } })).await;
    let error = "the program's reply is longer than 1048576 bytes";
    assert_fault(&served, "yes x | tr -d '\\n'", 502, "ResourceExhausted", error).await;
    assert_eq!(shell(&served, "acme", "true").await, 200);
}

#[tokio::test]
async fn a_flood_of_standard_error_delays_no_call_and_is_cut() {
    let served = serve(&SHELL, json!({})).await;
    assert_eq!(shell(&served, "acme", "seq 100000 >&2").await, 200);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(shell(&served, "acme", "echo last >&2").await, 200);
    served.runner.wait_for("last").await;
    let lines = served.runner.lines();
    let written = lines.iter().filter(|line| line["stream"] == "stderr").count();
    assert!(written < 1000, "{written} lines");
    let dropped: u64 = lines.iter().filter_map(|line| line["dropped"].as_u64()).sum();
    assert!(dropped > 90_000, "{dropped}");
}

#[tokio::test]
async fn calls_of_a_tenant_run_in_as_many_programs_as_are_permitted() {
    let served = serve(&SHELL, json!({ "limits": { "parallel": 2, "programs": 3 } })).await;
    let program = r#"echo $$ >> "$HOME/pids"; sleep 0.2"#;
    let calls = (0..6).map(|_| shell(&served, "acme", program));
    assert_eq!(futures::future::join_all(calls).await, [200; 6]);
    let pids = served.directory.path().join("homes/program/acme/pids");
    let text = std::fs::read_to_string(pids).expect("the programs wrote it");
    let mut pids: Vec<_> = text.lines().collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!((text.lines().count(), pids.len()), (6, 2), "{text}");
    // The other tenant's programs make room for one more.
    let calls = (0..4).map(|_| shell(&served, "globex", "true"));
    assert_eq!(futures::future::join_all(calls).await, [200; 4]);
}

#[tokio::test]
async fn nothing_is_left_when_the_runner_ends_or_is_killed() {
    let mut ended = serve(&SHELL, json!({})).await;
    assert_eq!(shell(&ended, "acme", "sleep 91005 &").await, 200);
    until_running("91005").await;
    assert_eq!(ended.runner.terminate().await.code(), Some(0));
    until_gone("91005").await;

    let mut killed = serve("exec sleep 91006", json!({})).await;
    let call = killed.gateway.http(&token("acme"));
    let payload = json!({ "tool_name": "t", "args": Value::Null });
    let call = tokio::spawn(async move { call.call(ExtensionPoint::BeforeToolCall, payload).await });
    while processes("91006").is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    killed.runner.kill().await;
    until_gone("91006").await;
    assert_eq!(call.await.expect("it does not panic").status, 503);
}

#[tokio::test]
async fn a_tenant_with_one_call_waits_only_for_its_turn() {
    let served = serve(&SHELL, json!({ "limits": { "parallel": 1, "programs": 1 } })).await;
    let log = served.directory.path().join("homes/program");
    let call = async |tenant: &str| {
        let status = shell(&served, tenant, "date +%s.%N >> $HOME/times; sleep 0.1").await;
        assert_eq!(status, 200, "{tenant}");
    };
    let many = async {
        futures::future::join_all((0..8).map(|_| call("acme"))).await;
    };
    let one = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        call("globex").await;
    };
    tokio::join!(many, one);
    let times = |tenant: &str| {
        let text = std::fs::read_to_string(log.join(tenant).join("times")).expect("it was written");
        text.lines().map(|line| line.parse::<f64>().expect("a time")).collect::<Vec<_>>()
    };
    let (acme, globex) = (times("acme"), times("globex")[0]);
    assert!(acme.iter().filter(|time| **time > globex).count() >= 3, "{acme:?} {globex}");
}

#[tokio::test]
async fn programs_end_when_the_gateway_needs_the_plugin_no_more() {
    let served = serve(&SHELL, json!({})).await;
    assert_eq!(shell(&served, "acme", "sleep 91007 &").await, 200);
    until_running("91007").await;
    let ServedProgram { gateway, mut runner, .. } = served;
    assert_eq!(gateway.stop().await.code, Some(0));
    until_gone("91007").await;
    assert_eq!(runner.terminate().await.code(), Some(0));
}
