//! Lists of objects, and label selectors for them and for `apply --prune`.

use std::collections::BTreeMap;

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser},
};
use serde_json::Value;

use crate::{
    Exit, payload,
    registry::{ReadArgs, client::Registry},
};
use hookgate::core::object::{ObjectKind, Owner};

/// What all lists have: filters, the gateway, and the output format.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only objects with this owner.
    #[arg(long, value_parser = owners())]
    owner: Option<String>,
    /// Only objects with all of these labels, separated by commas or repeated.
    #[arg(short = 'l', long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    selector: Vec<(String, String)>,
    #[command(flatten)]
    asked: ReadArgs,
}

/// The values of `--owner`.
fn owners() -> PossibleValuesParser {
    let help = |owner| match owner {
        Owner::File => "The configuration file",
        Owner::Api => "The admin API",
    };
    let value = |owner: Owner| PossibleValue::new(owner.as_str()).help(help(owner));
    PossibleValuesParser::new([Owner::File, Owner::Api].map(value))
}

impl ListArgs {
    /// The objects of a kind that match these filters and the kind's own, and their registry.
    ///
    /// # Errors
    /// One label is given two values, the gateway refused, or it didn't answer.
    pub(super) async fn find<const N: usize>(
        self,
        kind: ObjectKind,
        own: [(&str, Option<String>); N],
    ) -> Result<(Registry, Value), Exit> {
        let labels = labels(self.selector)?.into_iter().map(|(key, value)| (format!("label.{key}"), value));
        let filters = [("owner", self.owner)].into_iter().chain(own);
        let filters = filters.filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let query: Vec<_> = filters.chain(labels).collect();
        let registry = Registry::connect(self.asked).await?;
        let objects = registry.all(kind, &query).await?;
        Ok((registry, objects))
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
