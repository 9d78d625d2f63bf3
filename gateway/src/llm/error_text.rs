//! What a client may read of a provider's error.

use bytes::Bytes;
use memchr::memmem;

use super::value::quote;

/// Longest text, in bytes.
const MAX_TEXT_BYTES: usize = 2 << 10;

/// Parts of the messages in which servers repeat what the model said. `ailed` without its first letter, which servers write in either
/// case.
const QUOTES_MODEL: [&str; 3] = ["raw=", "failed_generation", "ailed to parse"];

/// What the ids of an operator's organizations and projects begin with.
const ID_PREFIXES: [&[u8]; 3] = [b"org-", b"org_", b"proj_"];

/// Whether a message repeats what the model said.
pub(super) fn quotes_model(message: &str) -> bool {
    QUOTES_MODEL.iter().any(|mark| message.contains(mark))
}

/// A body in any form, without the ids of the operator's organizations and projects.
pub(crate) fn without_ids(body: &Bytes) -> Bytes {
    let mut shown = Vec::new();
    let (mut shown_to, mut at) = (0, 0);
    while at < body.len() {
        match id_at(&body[at..]) {
            Some((prefix, end)) => {
                shown.extend_from_slice(&body[shown_to..at + prefix]);
                shown.extend_from_slice("…".as_bytes());
                at += end;
                shown_to = at;
            }
            None => at += 1,
        }
    }
    if shown.is_empty() {
        return body.clone();
    }
    shown.extend_from_slice(&body[shown_to..]);
    shown.into()
}

/// A body in any form, without a secret, which isn't empty.
pub(super) fn without(secret: &[u8], body: &Bytes) -> Bytes {
    let mut places = memmem::find_iter(body, secret).peekable();
    if places.peek().is_none() {
        return body.clone();
    }
    let (mut shown, mut shown_to) = (Vec::new(), 0);
    for at in places {
        shown.extend_from_slice(&body[shown_to..at]);
        shown.extend_from_slice("…".as_bytes());
        shown_to = at + secret.len();
    }
    shown.extend_from_slice(&body[shown_to..]);
    shown.into()
}

/// A text without the ids of the operator's organizations and projects.
pub(super) fn text_without_ids(text: &str) -> String {
    let shown = without_ids(&Bytes::copy_from_slice(text.as_bytes()));
    String::from_utf8_lossy(&shown).into_owned()
}

/// Where the prefix and the id at the start of `text` end, if there is one. A name such as `org_name` is none: it has
/// neither a digit nor a capital letter.
fn id_at(text: &[u8]) -> Option<(usize, usize)> {
    let prefix = ID_PREFIXES.iter().find(|prefix| text.starts_with(prefix))?;
    let rest = &text[prefix.len()..];
    let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let id = &rest[..length];
    let is_name = prefix.ends_with(b"_") && id.iter().all(u8::is_ascii_lowercase);
    (length > 0 && !is_name).then_some((prefix.len(), prefix.len() + length))
}

/// The beginning of a text as a JSON string.
pub(super) fn quote_start(text: &str) -> String {
    quote(&text[..text.floor_char_boundary(MAX_TEXT_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_left_out_wherever_it_stands() {
        let body = Bytes::from_static(b"sk-1: key sk-1 is over its limit, sk-");
        assert_eq!(without(b"sk-1", &body), "…: key … is over its limit, sk-");
        assert_eq!(without(b"sk-2", &body).as_ptr(), body.as_ptr());
    }

    #[test]
    fn ids_are_left_out_of_a_body_in_any_form() {
        let masked = |body: &'static [u8]| without_ids(&Bytes::from_static(body));
        assert_eq!(
            masked(br#"{"detail":"proj_Ab1 of org_01hx","org_name":"org-x","proj_":1}"#),
            r#"{"detail":"proj_… of org_…","org_name":"org-…","proj_":1}"#
        );
        assert_eq!(masked(b"<p>org-1\xff"), Bytes::from_static(b"<p>org-\xe2\x80\xa6\xff"));
        let plain = Bytes::from_static(b"no such model");
        assert_eq!(without_ids(&plain).as_ptr(), plain.as_ptr());
    }
}
