//! `hookgate init`: creates a starter folder. The configuration is a template that is tested like any example; the
//! random key is in a file of its own.

use std::path::{Path, PathBuf};

use crate::{
    Exit, keygen, output, shell_quote,
    starter::{self, NewFile, StarterError},
};
use hookgate::config;

/// The configuration; `@DIR@` is the absolute path of the folder.
const CONFIG_TEMPLATE: &str = include_str!("hookgate.yaml");
const GITIGNORE: &str = include_str!("gitignore");
/// A text longer than `max_input_chars` of the template.
const BLOCKED_INPUT: &str = "Please write to ada@example.com that her refund is on its way, and thank her.";

pub(super) fn run(folder: &Path) -> Exit {
    match InitFolder::new(folder).and_then(|folder| folder.write().map(|()| folder)) {
        Ok(folder) => output::print(&folder.next(), Exit::ok()),
        Err(wrong) => Exit::failure(wrong),
    }
}

/// The folder to write.
struct InitFolder {
    /// As given on the command line.
    given: PathBuf,
    /// The absolute path.
    path: PathBuf,
}

impl InitFolder {
    /// Refuses a path that can't be written in the template.
    fn new(given: &Path) -> Result<Self, String> {
        Ok(InitFolder { given: given.to_owned(), path: starter::nameable(given)? })
    }

    /// Writes all files or none. The configuration comes last, so that it exists only if the others do.
    fn write(&self) -> Result<(), String> {
        let key = keygen::random()?;
        let text = self.configuration();
        let schema = format!("{:#}\n", config::schema());
        let files = [
            NewFile::new(".gitignore", GITIGNORE),
            NewFile { name: "dev.key", mode: 0o600, text: &key },
            NewFile::new("hookgate.schema.json", &schema),
            NewFile::new("hookgate.yaml", &text),
        ];
        let there = starter::existing(&self.path, &files);
        if !there.is_empty() {
            return Err(self.existing_files(&there));
        }
        starter::write(&self.path, &files).map_err(|error| match error {
            StarterError::Taken(name) => self.existing_files(&[&name]),
            StarterError::System(error) => starter::unwritable(&self.given, &error),
        })
    }

    /// The template for this folder, without a socket if the path is too long for one.
    fn configuration(&self) -> String {
        let flaw = config::socket_flaw(&self.path.join("admin.sock").display().to_string());
        let socket = if flaw.is_some() { "  # admin_socket:" } else { "  admin_socket:" };
        let text = CONFIG_TEMPLATE.replace("  admin_socket:", socket);
        text.replace("@DIR@", &self.path.display().to_string())
    }

    fn existing_files(&self, names: &[&str]) -> String {
        let paths = names.iter().map(|name| output::printable(&self.given.join(name).display().to_string()));
        let (paths, exist) =
            (paths.collect::<Vec<_>>().join(", "), if names.len() == 1 { "exists" } else { "exist" });
        format!(
            "nothing was written, because {paths} already {exist}: give another folder, as in `hookgate init \
             gateway`"
        )
    }

    /// The next commands.
    fn next(&self) -> String {
        let (hookgate, file) =
            (shell_quote::program(), shell_quote::quoted(&self.path.join("hookgate.yaml")));
        let given = output::printable(&self.given.display().to_string());
        format!(
            "Created in {given}: hookgate.yaml, its schema for editors, a development key in dev.key, and .gitignore. \
             Next:\n\n  \
             {hookgate} serve --config {file}\n\n\
             and, in another terminal, a call that is blocked:\n\n  \
             export HOOKGATE_TOKEN=$({hookgate} token mint --config {file} --tenant acme)\n  \
             {hookgate} call before_llm_request --text \"{BLOCKED_INPUT}\"\n"
        )
    }
}
