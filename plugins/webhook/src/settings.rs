//! The plugin-level configuration, and the checks that its schema can't express. Errors name the setting and what would
//! be right, never the value.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use hookgate_sdk::{InitError, Period, Point};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{
    dial::{DialPolicy, literal_address},
    signature::SigningKeys,
};

const MAX_TIMEOUT: Duration = Duration::from_secs(60);
const MIN_RESPONSE_BYTES: usize = 1 << 10;
const MAX_RESPONSE_BYTES: usize = 1 << 20;
const MAX_HEADERS: usize = 16;

/// Headers that the plugin or the connection sets.
const RESERVED_HEADERS: [&str; 14] = [
    "accept",
    "connection",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
const RESERVED_PREFIXES: [&str; 2] = ["content-", "webhook-"];

/// Plugin-level configuration.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "webhook")]
pub struct Config {
    /// Where the service is, such as `https://hooks.example.com/decide`. Without user name, password and fragment.
    #[schemars(with = "String")]
    pub url: SecretString,
    /// Lets `url` begin with `http://`. Even then, only addresses that `egress.cidrs` lists are dialled.
    #[serde(default)]
    pub allow_http: bool,
    /// The key of the signature: `whsec_` and 24 to 64 random bytes in base64.
    #[schemars(with = "String")]
    pub secret: SecretString,
    /// A second key, while the service changes from one to the other. Each request is signed with both.
    #[schemars(with = "Option<String>")]
    pub previous_secret: Option<SecretString>,
    /// Headers to send with each request, at most 16.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: BTreeMap<String, SecretString>,
    /// Whether the answer decides about the call.
    #[serde(default)]
    pub answer: AnswerUse,
    /// How long one request may take, answer included: 1 ms to 60 s. Never longer than the step has left.
    #[serde(default = "default_timeout")]
    pub timeout: Period,
    /// The points at which the service is called; absent: all. At others the plugin continues.
    pub points: Option<Vec<Point>>,
    /// Size limit of an answer, in bytes: 1 KiB to 1 MiB.
    #[serde(default = "default_max_response_bytes")]
    pub max_response_bytes: usize,
    /// Whether the request has the payload.
    #[serde(default = "default_send_payload")]
    pub send_payload: bool,
    /// A PEM file of CAs that are trusted besides those of the machine.
    pub ca_file: Option<PathBuf>,
    /// Where requests may go.
    #[serde(default)]
    pub egress: EgressSettings,
}

/// Where requests may go.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressSettings {
    /// Globs of hosts, one of which has to match that of `url`; empty: any host.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Networks such as `10.1.0.0/16`, and single addresses, that may be dialled although they aren't public.
    #[serde(default)]
    pub cidrs: Vec<String>,
}

/// Whether the answer decides about the call: `decide` or `ignore`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerUse {
    /// The answer decides.
    #[default]
    Decide,
    /// The service is informed. Only the status of its answer counts.
    Ignore,
}

fn default_timeout() -> Period {
    Period(Duration::from_secs(5))
}

fn default_max_response_bytes() -> usize {
    64 << 10
}

fn default_send_payload() -> bool {
    true
}

impl Config {
    /// The checked URL, and where requests to it may go.
    pub(crate) fn target(&self) -> Result<(Url, DialPolicy), InitError> {
        let wrong = |expected: &str| Err(InitError::config("url", expected));
        let Ok(url) = Url::parse(self.url.expose_secret()) else {
            return wrong("an absolute URL, such as `https://hooks.example.com/decide`");
        };
        let is_plain = url.scheme() == "http";
        if !is_plain && url.scheme() != "https" {
            return wrong("a URL that begins with `https://`");
        }
        if is_plain && !self.allow_http {
            return wrong("a URL that begins with `https://`; `http://` needs `allow_http: true`");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return wrong("no user name and no password; use `headers`");
        }
        if url.fragment().is_some() {
            return wrong("no fragment (`#...`): it is never sent");
        }
        let policy = DialPolicy::new(&self.egress.cidrs, is_plain)?;
        let host = url.host_str().unwrap_or_default();
        if let Some(address) = literal_address(host) {
            policy
                .check(address)
                .map_err(|reason| InitError::config("url", format!("{address} {reason}")))?;
        }
        self.check_host(host)?;
        Ok((url, policy))
    }

    fn check_host(&self, host: &str) -> Result<(), InitError> {
        let globs: Vec<String> = self.egress.hosts.iter().map(|glob| glob.to_ascii_lowercase()).collect();
        let compiled = hookgate_glob::compile("egress.hosts", &globs)
            .map_err(|invalid| InitError::config(&invalid.field, invalid.fault))?;
        let host = host.strip_suffix('.').unwrap_or(host);
        if globs.is_empty() || compiled.is_match(host) {
            return Ok(());
        }
        Err(InitError::config("url", "a host that `egress.hosts` lists"))
    }

    pub(crate) fn signing_keys(&self) -> Result<SigningKeys, InitError> {
        SigningKeys::new(&self.secret, self.previous_secret.as_ref())
    }

    /// The static headers. Their values are marked as sensitive, so that they are never logged.
    pub(crate) fn headers(&self) -> Result<HeaderMap, InitError> {
        if self.headers.len() > MAX_HEADERS {
            return Err(InitError::config("headers", format!("at most {MAX_HEADERS} headers")));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let wrong = |expected: &str| InitError::config(&format!("headers.{name}"), expected);
            let parsed = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| InitError::config("headers", "names of letters, digits and `-`"))?;
            let is_reserved = RESERVED_HEADERS.contains(&parsed.as_str())
                || RESERVED_PREFIXES.iter().any(|prefix| parsed.as_str().starts_with(prefix));
            if is_reserved {
                return Err(wrong("another header: the plugin or the connection sets this one"));
            }
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|_| wrong("visible ASCII characters and spaces"))?;
            value.set_sensitive(true);
            if headers.insert(parsed, value).is_some() {
                return Err(wrong("a header once: names differ in more than case"));
            }
        }
        Ok(headers)
    }

    pub(crate) fn points(&self) -> Result<Vec<Point>, InitError> {
        match &self.points {
            None => Ok(Point::ALL.into()),
            Some(points) if points.is_empty() => {
                Err(InitError::config("points", "at least one point; leave it out for all"))
            }
            Some(points) => Ok(points.clone()),
        }
    }

    pub(crate) fn timeout(&self) -> Result<Duration, InitError> {
        match self.timeout.0 {
            timeout if timeout.is_zero() || timeout > MAX_TIMEOUT => {
                Err(InitError::config("timeout", "1ms to 60s"))
            }
            timeout => Ok(timeout),
        }
    }

    pub(crate) fn max_response_bytes(&self) -> Result<usize, InitError> {
        if (MIN_RESPONSE_BYTES..=MAX_RESPONSE_BYTES).contains(&self.max_response_bytes) {
            return Ok(self.max_response_bytes);
        }
        let expected = format!("{MIN_RESPONSE_BYTES} to {MAX_RESPONSE_BYTES}");
        Err(InitError::config("max_response_bytes", expected))
    }
}
