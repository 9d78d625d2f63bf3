//! `hookgate proto export`: writes the .proto files that are embedded in the binary, so that they match its protocol.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Subcommand;
use hookgate_proto::SOURCES;

use super::{
    Exit,
    output::{self, printable},
};

#[derive(Debug, Subcommand)]
pub(super) enum ProtoCommand {
    /// Writes the .proto files and a buf.yaml, and prints their paths.
    ///
    /// Identical files are kept. If an existing file differs, nothing is written. Continue with
    /// docs/writing-a-plugin-any-language.md.
    #[command(after_help = "Example: hookgate proto export proto\n\n\
                            Exit codes: 0 all files are there, 1 a file differs or can't be written.")]
    Export {
        /// The folder, created if missing.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

pub(super) fn run(ProtoCommand::Export { folder }: &ProtoCommand) -> Exit {
    match export(folder) {
        Ok(paths) => output::print(&paths, Exit::ok()),
        Err(message) => Exit::failure(message),
    }
}

/// Writes the missing files to `folder`, and returns all paths, one per line. The error is a sentence.
fn export(folder: &Path) -> Result<String, String> {
    let (mut missing, mut differing, mut paths) = (Vec::new(), Vec::new(), String::new());
    for (name, text) in SOURCES {
        let path = folder.join(name);
        let shown = printable(&path.display().to_string());
        match fs::read(&path) {
            Ok(there) if there == text.as_bytes() => {}
            Ok(_) => differing.push(shown.clone()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push((path, text)),
            Err(error) => return Err(format!("{shown} can't be read: {error}; {OTHER_FOLDER_HINT}")),
        }
        paths = paths + &shown + "\n";
    }
    if !differing.is_empty() {
        return Err(format!(
            "nothing was written, because these files differ from this version's: {}; delete them, or give another \
             folder",
            differing.join(", ")
        ));
    }
    for (path, text) in missing {
        write(&path, text).map_err(|error| {
            format!(
                "{} can't be written: {error}; {OTHER_FOLDER_HINT}",
                printable(&path.display().to_string())
            )
        })?;
    }
    Ok(paths)
}

/// The remedy for a folder that can't be written.
const OTHER_FOLDER_HINT: &str = "give a folder that you may write to";

/// Creates a file; never overwrites one that was created meanwhile.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    io::Write::write_all(&mut fs::File::create_new(path)?, text.as_bytes())
}
