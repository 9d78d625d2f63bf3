//! `hookgate config show`: the effective configuration.

use std::path::Path;

use serde::{Serialize, Serializer};
use serde_saphyr::Commented;

use super::{
    super::output::{self, Output},
    Exit,
};
use hookgate::config::{self, EffectiveValue};

pub(super) fn run(file: &Path, output: Output) -> Exit {
    let loaded = match config::load(file, config::environment_variables()) {
        Ok(loaded) => loaded,
        Err(problems) => return Exit::problems(&problems),
    };
    let effective = loaded.effective();
    match output {
        Output::Yaml => output::data(output, &CommentedYaml(&effective), String::new, Exit::ok()),
        Output::Json | Output::Table => output::data(output, &effective, || table(&effective), Exit::ok()),
    }
}

fn table(effective: &EffectiveValue) -> String {
    let mut rows = vec![["KEY", "VALUE", "FROM"].map(str::to_owned)];
    effective.values("", &mut |path, shown| {
        let value = shown.value.as_str().map_or_else(|| shown.value.to_string(), str::to_owned);
        rows.push([path.to_owned(), value, shown.origin.clone()]);
    });
    output::columns(&rows)
}

/// The configuration as YAML, with the origins as comments.
struct CommentedYaml<'e>(&'e EffectiveValue);

impl Serialize for CommentedYaml<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            EffectiveValue::Value(shown) => {
                Commented(&shown.value, shown.origin.clone()).serialize(serializer)
            }
            EffectiveValue::List(items) => serializer.collect_seq(items.iter().map(CommentedYaml)),
            EffectiveValue::Map(members) => {
                serializer.collect_map(members.iter().map(|(key, value)| (key, CommentedYaml(value))))
            }
        }
    }
}
