//! Writes the files of a new folder: all or none, never over another file. Knows nothing of what they contain.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use crate::{keygen, output};

/// A file to write.
pub(super) struct NewFile<'a> {
    /// Its path in the folder.
    pub(super) name: &'a str,
    /// Reduced by the umask.
    pub(super) mode: u32,
    pub(super) text: &'a str,
}

impl<'a> NewFile<'a> {
    /// A file that everyone may read.
    pub(super) fn new(name: &'a str, text: &'a str) -> Self {
        NewFile { name, mode: 0o666, text }
    }
}

/// Why nothing was written.
#[derive(Debug)]
pub(super) enum StarterError {
    /// This file already exists.
    Taken(String),
    System(io::Error),
}

/// Writes the files in this order, with the folders that are missing. If one fails, removes what was written before it.
///
/// # Errors
/// The first error. Nothing is left behind then.
pub(super) fn write(folder: &Path, files: &[NewFile<'_>]) -> Result<(), StarterError> {
    let mut made = Vec::new();
    let written = write_noting(folder, files, &mut made);
    if written.is_err() {
        for path in made.iter().rev() {
            // The first error is the one to report. A folder stays if somebody else has put something into it.
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
    }
    written
}

/// Notes in `made` what it made.
fn write_noting(folder: &Path, files: &[NewFile<'_>], made: &mut Vec<PathBuf>) -> Result<(), StarterError> {
    create_folders(folder, made).map_err(StarterError::System)?;
    for file in files {
        let path = folder.join(file.name);
        create_folders(path.parent().unwrap_or(folder), made).map_err(StarterError::System)?;
        keygen::create(&path, file.mode, file.text).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => StarterError::Taken(file.name.to_owned()),
            _ => StarterError::System(error),
        })?;
        made.push(path);
    }
    Ok(())
}

/// Creates a folder and those above it that are missing.
fn create_folders(folder: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let missing: Vec<_> = folder.ancestors().take_while(|path| !path.exists()).collect();
    for path in missing.into_iter().rev() {
        fs::create_dir(path)?;
        made.push(path.to_owned());
    }
    Ok(())
}

/// Like [`resolved`], for a folder whose path a configuration names.
///
/// # Errors
/// One sentence, also for a path that the syntax of references can't hold.
pub(super) fn nameable(given: &Path) -> Result<PathBuf, String> {
    let path = resolved(given).map_err(|error| unwritable(given, &error))?;
    let names = |text: &str| !text.contains(|c: char| c.is_control() || "\"\\${}?".contains(c));
    if path.to_str().is_some_and(names) {
        return Ok(path);
    }
    Err(format!(
        "{} can't be written in a configuration: give a folder whose path has none of \" \\ $ {{ }} ?",
        output::printable(&path.display().to_string())
    ))
}

/// The sentence for a folder that can't be written.
pub(super) fn unwritable(folder: &Path, error: &io::Error) -> String {
    let folder = output::printable(&folder.display().to_string());
    format!("{folder} can't be written: {error}; give a folder that you may write to")
}

/// The names of those `files` that already exist in `folder`. A broken link counts as existing.
pub(super) fn existing<'n>(folder: &Path, files: &[NewFile<'n>]) -> Vec<&'n str> {
    let is_there = |name: &&str| folder.join(name).symlink_metadata().is_ok();
    files.iter().map(|file| file.name).filter(is_there).collect()
}

/// The absolute `path` without `.`, `..` and links, because a configuration refuses `..`. The end of the path need
/// not exist yet, so it can't be canonicalised as a whole.
pub(super) fn resolved(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    Ok(path.components().fold(PathBuf::new(), |mut resolved, component| {
        if component == Component::ParentDir {
            resolved.pop();
        } else {
            resolved.push(component);
        }
        // Resolve every prefix, as the system does: `..` after a link leaves the link's target.
        resolved.canonicalize().unwrap_or(resolved)
    }))
}
