//! Overrides the file with environment variables: `HOOKGATE__SERVER__DATA_ADDR=0.0.0.0:8080` sets
//! `server.data_addr`. Only scalars outside lists can be set, and a variable that sets nothing is a mistake.
//! The `config` crate splits the names. Its type coercion isn't used, because the schema determines the type.

use std::collections::BTreeMap;

use config::{Environment, Source as _};

use crate::json::pointer;

use super::{
    problem::{Problem, nearest},
    schema::{self, Schema},
    tree::{Node, NodeKind, NodeMember, Region, ValueOrigin},
};

/// The prefix of variables that set keys.
const PREFIX: &str = "HOOKGATE__";

/// Whether the variable `name` sets a key of the configuration.
pub(crate) fn is_setting(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Applies the `HOOKGATE__*` variables of `env` to `root`. Returns the mistakes in their names.
pub(super) fn overlay(root: &mut Node, env: &BTreeMap<String, String>, schema: &Schema) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut ours = BTreeMap::new();
    for (name, value) in env.iter().filter(|(name, _)| is_setting(name)) {
        if name.chars().any(|c| c.is_lowercase() || c == '.') {
            let problem =
                Problem::in_variable(name, "variable names must be upper case, with `__` between keys");
            problems.push(problem.remedy("write `HOOKGATE__SERVER__DATA_ADDR` for `server.data_addr`"));
        } else {
            ours.insert(name.clone(), value.clone());
        }
    }
    let source =
        Environment::with_prefix("HOOKGATE").separator("__").source(Some(ours.into_iter().collect()));
    let values = source.collect().expect("every name and value is text, and nothing is parsed");
    let values: BTreeMap<String, config::Value> = values.into_iter().collect();
    for (path, value) in values {
        let name = format!("{PREFIX}{}", path.replace('.', "__").to_uppercase());
        let text = value.into_string().expect("a variable's value is text");
        let keys: Vec<&str> = path.split('.').collect();
        match target(&keys, &name, schema) {
            Ok(()) => set(root, &keys, &text, &name, schema),
            Err(problem) => problems.push(problem),
        }
    }
    problems
}

/// Checks that `keys` lead to a scalar outside lists.
fn target(keys: &[&str], name: &str, schema: &Schema) -> Result<(), Problem> {
    let mut place = schema.root();
    for (depth, key) in keys.iter().enumerate() {
        let known = schema.keys(place);
        let Some(next) = place["properties"].get(key) else {
            let above = keys[..depth].join(".");
            let message = match (schema::types(place).contains(&"array"), known.is_empty()) {
                (true, _) => format!("`{above}` is a list, and lists are written in the file"),
                (false, true) => format!("`{above}` has no fixed keys, and is written in the file"),
                (false, false) if above.is_empty() => format!("there is no key `{key}`"),
                (false, false) => format!("`{above}` has no key `{key}`"),
            };
            let mut problem = Problem::in_variable(name, message);
            problem.remedy = nearest(key, known).map(|near| {
                let path = [&keys[..depth], &[near]].concat().join("__").to_uppercase();
                format!("did you mean `{PREFIX}{path}`?")
            });
            return Err(problem);
        };
        place = schema.resolve(next);
    }
    let path = keys.join(".");
    if schema::is_scalar(place) {
        Ok(())
    } else {
        Err(Problem::in_variable(
            name,
            format!("`{path}` is not a single value; lists and mappings must be in the file"),
        ))
    }
}

/// Sets the value at `keys` to `text`, and creates missing mappings on the way. If a value of another type is
/// in the way, it is left for the schema to report.
fn set(root: &mut Node, keys: &[&str], text: &str, name: &str, schema: &Schema) {
    let origin = || ValueOrigin::Variable(name.to_owned());
    let pointer: String = keys.iter().fold(String::new(), |pointer, key| pointer::child(&pointer, key));
    let mut node = root;
    for key in keys {
        if matches!(node.kind, NodeKind::Null) {
            node.kind = NodeKind::Map(Vec::new());
        }
        let region = node.region;
        let NodeKind::Map(members) = &mut node.kind else { return };
        let found = members.iter().position(|member| member.key == *key);
        let index = found.unwrap_or_else(|| {
            members.push(NodeMember {
                key: (*key).to_owned(),
                key_region: region,
                value: Node { kind: NodeKind::Null, region, origin: origin() },
            });
            members.len() - 1
        });
        node = &mut members[index].value;
    }
    let region: Region = node.region;
    *node = Node { kind: schema::typed(text, schema.at(&pointer)), region, origin: origin() };
}

/// The environment of this process. Other variables that aren't UTF-8 can't be named in a configuration, and
/// are left out.
pub fn environment_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        // A setting that isn't UTF-8 is converted, so that its value is rejected instead of silently ignored.
        let value = if is_setting(&name) {
            value.to_string_lossy().into_owned()
        } else {
            value.into_string().ok()?
        };
        Some((name, value))
    })
}
