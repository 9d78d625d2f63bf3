//! Objects by their labels: which are listed, and which a file is the whole of.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};

use crate::{Exit, payload};

/// Who changes an object.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum OwnerFilter {
    /// The configuration file.
    File,
    /// Whoever writes to the registry.
    Api,
}

/// What a list is asked for.
#[derive(Debug, Args)]
pub(crate) struct ListFilterArgs {
    /// Those of the configuration file, or those that are written here.
    #[arg(long, value_enum)]
    owner: Option<OwnerFilter>,
    /// Those with these labels, all of them; several with commas, or repeated.
    #[arg(short = 'l', long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    selector: Vec<(String, String)>,
}

impl ListFilterArgs {
    /// As members of a query.
    ///
    /// # Errors
    /// One label is to have two values.
    pub(super) fn query(self) -> Result<Vec<(String, String)>, Exit> {
        let labels = labels(self.selector)?.into_iter();
        let owner = self.owner.map(|owner| match owner {
            OwnerFilter::File => "file",
            OwnerFilter::Api => "api",
        });
        let owner = owner.map(|owner| ("owner".to_owned(), owner.to_owned()));
        Ok(owner.into_iter().chain(labels.map(|(key, value)| (format!("label.{key}"), value))).collect())
    }
}

/// A label as a selector has it: kubectl's `!=` and its like are none.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = payload::label(text)?;
    if key.ends_with('!') || value.starts_with('=') {
        return Err("a label is chosen by KEY=VALUE alone".to_owned());
    }
    Ok((key, value))
}

/// What was typed, by key.
///
/// # Errors
/// One label is to have two values.
pub(super) fn labels(typed: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Exit> {
    let mut labels = BTreeMap::new();
    for (key, value) in typed {
        if labels.get(&key).is_some_and(|other| *other != value) {
            let key = crate::output::printable(&key);
            return Err(Exit::usage(format!("--selector wants two values of `{key}`: nothing has both")));
        }
        labels.insert(key, value);
    }
    Ok(labels)
}
