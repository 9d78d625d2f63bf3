//! Patterns from a plugin's settings.

use regex::{Regex, RegexBuilder};

/// The maximum size of a compiled pattern. The time to search grows with the size, and with the length of the text.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Compiles a pattern from the settings, in the syntax of the crate `regex`. The time that a search takes is linear
/// in the length of the text.
///
/// # Errors
/// What is wrong with the pattern, as the end of a sentence that begins with its setting.
pub fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    let regex =
        RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).build().map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                "is too large: write shorter repetitions, or several patterns".to_owned()
            }
            other => format!("isn't a valid regular expression: {}", fault(&other)),
        })?;
    match regex.is_match("") {
        true => Err("must not match the empty text".to_owned()),
        false => Ok(regex),
    }
}

/// The last line of the crate's message. The lines above repeat the pattern.
fn fault(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_with_a_mistake_is_refused_with_the_reason() {
        for (pattern, reason) in [
            ("(a", "isn't a valid regular expression: unclosed group"),
            (r"(?=a)b", "isn't a valid regular expression: look-around"),
            ("a*", "must not match the empty text"),
            ("", "must not match the empty text"),
            (r"\w{1000}{1000}", "is too large"),
        ] {
            let error = compile_pattern(pattern).unwrap_err();
            assert!(error.starts_with(reason), "{pattern}: {error}");
        }
        assert!(compile_pattern(r"\bEMP-\d{6}\b").unwrap().is_match("EMP-123456"));
    }
}
