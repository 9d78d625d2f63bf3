//! Where a profile's token is, and how it is read. The token is never shown, not even in errors.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    time::timeout,
};

use super::file::{members, text};
use crate::{client, output::printable};

/// Time limit of a command that prints a token.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Most characters of a command's standard error that are shown.
const MAX_SHOWN_CHARS: usize = 200;

/// Where a token is.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// In the profiles' file itself.
    Literal(SecretString),
    /// In an environment variable.
    Env(String),
    /// In a file, relative to the profiles' file.
    File(PathBuf),
    /// Printed by a program, given with its arguments.
    Command(Vec<String>),
}

impl Source {
    pub(super) fn parse(value: &Value, place: &str) -> Result<Self, String> {
        if let Value::String(token) = value {
            return Ok(Source::Literal(token.clone().into()));
        }
        let members = members(value, &format!("`{place}`"), &["env", "file", "command"])?;
        let mut all = members.iter();
        let one_of = || format!("`{place}` must have exactly one of `env`, `file` and `command`");
        let (key, value) = all.next().ok_or_else(one_of)?;
        if all.next().is_some() {
            return Err(one_of());
        }
        let place = format!("{place}.{key}");
        match key.as_str() {
            "env" => text(value, &place).map(Source::Env),
            "file" => text(value, &place).map(|path| Source::File(path.into())),
            _ => {
                let words = value.as_array().filter(|words| !words.is_empty());
                let words = words
                    .and_then(|words| words.iter().map(|word| word.as_str().map(str::to_owned)).collect());
                let wrong = || format!("`{place}` must be a list: a program and its arguments, each as text");
                words.map(Source::Command).ok_or_else(wrong)
            }
        }
    }

    /// As written in the file.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Source::Literal(token) => json!(token.expose_secret()),
            other => other.to_public_value(),
        }
    }

    /// As displayed.
    pub(super) fn to_public_value(&self) -> Value {
        match self {
            Source::Literal(_) => json!("***"),
            Source::Env(name) => json!({ "env": name }),
            Source::File(path) => json!({ "file": path.display().to_string() }),
            Source::Command(words) => json!({ "command": words }),
        }
    }

    /// A short description.
    pub(super) fn in_words(&self) -> String {
        match self {
            Source::Literal(_) => "in the profiles' file".into(),
            Source::Env(name) => format!("variable {name}"),
            Source::File(path) => format!("file {}", path.display()),
            Source::Command(words) => format!("command {}", words.join(" ")),
        }
    }

    /// Reads the token. Also returns the display name of its place; `whose` is the member of the profile.
    ///
    /// # Errors
    /// One sentence, if it can't be read.
    pub(super) async fn read(&self, whose: &str, folder: &Path) -> Result<(String, String), String> {
        match self {
            Source::Literal(token) => Ok((whose.to_owned(), token.expose_secret().to_owned())),
            Source::Env(name) => Ok((
                format!("the variable {} ({whose})", printable(name)),
                client::variable(name).unwrap_or_default(),
            )),
            Source::File(path) => client::token_file(whose, &folder.join(path)),
            Source::Command(words) => {
                let name = format!("the command `{}` ({whose})", printable(&words[0]));
                let token = run(words, &name).await?;
                Ok((name, token))
            }
        }
    }
}

/// Runs the program without a shell and without input, and returns its output.
async fn run(words: &[String], name: &str) -> Result<String, String> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{name} can't be run: {error}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended =
        timeout(COMMAND_TIMEOUT, async { tokio::join!(read(stdout), read(stderr), child.wait()) }).await;
    let (said, complaint, status) =
        ended.map_err(|_| format!("{name} printed no token within {} s", COMMAND_TIMEOUT.as_secs()))?;
    let status = status.map_err(|error| format!("{name} can't be waited for: {error}"))?;
    if status.success() { Ok(said) } else { Err(failed(name, status, &said, &complaint)) }
}

fn failed(name: &str, status: ExitStatus, said: &str, complaint: &str) -> String {
    let ended =
        status.code().map_or_else(|| "was ended by a signal".to_owned(), |code| format!("ended with {code}"));
    let last = complaint.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it gave no reason");
    let mut last = printable(last.trim());
    // Its standard error may repeat the token.
    for token in said.split_whitespace() {
        last = last.replace(token, "***");
    }
    format!("{name} {ended}: {}", last.chars().take(MAX_SHOWN_CHARS).collect::<String>())
}

/// Reads to the end, or to the longest possible token.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // A read error leaves the rest out; the exit code says whether that matters.
        let _ = stream.take(client::MAX_TOKEN_BYTES).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
