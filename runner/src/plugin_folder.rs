//! Files of a plugin's folder.

use std::path::{Component, Path, PathBuf};

/// Checks that files are still where they were when the runner started.
///
/// # Errors
/// One sentence that names the first one that is gone, or whose place a link has taken.
pub(crate) fn check_files(paths: &[PathBuf]) -> Result<(), String> {
    paths.iter().try_for_each(|file| match file.canonicalize() {
        Ok(path) if path == *file => Ok(()),
        Ok(_) => Err(format!("{} is a link by now: restore the file", file.display())),
        Err(error) => Err(format!("{}: {error}", file.display())),
    })
}

/// The file that `written` names in `folder`, without links. `folder` has none.
///
/// # Errors
/// If there is none, or it isn't inside the folder.
pub(crate) fn contained_file(folder: &Path, written: &str) -> Result<PathBuf, String> {
    let is_inside =
        Path::new(written).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_inside {
        return Err(format!("`{written}` must be a path inside the plugin's folder, without `..`"));
    }
    let path = folder.join(written).canonicalize();
    let path = path.map_err(|_| format!("there is no file `{written}` in the plugin's folder"))?;
    if !path.starts_with(folder) {
        return Err(format!("`{written}` is a link that leads out of the plugin's folder"));
    }
    if path.is_file() { Ok(path) } else { Err(format!("`{written}` is not a file")) }
}
