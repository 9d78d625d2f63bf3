//! Runs the command line like a person or a script: arguments and input in, output streams and exit code
//! out.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use hookgate_tests::{
    gateway::binary,
    token::{AUDIENCE, ISSUER, SECRET},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};

/// The timeout of commands that end by themselves.
const PATIENCE: Duration = Duration::from_secs(100);

/// A command's exit code and output.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    /// Standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A folder to run commands in; commands use relative paths.
pub(crate) struct Folder(pub(crate) TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs `hookgate` to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with(args, &[], "").await
    }

    /// Runs it in a subfolder.
    pub(crate) async fn run_below(&self, name: &str, args: &[&str]) -> CommandOutput {
        tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
        run_in(&self.0.path().join(name), args, &[], "").await
    }

    /// Runs it with this environment and standard input.
    pub(crate) async fn run_with(&self, args: &[&str], env: &[(&str, &str)], input: &str) -> CommandOutput {
        tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
        run_in(self.0.path(), args, env, input).await
    }
}

/// Runs a line in a shell, in an unrelated folder. The gateway must be built already.
pub(crate) async fn pasted(line: &str) -> CommandOutput {
    tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
    let mut shell = Command::new("sh");
    shell.env("XDG_CONFIG_HOME", "/nowhere").env_remove("HOOKGATE_PROFILE");
    let run = shell.args(["-c", line]).current_dir("/").kill_on_drop(true).output();
    let ran = timeout(PATIENCE, run).await.unwrap_or_else(|_| panic!("`{line}` does not end")).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandOutput { code: ran.status.code(), stdout: text(&ran.stdout), stderr: text(&ran.stderr) }
}

/// A gateway that a command line started, on free ports whatever its file says.
pub(crate) struct Serving {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    so_far: CommandOutput,
}

impl Serving {
    /// Lets a shell run a command line in this folder, like a person.
    pub(crate) async fn pasted(folder: &Path, line: &str, env: &[(&str, &str)]) -> Self {
        tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {line}")]).current_dir(folder).kill_on_drop(true);
        for port in ["DATA", "OPS", "ADMIN"] {
            command.env(format!("HOOKGATE__SERVER__{port}_ADDR"), "127.0.0.1:0");
        }
        command.env("HOOKGATE__LOG__FORMAT", "json").envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let so_far = CommandOutput { code: None, stdout: String::new(), stderr: String::new() };
        Serving { child, stdout: BufReader::new(stdout), stderr: BufReader::new(stderr), so_far }
    }

    /// The line of its log with this message.
    pub(crate) async fn logged(&mut self, message: &str) -> Value {
        loop {
            let line = next(&mut self.stderr, &mut self.so_far.stderr).await;
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if line["message"] == message {
                return line;
            }
        }
    }

    /// Its output up to a line with this beginning.
    pub(crate) async fn printed(&mut self, start: &str) -> String {
        while !next(&mut self.stdout, &mut self.so_far.stdout).await.starts_with(start) {}
        self.so_far.stdout.clone()
    }

    /// Stops it and waits for its end.
    pub(crate) async fn stop(mut self) -> CommandOutput {
        let id = self.child.id().expect("it runs");
        let sent = Command::new("sh").args(["-c", &format!("kill -TERM {id}")]).status().await.unwrap();
        assert!(sent.success());
        let end = async {
            self.stdout.read_to_string(&mut self.so_far.stdout).await.unwrap();
            self.stderr.read_to_string(&mut self.so_far.stderr).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = timeout(PATIENCE, end).await.expect("it ends");
        CommandOutput { code: status.code(), ..self.so_far }
    }
}

async fn next(stream: &mut (impl AsyncBufReadExt + Unpin), all: &mut String) -> String {
    let before = all.len();
    let read = timeout(PATIENCE, stream.read_line(all)).await.expect("it goes on").unwrap();
    assert!(read > 0, "it ended: {all}");
    all[before..].to_owned()
}

async fn run_in(folder: &Path, args: &[&str], env: &[(&str, &str)], input: &str) -> CommandOutput {
    let mut command = Command::new(binary());
    command.args(args).current_dir(folder).env_remove("COLUMNS").kill_on_drop(true);
    // The developer's own profiles must not be used.
    command.env("XDG_CONFIG_HOME", folder).env_remove("HOOKGATE_PROFILE").envs(env.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let written = stdin.write_all(input.as_bytes()).await;
    drop((written, stdin)); // commands that read no input may have ended earlier
    let output = timeout(PATIENCE, child.wait_with_output()).await;
    let output = output.unwrap_or_else(|_| panic!("{args:?} does not end")).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes text");
    CommandOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The smallest file with a tenant acme and free ports.
pub(crate) fn smallest() -> Value {
    json!({
        "server": { "data_addr": "127.0.0.1:0", "ops_addr": "127.0.0.1:0", "admin_addr": "127.0.0.1:0" },
        "auth": { "issuers": [{
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "keys": [{ "alg": "HS256", "secret": SECRET }],
            "tenants": "*",
        }] },
        "tenants": { "list": [{ "id": "acme" }, { "id": "gone", "enabled": false }] },
        "drain": { "grace": "0s" },
        "log": { "format": "json" },
    })
}
