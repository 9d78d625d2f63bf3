//! `hookgate profile`: named gateways, with their addresses and the places of their tokens. Commands get the selected
//! one from [`chosen`]. Knows nothing of requests.

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

/// Environment variable that selects the profile.
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
    /// Shows one profile: its addresses, and where its tokens are.
    #[command(after_help = "Example: hookgate profile show prod\n\n\
                            Exit codes: 0 shown, 2 there is no such profile, or the file is invalid.")]
    Show {
        /// Name of the profile. Default: the selected profile.
        name: Option<String>,
        /// Output format.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Makes a profile the current one, which is used if none is named.
    #[command(after_help = "Example: hookgate profile use prod\n\n\
                            Exit codes: 0 done, 1 the file can't be written, 2 there is no such profile, or the file \
                            is invalid.")]
    Use {
        /// Name of the profile.
        name: String,
    },
    /// Creates a profile, or changes the given settings. The first profile becomes the current one.
    ///
    /// Stores where the tokens are, never a token. The file is rewritten without its comments, readable only by its
    /// owner (mode 0600).
    #[command(
        after_help = "Example: hookgate profile set prod --data https://gw.example.com --token-env HOOKGATE_PROD\n\n\
                            Exit codes: 0 done, 1 the file can't be written, 2 invalid usage, or the file is \
                            invalid."
    )]
    Set(Box<SetProfileArgs>),
    /// Removes a profile. The file is rewritten without its comments.
    #[command(after_help = "Example: hookgate profile remove prod\n\n\
                            Exit codes: 0 done, 1 the file can't be written, 2 there is no such profile, or the file \
                            is invalid.")]
    Remove {
        /// Name of the profile.
        name: String,
    },
}

/// The selected profile.
pub(super) struct SelectedProfile {
    name: String,
    /// Whether an argument selected it.
    pub(super) is_named: bool,
    /// Its settings.
    pub(super) profile: Profile,
    /// The folder of the profiles' file, which relative paths start from.
    folder: PathBuf,
}

impl SelectedProfile {
    /// The member `key`, if set, and its display name.
    pub(super) fn address(&self, key: &str, text: Option<&String>) -> Option<(String, String)> {
        Some((self.called(key), text?.clone()))
    }

    /// The CA file, and its display name.
    pub(super) fn ca_file(&self) -> Option<(String, PathBuf)> {
        let path = self.profile.ca_file.as_ref()?;
        Some((self.called("ca_file"), self.folder.join(path)))
    }

    /// The token of the member `key`, and the display name of its place.
    ///
    /// # Errors
    /// One sentence, if it can't be read.
    pub(super) async fn read(&self, key: &str, source: &Source) -> Result<(String, String), String> {
        source.read(&self.called(key), &self.folder).await
    }

    fn called(&self, key: &str) -> String {
        format!("`{key}` of the profile `{}`", self.name)
    }
}

/// The profile that is selected by an argument, else by the environment, else as the file's current one.
///
/// # Errors
/// There is no such profile, or the file is invalid.
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

fn homeless() -> Result<PathBuf, String> {
    file::path().ok_or_else(|| "the profiles' file can't be found: set HOME or XDG_CONFIG_HOME".to_owned())
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

/// The file's path for display.
fn display(path: &Path) -> String {
    printable(&path.display().to_string())
}
