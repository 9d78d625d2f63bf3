//! Runs programs like a container engine, without one: with a root from `deploy/rootfs.sh`, read-only, as
//! the user 65532, without capabilities, with a memory limit. Also reads the Dockerfile's instructions.
//!
//! Only root can use volumes and start containers, because that takes mounts and changes of the user.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use hookgate_tests::{
    gateway::{Line, binary},
    repository,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::mpsc,
    time::timeout,
};

/// The timeout of all waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The user of the images.
pub(crate) const USER: u32 = 65532;
/// The memory limit of each container; a debug build of the gateway needs a fraction.
const MEMORY: u64 = 256 << 20;

/// The text of a file of the repository.
pub(crate) fn text(path: &str) -> String {
    let found = std::fs::read_to_string(repository::root().join(path));
    found.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The instruction in the Dockerfile's stage; lists in JSON are parsed.
pub(crate) fn of_image(stage: &str, instruction: &str) -> Vec<String> {
    let file = text("deploy/Dockerfile");
    let from = format!(" AS {stage}\n");
    let (_, stage) = file.split_once(&from).unwrap_or_else(|| panic!("no stage {stage}"));
    let stage = stage.split("\nFROM ").next().unwrap_or_default();
    let line = stage.lines().find(|line| line.starts_with(instruction));
    let line = line.unwrap_or_else(|| panic!("no {instruction} in {stage}"));
    let list = line.find('[').map_or("", |start| &line[start..]);
    serde_json::from_str(list).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// A root like that of the images, and folders for volumes.
pub(crate) struct Machine {
    folder: TempDir,
}

/// # Panics
/// If another user than root runs the test.
fn assert_root() {
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    assert_eq!(user, 0, "this test has to be run by root: it makes mounts and gives rights up");
}

impl Machine {
    pub(crate) async fn new() -> Self {
        let gateway = tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(repository::root().join("deploy/rootfs.sh"));
        assert!(command.arg(gateway).arg(folder.path().join("root")).status().await.unwrap().success());
        Machine { folder }
    }

    /// The image's root.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A new folder that the images' user may write to, like a new volume.
    ///
    /// # Panics
    /// If another user than root runs the test.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        assert_root();
        let path = self.folder.path().join(name);
        if !path.exists() {
            std::fs::create_dir(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(USER), Some(USER)).unwrap();
        }
        path
    }

    /// A file that containers can only read.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A container that is not started yet. `binds` maps volumes and files of this machine to paths in the
    /// container.
    ///
    /// # Panics
    /// If another user than root runs the test.
    pub(crate) fn container(&self, binds: &[(&Path, &str)]) -> Container {
        assert_root();
        let mut command = Command::new("python3");
        command.arg(repository::root().join("deploy/check/contained.py")).arg("--root");
        command.arg(self.root()).arg("--read-only");
        command.args(["--user", &USER.to_string(), "--memory", &MEMORY.to_string()]);
        for (from, to) in binds {
            command.arg("--bind").arg(format!("{}:{to}", from.display()));
        }
        Container { command }
    }
}

/// A program in a container, before its start.
pub(crate) struct Container {
    command: Command,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
}

impl Container {
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.arg("--env").arg(format!("{name}={value}"));
        self
    }

    fn ready(mut self, words: &[&str]) -> Command {
        self.command.arg("--").args(words).stdin(Stdio::null()).kill_on_drop(true);
        self.command
    }

    /// Runs it to its end.
    pub(crate) async fn run(self, words: &[&str]) -> Ended {
        let output = timeout(PATIENCE, self.ready(words).output()).await.expect("it ends").unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ended { code: output.status.code(), said }
    }

    /// Starts it. It is killed on drop.
    pub(crate) async fn start(self, words: &[&str]) -> Running {
        let mut command = self.ready(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (lines, log) = mpsc::unbounded_channel();
        read(child.stdout.take().unwrap(), lines.clone());
        read(child.stderr.take().unwrap(), lines);
        let mut running = Running { child, log, so_far: String::new() };
        running.logged("contained").await;
        running
    }
}

/// Reads to the end, so that the program never blocks on a full pipe.
fn read(source: impl AsyncRead + Unpin + Send + 'static, to: mpsc::UnboundedSender<String>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(source).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let _ = to.send(line); // nobody may be waiting for lines any more
        }
    });
}

/// A program that runs.
pub(crate) struct Running {
    child: Child,
    log: mpsc::UnboundedReceiver<String>,
    so_far: String,
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// The next line that `wanted` accepts.
    pub(crate) async fn line(&mut self, wanted: impl Fn(&Line) -> bool) -> Line {
        let search = async {
            while let Some(text) = self.log.recv().await {
                let line = Line::parse(&text);
                self.so_far += &(text + "\n");
                if wanted(&line) {
                    return Some(line);
                }
            }
            None
        };
        let found = timeout(PATIENCE, search).await.ok().flatten();
        found.unwrap_or_else(|| panic!("no such line in:\n{}", self.so_far))
    }

    /// The next line with this message.
    pub(crate) async fn logged(&mut self, message: &str) -> Line {
        self.line(|line| line.message() == Some(message)).await
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.id());
        assert!(std::process::Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        timeout(PATIENCE, self.child.wait()).await.expect("it ends in time").unwrap().code()
    }
}
