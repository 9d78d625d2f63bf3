//! The processes of kaged's plugins: crashes, time, and their end.

use std::time::Duration;

use serde_json::json;

use super::{
    super::support::{until_gone, until_running},
    support::{KagedPlugin, injected},
};

#[tokio::test]
async fn a_plugin_that_dies_in_a_call_fails_that_call_alone() {
    let main = r#"
def handle(message):
    os._exit(3) if message["params"].get("die") else result(message, "alive")

serve(handle)
"#;
    let served = KagedPlugin::with_manifest("", main).serve_tools().await;
    let alive = served.run_tool("globex", json!({})).await;
    assert_eq!(alive.body["result"], "alive", "{alive:?}");
    for _ in 0..6 {
        let answer = served.run_tool("acme", json!({ "die": true })).await;
        let (code, error) = served.fault(&answer).await;
        let expected = "the program ended with the exit code 3 before it replied";
        assert_eq!((answer.status, &*code, &*error), (502, "Aborted", expected));
    }
    for tenant in ["acme", "globex"] {
        let answer = served.run_tool(tenant, json!({})).await;
        assert_eq!(answer.body["result"], "alive", "{answer:?}");
    }
}

#[tokio::test]
async fn a_plugin_that_forks_floods_and_hangs_ends_with_all_it_started() {
    let main = r#"
import subprocess

def handle(message):
    subprocess.Popen(["sleep", "98765.1"])
    sys.stderr.write("flood\n" * 100000)
    time.sleep(1000)

serve(handle)
"#;
    let plugin = KagedPlugin::with_manifest("", main).entry(&json!({ "limits": { "time": "2s" } }));
    let served = plugin.serve_tools().await;
    let (answer, ()) = tokio::join!(served.run_tool("acme", json!({})), until_running("98765.1"));
    let (code, error) = served.fault(&answer).await;
    let expected = "the program did not reply within 2s (`limits.time`)";
    assert_eq!((answer.status, &*code, &*error), (504, "DeadlineExceeded", expected));
    until_gone("98765.1").await;
    served.logged("flood").await;
    let logged = served.runner.lines().into_iter().filter(|line| line["message"] == "flood").count();
    assert!((1..=1000).contains(&logged), "{logged}");
}

#[tokio::test]
async fn a_plugin_is_told_to_end_when_it_has_no_calls_and_keeps_its_files() {
    let main = r#"
def handle(message):
    path = os.path.expanduser("~/ended")
    inject(message, open(path).read() if os.path.exists(path) else "first")

def notified(message):
    if message["method"] == "shutdown":
        open(os.path.expanduser("~/ended"), "a").write("told,")

serve(handle, notified=notified)
open(os.path.expanduser("~/ended"), "a").write("ended,")
"#;
    let plugin = KagedPlugin::new(main).entry(&json!({ "limits": { "idle": "1s" } }));
    let served = plugin.serve(&["session_start"]).await;
    assert_eq!(injected(&served.session_start("acme", "primary").await), "first");
    let ended = served.directory.path().join("homes/program/acme/ended");
    for _ in 0..1000 {
        if std::fs::read_to_string(&ended).is_ok_and(|text| text == "told,ended,") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(injected(&served.session_start("acme", "primary").await).starts_with("told,ended,"));
}

#[tokio::test]
async fn a_plugin_that_ignores_its_end_is_killed_when_the_runner_stops() {
    let main = r#"
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def handle(message):
    subprocess.Popen(["sleep", "98765.2"])
    inject(message, "started")

serve(handle)
time.sleep(1000)
"#;
    let manifest = "hooks: [on_session_start]\nshutdown_timeout_sec: 1\n";
    let mut served = KagedPlugin::with_manifest(manifest, main).serve(&["session_start"]).await;
    assert_eq!(injected(&served.session_start("acme", "primary").await), "started");
    until_running("98765.2").await;
    served.runner.terminate().await;
    until_gone("98765.2").await;
}

#[tokio::test]
async fn an_answer_before_the_end_counts_and_a_closed_input_ends_the_plugin() {
    let main = r#"
def handle(message):
    if message["params"].get("exit"):
        result(message, "x" * (1 << 20))
        os._exit(0)
    os.close(0)
    result(message, "closed")
    time.sleep(1000)

serve(handle)
"#;
    let served = KagedPlugin::with_manifest("", main).serve_tools().await;
    let answer = served.run_tool("acme", json!({ "exit": true })).await;
    assert_eq!(answer.body["result"].as_str().map(str::len), Some(1 << 20), "{:?}", answer.status);
    let answer = served.run_tool("acme", json!({})).await;
    assert_eq!(answer.body["result"], "closed", "{answer:?}");
    let answer = served.run_tool("acme", json!({})).await;
    let (code, error) = served.fault(&answer).await;
    let expected = "the program was ended: it closed its standard input";
    assert_eq!((answer.status, &*code, &*error), (502, "Aborted", expected));
}

#[tokio::test]
async fn a_start_that_fails_is_explained_by_the_plugins_last_words() {
    let served = KagedPlugin::new("sys.exit('no module named notes')").serve(&["session_start"]).await;
    let answer = served.session_start("acme", "primary").await;
    let line = served.fault_line(&answer).await;
    let expected =
        (json!("the program ended with the exit code 1 before it replied"), json!("no module named notes"));
    assert_eq!((line["error"].clone(), line["stderr"].clone()), expected);
}
