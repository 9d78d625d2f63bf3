//! What a plugin gets of an answer's text, window by window, and what its replies leave of it (docs/protocol.md, Answers in windows).

use std::{error, fmt, mem};

use crate::plugin::v1::ResponseWindow;

/// The largest rest of a window that a plugin may keep back, in bytes.
pub const MAX_REST_BYTES: usize = 64 * 1024;

/// How many characters in front of a window a plugin is shown.
const MAX_CHARACTERS_BEFORE: usize = 1024;

/// The text of a growing answer, as one plugin gets it.
#[derive(Debug, Clone, Default)]
pub struct WindowedText {
    content: String,
    window: ResponseWindow,
}

impl WindowedText {
    /// Adds text to the window. `is_last` says that nothing follows.
    pub fn grow(&mut self, text: &str, is_last: bool) {
        self.content.push_str(text);
        self.window.last = is_last;
    }

    /// The text of the window: what the plugin has kept back, and what has come since.
    pub fn content(&self) -> &str {
        &self.content
    }

    /// Which part of the answer the window is.
    pub const fn window(&self) -> &ResponseWindow {
        &self.window
    }

    /// Takes the characters out of the window that a reply says are `consumed`, or all. The next window begins with the rest.
    ///
    /// # Errors
    /// The reply is invalid, and the window stays as it is.
    pub fn consume(&mut self, consumed: Option<u32>) -> Result<String, ConsumedError> {
        let rest = rest_of_window(&self.content, consumed, self.window.last)?.to_owned();
        let mut consumed = mem::replace(&mut self.content, rest);
        consumed.truncate(consumed.len() - self.content.len());
        let window = &mut self.window;
        window.seq = window.seq.saturating_add(1);
        window.offset += consumed.chars().count() as u64;
        window.before.push_str(&consumed);
        if let Some((start, _)) = window.before.char_indices().rev().nth(MAX_CHARACTERS_BEFORE - 1) {
            window.before.drain(..start);
        }
        Ok(consumed)
    }
}

/// What a reply to the window `content` leaves for the next one. If it doesn't say how much is `consumed`, it is all.
///
/// # Errors
/// The reply is invalid.
pub fn rest_of_window(content: &str, consumed: Option<u32>, is_last: bool) -> Result<&str, ConsumedError> {
    let Some(consumed) = consumed else { return Ok("") };
    let Some(rest) = after_characters(content, consumed) else {
        return Err(ConsumedError::TooMany { consumed, characters: content.chars().count() });
    };
    match rest.len() {
        0 => Ok(rest),
        _ if is_last => Err(ConsumedError::NotAll { consumed, characters: content.chars().count() }),
        bytes if bytes > MAX_REST_BYTES => Err(ConsumedError::RestTooLarge { consumed, bytes }),
        _ => Ok(rest),
    }
}

/// What follows the first `count` characters of a text; `None` if it has fewer.
fn after_characters(text: &str, count: u32) -> Option<&str> {
    let count = usize::try_from(count).ok()?;
    match text.char_indices().nth(count) {
        Some((at, _)) => Some(&text[at..]),
        None => (text.chars().count() == count).then_some(""),
    }
}

/// What is wrong with the number of consumed characters in a reply to a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumedError {
    /// The window has fewer.
    TooMany {
        /// The reply's number.
        consumed: u32,
        /// The window's.
        characters: usize,
    },
    /// Nothing follows, so it must be all.
    NotAll {
        /// The reply's number.
        consumed: u32,
        /// The window's.
        characters: usize,
    },
    /// The rest is over [`MAX_REST_BYTES`].
    RestTooLarge {
        /// The reply's number.
        consumed: u32,
        /// The size of the rest.
        bytes: usize,
    },
}

impl fmt::Display for ConsumedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConsumedError::TooMany { consumed, characters } => {
                write!(f, "`consumed` is {consumed}, and `content` has {characters} characters")
            }
            ConsumedError::NotAll { consumed, .. } => {
                write!(f, "`consumed` is {consumed}: nothing follows, so it must be all characters")
            }
            ConsumedError::RestTooLarge { consumed, bytes } => {
                write!(f, "`consumed` is {consumed}: it leaves {bytes} bytes, {MAX_REST_BYTES} are allowed")
            }
        }
    }
}

impl error::Error for ConsumedError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reply_consumes_at_most_the_window_all_of_the_last_one_and_leaves_no_more_than_64_kib() {
        let long = "é".repeat(MAX_REST_BYTES / 2 + 1);
        for (content, consumed, is_last, expected) in [
            ("日本", Some(0), false, Ok("日本")),
            ("日本", Some(1), false, Ok("本")),
            ("日本", Some(2), true, Ok("")),
            ("日本", None, true, Ok("")),
            ("", Some(0), true, Ok("")),
            ("日本", Some(3), false, Err(ConsumedError::TooMany { consumed: 3, characters: 2 })),
            // The window's bytes.
            ("日本", Some(6), true, Err(ConsumedError::TooMany { consumed: 6, characters: 2 })),
            ("", Some(u32::MAX), false, Err(ConsumedError::TooMany { consumed: u32::MAX, characters: 0 })),
            ("日本", Some(1), true, Err(ConsumedError::NotAll { consumed: 1, characters: 2 })),
            (&*long, None, false, Ok("")),
            (&long, Some(1), false, Ok(&long[2..])),
            (
                &long,
                Some(0),
                false,
                Err(ConsumedError::RestTooLarge { consumed: 0, bytes: MAX_REST_BYTES + 2 }),
            ),
        ] {
            assert_eq!(rest_of_window(content, consumed, is_last), expected, "{consumed:?} {is_last}");
        }
    }

    #[test]
    fn after_an_invalid_reply_the_window_is_as_before() {
        let mut text = WindowedText::default();
        text.grow("ab", true);
        let before = text.window().clone();
        assert!(text.consume(Some(1)).is_err() && text.consume(Some(3)).is_err());
        assert_eq!((text.content(), text.window()), ("ab", &before));
        assert_eq!(text.consume(Some(2)), Ok("ab".to_owned()));
    }

    proptest! {
        /// Each window says where it is, and begins where the one before was consumed.
        #[test]
        fn consumed_characters_and_the_window_are_the_whole_text(
            pieces in prop::collection::vec(("[aé日😀]{0,900}", any::<prop::sample::Index>()), 1..6),
        ) {
            let (mut text, mut passed, mut grown) = (WindowedText::default(), String::new(), String::new());
            for (seq, (piece, index)) in (0..).zip(&pieces) {
                grown.push_str(piece);
                text.grow(piece, grown.len() % 2 == 0);
                prop_assert_eq!(&format!("{passed}{}", text.content()), &grown);
                let before: Vec<char> = passed.chars().rev().take(1024).collect();
                let expected = ResponseWindow {
                    seq,
                    before: before.into_iter().rev().collect(),
                    offset: passed.chars().count() as u64,
                    last: grown.len() % 2 == 0,
                };
                prop_assert_eq!(text.window(), &expected);
                text.grow("", false);
                let count = index.index(text.content().chars().count() + 1);
                passed.push_str(&text.consume(u32::try_from(count).ok()).expect("a valid reply"));
            }
        }
    }
}
