//! Finds the tests in a source file by its text. Listing them by running every test binary would require
//! building all of them first.

use std::fs;

use crate::repository;

/// The tests of one source file.
#[derive(Debug)]
pub struct Tests {
    /// `None` if there is no such file.
    code: Option<String>,
}

impl Tests {
    /// Reads a Rust file, named relative to the repository's folder.
    pub fn of(file: &str) -> Self {
        let is_rust = file.rsplit_once('.').is_some_and(|(_, extension)| extension == "rs");
        let source = is_rust.then(|| fs::read_to_string(repository::root().join(file)).ok()).flatten();
        Tests { code: source.map(|source| without_comments(&source)) }
    }

    /// Reads a file with tests in TypeScript, named relative to the repository's folder.
    pub fn of_typescript(file: &str) -> Self {
        let is_test = file.ends_with(".test.ts");
        Tests { code: is_test.then(|| fs::read_to_string(repository::root().join(file)).ok()).flatten() }
    }

    /// Checks that the file contains this test function and doesn't ignore it.
    ///
    /// # Errors
    /// What is wrong, in words that follow the test's name in a sentence.
    pub fn check(&self, function: &str) -> Result<(), String> {
        let code = self.code.as_deref().ok_or("is in no Rust file")?;
        let needle = format!("fn {function}(");
        let mut found = false;
        for (position, _) in code.match_indices(&needle) {
            found = true;
            let attributes = attributes_before(&code[..position]);
            if attributes.contains("ignore") {
                return Err("is ignored".into());
            }
            if !is_test(attributes) {
                return Err("is not a test".into());
            }
        }
        if found { Ok(()) } else { Err("does not exist".into()) }
    }

    /// Checks that the file in TypeScript has a test of this title and doesn't skip it.
    ///
    /// # Errors
    /// What is wrong, in words that follow the test's title in a sentence.
    pub fn check_title(&self, title: &str) -> Result<(), String> {
        let code = self.code.as_deref().ok_or("is in no TypeScript file with tests")?;
        let needle = format!("test(\"{title}\", ");
        let mut tests = code.lines().filter_map(|line| line.strip_prefix(&needle)).peekable();
        tests.peek().ok_or("does not exist")?;
        // Options, such as `skip`, would be in between.
        let runs = |rest: &str| rest.starts_with("async (") || rest.starts_with('(');
        if tests.all(runs) { Ok(()) } else { Err("has options, so it may be skipped".into()) }
    }
}

/// Removes lines that are only a comment, which may contain anything, including code.
fn without_comments(source: &str) -> String {
    source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The text between the previous item and the function; attributes contain none of these three characters.
fn attributes_before(code: &str) -> &str {
    let start = code.rfind(['{', '}', ';']).map_or(0, |position| position + 1);
    &code[start..]
}

fn is_test(attributes: &str) -> bool {
    ["#[test]", "#[tokio::test]", "#[tokio::test("].iter().any(|attribute| attributes.contains(attribute))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str) -> Result<(), String> {
        Tests { code: Some(without_comments(source)) }.check("it_holds")
    }

    #[test]
    fn tests_of_every_kind_are_found() {
        for source in [
            "#[test]\nfn it_holds() {}",
            "mod tests { #[test] fn it_holds() {} }",
            "fn other() {}\n#[tokio::test]\nasync fn it_holds() {}",
            "#[tokio::test(start_paused = true)]\n// why { ; }\nasync fn it_holds() {}",
            "proptest! {\n    #[test]\n    fn it_holds(n in 0..9_u8) {}\n}",
        ] {
            assert_eq!(check(source), Ok(()), "{source}");
        }
    }

    #[test]
    fn what_does_not_run_is_refused() {
        for (source, reason) in [
            ("fn it_holds() {}", "is not a test"),
            ("#[test]\nfn it_holds_not() {}", "does not exist"),
            ("// #[test] fn it_holds() {}", "does not exist"),
            ("#[test]\nfn other() {}\nfn it_holds() {}", "is not a test"),
            ("#[test]\n#[ignore]\nfn it_holds() {}", "is ignored"),
            ("#[test]\n#[ignore = \"slow\"]\nfn it_holds() {}", "is ignored"),
            ("#[cfg_attr(debug_assertions, ignore)]\n#[test]\nfn it_holds() {}", "is ignored"),
        ] {
            assert_eq!(check(source), Err(reason.to_owned()), "{source}");
        }
    }

    #[test]
    fn tests_in_typescript_are_found_by_their_title() {
        let check = |source: &str| Tests { code: Some(source.to_owned()) }.check_title("it holds");
        for source in ["test(\"it holds\", () => {});", "// Why.\ntest(\"it holds\", async (t) => {\n});"] {
            assert_eq!(check(source), Ok(()), "{source}");
        }
        for (source, reason) in [
            ("test(\"it holds not\", () => {});", "does not exist"),
            ("// test(\"it holds\", () => {});", "does not exist"),
            ("test.skip(\"it holds\", () => {});", "does not exist"),
            ("test(\"it holds\", { skip: true }, () => {});", "has options, so it may be skipped"),
        ] {
            assert_eq!(check(source), Err(reason.to_owned()), "{source}");
        }
        for file in ["sdk/missing.test.ts", "sdk/typescript/src/index.ts"] {
            assert!(Tests::of_typescript(file).check_title("it holds").is_err(), "{file}");
        }
    }

    #[test]
    fn files_that_are_missing_or_not_rust_are_refused() {
        for file in ["tests/src/missing.rs", "Cargo.toml"] {
            assert_eq!(Tests::of(file).check("it_holds"), Err("is in no Rust file".to_owned()), "{file}");
        }
    }
}
