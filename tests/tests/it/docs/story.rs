//! Executes a page whose snippets form one story: they are put into a folder and run in order, against the
//! built gateway.
//!
//! A comment `<!-- story: KIND ARGUMENT -->` before a fenced block says what it is:
//! - `file NAME`, `append NAME`: its text becomes that file, or is appended to it; `change NAME`: a diff of
//!   it;
//! - `run`: commands, none of which may fail;
//! - `session`: commands after `$ ` and their output, where white space, times and ids don't count, and
//!   `...` stands for anything; `session eventually`: the output depends on something that is still in
//!   progress;
//! - `start`: a command that keeps running; an earlier one with the same words is stopped first;
//! - `gateway`: `hookgate serve` with the file `hookgate.yaml`, which keeps running; an earlier one is
//!   stopped first. The story goes on when it is ready, or with `gateway unready` when it listens.
//!   `gateway.log` is its log. From then on, the gateway's file is a link to `hookgate.yaml`;
//! - `installed`: something that the test has installed by other means.
//!
//! Rust without a comment is a doctest of the SDK. The page's /tmp is a folder of the test, and the
//! gateway's ports are free ones.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use hookgate_tests::{
    gateway::{Gateway, binary},
    repository,
};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

/// The timeout of a command that ends by itself. Some build a program while all other tests run.
const PATIENCE: Duration = Duration::from_secs(240);

/// A fenced block and the comment before it.
pub(crate) struct Block {
    pub(crate) story: Option<String>,
    language: String,
    pub(crate) text: String,
}

impl Block {
    /// A block that is on no page.
    pub(crate) fn new(story: &str, text: String) -> Self {
        Block { story: Some(story.to_owned()), language: String::new(), text }
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut story, mut open): (Vec<_>, Option<String>, Option<Block>) = (Vec::new(), None, None);
    for line in page.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => {
                open =
                    Some(Block { story: story.take(), language: language.to_owned(), text: String::new() });
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(block)) => open = Some(Block { text: block.text + line + "\n", ..block }),
            (None, None) => {
                let comment = line.strip_prefix("<!-- story: ").and_then(|rest| rest.strip_suffix(" -->"));
                story = comment.map(str::to_owned).or(story.filter(|_| line.is_empty()));
            }
        }
    }
    blocks
}

/// A story in progress.
pub(crate) struct Story {
    page: String,
    /// The current folder, which `cd` changes.
    place: PathBuf,
    environment: BTreeMap<String, String>,
    started: Vec<(String, Child)>,
    gateway: Option<Gateway>,
    /// The root of the gateway's pod, if it has one.
    root: String,
    folder: TempDir,
}

impl Story {
    /// The story of a page, whose path begins with docs/, with `hookgate` among the commands.
    pub(crate) async fn of(page: &str) -> Self {
        let hookgate = tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "tmp"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        symlink(hookgate, folder.path().join("bin/hookgate")).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut environment = BTreeMap::from([
            ("PATH".to_owned(), format!("{}/bin:{path}", folder.path().display())),
            ("HOOKGATE__DRAIN__GRACE".to_owned(), "0ms".to_owned()),
        ]);
        for port in ["DATA_ADDR", "OPS_ADDR", "ADMIN_ADDR"] {
            environment.insert(format!("HOOKGATE__SERVER__{port}"), "127.0.0.1:0".to_owned());
        }
        let place = folder.path().join("tmp");
        let (page, root) = (page.to_owned(), String::new());
        Story { page, place, environment, started: Vec::new(), gateway: None, root, folder }
    }

    /// The folder for the page's /tmp.
    pub(crate) fn place(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// Adds a command, a script, to the path.
    pub(crate) fn command(&self, name: &str, script: &str) {
        let path = self.folder.path().join("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// A variable in the environment of commands.
    pub(crate) fn variable(&self, name: &str) -> &str {
        self.environment.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The current folder.
    pub(crate) fn here(&self) -> &Path {
        &self.place
    }

    /// Continues with a gateway that was started by other means, in a pod with this root.
    pub(crate) fn goes_on_with(&mut self, gateway: Gateway, root: &str) {
        root.clone_into(&mut self.root);
        self.gateway = Some(gateway);
    }

    /// The running gateway.
    pub(crate) fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().expect("it was started")
    }

    /// The blocks of its page.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        blocks(&fs::read_to_string(repository::root().join("docs").join(&self.page)).unwrap())
    }

    /// Executes it to its end, and returns the output of all sessions.
    pub(crate) async fn told(mut self) -> String {
        let mut printed = String::new();
        for block in self.blocks() {
            printed += &self.tell(&block).await;
        }
        printed
    }

    /// Executes one block, and returns the output of a session.
    pub(crate) async fn tell(&mut self, block: &Block) -> String {
        let Some(story) = &block.story else {
            let page = &self.page;
            assert!(
                block.language.starts_with("rust"),
                "{page}: no story says what this is:\n{}",
                block.text
            );
            return String::new();
        };
        let (kind, argument) = story.split_once(' ').unwrap_or((story, ""));
        let text = self.real(&block.text);
        match kind {
            "file" => self.write(argument, &visible(&text)),
            "append" => {
                let before = fs::read_to_string(self.place.join(argument)).unwrap();
                self.write(argument, &(before + "\n" + &visible(&text)));
            }
            "change" => self.change(argument, &text),
            "run" => drop(self.run(&format!("set -eu\n{text}")).await),
            "session" => return self.session(&text, argument == "eventually").await,
            "start" => self.start(foreground(&text)).await,
            "gateway" => self.serve(foreground(&text), argument == "unready").await,
            "installed" => {}
            _ => panic!("{}: `{story}` isn't a kind of block", self.page),
        }
        String::new()
    }

    /// Replaces the page's folder and addresses by the real ones.
    pub(crate) fn real(&self, text: &str) -> String {
        let mut text = text.replace("/tmp/", &format!("{}/", self.place().display()));
        if let Some(gateway) = &self.gateway {
            text = text.replace("127.0.0.1:8080", &gateway.data_addr().to_string());
            text = text.replace("127.0.0.1:9090", &gateway.ops_addr().to_string());
            let admin = gateway.admin_addr().map(|address| address.to_string());
            text = text.replace("127.0.0.1:9091", admin.as_deref().unwrap_or("127.0.0.1:9091"));
        }
        text
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.place.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Atomically, because a gateway may read it at any moment.
        let beside = self.folder.path().join("next");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, path).unwrap();
    }

    /// Replaces the lines with `-` by those with `+`; each hunk must occur once in the file.
    fn change(&self, name: &str, diff: &str) {
        let mut text = fs::read_to_string(self.place.join(name)).unwrap();
        let with = |sign: char| -> String {
            let kept = diff.lines().filter(|line| line.starts_with(sign) || line.starts_with(' '));
            kept.flat_map(|line| [&line[1..], "\n"]).collect()
        };
        assert_eq!(text.matches(&with('-')).count(), 1, "{}: {name} has no such lines:\n{diff}", self.page);
        text = text.replace(&with('-'), &with('+'));
        self.write(name, &text);
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(&self.place).envs(&self.environment);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs a script, and keeps its current folder and exported variables.
    async fn output(&mut self, script: &str) -> Output {
        let state = self.folder.path().join("state");
        let script = format!("trap '{{ pwd; env -0; }} > {}' EXIT\n{script}", state.display());
        let output = timeout(PATIENCE, self.shell(&script).output()).await;
        let output = output.unwrap_or_else(|_| panic!("{}: does not end:\n{script}", self.page)).unwrap();
        let state = fs::read_to_string(state).unwrap();
        let (place, environment) = state.split_once('\n').unwrap();
        self.place = place.into();
        let variables = environment.split('\0').filter_map(|variable| variable.split_once('='));
        self.environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        output
    }

    /// Runs a script that must not fail, and returns its output.
    pub(crate) async fn run(&mut self, script: &str) -> String {
        let output = self.output(script).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{}: {script}\nends with {}:\n{all}", self.page, output.status);
        all
    }

    async fn session(&mut self, text: &str, eventually: bool) -> String {
        let mut printed = String::new();
        for (command, expected) in commands(text) {
            let until = Instant::now() + PATIENCE;
            loop {
                if let Some(gateway) = &self.gateway {
                    fs::write(self.place().join("gateway.log"), gateway.log().to_string()).unwrap();
                }
                let output = self.output(&format!("{{ {command}\n}} 2>&1")).await;
                let said = self.as_shown(&String::from_utf8_lossy(&output.stdout));
                if is_like(&said, &expected) {
                    printed += &said;
                    break;
                }
                let said = said.replace(&self.place().display().to_string(), "/tmp");
                let log = self.gateway.as_ref().map(|gateway| gateway.log().to_string()).unwrap_or_default();
                assert!(
                    eventually && Instant::now() < until,
                    "{}: it says\n$ {command}\n{said}\nand should\n{expected}\n{log}",
                    self.page
                );
                sleep(Duration::from_millis(50)).await;
            }
        }
        printed
    }

    /// The output with the page's name for the gateway's file, with the pod's paths, and as root sees it.
    fn as_shown(&self, said: &str) -> String {
        let file = self.gateway.as_ref().map(|gateway| gateway.file().display().to_string());
        let said = file.map_or_else(|| said.to_owned(), |file| said.replace(&file, "hookgate.yaml"));
        let said = if self.root.is_empty() { said } else { said.replace(&self.root, "") };
        let user = fs::metadata(self.place()).expect("it is ours").uid();
        said.replace(&format!("unix:{user}"), "unix:0")
    }

    async fn start(&mut self, command: &str) {
        if let Some(at) = self.started.iter().position(|(started, _)| started == command) {
            let (_, mut before) = self.started.remove(at);
            let id = before.id().expect("it runs still").to_string();
            self.run(&format!("kill -TERM {id}")).await;
            let ended = timeout(PATIENCE, before.wait()).await.expect("it ends on SIGTERM").unwrap();
            assert!(ended.success(), "{}: {command} ended with {ended}", self.page);
        }
        let child = self.shell(&format!("exec {command}")).stdout(Stdio::null()).spawn().unwrap();
        self.started.push((command.to_owned(), child));
    }

    async fn serve(&mut self, command: &str, unready: bool) {
        assert!(command.starts_with("hookgate serve --config hookgate.yaml"), "{}: {command}", self.page);
        if let Some(before) = self.gateway.take() {
            before.stop().await;
        }
        let file = fs::read_to_string(self.place.join("hookgate.yaml")).unwrap();
        let mut setup = hookgate_tests::gateway::Setup::file(&file);
        for (name, value) in self.environment.iter().filter(|(name, _)| *name != "PATH") {
            setup = setup.environment(name, value);
        }
        let gateway = if unready { setup.start_unready().await } else { setup.start().await };
        let link = gateway.file().with_extension("link");
        symlink(self.place.join("hookgate.yaml"), &link).unwrap();
        fs::rename(link, gateway.file()).unwrap();
        self.environment.insert("HOOKGATE_ADDR".to_owned(), format!("http://{}", gateway.data_addr()));
        self.gateway = Some(gateway);
    }
}

/// The command of a block, without the `&` for a shell that goes on.
fn foreground(block: &str) -> &str {
    block.trim().trim_end_matches(" &")
}

/// Rust code as readers see it, without the hidden lines of a doctest.
fn visible(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("# ") && *line != "#")
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// Each command of a session, with its continuation lines and its output.
fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((command, _))) if goes_on => *command = format!("{command}\n{line}"),
            (None, Some((_, printed))) => *printed = format!("{printed}{line}\n"),
            (None, None) => panic!("a session begins with a command:\n{text}"),
        }
        goes_on = line.ends_with('\\') && commands.last().is_some_and(|(_, printed)| printed.is_empty());
    }
    commands
}

/// Whether `said` matches `expected`, where white space, times and ids don't count and `...` is anything.
pub(crate) fn is_like(said: &str, expected: &str) -> bool {
    let (said, expected) = (masked(said), masked(expected));
    let pieces: Vec<_> = expected.split("...").collect();
    let mut rest = said.as_str();
    for (index, piece) in pieces.iter().enumerate() {
        let is_last = index + 1 == pieces.len();
        let at = match (index, is_last) {
            (0, _) => rest.starts_with(piece).then_some(0),
            (_, true) => rest.ends_with(piece).then(|| rest.len() - piece.len()),
            _ => rest.find(piece),
        };
        let Some(at) = at else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty()
}

/// Removes white space, and replaces by `#` what differs from run to run: times after their names or before
/// their units, ids and digests.
fn masked(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut masked = String::new();
    let words: Vec<_> = text.split_whitespace().collect();
    let followed = words.iter().zip(words.iter().skip(1).chain([&""]));
    let is_time = |word: &str, unit: &str| unit == "ms" && word.parse::<f64>().is_ok();
    let words =
        followed.map(|(&word, &unit)| if is_time(word, unit) || is_moment(word) { "#" } else { word });
    for word in words.flat_map(|word| word.split_inclusive(|c| !is_part(c))) {
        let bare = word.trim_end_matches(|c| !is_part(c));
        let is_id = bare.len() >= 32 && bare.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        masked = masked + if is_id { "#" } else { bare } + &word[bare.len()..];
    }
    let named = [
        ("_us\":", ",}"),
        ("_ms\":", ",}"),
        ("_s\":", ",}"),
        ("\"timestamp\":\"", "\""),
        ("\"at\":\"", "\""),
        ("\"until\":\"", "\""),
    ];
    for (name, ends) in named {
        masked = mask(&masked, name, |value| value.find(|c| ends.contains(c)).unwrap_or(value.len()));
    }
    // The next line follows directly, and may be `...`.
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    mask(&masked, ";dur=", |value| {
        value[..value.find(|c| !is_digit(c)).unwrap_or(value.len())].trim_end_matches('.').len()
    })
}

/// `text` with `#` for each value after `name`; `length` returns the value's length.
fn mask(text: &str, name: &str, length: impl Fn(&str) -> usize) -> String {
    let mut parts = text.split(name);
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.map(|part| format!("{name}#{}", &part[length(part)..])).collect::<String>()
}

/// Whether this is a time in RFC 3339.
fn is_moment(word: &str) -> bool {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let rest = shape.strip_prefix("0000-00-00T00:00:00").and_then(|rest| rest.strip_suffix('Z'));
    rest.is_some_and(|fraction| fraction.trim_end_matches('0').trim_end_matches('.').is_empty())
}

#[test]
fn what_is_said_is_compared_but_for_times_ids_and_white_space() {
    assert!(is_like(r#"{"duration_us":12,"a": 1}"#, "{\"duration_us\":7,\n \"a\":1}"));
    assert!(is_like("Compiling\nrunning 2 tests\nok", "...\nrunning 2 tests\n...\nok"));
    assert!(is_like(
        "1  plugin  12.5 ms\nexpires 2026-11-22T06:20:41.52Z",
        "1 plugin 3.0 ms\nexpires 2026-01-02T00:00:00Z"
    ));
    assert!(is_like("t;dur=1.25\ndate: Sun, 22\n\n{}", "t;dur=3.0\n...\n\n{}"));
    assert!(!is_like("1 plugin 12.5 kg", "1 plugin 3.0 kg"));
    assert!(!is_like("403", "503"));
    assert!(!is_like("running 2 tests\nfailed", "running 2 tests\nok"));
    assert!(!is_like("a b", "a"), "nothing more is said");
    let (one, other) = ("01a2009b-31f2-7aaf-a41e-73eaecd7f2df", "01a20064-c50f-7668-8681-b8de0ff9493a");
    assert!(is_like(&format!("\"{one}\","), &format!("\"{other}\",")));
    assert!(!is_like("TOOL_NOT_ALLOWED", "QUOTA_EXCEEDED"));
    assert_eq!(
        commands("$ a \\\n  b\nprinted\n$ c\n"),
        [("a \\\n  b".into(), "printed\n".into()), ("c".into(), String::new())]
    );
}

/// The path of a library that the workspace has built, for a crate outside of it.
pub(crate) fn library(artifacts: &str, name: &str) -> PathBuf {
    let of_it = artifacts.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut files =
        of_it.filter(|line| line["reason"] == "compiler-artifact" && line["target"]["name"] == name);
    let file = files.next().unwrap_or_else(|| panic!("{name} is built")).clone();
    assert!(files.next().is_none(), "{name} is built once");
    Path::new(file["filenames"][0].as_str().expect("a path is text")).to_owned()
}
