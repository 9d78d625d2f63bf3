//! Renders profiles, without tokens.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    PROFILE_VARIABLE,
    file::{Profile, Profiles},
    source::Source,
};
use crate::{
    Exit, client,
    output::{self, Output, columns},
};

/// Name of the profile that applies if no argument names one.
fn selected_profile(profiles: &Profiles) -> Option<String> {
    client::variable(PROFILE_VARIABLE).or_else(|| profiles.current.clone())
}

pub(super) fn list(profiles: &Profiles, output: Output) -> Exit {
    let asked = selected_profile(profiles);
    let is_asked = |name: &str| asked.as_deref() == Some(name);
    let data = profiles.list.iter().map(|(name, profile)| data(name, profile, is_asked(name)));
    let data: Vec<_> = data.collect();
    let table = || {
        let mut rows = vec![["ASKED", "NAME", "ADMIN", "DATA", "TOKEN"].map(str::to_owned)];
        for (name, profile) in &profiles.list {
            let asked = if is_asked(name) { "*" } else { "" };
            let token = profile.token.as_ref().map(Source::in_words);
            let texts = [profile.admin.clone(), profile.data.clone(), token].map(Option::unwrap_or_default);
            let [admin, data, token] = texts;
            rows.push([asked.to_owned(), name.clone(), admin, data, token]);
        }
        columns(&rows)
    };
    output::data(output, &data, table, Exit::ok())
}

pub(super) fn one(profiles: &Profiles, path: &Path, name: Option<String>, output: Output) -> Exit {
    let asked = selected_profile(profiles);
    let Some(name) = name.or_else(|| asked.clone()) else {
        return Exit::usage(
            "there is no current profile: name one, or choose one with `hookgate profile use`",
        );
    };
    let profile = match profiles.named(&name, path) {
        Ok(profile) => profile,
        Err(wrong) => return Exit::usage(wrong),
    };
    let is_asked = asked.as_ref() == Some(&name);
    let table = || {
        let token = |source: &Option<Source>| source.as_ref().map(Source::in_words);
        let rows = [
            ("name", Some(name.clone())),
            ("current", Some(if is_asked { "yes" } else { "no" }.to_owned())),
            ("admin", profile.admin.clone()),
            ("data", profile.data.clone()),
            ("ca_file", profile.ca_file.as_ref().map(|path| path.display().to_string())),
            ("token", token(&profile.token)),
            ("admin_token", token(&profile.admin_token)),
        ];
        let rows = rows.into_iter().filter_map(|(key, value)| Some([key.to_owned(), value?]));
        columns(&rows.collect::<Vec<_>>())
    };
    output::data(output, &data(&name, profile, is_asked), table, Exit::ok())
}

fn data(name: &str, profile: &Profile, asked: bool) -> Value {
    let mut said = json!({ "name": name, "current": asked });
    if let (Value::Object(said), Value::Object(written)) =
        (&mut said, profile.written(Source::to_public_value))
    {
        said.extend(written);
    }
    said
}
