//! Finds values that are keys because of what names them: a label in a text, an option of a command, an element of XML, a cell of a
//! table, or the JSON member that holds the text.
//!
//! Prose and code often mention tokens without containing one: `the token: something`, `token: CancellationToken`. So the less
//! certain a label is, the more a value has to look like a key ([`Certainty`]).

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{
    TextPattern,
    email_context::is_in_authority,
    labelled_value::{Certainty, LabelledValue},
    word_start,
};

/// How far in front of a label it matters what it is a part of.
const MAX_CONTEXT_BYTES: usize = 256;

/// What precedes `key`, `token` or `secret` in a name that can't be a word of prose, unlike `token`.
const QUALIFIERS: &str = "api|app|access|account|admin|auth|bot|client|deploy|encryption|hmac|id|jwt|master|private|refresh|secret|service|\
    session|shared|signing|storage|subscription|token|webhook";

/// A type between a name and its value, such as `&'static str`, `Optional[str]` and `string | undefined`.
const TYPE: &str = r"[&?]? (?:'static\x20)? [a-z] [a-z0-9_.]{0,23} (?: [<\[] [a-z0-9_.]{1,23} [>\]] )? [?!]? (?: \x20\|\x20 [a-z]{1,23} )?";

/// Tokens of pages and the like, which no tool can do without.
const PLACES: [&str; 9] =
    ["page", "next", "previous", "continuation", "cursor", "sync", "resume", "pagination", "cancellation"];

/// Matches up to where the value begins. No repetition is without a limit, so
/// that in a window only its end is searched slowly.
static LABEL_PATTERN: LazyLock<TextPattern> = LazyLock::new(|| {
    TextPattern::own(&format!(
        r#"(?xi-u)
        (?:
            password \x20 for \x20 [a-z0-9_.@-]{{1,60}} (?: : | \x20 is ) \x20
          | (?: (?: (?:{QUALIFIERS}) [_-]? (?:key|token|secret) )
              | (?:{QUALIFIERS}) \x20 (?:key|token|secret)
              | token | secret | (?: password | passphrase | passwd | pwd | [_-]pass | requirepass ) | authorization
            )
            (?: _? [0-9]{{1,2}} | _base )?
            (?:
                \\{{0,4}} ["'`]? (?: \]|\[\] )? [*_]{{0,2}} [\x20\t]{{0,9}}
                (?: string \x20 = | : \x20? {TYPE} \x20? = | ={{1,3}} >? | (?: [?]{{1,2}} | [|][|] | [:+] ) = | : )
                [*_]{{0,2}} [\x20\t]{{0,9}}
                (?: [bfru$@]{{0,2}} (?: \\{{0,4}} ["'`] ) )?
                (?: (?: bearer | basic | token ) [\x20\t]{{1,9}} )?
              | \\{{0,4}} ["']? (?: ,\s{{0,9}} | \s{{1,20}} ) \\{{0,4}} ["']? value \\{{0,4}} ["']? \x20? [:=] \x20? (?: \\{{0,4}} ["'] )?
              | ["']? [)\]]? \x20 (?: or | [|][|] | [?][?] ) \x20 ["']
              | \x20 (?: -> | → ) \x20
              | " \s? \{{ \s{{0,20}} (?: type \s{{0,9}} = \s? string \s{{1,20}} )? default \s{{0,9}} = \s? "
              | (?: ["'`], \s{{0,9}} | \( \s{{0,9}} ) ["'`] (?: (?: bearer | basic | token ) \x20 )?
              | (?: ["']? (?: > | \s{{0,9}} </(?:t[dh]|key)> \s{{0,20}} <(?:t[dh]|string)> ) )
              | (?: [*_`]{{0,2}} [\x20\t]{{0,20}} \| [\x20\t]{{0,20}} [*_`]{{0,2}} )
              | \x20 is (?: \x20 now )? :? \x20 ["'`*]{{0,2}}
              | (?: \s{{1,9}} ["'`]? )
            )
          | identified \x20 (?: with \x20 [a-z0-9_"'`]{{1,40}} \x20 )? by \x20 (?:password \x20)? ["']
          | set \x20 password \x20 for \x20 [a-z0-9_.%@'"`-]{{1,80}} \x20? = \x20? (?: password [(] )? ["']
          | to-securestring \x20 (?: -string \x20 )? ["']
          | {start} bearer [\x20\t]{{1,9}}
        )"#,
        start = word_start(),
    ))
});

/// Options of commands with a password, up to where it begins.
static OPTION_PATTERN: LazyLock<TextPattern> = LazyLock::new(|| {
    TextPattern::own(
        r#"(?x-u) (?: -u \x20? | --user [\x20=] \x20? ) ["']? [A-Za-z0-9._%+@-]{1,64} : | -[pa] \x20? ["']?"#,
    )
});

/// Names of JSON members whose value is a key. `token` alone isn't one: it may be the token of a page.
static MEMBER_PATTERN: LazyLock<TextPattern> = LazyLock::new(|| {
    TextPattern::own(&format!(
        r"(?xi-u)
        (?: (?:{QUALIFIERS}|bearer) [\x20_-]? (?:key|token|secret)
          | secret | password | passphrase | passwd | pwd | authorization ) $"
    ))
});

static SCHEME_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own(r"^(?i-u:bearer|basic|token)[\x20\t]+"));

/// Values that are keys because of the label before them, or because of the name of the JSON member that holds the
/// text. A label within a value counts too, so that nothing can hide behind another label.
pub(crate) fn find_all(text: &AnswerText<'_>, member: Option<&str>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let content = text.text();
    let mut found = Vec::from_iter(member.and_then(|name| labelled_by_member(name, content)));
    let options = OPTION_PATTERN.find_all(text, cut);
    let options = options.into_iter().filter(|option| is_option(content, option));
    for label in LABEL_PATTERN.find_all(text, cut).into_iter().chain(options) {
        let value = LabelledValue::new(content, label.end, &content[label.clone()]);
        // A value that reaches to the end of a window may go on, and so may what comes after it say what it is.
        if value.reaches_end() && !text.is_last() {
            cut.hold_from(label.start);
            continue;
        }
        cut.keep_whole(label.start..value.range.end);
        if certainty(content, &label, value.range.end).is_some_and(|certainty| value.is_key(certainty)) {
            found.push(value.range);
        }
    }
    found
}

/// The text without its scheme, if it is a key: one word, and no reference such as `${API_KEY}`.
fn labelled_by_member(name: &str, text: &str) -> Option<Range<usize>> {
    let name = MEMBER_PATTERN.find(name)?.as_str();
    let start = SCHEME_PATTERN.find(text).map_or(0, |scheme| scheme.end());
    let value = LabelledValue::whole(text, start);
    value.is_key(Certainty::Name { is_password: is_password(name) }).then_some(value.range)
}

fn is_password(name: &str) -> bool {
    let name = name.as_bytes();
    name.windows(4).any(|word| word.eq_ignore_ascii_case(b"pass"))
        || name.windows(3).any(|word| word.eq_ignore_ascii_case(b"pwd"))
}

/// Whether a value fills an element, or what is left of a cut one; unlike what follows `<password>` in `<user>:<password>@host`.
fn is_text_of_element(text: &str, value: Range<usize>) -> bool {
    let rest = text[value.end..].trim_start();
    !text[value].starts_with('@') && (rest.is_empty() || rest.starts_with('<'))
}

/// How certain it is that the value after a label is a key; `None` if what matched is no label at this place.
fn certainty(text: &str, label: &Range<usize>, value_end: usize) -> Option<Certainty> {
    let start = text.ceil_char_boundary(label.start.saturating_sub(MAX_CONTEXT_BYTES));
    let (value, before, label) = (label.end..value_end, &text[start..label.start], &text[label.clone()]);
    let line = before.rsplit('\n').next().unwrap_or_default();
    let starts_with =
        |word: &str| label.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if label.starts_with('-') || ["identified", "set password", "to-secure"].into_iter().any(starts_with) {
        return Some(Certainty::Place);
    }
    let joints = [" -> ", " → ", " or ", "|| ", "?? "];
    if starts_with("password for") || joints.iter().any(|joint| label.contains(joint)) {
        return Some(Certainty::Context);
    }
    let name = &label
        [..label.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte)).count()];
    let is_name = name.len() > "secret".len()
        && ["key", "token", "secret"]
            .iter()
            .any(|word| name[name.len() - word.len()..].eq_ignore_ascii_case(word));
    if !is_name && follows_place(before) {
        return None;
    }
    let joint = &label[name.len()..];
    let (is_quoted, is_password) = (label.ends_with(['"', '\'', '`']), is_password(name));
    if joint.contains('=') {
        return Some(Certainty::Name { is_password });
    }
    if joint.contains('>') {
        let is_open = || before.rfind(['<', '>']).is_some_and(|at| before[at..].starts_with('<'));
        let is_element = is_text_of_element(text, value) && is_open();
        return (is_element || joint.contains("</")).then_some(Certainty::Context);
    }
    if joint.contains('|') {
        let is_cell = line
            .trim_end_matches(|char: char| char.is_ascii_alphanumeric() || "_- *`".contains(char))
            .ends_with('|');
        return is_cell.then_some(Certainty::Context);
    }
    if let Some((_, after)) = joint.split_once(':').filter(|(before, _)| !before.ends_with("is")) {
        if is_in_authority(before) {
            return None; // `https://x-access-token:...@host`: the name of a user
        }
        let has_scheme = after.contains(|char: char| char.is_ascii_alphabetic());
        let is_certain = is_name || is_quoted || has_scheme;
        return Some(if is_certain {
            Certainty::Name { is_password }
        } else {
            Certainty::Word { is_password }
        });
    }
    if joint.contains([',', '(']) || joint.contains(" is") || joint.contains(" IS") {
        return Some(Certainty::Context);
    }
    match joint.trim_start().is_empty()
        && !is_setting(line)
        && !is_after_login(before)
        && !starts_with("requirepass")
    {
        true if name.to_ascii_lowercase().contains("bearer") => Some(Certainty::Bearer),
        is_prose => (!is_prose || is_quoted).then_some(Certainty::Context),
    }
}

/// Whether a token is that of a page or the like, which no tool can do without.
fn follows_place(before: &str) -> bool {
    let before = before.trim_end_matches(['_', '-']).as_bytes();
    PLACES.iter().any(|place| {
        before.len() >= place.len()
            && before[before.len() - place.len()..].eq_ignore_ascii_case(place.as_bytes())
    })
}

/// Whether the name at the end of a line is an option of a command or the first operand of one that sets a variable. A hyphen behind a
/// word or a mask begins no option.
fn is_setting(line: &str) -> bool {
    let before = line.trim_end_matches(|char: char| char.is_ascii_alphanumeric() || "_-.".contains(char));
    let command = before.split_ascii_whitespace().next_back().unwrap_or_default();
    let begins_word =
        before.is_empty() || before.ends_with(|char: char| char.is_whitespace() || "\"'`(\\".contains(char));
    begins_word && line[before.len()..].starts_with('-')
        || matches!(command, "ENV" | "ARG" | "setx" | "set" | "-x")
}

/// Whether `login NAME` ends the text, as in a netrc.
fn is_after_login(before: &str) -> bool {
    before.ends_with(char::is_whitespace) && before.split_ascii_whitespace().nth_back(1) == Some("login")
}

/// Whether an option is one with a password of the command in its line.
fn is_option(text: &str, option: &Range<usize>) -> bool {
    let start = text.ceil_char_boundary(option.start.saturating_sub(MAX_CONTEXT_BYTES));
    let (line, option) = (&text[start..option.start], &text[option.clone()]);
    let line = line.rsplit('\n').next().unwrap_or_default();
    let has_command = |commands: &[&str]| {
        let mut words =
            line.split_ascii_whitespace().map(|word| word.trim_start_matches(['"', '\'', '$', '(', '`']));
        line.ends_with(' ') && words.any(|word| commands.contains(&word))
    };
    match option.as_bytes() {
        [.., b':'] => has_command(&["curl", "wget", "http", "https", "xh"]),
        [_, b'a', ..] => has_command(&["redis-cli"]),
        [_, _, b' ', ..] => has_command(&["sshpass", "login", "twine"]),
        _ => {
            has_command(&["sshpass", "login", "mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"])
        }
    }
}
