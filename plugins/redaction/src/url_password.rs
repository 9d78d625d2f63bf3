//! Finds passwords in URLs such as `postgres://user:password@host`.
//!
//! People write passwords there as they are, with `@` and `/` in them. So a password ends at the last `@` of its word. What is
//! hidden too much is then a host or a path, and never too little.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};
use regex::Regex;

/// A single character in an example is no password.
const MIN_PASSWORD_BYTES: usize = 2;
/// The longest scheme that is looked at.
const MAX_SCHEME_BYTES: usize = 32;

/// What stands for a password, or hides one, comes first. No other `@` may follow it before the host ends: `$P@ssw0rd` is no
/// reference. Digits before a path are a port. An `@` begins a password only if another one precedes the path, because the password
/// may be empty.
static URL_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?x)
        jdbc:oracle: [a-z0-9]{2,5} : [^\s/:@"'<>]+ / (?<oracle> [^\s"'<>@/$%{*] [^\s"'<>@/]* ) @
        | [A-Za-z] [A-Za-z0-9+.-]{0,31} :// [^\s/:@"'<>\[]+ @ [A-Za-z0-9-]+ (?: \. [A-Za-z0-9-]+ )+ :
          (?<behind_address> [^\s"'<>@/$%{*\[] [^\s"'<>@/\\]{3,} ) @
        | [A-Za-z] [A-Za-z0-9+.-]{0,31} :// (?: [^\s/:@"'<>\[] | < [A-Za-z_-]{1,40} > )* :
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
    .expect("the pattern is a constant that the tests compile")
});

/// The passwords alone. A reference such as `${PASSWORD}` isn't one, and neither is a mask.
pub(crate) fn find_all(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let content = text.text();
    let open = if text.is_last() { content.len() } else { open_from(text.content()) + text.start() };
    cut.hold_from(open);
    let (mut found, mut at) = (Vec::new(), text.start());
    while let Some(url) = URL_PATTERN.find_at(content, at).filter(|url| url.start() < open) {
        at = url.end();
        cut.keep_whole(url.range());
        found.extend(password_in(content, url.range()));
    }
    found
}

/// From where on a URL at the end of a window may go on: it has no white space.
fn open_from(window: &str) -> usize {
    let word = window.rfind(char::is_whitespace).map_or(0, |space| window.ceil_char_boundary(space + 1));
    let scheme = window[word..].find("://").map_or(window.len(), |at| word + at);
    let before = window[word..scheme].trim_end_matches(['/', ':']);
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+.-".contains(byte);
    let scheme =
        word + before.len() - before.bytes().rev().take_while(is_scheme).take(MAX_SCHEME_BYTES).count();
    window[word..].find("jdbc:").map_or(scheme, |jdbc| scheme.min(word + jdbc))
}

/// The password in a match.
fn password_in(text: &str, url: Range<usize>) -> Option<Range<usize>> {
    let captures = URL_PATTERN.captures(&text[url.clone()])?;
    let found = ["password", "oracle", "behind_address"].into_iter().find_map(|name| captures.name(name))?;
    (found.len() >= MIN_PASSWORD_BYTES).then_some(url.start + found.start()..url.start + found.end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let answer = AnswerText::whole(text);
        find_all(&answer, &mut SafeCut::new(&answer)).into_iter().map(|range| &text[range]).collect()
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
