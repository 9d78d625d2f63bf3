//! Checks of the LLM proxy: providers, rules for models, and limits.

use std::collections::BTreeSet;

use http::Uri;

use super::{
    ConfigChecker, is_loopback,
    issuers::denied_host,
    limits::{HOUR, ms},
};
use crate::{
    config::{
        llm::{LlmProxy, ModelRule, ModelUpstream, ProviderKey, TenantCredentials, TenantLlm, key_fault},
        partial_config::PartialEntry,
        problem::item,
        reference,
    },
    core::{api_format::ApiFormat, model_names::ModelNames},
    egress,
    json::pointer::child,
};

const MAX_ALLOWED: usize = 64;
/// Most credentials of a tenant.
const MAX_CREDENTIALS: usize = 64;
/// Longest name of a member in `llm.allow`, in bytes.
const MAX_MEMBER_BYTES: usize = 64;
/// Largest request and answer, in bytes.
const MAX_BODY: u64 = 64 << 20;

/// What the gateway adds to the `base_url` of an upstream.
const fn added_paths(format: ApiFormat) -> &'static [&'static str] {
    match format {
        ApiFormat::Openai => &["/chat/completions", "/responses", "/embeddings"],
        ApiFormat::Anthropic => &["/v1/messages"],
    }
}

/// Where a name is written.
enum Place {
    Value(String),
    Key(String),
}

impl ConfigChecker<'_> {
    pub(super) fn llm(&mut self) {
        let llm = &self.draft.llm;
        if llm.lists_nothing {
            self.report(
                "/llm",
                "there are no `upstreams` or no `models`, so no model can be named",
                "list at least one of each, or set `store` to have them in the registry",
            );
        }
        self.at_most("/llm/upstreams", llm.upstreams.len(), LlmProxy::MAX_UPSTREAMS);
        self.at_most("/llm/models", llm.models.len(), LlmProxy::MAX_RULES);
        self.unique(
            "an upstream",
            llm.upstreams.iter().filter_map(|item| Some((child(&item.pointer, "name"), item.id.clone()?))),
        );
        let rules = llm.models.iter().filter_map(|item| Some((item, item.value.as_ref()?)));
        let rules = rules.filter(|(item, _)| !item.tainted);
        self.unique(
            "a rule for models",
            rules.map(|(item, rule)| (item.pointer.clone(), rule.effective_name().into_owned())),
        );
        self.llm_objects();
        self.allowed_members();
        self.llm_limits();
    }

    /// Each upstream and each rule for models.
    pub(super) fn llm_objects(&mut self) {
        let llm = &self.draft.llm;
        for entry in &llm.upstreams {
            if let Some(upstream) = &entry.value {
                self.model_upstream(entry, upstream);
            }
        }
        let names: Option<BTreeSet<&str>> = llm.upstreams.iter().map(|item| item.id.as_deref()).collect();
        let names = names.filter(|_| self.is_whole);
        for entry in &llm.models {
            if let Some(rule) = &entry.value {
                self.model_rule(&entry.pointer, rule, names.as_ref());
            }
        }
    }

    fn model_upstream(&mut self, entry: &PartialEntry<ModelUpstream>, upstream: &ModelUpstream) {
        let pointer = entry.pointer.as_str();
        self.name(&child(pointer, "name"), &upstream.name);
        let choices = [("base_url", upstream.base_url.is_some()), ("builtin", upstream.builtin.is_some())];
        self.exactly_one(entry, &choices);
        if let Some(url) = &upstream.base_url {
            self.base_url(&child(pointer, "base_url"), url, upstream.format);
        }
        if let Some(key) = &upstream.credential {
            let at = child(pointer, "credential");
            if self.is_whole {
                self.provider_key(&at, "`credential`", key);
            } else if !reference::is_only_reference(key.expose()) {
                let remedy =
                    "write `${HOOKGATE_SECRET_NAME}`, or `${file:PATH}` with a file below `secrets.dir`";
                self.report(&at, "`credential` is not a reference: the registry holds no keys", remedy);
            }
            self.use_of_key(&at, "`credential`", upstream);
        }
        if upstream.builtin.is_some() && upstream.allow_plaintext {
            let message = "`allow_plaintext` is of no use: a built-in model takes no credential";
            self.report_key(child(pointer, "allow_plaintext"), message, "leave it out");
        }
    }

    fn base_url(&mut self, at: &str, url: &str, format: ApiFormat) {
        if let Some(fault) = base_url_fault(url) {
            let remedy = "write `https://host/path`, such as `https://api.openai.com/v1`";
            self.report(at, format!("`base_url` {fault}"), remedy);
        } else if let Some(host) = denied_host(url) {
            let message = format!("`{host}` {}", egress::DENIED_MESSAGE);
            self.report(at, message, "write the host of the provider");
        } else if let Some(path) =
            added_paths(format).iter().find(|path| url.trim_end_matches('/').ends_with(*path))
        {
            let message = format!("`base_url` ends with `{path}`, which the gateway adds itself");
            self.report(at, message, format!("leave `{path}` out"));
        } else if format == ApiFormat::Anthropic && url.trim_end_matches('/').ends_with("/v1") {
            let message = "`base_url` ends with `/v1`, which is a part of the paths of Anthropic's API";
            self.report(at, message, "leave `/v1` out, such as `https://api.anthropic.com`");
        } else if url.trim_end_matches('/').eq_ignore_ascii_case("https://api.openai.com") {
            let message = "`base_url` lacks `/v1`: all paths of OpenAI's API are below it";
            self.report(at, message, "write `https://api.openai.com/v1`");
        }
    }

    fn model_rule(&mut self, pointer: &str, rule: &ModelRule, upstreams: Option<&BTreeSet<&str>>) {
        if let Some(name) = &rule.name {
            self.name(&child(pointer, "name"), name);
        }
        self.model_glob(child(pointer, "match"), &rule.pattern);
        let name = rule.upstream.as_str();
        if let Some(upstreams) = upstreams.filter(|names| !names.contains(name)) {
            self.unknown_upstream(Place::Value(child(pointer, "upstream")), name, upstreams);
        }
        if rule.upstream_model.as_deref() == Some("") {
            let remedy = "write the model's name at the provider, or leave `as` out";
            self.report(child(pointer, "as"), "`as` is empty", remedy);
        }
    }

    fn unknown_upstream(&mut self, at: Place, name: &str, known: &BTreeSet<&str>) {
        let message = format!("there is no upstream `{name}`");
        let remedy = self
            .did_you_mean(name, known.iter().copied())
            .unwrap_or_else(|| "add it to `llm.upstreams`, or name one that is there".into());
        match at {
            Place::Value(at) => self.report(at, message, remedy),
            Place::Key(at) => self.report_key(at, message, remedy),
        }
    }

    /// What a tenant has of the LLM proxy.
    pub(super) fn tenant_llm(&mut self, pointer: &str, llm: &TenantLlm) {
        let at = child(pointer, "models");
        let models = llm.models.as_deref().unwrap_or_default();
        self.at_most(&at, models.len(), ModelNames::MAX_ENTRIES);
        for (index, glob) in models.iter().enumerate() {
            self.model_glob(item(&at, index), glob);
        }
        let at = child(pointer, "credentials");
        if self.is_whole {
            self.tenant_credentials(&at, &llm.credentials);
        } else if !llm.credentials.is_empty() {
            let remedy = "write the tenant with its credentials into the gateway's file";
            self.report_key(at, "only tenants of the gateway's file have `credentials`", remedy);
        }
    }

    fn tenant_credentials(&mut self, pointer: &str, credentials: &TenantCredentials) {
        self.at_most(pointer, credentials.len(), MAX_CREDENTIALS);
        let upstreams = &self.draft.llm.upstreams;
        let names: Option<BTreeSet<&str>> = upstreams.iter().map(|item| item.id.as_deref()).collect();
        for (name, key) in credentials {
            let at = child(pointer, name);
            let found = upstreams.iter().find(|item| item.id.as_deref() == Some(name));
            match (found, &names) {
                (Some(entry), _) => {
                    let what = format!("the credential for `{name}`");
                    self.provider_key(&at, &what, key);
                    if let Some(upstream) = &entry.value {
                        self.use_of_key(&at, &what, upstream);
                    }
                }
                (None, Some(names)) => self.unknown_upstream(Place::Key(at), name, names),
                (None, None) => {}
            }
        }
    }

    fn provider_key(&mut self, at: &str, what: &str, key: &ProviderKey) {
        // A command that needs no key has not resolved it.
        let is_resolved = !reference::is_only_reference(key.expose());
        if let Some((fault, remedy)) = key_fault(key.expose()).filter(|_| is_resolved) {
            self.report(at, format!("{what} {fault}"), remedy);
        }
    }

    /// Checks whether a key can be sent to `upstream`.
    fn use_of_key(&mut self, at: &str, what: &str, upstream: &ModelUpstream) {
        if upstream.builtin.is_some() {
            self.report_key(at, format!("{what} is of no use: a built-in model takes none"), "leave it out");
        } else if !upstream.allow_plaintext && upstream.base_url.as_deref().is_some_and(is_plaintext) {
            self.report(
                at,
                format!("{what} would go over the network in plaintext"),
                "use `https://` or a loopback address, or set `allow_plaintext: true`",
            );
        }
    }

    fn model_glob(&mut self, pointer: String, glob: &str) {
        if glob.is_empty() || glob.len() > ModelNames::MAX_BYTES {
            let remedy = format!("write a glob of 1 to {} bytes", ModelNames::MAX_BYTES);
            self.report(pointer, format!("the glob has {} bytes", glob.len()), remedy);
        } else if let Err(error) = hookgate_glob::to_regex(glob) {
            self.report(pointer, error, "globs support `*`, `?` and `[..]`; `[*]` matches a star");
        }
    }

    fn allowed_members(&mut self) {
        let allow = self.draft.llm.allow.as_deref().unwrap_or_default();
        self.at_most("/llm/allow", allow.len(), MAX_ALLOWED);
        for (index, name) in allow.iter().enumerate() {
            if name.is_empty() || name.len() > MAX_MEMBER_BYTES || name.chars().any(char::is_control) {
                let message = "an entry of `allow` is not a member's name";
                let remedy =
                    format!("write a name of 1 to {MAX_MEMBER_BYTES} bytes, without control characters");
                self.report(item("/llm/allow", index), message, remedy);
            } else if name.contains(['*', '?', '[']) {
                let message = format!("`{name}` is a glob, and `allow` lists whole names");
                let remedy = "list each name; `hookgate explain --surface llm` shows what each one opens";
                self.report(item("/llm/allow", index), message, remedy);
            }
        }
    }

    fn llm_limits(&mut self) {
        let Some(limits) = &self.draft.llm.limits else { return };
        self.size("/llm/limits/request", limits.request, MAX_BODY);
        self.size("/llm/limits/answer", limits.answer, MAX_BODY);
        self.span("/llm/limits/first_byte", limits.first_byte, (ms(1), HOUR));
        self.span("/llm/limits/idle", limits.idle, (ms(1), HOUR));
        self.span("/llm/limits/total", limits.total, (limits.first_byte.max(ms(1)).min(HOUR), HOUR));
    }

    fn at_most(&mut self, pointer: &str, count: usize, most: usize) {
        if count > most {
            let key = pointer.rsplit('/').next().unwrap_or_default();
            self.report(pointer, format!("`{key}` has {count} entries"), format!("list at most {most}"));
        }
    }
}

/// What is wrong with the URL of a provider's API.
fn base_url_fault(url: &str) -> Option<&'static str> {
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Some("is not a URL with `http://` or `https://`");
    }
    // Both parsers, since the HTTP client's ignores line breaks, and the other drops the fragment.
    let (Ok(uri), Ok(_)) = (url.parse::<Uri>(), reqwest::Url::parse(url)) else {
        return Some("is not a URL");
    };
    if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        Some("names a user; the provider's key goes into `credential`")
    } else if uri.query().is_some() {
        Some("has a query")
    } else if url.contains('#') {
        Some("has a fragment")
    } else {
        None
    }
}

/// Whether what is sent to `url` crosses a network in plaintext.
fn is_plaintext(url: &str) -> bool {
    let uri = url.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some("http"));
    uri.is_some_and(|uri| uri.host().is_some_and(|host| !is_loopback(host)))
}

#[cfg(test)]
#[path = "llm_tests.rs"]
mod tests;
