//! Clients of a gateway's ports: address, token, limits. Every command uses them, so that the same mistake reads the
//! same everywhere. The token is never shown and never an argument, which every user of the machine could see.
//!
//! An argument overrides the environment, and so does a profile named by an argument; the environment overrides any
//! other profile. Settings of the admin port override those of both ports
//! (docs/decisions/0028-admin-socket-and-profiles.md).

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use http::{HeaderValue, Method};
use reqwest::Certificate;
use serde_json::Value;

use super::{
    Exit,
    output::{Output, printable},
    profile::{self, Profile, SelectedProfile, Source},
    token,
};
use hookgate::{config::Span, fs::read_limited};

mod answer;
mod api;
mod endpoint;
mod stream;

pub(super) use crate::client::api::{ApiClient, ApiResponse};
use crate::client::endpoint::DEFAULT_ADDR;
pub(super) use crate::client::endpoint::{Place, Port};
pub(super) use answer::Answer;
pub(super) use stream::{Events, EventsResponse};

const ADDR_VARIABLE: &str = "HOOKGATE_ADDR";
const ADMIN_ADDR_VARIABLE: &str = "HOOKGATE_ADMIN_ADDR";
pub(super) const TOKEN_VARIABLE: &str = "HOOKGATE_TOKEN";
const ADMIN_TOKEN_VARIABLE: &str = "HOOKGATE_ADMIN_TOKEN";
/// Largest token file, in bytes: the gateway accepts tokens of up to 8 KiB.
pub(super) const MAX_TOKEN_BYTES: u64 = 64 << 10;
/// Largest CA file, in bytes: a system's bundle has about 250 KiB.
const MAX_CA_BYTES: u64 = 4 << 20;

/// Parses `--timeout`, which has an agent's limits.
pub(super) fn patience(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    let range = Duration::from_millis(1)..=Duration::from_secs(60);
    if range.contains(&span.0) { Ok(span) } else { Err("a timeout must be from 1ms to 60s".into()) }
}

/// A gateway's data port, and the credentials for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Gateway")]
pub(super) struct DataPortArgs {
    /// The gateway's `server.data_addr` as a URL. Default: `data` of `--profile`, else the variable `HOOKGATE_ADDR`,
    /// else `data` of the current profile, else `http://127.0.0.1:8080`.
    #[arg(long, value_name = "URL")]
    addr: Option<String>,
    #[command(flatten)]
    credentials: CredentialArgs,
}

/// A gateway's admin port or socket, and the credentials for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Gateway")]
pub(super) struct AdminPortArgs {
    /// The gateway's `server.admin_addr` as a URL, or `unix://` and its `server.admin_socket`, which needs no token.
    /// Default: `admin` of `--profile`, else the variable `HOOKGATE_ADMIN_ADDR`, else `admin` of the current profile.
    #[arg(long, value_name = "URL")]
    addr: Option<String>,
    #[command(flatten)]
    credentials: CredentialArgs,
}

/// The gateway's CA and the caller's token.
#[derive(Debug, Args)]
#[command(next_help_heading = "Gateway")]
struct CredentialArgs {
    /// Profile to use for settings that no argument gives (`hookgate profile`); overrides environment variables.
    /// Default: the variable `HOOKGATE_PROFILE`, else the current profile, both overridden by environment variables.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// PEM file of CAs to trust for `https://`. Default: the profile's, else the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// File that holds the token. Default: the token of `--profile`, else of the variable `HOOKGATE_ADMIN_TOKEN`
    /// (admin port only) or `HOOKGATE_TOKEN`, else of the current profile. No argument takes the token itself,
    /// because all users of the machine could see it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl DataPortArgs {
    /// A client of the data port that waits `patience` for each answer, and sends this limit to the gateway with a
    /// call.
    ///
    /// # Errors
    /// One sentence, if an argument or a profile is invalid.
    pub(super) async fn asker(&self, patience: Span) -> Result<ApiClient, String> {
        let chosen = profile::chosen(self.credentials.profile.as_deref())?;
        let (name, text) = addressed(self.addr.as_ref(), Port::Data, chosen.as_ref())
            .unwrap_or_else(|| ("--addr".into(), DEFAULT_ADDR.into()));
        let place = Place::parse(Port::Data, &name, &text)?;
        self.credentials.client(Port::Data, place, chosen.as_ref(), patience).await
    }

    /// Shows what the gateway answers at `path`, as a `table` or as it is. `is_answer` recognises a gateway's answer.
    pub(super) async fn show(
        &self,
        patience: Span,
        output: Output,
        path: &str,
        is_answer: impl FnOnce(&Value) -> bool,
        table: impl FnOnce(&Value) -> String,
    ) -> Exit {
        let asker = match self.asker(patience).await {
            Ok(asker) => asker,
            Err(wrong) => return Exit::usage(wrong),
        };
        match asker.ask(Method::GET, path, None).await {
            Err(unanswered) => Exit::failure(unanswered),
            Ok(answer) if answer.status == 200 && is_answer(&answer.body) => {
                answer.print(output, || table(&answer.body), Exit::ok())
            }
            Ok(answer) => answer.refuse(output, Exit::failure(answer.error())),
        }
    }
}

impl AdminPortArgs {
    /// A client of the admin port or socket that waits `patience` for each answer. `otherwise` names an alternative
    /// that needs no gateway.
    ///
    /// # Errors
    /// One sentence, if no gateway is named, or an argument or a profile is invalid.
    pub(super) async fn asker(&self, patience: Span, otherwise: &str) -> Result<ApiClient, String> {
        let chosen = profile::chosen(self.credentials.profile.as_deref())?;
        let address = addressed(self.addr.as_ref(), Port::Admin, chosen.as_ref());
        let (name, text) = address.ok_or_else(|| {
            format!(
                "no gateway is named: give its admin port or socket with --addr or {ADMIN_ADDR_VARIABLE}, choose a \
                 --profile that has `admin`, or {otherwise}"
            )
        })?;
        let place = Place::parse(Port::Admin, &name, &text)?;
        self.credentials.client(Port::Admin, place, chosen.as_ref(), patience).await
    }
}

/// The address of `port`, and the name of its source.
fn addressed(
    argument: Option<&String>,
    port: Port,
    chosen: Option<&SelectedProfile>,
) -> Option<(String, String)> {
    if let Some(text) = argument {
        return Some(("--addr".to_owned(), text.clone()));
    }
    let admin = port == Port::Admin;
    let name = if admin { ADMIN_ADDR_VARIABLE } else { ADDR_VARIABLE };
    let of_variable = || Some((name.to_owned(), variable(name)?));
    let of_profile = || {
        let chosen = chosen?;
        let Profile { data, admin: at_admin, .. } = &chosen.profile;
        if admin { chosen.address("admin", at_admin.as_ref()) } else { chosen.address("data", data.as_ref()) }
    };
    if is_named(chosen) { of_profile().or_else(of_variable) } else { of_variable().or_else(of_profile) }
}

/// The address of a data port that no argument gives, and the name of its source.
///
/// # Errors
/// One sentence, if the chosen profile is invalid.
pub(super) fn default_data_address() -> Result<Option<(String, String)>, String> {
    let chosen = profile::chosen(None)?;
    Ok(addressed(None, Port::Data, chosen.as_ref()))
}

/// A client of the data port at `place` that has this token, and trusts the current profile's CAs.
///
/// # Errors
/// One sentence, if the chosen profile or the token is invalid.
pub(super) fn with_token(place: Place, token: &str, patience: Span) -> Result<ApiClient, String> {
    let chosen = profile::chosen(None)?;
    let ca_file = chosen.as_ref().and_then(SelectedProfile::ca_file);
    let cas = ca_file.map(|(name, path)| certificates(&name, &path)).transpose()?;
    ApiClient::new(Port::Data, place, Some(bearer("the new token", token)?), cas, patience)
}

/// Whether an argument names the profile, which then overrides the environment.
fn is_named(chosen: Option<&SelectedProfile>) -> bool {
    chosen.is_some_and(|chosen| chosen.is_named)
}

impl CredentialArgs {
    async fn client(
        &self,
        port: Port,
        place: Place,
        chosen: Option<&SelectedProfile>,
        patience: Span,
    ) -> Result<ApiClient, String> {
        if place.socket().is_some() {
            if self.token_file.is_some() || self.ca.is_some() {
                return Err(
                    "a socket needs neither a token nor a certificate: omit --token-file and --ca".into()
                );
            }
            return ApiClient::new(port, place, None, None, patience);
        }
        let token = self.token(port, chosen).await?;
        let cas = match (&self.ca, chosen.and_then(SelectedProfile::ca_file)) {
            (Some(path), _) => Some(certificates("--ca", path)?),
            (None, Some((name, path))) => Some(certificates(&name, &path)?),
            (None, None) => None,
        };
        ApiClient::new(port, place, Some(token), cas, patience)
    }

    async fn token(&self, port: Port, chosen: Option<&SelectedProfile>) -> Result<HeaderValue, String> {
        let found = match &self.token_file {
            Some(path) => Some(token_file("--token-file", path)?),
            None => found(port, chosen).await?,
        };
        let variables = if port == Port::Admin {
            format!("{ADMIN_TOKEN_VARIABLE} or {TOKEN_VARIABLE}")
        } else {
            TOKEN_VARIABLE.to_owned()
        };
        let (name, text) = found.unwrap_or((variables, String::new()));
        bearer(&name, &text)
    }
}

/// Where a token may be.
enum TokenLocation<'a> {
    Variable(&'static str),
    Member(&'a SelectedProfile, &'static str, &'a Source),
}

/// A token that no argument gives, and the name of its source.
async fn found(port: Port, chosen: Option<&SelectedProfile>) -> Result<Option<(String, String)>, String> {
    let member = |key, of: fn(&Profile) -> &Option<Source>| {
        let (chosen, source) = chosen.and_then(|chosen| Some((chosen, of(&chosen.profile).as_ref()?)))?;
        Some(TokenLocation::Member(chosen, key, source))
    };
    let mut places = vec![
        (
            TokenLocation::Variable(ADMIN_TOKEN_VARIABLE),
            member("admin_token", |profile| &profile.admin_token),
        ),
        (TokenLocation::Variable(TOKEN_VARIABLE), member("token", |profile| &profile.token)),
    ];
    if port != Port::Admin {
        places.remove(0);
    }
    let places: Vec<TokenLocation<'_>> = if is_named(chosen) {
        let (variables, members): (Vec<_>, Vec<_>) = places.into_iter().unzip();
        members.into_iter().flatten().chain(variables).collect()
    } else {
        places.into_iter().flat_map(|(variable, member)| [Some(variable), member]).flatten().collect()
    };
    for place in places {
        match place {
            TokenLocation::Member(chosen, key, source) => return chosen.read(key, source).await.map(Some),
            TokenLocation::Variable(name) => {
                if let Some(text) = variable(name) {
                    return Ok(Some((name.to_owned(), text)));
                }
            }
        }
    }
    Ok(None)
}

/// The contents of a file, and its display name.
///
/// # Errors
/// The file can't be read.
pub(super) fn token_file(flag: &str, path: &Path) -> Result<(String, String), String> {
    let name = format!("{flag} `{}`", printable(&path.display().to_string()));
    let read = read(path, MAX_TOKEN_BYTES).map_err(|error| format!("{name} can't be read: {error}"))?;
    Ok((name, String::from_utf8_lossy(&read).into_owned()))
}

/// The header for a token that was read from `name`.
fn bearer(name: &str, text: &str) -> Result<HeaderValue, String> {
    let token = token::bare(text);
    if token.is_empty() {
        return Err(format!(
            "there is no token in {name}: set {TOKEN_VARIABLE}, give a file with --token-file, or choose a --profile \
             that has one; make one with `hookgate token mint`"
        ));
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .ok()
        .filter(|_| token.bytes().all(|byte| byte.is_ascii_graphic()))
        .ok_or_else(|| {
            format!("{name} does not hold a token: a token is one word, as `hookgate token mint` prints it")
        })?;
    value.set_sensitive(true);
    Ok(value)
}

/// A client of the ops port at `address`, the value of `--addr`. The ops port takes no token.
///
/// # Errors
/// One sentence, if the address is invalid.
pub(super) fn ops(address: &str, patience: Span) -> Result<ApiClient, String> {
    let port = Port::Ops;
    let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let parts = bare.rsplit_once(':').filter(|_| !bare.contains('/'));
    let numbered = parts.is_some_and(|(_, number)| number.parse::<u16>().is_ok());
    let url = if numbered { format!("http://{bare}") } else { String::new() };
    ApiClient::new(port, Place::parse(port, "--addr", &url)?, None, None, patience)
}

fn certificates(flag: &str, path: &Path) -> Result<Vec<Certificate>, String> {
    let shown = printable(&path.display().to_string());
    let pem = read(path, MAX_CA_BYTES).map_err(|error| format!("{flag} `{shown}` can't be read: {error}"))?;
    let certificates = Certificate::from_pem_bundle(&pem).ok().filter(|all| !all.is_empty());
    certificates.ok_or_else(|| {
        format!("{flag} `{shown}` holds no PEM certificate, which begins with `-----BEGIN CERTIFICATE-----`")
    })
}

/// An environment variable; an empty one counts as not set.
pub(super) fn variable(name: &str) -> Option<String> {
    let text = std::env::var_os(name)?.to_string_lossy().into_owned();
    Some(text).filter(|text| !text.is_empty())
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_limited::file(path, most)?
        .ok_or_else(|| io::Error::other(format!("it is larger than {} KiB", most >> 10)))
}
