//! Tests the README from its first line to its last: every command is run unchanged or listed in `NOT_RUN`.
//! A command is in a block, or between backticks in the text.
//!
//! Besides the kinds of blocks in `docs/story.rs` there are
//! - `output`: lines that the commands before it printed, in this order, perhaps with others in between;
//! - `figure`: nothing to run.
//!
//! `cargo run` in the checkout runs the binary that the tests have built, with the same arguments, because
//! cargo would lock its build folder. A command that serves runs until the next one.

use std::{fs, os::unix::fs::symlink};

use hookgate_tests::{gateway::binary, repository};

use crate::{
    cli::support::Serving,
    docs::{
        plugins,
        story::{Block, Story, is_like},
    },
};

/// Commands in the README that are not run here, and why.
const NOT_RUN: [(&str, &str); 7] = [
    ("./test", "runs this test"),
    ("Hookgate-Decision: block", "is a header"),
    ("hookgate proto export", "lacks its folder; writing-a-plugin-any-language.md runs it"),
    ("hookgate config check FILE", "lacks its file; it is run with one"),
    ("hookgate explain", "lacks its arguments; it is run with them"),
    ("deploy/compose/init.sh", "wants a container engine; `deploy/compose.rs` runs it"),
    (
        "docker compose up --detach --build",
        "wants a container engine; `deploy/compose.rs` starts what it would",
    ),
];

/// Replaces `cargo run` in the checkout.
const CARGO: &str = "#!/bin/sh\n[ \"$1 $2\" = 'run --' ] && shift 2 && exec hookgate \"$@\"\nexit 64\n";

/// A reader of the README with two terminals, one of which runs a gateway.
struct Reader {
    story: Story,
    gateway: Option<Serving>,
    /// Its data port.
    address: String,
    /// The output of the last commands.
    printed: String,
    not_run: Vec<String>,
}

impl Reader {
    async fn new() -> Self {
        let mut story = Story::of("../README.md").await;
        story.command("cargo", CARGO);
        let guide = tokio::task::spawn_blocking(plugins::cargo).await.unwrap();
        story.command("cargo-of-the-guide", &guide);
        // The reader's files are beside the checkout.
        let built = story.place().join("hookgate/target/debug");
        fs::create_dir_all(&built).unwrap();
        symlink(binary(), built.join("hookgate")).unwrap();
        story.run("cd hookgate").await;
        Reader { story, gateway: None, address: String::new(), printed: String::new(), not_run: Vec::new() }
    }

    async fn read(&mut self, mut block: Block) {
        let text = block.text.clone();
        match block.story.as_deref() {
            Some("run") => {
                self.printed.clear();
                for line in text.lines() {
                    self.command(line.split("  #").next().unwrap().trim_end()).await;
                }
            }
            Some("output") => assert_lines(&self.printed, &text),
            Some("figure") => assert!(!text.lines().any(|line| line.starts_with("$ ")), "commands: {text}"),
            Some(kind) => {
                if kind.starts_with("file no-shell/") {
                    self.story.run("cargo-of-the-guide new no-shell").await;
                }
                block.text = text.replace("127.0.0.1:8080", &self.address);
                self.story.tell(&block).await;
            }
            None => panic!("no story says what this is:\n{text}"),
        }
    }

    async fn command(&mut self, command: &str) {
        if NOT_RUN.iter().any(|(not_run, _)| *not_run == command) {
            self.not_run.push(command.to_owned());
        } else if command.contains(" serve ") {
            self.serve(command).await;
        } else if command.starts_with("hookgate plugin test ") {
            self.call_plugin(command).await;
        } else {
            self.printed += &self.story.run(&self.story.real(command)).await;
        }
    }

    /// Starts a gateway in the other terminal, and follows its banner, if it has one.
    async fn serve(&mut self, command: &str) {
        if let Some(before) = self.gateway.take() {
            assert_eq!(before.stop().await.code, Some(0));
        }
        let path = [("PATH", self.story.variable("PATH"))];
        let mut gateway = Serving::pasted(self.story.here(), command, &path).await;
        self.address = gateway.logged("listening").await["data_addr"].as_str().unwrap().to_owned();
        gateway.logged("started").await;
        self.story.run(&format!("export HOOKGATE_ADDR=http://{}", self.address)).await;
        if command.contains("--dev") {
            let banner = gateway.printed("Then `").await;
            let token = banner.lines().find(|line| line.trim().starts_with("export HOOKGATE_TOKEN="));
            self.story.run(token.expect("it prints a token")).await;
        }
        self.gateway = Some(gateway);
    }

    /// Builds and starts the README's plugin, which blocks the call.
    async fn call_plugin(&mut self, command: &str) {
        let block = |story: &str, text: String| Block::new(story, text);
        let start = "env --chdir=no-shell cargo-of-the-guide run".to_owned();
        self.story.tell(&block("start", start)).await;
        let said = "...CANCEL  TOOL_NOT_ALLOWED: Agents may not use...exit code 3";
        let session = format!("$ {command}; echo \"exit code $?\"\n{said}\n");
        self.story.tell(&block("session eventually", session)).await;
    }
}

/// Texts between backticks that are longer than a word.
fn phrases(prose: &str) -> Vec<String> {
    let spans = prose.split('`').skip(1).step_by(2);
    spans.filter(|span| span.contains(char::is_whitespace)).map(|span| span.replace('\n', " ")).collect()
}

/// Checks that the lines were printed in this order, apart from times and process ids.
fn assert_lines(printed: &str, lines: &str) {
    let mut rest = printed.lines();
    for line in lines.lines() {
        let (before, process) = line.split_once("pid ").unwrap_or((line, ""));
        let process = process.trim_start_matches(|c: char| c.is_ascii_digit());
        let expected = if process.is_empty() { line.to_owned() } else { format!("{before}pid ...{process}") };
        assert!(rest.any(|said| is_like(said, &expected)), "no such line follows: {line}\n{printed}");
    }
}

#[tokio::test]
async fn every_command_of_the_readme_works_as_written() {
    let mut reader = Reader::new().await;
    let page = fs::read_to_string(repository::root().join("README.md")).unwrap();
    let mut blocks = reader.story.blocks().into_iter();
    for prose in page.split("```").step_by(2) {
        for phrase in phrases(prose) {
            reader.command(&phrase).await;
        }
        if let Some(block) = blocks.next() {
            reader.read(block).await;
        }
    }
    assert_eq!(blocks.count(), 0, "every block has been read");
    let mut listed = NOT_RUN.map(|(command, _)| command);
    let mut not_run = reader.not_run;
    not_run.sort_unstable();
    listed.sort_unstable();
    assert_eq!(not_run, listed, "each command that isn't run is listed, and is in the README once");
    assert_eq!(reader.gateway.expect("one runs").stop().await.code, Some(0));
}

#[test]
fn phrases_are_found_and_words_are_not() {
    assert_eq!(phrases("Call `hookgate\nwhoami`, then `hookgate` and `a b`."), ["hookgate whoami", "a b"]);
    assert_lines("a 1.5 ms\nb, pid 7 is gone\nc", "a 3.0 ms\nb, pid 9 is gone");
}

#[test]
#[should_panic(expected = "no such line follows: a")]
fn lines_in_another_order_are_refused() {
    assert_lines("a\nb", "b\na");
}
