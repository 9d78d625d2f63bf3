//! Programs of two tenants know nothing of each other.

use serde_json::json;

use super::support::{SECRET, notice, serve};

/// Says in a notice what the shell command `$1` prints.
const SHELL: &str = r#"while IFS= read -r call; do
  command=$(printf '%s' "$call" | jq -r .payload.args.command)
  said=$(sh -c "$command" 2>&1)
  printf '%s' "$call" |
    jq -c --arg said "$said" '{continue:{},notices:[{kind:"info",message:$said}],request_id:.context.request_id}'
done
"#;

#[tokio::test]
async fn each_tenant_has_its_own_folder_and_no_way_to_the_others() {
    let served = serve(SHELL, json!({})).await;
    let said = async |tenant: &str, command: &str| {
        let answer = served.call_with(tenant, "t", json!({ "command": command })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        notice(&answer).to_owned()
    };
    let homes = served.directory.path().join("homes/program");
    let homes = homes.display();
    assert_eq!(
        said("acme", "pwd; echo $HOME $HOOKGATE_TENANT").await,
        format!("{homes}/acme\n{homes}/acme acme")
    );
    said("acme", "echo mine > file; echo also > $TMPDIR/file").await;
    assert_eq!(said("acme", "cat file").await, "mine");
    assert_eq!(said("globex", "ls").await, "tmp");
    for command in [
        format!("cat {homes}/acme/file"),
        "cat ../acme/file".to_owned(),
        format!("ls {homes}"),
        format!("echo x > {homes}/acme/file"),
        format!("cat {}/runner.yaml", served.directory.path().display()),
        format!("echo x > /tmp/hookgate-{}", std::process::id()),
        "ls /root".to_owned(),
        "cat /etc/shadow".to_owned(),
    ] {
        let denied = said("globex", &command).await;
        assert!(denied.contains("ermission denied"), "{command}: {denied}");
    }
    assert_eq!(said("acme", "cat file").await, "mine");
}

#[tokio::test]
async fn a_program_has_only_its_own_variables_and_can_end_only_its_own_processes() {
    let served = serve(SHELL, json!({ "env": { "OWN": "value" } })).await;
    let said = async |tenant: &str, command: &str| {
        notice(&served.call_with(tenant, "t", json!({ "command": command })).await).to_owned()
    };
    let environment = said("acme", "env").await;
    assert!(environment.contains("OWN=value") && environment.contains("PATH=/usr/local/bin:/usr/bin:/bin"));
    assert!(!environment.contains(SECRET), "{environment}");
    let names: Vec<_> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let expected = [
        "HOME",
        "HOOKGATE_PLUGIN",
        "HOOKGATE_TENANT",
        "LANG",
        "OWN",
        "PATH",
        "PWD",
        "TMPDIR",
        "SHLVL",
        "_",
        "OLDPWD",
    ];
    assert!(names.iter().all(|name| expected.contains(name)), "{names:?}");

    let acme = said("acme", "echo $PPID").await;
    for command in [format!("kill -9 {acme}"), format!("cat /proc/{acme}/environ")] {
        let denied = said("globex", &command).await;
        assert!(denied.contains("ermi"), "{command}: {denied}");
    }
    assert_eq!(said("acme", "echo $PPID").await, acme, "it still runs");
}

#[tokio::test]
async fn a_tenant_whose_id_is_a_path_stays_below_the_data_folder() {
    let served = serve(SHELL, json!({})).await;
    let gateway = served.gateway.file();
    let text = std::fs::read_to_string(&gateway).expect("it is the gateway's file");
    let text = text.replace("globex", "../../escape");
    std::fs::write(&gateway, text).expect("the file is ours");
    served.gateway.hang_up();
    served.gateway.wait_for_revision(2).await;
    let answer = served.call_with("../../escape", "t", json!({ "command": "pwd" })).await;
    let home = served.directory.path().join("homes/program/%2E%2E%2F%2E%2E%2Fescape");
    assert_eq!(notice(&answer), home.display().to_string());
}

#[tokio::test]
async fn a_program_can_not_call_the_runner_or_act_on_what_is_not_its_own() {
    let served = serve(SHELL, json!({})).await;
    let said = async |tenant: &str, command: &str| {
        let answer = served.call_with(tenant, "t", json!({ "command": command })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        notice(&answer).to_owned()
    };
    let home = said("acme", "echo mine > file; pwd").await;
    let socket = served.runner.address.strip_prefix("unix://").expect("it is a socket").to_owned();
    let python = |code: &str| format!("/usr/bin/python3 -c '{code}'");
    for command in [
        python(&format!("import socket; socket.socket(socket.AF_UNIX).connect(\"{socket}\")")),
        python("import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1))"),
        python("import os; os.memfd_create(\"m\")"),
        python("import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)"),
        python("import os; os.setpriority(os.PRIO_USER, 0, 19)"),
        python("import os; os.sched_setaffinity(os.getppid(), [0])"),
        python("import os; os.open(\"/etc/passwd\", os.O_RDONLY | os.O_TRUNC)"),
        python("import os; os.truncate(\"file\", 0)"),
        python("import os; os.fchmod(os.open(\"/bin/sh\", os.O_RDONLY), 0o755)"),
        python("import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)"),
        python("import os; os.setpgid(0, 0)"),
        format!("chmod 777 {home}"),
        format!("chmod 777 {home}/file"),
        format!("touch -d @0 {home}/file"),
    ] {
        let denied = said("globex", &command).await;
        assert!(denied.contains("ermi"), "{command}: {denied}");
    }
    assert_eq!(said("acme", "stat -c %a . file").await, "700\n644");
    // What programs do all the time.
    for command in [
        python("import socket; socket.socketpair(); socket.socket(socket.AF_INET)"),
        python("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))"),
        python(
            "import tempfile, shutil; f = tempfile.mkdtemp(); shutil.copyfile(\"/etc/passwd\", f + \"/p\")",
        ),
        "cp file copy && cmp file copy; touch made; mkdir -p a/b; mv made a/b; echo ok > a/b/c; rm -r a"
            .to_owned(),
        "sort file > sorted; tail -n 1 sorted > last; : > last".to_owned(),
        "getent hosts localhost > /dev/null || echo none".to_owned(),
        python("import subprocess; subprocess.run([\"true\"], check=True)"),
        "timeout --foreground 5 true || echo failed".to_owned(),
    ] {
        assert_eq!(said("acme", &command).await, "", "{command}");
    }
}

/// The program's own process reads: what its children see of themselves is not permitted at all.
#[tokio::test]
async fn a_program_sees_neither_mounts_nor_sockets_of_the_machine() {
    let script = r#"import json, sys
for line in sys.stdin:
    call = json.loads(line)
    try:
        exec(call["payload"]["args"]["code"])
        message = "ok"
    except Exception as error:
        message = str(error)
    notice = {"kind": "info", "message": message}
    request = call["context"]["request_id"]
    print(json.dumps({"continue": {}, "notices": [notice], "request_id": request}), flush=True)
"#;
    let served = serve(script, json!({ "command": ["/usr/bin/python3", "./program"] })).await;
    let run = async |code: String| {
        let answer = served.call_with("acme", "t", json!({ "code": code })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        notice(&answer).to_owned()
    };
    let read = |path: &str| run(format!("open('{path}').read()"));
    for path in [
        "/proc/self/mounts",
        "/proc/self/mountinfo",
        "/proc/self/mountstats",
        "/proc/self/cgroup",
        "/proc/self/net/tcp",
        "/proc/net/unix",
        "/proc/thread-self/mounts",
        "/proc/mounts",
        "/proc/sys/kernel/hostname",
        "/proc/version",
    ] {
        let denied = read(path).await;
        assert!(denied.contains("Permission denied"), "{path}: {denied}");
    }
    for code in [
        // What `ss` lists sockets with.
        "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4)",
        // listmount
        "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); c.syscall(458); raise OSError(ctypes.get_errno(), '')",
    ] {
        let denied = run(code.to_owned()).await;
        assert!(denied.contains("[Errno 1]"), "{code}: {denied}");
    }
    for path in
        ["/proc/cpuinfo", "/proc/meminfo", "/proc/self/status", "/proc/self/maps", "/proc/sys/kernel/pid_max"]
    {
        assert_eq!(read(path).await, "ok", "{path}");
    }
    // The network itself isn't restricted.
    assert_eq!(
        run("import socket; socket.if_nameindex(); socket.getaddrinfo('localhost', 80)".into()).await,
        "ok"
    );
}
