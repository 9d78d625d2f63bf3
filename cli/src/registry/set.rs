//! Creating an object or changing it: only what is named changes.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{
    ObjectWriteArgs,
    client::{Registry, Write, version},
};
use crate::{Exit, document};
use hookgate::{config, core::object::ObjectKind, fs::read_limited};

/// Largest file with one object, in bytes: what the admin API takes.
const MAX_OBJECT_FILE_BYTES: u64 = 1 << 20;

/// What is named of an object: members to set, null to take out (RFC 7396).
#[derive(Default)]
pub(super) struct ObjectChanges {
    members: Map<String, Value>,
    /// Paths to objects that are meant as a whole: what else they have goes.
    whole: Vec<Vec<String>>,
}

impl ObjectChanges {
    /// What a file has, if one is given.
    ///
    /// # Errors
    /// Why there is no object in it.
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

    /// As [`Self::set`], where there is something to set.
    pub(super) fn set_some(&mut self, path: &[&str], value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(path, value);
        }
    }

    /// Sets the object at the end of `path` in place of what is there.
    pub(super) fn set_whole(&mut self, path: &[&str], value: Map<String, Value>) {
        self.set(path, Value::Object(value));
        self.whole.push(path.iter().map(|key| (*key).to_owned()).collect());
    }

    /// As [`Self::set_whole`], for what a flag has: JSON or a file.
    ///
    /// # Errors
    /// What is wrong with it.
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

    /// A whole object of it.
    pub(super) fn object(self) -> Value {
        let mut object = Value::Object(self.members);
        strip(&mut object);
        object
    }

    /// What it changes in `spec`.
    fn patch(self, spec: &Value) -> Value {
        let mut patch = Value::Object(self.members);
        for path in self.whole {
            let pointer: String =
                path.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect();
            if let (Some(before), Some(named)) = (spec.pointer(&pointer), patch.pointer_mut(&pointer)) {
                replace(before, named);
            }
        }
        patch
    }
}

/// Has the patch `named` take out what it doesn't name of `before`.
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

/// Takes out what is null.
fn strip(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| !member.is_null());
        members.values_mut().for_each(strip);
    }
}

/// A file's name as it is shown, and its text.
pub(super) fn read(file: &Path, most: u64) -> Result<(String, String), Exit> {
    let (name, read) = if file.as_os_str() == "-" {
        ("standard input".to_owned(), read_limited::read(std::io::stdin().lock(), most))
    } else {
        (file.display().to_string(), read_limited::file(file, most))
    };
    let wrong = |why: &str| Exit::usage(format!("{} {why}", crate::output::printable(&name)));
    let bytes = read.map_err(|error| {
        wrong(&format!("can't be read: {error}; give the path of a file, or - for input"))
    })?;
    let bytes = bytes.ok_or_else(|| wrong(&format!("is larger than {} MiB", most >> 20)))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text"))?;
    Ok((name, text))
}

/// Creates the object `name` of `named`, or changes that in it.
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
