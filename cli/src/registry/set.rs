//! Creates or changes an object: only the given members change.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{
    ObjectWriteArgs,
    client::{Registry, Write, version},
};
use crate::{Exit, document};
use hookgate::{config, core::object::ObjectKind, fs::read_limited, json::pointer};

/// Largest file with one object, in bytes: the admin API's limit.
const MAX_OBJECT_FILE_BYTES: u64 = 1 << 20;

/// A merge patch (RFC 7396): members to set, null to remove.
#[derive(Default)]
pub(super) struct ObjectChanges {
    members: Map<String, Value>,
    /// Paths to objects that are replaced as a whole instead of merged.
    whole: Vec<Vec<String>>,
}

impl ObjectChanges {
    /// Reads the members from a file, if one is given.
    ///
    /// # Errors
    /// The file can't be read, or holds no object.
    pub(super) fn in_file(file: Option<&PathBuf>) -> Result<Self, Exit> {
        let Some(file) = file else { return Ok(ObjectChanges::default()) };
        let (name, text) = read(file, MAX_OBJECT_FILE_BYTES)?;
        let members = config::object(name, &text).map_err(|problems| Exit::problems(&problems))?;
        Ok(ObjectChanges { members, ..ObjectChanges::default() })
    }

    /// Sets the member at the end of `path`.
    pub(super) fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        let Some((last, before)) = path.split_last() else { return };
        let mut members = &mut self.members;
        for key in before {
            let inner = members.entry(*key).or_insert(Value::Null);
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            let Value::Object(inner) = inner else { return };
            members = inner;
        }
        members.insert((*last).to_owned(), value.into());
    }

    /// Like [`Self::set`], if there is a value.
    pub(super) fn set_some(&mut self, path: &[&str], value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(path, value);
        }
    }

    /// Replaces the object at the end of `path`.
    pub(super) fn set_whole(&mut self, path: &[&str], value: Map<String, Value>) {
        self.set(path, Value::Object(value));
        self.whole.push(path.iter().map(|key| (*key).to_owned()).collect());
    }

    /// Like [`Self::set_whole`], with the value of a flag: JSON or a file.
    ///
    /// # Errors
    /// The value is not an object.
    pub(super) fn set_document(
        &mut self,
        path: &[&str],
        flag: &str,
        text: Option<&String>,
    ) -> Result<(), Exit> {
        if text.is_some() {
            self.set_whole(path, document::parse(flag, text).map_err(Exit::usage)?);
        }
        Ok(())
    }

    /// The members as a new object.
    pub(super) fn object(self) -> Value {
        let mut object = Value::Object(self.members);
        strip(&mut object);
        object
    }

    /// The merge patch for `spec`.
    fn patch(self, spec: &Value) -> Value {
        let mut patch = Value::Object(self.members);
        for path in self.whole {
            let pointer = path.iter().fold(String::new(), |above, key| pointer::child(&above, key));
            if let (Some(before), Some(named)) = (spec.pointer(&pointer), patch.pointer_mut(&pointer)) {
                replace(before, named);
            }
        }
        patch
    }
}

/// Adds a null to the patch `named` for every member of `before` that it doesn't set.
fn replace(before: &Value, named: &mut Value) {
    if let (Value::Object(before), Value::Object(named)) = (before, named) {
        for (key, value) in before {
            match named.get_mut(key) {
                Some(inner) => replace(value, inner),
                None => drop(named.insert(key.clone(), Value::Null)),
            }
        }
    }
}

/// Removes members that are null.
fn strip(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| !member.is_null());
        members.values_mut().for_each(strip);
    }
}

/// A file's display name and its text.
pub(super) fn read(file: &Path, most: u64) -> Result<(String, String), Exit> {
    let (name, read) = if file.as_os_str() == "-" {
        ("standard input".to_owned(), read_limited::read(std::io::stdin().lock(), most))
    } else {
        (file.display().to_string(), read_limited::file(file, most))
    };
    let wrong = |why: &str| Exit::usage(format!("{} {why}", crate::output::printable(&name)));
    let bytes = read.map_err(|error| {
        wrong(&format!("can't be read: {error}; give the path of a file, or - for standard input"))
    })?;
    let bytes = bytes.ok_or_else(|| wrong(&format!("is larger than {} MiB", most >> 20)))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text"))?;
    Ok((name, text))
}

/// Creates the object `name` from `named`, or patches it.
///
/// # Errors
/// Why it wasn't written.
pub(super) async fn set(
    (kind, name): (ObjectKind, &str),
    named: ObjectChanges,
    ObjectWriteArgs { expected_version, meant, asked }: ObjectWriteArgs,
) -> Result<Exit, Exit> {
    let registry = Registry::connect(asked).await?;
    let found = registry.find(kind, name).await?;
    let write = match (expected_version, &found) {
        (Some(0), _) | (None, None) => Write::put(kind, name, named.object()).with_expected_version(0),
        (expected, found) => {
            let object = found.as_ref().map(|answer| &answer.body);
            let patch = named.patch(object.map_or(&Value::Null, |object| &object["spec"]));
            Write::patch(kind, name, patch)
                .with_expected_version(expected.or(object.map(version)).unwrap_or_default())
        }
    };
    registry.done(&write, &meant).await
}
