//! Quotes words for pasting into a shell.

use std::path::{Path, absolute};

use super::output::printable;

/// This program as it was called: by its name, or by its absolute path, which also works in another terminal.
pub(super) fn program() -> String {
    match std::env::args_os().next() {
        Some(called) if called.to_string_lossy().contains('/') => {
            let called = Path::new(&called);
            quoted(&absolute(called).unwrap_or_else(|_| called.to_owned()))
        }
        _ => "hookgate".to_owned(),
    }
}

/// A path as one shell word.
pub(super) fn quoted(path: &Path) -> String {
    word(&printable(&path.display().to_string()))
}

/// A text as one shell word.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    let is_plain = !text.is_empty() && text.chars().all(plain);
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_quoted_path_for_one_word() {
        for (path, word) in [
            ("/srv/hookgate.yaml", "/srv/hookgate.yaml"),
            ("/my files/a", "'/my files/a'"),
            ("/it's;$(x)", r"'/it'\''s;$(x)'"),
        ] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
