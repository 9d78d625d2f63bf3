//! `hookgate token inspect`.

use std::{
    io::{IsTerminal, Read},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use serde_json::Value;

use super::{TokenChecker, TokenVerdict, bare};
use crate::{
    Exit,
    output::{self, Output, columns, printable},
};
use hookgate::{
    auth::{RefusalReason, TokenInspection},
    config::{Issuer, Scope},
};

/// Most bytes read from standard input: the gateway itself accepts tokens of up to 8 KiB.
const MAX_TOKEN_INPUT_BYTES: u64 = 64 << 10;

/// The report on a token.
#[derive(Serialize)]
struct TokenReport {
    accepted: bool,
    data: PortVerdict,
    admin: PortVerdict,
    /// The verdict on registering plugins; `None` for a token that isn't for that.
    registration: Option<PortVerdict>,
    issuer: Option<String>,
    /// The key that would verify it.
    key: Option<KeyReport>,
    tenant: Option<String>,
    operator: Option<String>,
    /// The scopes that its issuer may grant.
    scopes: Vec<&'static str>,
    /// The plugins that it may register.
    plugins: Vec<String>,
    /// Seconds since 1970.
    expires: Option<u64>,
    expiry: String,
    header: Option<Value>,
    claims: Option<Value>,
}

#[derive(Serialize)]
struct PortVerdict {
    accepted: bool,
    /// The error code; `hookgate errors CODE` explains it.
    code: Option<&'static str>,
    /// The reason as in log and metrics.
    reason: Option<&'static str>,
    detail: Option<String>,
}

impl From<TokenVerdict> for PortVerdict {
    fn from(verdict: TokenVerdict) -> Self {
        let accepted = verdict.is_ok();
        let Some(refused) = verdict.err() else {
            return PortVerdict { accepted, code: None, reason: None, detail: None };
        };
        let code = Some(refused.code().as_str());
        PortVerdict { accepted, code, reason: refused.reason, detail: Some(refused.error.detail) }
    }
}

impl PortVerdict {
    fn words(&self) -> String {
        let Some((code, detail)) = self.code.zip(self.detail.as_ref()) else { return "accepted".into() };
        let reason = self.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("refused, {code}{reason}: {detail}")
    }
}

#[derive(Serialize)]
struct KeyReport {
    kid: Option<String>,
    alg: String,
    /// Where the key is published; `None` if it is in the configuration.
    jwks_url: Option<String>,
}

impl KeyReport {
    fn words(&self) -> String {
        let kid = self.kid.as_ref().map(|kid| format!(" `{kid}`")).unwrap_or_default();
        let from = self.jwks_url.as_deref().unwrap_or("the configuration");
        format!("{}{kid} of {from}", self.alg)
    }
}

pub(super) async fn run(token: Option<String>, file: &Path, output: Output) -> Exit {
    let judge = match TokenChecker::new(file) {
        Ok(judge) => judge,
        Err(problems) => return Exit::problems(&problems),
    };
    let token = match input(token, std::io::stdin().is_terminal()) {
        Ok(token) => token,
        Err(error) => return Exit::usage(error),
    };
    let (inspected, data, admin) = judge.judge(&token).await;
    data.iter().flatten().for_each(|beside| output::note(beside));
    let report = TokenReport::new(&judge, inspected, data.into(), admin.into());
    let exit = if report.accepted { Exit::ok() } else { Exit::failure(report.refusal()) };
    output::data(output, &report, || table(&report), exit)
}

/// The token, from the argument or from standard input.
fn input(token: Option<String>, at_terminal: bool) -> Result<String, String> {
    let piped = match token.as_deref() {
        Some(token) => token == "-",
        // At a terminal, a forgotten argument would otherwise hang.
        None => !at_terminal,
    };
    let mut text = token.filter(|_| !piped).unwrap_or_default();
    if piped {
        let read = std::io::stdin().lock().take(MAX_TOKEN_INPUT_BYTES).read_to_string(&mut text);
        read.map_err(|error| format!("the token can't be read from standard input: {error}"))?;
    }
    let text = bare(&text);
    if text.is_empty() {
        return Err("there is no token: give it on standard input, or as an argument".into());
    }
    Ok(text.to_owned())
}

impl TokenReport {
    fn new(judge: &TokenChecker, inspected: TokenInspection, data: PortVerdict, admin: PortVerdict) -> Self {
        let issuer = inspected.issuer.map(|index| &judge.config.auth.issuers[index]);
        let is_for_plugins =
            inspected.admin.as_ref().is_ok_and(|verified| verified.scopes.contains(Scope::Plugin));
        let registration = is_for_plugins.then(|| TokenChecker::at_registration(&inspected).into());
        let may_register = registration.as_ref().is_some_and(|verdict: &PortVerdict| verdict.accepted);
        let verified = inspected.data.ok().or(inspected.admin.ok());
        let identity = verified.as_ref().and_then(|verified| verified.identity.as_ref());
        let key = inspected.key.map(|key| KeyReport {
            kid: key.kid,
            alg: key.algorithm,
            jwks_url: issuer.and_then(|issuer| issuer.jwks_url.clone()),
        });
        let expires = inspected.claims.as_ref().and_then(|claims| claims.get("exp")?.as_u64());
        TokenReport {
            accepted: data.accepted || admin.accepted || may_register,
            data,
            admin,
            registration,
            issuer: issuer.map(|issuer| issuer.issuer.clone()),
            key,
            tenant: identity.map(|identity| identity.tenant.to_string()),
            operator: verified.as_ref().map(|verified| verified.operator.to_string()),
            scopes: verified.iter().flat_map(|verified| verified.scopes.names()).collect(),
            plugins: verified.iter().flat_map(|verified| verified.plugins.iter().cloned()).collect(),
            expires,
            expiry: expiry(expires, issuer, SystemTime::now()),
            header: inspected.header,
            claims: inspected.claims,
        }
    }

    /// Why it is not accepted.
    fn refusal(&self) -> String {
        if let Some(PortVerdict { code: Some(code), detail: Some(detail), .. }) = &self.registration {
            return format!("the token can't register a plugin: {detail}; see `hookgate errors {code}`");
        }
        let why = |port: &PortVerdict| port.detail.clone().unwrap_or_default();
        let (data, admin) = (why(&self.data), why(&self.admin));
        let both = if data == admin { data } else { format!("{data} (data), {admin} (admin)") };
        let code = self.data.code.unwrap_or_default();
        format!("the token is refused on both ports: {both}; see `hookgate errors {code}`")
    }
}

fn table(report: &TokenReport) -> String {
    let or = |text: Option<String>, absent: &str| text.unwrap_or_else(|| absent.to_owned());
    let scopes = Some(report.scopes.join(" ")).filter(|scopes| !scopes.is_empty());
    let unknown = "not believed";
    let no_key = if report.data.reason == Some(RefusalReason::KeysUnavailable.as_str()) {
        "could not be fetched from the issuer's `jwks_url`"
    } else {
        "none fits"
    };
    let (nobody, none) = if report.operator.is_some() { ("none", "none") } else { (unknown, unknown) };
    let registers = report.registration.as_ref().map(|verdict| match verdict.accepted {
        true => report.plugins.join(", "),
        false => verdict.words(),
    });
    let rows = [
        Some(["data port", &report.data.words()]),
        Some(["admin port", &report.admin.words()]),
        registers.as_deref().map(|plugins| ["registers", plugins]),
        Some(["issuer", &or(report.issuer.clone(), "not in the configuration")]),
        Some(["key", &or(report.key.as_ref().map(KeyReport::words), no_key)]),
        Some(["tenant", &or(report.tenant.clone(), nobody)]),
        Some(["operator", &or(report.operator.clone(), unknown)]),
        Some(["scopes", &or(scopes, none)]),
        Some(["expiry", &report.expiry]),
    ];
    let rows: Vec<_> = rows.into_iter().flatten().map(|row| row.map(str::to_owned)).collect();
    let mut text = columns(&rows);
    for (name, part) in [("header", &report.header), ("claims", &report.claims)] {
        let shown = part.as_ref().map_or_else(|| "not readable".to_owned(), |part| format!("{part:#}"));
        let lines = shown.lines().map(printable).collect::<Vec<_>>().join("\n");
        text += &format!("\n{name}\n{lines}\n");
    }
    text
}

/// The expiry, for people.
fn expiry(expires: Option<u64>, issuer: Option<&Issuer>, now: SystemTime) -> String {
    let Some(expires) = expires else { return "missing or unreadable, but required".into() };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if expires > now {
        return format!("in {}", words(expires - now));
    }
    let since = now - expires;
    let leeway = issuer.map(|issuer| issuer.leeway.0).unwrap_or_default();
    let tolerated = Duration::from_secs(since) < leeway;
    let tolerance = format!(", within the issuer's leeway of {} s", leeway.as_secs());
    format!("{} ago{}", words(since), if tolerated { tolerance.as_str() } else { "" })
}

/// The two largest units.
fn words(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_read_for_a_token() {
        for token in [None, Some(String::new()), Some(" ".into())] {
            assert!(input(token.clone(), true).is_err(), "{token:?}");
        }
        assert_eq!(input(Some(" a.b.c\n".into()), false).as_deref(), Ok("a.b.c"));
    }

    #[test]
    fn the_expiry_is_said_in_words() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (now, said) in [
            (1_000_000, "0 s ago"),
            (999_999, "in 1 s"),
            (999_941, "in 59 s"),
            (999_940, "in 1 min 0 s"),
            (996_399, "in 1 h 0 min"),
            (900_000, "in 1 d 3 h"),
            (1_000_090, "1 min 30 s ago"),
        ] {
            assert_eq!(expiry(Some(1_000_000), None, at(now)), said, "{now}");
        }
        let issuer: Issuer =
            serde_json::from_value(serde_json::json!({ "issuer": "i", "audience": "a" })).unwrap();
        let late = |by: u64| expiry(Some(1_000), Some(&issuer), at(1_000 + by));
        assert_eq!(late(29), "29 s ago, within the issuer's leeway of 30 s");
        assert_eq!(late(30), "30 s ago");
    }
}
