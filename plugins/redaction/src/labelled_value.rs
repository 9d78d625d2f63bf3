//! Says whether the value after a label is a key: not a reference to one, a placeholder, a path or a word.

use std::{collections::HashSet, ops::Range, sync::LazyLock};

use super::{long_run::is_dense, words};

/// The minimum length of a labelled key. No mask may be longer.
const MIN_VALUE_BYTES: usize = 12;
/// The minimum length of a value where nothing but a password can be.
const MIN_PASSWORD_BYTES: usize = 4;
/// The minimum length of a value without a digit after a bare `Bearer`; longer than `authentication`.
const MIN_BEARER_BYTES: usize = 16;

/// Words of which values consist that stand for a key, as in `your-api-key-here`. Each of `STAND_INS` does so.
static STAND_INS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    words(
        "your my example examples placeholder changeme change changeit replace replaceme insert enter dummy redacted todo sample fake null undefined none \
    here secretkeyref put add paste fill set xxx hidden masked removed omitted",
    )
});
/// Words that begin or end a placeholder of plain words, as in `your-stripe-webhook-value`.
static FRAMES: LazyLock<HashSet<&str>> =
    LazyLock::new(|| words("insert enter replace change me dummy sample fake here"));
/// Words that no password of plain words has, wherever they are.
static MARKS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| words("your changeme placeholder replaceme redacted todo example"));
/// Words between them, none of which makes a placeholder alone.
static FILLERS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    words(
        "a an the this that with me it in of for to and or real actual own new secure strong random long value values string text \
    api app key keys apikey token tokens secret secrets password passwords passwd pass pwd access auth client bearer jwt session signing encryption \
    private public id user username db database admin account service server host company org project env prod production dev test name only please not use \
    aws azure gcp google github gitlab openai anthropic stripe slack npm generated supersecret sk pk live \
    is be was do as by at on from if so no unit tests testing ci demo mock local stub purposes docs readme production staging must later \
    before deploy deploying super very top insecure char chars character characters byte bytes bit bits hex base64 min minimum \
    least length foo bar baz xyz abc s3cr3t p4ssw0rd django flask rails",
    )
});

/// How certain it is that a value after a label is a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// Nothing but a password can be there, as in `curl -u ada:...`.
    Place,
    /// The label can't be prose: `api_key:`, `token=` or `secret: "..."`. People make passwords of words.
    Name { is_password: bool },
    /// A word of prose and a colon.
    Word { is_password: bool },
    /// A bare `Bearer`.
    Bearer,
    /// What surrounds the label makes it one, as in a table or after `is`.
    Context,
}

/// What follows a label.
#[derive(Debug)]
pub(crate) struct LabelledValue<'t> {
    text: &'t str,
    pub(crate) range: Range<usize>,
    is_quoted: bool,
    /// Where the text ends that says how far the value reaches.
    end: usize,
}

impl<'t> LabelledValue<'t> {
    /// The value from `start` on, behind `label`. It contains no separator, so each value is checked once, after its own label.
    pub(crate) fn new(text: &'t str, start: usize, label: &str) -> Self {
        let rest = &text[start..];
        let quote = label.chars().next_back().filter(|char| "\"'`>".contains(*char));
        let is_end = |char: char| Some(char) == quote || char == '<' || char == '\\' || char.is_whitespace();
        let quoted = rest.find(is_end).unwrap_or(rest.len());
        let is_quoted = quote.is_some() && !rest[quoted..].starts_with(char::is_whitespace);
        let length = if is_quoted { quoted } else { plain_length(rest) };
        // Strip the end of a sentence.
        let value = if is_quoted { &rest[..length] } else { rest[..length].trim_end_matches('.') };
        let end = start + if quote.is_some() { length.max(quoted) } else { length };
        LabelledValue { text, range: start..start + value.len(), is_quoted, end }
    }

    /// All of a text from `start` on.
    pub(crate) fn whole(text: &'t str, start: usize) -> Self {
        LabelledValue { text, range: start..text.len(), is_quoted: true, end: text.len() }
    }

    /// Whether more text may belong to the value, or say what it is.
    pub(crate) fn reaches_end(&self) -> bool {
        self.end == self.text.len()
    }

    /// Whether it is a key.
    pub(crate) fn is_key(&self, certainty: Certainty) -> bool {
        let value = &self.text[self.range.clone()];
        // Stripped dots may be between: a mask behind them must not change what the value is.
        let next = self.text[self.range.end..].trim_start_matches('.');
        let min_bytes = if certainty == Certainty::Place { MIN_PASSWORD_BYTES } else { MIN_VALUE_BYTES };
        let is_code = !self.is_quoted && next.starts_with(['(', '[', '{']);
        if value.len() < min_bytes
            || !is_dense(value, min_bytes)
            || value.contains(char::is_whitespace)
            || is_code
            || !self.is_quoted && is_cmdlet(value)
            || is_reference(value, self.is_quoted)
            || is_placeholder(value)
        {
            return false;
        }
        let has_digit = value.bytes().any(|byte| byte.is_ascii_digit());
        match certainty {
            Certainty::Place => true,
            Certainty::Name { .. } if has_digit => true,
            Certainty::Name { is_password } => {
                (is_password || !is_words(value)) && (self.is_quoted || !value.contains('.'))
            }
            Certainty::Word { is_password } => has_digit && (is_password || !is_words(value)),
            Certainty::Bearer => has_digit || value.len() >= MIN_BEARER_BYTES && !is_words(value),
            Certainty::Context => {
                has_digit && value.bytes().any(|byte| byte.is_ascii_alphabetic()) && !is_words(value)
            }
        }
    }
}

/// The length of the characters of a value without quotes at the beginning of `text`.
fn plain_length(text: &str) -> usize {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.~+/%!@#$^*?-".contains(byte);
    let inner = text.bytes().take_while(|byte| is_inner(byte)).count();
    inner + text[inner..].bytes().take_while(|byte| *byte == b'=').count()
}

/// Whether a value says where the key is: a variable, a template, a URL, a path, or a name in code.
fn is_reference(value: &str, is_quoted: bool) -> bool {
    let is_upper = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_' || byte.is_ascii_digit())
    };
    let variable =
        value.strip_prefix('$').or_else(|| value.strip_prefix('%').and_then(|name| name.strip_suffix('%')));
    variable.is_some_and(|name| name.starts_with(['{', '(']) || is_upper(name) || is_words(name))
        || ["{", "<", "%(", "#{", "[", "(", "/", "./", "../", "~/", "arn:", "op:", "env."].iter().any(|start| value.starts_with(start))
        || value.contains("://")
        || value.starts_with('?')
        || value.contains('=') && value.matches('&').count() > 1 // a query
        || (value.contains('/') || !is_quoted && value.contains('.') && !value.contains('-')) && is_words(value)
}

/// Whether a value is a command of PowerShell that gives a key, such as `ConvertTo-SecureString`.
fn is_cmdlet(value: &str) -> bool {
    value.split_once('-').is_some_and(|(verb, noun)| {
        matches!(verb, "ConvertTo" | "ConvertFrom" | "Get" | "Read" | "New" | "Import")
            && noun.bytes().all(|byte| byte.is_ascii_alphabetic())
    })
}

/// Whether a value stands for a key: it is nothing but words that say so, numbers and separators, or plain words between `your` and `here`,
/// or mostly `x`. A password may contain such a word.
fn is_placeholder(value: &str) -> bool {
    if value.contains("...") || value.contains('…') {
        return true;
    }
    let lower = value.to_ascii_lowercase();
    let parts = || lower.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty());
    let is_crossed = |word: &&str| word.len() >= 4 && word.bytes().all(|byte| byte == b'x');
    let is_number = |word: &str| {
        word.len() <= 4 && word.bytes().all(|byte| byte.is_ascii_digit()) || "01234567890".contains(word)
    };
    let is_sequence = |word: &str| is_number(word.trim_start_matches("abcdef").trim_start_matches("abc"));
    let has = |is: fn(&u8) -> bool| value.bytes().any(|byte| is(&byte));
    let is_plain = || is_words(value) || !(has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase));
    let is_short = |word: &str| word.len() < 6 || FILLERS.contains(word);
    let crossed: usize = parts().filter(is_crossed).map(str::len).sum();
    let frames = [parts().next(), parts().next_back()].into_iter().flatten();
    crossed * 2 >= lower.len()
        || crossed > 0 && parts().all(|word| is_crossed(&word) || is_short(word))
        || parts().any(|word| STAND_INS.contains(word))
            && parts().all(|word| STAND_INS.contains(word) || FILLERS.contains(word) || is_sequence(word))
        || (frames.into_iter().any(|word| FRAMES.contains(word)) || parts().any(|word| MARKS.contains(word)))
            && is_plain()
}

/// Whether a value is several words with something between, as in `team/prod/anthropic` and `api-key-v2`. A word has letters of one
/// case, of which the first one may be in upper case, and perhaps a digit, or it is a short number.
fn is_words(value: &str) -> bool {
    let is_word = |word: &str| {
        let letters = word.strip_suffix(|char: char| char.is_ascii_digit()).unwrap_or(word);
        let inner = letters.get(1..).unwrap_or_default();
        let has_case = inner.bytes().all(|byte| byte.is_ascii_lowercase())
            || letters.bytes().all(|byte| byte.is_ascii_uppercase());
        has_case && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
            || word.len() <= 4 && word.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut words = value.split(['-', '_', '.', '/', '#', ':', '@']).filter(|word| !word.is_empty());
    words.clone().nth(1).is_some() && words.all(is_word)
}
