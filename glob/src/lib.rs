//! Globs as match conditions write them: `*` (any characters), `?` (one character), `[..]` (one of these), all
//! else literal, case-sensitive, over the whole value (docs/protocol.md, section 3).
//!
//! Turned into a regular expression rather than handed to a crate for globs: those are made for paths, so they
//! give braces, backslashes and `**` a meaning and count bytes, where a tool's name may hold any character
//! (docs/decisions/0005).
//!
//! The only translator, for the gateway's conditions and for plugins with lists of tools; `table.json` holds what
//! all of them are tested against. Knows nothing of either.

use std::{fmt, iter::Peekable, str::Chars};

use regex::RegexSet;

/// A glob of a list that can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidGlob {
    /// The list's entry, such as `tools[2]`, or the list.
    pub field: String,
    /// What is wrong with it, without a subject.
    pub fault: String,
}

impl fmt::Display for InvalidGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.field, self.fault)
    }
}

/// Compiles the globs of a plugin's setting `list`, so that a value is scanned once for all of them.
///
/// # Errors
/// If a glob is empty or broken, or all of them together are too large.
pub fn compile(list: &str, globs: &[String]) -> Result<RegexSet, InvalidGlob> {
    let translate = |(index, glob): (usize, &String)| {
        let invalid = |fault| InvalidGlob { field: format!("{list}[{index}]"), fault };
        if glob.is_empty() {
            return Err(invalid("is empty, so it matches nothing: remove it".to_owned()));
        }
        to_regex(glob).map_err(|fault| invalid(format!("isn't a valid glob: {fault}")))
    };
    let regexes = globs.iter().enumerate().map(translate).collect::<Result<Vec<_>, _>>()?;
    let too_long = |_| InvalidGlob { field: list.to_owned(), fault: "is too long".to_owned() };
    RegexSet::new(regexes).map_err(too_long)
}

/// The regular expression that matches what `glob` matches. Errors are sentences about the glob.
pub fn to_regex(glob: &str) -> Result<String, String> {
    let mut regex = String::from(r"(?s)\A");
    let mut rest = glob.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => regex.push_str(&class(glob, &mut rest)?),
            literal => push_literal(&mut regex, literal),
        }
    }
    regex.push_str(r"\z");
    Ok(regex)
}

/// Whether every name that `glob` matches has a character in common: not everything in it is a wildcard or a class.
pub fn has_literal(glob: &str) -> bool {
    let mut rest = glob.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '*' | '?' => {}
            // What is no glob is refused for that.
            '[' if class(glob, &mut rest).is_ok() => {}
            _ => return true,
        }
    }
    false
}

/// The class that starts after its `[`. As in a shell, `!` or `^` in front negates, and a `]` in the first or a
/// `-` in the first or last place stands for itself.
fn class(glob: &str, rest: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut regex = String::from("[");
    if rest.next_if(|&c| c == '!' || c == '^').is_some() {
        regex.push('^');
    }
    let mut first = true;
    loop {
        let from = match rest.next() {
            None => {
                return Err(format!("`{glob}` has a `[` without its `]`; a literal `[` is written `[[]`"));
            }
            Some(']') if !first => break,
            Some(c) => c,
        };
        first = false;
        push_literal(&mut regex, from);
        // A `-` is a range only between two characters.
        let mut ahead = rest.clone();
        if ahead.next() == Some('-') && ahead.next().is_some_and(|to| to != ']') {
            rest.next();
            let to = rest.next().unwrap_or(from);
            if to < from {
                return Err(format!("`{glob}` has the range `{from}-{to}`, which is the wrong way round"));
            }
            regex.push('-');
            push_literal(&mut regex, to);
        }
    }
    regex.push(']');
    Ok(regex)
}

fn push_literal(regex: &mut String, c: char) {
    regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    #[test]
    fn a_glob_of_wildcards_and_classes_has_no_literal() {
        for glob in ["", "*", "??*", "[a-z]*", "*[!x]", "[]]*", "[a][b]?"] {
            assert!(!has_literal(glob), "{glob}");
        }
        for glob in ["a*", "*.read", "[a-z]_*", "é", "]*", "[a"] {
            assert!(has_literal(glob), "{glob}");
        }
    }

    fn matches(glob: &str, value: &str) -> bool {
        Regex::new(&to_regex(glob).expect("a valid glob")).expect("a valid expression").is_match(value)
    }

    #[test]
    fn globs_know_star_question_mark_and_class_only() {
        let table: Vec<(String, String, bool)> =
            serde_json::from_str(include_str!("../table.json")).expect("the table is JSON");
        for (glob, value, expected) in table {
            assert_eq!(matches(&glob, &value), expected, "{glob} on {value}");
        }
    }

    #[test]
    fn broken_classes_are_refused_with_the_remedy() {
        for (glob, part) in [("fs[", "[[]"), ("a[]", "without its `]`"), ("[!", "[[]"), ("[z-a]", "z-a")] {
            let message = to_regex(glob).expect_err(glob);
            assert!(message.contains(part) && message.contains(glob), "{message}");
        }
    }

    #[test]
    fn a_list_matches_with_any_entry_and_names_a_broken_one() {
        let globs = |list: &[&str]| list.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
        let set = compile("tools", &globs(&["fs.*", "web.get"])).expect("valid globs");
        assert!(set.is_match("fs.read") && set.is_match("web.get") && !set.is_match("web.post"));
        assert!(!compile("tools", &[]).expect("no globs").is_match(""));
        let broken = compile("tools", &globs(&["fs.*", "web["])).expect_err("a broken glob");
        assert_eq!(broken.field, "tools[1]");
        let empty = compile("tools", &globs(&[""])).expect_err("an empty glob");
        assert_eq!(empty.to_string(), "`tools[0]` is empty, so it matches nothing: remove it");
        assert!(broken.to_string().starts_with("`tools[1]` isn't a valid glob: `web[` has a `["), "{broken}");
    }

    /// What a glob without classes means, spelt out.
    fn model(glob: &[char], value: &[char]) -> bool {
        match (glob, value) {
            ([], rest) => rest.is_empty(),
            (['*', glob @ ..], _) => (0..=value.len()).any(|skip| model(glob, &value[skip..])),
            (['?', glob @ ..], [_, value @ ..]) => model(glob, value),
            ([c, glob @ ..], [v, value @ ..]) => c == v && model(glob, value),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(glob in "[ab.é{}\\\\*?]{0,8}", value in "[ab.é{}\\\\]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&glob, &value), model(&chars(&glob), &chars(&value)));
        }

        #[test]
        fn every_glob_is_an_expression_or_is_refused(glob in any::<String>(), class in "\\[[\\PC]{0,6}\\]") {
            for glob in [glob, class] {
                if let Ok(regex) = to_regex(&glob) {
                    prop_assert!(Regex::new(&regex).is_ok(), "{} became {}", glob, regex);
                }
            }
        }
    }
}
