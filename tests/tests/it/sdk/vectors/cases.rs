//! Reads the files of cases. A case that is to run with each of some values becomes one case for each value.

use std::{collections::BTreeMap, fs, path::Path};

use hookgate_tests::repository;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// The file of the values that cases are run with.
const VALUES: &str = "values.json";
/// What a case writes in place of the value.
const PLACEHOLDER: &str = "\"$value\"";

/// Lists of values, each with a name, by the names of the lists.
type ValueLists = BTreeMap<String, BTreeMap<String, Box<RawValue>>>;

/// A call, and the answer that is expected.
#[derive(Debug)]
pub(super) struct Case {
    /// The file that has it.
    pub(super) file: String,
    pub(super) name: String,
    /// The point, the hook or the tool that is called.
    pub(super) callee: Callee,
    /// JSON text: the payload as over HTTP, the body of a hook, or a tool's arguments.
    pub(super) payload: String,
    /// JSON text: the context as over HTTP.
    pub(super) context: String,
    /// JSON text: the tenant-level configuration of the call.
    pub(super) script: String,
    /// What a language must have.
    pub(super) needs: Vec<Need>,
    /// The language ends the message in words of its own.
    pub(super) own_words: bool,
    pub(super) expected: ExpectedAnswer,
}

/// What is called.
#[derive(Debug)]
pub(super) enum Callee {
    Point(String),
    Hook(String),
    Tool(String),
}

/// What some cases need and not every language has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Need {
    /// A text may hold half a surrogate pair.
    IllFormedTexts,
    /// A duration may be any number, also one below zero or with a fraction.
    AnyDurations,
}

#[derive(Debug)]
pub(super) enum ExpectedAnswer {
    /// JSON text: the reply in the form of programs that speak JSON (docs/writing-a-plugin-shell.md).
    Reply(String),
    Error(ExpectedError),
}

/// An error status.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedError {
    /// As gRPC names it; `UNCAUGHT` is the language's own for errors that the plugin doesn't catch.
    pub(super) status: String,
    /// Not compared if it is absent.
    pub(super) message: Option<String>,
}

/// A case as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCase {
    name: String,
    point: Option<String>,
    hook: Option<String>,
    tool: Option<String>,
    payload: Box<RawValue>,
    context: Option<Box<RawValue>>,
    script: Option<Box<RawValue>>,
    #[serde(default)]
    with_each: Vec<String>,
    #[serde(default)]
    needs: Vec<Need>,
    #[serde(default)]
    own_words: bool,
    reply: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

/// Every case of every file.
pub(super) fn all() -> Vec<Case> {
    let folder = repository::root().join("tests/vectors");
    let lists: ValueLists = parse(&fs::read_to_string(folder.join(VALUES)).unwrap(), VALUES);
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| is_cases_file(path)).collect();
    files.sort();
    files.iter().flat_map(|path| read(path, &lists)).collect()
}

fn is_cases_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json") && !path.ends_with(VALUES)
}

fn read(path: &Path, lists: &ValueLists) -> Vec<Case> {
    let file = path.file_name().and_then(|name| name.to_str()).unwrap();
    let written: Vec<Box<RawValue>> = parse(&fs::read_to_string(path).unwrap(), file);
    written.iter().flat_map(|case| expand(case.get(), file, lists)).collect()
}

fn expand(text: &str, file: &str, lists: &ValueLists) -> Vec<Case> {
    let case: WrittenCase = parse(text, file);
    if case.with_each.is_empty() {
        return vec![finish(case, file)];
    }
    assert!(text.contains(PLACEHOLDER), "{file}: {}: there is no {PLACEHOLDER}", case.name);
    let values = case.with_each.iter().flat_map(|list| {
        lists.get(list).unwrap_or_else(|| panic!("{file}: {}: there is no list `{list}`", case.name))
    });
    let with = |name: &str, value: &RawValue| {
        let case: WrittenCase = parse(&text.replace(PLACEHOLDER, value.get()), file);
        let name = format!("{}: {name}", case.name);
        finish(WrittenCase { name, ..case }, file)
    };
    values.map(|(name, value)| with(name, value)).collect()
}

fn finish(case: WrittenCase, file: &str) -> Case {
    let place = format!("{file}: {}", case.name);
    let callee = match (case.point, case.hook, case.tool) {
        (Some(point), None, None) => Callee::Point(point),
        (None, Some(hook), None) => Callee::Hook(hook),
        (None, None, Some(tool)) => Callee::Tool(tool),
        _ => panic!("{place}: a case has either `point`, `hook` or `tool`"),
    };
    let expected = match (case.reply, case.error) {
        (Some(reply), None) => ExpectedAnswer::Reply(reply.get().to_owned()),
        (None, Some(error)) => ExpectedAnswer::Error(parse(error.get(), &place)),
        _ => panic!("{place}: a case has either `reply` or `error`"),
    };
    let object = |text: Option<Box<RawValue>>| text.map_or("{}".to_owned(), |text| text.get().to_owned());
    Case {
        file: file.to_owned(),
        name: case.name,
        callee,
        payload: case.payload.get().to_owned(),
        context: object(case.context),
        script: object(case.script),
        needs: case.needs,
        own_words: case.own_words,
        expected,
    }
}

fn parse<T: DeserializeOwned>(text: &str, place: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{place}: {error}"))
}
