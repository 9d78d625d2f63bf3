//! Commands that change the profiles' file, which is read, changed and written as a whole.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use super::{
    display,
    file::{self, Profiles},
    source::Source,
};
use crate::{
    Exit,
    client::{Place, Port},
    output,
};

/// The settings to write.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("token").args(["token_env", "token_file", "token_command"])))]
#[command(group(ArgGroup::new("admin_token").args(["admin_token_env", "admin_token_file", "admin_token_command"])))]
pub(crate) struct SetProfileArgs {
    /// Name of the profile.
    name: String,
    /// The gateway's `server.admin_addr` as a URL, or `unix://` and its `server.admin_socket`, which needs no token.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The gateway's `server.data_addr` as a URL.
    #[arg(long, value_name = "URL")]
    data: Option<String>,
    /// PEM file of CAs to trust for `https://`.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Environment variable that holds the token.
    #[arg(long, value_name = "VARIABLE")]
    token_env: Option<String>,
    /// File that holds the token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Program that prints the token within 10 s, and its arguments: the rest of the line. Runs without a shell.
    #[arg(long, value_name = "PROGRAM", num_args = 1.., allow_hyphen_values = true)]
    token_command: Option<Vec<String>>,
    /// Environment variable that holds the admin port's token. Default: the token above.
    #[arg(long, value_name = "VARIABLE")]
    admin_token_env: Option<String>,
    /// File that holds the admin port's token.
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Program that prints the admin port's token, and its arguments: the rest of the line.
    #[arg(long, value_name = "PROGRAM", num_args = 1.., allow_hyphen_values = true)]
    admin_token_command: Option<Vec<String>>,
}

impl SetProfileArgs {
    fn says_nothing(&self) -> bool {
        let texts = [&self.admin, &self.data, &self.token_env, &self.admin_token_env];
        let files = [&self.ca, &self.token_file, &self.admin_token_file];
        let commands = [&self.token_command, &self.admin_token_command];
        texts.iter().all(|text| text.is_none())
            && files.iter().all(|file| file.is_none())
            && commands.iter().all(|command| command.is_none())
    }
}

pub(super) fn set(mut profiles: Profiles, path: &Path, set: SetProfileArgs) -> Exit {
    if set.says_nothing() {
        return Exit::usage(
            "nothing to set: give an address (--admin, --data, --ca) or the place of a token (--token-env, \
             --token-file, --token-command)",
        );
    }
    let name = set.name.clone();
    let first = profiles.list.is_empty();
    if let Err(wrong) = apply(&mut profiles, set) {
        return Exit::usage(wrong);
    }
    let mut said = format!("The profile `{name}` is in {}", display(path));
    if first {
        said += ", as the current one";
        profiles.current = Some(name);
    }
    write(&profiles, path, said)
}

fn apply(profiles: &mut Profiles, set: SetProfileArgs) -> Result<(), String> {
    file::named(&set.name)?;
    for (port, flag, text) in [(Port::Admin, "--admin", &set.admin), (Port::Data, "--data", &set.data)] {
        text.iter().try_for_each(|text| Place::parse(port, flag, text).map(drop))?;
    }
    // Relative to the working directory, not to the profiles' file.
    let whole =
        |path: PathBuf| std::path::absolute(&path).map_err(|error| format!("`{}`: {error}", display(&path)));
    let source = |variable: Option<String>, file: Option<PathBuf>, command: Option<Vec<String>>| {
        let file = file.map(whole).transpose()?;
        Ok::<_, String>(variable.map(Source::Env).or(file.map(Source::File)).or(command.map(Source::Command)))
    };
    let ca_file = set.ca.map(whole).transpose()?;
    let token = source(set.token_env, set.token_file, set.token_command)?;
    let admin_token = source(set.admin_token_env, set.admin_token_file, set.admin_token_command)?;
    let profile = profiles.list.entry(set.name).or_default();
    let keep = |new: &mut Option<String>, given: Option<String>| *new = given.or(new.take());
    keep(&mut profile.admin, set.admin);
    keep(&mut profile.data, set.data);
    profile.ca_file = ca_file.or(profile.ca_file.take());
    profile.token = token.or(profile.token.take());
    profile.admin_token = admin_token.or(profile.admin_token.take());
    Ok(())
}

pub(super) fn select(mut profiles: Profiles, path: &Path, name: String) -> Exit {
    if let Err(wrong) = profiles.named(&name, path) {
        return Exit::usage(wrong);
    }
    let said = format!("The profile `{name}` is the current one in {}", display(path));
    profiles.current = Some(name);
    write(&profiles, path, said)
}

pub(super) fn remove(mut profiles: Profiles, path: &Path, name: &str) -> Exit {
    if let Err(wrong) = profiles.named(name, path) {
        return Exit::usage(wrong);
    }
    profiles.list.remove(name);
    let mut said = format!("The profile `{name}` is no longer in {}", display(path));
    if profiles.current.as_deref() == Some(name) {
        profiles.current = None;
        said += ", and there is no current profile";
    }
    write(&profiles, path, said)
}

fn write(profiles: &Profiles, path: &Path, mut said: String) -> Exit {
    if profiles.has_comments {
        said += "; its comments are gone";
    }
    match profiles.write(path) {
        Ok(()) => output::print(&format!("{said}.\n"), Exit::ok()),
        Err(wrong) => Exit::failure(wrong),
    }
}
