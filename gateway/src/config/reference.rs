//! References in text: `${NAME}`, `${NAME:-default}`, `${file:/path}`, and `$$` for a `$` (docs/protocol.md,
//! section 7). Not recursive: references within a resolved value are not resolved.

use std::{collections::BTreeMap, fmt, path::Path};

use serde_json::Value;

use crate::{
    config::{egress_policy::ReferenceScope, environment::environment_variables, model::JsonObject},
    fs::{contained_path, read_limited, unreadable::unreadable},
    json::pointer,
};

/// The prefix of variables that objects of the admin API may name.
const SECRET_VARIABLE_PREFIX: &str = "HOOKGATE_SECRET_";
const MAX_REFERENCED_FILE: u64 = 64 << 10;

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
enum ReferencePart<'t> {
    Literal(&'t str),
    Variable { name: &'t str, default: Option<&'t str> },
    File(&'t str),
}

/// Splits `text` into its parts. A `$` before anything but `{` and `$` is literal.
///
/// # Errors
/// One sentence, for a reference that is not closed or names nothing.
fn parts(text: &str) -> Result<Vec<ReferencePart<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (literal, behind) = rest.split_at(dollar);
        parts.push(ReferencePart::Literal(literal));
        rest = if let Some(behind) = behind.strip_prefix("$$") {
            parts.push(ReferencePart::Literal("$"));
            behind
        } else if let Some(inner) = behind.strip_prefix("${") {
            let (inner, behind) = inner
                .split_once('}')
                .ok_or("a reference is not closed: write `${NAME}`, or `$$` for a `$`")?;
            parts.push(reference(inner)?);
            behind
        } else {
            parts.push(ReferencePart::Literal("$"));
            &behind[1..]
        };
    }
    parts.push(ReferencePart::Literal(rest));
    Ok(parts)
}

fn reference(inner: &str) -> Result<ReferencePart<'_>, String> {
    if let Some(path) = inner.strip_prefix("file:") {
        return if path.starts_with('/') {
            Ok(ReferencePart::File(path))
        } else {
            Err("a reference to a file needs an absolute path: write `${file:/path}`".into())
        };
    }
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if first && characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(ReferencePart::Variable { name, default })
    } else {
        Err("a reference names a variable or a file: write `${NAME}`, `${NAME:-default}` or `${file:/path}`, \
             and `$$` for a `$`"
            .into())
    }
}

/// Whether `text` contains a reference, well formed or not.
pub(crate) fn is_reference(text: &str) -> bool {
    parts(text).map_or(true, |parts| parts.iter().any(|part| !matches!(part, ReferencePart::Literal(_))))
}

/// Whether `text` contains a default, which may be a secret in plain text.
pub(super) fn has_default(text: &str) -> bool {
    parts(text).is_ok_and(|parts| {
        parts.iter().any(|part| matches!(part, ReferencePart::Variable { default: Some(_), .. }))
    })
}

/// `text` with its references as written, but without their defaults, which may be secrets in plain text.
/// Literal parts are kept only with `literals`.
pub(crate) fn masked(text: &str, literals: bool) -> String {
    let part = |part: &ReferencePart<'_>| match part {
        ReferencePart::Literal("") => String::new(),
        ReferencePart::Literal(literal) => if literals { literal } else { "***" }.to_owned(),
        ReferencePart::File(path) => format!("${{file:{path}}}"),
        ReferencePart::Variable { name, default: None } => format!("${{{name}}}"),
        ReferencePart::Variable { name, default: Some(_) } => format!("${{{name}:-***}}"),
    };
    parts(text).map_or_else(|_| "***".to_owned(), |parts| parts.iter().map(part).collect())
}

/// Checks the syntax of the references in `text` without resolving them.
pub(super) fn check(text: &str) -> Result<(), String> {
    parts(text).map(drop)
}

/// Checks by their text that the references in `text` name only what `scope` allows.
///
/// # Errors
/// One sentence that names the variable or file and what would be right, never a value.
pub(super) fn within(text: &str, scope: ReferenceScope<'_>) -> Result<(), String> {
    parts(text)?.iter().try_for_each(|part| part_within(part, scope))
}

fn part_within(part: &ReferencePart<'_>, scope: ReferenceScope<'_>) -> Result<(), String> {
    let ReferenceScope::Dir(dir) = scope else { return Ok(()) };
    let what = match part {
        ReferencePart::Variable { name, .. } if !is_secret_variable(name) => {
            format!("the environment variable {name}")
        }
        ReferencePart::File(path) if !contained_path::is_written_below(Path::new(path), dir) => {
            format!("the file {path}")
        }
        _ => return Ok(()),
    };
    Err(format!("the API may not name {what}: {}", allowed(dir)))
}

fn is_secret_variable(name: &str) -> bool {
    name.strip_prefix(SECRET_VARIABLE_PREFIX).is_some_and(|rest| !rest.is_empty())
}

fn allowed(dir: &Path) -> String {
    format!("name a variable {SECRET_VARIABLE_PREFIX}*, or a file below {} (`secrets.dir`)", dir.display())
}

/// Checks that the files that `text` names, if they exist, don't lead out of `scope` through links.
///
/// # Errors
/// One sentence that names the file and what would be right.
pub(super) fn stays_within(text: &str, scope: ReferenceScope<'_>) -> Result<(), String> {
    let ReferenceScope::Dir(dir) = scope else { return Ok(()) };
    parts(text)?.iter().try_for_each(|part| match part {
        ReferencePart::File(path) if matches!(contained_path::real(Path::new(path), [dir]), Ok(None)) => {
            Err(leads_out(path, dir))
        }
        _ => Ok(()),
    })
}

fn leads_out(path: &str, dir: &Path) -> String {
    format!("{path} leads out of {}: {}", dir.display(), allowed(dir))
}

/// The error for the first unset variable in `text`, if there is one. Variables don't change while the
/// process runs. Files may, and are read when needed.
pub(super) fn unset(text: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let missing = |part: &ReferencePart<'_>| match part {
        ReferencePart::Variable { name, default: None } if !env.contains_key(*name) => Some(not_set(name)),
        _ => None,
    };
    parts(text).ok()?.iter().find_map(missing)
}

fn not_set(name: &str) -> String {
    if name.starts_with(SECRET_VARIABLE_PREFIX) {
        // The default of a secret would be a secret in plain text.
        return format!("the environment variable {name} is not set: set it where the gateway runs");
    }
    format!("the environment variable {name} is not set: set it, or write `${{{name}:-default}}`")
}

/// `text` with its references resolved.
///
/// # Errors
/// One sentence that names the variable or file, never a value.
pub(super) fn resolve(text: &str, env: &BTreeMap<String, String>) -> Result<String, String> {
    resolve_noting(text, env, ReferenceScope::Anywhere, &mut Vec::new())
}

/// `text` with its references resolved in the environment of this process. References outside `scope` are errors.
///
/// # Errors
/// As [`resolve`].
pub(super) fn resolve_within(text: &str, scope: ReferenceScope<'_>) -> Result<String, String> {
    resolve_noting(text, &environment_variables().collect(), scope, &mut Vec::new())
}

/// Whether `text` is one reference without a default, and nothing else.
pub(super) fn is_only_reference(text: &str) -> bool {
    let is_one = |part: &ReferencePart<'_>| {
        matches!(part, ReferencePart::File(_) | ReferencePart::Variable { default: None, .. })
    };
    let Ok(parts) = parts(text) else { return false };
    let mut parts = parts.iter().filter(|part| **part != ReferencePart::Literal(""));
    parts.next().is_some_and(is_one) && parts.next().is_none()
}

/// Like [`resolve`], and adds to `noted` the value of each reference, and the complete text.
fn resolve_noting(
    text: &str,
    env: &BTreeMap<String, String>,
    scope: ReferenceScope<'_>,
    noted: &mut Vec<String>,
) -> Result<String, String> {
    let mut resolved = String::with_capacity(text.len());
    let before = noted.len();
    for part in parts(text)? {
        part_within(&part, scope)?;
        let value = match part {
            ReferencePart::Literal(literal) => {
                resolved.push_str(literal);
                continue;
            }
            ReferencePart::File(path) => read_within(Path::new(path), scope)?,
            ReferencePart::Variable { name, default } => variable(name, default, env)?.to_owned(),
        };
        resolved.push_str(&value);
        noted.push(value);
    }
    if noted.len() > before {
        noted.push(resolved.clone());
    }
    Ok(resolved)
}

fn variable<'a>(
    name: &str,
    default: Option<&'a str>,
    env: &'a BTreeMap<String, String>,
) -> Result<&'a str, String> {
    match (env.get(name), default) {
        (Some(value), None) => Ok(value),
        // As in a shell, an empty variable takes the default too.
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default),
        (None, None) => Err(not_set(name)),
    }
}

/// Like [`read`], for a file that must be in the directory of `scope` after links are resolved.
fn read_within(path: &Path, scope: ReferenceScope<'_>) -> Result<String, String> {
    let ReferenceScope::Dir(dir) = scope else { return read(path) };
    match contained_path::real(path, [dir]) {
        Ok(Some(real)) => read(&real),
        Ok(None) => Err(leads_out(&path.display().to_string(), dir)),
        Err(error) => Err(unreadable(path.display(), &error)),
    }
}

/// A file's text without the trailing newline that editors and `kubectl` add.
fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| unreadable(path.display(), &error);
    // Reading a pipe or a device would block the start.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(format!("{} is not a file: name one that holds the value", path.display()));
    }
    let bytes = read_limited::file(path, MAX_REFERENCED_FILE).map_err(unreadable)?;
    let bytes = bytes.ok_or_else(|| {
        format!("{} is larger than 64 KiB: name a file that holds only the value", path.display())
    })?;
    let mut text = String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8 text", path.display()))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// A plugin's config with its references resolved. It is handed to the plugin at Initialize and kept nowhere
/// else. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq)]
pub struct ResolvedPluginConfig {
    values: JsonObject,
    secrets: Vec<String>,
}

impl ResolvedPluginConfig {
    /// The values. Never log them.
    pub fn expose(&self) -> &JsonObject {
        &self.values
    }

    /// The values, and what to redact from any text that people see: the value of each reference, and every
    /// text that contains one. Never log either.
    pub fn into_exposed(self) -> (JsonObject, Vec<String>) {
        (self.values, self.secrets)
    }
}

impl fmt::Debug for ResolvedPluginConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolved(***)")
    }
}

/// Resolves the references in a plugin's `config` for Initialize. References outside `scope` are errors.
///
/// # Errors
/// One sentence that names the key and the variable or file, never a value.
pub fn resolve_references(
    config: &JsonObject,
    env: impl IntoIterator<Item = (String, String)>,
    scope: ReferenceScope<'_>,
) -> Result<ResolvedPluginConfig, String> {
    let env = env.into_iter().collect();
    let mut resolved = Value::Object(config.clone());
    let mut secrets = Vec::new();
    resolve_value(&mut resolved, "", &mut |text| resolve_noting(text, &env, scope, &mut secrets))?;
    match resolved {
        Value::Object(values) => Ok(ResolvedPluginConfig { values, secrets }),
        _ => Err("a plugin's config must be a mapping".into()),
    }
}

fn resolve_value(
    value: &mut Value,
    pointer: &str,
    resolve: &mut impl FnMut(&str) -> Result<String, String>,
) -> Result<(), String> {
    match value {
        Value::String(text) => {
            *text = resolve(text).map_err(|problem| format!("{pointer}: {problem}"))?;
            Ok(())
        }
        Value::Array(items) => items
            .iter_mut()
            .enumerate()
            .try_for_each(|(index, item)| resolve_value(item, &format!("{pointer}/{index}"), resolve)),
        Value::Object(members) => members
            .iter_mut()
            .try_for_each(|(key, member)| resolve_value(member, &pointer::child(pointer, key), resolve)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Whether any text in `config` contains a reference.
pub(super) fn holds_references(config: &JsonObject) -> bool {
    fn any(value: &Value) -> bool {
        match value {
            Value::String(text) => is_reference(text),
            Value::Array(items) => items.iter().any(any),
            Value::Object(members) => members.values().any(any),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    config.values().any(any)
}

/// A URL without what may be secret in it: user, password and query. Returns `None` if it has none of these.
pub(super) fn without_credentials(text: &str) -> Option<String> {
    // In a `dns:` URL the name to look up is the path.
    let between = if text.starts_with("dns:") { ":///" } else { "://" };
    let (scheme, rest) = text.split_once(between)?;
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?***"));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(_, host)| ("***@", host));
    (!user.is_empty() || !query.is_empty()).then(|| format!("{scheme}{between}{user}{host}{path}{query}"))
}

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
