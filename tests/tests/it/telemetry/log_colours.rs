//! Tests that the log is coloured on terminals that support it, and nowhere else.

use hookgate_tests::gateway::Gateway;

use crate::cli::{session::Terminal, support::Folder};

const ESCAPE: char = '\u{1b}';
const CTRL_C: &str = "\u{3}";

/// The log in a terminal where `sh` runs `line`, until the gateway has started.
async fn logged(terminal: &mut Terminal, line: &str) -> String {
    terminal.starts(line).await;
    let log = terminal.shows("started").await;
    terminal.types(CTRL_C).await;
    terminal.shows("you@here> ").await;
    log
}

#[tokio::test]
async fn the_pretty_log_has_colours_on_a_terminal_that_wants_them_and_nowhere_else() {
    let folder = Folder::new();
    let config = Gateway::with().tenant("acme").set("/log/format", "pretty");
    folder.write("hookgate.yaml", &config.text());
    let mut terminal = Terminal::open(folder.0.path()).await;
    let serve = "hookgate serve --config hookgate.yaml";
    let log = logged(&mut terminal, serve).await;
    assert!(log.contains(ESCAPE), "{log}");
    for without in ["TERM=dumb", "NO_COLOR=1"] {
        let log = logged(&mut terminal, &format!("{without} {serve}")).await;
        assert!(log.contains("listening") && !log.contains(ESCAPE), "{without}: {log}");
    }
    // A pipe is not a terminal; `cat` shows its output on one.
    let log = logged(&mut terminal, &format!("{serve} 2>&1 | cat")).await;
    assert!(log.contains("listening") && !log.contains(ESCAPE), "{log}");
}
