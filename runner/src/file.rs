//! The runner's file: where it keeps programs' folders, and its plugins.

use std::{
    collections::BTreeSet,
    fs::File,
    path::{Path, PathBuf},
};

use hookgate::fs::read_limited;
use serde::Deserialize;
use serde_json::Value;

use crate::{launch, plugin_entry::PluginEntry};

/// Longest file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What is wrong with a file, in one sentence that names the key.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct FileError {
    file: PathBuf,
    reason: String,
}

/// A runner's file that was read and checked.
#[derive(Debug)]
pub struct RunnerFile {
    /// Folder of the programs' private folders.
    pub(crate) data_dir: PathBuf,
    /// Whether programs may use only their own files.
    pub(crate) sandbox: bool,
    pub(crate) plugins: Vec<PluginEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFile {
    data_dir: Option<PathBuf>,
    #[serde(default = "yes")]
    sandbox: bool,
    plugins: Vec<PluginEntry>,
}

const fn yes() -> bool {
    true
}

impl RunnerFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The first mistake.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let wrong = |reason: String| FileError { file: path.to_owned(), reason };
        let text = read_text(path).map_err(wrong)?;
        let value: Value = serde_saphyr::from_str(&text).map_err(|error| wrong(not_yaml(&error)))?;
        let written: WrittenFile = serde_path_to_error::deserialize(value).map_err(|error| {
            let (at, reason) = (error.path().to_string(), error.inner().to_string());
            wrong(if at == "." { reason } else { format!("{at}: {reason}") })
        })?;
        let folder = path.canonicalize().map_err(|error| wrong(error.to_string()))?;
        let folder = folder.parent().unwrap_or(Path::new("/"));
        Self::check(written, folder).map_err(wrong)
    }

    fn check(written: WrittenFile, folder: &Path) -> Result<Self, String> {
        let WrittenFile { data_dir, sandbox, mut plugins } = written;
        if plugins.is_empty() {
            return Err("plugins: at least one plugin is required".into());
        }
        let data_dir = real(&match data_dir {
            Some(written) => folder.join(written),
            None => default_data_dir()?,
        });
        let exposed = launch::SYSTEM.iter().find(|path| data_dir.starts_with(real(Path::new(path))));
        if let Some(exposed) = exposed.filter(|_| sandbox) {
            return Err(format!("data_dir: every program may read {exposed}: choose a folder elsewhere"));
        }
        let mut names = BTreeSet::new();
        for (index, plugin) in plugins.iter_mut().enumerate() {
            plugin.complete(folder).map_err(|reason| format!("plugins[{index}].{reason}"))?;
            if !names.insert(plugin.name.clone()) {
                return Err(format!("plugins[{index}].name: another plugin is named `{}` too", plugin.name));
            }
            let exposes = |path: &PathBuf| {
                let path = real(path);
                data_dir.starts_with(&path) || path.starts_with(&data_dir)
            };
            let exposed = plugin.readable().find(exposes);
            if let Some(exposed) = exposed.filter(|_| sandbox) {
                return Err(format!(
                    "plugins[{index}]: {} is in `data_dir` or contains it, with the private files of all tenants: choose \
                     another `data_dir`, or name single files in `read`",
                    exposed.display()
                ));
            }
        }
        Ok(RunnerFile { data_dir, sandbox, plugins })
    }
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    })
}

fn read_text(path: &Path) -> Result<String, String> {
    let read = File::open(path).and_then(|file| read_limited::read(file, MAX_FILE_BYTES));
    let bytes = read.map_err(|error| format!("can't be read: {error}"))?;
    let bytes = bytes.ok_or("is larger than 1 MiB")?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".into())
}

/// The parser's message may contain a value, so only the place is reported.
fn not_yaml(error: &serde_saphyr::Error) -> String {
    let line = error.location().map(|at| format!(" at line {}", at.line())).unwrap_or_default();
    format!("is not a YAML mapping{line}")
}

fn default_data_dir() -> Result<PathBuf, String> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let state = state.ok_or("data_dir: is required, because the variable HOME is not set")?;
    Ok(state.join("hookgate/runner"))
}
