//! Imports between the gateway's top-level modules point one way (docs/architecture.md).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use hookgate_tests::repository;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// A module, and the modules that it must never import.
const NEVER: &[(&str, &[&str])] = &[
    ("core", &["*"]),
    ("json", &["*"]),
    ("task", &["*"]),
    ("fs", &["*"]),
    (
        "routing",
        &["upstream", "invoke", "edge", "dataplane", "snapshot", "control", "admin", "app", "telemetry"],
    ),
    (
        "upstream",
        &[
            "routing",
            "invoke",
            "edge",
            "dataplane",
            "snapshot",
            "control",
            "admin",
            "app",
            "store",
            "registry",
        ],
    ),
    ("invoke", &["edge", "dataplane", "snapshot", "control", "admin", "app", "store", "registry", "auth"]),
    ("dataplane", &["control", "admin", "app", "ops", "store", "registry", "upstream"]),
    ("snapshot", &["dataplane", "control", "admin", "app", "ops"]),
    ("control", &["dataplane", "admin", "app", "ops"]),
    ("registry", &["upstream", "dataplane", "snapshot", "control", "admin", "app"]),
    ("admin", &["app"]),
];

#[test]
fn no_circle_joins_two_top_level_modules() {
    let graph = imports();
    assert!(graph.len() > 15, "the sources are found: {graph:?}");
    for module in graph.keys() {
        let mut reached = BTreeSet::new();
        reach(&graph, module, &mut reached);
        assert!(!reached.contains(module), "`{module}` imports itself by way of {reached:?}");
    }
}

#[test]
fn modules_import_nothing_that_the_architecture_forbids() {
    let graph = imports();
    for (module, never) in NEVER {
        let imported = graph.get(*module).cloned().unwrap_or_default();
        let forbidden: Vec<_> =
            imported.iter().filter(|name| never.contains(&"*") || never.contains(&name.as_str())).collect();
        assert!(forbidden.is_empty(), "`{module}` must not import {forbidden:?}");
    }
}

fn reach(graph: &Graph, module: &str, reached: &mut BTreeSet<String>) {
    for next in graph.get(module).into_iter().flatten() {
        if reached.insert(next.clone()) {
            reach(graph, next, reached);
        }
    }
}

/// The other top-level modules that each one imports, without tests.
fn imports() -> Graph {
    let mut graph = Graph::new();
    for file in repository::rust_files() {
        let Ok(inside) = file.strip_prefix("gateway/src") else { continue };
        let first = inside.iter().next().and_then(|part| part.to_str()).expect("our file names are UTF-8");
        let module = first.trim_end_matches(".rs");
        if module == "lib" || is_test(inside) {
            continue;
        }
        let source = fs::read_to_string(repository::root().join(&file)).expect("a listed file is readable");
        let names = imported(&source).into_iter().filter(|name| name != module);
        graph.entry(module.to_owned()).or_default().extend(names);
    }
    graph
}

fn is_test(inside: &Path) -> bool {
    let name = inside.to_str().expect("our file names are UTF-8");
    name.ends_with("tests.rs")
        || name.contains("/tests/")
        || name.contains("dry_run_")
        || name.ends_with("fixtures.rs")
}

/// The first segments of the `crate::` paths before the file's own tests.
fn imported(source: &str) -> Vec<String> {
    let code: String = source
        .split("#[cfg(test)]\nmod ")
        .next()
        .unwrap_or_default()
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(heads(group)),
            None => names.push(identifier(rest)),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The first segment of each path in a group, up to the brace that closes it.
fn heads(group: &str) -> Vec<String> {
    let (mut depth, mut names, mut is_head) = (0, Vec::new(), true);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_head = true,
            _ if is_head && character.is_alphabetic() => {
                names.push(identifier(&group[at..]));
                is_head = false;
            }
            _ => {}
        }
    }
    names
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}
