//! Checks of the LLM proxy: providers, rules for models, and limits.

use std::collections::BTreeSet;

use http::{HeaderValue, Uri};
use secrecy::ExposeSecret as _;

use super::{
    ConfigChecker, is_loopback,
    issuers::denied_host,
    limits::{HOUR, ms},
};
use crate::{
    config::{
        llm::{ModelRule, ModelUpstream, TenantLlm},
        problem::item,
    },
    core::model_names::ModelNames,
    egress,
    json::pointer::child,
};

const MAX_UPSTREAMS: usize = 64;
const MAX_RULES: usize = 256;
const MAX_ALLOWED: usize = 64;
/// Longest name of a member in `llm.allow`, in bytes.
const MAX_MEMBER_BYTES: usize = 64;
/// Largest request and answer, in bytes.
const MAX_BODY: u64 = 64 << 20;

impl ConfigChecker<'_> {
    pub(super) fn llm(&mut self) {
        let llm = &self.draft.llm;
        self.at_most("/llm/upstreams", llm.upstreams.len(), MAX_UPSTREAMS);
        self.at_most("/llm/models", llm.models.len(), MAX_RULES);
        self.unique(
            "an upstream",
            llm.upstreams.iter().filter_map(|item| Some((child(&item.pointer, "name"), item.id.clone()?))),
        );
        for entry in &llm.upstreams {
            if let Some(upstream) = &entry.value {
                self.model_upstream(&entry.pointer, upstream);
            }
        }
        let names: Option<BTreeSet<&str>> = llm.upstreams.iter().map(|item| item.id.as_deref()).collect();
        for entry in &llm.models {
            if let Some(rule) = &entry.value {
                self.model_rule(&entry.pointer, rule, names.as_ref());
            }
        }
        self.allowed_members();
        self.llm_limits();
    }

    fn model_upstream(&mut self, pointer: &str, upstream: &ModelUpstream) {
        self.name(&child(pointer, "name"), &upstream.name);
        let at = child(pointer, "base_url");
        if let Some(fault) = base_url_fault(&upstream.base_url) {
            let remedy = "write `https://host/path`, such as `https://api.openai.com/v1`";
            self.report(&at, format!("`base_url` {fault}"), remedy);
        } else if let Some(host) = denied_host(&upstream.base_url) {
            let message = format!("`{host}` {}", egress::DENIED_MESSAGE);
            self.report(&at, message, "write the host of the provider");
        }
        let Some(credential) = &upstream.credential else { return };
        let at = child(pointer, "credential");
        let credential = credential.expose_secret();
        if credential.is_empty() {
            self.report(&at, "`credential` is empty", "write the provider's key, or leave `credential` out");
        } else if HeaderValue::from_str(credential).is_err() || credential.contains(char::is_whitespace) {
            self.report(
                &at,
                "`credential` holds characters that no key has, such as a space or a line break",
                "write the provider's key alone, without `Bearer`",
            );
        }
        if !upstream.allow_plaintext && is_plaintext(&upstream.base_url) {
            self.report(
                at,
                "`credential` would go over the network in plaintext",
                "use `https://` or a loopback address, or set `allow_plaintext: true`",
            );
        }
    }

    fn model_rule(&mut self, pointer: &str, rule: &ModelRule, upstreams: Option<&BTreeSet<&str>>) {
        self.model_glob(child(pointer, "match"), &rule.pattern);
        let name = rule.upstream.as_str();
        if let Some(upstreams) = upstreams.filter(|names| !names.contains(name)) {
            let remedy = self.did_you_mean(name, upstreams.iter().copied());
            let remedy =
                remedy.unwrap_or_else(|| "add it to `llm.upstreams`, or name one that is there".into());
            self.report(child(pointer, "upstream"), format!("there is no upstream `{name}`"), remedy);
        }
        if rule.upstream_model.as_deref() == Some("") {
            let remedy = "write the model's name at the provider, or leave `as` out";
            self.report(child(pointer, "as"), "`as` is empty", remedy);
        }
    }

    /// The models that a tenant may use.
    pub(super) fn tenant_models(&mut self, pointer: &str, llm: &TenantLlm) {
        let models = llm.models.as_deref().unwrap_or_default();
        self.at_most(pointer, models.len(), ModelNames::MAX_ENTRIES);
        for (index, glob) in models.iter().enumerate() {
            self.model_glob(item(pointer, index), glob);
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
            }
        }
    }

    fn llm_limits(&mut self) {
        let Some(limits) = &self.draft.llm.limits else { return };
        self.size("/llm/limits/request", limits.request, MAX_BODY);
        self.size("/llm/limits/answer", limits.answer, MAX_BODY);
        self.span("/llm/limits/first_byte", limits.first_byte, (ms(1), HOUR));
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
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use crate::config::{LoadedConfig, TENANTS, Tenant, check_object, fixtures::*, load::from_text, read};

    const UPSTREAMS: &str = "upstreams: [{ name: openai, base_url: \"https://api.openai.com/v1\" }]";
    const MODELS: &str = "models: [{ match: \"*\", upstream: openai }]";

    fn loaded(llm: &str) -> LoadedConfig {
        let env = [("KEY".to_owned(), "sk-of-the-provider".to_owned())];
        from_text(String::new(), &served(&format!("{AUTH}llm:\n{llm}")), env)
            .unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Tests an entry of `upstreams`.
    #[track_caller]
    fn upstream(entry: &str, message: &str, remedy: &str) {
        let text = format!("llm:\n  upstreams:\n    - {{ {entry} }}\n  models: []\n");
        let models = "models: [{ match: \"*\", upstream: u }]";
        rest(&text.replace("models: []", models), 4, message, remedy);
    }

    /// Tests further lines of `llm`.
    #[track_caller]
    fn more(lines: &str, message: &str, remedy: &str) {
        rest(&format!("llm:\n  {UPSTREAMS}\n  {MODELS}\n  {lines}\n"), 5, message, remedy);
    }

    #[test]
    fn the_llm_proxy_has_upstreams_and_models() {
        let llm = "  upstreams:
    - { name: openai, base_url: https://api.openai.com/v1, credential: \"${KEY}\" }
    - { name: vllm, base_url: http://vllm.models:8000/v1/ }
    - { name: local, base_url: \"http://127.0.0.1:8000\", credential: \"${KEY}\" }
    - { name: lab, base_url: \"http://lab:8000\", credential: \"${KEY}\", allow_plaintext: true }
  models:
    - { match: \"gpt-*\", upstream: openai }
    - { match: fast, upstream: vllm, as: Qwen/Qwen3-32B }
  allow: [store]
  limits: { request: 1MiB, total: 10m }
";
        let llm = loaded(llm).config.llm.unwrap();
        assert_eq!((llm.upstreams.len(), llm.models.len(), llm.allow.len()), (4, 2, 1));
        assert_eq!(llm.limits.first_byte, llm.limits.total);
        let absent = from_text(String::new(), &served(AUTH), []).unwrap();
        assert_eq!(absent.config.llm, None);
        rest(&format!("llm:\n  {UPSTREAMS}\n"), 2, "`models` is missing here", "add `models`: a list");
        rest(&format!("llm:\n  {UPSTREAMS}\n  models: []\n"), 4, "`models` must have at least one entry", "");
    }

    #[test]
    fn a_base_url_is_a_url_that_a_path_can_be_added_to() {
        let remedy = "write `https://host/path`, such as `https://api.openai.com/v1`";
        for (url, fault) in [
            ("api.openai.com/v1", "is not a URL with `http://` or `https://`"),
            ("ftp://a", "is not a URL with `http://` or `https://`"),
            ("https:a", "is not a URL with `http://` or `https://`"),
            ("https://", "is not a URL"),
            ("https://a b", "is not a URL"),
            ("https://a:99999", "is not a URL"),
            ("https://me@a", "names a user; the provider's key goes into `credential`"),
            ("https://me:secret@a/v1", "names a user; the provider's key goes into `credential`"),
            ("https://a/v1?key=1", "has a query"),
            ("https://a/v1#x", "has a fragment"),
        ] {
            upstream(&format!("name: u, base_url: \"{url}\""), &format!("`base_url` {fault}"), remedy);
        }
        for url in ["http://169.254.169.254/v1", "https://2852039166", "https://0xa9fea9fe"] {
            upstream(
                &format!("name: u, base_url: \"{url}\""),
                "`169.254.169.254` is a link-local or cloud metadata address, to which the gateway never connects",
                "write the host of the provider",
            );
        }
    }

    #[test]
    fn upstreams_have_names_of_their_own() {
        let wrong = "llm:\n  upstreams: [{ name: \"a b\", base_url: \"https://a\" }]\n  models: [{ match: a, upstream: \"a b\" }]\n";
        rest(wrong, 3, "`a b` is not a name", "a name is a letter and up to 63 letters, digits, `_` and `-`");
        let twice = format!(
            "llm:\n  upstreams:\n{}  {MODELS}\n",
            "    - { name: openai, base_url: \"https://a\" }\n".repeat(2)
        );
        rest(
            &twice,
            5,
            "an upstream `openai` is already defined, at /llm/upstreams/0/name",
            "give one of the two another name, or remove it",
        );
    }

    #[test]
    fn a_credential_is_one_header_s_value_and_goes_over_tls() {
        upstream(
            "name: u, base_url: \"https://a\", credential: \"\"",
            "`credential` is empty",
            "write the provider's key, or leave `credential` out",
        );
        for wrong in ["Bearer sk-1", "sk-1\\nx: y", "sk-1\\u0000"] {
            upstream(
                &format!("name: u, base_url: \"https://a\", credential: \"{wrong}\""),
                "`credential` holds characters that no key has, such as a space or a line break",
                "write the provider's key alone, without `Bearer`",
            );
        }
        upstream(
            "name: u, base_url: \"http://vllm:8000\", credential: \"${SECRET}\"",
            "`credential` would go over the network in plaintext",
            "use `https://` or a loopback address, or set `allow_plaintext: true`",
        );
    }

    #[test]
    fn models_are_globs_that_go_to_an_upstream() {
        let rule = |text: &str, message: &str, remedy: &str| {
            rest(&format!("llm:\n  {UPSTREAMS}\n  models:\n    - {{ {text} }}\n"), 5, message, remedy);
        };
        rule("match: a, upstream: opanai", "there is no upstream `opanai`", "did you mean `openai`?");
        let add = "add it to `llm.upstreams`, or name one that is there";
        rule("match: a, upstream: x", "there is no upstream `x`", add);
        rule(
            "match: \"a[\", upstream: openai",
            "`a[` has a `[` without its `]`; a literal `[` is written `[[]`",
            "globs support `*`, `?` and `[..]`; `[*]` matches a star",
        );
        let bytes = "write a glob of 1 to 128 bytes";
        rule("match: \"\", upstream: openai", "the glob has 0 bytes", bytes);
        let long = "x".repeat(129);
        rule(&format!("match: {long}, upstream: openai"), "the glob has 129 bytes", bytes);
        let remedy = "write the model's name at the provider, or leave `as` out";
        rule("match: a, upstream: openai, as: \"\"", "`as` is empty", remedy);
        rule("match: a", "`upstream` is missing here", "add `upstream`: text");
    }

    #[test]
    fn the_limits_of_the_llm_proxy_have_ranges() {
        let size = "write a size from 1B to 64MiB";
        more("limits: { request: 0B }", "`request` is out of range", size);
        more("limits: { answer: 1GiB }", "`answer` is out of range", size);
        let time = "write a duration from 1ms to 3600s";
        more("limits: { first_byte: 0s }", "`first_byte` is out of range", time);
        more("limits: { total: 5m }", "`total` is out of range", "write a duration from 600s to 3600s");
        let number = "`exchanges` must be a whole number from 1 to 1000000, not `0`";
        more("limits: { exchanges: 0 }", number, "");
    }

    #[test]
    fn members_that_are_allowed_have_names() {
        let (message, remedy) = (
            "an entry of `allow` is not a member's name",
            "write a name of 1 to 64 bytes, without control characters",
        );
        for wrong in ["", "a\\nb", &"x".repeat(65)] {
            more(&format!("allow: [\"{wrong}\"]"), message, remedy);
        }
        let many = ["a"; 65].join(", ");
        more(&format!("allow: [{many}]"), "`allow` has 65 entries", "list at most 64");
    }

    #[test]
    fn lists_of_the_llm_proxy_have_an_end() {
        let mut models = String::from("  models:\n");
        for at in 0..257 {
            let _ = writeln!(models, "    - {{ match: m{at}, upstream: openai }}");
        }
        rest(&format!("llm:\n  {UPSTREAMS}\n{models}"), 4, "`models` has 257 entries", "list at most 256");
    }

    #[test]
    fn a_tenant_s_models_are_globs() {
        let tenant =
            |models: &str| format!("tenants:\n  list:\n    - {{ id: acme, llm: {{ models: {models} }} }}\n");
        let bytes = "write a glob of 1 to 128 bytes";
        rest(&tenant("[a, \"\"]"), 4, "the glob has 0 bytes", bytes);
        let broken = "`a[` has a `[` without its `]`; a literal `[` is written `[[]`";
        rest(&tenant("[\"a[\"]"), 4, broken, "globs support `*`, `?` and `[..]`; `[*]` matches a star");
        let many = format!("[{}]", ["a"; 65].join(", "));
        rest(&tenant(&many), 4, "`models` has 65 entries", "list at most 64");
        for models in ["[]", "[\"gpt-5*\", fast]"] {
            from_text(String::new(), &format!("{AUTH}{}", tenant(models)), []).unwrap();
        }
    }

    #[test]
    fn a_tenant_of_the_api_is_checked_alone() {
        let spec = json!({ "id": "acme", "llm": { "models": ["gpt-5*", "["] } });
        let places: Vec<_> =
            check_object(TENANTS, &spec).into_iter().map(|problem| problem.pointer).collect();
        assert_eq!(places, ["/llm/models/1"]);
        let tenant: Tenant = read(&spec.to_string()).unwrap();
        assert_eq!(tenant.llm.models.unwrap(), ["gpt-5*", "["]);
        let absent: Tenant = read("{\"id\":\"acme\"}").unwrap();
        assert_eq!(absent.llm.models, None);
    }

    #[test]
    fn a_credential_is_never_shown() {
        let entry = |credential: &str| {
            format!(
                "  upstreams: [{{ name: openai, base_url: https://a/v1, credential: \"{credential}\" }}]\n  {MODELS}\n"
            )
        };
        for (credential, shown) in [("${KEY}", "${KEY}"), ("sk-of-the-provider", "***")] {
            let loaded = loaded(&entry(credential));
            let effective = serde_json::to_string(&loaded.effective()).unwrap();
            assert!(effective.contains(&format!("\"value\":\"{shown}\"")), "{effective}");
            let debug = format!("{loaded:?}");
            assert!(!effective.contains("sk-of") && !debug.contains("sk-of"), "{effective}\n{debug}");
        }
        let wrong = format!("{AUTH}llm:\n{}  limit: 1\n", entry("sk-of-the-provider"));
        let text = problems(&wrong).to_string();
        assert!(text.contains("`limit` is not a key here") && !text.contains("sk-of"), "{text}");
    }
}
