//! `hookgate completions` and `hookgate man`: output generated from the definition of the command line.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Exit, output};

pub(super) fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hookgate", &mut script);
    output::print(&String::from_utf8_lossy(&script), Exit::ok())
}

pub(super) fn man(folder: &Path) -> Exit {
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    match written {
        Ok(()) => Exit::ok(),
        Err(error) => Exit::failure(format!(
            "the pages can't be written to {}: {error}; give a folder that you may write to",
            folder.display()
        )),
    }
}
