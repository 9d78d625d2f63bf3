//! Tests fork bombs, with a runner of root and with one of an ordinary user.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, chown},
    path::Path,
    process::Stdio,
};

use hookgate_tests::gateway::binary;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, process::Command};

use super::support::{ServedProgram, each_call, run_command, serve, serve_by, write};

/// A user without rights.
const NOBODY: u32 = 65534;
/// What the kernel permits with `limits.processes: 8`.
const MAX_TASKS: usize = 256;

/// Runs the Python code in the call's arguments, then continues.
fn python() -> String {
    each_call(
        r#"/usr/bin/python3 -c "$(printf '%s' "$call" | jq -r .payload.args.code)" || exit 9
reply '{"continue":{}}'"#,
    )
}

/// Forks up to 4095 times, each time twice as often. Each process writes `+` when it begins and `.` when it has had its
/// turns, and stays until the standard input ends.
const FORK_BOMB: &str = "import os, sys
log = int(sys.argv[1]) if sys.argv[1:] else os.open(os.environ['HOME'] + '/forks', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.write(log, b'+')
for _ in range(12):
    try:
        if os.fork() == 0:
            os.write(log, b'+')
    except OSError:
        pass
os.write(log, b'.')
os.read(0, 1)";

/// A command of the gateway's binary as an ordinary user, who owns `paths` then.
async fn ordinary_user(directory: &Path, files: &[&str]) -> Command {
    tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
    if fs::metadata(directory).expect("it was made").uid() != 0 {
        return Command::new(binary());
    }
    // The gateway's binary is in a folder that `nobody` can't enter. Copied by another process: a child of another thread
    // could inherit the file open for writing, and then nobody could execute it.
    let program = directory.join("hookgate");
    let copied = Command::new("cp").arg(binary()).arg(&program).status().await;
    assert!(copied.expect("it can be started").success());
    for file in [&[""], files].concat() {
        chown(directory.join(file), Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY);
    command
}

/// A runner of an ordinary user.
async fn serve_as_ordinary_user(members: Value) -> ServedProgram {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    write(directory.path(), &python(), &members);
    let command = ordinary_user(directory.path(), &["program", "runner.yaml"]).await;
    let runner = run_command(command, directory.path()).await;
    serve_by(runner, directory, json!({}), &[json!({})]).await
}

/// Asserts that a fork bomb is ended.
async fn assert_bomb_ends(served: &ServedProgram) {
    let answer = served.call_with("acme", "t", json!({ "code": FORK_BOMB })).await;
    let (code, error) = served.fault(&answer).await;
    assert!(code == "ResourceExhausted" && error.contains("more than 8 processes"), "{code} {error}");
    let lines = served.runner.lines();
    let by = lines.iter().find_map(|line| line["by"].as_str()).expect("it is logged at the start");
    let log = fs::read(served.directory.path().join("homes/program/acme/forks")).expect("it forked");
    let count = log.iter().filter(|byte| **byte == b'+').count();
    // How fast the watch is nobody promises.
    assert!(count <= MAX_TASKS || by == "watch", "{by}: {count} processes");
    let calls = served.call_with("acme", "t", json!({ "code": "" })).await;
    assert_eq!(calls.status, 200, "{calls:?}");
}

#[tokio::test]
async fn the_kernel_permits_a_fork_bomb_so_many_processes_and_no_more() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let spec = json!({
        "target": { "Program": ["/usr/bin/python3", "-c", FORK_BOMB, "1"] },
        "limits": { "cpu": { "secs": 60, "nanos": 0 }, "memory": 256 << 20, "processes": 8 },
        "task_limit": "UserNamespace",
        "file_size": null,
        "sandbox": null,
        "state_file": null,
    });
    let mut command = ordinary_user(directory.path(), &[]).await;
    command.args(["launch-program", &spec.to_string()]).current_dir(directory.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().expect("it can be started");
    let mut output = process.stdout.take().expect("it is piped");
    let (mut log, count) = (Vec::new(), |log: &[u8], kind| log.iter().filter(|byte| **byte == kind).count());
    while count(&log, b'.') < MAX_TASKS {
        let read = output.read_buf(&mut log).await.expect("it is a pipe");
        assert!(read > 0, "only {} processes", count(&log, b'+'));
    }
    drop(process.stdin.take());
    output.read_to_end(&mut log).await.expect("all end");
    assert_eq!(count(&log, b'+'), MAX_TASKS);
}

#[tokio::test]
async fn a_fork_bomb_of_an_ordinary_user_is_ended() {
    let served = serve_as_ordinary_user(json!({ "limits": { "processes": 8 } })).await;
    assert_bomb_ends(&served).await;
}

#[tokio::test]
async fn a_fork_bomb_is_ended_whatever_limits_it() {
    let served = serve(&python(), json!({ "limits": { "processes": 8 } })).await;
    assert_bomb_ends(&served).await;
}

#[tokio::test]
async fn threads_are_not_processes_but_a_program_has_no_end_of_them() {
    let served = serve_as_ordinary_user(json!({ "limits": { "processes": 8 } })).await;
    let threads = |count: u32| {
        let code = format!(
            "import threading, time
# Stacks count as memory.
threading.stack_size(64 << 10)
for _ in range({count}):
    threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
time.sleep(0.4)"
        );
        served.call_with("acme", "t", json!({ "code": code }))
    };
    assert_eq!(threads(100).await.status, 200);
    let answer = threads(1000).await;
    let (_, error) = served.fault(&answer).await;
    // The watch may come after the program has failed.
    assert!(error.contains("or 256 threads") || error.contains("exit code 9"), "{error}");
}
