//! Judges paths by their text: the tool's files are out of reach, so links stay unresolved.
//!
//! A path that systems or tools read in several ways is refused rather than guessed.

/// Characters that some systems convert to a dot, a slash or a backslash: `․`, `‥`, `⁄`, `∕`, `﹒`, `﹨`, `．`, `／`,
/// `＼`.
const LOOKALIKES: [char; 9] = [
    '\u{2024}', '\u{2025}', '\u{2044}', '\u{2215}', '\u{fe52}', '\u{fe68}', '\u{ff0e}', '\u{ff0f}',
    '\u{ff3c}',
];

/// An absolute directory, as the names on the way from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory(Vec<String>);

impl Directory {
    /// # Errors
    /// A sentence about the setting.
    pub(crate) fn parse(written: &str) -> Result<Self, String> {
        let names = names(written, None)
            .map_err(|fault| format!("expected an absolute directory such as `/workspace`, but {fault}"))?;
        if written.split('/').any(|name| name == "..") {
            return Err("expected an absolute directory without `..`".to_owned());
        }
        Ok(Directory(names.into_iter().map(str::to_owned).collect()))
    }

    /// Whether `path` is this directory or below it.
    ///
    /// # Errors
    /// Why the path can't be judged.
    pub(crate) fn contains(&self, path: &str, relative_to: Option<&Directory>) -> Result<bool, &'static str> {
        let names = names(path, relative_to)?;
        Ok(names.iter().take(self.0.len()).eq(&self.0))
    }
}

/// The names on the way from the root to `path`, without `.`, `..` and repeated slashes.
fn names<'p>(path: &'p str, relative_to: Option<&'p Directory>) -> Result<Vec<&'p str>, &'static str> {
    if path.is_empty() {
        return Err("the path is empty");
    }
    if path.contains(char::is_control) {
        return Err("the path has a control character");
    }
    if path.contains('\\') {
        return Err("the path has a backslash");
    }
    // A tool may trim it, and what follows may be absolute.
    if path.starts_with(is_blank) {
        return Err("the path begins with a space");
    }
    if path.contains(LOOKALIKES) {
        return Err("the path has a character that may become a dot or a slash");
    }
    let mut names = match (path.starts_with('/'), relative_to) {
        // POSIX leaves open what exactly two slashes mean; on Windows a server's name follows.
        (true, _) if path.starts_with("//") && !path.starts_with("///") => {
            return Err("the path begins with two slashes");
        }
        (true, _) => Vec::new(),
        (false, _) if path.starts_with('~') => return Err("the path begins with `~`"),
        (false, _) if path.split('/').next().is_some_and(|first| first.contains(':')) => {
            return Err("the path begins with a drive or a scheme");
        }
        (false, None) => return Err("the path is relative"),
        (false, Some(Directory(base))) => base.iter().map(String::as_str).collect(),
    };
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            // Windows drops dots and spaces at the end of a name, so `.. ` may be `..`.
            name if name.trim_matches(|c| c == '.' || is_blank(c)).is_empty() => {
                return Err("the path has a name of nothing but dots and spaces");
            }
            name => names.push(name),
        }
    }
    Ok(names)
}

/// White space, and characters without a width.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn is_under(directory: &str, path: &str) -> Result<bool, &'static str> {
        Directory::parse(directory).unwrap().contains(path, None)
    }

    #[test]
    fn a_path_is_judged_by_where_it_leads() {
        for (path, expected) in [
            ("/work/a", true),
            ("/work", true),
            ("/work/", true),
            ("/work/.", true),
            ("/work//a/./b/", true),
            ("///work/a", true),
            ("/work/a/../b", true),
            ("/../work/a", true),
            ("/etc/../work/a", true),
            ("/work/...a", true),
            ("/work/~/a", true),
            ("/work/a:b", true),
            ("/work/..", false),
            ("/work/../work2/a", false),
            ("/work/a/../../etc/passwd", false),
            ("/worker/a", false),
            ("/Work/a", false),
            ("/wor", false),
            ("/", false),
            ("/etc/work/a", false),
        ] {
            assert_eq!(is_under("/work", path), Ok(expected), "{path}");
        }
        assert_eq!(is_under("/", "/any"), Ok(true));
    }

    #[test]
    fn a_path_with_several_readings_is_not_judged() {
        for path in [
            "",
            "a",
            "../a",
            "./work/a",
            "~/a",
            "~root/a",
            "C:/work/a",
            "file:///work/a",
            "//work/a",
            "/work\\..\\..\\etc",
            "\\work\\a",
            "/work/a\0/../../etc",
            "/work/a\n",
            "/work/.. /etc",
            "/work/.../etc",
            "/work/ /etc",
            "/work/．．/etc",
            "/work/‥/etc",
            "/work/..／..",
            " ",
        ] {
            assert!(is_under("/work", path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_relative_path_starts_at_its_base() {
        let [base, work] = ["/work/repo", "/work"].map(|path| Directory::parse(path).unwrap());
        for (path, expected) in
            [("a", true), ("./a/..", true), ("..", true), ("../..", false), ("../../../etc/passwd", false)]
        {
            assert_eq!(work.contains(path, Some(&base)), Ok(expected), "{path}");
        }
        assert_eq!(work.contains("/etc", Some(&base)), Ok(false));
        for path in ["~", "c:x", " ~/.ssh", "\u{feff}/etc/passwd", "\u{a0}/etc/passwd", "a/\u{200b}../b"] {
            assert!(work.contains(path, Some(&base)).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_directory_of_the_settings_is_absolute_and_plain() {
        for written in ["", "work", "~/work", "/work/../etc", "C:\\work", "//server/share"] {
            assert!(Directory::parse(written).is_err(), "{written}");
        }
        assert_eq!(Directory::parse("/work/"), Directory::parse("/work"));
    }

    proptest! {
        /// The operating system says where a path leads. All generated names exist everywhere.
        #[test]
        fn no_path_outside_passes(
            steps in prop::collection::vec(prop::sample::select(vec!["a", "b", "ab", "..", ".", "", "../.."]), 0..12),
            slash in any::<bool>(),
        ) {
            let root = tempfile::tempdir().unwrap();
            let root = root.path().canonicalize().unwrap();
            for top in ["a", "ab", "b"] {
                for below in ["a", "ab", "b"] {
                    fs::create_dir_all(root.join(top).join(below)).unwrap();
                }
            }
            let directory = root.join("a");
            let path = format!("{}/{}{}", directory.display(), steps.join("/"), if slash { "/" } else { "" });
            let Ok(leads_to) = fs::canonicalize(&path) else { return Ok(()) };
            let judged = is_under(directory.to_str().unwrap(), &path);
            prop_assert_eq!(judged, Ok(leads_to.starts_with(&directory)), "{}", path);
        }

        #[test]
        fn whatever_passes_begins_with_the_directory_once_it_is_plain(path in "/?((a|b|\\.|\\.\\.|\\.\\. |é|~|:|\\\\|work)/{0,3}){0,12}") {
            let base = Directory::parse("/work").unwrap();
            if base.contains(&path, Some(&base)) == Ok(true) {
                // Resolved by popping names one by one, from the base if the path is relative.
                let mut plain = if path.starts_with('/') { String::new() } else { "/work".to_owned() };
                for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
                    match name {
                        ".." => plain.truncate(plain.rfind('/').unwrap_or(0)),
                        name => plain = format!("{plain}/{name}"),
                    }
                }
                prop_assert!(plain == "/work" || plain.starts_with("/work/"), "{} is {}", path, plain);
            }
        }
    }
}
