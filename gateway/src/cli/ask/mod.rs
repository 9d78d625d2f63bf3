//! Asking a gateway's ports: where it is, with whose token, within which bounds. Every command that asks does it here, so
//! that the same mistake reads the same everywhere. The token is never shown and never an argument, which every user of
//! the machine could see.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use http::HeaderValue;
use reqwest::{Certificate, Url};

use super::{output::printable, token};
use crate::{bounded, config::Span};

mod answer;
mod client;
mod stream;

pub(super) use answer::Answer;
pub(super) use client::Asker;
pub(super) use stream::{Events, Heard, Sent};

const ADDR_VARIABLE: &str = "HOOKGATE_ADDR";
const TOKEN_VARIABLE: &str = "HOOKGATE_TOKEN";
const DEFAULT_ADDR: &str = "http://127.0.0.1:8080";
/// Longest token's file, in bytes: the gateway takes tokens of 8 KiB.
const MAX_TOKEN: u64 = 64 << 10;
/// Longest file of CAs, in bytes: those of a whole machine have about 250 KiB.
const MAX_CA: u64 = 4 << 20;

/// Reads `--timeout`: as long as an agent may wait.
pub(super) fn patience(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    let range = Duration::from_millis(1)..=Duration::from_secs(60);
    if range.contains(&span.0) { Ok(span) } else { Err("a caller waits from 1ms to 60s".into()) }
}

/// What may be asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Port {
    Data,
    Admin,
    Ops,
}

impl Port {
    /// How its address is written.
    const fn example(self) -> &'static str {
        match self {
            Port::Data => DEFAULT_ADDR,
            Port::Admin => "http://127.0.0.1:9091",
            Port::Ops => "127.0.0.1:9090",
        }
    }

    /// What to look at where `--addr` was no such port, or only perhaps.
    const fn remedy(self, https: bool) -> &'static str {
        match (self, https) {
            (Port::Data, false) => {
                "--addr is the gateway's `server.data_addr`, at `https://` where it has `server.tls`"
            }
            (Port::Data, true) => {
                "--addr is the gateway's `server.data_addr`, and --ca the CA of its certificate"
            }
            (Port::Admin, false) => {
                "--addr is the gateway's `server.admin_addr`, open where an issuer has an `admin_audience`, at \
                 `https://` where it has `server.tls`"
            }
            (Port::Admin, true) => {
                "--addr is the gateway's `server.admin_addr`, open where an issuer has an `admin_audience`, and --ca \
                 the CA of its certificate"
            }
            (Port::Ops, _) => "--addr is the gateway's `server.ops_addr`",
        }
    }
}

/// A gateway, and who asks it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Gateway")]
pub(super) struct Gateway {
    /// Its `server.data_addr` as a URL; absent: the variable `HOOKGATE_ADDR`, else `http://127.0.0.1:8080`.
    #[arg(long, value_name = "URL")]
    addr: Option<String>,
    #[command(flatten)]
    credentials: Credentials,
}

/// What vouches for the one and for the other.
#[derive(Debug, Args)]
#[command(next_help_heading = "Gateway")]
pub(super) struct Credentials {
    /// CAs in PEM that may vouch for it at `https://`; absent: the machine's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Holds the token; absent: the variable `HOOKGATE_TOKEN`. An argument would be seen by all users of the machine.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Gateway {
    /// A client of the data port that waits `patience` for each answer, and tells the gateway so where it asks for a
    /// decision.
    ///
    /// # Errors
    /// What was typed wrongly, in one sentence.
    pub(super) fn asker(&self, patience: Span) -> Result<Asker, String> {
        let variable = || std::env::var_os(ADDR_VARIABLE).filter(|text| !text.is_empty());
        let (name, text) = match (&self.addr, variable()) {
            (Some(text), _) => ("--addr", text.clone()),
            (None, Some(text)) => (ADDR_VARIABLE, text.to_string_lossy().into_owned()),
            (None, None) => ("--addr", DEFAULT_ADDR.to_owned()),
        };
        self.credentials.client(Port::Data, base(Port::Data, name, &text)?, patience)
    }
}

impl Credentials {
    /// A client of the port at `--addr`, which is `address`, that waits `patience` for each answer.
    ///
    /// # Errors
    /// What was typed wrongly, in one sentence.
    pub(super) fn asker(&self, port: Port, address: &str, patience: Span) -> Result<Asker, String> {
        self.client(port, base(port, "--addr", address)?, patience)
    }

    fn client(&self, port: Port, base: Url, patience: Span) -> Result<Asker, String> {
        let token = self.token()?;
        let cas = self.ca.as_deref().map(certificates).transpose()?;
        Asker::new(port, base, Some(token), cas, patience)
    }

    fn token(&self) -> Result<HeaderValue, String> {
        let (name, text) = match &self.token_file {
            Some(path) => {
                let name = format!("--token-file `{}`", printable(&path.display().to_string()));
                let read = read(path, MAX_TOKEN).map_err(|error| format!("{name} can't be read: {error}"))?;
                (name, String::from_utf8_lossy(&read).into_owned())
            }
            None => (TOKEN_VARIABLE.to_owned(), lossy(std::env::var_os(TOKEN_VARIABLE))),
        };
        let token = token::bare(&text);
        if token.is_empty() {
            return Err(format!(
                "there is no token in {name}: set {TOKEN_VARIABLE}, or give a file by --token-file; \
                 `hookgate token mint` makes one"
            ));
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .ok()
            .filter(|_| token.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| {
                format!(
                    "what {name} holds is no token: a token is one word, as `hookgate token mint` prints it"
                )
            })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// A client of the ops port at `--addr`, which is `address`: there nobody says who they are.
///
/// # Errors
/// What was typed wrongly, in one sentence.
pub(super) fn ops(address: &str, patience: Span) -> Result<Asker, String> {
    let port = Port::Ops;
    let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let parts = bare.rsplit_once(':').filter(|_| !bare.contains('/'));
    let numbered = parts.is_some_and(|(_, number)| number.parse::<u16>().is_ok());
    let url = if numbered { format!("http://{bare}") } else { String::new() };
    Asker::new(port, base(port, "--addr", &url)?, None, None, patience)
}

/// The address of a port, which was read from `name`.
fn base(port: Port, name: &str, text: &str) -> Result<Url, String> {
    let wrong = |what: &str| format!("{name} {what}: write it as {}", port.example());
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| wrong("is no address of a gateway"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("holds a user or a password, and a gateway takes tokens alone"));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("ends behind the port"));
    }
    Ok(url)
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, String> {
    let shown = printable(&path.display().to_string());
    let pem = read(path, MAX_CA).map_err(|error| format!("--ca `{shown}` can't be read: {error}"))?;
    let certificates = Certificate::from_pem_bundle(&pem).ok().filter(|all| !all.is_empty());
    certificates.ok_or_else(|| {
        format!("--ca `{shown}` holds no certificate in PEM: one begins with `-----BEGIN CERTIFICATE-----`")
    })
}

fn lossy(text: Option<OsString>) -> String {
    text.unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bounded::file(path, most)?
        .ok_or_else(|| io::Error::other(format!("it is larger than {} KiB", most >> 10)))
}
