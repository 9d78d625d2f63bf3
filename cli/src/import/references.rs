//! Translates Dexto's `$NAME`, `${NAME}` and `${{dexto.agent_dir}}` to the gateway's references (docs/protocol.md,
//! section 7). Values of variables are never read.

use std::collections::BTreeSet;

use serde_json::Value;

use hookgate::{config::JsonObject, json::pointer};

/// The template that the runner resolves too.
const AGENT_DIR: &str = "dexto.agent_dir";
/// The template that only Dexto resolves.
const PROJECT_DIR: &str = "dexto.project_dir";

/// A part of a text, as Dexto reads it.
enum DextoPart<'t> {
    Literal(&'t str),
    Variable(&'t str),
    /// A template as written after its `$`, and its name.
    Template(&'t str, &'t str),
}

/// Splits `text` as Dexto does. Everything that Dexto doesn't replace is literal.
fn parts(text: &str) -> Vec<DextoPart<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        parts.push(DextoPart::Literal(&rest[..dollar]));
        let behind = &rest[dollar + 1..];
        let (part, length) = template(behind)
            .or_else(|| variable(behind))
            .unwrap_or((DextoPart::Literal(&rest[dollar..=dollar]), 0));
        parts.push(part);
        rest = &behind[length..];
    }
    parts.push(DextoPart::Literal(rest));
    parts
}

/// The template at the beginning of `behind`, and its length.
fn template(behind: &str) -> Option<(DextoPart<'_>, usize)> {
    let end = behind.strip_prefix("{{")?.find("}}")? + "{{".len();
    let name = behind["{{".len()..end].trim();
    let length = end + "}}".len();
    [AGENT_DIR, PROJECT_DIR].contains(&name).then_some((DextoPart::Template(&behind[..length], name), length))
}

/// The variable at the beginning of `behind`, and its length.
fn variable(behind: &str) -> Option<(DextoPart<'_>, usize)> {
    let braced = behind.strip_prefix('{');
    let inner = braced.unwrap_or(behind);
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let end = inner.find(|c: char| !(is_first(c) || c.is_ascii_digit())).unwrap_or(inner.len());
    let name = &inner[..end];
    if !name.starts_with(is_first) {
        return None;
    }
    match braced {
        Some(_) => inner[end..].starts_with('}').then_some((DextoPart::Variable(name), end + "{}".len())),
        None => Some((DextoPart::Variable(name), end)),
    }
}

/// `path` without a template of the agent's folder at its beginning. Returns `None` without the template.
pub(super) fn below_agent_dir(path: &str) -> Option<&str> {
    match parts(path).as_slice() {
        [DextoPart::Literal(""), DextoPart::Template(raw, AGENT_DIR), ..] => Some(&path[raw.len() + 1..]),
        _ => None,
    }
}

/// Whether `text` has a template that only Dexto resolves.
pub(super) fn has_project_dir(text: &str) -> bool {
    parts(text).iter().any(|part| matches!(part, DextoPart::Template(_, PROJECT_DIR)))
}

/// What the texts of a plugin's `config` refer to, by their pointers in it.
#[derive(Default)]
pub(super) struct ConfigReferences {
    /// Texts with variables, and the names of these.
    pub(super) variables: Vec<(String, BTreeSet<String>)>,
    /// Texts with the template that only Dexto resolves.
    pub(super) project_dirs: Vec<String>,
    /// Texts in clear whose key is that of a secret.
    pub(super) plain_secrets: Vec<String>,
}

/// `config` for the gateway, and what it refers to.
pub(super) fn translated(config: &JsonObject) -> (JsonObject, ConfigReferences) {
    let mut found = ConfigReferences::default();
    let members = config.iter().map(|(key, value)| {
        (key.clone(), translated_value(value, &pointer::child("", key), is_secret_key(key), &mut found))
    });
    let members = members.collect();
    (members, found)
}

fn translated_value(value: &Value, at: &str, is_secret: bool, found: &mut ConfigReferences) -> Value {
    match value {
        Value::String(text) => Value::String(translated_text(text, at, is_secret, found)),
        Value::Array(items) => {
            let item = |(index, item): (usize, &Value)| {
                translated_value(item, &pointer::child(at, &index.to_string()), is_secret, found)
            };
            items.iter().enumerate().map(item).collect::<Vec<_>>().into()
        }
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| {
                let at = pointer::child(at, key);
                let is_secret = is_secret || is_secret_key(key);
                (key.clone(), translated_value(value, &at, is_secret, found))
            };
            Value::Object(members.iter().map(member).collect())
        }
        Value::Number(_) => {
            if is_secret && !is_count(at) {
                found.plain_secrets.push(at.to_owned());
            }
            value.clone()
        }
        Value::Null | Value::Bool(_) => value.clone(),
    }
}

fn translated_text(text: &str, at: &str, is_secret: bool, found: &mut ConfigReferences) -> String {
    let (mut written, mut variables) = (String::new(), BTreeSet::new());
    let parts = parts(text);
    for (index, part) in parts.iter().enumerate() {
        match part {
            DextoPart::Variable(name) => {
                written += &format!("${{{name}}}");
                variables.insert((*name).to_owned());
            }
            // For the gateway it is text, so that the runner finds it.
            DextoPart::Template(raw, _) => written += &format!("$${raw}"),
            DextoPart::Literal("$") => {
                written += if is_before_reference(&parts[index + 1..]) { "$$" } else { "$" };
            }
            DextoPart::Literal(literal) => written += literal,
        }
    }
    if has_project_dir(text) {
        found.project_dirs.push(at.to_owned());
    }
    if (is_secret && variables.is_empty() && !text.is_empty()) || has_url_password(text) {
        found.plain_secrets.push(at.to_owned());
    }
    if !variables.is_empty() {
        found.variables.push((at.to_owned(), variables));
    }
    written
}

/// Whether the gateway would read a literal `$` before `rest` as the begin of a reference.
fn is_before_reference(rest: &[DextoPart<'_>]) -> bool {
    rest.iter().find(|part| !matches!(part, DextoPart::Literal(""))).is_some_and(|next| match next {
        DextoPart::Literal(literal) => literal.starts_with(['$', '{']),
        DextoPart::Variable(_) | DextoPart::Template(..) => true,
    })
}

fn is_secret_key(key: &str) -> bool {
    let key = key.to_lowercase().replace(['_', '-'], "");
    let words = [
        "apikey",
        "accesskey",
        "privatekey",
        "secret",
        "token",
        "password",
        "passwd",
        "pwd",
        "passphrase",
        "credential",
        "authorization",
        "authheader",
    ];
    key.ends_with("auth") || words.iter().any(|word| key.contains(word))
}

/// Whether a number at this pointer is a count, such as `maxTokens`.
fn is_count(at: &str) -> bool {
    at.rsplit('/').next().is_some_and(|key| key.to_lowercase().contains("token"))
}

/// Whether `text` has a URL with a password in clear: `://user:password@`.
fn has_url_password(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(|c: char| "/?#".contains(c) || c.is_whitespace()).next().unwrap_or(rest);
        let password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
        password.is_some_and(|(_, password)| {
            let is_variable = |part: &DextoPart<'_>| matches!(part, DextoPart::Variable(_));
            !password.is_empty() && !parts(password).iter().any(is_variable)
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(text: &str) -> String {
        let config = json!({ "a": text });
        let (config, _) = translated(config.as_object().unwrap());
        config["a"].as_str().unwrap().to_owned()
    }

    #[test]
    fn what_dexto_replaces_is_a_reference_and_everything_else_stays_text() {
        for (dexto, gateway) in [
            ("plain", "plain"),
            ("$KEY", "${KEY}"),
            ("${KEY}", "${KEY}"),
            ("Bearer $key_2, ${B}!", "Bearer ${key_2}, ${B}!"),
            ("5$ and $5 and $", "5$ and $5 and $"),
            ("$$KEY", "$$${KEY}"),
            ("$$", "$$$"),
            ("${KEY:-x}", "$${KEY:-x}"),
            ("${file:/etc/passwd}", "$${file:/etc/passwd}"),
            ("${", "$${"),
            ("${{dexto.agent_dir}}/logs", "$${{dexto.agent_dir}}/logs"),
            ("$${{ dexto.agent_dir }}", "$$$${{ dexto.agent_dir }}"),
            ("${{ other }}", "$${{ other }}"),
        ] {
            assert_eq!(written(dexto), gateway, "{dexto}");
        }
    }

    #[test]
    fn variables_templates_and_secrets_in_clear_are_found_where_they_are() {
        let config = json!({
            "db": { "password": "hunter2", "url": "pg://$USER:${PASS}@db" },
            "tokens": ["a", "$T", ""],
            "dir": "${{dexto.project_dir}}/x",
        });
        let (_, found) = translated(config.as_object().unwrap());
        let variables: Vec<_> = found
            .variables
            .iter()
            .map(|(at, names)| (at.as_str(), names.iter().cloned().collect::<Vec<_>>()))
            .collect();
        assert_eq!(
            variables,
            [("/db/url", vec!["PASS".to_owned(), "USER".to_owned()]), ("/tokens/1", vec!["T".to_owned()])]
        );
        assert_eq!(found.project_dirs, ["/dir"]);
        assert_eq!(found.plain_secrets, ["/db/password", "/tokens/0"]);
    }

    #[test]
    fn secrets_in_clear_are_found_by_key_by_the_key_above_and_in_urls() {
        let config = json!({
            "auth": { "user": "u", "pin": 1234, "on": true },
            "author": "me",
            "AUTHORIZATION": "Bearer x",
            "db_passwd": "a", "pwd": "a", "private-key": "a", "accessKey": "a",
            "maxTokens": 4096,
            "urls": ["pg://u:p@db", "redis://:p@r", "pg://$U:p@db", "pg://u:$P@db", "http://a:1/x@y", "http://u@h"],
        });
        let (_, found) = translated(config.as_object().unwrap());
        let mut secrets = found.plain_secrets;
        secrets.sort();
        let expected = [
            "/AUTHORIZATION",
            "/accessKey",
            "/auth/pin",
            "/auth/user",
            "/db_passwd",
            "/private-key",
            "/pwd",
            "/urls/0",
            "/urls/1",
            "/urls/2",
        ];
        assert_eq!(secrets, expected);
    }

    #[test]
    fn a_path_below_the_agents_folder_is_recognized() {
        assert_eq!(below_agent_dir("${{ dexto.agent_dir }}/a.ts"), Some("/a.ts"));
        assert_eq!(below_agent_dir("/x/${{dexto.agent_dir}}/a.ts"), None);
        assert_eq!(below_agent_dir("./a.ts"), None);
    }
}
