//! Reads a file of plugins, tenants, bindings, upstreams and models to be written to a registry. It is read like a
//! configuration, without the other sections. All problems are shown with their line, including those that
//! others find later.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    config::{
        BINDINGS, MODELS, PLUGINS, TENANTS, UPSTREAMS,
        check::check_objects,
        load::{ConfigReader, ReferenceReport, resolve},
        partial_config::PartialConfig,
        problem::{Problem, ProblemSource, Problems, RegistryPlace, did_you_mean, item},
        schema::Schema,
        tree::{self, Node, NodeKind, NodeMember},
        validate::validate,
    },
    core::object,
    json::pointer,
};

/// The pointer to the list of each kind.
const LIST_POINTERS: [(object::ObjectKind, &str); object::ObjectKind::LISTED.len()] = [
    (object::ObjectKind::Plugin, PLUGINS),
    (object::ObjectKind::Tenant, TENANTS),
    (object::ObjectKind::Binding, BINDINGS),
    (object::ObjectKind::Upstream, UPSTREAMS),
    (object::ObjectKind::Model, MODELS),
];

/// Objects of a file.
pub struct ObjectsFile {
    source: ProblemSource,
    objects: [Option<Vec<Value>>; LIST_POINTERS.len()],
    /// The other keys of the file.
    pub others: Vec<String>,
}

impl ObjectsFile {
    /// The objects in `text`, which problems refer to as `file`. References are resolved in `env`, except for
    /// those in plugins' `config` and upstreams' `credential`. `tenants` may contain the list, or be the list.
    ///
    /// # Errors
    /// The problems of each object on its own, and keys that no configuration has: such a key may be a
    /// misspelled list. References between objects aren't checked.
    pub fn read(file: String, text: &str, env: &BTreeMap<String, String>) -> Result<Self, Problems> {
        let schema = Schema::shared();
        let mut parsed = tree::parse(text);
        let is_wrapped = parsed.root.as_mut().is_some_and(wrap);
        // From the complete text: a secret of another section may be in the same line.
        let mut source = ProblemSource::new(file, text, &parsed, schema);
        let mut problems: Vec<Problem> = parsed.faults.into_iter().map(Problem::from).collect();
        let Some(mut root) = parsed.root else {
            if problems.is_empty() {
                problems.push(Problem::new("", "the file is empty").remedy(LISTS_REMEDY));
            }
            return Err(source.render(&problems, |_| None));
        };
        let (others, strange) = part(&mut root, schema);
        problems.extend(strange.iter().map(|member| unknown(&member.key, schema)));
        let ReferenceReport { problems: unresolved, known, .. } =
            resolve(&mut root, env, schema, ConfigReader::Registry);
        problems.extend(unresolved);
        let value = root.to_json();
        if let NodeKind::Map(members) = &mut root.kind {
            // They aren't checked further, but they need a place.
            members.extend(strange);
        }
        source.resolved(&root);

        let mut misfits = validate(&value, schema, &known);
        // The missing rest of a configuration is not a problem here.
        misfits
            .problems
            .retain(|problem| LIST_POINTERS.iter().any(|(_, list)| problem.pointer.starts_with(first(list))));
        let of_list = misfits.problems.iter_mut().filter(|problem| is_wrapped && problem.pointer == TENANTS);
        of_list.for_each(|problem| problem.message = problem.message.replacen("`list`", "`tenants`", 1));
        problems.append(&mut misfits.problems);
        misfits.pointers.extend(known);
        let mut found = check_objects(&PartialConfig::new(&value, &misfits.pointers, schema));
        // Rules about whole lists apply to a complete configuration only.
        found.retain(|problem| {
            LIST_POINTERS.iter().any(|(_, list)| problem.pointer.starts_with(&format!("{list}/")))
        });
        problems.append(&mut found);
        let list = |(_, pointer): (object::ObjectKind, &str)| value.pointer(pointer)?.as_array().cloned();
        let objects = LIST_POINTERS.map(list);
        if objects.iter().all(Option::is_none) && problems.is_empty() {
            problems.push(
                Problem::new("", "the file lists no plugins, tenants, bindings, upstreams or models")
                    .remedy(LISTS_REMEDY),
            );
        }
        if problems.is_empty() {
            Ok(ObjectsFile { source, objects, others })
        } else {
            Err(source.render(&problems, |_| None))
        }
    }

    /// The objects of `kind` in their order. Returns `None` if the file has no such list.
    pub fn values(&self, kind: object::ObjectKind) -> Option<&[Value]> {
        self.objects.get(kind as usize)?.as_deref()
    }

    /// Renders problems: for objects of the file with their line, for others with their name. Pointers begin
    /// at the object.
    pub fn render(&self, wrong: Vec<(ObjectLocation, String)>) -> Problems {
        let mut names = BTreeMap::new();
        let problem = |(place, message): (ObjectLocation, String)| match place {
            ObjectLocation::Object(kind, at, rest) => {
                Problem::new(item(LIST_POINTERS[kind as usize].1, at) + &rest, message)
            }
            ObjectLocation::Other(kind, name, rest) => {
                // No pointer into a file begins like this.
                let pointer = format!("other/{}", names.len());
                names.insert(pointer.clone(), RegistryPlace { kind, name, pointer: rest, in_file: None });
                Problem::new(pointer, message)
            }
            ObjectLocation::Nowhere => Problem::new("", message),
        };
        let problems: Vec<_> = wrong.into_iter().map(problem).collect();
        self.source.render(&problems, |pointer| names.get(pointer).cloned())
    }
}

/// The place of a problem.
pub enum ObjectLocation {
    /// In the object with this kind and index, at this pointer.
    Object(object::ObjectKind, usize, String),
    /// In an object that isn't in the file, by kind and name, at this pointer.
    Other(object::ObjectKind, String, String),
    /// Unknown.
    Nowhere,
}

/// The pointer to the top-level key that is or contains a list.
fn first(list: &str) -> &str {
    list[1..].find('/').map_or(list, |at| &list[..=at])
}

const LISTS_REMEDY: &str = "write `plugins`, `tenants`, `bindings` or `llm` as a configuration has them";

/// Moves a plain list of tenants, or anything that should be one, to where a configuration has it. Returns
/// whether there is any.
fn wrap(root: &mut Node) -> bool {
    let NodeKind::Map(members) = &mut root.kind else { return false };
    let is_bare = |value: &Node| !matches!(value.kind, NodeKind::Map(_) | NodeKind::Null);
    let bare = members.iter_mut().filter(|member| member.key == "tenants" && is_bare(&member.value));
    let mut is_wrapped = false;
    for NodeMember { key_region, value, .. } in bare {
        let (region, origin) = (value.region, value.origin.clone());
        let list = NodeMember { key: "list".to_owned(), key_region: *key_region, value: value.clone() };
        *value = Node { kind: NodeKind::Map(vec![list]), region, origin };
        is_wrapped = true;
    }
    is_wrapped
}

/// Removes everything from `root` but the objects. Returns the removed keys that a configuration has, and the
/// members that it hasn't.
fn part(root: &mut Node, schema: &Schema) -> (Vec<String>, Vec<NodeMember>) {
    let NodeKind::Map(members) = &mut root.kind else { return Default::default() };
    let is_ours = |member: &NodeMember| LIST_POINTERS.iter().any(|(_, list)| first(list)[1..] == member.key);
    let (ours, others): (Vec<_>, Vec<_>) = std::mem::take(members).into_iter().partition(is_ours);
    *members = ours;
    let keys = schema.keys(schema.root());
    let (known, strange): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|member| keys.contains(&member.key.as_str()));
    (known.into_iter().map(|member| member.key).collect(), strange)
}

/// The problem for a key that no configuration has.
fn unknown(key: &str, schema: &Schema) -> Problem {
    let remedy = did_you_mean(key, schema.keys(schema.root()).iter().copied());
    let problem = Problem::at_key(pointer::child("", key), format!("`{key}` is not a key here"));
    problem.remedy(remedy.unwrap_or_else(|| LISTS_REMEDY.to_owned()))
}

/// Parses one object in YAML or JSON, without resolving references.
///
/// # Errors
/// The problems that prevent it, with their lines.
pub fn object(file: String, text: &str) -> Result<super::JsonObject, Problems> {
    let parsed = tree::parse(text);
    let source = ProblemSource::new(file, text, &parsed, Schema::shared());
    let mut problems: Vec<Problem> = parsed.faults.into_iter().map(Problem::from).collect();
    match parsed.root.map(|root| root.to_json()) {
        Some(Value::Object(members)) if problems.is_empty() => return Ok(members),
        Some(Value::Object(_)) => {}
        Some(_) => problems.push(Problem::new("", "the file must hold one object")),
        None if problems.is_empty() => problems.push(Problem::new("", "the file is empty")),
        None => {}
    }
    Err(source.render(&problems, |_| None))
}

#[cfg(test)]
#[path = "objects_file_tests.rs"]
mod tests;
