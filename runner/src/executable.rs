//! Finds the program of a command, as its start will.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The variable `PATH` of programs, unless `env` sets it.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Checks that `program` can be executed. Without a folder it is looked for in those of `path`.
///
/// # Errors
/// One sentence that says why it can't.
pub(crate) fn check(program: &str, path: &str) -> Result<(), String> {
    if program.contains('/') {
        return match (Path::new(program).is_file(), is_executable(Path::new(program))) {
            (true, true) => Ok(()),
            (true, false) => {
                Err(format!("{program} is not executable: use `chmod +x`, or name its interpreter"))
            }
            (false, _) => Err(format!("there is no file {program}")),
        };
    }
    match find(program, path) {
        Some(_) => Ok(()),
        None => Err(format!("there is no program `{program}` in {path}: give its path")),
    }
}

/// The file of `program` in the folders of `path`.
pub(crate) fn find(program: &str, path: &str) -> Option<PathBuf> {
    path.split(':').map(|folder| PathBuf::from(folder).join(program)).find(|file| is_executable(file))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}
