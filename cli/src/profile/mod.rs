//! `hookgate profile`: gateways that a person asks, by name: where they are and where their tokens are. The commands that
//! ask get theirs from [`chosen`]. Knows nothing of requests.

use std::path::{Path, PathBuf};

use crate::{
    Exit, client,
    output::{Output, printable},
};

mod change;
mod file;
mod render;
mod source;

pub(super) use change::SetProfileArgs;
use clap::Subcommand;
pub(super) use file::Profile;
use file::Profiles;
pub(super) use source::Source;

/// Names the profile that is asked.
const PROFILE_VARIABLE: &str = "HOOKGATE_PROFILE";

#[derive(Debug, Subcommand)]
pub(super) enum ProfileCommand {
    /// Lists the profiles.
    #[command(after_help = "Example: hookgate profile list\n\n\
                            Exit codes: 0 listed, 2 the file is invalid.")]
    List {
        /// Output format.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Shows one profile: where its gateway is, and where its tokens are.
    #[command(after_help = "Example: hookgate profile show prod\n\n\
                            Exit codes: 0 shown, 2 there is no such profile, or the file is invalid.")]
    Show {
        /// Its name; absent: the one that would be asked.
        name: Option<String>,
        /// Output format.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Makes a profile the current one, which is asked where none is named.
    #[command(after_help = "Example: hookgate profile use prod\n\n\
                            Exit codes: 0 done, 1 the file can't be written, 2 there is no such profile, or the file \
                            is invalid.")]
    Use {
        /// Its name.
        name: String,
    },
    /// Makes a profile or changes it: what isn't said stays as it is. The first one becomes the current one.
    ///
    /// No token is written, only where it is. The file is rewritten as a whole, without its comments, for its owner alone
    /// (mode 0600).
    #[command(
        after_help = "Example: hookgate profile set prod --data https://gw.example.com --token-env HOOKGATE_PROD\n\n\
                            Exit codes: 0 done, 1 the file can't be written, 2 invalid usage, or the file is \
                            invalid."
    )]
    Set(Box<SetProfileArgs>),
    /// Removes a profile. The file is rewritten as a whole, without its comments.
    #[command(after_help = "Example: hookgate profile remove prod\n\n\
                            Exit codes: 0 done, 1 the file can't be written, 2 there is no such profile, or the file \
                            is invalid.")]
    Remove {
        /// Its name.
        name: String,
    },
}

/// A profile that is asked, and who it is.
pub(super) struct SelectedProfile {
    name: String,
    /// Whether an argument names it.
    pub(super) is_named: bool,
    /// What it says.
    pub(super) profile: Profile,
    /// Where its file is, from which it names others.
    folder: PathBuf,
}

impl SelectedProfile {
    /// The member `key`, if it says something, and how it is called.
    pub(super) fn address(&self, key: &str, text: Option<&String>) -> Option<(String, String)> {
        Some((self.called(key), text?.clone()))
    }

    /// The CAs' file, and how it is called.
    pub(super) fn ca_file(&self) -> Option<(String, PathBuf)> {
        let path = self.profile.ca_file.as_ref()?;
        Some((self.called("ca_file"), self.folder.join(path)))
    }

    /// The token of the member `key`, and how the place is called where it was.
    ///
    /// # Errors
    /// Why it can't be had, in one sentence.
    pub(super) async fn read(&self, key: &str, source: &Source) -> Result<(String, String), String> {
        source.read(&self.called(key), &self.folder).await
    }

    fn called(&self, key: &str) -> String {
        format!("`{key}` of the profile `{}`", self.name)
    }
}

/// The profile that an argument names, else the environment, else the file as the current one.
///
/// # Errors
/// That there is no such one, or what is wrong with the file.
pub(super) fn chosen(argument: Option<&str>) -> Result<Option<SelectedProfile>, String> {
    let name = argument.map(str::to_owned).or_else(|| client::variable(PROFILE_VARIABLE));
    let Some(path) = file::path() else {
        return match name {
            None => Ok(None),
            Some(_) => homeless().map(|_| None),
        };
    };
    let profiles = Profiles::read(&path)?;
    let Some(name) = name.or_else(|| profiles.current.clone()) else { return Ok(None) };
    let profile = profiles.named(&name, &path)?.clone();
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    Ok(Some(SelectedProfile { name, is_named: argument.is_some(), profile, folder }))
}

/// The path of the file.
fn homeless() -> Result<PathBuf, String> {
    file::path().ok_or_else(|| "nothing says where the profiles are: set HOME or XDG_CONFIG_HOME".to_owned())
}

pub(super) fn run(command: ProfileCommand) -> Exit {
    let read = homeless().and_then(|path| Profiles::read(&path).map(|profiles| (path, profiles)));
    let (path, profiles) = match read {
        Ok(read) => read,
        Err(wrong) => return Exit::usage(wrong),
    };
    match command {
        ProfileCommand::List { output } => render::list(&profiles, output),
        ProfileCommand::Show { name, output } => render::one(&profiles, &path, name, output),
        ProfileCommand::Use { name } => change::select(profiles, &path, name),
        ProfileCommand::Set(set) => change::set(profiles, &path, *set),
        ProfileCommand::Remove { name } => change::remove(profiles, &path, &name),
    }
}

/// The file's path, as it is shown.
fn display(path: &Path) -> String {
    printable(&path.display().to_string())
}
