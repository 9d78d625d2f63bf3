//! The gateway's log: lines to search and to wait for.

use std::{
    fmt,
    io::BufRead,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

use serde_json::Value;
use tokio::{sync::watch, time::timeout};

use super::PATIENCE;

/// All lines so far, shared with the thread that reads them.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Vec<Line>>,
    state: watch::Sender<State>,
    is_paused: Mutex<bool>,
    resumed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: usize,
    is_closed: bool,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Line {
    /// As it was written.
    pub text: String,
    json: Value,
}

impl Line {
    /// Parses a line of JSON. Text before the object is kept only in `text`.
    pub fn parse(text: &str) -> Self {
        let json = text.find('{').and_then(|start| serde_json::from_str(&text[start..]).ok());
        Line { text: text.to_owned(), json: json.unwrap_or(Value::Null) }
    }

    /// A member of the line, or of its `fields`.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.json.get("fields").and_then(|fields| fields.get(name)).or_else(|| self.json.get(name))
    }

    /// The message.
    pub fn message(&self) -> Option<&str> {
        self.field("message").and_then(Value::as_str)
    }

    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub fn level(&self) -> Option<&str> {
        self.json.get("level").and_then(Value::as_str)
    }
}

impl Log {
    fn locked(&self) -> MutexGuard<'_, Vec<Line>> {
        self.0.lines.lock().expect("no holder of this lock panics")
    }

    /// Reads to the end.
    pub(super) fn read(&self, source: impl BufRead) {
        for line in source.split(b'\n').map_while(Result::ok) {
            let line = Line::parse(&String::from_utf8_lossy(&line));
            self.locked().push(line);
            self.0.state.send_modify(|state| state.lines += 1);
            let is_paused = self.0.is_paused.lock().expect("no holder of this lock panics");
            let resumed = self.0.resumed.wait_while(is_paused, |is_paused| *is_paused);
            drop(resumed.expect("no holder of this lock panics"));
        }
        self.0.state.send_modify(|state| state.is_closed = true);
    }

    /// Stops reading, so that the pipe fills.
    pub fn pause(&self) {
        *self.0.is_paused.lock().expect("no holder of this lock panics") = true;
    }

    /// Reads on.
    pub fn resume(&self) {
        *self.0.is_paused.lock().expect("no holder of this lock panics") = false;
        self.0.resumed.notify_all();
    }

    /// Every line so far.
    pub fn lines(&self) -> Vec<Line> {
        self.locked().clone()
    }

    /// Waits for the first line that `wanted` accepts, including earlier ones.
    ///
    /// # Panics
    /// If the log ends, or after 35 s.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&Line) -> bool) -> Line {
        let mut state = self.0.state.subscribe();
        let mut looked_at = 0;
        let search = async {
            loop {
                let is_closed = state.borrow_and_update().is_closed;
                let found = {
                    // Both under one lock, so that no line in between is missed.
                    let lines = self.locked();
                    let found = lines[looked_at..].iter().find(|line| wanted(line)).cloned();
                    looked_at = lines.len();
                    found
                };
                if found.is_some() || is_closed {
                    return found;
                }
                state.changed().await.expect("the log holds the sender");
            }
        };
        let found = timeout(PATIENCE, search).await.ok().flatten();
        found.unwrap_or_else(|| panic!("no such line in the gateway's log:\n{self}"))
    }

    /// Waits until everything is read and the process has closed its standard error.
    pub(super) async fn closed(&self) {
        let mut state = self.0.state.subscribe();
        let closed = timeout(PATIENCE, state.wait_for(|state| state.is_closed)).await;
        closed.expect("every process with the log open ends in time").expect("the log holds the sender");
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locked().iter().try_for_each(|line| writeln!(f, "{}", line.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NESTED: &str = r#"{"level":"INFO","fields":{"message":"listening","data_addr":"127.0.0.1:1"}}"#;
    const FLAT: &str = r#"{"level":"WARN","message":"listening","data_addr":"127.0.0.1:1"}"#;

    #[test]
    fn fields_are_found_at_the_top_and_below_fields() {
        for text in [NESTED, FLAT] {
            let line = Line::parse(text);
            assert_eq!(line.message(), Some("listening"));
            assert_eq!(line.field("data_addr").and_then(Value::as_str), Some("127.0.0.1:1"));
        }
        assert_eq!(Line::parse(NESTED).level(), Some("INFO"));
        assert_eq!(Line::parse("thread 'main' panicked").message(), None);
    }

    #[tokio::test]
    async fn a_line_is_found_before_and_after_it_is_written() {
        let log = Log::default();
        let waiting = tokio::spawn({
            let log = log.clone();
            async move { log.wait_for(|line| line.level() == Some("WARN")).await }
        });
        log.read(format!("noise\n{NESTED}\n{FLAT}").as_bytes());
        assert_eq!(waiting.await.expect("the line is there").text, FLAT);
        assert_eq!(log.wait_for(|line| line.level() == Some("INFO")).await.text, NESTED);
        log.closed().await;
        assert_eq!(log.lines().len(), 3);
    }

    #[tokio::test]
    #[should_panic(expected = "no such line")]
    async fn waiting_ends_with_the_log() {
        let log = Log::default();
        log.read(FLAT.as_bytes());
        log.wait_for(|line| line.message() == Some("ready")).await;
    }
}
