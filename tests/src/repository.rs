//! The repository's own files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The repository's folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is a folder of the repository")
}

/// A folder of the repository, after its `prepare.sh` has run.
///
/// # Panics
///
/// If `prepare.sh` fails.
pub(crate) fn prepared(folder: &str) -> PathBuf {
    let folder = root().join(folder);
    let prepared = Command::new(folder.join("prepare.sh")).output().expect("bash is installed");
    assert!(prepared.status.success(), "prepare.sh: {prepared:?}");
    folder
}

/// Every Rust source file of the workspace, relative to [`root`], in order.
pub fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(root(), &mut files);
    files.sort();
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the repository is readable") {
        let path = entry.expect("the repository is readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path.strip_prefix(root()).expect("it was found under the root").to_owned());
        }
    }
}
