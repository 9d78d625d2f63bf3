//! The storage of kaged's plugins, and what keeps tenants apart.

use std::{fs, path::Path, process::Stdio, time::Duration};

use hookgate_tests::gateway::binary;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::{super::support::ServedProgram, support::KagedPlugin};

const CAPABILITIES: &str = "capabilities: [\"kaged:storage:read\", \"kaged:storage:write\"]\n";
/// A call of one function that takes hours, and that SQLite doesn't interrupt.
const ENDLESS: &str = "SELECT instr(hex(zeroblob(10000000)), hex(zeroblob(5000000)) || '1')";

const STORED: &str = r#"
def handle(message):
    params = message["params"]
    params.pop("_context")
    answer = ask(params.pop("method"), **params)
    result(message, answer.get("result", answer.get("error")))

serve(handle)
"#;

/// Has the plugin send a request with `sql`, and returns its answer.
async fn ask(served: &ServedProgram, tenant: &str, method: &str, sql: &str) -> Value {
    let answer = served.run_tool(tenant, json!({ "method": method, "sql": sql })).await;
    answer.body["result"].clone()
}

/// The ids of the processes that serve the storage of `tenant`.
fn storages(directory: &Path, tenant: &str) -> Vec<String> {
    let name = directory.file_name().expect("it has a name").to_string_lossy();
    let file = format!("{name}/homes/program/.storage/{tenant}/storage.db");
    let entries = fs::read_dir("/proc").expect("Linux has it").flatten();
    let is_storage = |pid: &String| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(&file))
    };
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_storage).collect()
}

async fn until_no_storage(directory: &Path, tenant: &str) {
    for _ in 0..1000 {
        if storages(directory, tenant).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("left behind: {:?}", storages(directory, tenant));
}

#[tokio::test]
async fn each_tenant_has_a_database_of_its_own_that_outlives_the_process() {
    let plugin =
        KagedPlugin::with_manifest(CAPABILITIES, STORED).entry(&json!({ "limits": { "idle": "1s" } }));
    let served = plugin.serve_tools().await;
    let run = async |tenant: &str, method: &str, sql: &str, params: Value| {
        let args = json!({ "method": method, "sql": sql, "params": params });
        served.run_tool(tenant, args).await.body["result"].clone()
    };
    run("acme", "storage.exec", "CREATE TABLE notes(text TEXT)", json!([])).await;
    let done = run("acme", "storage.exec", "INSERT INTO notes VALUES (?)", json!(["a secret of acme"])).await;
    assert_eq!(done["changes"], 1, "{done}");
    let rows = run("acme", "storage.query", "SELECT text FROM notes", json!([])).await;
    assert_eq!(rows, json!({ "rows": [{ "text": "a secret of acme" }] }));
    let other = run("globex", "storage.query", "SELECT text FROM notes", json!([])).await;
    assert_eq!(other, json!({ "code": -32000, "message": "no such table: notes" }));
    let file = served.directory.path().join("homes/program/.storage/acme/storage.db");
    assert!(file.is_file());
    let attach = format!("ATTACH '{}' AS x", file.display());
    let attached = run("globex", "storage.exec", &attach, json!([])).await;
    assert_eq!(attached["code"], -32003, "{attached}");
    let hidden = run("globex", "storage.query", &format!("SELECT $1('); {attach} --"), json!([1])).await;
    assert_eq!(hidden["code"], -32602, "{hidden}");
    let too_long = run("globex", "storage.query", "SELECT ?", json!(["x".repeat(1 << 20)])).await;
    assert_eq!(too_long["code"], -32602, "{too_long}");
    // It ends with the session, and so does every other process of the tenant.
    until_no_storage(served.directory.path(), "acme").await;
    let rows = run("acme", "storage.query", "SELECT text FROM notes", json!([])).await;
    assert_eq!(rows, json!({ "rows": [{ "text": "a secret of acme" }] }));
}

#[tokio::test]
async fn a_storage_that_uses_up_its_time_or_hangs_fails_its_request_and_the_next_one_works() {
    let plugin = KagedPlugin::with_manifest(CAPABILITIES, STORED);
    let served = plugin.entry(&json!({ "limits": { "cpu": "3s" } })).serve_tools().await;
    let directory = served.directory.path();
    ask(&served, "acme", "storage.exec", "CREATE TABLE notes(text)").await;
    let [first] = &*storages(directory, "acme") else { panic!("not one storage") };

    let used = ask(&served, "acme", "storage.query", ENDLESS).await;
    assert_eq!(used["code"], -32000, "{used}");
    let inserted = ask(&served, "acme", "storage.exec", "INSERT INTO notes VALUES (1)").await;
    assert_eq!(inserted["changes"], 1, "{inserted}");
    let [second] = &*storages(directory, "acme") else { panic!("not one storage") };
    assert_ne!(first, second);

    let stopped = Command::new("sh").args(["-c", &format!("kill -STOP {second}")]).status().await;
    assert!(stopped.expect("a shell can be started").success());
    let late = ask(&served, "acme", "storage.query", "SELECT * FROM notes").await;
    assert_eq!(late, json!({ "code": -32000, "message": "the statement took too long" }));
    let rows = ask(&served, "acme", "storage.query", "SELECT * FROM notes").await;
    assert_eq!(rows, json!({ "rows": [{ "text": 1 }] }));
    let [third] = &*storages(directory, "acme") else { panic!("not one storage") };
    assert_ne!(second, third);
}

#[tokio::test]
async fn no_storage_outlives_its_runner() {
    let mut served = KagedPlugin::with_manifest(CAPABILITIES, STORED).serve_tools().await;
    let answer = served.run_tool("globex", json!({ "method": "storage.drop" })).await;
    assert_eq!(answer.body["result"]["code"], -32601, "{answer:?}");
    assert_eq!(storages(served.directory.path(), "globex"), Vec::<String>::new());
    ask(&served, "acme", "storage.exec", "CREATE TABLE notes(text)").await;
    assert_eq!(storages(served.directory.path(), "acme").len(), 1);
    assert!(served.runner.terminate().await.success());
    assert_eq!(storages(served.directory.path(), "acme"), Vec::<String>::new());

    let mut served = KagedPlugin::with_manifest(CAPABILITIES, STORED).serve_tools().await;
    ask(&served, "acme", "storage.exec", "CREATE TABLE notes(text)").await;
    assert_eq!(storages(served.directory.path(), "acme").len(), 1);
    served.runner.kill().await;
    until_no_storage(served.directory.path(), "acme").await;
}

/// Has a process with the access rights of `home` run statements on the database `file`, and returns its answers.
async fn answers(home: &Path, file: &Path, statements: &[&str]) -> Vec<Value> {
    let spec = json!({
        "target": { "Storage": { "file": file, "access": "Write" } },
        "limits": { "cpu": { "secs": 60, "nanos": 0 }, "memory": 256 << 20, "processes": 1 },
        "task_limit": "WatchOnly",
        "file_size": 100_000,
        "sandbox": { "readable": [], "home": home },
        "state_file": null,
    });
    tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
    let mut command = Command::new(binary());
    command.args(["launch-program", &spec.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it can be started");
    let mut stdin = child.stdin.take().expect("it is piped");
    for (id, sql) in statements.iter().enumerate() {
        let request = json!({ "id": id, "method": "exec", "params": { "sql": sql } });
        stdin.write_all(format!("{request}\n").as_bytes()).await.expect("it reads");
    }
    drop(stdin);
    let output = child.wait_with_output().await.expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("it is JSON")).collect()
}

#[tokio::test]
async fn a_storage_reaches_no_file_outside_its_folder_and_writes_no_larger_one() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let [own, other] = ["acme", "globex"].map(|tenant| directory.path().join(tenant));
    for home in [&own, &other] {
        fs::create_dir(home).expect("the directory is ours");
    }
    let statements = [
        "CREATE TABLE notes(text)",
        "INSERT INTO notes VALUES (hex(zeroblob(100000)))",
        "INSERT INTO notes VALUES (1)",
    ];
    let got = answers(&own, &own.join("storage.db"), &statements).await;
    assert_eq!(got[0]["result"]["changes"], 0, "{got:?}");
    assert_eq!(got[1]["error"]["code"], -32000, "{got:?}");
    assert_eq!(got[2]["result"]["changes"], 1, "{got:?}");
    let got = answers(&other, &own.join("storage.db"), &["INSERT INTO notes VALUES (2)"]).await;
    assert_eq!(got[0]["error"]["message"], "unable to open database file", "{got:?}");
}

#[tokio::test]
async fn a_plugin_without_the_capability_has_no_storage() {
    let served = KagedPlugin::with_manifest("", STORED).serve_tools().await;
    let answer = served.run_tool("acme", json!({ "method": "storage.query", "sql": "SELECT 1" })).await;
    assert_eq!(answer.body["result"]["code"], -32003, "{answer:?}");
    let answer = served.run_tool("acme", json!({ "method": "projects.list" })).await;
    assert_eq!(answer.body["result"]["code"], -32601, "{answer:?}");
}

#[tokio::test]
async fn no_tenant_sees_files_or_databases_of_another() {
    let main = r#"
def read(path):
    try:
        return open(path).read()
    except OSError as error:
        return error.__class__.__name__

def handle(message):
    params = message["params"]
    if "write" in params:
        open(os.path.expanduser("~/" + params["_context"]["agent_path"]), "w").write(params["write"])
    result(message, [read(path) for path in params.get("read", [])])

serve(handle)
"#;
    let served = KagedPlugin::with_manifest("", main).serve_tools().await;
    let homes = served.directory.path().canonicalize().expect("it exists").join("homes/program");
    let call = async |tenant: &str, args: Value| {
        let payload = json!({ "tool_name": "program.echo", "args": args });
        let context = json!({ "agent_path": "../globex/escape" });
        let body = json!({ "payload": payload, "context": context, "takes_results": true });
        served.run_tool_with(tenant, &body).await.body["result"].clone()
    };
    assert_eq!(call("acme", json!({ "write": "mine" })).await, json!([]));
    let file = "primary.subagents.%2E%2E%2Fglobex%2Fescape";
    assert_eq!(fs::read_to_string(homes.join("acme").join(file)).expect("it is there"), "mine");
    let database = homes.join(".storage/acme/storage.db");
    fs::create_dir_all(homes.join(".storage/acme")).expect("it can be made");
    fs::write(&database, "a database").expect("it can be written");
    let paths = [homes.join("acme").join(file), database, "/proc/1/environ".into()];
    let got = call("globex", json!({ "read": paths })).await;
    assert_eq!(got, json!(["PermissionError", "PermissionError", "PermissionError"]));
    assert!(!homes.join("globex").join(file).exists());
}
