//! Says whether `user@host` is no address but something that an agent runs or reads as code: a remote of Git, the target of ssh, a
//! prompt, the name of a unit, of a file or of a node, or a product of matrices. All looks are bounded, so that a text of many
//! addresses is fast, and so that a window knows when it has enough.

use std::{collections::HashSet, sync::LazyLock};

use super::words;

/// How far in front of an address its command may begin. A window has more text than that before it.
const MAX_COMMAND_BYTES: usize = 256;
/// How far in front of an address a public key of SSH may begin.
const MAX_PUBLIC_KEY_BYTES: usize = 800;
/// How many addresses of a list may stand behind its label.
const MAX_LISTED: usize = 5;
/// A longer name may have a key in it.
const MAX_NAME_BYTES: usize = 30;
/// How far behind a host it is looked for anything but a path.
const MAX_AFTER_BYTES: usize = 80;
/// A longer last label followed by `(` is the name of a method. Few top-level domains are longer.
const MAX_DOMAIN_LETTERS: usize = 4;

/// Endings of files and of systemd's units, none of which is a top-level domain.
static SUFFIXES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    words(
        "png jpg jpeg gif svg webp avif bmp ico icns heic tif tiff eps psd pdf tgz gz xz bz zst tar rar jar war whl deb rpm dmg iso \
    js mjs cjs ts tsx jsx css scss sass less vue svelte json jsonl yaml yml toml xml html htm txt lock log conf cfg ini env \
    properties csv tsv sql sqlite db bak tmp diff patch woff ttf otf mp3 mp4 webm wav ogg java kt swift dart rb php cpp hpp \
    gradle tfvars hcl proto crt pem csr ipynb xlsx docx pptx dll exe ko dylib \
    service socket timer target mount automount slice scope swap device path nspawn",
    )
});

/// Commands that connect to `user@host`, and settings with such a host.
const LOGIN_COMMANDS: [&str; 14] = [
    "ssh",
    "mosh",
    "sftp",
    "autossh",
    "ssh-copy-id",
    "sshfs",
    "ProxyJump",
    "slogin",
    "plink",
    "psftp",
    "sshuttle",
    "fab",
    "pssh",
    "sqlplus",
];
/// Commands that take `user@host:path`.
const COPY_COMMANDS: [&str; 7] = ["scp", "rsync", "sftp", "sshfs", "git", "pscp", "borg"];
/// Commands that take the name of a unit behind a verb.
const UNIT_COMMANDS: [&str; 2] = ["systemctl", "journalctl"];

/// Names of what is a machine, a node of a cluster, or an id with a host in it.
static MACHINE_LABELS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    words(
        "node nodes nodename node_name nodenames running_nodes disc ram server servers role roles hosts -name --name -sname \
    -n -remsh --remsh join_cluster -j --remote uses definer context use-context --context current-context \
    message-id message_id messageid msgid in-reply-to in_reply_to inreplyto content-id call-id",
    )
});
/// Endings of such names.
const MACHINE_ENDINGS: [&str; 12] = [
    "_host",
    "-host",
    "_hosts",
    "-hosts",
    "_server",
    "-server",
    "_servers",
    "_node",
    "-node",
    "_nodes",
    "_bastion",
    "-hostname",
];

/// How labels of keys end. No top-level domain does so.
const LABELS: [&str; 7] = ["token", "secret", "password", "passwd", "pwd", "apikey", "authorization"];

/// What follows a host in the words of programs.
const WORDS_AFTER: [&str; 7] =
    [": Permission denied", ": Connection ", ")-[", ":\".insteadOf", ":\"]", " in ~", " MINGW64 "];

/// What surrounds `user@domain`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'t> {
    pub(crate) before: &'t str,
    pub(crate) user: &'t str,
    pub(crate) domain: &'t str,
    /// What follows the domain, with the rest of the host.
    pub(crate) after: &'t str,
}

/// Whether more text may change what is found, because it ends with `rest` bytes of the host or with what follows the domain.
pub(crate) fn is_open(rest: usize, after: &str) -> bool {
    let is_short = || after.len() < MAX_AFTER_BYTES && !after.contains('\n');
    let is_path = after.strip_prefix(':').is_some_and(|path| {
        match path.bytes().position(|byte| b" \t\r\n:/\"'<>|".contains(&byte)) {
            Some(at) => path.as_bytes()[at] == b'/' && at + 1 == path.len(),
            None => true,
        }
    });
    let may_decide = after.starts_with(|char: char| " ([{$')]#%>:._".contains(char));
    let is_joined = || after.len() < MAX_AFTER_BYTES && !after.contains(ends_word);
    rest == after.len() || is_path || is_joined() || may_decide && is_short()
}

impl<'t> Context<'t> {
    /// Whether it is a part of a command, a URL, code or a name.
    pub(crate) fn is_no_address(self) -> bool {
        let end = self.after.floor_char_boundary(MAX_AFTER_BYTES);
        let line = self.after[..end].split('\n').next().unwrap_or_default();
        let is_code_by_what_follows = || {
            self.is_version_or_file()
                || self.is_code(line)
                || is_path(self.after)
                || self.is_prompt(line)
                || WORDS_AFTER.iter().any(|words| line.starts_with(words))
        };
        self.is_template()
            // A longer name may have a key in it, whose mask would be another beginning of the line.
            || self.user.len() < MAX_NAME_BYTES
                && !joins_value(self.after)
                && !self.is_label()
                && is_code_by_what_follows()
            || is_in_authority(self.before)
            || self.is_handle()
            || self.is_machine(line)
            || is_target(self.before, self.after)
    }

    /// Whether the host ends like the label of a key. What follows may have a mask then.
    fn is_label(self) -> bool {
        ends_with_any(self.last_label(), &LABELS)
    }

    /// Whether the user is a placeholder, such as `%s`, `$USER` or `.+`.
    fn is_template(self) -> bool {
        let is_format = self.user.ends_with('%')
            || self.user.strip_suffix(['s', 'd', 'v', 'i', 'u']).is_some_and(|user| {
                user.ends_with('%')
                    || user.ends_with(|char: char| char.is_ascii_digit()) && user.contains("%0")
            });
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_class = self.before.ends_with('\\') && matches!(self.user, "w+" | "S+" | "d+" | "s+");
        is_format
            || is_class
            || self.before.ends_with('$') && self.user.len() < 30 && self.user.bytes().all(is_name)
            || self.user.ends_with('.')
            || !self.user.chars().any(char::is_alphanumeric)
    }

    fn is_version_or_file(self) -> bool {
        let mut labels = self.domain.split('.');
        let is_number = |label: &str| label.trim_start_matches('v').bytes().all(|byte| byte.is_ascii_digit());
        let is_version = labels.next().is_some_and(is_number)
            && labels.next().is_some_and(|label| label.starts_with(|char: char| char.is_ascii_digit()));
        // The suffix of a longer name is none.
        let goes_on = self.after.starts_with(|char: char| char.is_alphanumeric() || "_-".contains(char));
        is_version || !goes_on && is_listed(&SUFFIXES, self.last_label())
    }

    fn last_label(self) -> &'t str {
        self.domain.rsplit('.').next().unwrap_or_default()
    }

    /// Whether it is a member of an object behind a label or an operator, as in `this@Main.start(x)` and `x@self.weight`.
    fn is_code(self, after: &str) -> bool {
        let (first, last) = (self.domain.split('.').next().unwrap_or_default(), self.last_label());
        let is_long = last.chars().count() > MAX_DOMAIN_LETTERS;
        let is_short_name = first.len() == 1;
        let next = after.chars().nth(1);
        let is_used = match after.chars().next() {
            Some('(') => is_long || is_short_name || !next.is_some_and(char::is_alphabetic),
            Some('[') => next.is_some_and(|char| ",'\":-[$".contains(char)),
            Some('$') => next.is_some_and(char::is_alphabetic),
            Some('{') => true,
            // One letter or digit, as in `x@w.view.t()` and `libc.so.6`: a sentence that begins there is longer.
            Some('.') => {
                let is_one = |third: char| !third.is_alphanumeric() && !"._-@%+[".contains(third);
                next.is_some_and(|char| char.is_ascii_alphanumeric())
                    && after.chars().nth(2).is_none_or(is_one)
                    && (!next.is_some_and(|char| char.is_ascii_uppercase()) || !after[2..].starts_with(' '))
            }
            // Only the end of a name, as in `x@model.coef_`: what follows `_` may be an address, too.
            Some('_') => {
                !self.user.starts_with('_')
                    && last.len() >= MAX_DOMAIN_LETTERS
                    && !next.is_none_or(|next| next.is_alphanumeric() || "._%+-@".contains(next))
            }
            _ => after.starts_with(" <- "),
        };
        // `comPhone` is an address that touches the next cell of a table.
        let hump = last
            .as_bytes()
            .windows(2)
            .position(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
        is_used
            || hump.is_some_and(|at| at >= 3)
                && last.len() < 30
                && !after.starts_with(|char: char| char.is_ascii_digit() || "-_".contains(char))
            || matches!(first, "self" | "this")
            || matches!(self.user, "this" | "super") // Kotlin's `this@Outer`
            || is_short_name && is_long && self.domain.len() == last.len() + 2
            || last.bytes().any(|byte| byte.is_ascii_lowercase()) && self.domain.contains(".T.")
    }

    /// Whether the prompt of a shell ends behind the host, as in `host ~]$`, `host % ls` and `(node@host)1>`.
    fn is_prompt(self, after: &str) -> bool {
        if let Some(home) = after.strip_prefix(" ~") {
            return home.chars().next().is_none_or(|char| "]/ ".contains(char));
        }
        if let Some(shell) = after.strip_prefix(')') {
            let digits = shell.bytes().take_while(u8::is_ascii_digit).count();
            return digits > 0 && shell[digits..].starts_with('>')
                || starts_line_with(self.before, '(')
                    && (shell.starts_with(" Password:") || shell.starts_with(" Verification"));
        }
        if self.before.ends_with('[') {
            // `[user@host repo]$`
            return after.split_once(']').is_some_and(|(words, sign)| {
                words.starts_with([' ', ':']) && sign.starts_with(['$', '#', '%'])
                    || words.is_empty() && sign.starts_with(['$', '#', '%'])
            });
        }
        if !is_line_start(self.before) {
            return false;
        }
        let is_sign = |sign: &str| {
            sign.len() > 1
                && sign.starts_with(['$', '%', '❯', '➜'])
                && sign.trim_start_matches(['$', '%', '❯', '➜']).starts_with(' ')
        };
        let is_folder = |char: char| char.is_alphanumeric() || "_-./~".contains(char);
        let words = after.strip_prefix([' ', ':']).unwrap_or_default();
        let name = words.find(|char| !is_folder(char)).unwrap_or(words.len());
        let (name, sign) = words.split_at(name);
        let is_behind_folder = !name.is_empty()
            && match after.starts_with(':') {
                true => sign.starts_with("$ ") || sign.starts_with("# "),
                false => sign.strip_prefix(' ').is_some_and(is_sign),
            };
        is_behind_folder
            || after.starts_with("'s password:")
            || ["$ ", "# ", "% ", "> "].iter().any(|sign| after.starts_with(sign))
            || after.strip_prefix(' ').is_some_and(is_sign)
    }

    /// Whether it is the name of an account in a network of servers, `@ada@example.social`, or a mask of IRC, `ada!ada@host`.
    fn is_handle(self) -> bool {
        let is_name =
            |text: &str| text.ends_with(|char: char| char.is_alphanumeric() || "_.%+-".contains(char));
        let is_nick = |before: &str| {
            let word = word_before(before);
            is_name(before) && !word.contains('@') && word.len() < MAX_NAME_BYTES
        };
        let is_handle = self.before.strip_suffix('@').is_some_and(|before| !is_name(before))
            || self.before.trim_end_matches('~').strip_suffix('!').is_some_and(is_nick);
        // A longer one may have a key in it, whose mask would end the name.
        self.user.len() < MAX_NAME_BYTES && is_handle
    }

    /// Whether a label says that it is a machine, a node or an id, or a public key precedes it.
    fn is_machine(self, after: &str) -> bool {
        let is_node = after
            .strip_prefix(" v")
            .is_some_and(|version| version.starts_with(|char: char| char.is_ascii_digit()))
            || after.trim_end().eq(": OK")
            || after.starts_with(" ready.");
        is_node
            || self.before.ends_with("\nUID:")
            || self.before == "UID:"
            || self.before.ends_with("cid:")
            || ["(:\"", "[:\"", " :\""].iter().any(|atom| self.before.ends_with(atom))
            || follows_key(self.before)
            || is_machine_label(label(self.before))
    }
}

/// Whether a list has a word, in any case. None of a list is longer than 18 bytes.
fn is_listed(list: &HashSet<&str>, word: &str) -> bool {
    let mut lower = [0_u8; 18];
    let Some(lower) = lower.get_mut(..word.len()) else { return false };
    lower.copy_from_slice(word.as_bytes());
    lower.make_ascii_lowercase();
    str::from_utf8(lower).is_ok_and(|word| list.contains(word))
}

/// Whether what follows goes on to another address or to what may be a key, without a space or a comma. A mask there must not change
/// what is found here.
fn joins_value(after: &str) -> bool {
    let after = &after[..after.floor_char_boundary(MAX_AFTER_BYTES)];
    let word = after.find(ends_word).map_or(after, |end| &after[..end]);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    word.contains('@')
        || word.as_bytes().split(|byte| !is_name(*byte)).any(|name| name.len() >= MAX_NAME_BYTES)
}

fn ends_word(char: char) -> bool {
    char.is_whitespace() || ",;\"'`<>".contains(char)
}

/// The end of a text from its last space or comma on.
fn word_before(text: &str) -> &str {
    end_of(text, MAX_COMMAND_BYTES).rsplit(ends_word).next().unwrap_or_default()
}

/// Whether a line begins where a text ends, perhaps with spaces or the name of a virtual environment in brackets.
fn is_line_start(before: &str) -> bool {
    let line = end_of(before, MAX_COMMAND_BYTES).trim_end_matches([' ', '\t']);
    before.is_empty() || line.ends_with(['\n', ')']) || line.ends_with("\\n")
}

/// Whether a text ends with a sign that begins a line.
fn starts_line_with(before: &str, sign: char) -> bool {
    before.strip_suffix(sign).is_some_and(|before| before.is_empty() || before.ends_with('\n'))
}

/// Whether a path follows a host, as in `host:~/x`, `host:acme/site.git` and `host::module`.
fn is_path(after: &str) -> bool {
    let Some(path) = after.strip_prefix(':') else { return false };
    if let Some(module) = path.strip_prefix(':') {
        return module.starts_with(char::is_alphanumeric);
    }
    let end =
        path.find(|char: char| char.is_ascii_whitespace() || ":/\"'<>|".contains(char)).unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    let is_path = name.starts_with(['~', '.'])
        || name.ends_with(".git")
        || rest.starts_with('/') && (name.is_empty() || !rest.starts_with("//"));
    is_path && !name.contains('@')
}

/// Whether a text ends within the name of a URL's user.
pub(crate) fn is_in_authority(before: &str) -> bool {
    let before = end_of(before, MAX_COMMAND_BYTES);
    let start = before.rfind(|char: char| char.is_ascii_whitespace() || "/:@\"'<>?#".contains(char));
    start.is_some_and(|start| before[..=start].ends_with("://") || before[..=start].ends_with(r":\/\/"))
}

/// At most so many bytes of a text, from its end.
fn end_of(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Whether the key or the fingerprint of an SSH key precedes: then the comment of the key follows.
fn follows_key(before: &str) -> bool {
    let Some(before) = before.strip_suffix(' ') else { return false };
    let word = end_of(before, MAX_PUBLIC_KEY_BYTES);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=:".contains(byte);
    let length = word.bytes().rev().take_while(is_part).count();
    let word = &word[word.len() - length..];
    length > 20 && (word.starts_with("AAAA") || word.starts_with("SHA256:"))
}

/// The name before an address, of which signs, a symbol of Ruby and other addresses of a list may be between.
fn label(before: &str) -> &str {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-@./".contains(byte);
    let mut rest = end_of(before, MAX_COMMAND_BYTES);
    rest = &rest
        [..rest.len() - rest.bytes().rev().take_while(|byte| rest.ends_with('/') && is_part(byte)).count()];
    for _ in 0..MAX_LISTED {
        rest = rest.trim_end_matches(|char: char| " \t=:,'\"`[]{}<>".contains(char));
        let length = rest.bytes().rev().take_while(is_part).count();
        let (before, word) = rest.split_at(rest.len() - length);
        if !word.contains('@') && !before.ends_with(" :") || word.is_empty() {
            return word;
        }
        rest = before;
    }
    ""
}

fn is_machine_label(label: &str) -> bool {
    is_listed(&MACHINE_LABELS, label) || ends_with_any(label, &MACHINE_ENDINGS)
}

/// Whether a word has one of these endings, in any case.
fn ends_with_any(word: &str, endings: &[&str]) -> bool {
    let word = word.as_bytes();
    endings.iter().any(|ending| {
        word.len()
            .checked_sub(ending.len())
            .is_some_and(|at| word[at..].eq_ignore_ascii_case(ending.as_bytes()))
    })
}

/// Whether a text ends with a command that connects to a host: only options and their values may follow its name. A command that
/// copies has a path behind the host.
fn is_target(before: &str, after: &str) -> bool {
    let path = after.strip_prefix(':');
    let has_path = path.is_some_and(|path| path.starts_with(|char: char| char.is_alphanumeric()));
    let is_home = path.is_some_and(|path| path.is_empty() || path.starts_with(['\n', '"', '\'', ';']));
    let mut is_value = false;
    for word in end_of(before, MAX_COMMAND_BYTES).rsplit([' ', '\t']) {
        let begin = word.rfind(['\n', ';']).filter(|end| !word[..*end].ends_with('\\')).map(|end| end + 1);
        let word = word[begin.unwrap_or(0)..].rsplit("\\n").next().unwrap_or_default();
        let word = word.trim_matches(|char: char| !char.is_alphanumeric() && !"-_".contains(char));
        let is_part = |char: char| char.is_ascii_alphanumeric() || "-_".contains(char);
        let name = word.rsplit(|char: char| !is_part(char)).next().unwrap_or_default();
        if has_path && COPY_COMMANDS.contains(&name)
            || is_home && matches!(name, "scp" | "rsync")
            || !is_value && LOGIN_COMMANDS.contains(&name)
            || UNIT_COMMANDS.contains(&name)
        {
            return true;
        }
        let is_skipped = word.is_empty() || matches!(word, "to" | "into");
        if begin.is_some() || is_value && !has_path && !is_home && !is_skipped && !word.starts_with('-') {
            return false;
        }
        is_value = if is_skipped { is_value } else { !word.starts_with('-') };
    }
    false
}
