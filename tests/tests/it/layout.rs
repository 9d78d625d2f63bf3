//! Rules about the source files that no lint knows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hookgate_tests::repository;

/// A longer file has more than one subject.
const MOST_LINES: usize = 500;

#[test]
fn no_written_source_file_is_over_500_lines() {
    let long: Vec<_> = repository::rust_files()
        .into_iter()
        .filter(|file| !file.iter().any(|folder| folder == "gen"))
        .map(|file| (lines(&file), file))
        .filter(|(lines, _)| *lines > MOST_LINES)
        .collect();
    assert!(long.is_empty(), "split these files by subject: {long:?}");
}

/// A test in a file that no `mod` declares would silently never run.
#[test]
fn every_source_file_is_part_of_its_crate() {
    let orphans: Vec<_> =
        repository::rust_files().into_iter().filter(|file| !is_named_by_a_parent(file)).collect();
    assert!(orphans.is_empty(), "no `mod` names these files: {orphans:?}");
}

fn lines(file: &Path) -> usize {
    fs::read_to_string(repository::root().join(file)).expect("a listed file is readable").lines().count()
}

/// Whether cargo finds the file by itself, or a parent declares it.
fn is_named_by_a_parent(file: &Path) -> bool {
    let folder = file.parent().expect("a file is in a folder");
    let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("our file names are UTF-8");
    if matches!(stem, "main" | "lib")
        || is_searched_by_cargo(folder)
        || folder.iter().any(|part| part == "gen")
    {
        return true;
    }
    let (name, around) = if stem == "mod" {
        (
            folder.file_name().and_then(|name| name.to_str()).expect("a module's folder has a name"),
            folder.parent(),
        )
    } else {
        (stem, Some(folder))
    };
    let around = around.expect("a module is in a crate");
    parents(around).iter().any(|parent| declares(parent, name)) || is_named_by_path(file, folder)
}

/// Whether a sibling declares it with a `path` attribute, as for long test modules.
fn is_named_by_path(file: &Path, folder: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).expect("our file names are UTF-8");
    let attribute = format!("#[path = \"{name}\"]");
    let beside = repository::rust_files().into_iter().filter(|other| other.parent() == Some(folder));
    beside.into_iter().any(|other| {
        fs::read_to_string(repository::root().join(other)).is_ok_and(|source| source.contains(&attribute))
    })
}

/// Whether cargo treats every file of the folder as its own target.
fn is_searched_by_cargo(folder: &Path) -> bool {
    let package = |folder: &Path| repository::root().join(folder).join("Cargo.toml").exists();
    let beside_manifest = ["tests", "examples", "benches"].iter().any(|name| folder.ends_with(name))
        && folder.parent().is_some_and(package);
    beside_manifest || folder.ends_with("src/bin")
}

/// The files that may declare a folder's files.
fn parents(folder: &Path) -> Vec<PathBuf> {
    vec![folder.join("mod.rs"), folder.join("lib.rs"), folder.join("main.rs"), folder.with_extension("rs")]
}

fn declares(parent: &Path, name: &str) -> bool {
    let Ok(source) = fs::read_to_string(repository::root().join(parent)) else {
        return false;
    };
    let declaration = format!("mod {name};");
    source.lines().map(str::trim).any(|line| {
        line.strip_suffix(&declaration).is_some_and(|before| before.is_empty() || before.starts_with("pub"))
    })
}
