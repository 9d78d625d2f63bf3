//! The plugins, tenants and bindings of a file that somebody wants to write to a registry: read as a configuration's are,
//! without the rest of one. What is wrong with them has its line, whoever finds it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    config::{
        BINDINGS, PLUGINS, TENANTS,
        check::check_objects,
        load::{ReferenceReport, resolve},
        partial_config::PartialConfig,
        problem::{Problem, ProblemSource, Problems, did_you_mean, item},
        schema::Schema,
        tree::{self, Node, NodeKind, NodeMember},
        validate::validate,
    },
    core::object,
};

/// Where the objects of each kind stand.
const LIST_POINTERS: [(object::ObjectKind, &str); 3] = [
    (object::ObjectKind::Plugin, PLUGINS),
    (object::ObjectKind::Tenant, TENANTS),
    (object::ObjectKind::Binding, BINDINGS),
];

/// Objects of a file.
pub struct ObjectsFile {
    source: ProblemSource,
    objects: [Option<Vec<Value>>; 3],
    /// What else is in the file, by its key.
    pub others: Vec<String>,
}

impl ObjectsFile {
    /// What `text` of `file` lists, references resolved in `env` but for those of plugins' `config`. `tenants` may hold
    /// their list, or be it.
    ///
    /// # Errors
    /// What is wrong with it by itself, object by object, and keys that no configuration has: one of them may be a list,
    /// misspelt. What one asks of another isn't judged.
    pub fn read(file: String, text: &str, env: &BTreeMap<String, String>) -> Result<Self, Problems> {
        let schema = Schema::shared();
        let mut parsed = tree::parse(text);
        let is_wrapped = parsed.root.as_mut().is_some_and(wrap);
        // Of all that is there: a secret of another part may stand in the same line.
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
        let ReferenceReport { problems: unresolved, known, .. } = resolve(&mut root, env, schema);
        problems.extend(unresolved);
        let value = root.to_json();
        if let NodeKind::Map(members) = &mut root.kind {
            // Nothing is asked of them, but they have a place.
            members.extend(strange);
        }
        source.resolved(&root);

        let mut misfits = validate(&value, schema, &known);
        // The rest of a configuration is missing, of course.
        misfits
            .problems
            .retain(|problem| LIST_POINTERS.iter().any(|(_, list)| problem.pointer.starts_with(first(list))));
        let of_list = misfits.problems.iter_mut().filter(|problem| is_wrapped && problem.pointer == TENANTS);
        of_list.for_each(|problem| problem.message = problem.message.replacen("`list`", "`tenants`", 1));
        problems.append(&mut misfits.problems);
        misfits.pointers.extend(known);
        let mut found = check_objects(&PartialConfig::new(&value, &misfits.pointers, schema));
        // What is said of a whole list is said of a whole configuration.
        found.retain(|problem| {
            LIST_POINTERS.iter().any(|(_, list)| problem.pointer.starts_with(&format!("{list}/")))
        });
        problems.append(&mut found);
        let list = |(_, pointer): (object::ObjectKind, &str)| value.pointer(pointer)?.as_array().cloned();
        let objects = LIST_POINTERS.map(list);
        if objects.iter().all(Option::is_none) && problems.is_empty() {
            problems.push(
                Problem::new("", "the file lists no plugins, tenants or bindings").remedy(LISTS_REMEDY),
            );
        }
        if problems.is_empty() {
            Ok(ObjectsFile { source, objects, others })
        } else {
            Err(source.render(&problems, |_| None))
        }
    }

    /// The objects of `kind` in their order; none: the file has no such list.
    pub fn values(&self, kind: object::ObjectKind) -> Option<&[Value]> {
        self.objects.get(kind as usize)?.as_deref()
    }

    /// Shows what is wrong with the object at a place among those of its kind with its line, and what is wrong with another
    /// by its name. Pointers begin at the object.
    pub fn render(&self, wrong: Vec<(ObjectLocation, String)>) -> Problems {
        let mut names = BTreeMap::new();
        let problem = |(place, message): (ObjectLocation, String)| match place {
            ObjectLocation::Object(kind, at, rest) => {
                Problem::new(item(LIST_POINTERS[kind as usize].1, at) + &rest, message)
            }
            ObjectLocation::Other(kind, name, rest) => {
                // No place of a file begins so.
                let pointer = format!("other/{}", names.len());
                names.insert(pointer.clone(), (kind, name, rest));
                Problem::new(pointer, message)
            }
            ObjectLocation::Nowhere => Problem::new("", message),
        };
        let problems: Vec<_> = wrong.into_iter().map(problem).collect();
        self.source.render(&problems, |pointer| names.get(pointer).cloned())
    }
}

/// Where something is wrong.
pub enum ObjectLocation {
    /// In the object of this kind with this number, there.
    Object(object::ObjectKind, usize, String),
    /// In one that the file doesn't list.
    Other(object::ObjectKind, String, String),
    /// Nobody says where.
    Nowhere,
}

/// The pointer to what holds a list, or is it.
fn first(list: &str) -> &str {
    list[1..].find('/').map_or(list, |at| &list[..=at])
}

const LISTS_REMEDY: &str = "write `plugins`, `tenants` or `bindings` as a configuration has them";

/// Puts a list of tenants where a configuration has it, and what should be one; whether there is any.
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

/// Leaves only what holds objects in `root`, and gives back the keys of the rest that a configuration has, and the members
/// that none has.
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

/// What is wrong with a key that no configuration has.
fn unknown(key: &str, schema: &Schema) -> Problem {
    let remedy = did_you_mean(key, schema.keys(schema.root()).iter().copied());
    let problem = Problem::at_key(tree::child("", key), format!("`{key}` is not a key here"));
    problem.remedy(remedy.unwrap_or_else(|| LISTS_REMEDY.to_owned()))
}

/// One object as a person wrote it down: YAML or JSON, references as they stand.
///
/// # Errors
/// What keeps it from being one, with its line.
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
