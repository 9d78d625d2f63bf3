//! Finds passwords in URLs such as `postgres://user:password@host`.
//!
//! People write passwords there as they are, with `@` and `/` in them. So a password ends at the last `@` of its word. What is
//! hidden too much is then a host or a path, and never too little.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{Ranges, TextPattern};

/// A single character in an example is no password.
const MIN_PASSWORD_BYTES: usize = 2;

/// What stands for a password, or hides one, comes first. No other `@` may follow it before the host ends: `$P@ssw0rd` is no
/// reference. Digits before a path are a port. An `@` begins a password only if another one precedes the path, because the password
/// may be empty.
static URL_PATTERN: LazyLock<TextPattern> = LazyLock::new(|| {
    TextPattern::own(
        r#"(?x)
        [A-Za-z] [A-Za-z0-9+.-]* :// [^\s/:@"'<>\[]* :
        (?:
            (?:
                \*{2,} | •+ | …+ | \.{3,} | \[ [A-Z]+ \]
              | (?:
                    [$\#]? \{ (?:env:)? [A-Za-z0-9_.()\[\]]* \}
                  | \$? \{\{ [^{}\s@]* \}\}
                  | \$ (?: [A-Z_] [A-Z0-9_]* | [0-9] | \( [A-Za-z0-9_.-]+ \) )
                  | % (?: [sdrv] | [A-Z_] [A-Z0-9_]* % | \( [A-Za-z0-9_.]+ \) s )
                )+
            )
            @ (?: :* [^\s/:@,;|\\"'<>] )* (?: / | :* (?: [\s,;|\\"'<>] | $ ) )
          | (?: [$\#]? \{ (?:env:)? [A-Za-z0-9_.()\[\]-]* \} | \$? \{\{ [^{}\s@]* \}\} | \$ [A-Z_] [A-Z0-9_]* | % [sdv] )+ [/?\#]
          | (?<password>
                [0-9]{6,} [^\s"'<>]*
              | [0-9]+ (?: [^0-9/?\#\\\s"'<>] [^\s"'<>]* )?
              | [^0-9/@\s"'<>] [^\s"'<>]*
              | @ [^\s/"'<>]+
            )
            @
        )"#,
    )
});

/// The passwords alone. A reference such as `${PASSWORD}` isn't one, and neither is a mask.
pub(crate) fn find(text: &str) -> Ranges<'_> {
    Box::new(URL_PATTERN.find_iter(text).filter_map(|url| password_in(text, url.range())))
}

pub(crate) fn find_in_window(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let urls = URL_PATTERN.find_in_window(text, cut);
    urls.into_iter().filter_map(|url| password_in(text.text(), url)).collect()
}

/// The password in a match.
fn password_in(text: &str, url: Range<usize>) -> Option<Range<usize>> {
    let found = URL_PATTERN.captures(&text[url.clone()])?.name("password")?;
    (found.len() >= MIN_PASSWORD_BYTES).then_some(url.start + found.start()..url.start + found.end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> Vec<&str> {
        find(text).map(|range| &text[range]).collect()
    }

    #[test]
    fn passwords_are_found_as_people_write_them() {
        for password in [
            "p@ssw0rdLong123",
            "pa55@word1234",
            "${PW}real1234secret",
            "$ecretPassw0rd99",
            "$P@ssw0rd1",
            "***@x1",
            "pa/ss1234567",
            "ab",
            "1234",
            "123456#secret",
            "8080a/b",
            "@start",
            "#1?&=",
            "!$%&()",
            "a[b]c",
            "**real",
            "${PW:-default}",
            "пароль",
        ] {
            for (before, after) in [
                ("mysql://root:", "@h"),
                ("DB=postgres://u:", "@db.example.com:5432/x?a=b"),
                ("'redis://:", "@h:1/0', a@b.org"),
                (r"A\npostgres+ssl://u-1:", r"@h\n"),
            ] {
                assert_eq!(found(&format!("{before}{password}{after}")), [password], "{before}");
            }
        }
        let two = "http://h:80/a http://a:${B}@h,http://c:first@h http://d:second@h";
        assert_eq!(found(two), ["first", "second"]);
        let behind_a_reference = r"A=postgres://u:${PW}@h\nB=postgres://v:real1234@h2";
        assert_eq!(found(behind_a_reference), ["real1234"]);
        assert!(found("http://a:***@h&next=http://c:real1234@h")[0].contains("real1234"));
    }

    #[test]
    fn references_and_masks_are_no_passwords() {
        for reference in [
            "${PASSWORD}",
            "${env:DB_PASSWORD}",
            "${process.env.DB_PASSWORD}",
            "$PASSWORD",
            "$1",
            "$(PASSWORD)",
            "{password}",
            "{}",
            "#{password}",
            "{{password}}",
            "${{secrets.PASSWORD}}",
            "{{ .Values.password }}",
            "<password>",
            "%s",
            "%(password)s",
            "%PASSWORD%",
            "${USER}$PASSWORD",
            "**",
            "***",
            "[REDACTED]",
            "[EMAIL]",
            "•••",
            "...",
        ] {
            for after in ["h/db", "h:80/@scope/pkg@1.2"] {
                let text = format!("postgres://u:{reference}@{after}");
                assert_eq!(found(&text), [""; 0], "{text}");
            }
        }
        assert_eq!(found("an example is http://u:p@host"), [""; 0]);
    }

    #[test]
    fn ports_and_paths_are_no_passwords() {
        for text in [
            "https://host:8080/path@v1",
            "http://host:8080/@scope/pkg",
            "http://host:8080?q=a@b",
            "http://host:8080#a@b",
            "git+ssh://git@host:22/x@y",
            "ssh://git@github.com:org/repo@v1",
            "http://user:@host/pkg@v1",
            "http://host:/path@v1",
            "http://[::1]:8080/path@v1",
            "http://[fe80::1]:3000/x@y",
            r"URL=http://localhost:3000\nMAIL=ada@example.com",
            "http://host:8080 ada@example.com",
            "http://localhost:${port}/@vite/client",
            "http://{host}:{port}/users/{user}@{domain}",
            "http://localhost:${port}/?email=ada@example.com",
            "https://example.com/a:b@c",
            "mailto:ada@example.com",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_character_of_a_password_stays(
            password in "[A-Za-z!&()+,:;=?^_`~|\\\\-][A-Za-z!$%&()*+,.:;=?@^_`{|}~/\\\\-]{0,12}[a-z]{4}[0-9]{4}",
            host in "[a-z]{1,8}(:[0-9]{1,4})?(/[a-z]{0,5})?",
        ) {
            let text = format!("postgres://u:{password}@{host}");
            prop_assert_eq!(found(&text), [password.as_str()]);
        }
    }
}
