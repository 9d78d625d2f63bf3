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
    fn files_that_are_missing_or_not_rust_are_refused() {
        for file in ["tests/src/missing.rs", "Cargo.toml"] {
            assert_eq!(Tests::of(file).check("it_holds"), Err("is in no Rust file".to_owned()), "{file}");
        }
    }
}
