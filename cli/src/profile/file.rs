//! The profiles' file: its path, its contents, and how it is written. It says where tokens are; if it holds a token
//! itself, only its owner may be able to read it.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::source::Source;
use crate::output::printable;
use hookgate::{
    config::{did_you_mean, is_name},
    fs::read_limited,
};

/// Longest file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Permission bits of group and others.
const NON_OWNER_MODE: u32 = 0o077;

/// One named gateway.
#[derive(Debug, Clone, Default)]
pub(crate) struct Profile {
    /// Address of the admin port or socket.
    pub(crate) admin: Option<String>,
    /// Address of the data port.
    pub(crate) data: Option<String>,
    /// PEM file of CAs to trust for both.
    pub(crate) ca_file: Option<PathBuf>,
    /// Where the token is.
    pub(crate) token: Option<Source>,
    /// Where the admin port's own token is, if it has one.
    pub(crate) admin_token: Option<Source>,
}

/// The contents of the file.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    pub(super) current: Option<String>,
    pub(super) list: BTreeMap<String, Profile>,
    /// Whether it contains a comment, which is lost when the file is rewritten.
    pub(super) has_comments: bool,
}

/// The path: `hookgate/config.yaml` in `XDG_CONFIG_HOME`, else in `~/.config`. Returns `None` if `HOME` is not set
/// either.
pub(super) fn path() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("hookgate/config.yaml"))
}

impl Profiles {
    /// Reads the file at `path`; without a file there are no profiles.
    ///
    /// # Errors
    /// The first mistake in it, in one sentence without a value.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let shown = printable(&path.display().to_string());
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Profiles::default());
            }
            Err(error) => return Err(format!("{shown} can't be read: {error}")),
        };
        let unread = |error: io::Error| format!("{shown} can't be read: {error}");
        let mode = file.metadata().map_err(unread)?.mode();
        let bytes = read_limited::read(file, MAX_FILE_BYTES).map_err(unread)?;
        let bytes = bytes.ok_or_else(|| format!("{shown} is larger than {} KiB", MAX_FILE_BYTES >> 10))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8 text"))?;
        let profiles = Profiles::parse(&text).map_err(|wrong| format!("{shown}: {wrong}"))?;
        if mode & NON_OWNER_MODE != 0 && profiles.list.values().any(Profile::holds_a_token) {
            return Err(format!(
                "{shown} holds a token, but other users may read it (mode {:04o}): make it 0600, or write where the \
                 token is: `{{ env: NAME }}`, `{{ file: PATH }}` or `{{ command: [PROGRAM, ...] }}`",
                mode & 0o7777
            ));
        }
        Ok(profiles)
    }

    fn parse(text: &str) -> Result<Self, String> {
        // The parser's message may contain a value, so only the place is reported.
        let place = |error: serde_saphyr::Error| {
            let line = error.location().map(|at| format!(" at line {}", at.line())).unwrap_or_default();
            format!("it is not a YAML mapping{line}")
        };
        let has_comments = text.lines().any(|line| line.trim_start().starts_with('#') || line.contains(" #"));
        let value: Value =
            if text.trim().is_empty() { Value::Null } else { serde_saphyr::from_str(text).map_err(place)? };
        if value.is_null() {
            return Ok(Profiles { has_comments, ..Profiles::default() });
        }
        let members = members(&value, "it", &["current", "profiles"])?;
        let current = members.get("current").map(|value| self::text(value, "current")).transpose()?;
        let mut list = BTreeMap::new();
        if let Some(value) = members.get("profiles").filter(|value| !value.is_null()) {
            let all = value.as_object().ok_or("`profiles` must be a mapping of names to profiles")?;
            for (name, value) in all {
                named(name)?;
                list.insert(name.clone(), Profile::parse(name, value)?);
            }
        }
        Ok(Profiles { current, list, has_comments })
    }

    /// Writes the file atomically, readable only by its owner.
    ///
    /// # Errors
    /// One sentence, if it can't be written.
    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let written = || {
            // Follow a link, so that its target changes and the link stays.
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let folder = path.parent().unwrap_or(&path);
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            let text = serde_saphyr::to_string(&self.to_value()).map_err(io::Error::other)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path).map(drop).map_err(|error| error.error)
        };
        written()
            .map_err(|error| format!("{} can't be written: {error}", printable(&path.display().to_string())))
    }

    fn to_value(&self) -> Value {
        let list: Map<_, _> = self
            .list
            .iter()
            .map(|(name, profile)| (name.clone(), profile.written(Source::to_value)))
            .collect();
        match &self.current {
            Some(current) => json!({ "current": current, "profiles": list }),
            None => json!({ "profiles": list }),
        }
    }

    /// The profile of this name.
    ///
    /// # Errors
    /// There is no such profile; names the existing ones.
    pub(super) fn named(&self, name: &str, path: &Path) -> Result<&Profile, String> {
        let unknown = || {
            let (name, path) = (printable(name), printable(&path.display().to_string()));
            let there: Vec<_> = self.list.keys().map(String::as_str).collect();
            if there.is_empty() {
                return format!(
                    "there is no profile `{name}`: {path} has none; create one with `hookgate profile set`"
                );
            }
            format!("there is no profile `{name}` in {path}; it has {}", there.join(", "))
        };
        self.list.get(name).ok_or_else(unknown)
    }
}

impl Profile {
    fn parse(name: &str, value: &Value) -> Result<Self, String> {
        let place = |key: &str| format!("profiles.{name}.{key}");
        let keys = ["admin", "data", "ca_file", "token", "admin_token"];
        let members = members(value, &format!("`profiles.{name}`"), &keys)?;
        let text = |key: &str| members.get(key).map(|value| text(value, &place(key))).transpose();
        let source = |key: &str| members.get(key).map(|value| Source::parse(value, &place(key))).transpose();
        Ok(Profile {
            admin: text("admin")?,
            data: text("data")?,
            ca_file: text("ca_file")?.map(PathBuf::from),
            token: source("token")?,
            admin_token: source("admin_token")?,
        })
    }

    fn holds_a_token(&self) -> bool {
        self.token.iter().chain(&self.admin_token).any(|source| matches!(source, Source::Literal(_)))
    }

    /// The profile as in the file, with tokens as rendered by `source`.
    pub(super) fn written(&self, source: impl Fn(&Source) -> Value) -> Value {
        let texts = [("admin", &self.admin), ("data", &self.data)];
        let texts = texts.into_iter().filter_map(|(key, text)| Some((key, json!(text.as_ref()?))));
        let ca_file = self.ca_file.iter().map(|path| ("ca_file", json!(path.display().to_string())));
        let tokens = [("token", &self.token), ("admin_token", &self.admin_token)];
        let tokens = tokens.into_iter().filter_map(|(key, token)| Some((key, source(token.as_ref()?))));
        texts
            .chain(ca_file)
            .chain(tokens)
            .map(|(key, value)| (key.to_owned(), value))
            .collect::<Map<_, _>>()
            .into()
    }
}

/// Checks that `name` is a valid profile name.
pub(super) fn named(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!(
        "`{}` is not a valid profile name: use a letter and up to 63 letters, digits, `_` and `-`",
        printable(name)
    ))
}

pub(super) fn members<'v>(
    value: &'v Value,
    place: &str,
    keys: &[&str],
) -> Result<&'v Map<String, Value>, String> {
    let members = value.as_object().ok_or_else(|| format!("{place} must be a mapping"))?;
    let Some(unknown) = members.keys().find(|key| !keys.contains(&key.as_str())) else { return Ok(members) };
    let remedy = did_you_mean(unknown, keys.iter().copied());
    let remedy = remedy.unwrap_or_else(|| format!("the keys are `{}`", keys.join("`, `")));
    Err(format!("{place} has no key `{}`: {remedy}", printable(unknown)))
}

pub(super) fn text(value: &Value, place: &str) -> Result<String, String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| format!("`{place}` must be text"))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
