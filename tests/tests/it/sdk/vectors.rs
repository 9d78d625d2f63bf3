//! One suite of cases for the SDKs of all languages: a plugin gets a payload and a script, and must give a reply
//! (tests/vectors/README.md). Each language's plugin is a real process that is called as a gateway calls it.

mod calls;
mod canonical;
mod cases;

use std::collections::HashSet;

use hookgate_tests::{
    python,
    typescript::{JsRuntime, sdk, serve_fixture},
};
use tokio::process::Command;
use tonic::Code;

use self::{
    calls::VectorClient,
    cases::{Case, Need},
};
use crate::plugins::process::{PluginProcess, unix};

/// An SDK, and what of its language decides about cases.
struct Language {
    name: &'static str,
    /// The command that serves the plugin at an address.
    command: fn(&str) -> Command,
    /// What the language has of what some cases need.
    has: &'static [Need],
    /// The status of an error that the plugin doesn't catch.
    uncaught: Code,
}

/// A panic is a mistake of the plugin, so it counts against its circuit breaker.
const RUST: Language = Language { name: "Rust", command: serve_rust, has: &[], uncaught: Code::Internal };

const NODE: Language = Language {
    name: "TypeScript under Node",
    command: |address| serve_typescript(JsRuntime::Node, address),
    has: &[Need::IllFormedTexts, Need::AnyDurations],
    // In JavaScript odd input is enough for an exception, and must not take the plugin out of service.
    uncaught: Code::Aborted,
};

const BUN: Language = Language {
    name: "TypeScript under Bun",
    command: |address| serve_typescript(JsRuntime::Bun, address),
    ..NODE
};

const PYTHON: Language = Language {
    name: "Python",
    command: serve_python,
    has: &[Need::IllFormedTexts, Need::AnyDurations],
    // As in JavaScript.
    uncaught: Code::Aborted,
};

/// Every language in which a vector may run.
const LANGUAGES: [Language; 4] = [RUST, NODE, BUN, PYTHON];

fn serve_rust(address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vector-plugin"));
    command.arg(address);
    command
}

fn serve_typescript(runtime: JsRuntime, address: &str) -> Command {
    command_of(&serve_fixture(runtime, "vectors.ts", address))
}

fn serve_python(address: &str) -> Command {
    command_of(&python::serve_fixture("vectors.py", address))
}

fn command_of(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

impl Language {
    fn runs(&self, case: &Case) -> bool {
        case.needs.iter().all(|need| self.has.contains(need))
    }

    /// Makes all calls that the language can answer, and lists those with another answer than expected.
    async fn check(&self) {
        let folder = tempfile::tempdir().unwrap();
        let plugin = PluginProcess::run((self.command)(&unix(folder.path(), "vectors"))).await;
        let mut client = VectorClient::connect(&plugin.address).await;
        let mut differences = Vec::new();
        let cases: Vec<_> = cases::all().into_iter().filter(|case| self.runs(case)).collect();
        for case in &cases {
            if let Err(difference) = client.check(case, self.uncaught).await {
                differences.push(format!("{}: {}\n{difference}\n", case.file, case.name));
            }
        }
        assert!(
            differences.is_empty(),
            "{}: {} of {} cases differ\n\n{}",
            self.name,
            differences.len(),
            cases.len(),
            differences.join("\n")
        );
    }
}

#[tokio::test]
async fn rust_plugins_give_the_replies_of_the_vectors() {
    RUST.check().await;
}

#[tokio::test]
async fn typescript_plugins_give_the_replies_of_the_vectors_under_node() {
    tokio::task::spawn_blocking(sdk).await.unwrap();
    NODE.check().await;
}

#[tokio::test]
async fn typescript_plugins_give_the_replies_of_the_vectors_under_bun() {
    tokio::task::spawn_blocking(sdk).await.unwrap();
    BUN.check().await;
}

#[tokio::test]
async fn python_plugins_give_the_replies_of_the_vectors() {
    tokio::task::spawn_blocking(python::sdk).await.unwrap();
    PYTHON.check().await;
}

#[test]
fn every_vector_has_a_name_of_its_own_and_a_language_that_runs_it() {
    let cases = cases::all();
    let name = |case: &Case| format!("{}: {}", case.file, case.name);
    let idle: Vec<_> =
        cases.iter().filter(|case| !LANGUAGES.iter().any(|it| it.runs(case))).map(name).collect();
    assert!(idle.is_empty(), "no language runs these: {idle:?}");
    let mut names = HashSet::new();
    let repeated: Vec<_> = cases.iter().map(name).filter(|name| !names.insert(name.clone())).collect();
    assert!(repeated.is_empty(), "several cases have these names: {repeated:?}");
}
