//! `hookgate new`: writes a project to begin with. The files are templates; each language has its own list. The
//! project is never in a folder that holds something else.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand, ValueEnum};

use crate::{
    Exit, output, shell_quote,
    starter::{self, NewFile, StarterError},
};
use hookgate::config::is_name;

mod package;
mod python;
mod rust;
mod sdk;
mod shell;
mod typescript;

use sdk::SdkCheckout;

/// A gateway's configuration to try a plugin.
const HOOKGATE_YAML: &str = include_str!("hookgate.yaml");

#[derive(Debug, Subcommand)]
pub(super) enum NewCommand {
    /// Creates a plugin's project: a small plugin that works, its test, and a hookgate.yaml to try it.
    ///
    /// Prints the next commands. If the directory holds anything, nothing is written. A project in Python, Rust or
    /// TypeScript has a Dockerfile too. Inside a checkout of Hookgate it uses the checkout's SDK, elsewhere the version
    /// of this program.
    #[command(after_help = "Example: hookgate new plugin no-shell --lang rust\n\n\
                            Exit codes: 0 written, 1 the directory isn't empty or can't be written, 2 invalid usage.")]
    Plugin(NewPluginArgs),
}

#[derive(Debug, Args)]
pub(super) struct NewPluginArgs {
    /// The plugin's name: a letter, then up to 63 letters, digits, `_` and `-`.
    #[arg(value_parser = plugin_name)]
    name: String,
    /// The plugin's language.
    #[arg(long, value_enum)]
    lang: Language,
    /// The directory, created if missing. Default: the plugin's name.
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// A checkout of Hookgate, to use its SDK instead of a published version. For Python, Rust and TypeScript.
    #[arg(long, value_name = "PATH")]
    sdk_path: Option<PathBuf>,
}

/// The languages that have templates.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Language {
    /// Python, with the package hookgate.
    Python,
    /// Rust, with the crate hookgate-sdk.
    Rust,
    /// A shell script that reads and writes JSON lines, for `hookgate runner stdio`.
    Shell,
    /// TypeScript, with the package @hookgate/sdk.
    #[value(name = "typescript")]
    TypeScript,
}

impl Language {
    /// Its files: the paths in the project, and the templates.
    fn templates(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Language::Python => &python::TEMPLATES,
            Language::Rust => &rust::TEMPLATES,
            Language::Shell => &shell::TEMPLATES,
            Language::TypeScript => &typescript::TEMPLATES,
        }
    }

    /// What the templates' `@PLACEHOLDERS@` stand for. A line with a placeholder that stands for nothing is left out.
    fn values(self, name: &str, sdk: Option<&SdkCheckout>) -> Vec<(&'static str, Option<String>)> {
        match self {
            Language::Python => python::values(name, sdk),
            Language::Rust => rust::values(name, sdk),
            Language::Shell => vec![("NAME", Some(name.to_owned()))],
            Language::TypeScript => typescript::values(name, sdk),
        }
    }

    /// What the project contains.
    fn contents(self) -> &'static str {
        match self {
            Language::Python | Language::Rust | Language::TypeScript => {
                "its test, a Dockerfile, a hookgate.yaml and a README.md"
            }
            Language::Shell => "its test, a runner.yaml, a hookgate.yaml and a README.md",
        }
    }

    /// The SDK that a project outside of a checkout needs; `None` if the language has none.
    fn published_sdk(self) -> Option<String> {
        match self {
            Language::Python => Some(format!("hookgate {} from PyPI", sdk::VERSION)),
            Language::Rust => Some(format!("hookgate-sdk {} from crates.io", sdk::VERSION)),
            Language::Shell => None,
            Language::TypeScript => Some(format!("@hookgate/sdk {} from npm", sdk::VERSION)),
        }
    }

    /// The commands that test and start the plugin.
    fn commands(self, name: &str, sdk: Option<&SdkCheckout>) -> Vec<String> {
        match self {
            Language::Python => python::commands(name, sdk),
            Language::Rust => vec!["cargo test".to_owned(), "cargo run".to_owned()],
            Language::Shell => {
                let hookgate = shell_quote::program();
                let start = format!("{hookgate} runner stdio runner.yaml --listen unix:///tmp/{name}.sock");
                vec!["sh test.sh".to_owned(), start]
            }
            Language::TypeScript => typescript::commands(sdk),
        }
    }
}

pub(super) fn plugin_name(text: &str) -> Result<String, String> {
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err("a plugin's name is a letter and up to 63 letters, digits, `_` and `-`, as in `no-shell`".to_owned())
}

pub(super) fn run(command: &NewCommand) -> Exit {
    let NewCommand::Plugin(asked) = command;
    let given = asked.dir.clone().unwrap_or_else(|| asked.name.clone().into());
    let project = match starter::resolved(&given) {
        Ok(project) => project,
        Err(error) => return Exit::failure(unwritable(&given, &error)),
    };
    if let (Language::Shell, Some(_)) = (asked.lang, &asked.sdk_path) {
        return Exit::usage(
            "--sdk-path is for python, rust and typescript: a shell script uses no SDK".to_owned(),
        );
    }
    let sdk = match sdk::for_project(&project, asked.sdk_path.as_deref()) {
        Ok(sdk) => sdk,
        Err(wrong) => return Exit::usage(wrong),
    };
    match write(&given, &project, asked, sdk.as_ref()) {
        Ok(()) => output::print(&next(&given, asked, sdk.as_ref()), Exit::ok()),
        Err(wrong) => Exit::failure(wrong),
    }
}

/// Writes all files or none.
fn write(
    given: &Path,
    project: &Path,
    asked: &NewPluginArgs,
    sdk: Option<&SdkCheckout>,
) -> Result<(), String> {
    match fs::read_dir(project).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(taken(given)),
        Ok(false) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(unwritable(given, &error)),
    }
    let values = asked.lang.values(&asked.name, sdk);
    let texts = asked.lang.templates().iter().map(|(path, template)| (*path, filled(template, &values)));
    let texts: Vec<_> = texts.collect();
    let files: Vec<_> = texts.iter().map(|(path, text)| NewFile::new(path, text)).collect();
    starter::write(project, &files).map_err(|error| match error {
        StarterError::Taken(_) => taken(given),
        StarterError::System(error) => unwritable(given, &error),
    })
}

/// The template with its values.
fn filled(template: &str, values: &[(&str, Option<String>)]) -> String {
    let is_kept = |line: &&str| {
        !values.iter().any(|(name, value)| value.is_none() && line.contains(&format!("@{name}@")))
    };
    let kept: String = template.split_inclusive('\n').filter(is_kept).collect();
    values.iter().fold(kept, |text, (name, value)| {
        text.replace(&format!("@{name}@"), value.as_deref().unwrap_or_default())
    })
}

/// The next commands.
fn next(given: &Path, asked: &NewPluginArgs, sdk: Option<&SdkCheckout>) -> String {
    let (shown, directory) = (output::printable(&given.display().to_string()), shell_quote::quoted(given));
    let (name, hookgate) = (&asked.name, shell_quote::program());
    let contents = asked.lang.contents();
    let commands: String =
        asked.lang.commands(name, sdk).iter().map(|command| format!("  {command}\n")).collect();
    let note = match asked.lang.published_sdk() {
        Some(published) if sdk.is_none() => format!(
            "\nThe project needs {published}. If it isn't published there yet, remove the directory and repeat\n\
             the command with --sdk-path PATH, where PATH is a checkout of Hookgate.\n"
        ),
        _ => String::new(),
    };
    format!(
        "Created in {shown}: a plugin that refuses tools, {contents}. Next:\n\n  \
         cd {directory}\n\
         {commands}\n\
         and, in another terminal, a call that is blocked:\n\n  \
         {hookgate} plugin test unix:///tmp/{name}.sock before_tool_call --tool shell.exec \
         --tenant-config '{{\"refused_tools\": [\"shell.exec\"]}}'\n{note}"
    )
}

fn taken(given: &Path) -> String {
    let given = output::printable(&given.display().to_string());
    format!("nothing was written, because {given} isn't empty: give a new directory with --dir")
}

fn unwritable(given: &Path, error: &io::Error) -> String {
    let given = output::printable(&given.display().to_string());
    format!("{given} can't be written: {error}; give a directory that you may write to with --dir")
}
