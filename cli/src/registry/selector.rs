//! Label selectors, for lists and for `apply --prune`.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};

use crate::{Exit, payload};

/// Who owns an object.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum OwnerFilter {
    /// The configuration file.
    File,
    /// The admin API.
    Api,
}

/// Filters that all lists have.
#[derive(Debug, Args)]
pub(crate) struct ListFilterArgs {
    /// Only objects with this owner.
    #[arg(long, value_enum)]
    owner: Option<OwnerFilter>,
    /// Only objects with all of these labels, separated by commas or repeated.
    #[arg(short = 'l', long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    selector: Vec<(String, String)>,
}

impl ListFilterArgs {
    /// The filters as query parameters.
    ///
    /// # Errors
    /// One label is given two values.
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

/// Parses one label of a selector. kubectl's `!=` and `==` are refused.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = payload::label(text)?;
    if key.ends_with('!') || value.starts_with('=') {
        return Err("a label selector must be KEY=VALUE".to_owned());
    }
    Ok((key, value))
}

/// The labels by key.
///
/// # Errors
/// One label is given two values.
pub(super) fn labels(typed: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Exit> {
    let mut labels = BTreeMap::new();
    for (key, value) in typed {
        if labels.get(&key).is_some_and(|other| *other != value) {
            let key = crate::output::printable(&key);
            return Err(Exit::usage(format!("--selector gives `{key}` two values: no object has both")));
        }
        labels.insert(key, value);
    }
    Ok(labels)
}
