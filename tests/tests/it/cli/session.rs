//! A first session, typed into real terminals: from an empty folder to a blocked call, a call that passes,
//! explanations of both, an edit while the gateway runs, and Ctrl-C.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hookgate_tests::gateway::binary;
use pty_process::{Command, Pty, Size};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Child,
    time::timeout,
};

use crate::cli::support::Folder;

/// The maximum wait for something to appear.
const PATIENCE: Duration = Duration::from_secs(35);
const PROMPT: &str = "you@here> ";
const CTRL_C: &str = "\u{3}";
const GREEN: &str = "\u{1b}[32m";
const PLAIN: &str = "\u{1b}[0m";
const RED: &str = "\u{1b}[31m";

/// A terminal with a shell in which `hookgate` is a command.
pub(crate) struct Terminal {
    pty: Pty,
    shell: Child,
    /// Everything on the screen so far, with normalized line ends.
    screen: String,
    /// How much of the screen was already read.
    seen: usize,
}

impl Terminal {
    pub(crate) async fn open(folder: &Path) -> Self {
        let programs = tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
        let programs = programs.parent().map(Path::to_path_buf).expect("it is in a folder");
        let path =
            std::env::join_paths([programs, PathBuf::from("/usr/bin"), PathBuf::from("/bin")]).unwrap();
        let (pty, pts) = pty_process::open().unwrap();
        pty.resize(Size::new(50, 200)).unwrap();
        let shell = Command::new("sh").current_dir(folder).env_clear().env("PATH", path).env("PS1", PROMPT);
        let shell = shell.env("TERM", "xterm-256color").kill_on_drop(true).spawn(pts).unwrap();
        let mut terminal = Terminal { pty, shell, screen: String::new(), seen: 0 };
        terminal.shows(PROMPT).await;
        terminal
    }

    pub(crate) async fn types(&mut self, keys: &str) {
        self.pty.write_all(keys.as_bytes()).await.unwrap();
    }

    /// Waits until `text` appears, and returns the unread text before it.
    pub(crate) async fn shows(&mut self, text: &str) -> String {
        let mut bytes = Vec::new();
        loop {
            if let Some(at) = self.screen[self.seen..].find(text) {
                let before = self.screen[self.seen..][..at].to_owned();
                self.seen += at + text.len();
                return before;
            }
            let read = timeout(PATIENCE, self.pty.read_buf(&mut bytes)).await;
            let read = read.unwrap_or_else(|_| panic!("`{text}` does not appear:\n{}", self.screen)).unwrap();
            assert!(read > 0, "the terminal closed:\n{}", self.screen);
            // A multi-byte character or a line end may come in two parts.
            let whole =
                bytes.iter().rposition(|byte| byte.is_ascii() && *byte != b'\r').map_or(0, |at| at + 1);
            let part: Vec<u8> = bytes.drain(..whole).collect();
            self.screen += &String::from_utf8(part).unwrap().replace("\r\n", "\n");
        }
    }

    /// Types a line without waiting for the command's end.
    pub(crate) async fn starts(&mut self, line: &str) {
        self.types(&format!("{line}\n")).await;
        self.shows(&format!("{line}\n")).await;
    }

    /// Types a line, and returns its output and exit code.
    async fn runs(&mut self, line: &str) -> (String, i32) {
        self.starts(line).await;
        let said = self.shows(PROMPT).await;
        (said, self.ended().await)
    }

    /// The exit code of the last command.
    async fn ended(&mut self) -> i32 {
        self.starts("echo $?").await;
        self.shows(PROMPT).await.trim().parse().unwrap()
    }

    /// Like [`Self::runs`] for commands that must succeed; without colour codes.
    pub(crate) async fn does(&mut self, line: &str) -> String {
        let (said, code) = self.runs(line).await;
        assert_eq!(code, 0, "{}", self.screen);
        plain(&said)
    }

    async fn closes(mut self) {
        self.types("exit\n").await;
        let ended = timeout(PATIENCE, self.shell.wait()).await.expect("the shell ends").unwrap();
        assert!(ended.success(), "{}", self.screen);
    }
}

/// Removes colour codes.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').expect("colours are the only codes").1)
}

/// Lets the gateways here use free ports, as docs/cli.md describes.
async fn take_free_ports(terminal: &mut Terminal) {
    for port in ["DATA", "OPS"] {
        terminal.does(&format!("export HOOKGATE__SERVER__{port}_ADDR=127.0.0.1:0")).await;
    }
}

#[tokio::test]
async fn a_first_session_leads_from_an_empty_folder_to_a_blocked_call_and_on() {
    let folder = Folder::new();
    let mut first = Terminal::open(folder.0.path()).await;
    let mut second = Terminal::open(folder.0.path()).await;

    // The next input is copied from the screen.
    let said = first.does("hookgate init").await;
    let printed: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let [serve, mint, call] = printed.as_slice() else { panic!("three commands: {said}") };
    take_free_ports(&mut first).await;
    first.starts(serve).await;
    let log = plain(&first.shows(" started\n").await);
    let address = log.split_once("data_addr=").expect("the log says where it listens").1;
    let address = address.split_whitespace().next().unwrap();

    second.does(&format!("export HOOKGATE_ADDR=http://{address}")).await;
    assert_eq!(second.does(mint).await, "", "the token isn't shown");
    let (said, code) = second.runs(call).await;
    assert_eq!(code, 3, "{said}");
    let blocked = format!("{RED}BLOCK{PLAIN}  INPUT_TOO_LONG: Input exceeds 60 character limit  (");
    assert!(said.starts_with(&blocked), "{said}");
    assert!(said.contains("\nby content-policy, binding policy-of-acme,"), "{said}");

    a_call_that_passes_is_shown_in_colour(&mut second).await;
    what_happens_is_explained(&mut second, &folder).await;
    an_edit_is_taken_while_the_gateway_runs(&mut first, &mut second, call).await;

    first.types(CTRL_C).await;
    let log = first.shows(PROMPT).await;
    assert!(plain(&log).contains(" INFO drained\n"), "{log}");
    assert_eq!(first.ended().await, 0);
    let (said, code) = second.runs(call).await;
    assert_eq!(code, 4, "no process is left: {said}");
    assert!(said.starts_with(&format!("hookgate: no decision: no answer from http://{address}: ")), "{said}");
    for terminal in [first, second] {
        assert!(!terminal.screen.contains("panicked"), "{}", terminal.screen);
        terminal.closes().await;
    }
}

const PASSES: &str = "hookgate call before_llm_request --text \"Write to ada@example.com.\" --trace";

async fn a_call_that_passes_is_shown_in_colour(terminal: &mut Terminal) {
    let (coloured, code) = terminal.runs(PASSES).await;
    assert_eq!(code, 0, "{coloured}");
    assert!(coloured.starts_with(&format!("{GREEN}CONTINUE{PLAIN}")), "{coloured}");
    for line in [
        format!("{RED}- text  \"Write to ada@example.com.\"{PLAIN}"),
        format!("{GREEN}+ text  \"Write to [EMAIL].\"{PLAIN}"),
    ] {
        assert!(coloured.contains(&line), "no {line} in {coloured}");
    }
    for bare in [format!("NO_COLOR=1 {PASSES}"), format!("{PASSES} | cat")] {
        let (said, _) = terminal.runs(&bare).await;
        assert!(!said.contains('\u{1b}') && said.contains("+ text  \"Write to [EMAIL].\""), "{said}");
    }
}

async fn what_happens_is_explained(terminal: &mut Terminal, folder: &Folder) {
    let said = terminal.does("hookgate whoami").await;
    assert!(said.starts_with("tenant    acme\n"), "{said}");
    assert!(said.contains("\nbefore_llm_request  1     policy-of-acme"), "{said}");
    let said = terminal
        .does("hookgate explain --config hookgate.yaml --tenant acme --point before_llm_request")
        .await;
    assert!(said.contains("\n1  policy-of-acme"), "{said}");
    let said = terminal.does("hookgate config check hookgate.yaml").await;
    assert!(said.starts_with("hookgate.yaml: no mistakes: 2 tenants, 2 plugins, 3 bindings\n"), "{said}");
    let key = std::fs::read_to_string(folder.0.path().join("dev.key")).unwrap();
    assert!(!terminal.screen.contains(&key), "the key shows");
}

/// `first` runs the gateway, and `call` is blocked.
async fn an_edit_is_taken_while_the_gateway_runs(first: &mut Terminal, second: &mut Terminal, call: &str) {
    let edit =
        |from: &str, to: &str| format!("sed 's/{from}/{to}/' hookgate.yaml > new && mv new hookgate.yaml");
    second.does(&edit("max_input_chars: 60", "max_input_chars: 600")).await;
    first.shows("a new routing table is active").await;
    first.shows("2\n").await;
    assert!(second.does(call).await.starts_with("CONTINUE"), "{}", second.screen);

    // An invalid configuration is rejected on both screens and changes nothing.
    second.does(&edit("mode: enforce ", "mode: enforced ")).await;
    first.shows("the current configuration stays active").await;
    let (said, code) = second.runs("hookgate config check hookgate.yaml").await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("did you mean `enforce`?"), "{said}");
    assert!(second.does(call).await.starts_with("CONTINUE"), "{}", second.screen);
}
