//! References in text: `${NAME}`, `${NAME:-default}`, `${file:/path}`, and `$$` for a `$`
//! (docs/protocol.md, section 7). Not recursive: what a reference resolves to is taken as it is.

use std::{collections::BTreeMap, fmt, path::Path};

use serde_json::Value;

use super::{model::Object, unreadable::unreadable};
use crate::bounded;

/// Largest file that a reference may name.
const MAX_FILE: u64 = 64 << 10;

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
enum Part<'t> {
    Literal(&'t str),
    Variable { name: &'t str, default: Option<&'t str> },
    File(&'t str),
}

/// Splits `text`; a `$` before anything but `{` and `$` stands for itself.
///
/// # Errors
/// One sentence for a reference that is not closed or names nothing.
fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (literal, behind) = rest.split_at(dollar);
        parts.push(Part::Literal(literal));
        rest = if let Some(behind) = behind.strip_prefix("$$") {
            parts.push(Part::Literal("$"));
            behind
        } else if let Some(inner) = behind.strip_prefix("${") {
            let (inner, behind) = inner
                .split_once('}')
                .ok_or("a reference is not closed: write `${NAME}`, or `$$` for a `$`")?;
            parts.push(reference(inner)?);
            behind
        } else {
            parts.push(Part::Literal("$"));
            &behind[1..]
        };
    }
    parts.push(Part::Literal(rest));
    Ok(parts)
}

fn reference(inner: &str) -> Result<Part<'_>, String> {
    if let Some(path) = inner.strip_prefix("file:") {
        return if path.starts_with('/') {
            Ok(Part::File(path))
        } else {
            Err("a reference to a file names it from the root: write `${file:/path}`".into())
        };
    }
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if first && characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(Part::Variable { name, default })
    } else {
        Err("a reference names a variable or a file: write `${NAME}`, `${NAME:-default}` or `${file:/path}`, \
             and `$$` for a `$`"
            .into())
    }
}

/// Whether `text` holds a reference, well formed or not.
pub(crate) fn is_reference(text: &str) -> bool {
    parts(text).map_or(true, |parts| parts.iter().any(|part| !matches!(part, Part::Literal(_))))
}

/// Whether `text` holds a default, which may be a secret in plain sight.
pub(super) fn has_default(text: &str) -> bool {
    parts(text)
        .is_ok_and(|parts| parts.iter().any(|part| matches!(part, Part::Variable { default: Some(_), .. })))
}

/// `text` with its references as they were written, but for their defaults, which may be secrets in plain sight; what
/// stands around them only where it may be shown.
pub(crate) fn shown(text: &str, literals: bool) -> String {
    let part = |part: &Part<'_>| match part {
        Part::Literal("") => String::new(),
        Part::Literal(literal) => if literals { literal } else { "***" }.to_owned(),
        Part::File(path) => format!("${{file:{path}}}"),
        Part::Variable { name, default: None } => format!("${{{name}}}"),
        Part::Variable { name, default: Some(_) } => format!("${{{name}:-***}}"),
    };
    parts(text).map_or_else(|_| "***".to_owned(), |parts| parts.iter().map(part).collect())
}

/// Checks the form of the references in `text` and resolves none.
pub(super) fn check(text: &str) -> Result<(), String> {
    parts(text).map(drop)
}

/// What is wrong with the first variable in `text` that isn't set, where there is one. Variables don't change while
/// the process runs; files may, and are looked at when they are wanted.
pub(super) fn unset(text: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let missing = |part: &Part<'_>| match part {
        Part::Variable { name, default: None } if !env.contains_key(*name) => Some(not_set(name)),
        _ => None,
    };
    parts(text).ok()?.iter().find_map(missing)
}

fn not_set(name: &str) -> String {
    format!("the environment variable {name} is not set: set it, or write `${{{name}:-default}}`")
}

/// `text` with its references resolved.
///
/// # Errors
/// One sentence that names the variable or file, never a value.
pub(super) fn resolve(text: &str, env: &BTreeMap<String, String>) -> Result<String, String> {
    resolve_noting(text, env, &mut Vec::new())
}

/// [`resolve`] that adds to `noted` what each reference resolved to, and what the text with them became.
fn resolve_noting(
    text: &str,
    env: &BTreeMap<String, String>,
    noted: &mut Vec<String>,
) -> Result<String, String> {
    let mut resolved = String::with_capacity(text.len());
    let before = noted.len();
    for part in parts(text)? {
        let value = match part {
            Part::Literal(literal) => {
                resolved.push_str(literal);
                continue;
            }
            Part::File(path) => read(Path::new(path))?,
            Part::Variable { name, default } => variable(name, default, env)?.to_owned(),
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

/// A file's text without the line end that editors and `kubectl` leave.
fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| unreadable(path.display(), &error);
    // A pipe or a device would hold the start up.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(format!("{} is not a file: name one that holds the value", path.display()));
    }
    let bytes = bounded::file(path, MAX_FILE).map_err(unreadable)?;
    let bytes = bytes.ok_or_else(|| {
        format!("{} is larger than 64 KiB: name the file that holds the value alone", path.display())
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

/// A plugin's config with its references resolved: handed to the plugin at Initialize and kept nowhere else.
/// Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq)]
pub struct Resolved {
    values: Object,
    secrets: Vec<String>,
}

impl Resolved {
    /// The values. Never log them.
    pub fn expose(&self) -> &Object {
        &self.values
    }

    /// The values, and what is to be kept out of any text that people see: what each reference resolved to by
    /// itself, and every text that holds one. Never log either.
    pub fn into_exposed(self) -> (Object, Vec<String>) {
        (self.values, self.secrets)
    }
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolved(***)")
    }
}

/// Resolves the references in a plugin's `config`, for Initialize.
///
/// # Errors
/// One sentence that names the key and the variable or file, never a value.
pub fn resolve_references(
    config: &Object,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Resolved, String> {
    let env = env.into_iter().collect();
    let mut resolved = Value::Object(config.clone());
    let mut secrets = Vec::new();
    resolve_value(&mut resolved, "", &env, &mut secrets)?;
    match resolved {
        Value::Object(values) => Ok(Resolved { values, secrets }),
        _ => Err("a plugin's config is a mapping".into()),
    }
}

fn resolve_value(
    value: &mut Value,
    pointer: &str,
    env: &BTreeMap<String, String>,
    secrets: &mut Vec<String>,
) -> Result<(), String> {
    match value {
        Value::String(text) => {
            *text = resolve_noting(text, env, secrets).map_err(|problem| format!("{pointer}: {problem}"))?;
            Ok(())
        }
        Value::Array(items) => items
            .iter_mut()
            .enumerate()
            .try_for_each(|(index, item)| resolve_value(item, &format!("{pointer}/{index}"), env, secrets)),
        Value::Object(members) => members.iter_mut().try_for_each(|(key, member)| {
            resolve_value(member, &super::tree::child(pointer, key), env, secrets)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Whether any text in `config` holds a reference.
pub(super) fn holds_references(config: &Object) -> bool {
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

/// A URL without what may be secret in it: a user with a password, and the query. None: there is nothing of that.
pub(super) fn without_credentials(text: &str) -> Option<String> {
    // The name to look up stands in the path.
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
