//! Finds e-mail addresses. What surrounds `user@host` says whether it is one, or something that an agent runs: a remote of Git, the
//! target of ssh, the name of a unit or of a file. With a mask, a command would lead elsewhere.

use std::ops::Range;

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{
    email_context::{Context, is_open},
    url_password::user_infos,
};

/// No mailbox has a longer name. Without a limit, a long run of letters would be kept back in a window.
const MAX_NAME_BYTES: usize = 128;

pub(crate) fn find_all(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let (content, mut found, mut end) = (text.text(), Vec::new(), text.start());
    let mut users = user_infos(text, cut).into_iter().peekable();
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
        let (before, user) = (&content[..start], &content[start..at]);
        while users.next_if(|user| user.password.end < at).is_some() {}
        let is_in_url = users.peek().is_some_and(|user| user.start < at && at <= user.first_host);
        let context = Context { before, user, domain: &host[..length], after: &content[end..] };
        if !is_in_url && !context.is_no_address() {
            found.push(start..end);
        } else if !user.ends_with(char::is_alphanumeric) && content[end..].starts_with('@') {
            end = at + 1; // no name ends in front of it, so it may be the name of the next one
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
