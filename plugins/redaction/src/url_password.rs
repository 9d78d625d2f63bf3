//! Finds passwords in URLs such as `postgres://user:password@host`.
//!
//! People write passwords there as they are, with `@` and `/` in them. So a password ends at the last `@` of its word that a host
//! follows, but an address in the path behind a name such as `db.example.com` is no part of it.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};
use regex::Regex;

/// A single character in an example is no password.
const MIN_PASSWORD_BYTES: usize = 2;
/// No longer user is looked for, so that a word of many schemes is fast.
const MAX_USER_BYTES: usize = 1024;
/// No longer password is looked for. Tokens may be that long.
const MAX_PASSWORD_BYTES: usize = 8 << 10;
/// How many `@` of a URL may end its password.
const MAX_SIGNS: usize = 24;
/// The longest start of a URL.
const MAX_START_BYTES: usize = 24;

/// Where a URL may have a user. JSON may escape its slashes.
static START_PATTERN: LazyLock<Regex> = LazyLock::new(|| own(r":(?://|\\/\\/)|jdbc:oracle:[a-z0-9]{2,5}:"));

/// The user, who may be a mail address or a placeholder. Behind an address, a number is a port and a path may have an `@`.
static USER_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    own(r#"(?x) ^ (?:
        (?: [^\s/:@"'<>\[]+ @ [A-Za-z0-9-]+ (?: \. [A-Za-z0-9-]+ )+ : )
      | (?: [^\s/:@"'<>\[] | < [A-Za-z_-]{1,40} > )* : )"#)
});

/// The user in a URL of Oracle's JDBC driver.
static ORACLE_USER_PATTERN: LazyLock<Regex> = LazyLock::new(|| own(r#"^[^\s/:@"'<>]+/"#));

/// A variable or a place in a template.
const REFERENCE: &str = r"(?: [$\#]? \{ (?:env:)? [A-Za-z0-9_.()\[\]-]* \} | \$? \{\{ [^{}\s@]* \}\}
    | \$ (?: [A-Z_] [A-Z0-9_]* | [0-9] | \( [A-Za-z0-9_.-]+ \) )
    | % (?: [sdrv] | [A-Z_] [A-Z0-9_]* % | \( [A-Za-z0-9_.]+ \) s ) )";

/// A port, and what shows that no password begins with it.
static PORT_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    own(&format!(
        r"(?x) ^ (?: [0-9]{{1,5}} [/?\#\\] | [0-9]{{2,5}} (?: [,;|)] | & [A-Za-z_]+ = ) | {REFERENCE}+ [/?\#] )"
    ))
});

/// What stands for a password, or hides one.
static STAND_IN_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    own(&format!(r"(?x) ^ (?: \*{{2,}} | •+ | …+ | \.{{3,}} | \[ [A-Z]+ \] | {REFERENCE}+ ) $"))
});

/// A host or several, and what may follow them.
static HOST_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let name = r#"(?: [^\s/:@,;|\\"'`<>()\[\]{}$?\#&!=*+~^]+ | \[ [A-Za-z0-9:.%]+ \] | < [A-Za-z0-9_.\x20-]{1,40} > | \*+
        | [a-z]+ \( [^()\s]* \) | REFERENCE )"#;
    let host = format!(r"{name} (?: : (?: [A-Za-z0-9_]+ | REFERENCE | < [a-z]+ > ) )*")
        .replace("REFERENCE", REFERENCE);
    own(&format!(r#"(?x) ^ (?: // )? {host} (?: , {host} )* (?: [/?\#\s"'`<>\\,;|)\]}}] | $ )"#))
});

fn own(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant that the tests compile")
}

/// What a URL has before its host.
#[derive(Debug)]
pub(crate) struct UserInfo {
    /// Where it begins: the colon behind the scheme.
    pub(crate) start: usize,
    /// Up to the `@` in front of the host. It may be empty or a reference.
    pub(crate) password: Range<usize>,
    /// The first `@` that a host follows. From there on up to the end of the password, it may be a path.
    pub(crate) first_host: usize,
}

/// The passwords alone. A reference such as `${PASSWORD}` isn't one, and neither is a mask.
pub(crate) fn find_all(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let passwords = user_infos(text, cut).into_iter().map(|user| user.password);
    let is_password = |found: &Range<usize>| {
        found.len() >= MIN_PASSWORD_BYTES && !STAND_IN_PATTERN.is_match(&text.text()[found.clone()])
    };
    passwords.filter(is_password).collect()
}

/// The URLs with a colon behind their user, in order.
pub(crate) fn user_infos(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<UserInfo> {
    let content = text.text();
    let open = if text.is_last() { content.len() } else { text.start() + open_from(text.content()) };
    cut.hold_from(open);
    let (mut found, mut at) = (Vec::new(), text.start());
    let (mut sign, mut word_end) = (0, 0);
    while let Some(start) = START_PATTERN.find_at(content, at).filter(|start| start.start() < open) {
        at = start.end();
        if start.as_str().starts_with(':') && !content[..start.start()].ends_with(ends_scheme) {
            continue;
        }
        if sign < at {
            let Some(next) = content[at..].find('@') else { break };
            sign = at + next;
        }
        if sign - at > MAX_USER_BYTES + MAX_PASSWORD_BYTES {
            continue;
        }
        let Some(user) = User::new(content, start.as_str(), at) else { continue };
        if word_end < user.end {
            word_end = user.end + content[user.end..].find(ends_word).unwrap_or(content.len() - user.end);
        }
        if let Some((password, first_host)) = user.password(content, word_end) {
            at = password.end;
            cut.keep_whole(start.start()..at + 1);
            found.push(UserInfo { start: start.start(), password, first_host });
        }
    }
    found
}

/// Also the end of a placeholder. The scheme of a pattern for URLs ends otherwise, as in `https?://(.*):(.*)@`.
fn ends_scheme(char: char) -> bool {
    char.is_ascii_alphanumeric() || "}>".contains(char)
}

fn ends_word(char: char) -> bool {
    char.is_whitespace() || "\"'<>".contains(char)
}

/// From where on a URL at the end of a window may go on: it has no white space.
fn open_from(window: &str) -> usize {
    let word = window.rfind(char::is_whitespace).map_or(0, |space| window.ceil_char_boundary(space + 1));
    let start = START_PATTERN.find(&window[word..]).map_or(window.len(), |start| word + start.start());
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b":/\\".contains(byte);
    let half = window[word..].bytes().rev().take(MAX_START_BYTES).take_while(is_part).count();
    start.min(window.len() - half)
}

/// The user of a URL.
#[derive(Debug)]
struct User {
    /// Where a password may begin.
    end: usize,
    is_empty: bool,
    /// A path may follow, because the user is a mail address, or a number of Oracle's driver.
    has_path: bool,
}

impl User {
    /// The user behind the scheme of a URL, up to a colon.
    fn new(text: &str, scheme: &str, start: usize) -> Option<Self> {
        let rest = &text[start..text.floor_char_boundary(start + MAX_USER_BYTES)];
        let is_oracle = scheme.starts_with("jdbc");
        let user = if is_oracle { &ORACLE_USER_PATTERN } else { &USER_PATTERN }.find(rest)?;
        let has_path = is_oracle || user.as_str().contains('@');
        Some(User { end: start + user.len(), is_empty: user.len() == 1, has_path })
    }

    /// Its password, in a word that ends at `word_end`, and the first `@` that a host follows.
    fn password(&self, text: &str, word_end: usize) -> Option<(Range<usize>, usize)> {
        let word = &text[self.end..text.floor_char_boundary(word_end.min(self.end + MAX_PASSWORD_BYTES))];
        let word = if self.has_path { word.split('/').next().unwrap_or_default() } else { word };
        // Behind `host:`, a slash begins a path.
        if PORT_PATTERN.is_match(word) || word.starts_with('/') && !self.is_empty {
            return None;
        }
        let (length, first) = password_length(word, &text[self.end..])?;
        Some((self.end..self.end + length, self.end + first))
    }
}

/// The length of the password at the beginning of a word, up to an `@`, and of what is in front of the first `@` that a host follows. In
/// `rest` the text goes on.
fn password_length(word: &str, rest: &str) -> Option<(usize, usize)> {
    let (mut length, mut first) = (None, None);
    for (at, _) in word.match_indices('@').take(MAX_SIGNS) {
        if length.is_some_and(|length: usize| START_PATTERN.is_match(&word[length..at])) {
            break; // the next URL
        }
        let Some(host) = HOST_PATTERN.find(&rest[at + 1..]) else { continue };
        length = Some(at);
        first = first.or(length);
        if at == 0 || STAND_IN_PATTERN.is_match(&word[..at]) || is_certain(host.as_str()) {
            break;
        }
    }
    let length = length.or_else(|| word.rfind('@'))?;
    Some((length, first.unwrap_or(length)))
}

/// Whether a password is unlikely to have these hosts behind an `@`, because the first one is an address, or has a domain or a port.
fn is_certain(hosts: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_part = |char: char| char.is_alphanumeric() || "_.-%".contains(char);
    let host = hosts.trim_start_matches('/');
    let (name, rest) = host.split_at(host.find(|char| !is_part(char)).unwrap_or(host.len()));
    let port = rest.strip_prefix(':').map_or(0, |port| port.bytes().take_while(u8::is_ascii_digit).count());
    let last = name.rsplit('.').next().unwrap_or_default();
    let has_domain =
        last.len() < name.len() && last.len() >= 2 && last.bytes().all(|byte| byte.is_ascii_lowercase());
    host.starts_with('[')
        || port >= 2
        || has_domain && !name.bytes().any(|byte| byte.is_ascii_uppercase())
        || name.split('.').count() == 4 && name.split('.').all(is_number)
        || name == "localhost"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Detector, Redactor};

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
            "p@ss/w@rd",
            "a#b@c?d=e&f",
            "p%40ss%2Fw",
            "x@y,z@1:2",
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
        let joined = r"http://c:first@h,http://d:sec/ond@h
E=redis://:/third@h
F=ftp://g:fourth@[::1]:21";
        assert_eq!(found(joined), ["first", "sec/ond", "/third", "fourth"]);
        let behind_a_reference = r"A=postgres://u:${PW}@h\nB=postgres://v:real1234@h2";
        assert_eq!(found(behind_a_reference), ["real1234"]);
        assert!(found("http://a:***@h&next=http://c:real1234@h")[0].contains("real1234"));
    }

    #[test]
    fn a_long_password_is_found_whole() {
        let password = format!("a@{}", "Ab1".repeat(1500));
        assert_eq!(found(&format!("https://aws:{password}@d.example.com")), [password]);
    }

    #[test]
    fn an_address_behind_a_host_is_one_without_this_detector() {
        let redactor: Redactor = [Detector::Email].into_iter().collect();
        for (text, redacted) in [
            ("http://u:pw@db/?to=ada@example.com", "http://u:pw@db/?to=[EMAIL]"),
            ("x,postgres://u:pw@db/orders,ada@example.com", "x,postgres://u:pw@db/orders,[EMAIL]"),
            ("postgres://u:p@ss@db.example.com/orders", "postgres://u:p@ss@db.example.com/orders"),
        ] {
            assert_eq!(redactor.redact(text, None).text, redacted);
        }
    }

    #[test]
    fn a_password_ends_at_its_host() {
        for host in [
            "db.example.com",
            "localhost/orders",
            "db:5432/orders",
            "10.0.0.1/orders",
            "[2001:db8::1]/orders",
            "a.example.com:27017,b.example.com:27017/orders",
            "$DB_HOST:$DB_PORT/orders",
            "{host}:{port}/orders",
            "<host>/orders",
            "tcp(db.example.com:3306)/orders",
            "db.example.com/?to=ada@example.com",
            "db.example.com:80/ada@example.com",
            r"db.example.com/orders\nMAIL=ada@example.com",
            "db.example.com,ada@example.com",
            r"db.example.com\/orders",
        ] {
            assert_eq!(found(&format!("x://u:p@ss/w0rd@{host}")), ["p@ss/w0rd"], "{host}");
            assert_eq!(found(&format!(r"x:\/\/u:p@ss/w0rd@{host}")), ["p@ss/w0rd"], "{host}");
        }
        assert_eq!(
            found("x://u:p@ss@db/orders?to=ada@example.com"),
            ["p@ss@db/orders?to=ada"],
            "no sure host"
        );
        assert_eq!(found("x://ada@example.com:p#ss!@db.example.com/a@b"), ["p#ss!"]);
        assert_eq!(found("jdbc:oracle:thin:ada/p#s@s@//db.example.com:1521/a@b"), ["p#s@s"]);
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
            "http://localhost:3000&email=ada@example.com",
            "http://localhost:3000,ada@example.com",
            "mongodb://a:27017,b:27017/x?y=ada@example.com",
            r"http:\/\/localhost:3000\/ada@example.com",
            "jdbc:oracle:thin:@db.example.com:1521:ORCL",
            "https://example.com/a:b@c",
            r"https?://(.*):(.*)@(.*)",
            r"^(\w+)://(.*):(.*)@(.*)$",
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

        #[test]
        fn the_host_stays_whatever_else_is_looked_for(
            password in "[a-z][A-Za-z0-9@/#!*+=~?%$&_-]{8,12}[a-z]",
            host in "(db\\.example\\.com|10\\.0\\.0\\.1|db)(:5432)?(/orders)?[ \"']",
        ) {
            let redactor: Redactor = Detector::ALL.into_iter().collect();
            let text = format!("postgres://ada:{password}@{host}");
            let redacted = redactor.redact(&text, None).text;
            prop_assert_eq!(redacted, format!("postgres://ada:[REDACTED]@{host}"));
        }
    }
}
