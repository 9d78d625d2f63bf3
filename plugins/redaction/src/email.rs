//! Finds e-mail addresses. What surrounds `user@host` says whether it is one, or something that an agent runs: a remote of Git, the
//! target of ssh, the name of a unit or of a file. With a mask, a command would lead elsewhere.

use std::ops::Range;

use hookgate_sdk::window::{AnswerText, SafeCut};

/// No mailbox has a longer name. Without a limit, a long run of letters would be kept back in a window.
const MAX_NAME_BYTES: usize = 128;
/// How far in front of an address its command may begin.
const MAX_COMMAND_BYTES: usize = 256;

/// Endings of files and of systemd's units, none of which is a top-level domain.
const SUFFIXES: [&str; 44] = [
    "png",
    "jpg",
    "jpeg",
    "gif",
    "svg",
    "webp",
    "avif",
    "bmp",
    "ico",
    "pdf",
    "tgz",
    "gz",
    "xz",
    "tar",
    "js",
    "mjs",
    "cjs",
    "ts",
    "tsx",
    "jsx",
    "css",
    "scss",
    "json",
    "yaml",
    "yml",
    "toml",
    "xml",
    "html",
    "txt",
    "lock",
    "log",
    "conf",
    "woff",
    "ttf",
    "patch",
    "service",
    "socket",
    "timer",
    "target",
    "mount",
    "automount",
    "slice",
    "scope",
    "swap",
];

/// Commands that connect to `user@host`, and settings with such a host.
const LOGIN_COMMANDS: [&str; 7] = ["ssh", "mosh", "sftp", "autossh", "ssh-copy-id", "sshfs", "ProxyJump"];
/// Commands that take `user@host:path`.
const COPY_COMMANDS: [&str; 5] = ["scp", "rsync", "sftp", "sshfs", "git"];

pub(crate) fn find_all(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let (content, mut found, mut end) = (text.text(), Vec::new(), text.start());
    if !text.is_last() {
        cut.hold_from(end + name_start(&content[end..]));
    }
    for (at, _) in content[text.start()..].match_indices('@') {
        let at = text.start() + at;
        if at < end {
            continue;
        }
        let start = end + name_start(&content[end..at]);
        let host = &content[at + 1..at + 1 + host_length(&content[at + 1..])];
        if start == at {
            continue;
        }
        let Some(length) = domain_length(host) else {
            if at + 1 + host.len() == content.len() && !text.is_last() {
                cut.hold_from(start);
            }
            continue;
        };
        end = at + 1 + length;
        cut.keep_whole(start..end);
        if !text.is_last() && is_open(host.len() - length, &content[end..]) {
            cut.hold_from(start);
        }
        if !is_of_command(&content[..start], &host[..length], &content[end..]) {
            found.push(start..end);
        }
    }
    found
}

/// Where the name of a mailbox begins that ends where the text does.
fn name_start(text: &str) -> usize {
    let limit = text.ceil_char_boundary(text.len().saturating_sub(MAX_NAME_BYTES));
    let is_joined = text.chars().next_back().is_some_and(is_unspaced);
    let is_part = |char: char| {
        char.is_ascii_alphanumeric()
            || matches!(char, '.' | '_' | '%' | '+' | '-')
            || !char.is_ascii() && is_letter(char, is_joined)
    };
    let begin = text[limit..].char_indices().rev().take_while(|(_, char)| is_part(*char)).last();
    begin.map_or(text.len(), |(at, _)| limit + at)
}

/// The length of what may be a host at the beginning of a text.
fn host_length(text: &str) -> usize {
    let is_joined = text.chars().next().is_some_and(is_unspaced);
    let is_part = |char: char| {
        char.is_ascii_alphanumeric()
            || matches!(char, '.' | '-')
            || !char.is_ascii() && is_letter(char, is_joined)
    };
    text.find(|char| !is_part(char)).unwrap_or(text.len())
}

/// The length of a domain with a dot at the beginning of a host: it ends with at least two letters.
fn domain_length(host: &str) -> Option<usize> {
    host.rmatch_indices('.').find_map(|(at, _)| {
        let last = &host[at + 1..];
        let length =
            last.find(|char: char| ".-".contains(char) || char.is_ascii_digit()).unwrap_or(last.len());
        (at > 0 && last[..length].chars().nth(1).is_some()).then_some(at + 1 + length)
    })
}

/// Whether a letter may be a part of an address. Texts of scripts without spaces touch addresses, so their letters are only
/// a part if an address begins or ends with one.
fn is_letter(char: char, is_joined: bool) -> bool {
    char.is_alphabetic() && (is_joined || !is_unspaced(char)) || ('\u{300}'..='\u{36f}').contains(&char)
}

/// Whether a letter is of a script that sets no spaces between words or before particles.
fn is_unspaced(char: char) -> bool {
    matches!(char, '\u{e00}'..='\u{109f}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17ff}' | '\u{2e80}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ffdc}' | '\u{20000}'..)
}

/// Whether more text may change what is found, because it ends with `rest` bytes of the host or with what follows the domain.
fn is_open(rest: usize, after: &str) -> bool {
    match after.as_bytes() {
        [b' ', b'~'] | [b' '] | [b'('] => true,
        [b':', path @ ..] => match path.iter().position(|byte| b" \t\r\n:/\"'<>|".contains(byte)) {
            Some(at) => path[at] == b'/' && at + 1 == path.len(),
            None => true,
        },
        _ => rest == after.len(),
    }
}

/// Whether `user@domain` between `before` and `after` is a part of a command, a URL or a name.
fn is_of_command(before: &str, domain: &str, after: &str) -> bool {
    let mut labels = domain.split('.');
    let is_number = |label: &str| label.trim_start_matches('v').bytes().all(|byte| byte.is_ascii_digit());
    let is_version = labels.next().is_some_and(is_number)
        && labels.next().is_some_and(|label| label.starts_with(|char: char| char.is_ascii_digit()));
    let suffix = domain.rsplit('.').next().unwrap_or_default();
    is_version
        || SUFFIXES.iter().any(|name| name.eq_ignore_ascii_case(suffix))
        || after.starts_with("()")
        || is_prompt_or_path(after)
        || is_in_authority(before)
        || is_target(before, after)
}

/// Whether a prompt or a path follows a host, as in `host ~]$`, `host:~/x` and `host:acme/site.git`.
fn is_prompt_or_path(after: &str) -> bool {
    if let Some(home) = after.strip_prefix(" ~") {
        return home.chars().next().is_none_or(|char| "]/ ".contains(char));
    }
    let Some(path) = after.strip_prefix(':') else { return false };
    let end =
        path.find(|char: char| char.is_ascii_whitespace() || ":/\"'<>|".contains(char)).unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    let is_path = name.starts_with(['~', '.'])
        || name.ends_with(".git")
        || rest.starts_with('/') && (name.is_empty() || !rest.starts_with("//"));
    is_path && !name.contains('@')
}

/// Whether a text ends within what names the user in a URL.
pub(crate) fn is_in_authority(before: &str) -> bool {
    let start = before.rfind(|char: char| char.is_ascii_whitespace() || "/@\"'<>?#".contains(char));
    start.is_some_and(|start| before[..=start].ends_with("://"))
}

/// Whether a text ends with a command that connects to a host: only options and their values may follow its name. A command that
/// copies has a path behind the host.
fn is_target(before: &str, after: &str) -> bool {
    let start = before.ceil_char_boundary(before.len().saturating_sub(MAX_COMMAND_BYTES));
    let has_path =
        after.strip_prefix(':').is_some_and(|path| path.starts_with(|char: char| char.is_alphanumeric()));
    let mut is_value = false;
    for word in before[start..].rsplit([' ', '\t']) {
        let begin = word.rfind(['\n', ';']).map(|end| end + 1);
        let word = word[begin.unwrap_or(0)..]
            .trim_matches(|char: char| !char.is_alphanumeric() && !"-_".contains(char));
        if has_path && COPY_COMMANDS.contains(&word) || !is_value && LOGIN_COMMANDS.contains(&word) {
            return true;
        }
        let is_skipped = word.is_empty() || matches!(word, "to" | "into");
        if begin.is_some() || is_value && !has_path && !is_skipped && !word.starts_with('-') {
            return false;
        }
        is_value = if is_skipped { is_value } else { !word.starts_with('-') };
    }
    false
}
