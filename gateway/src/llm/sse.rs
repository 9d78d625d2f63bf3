//! Server-sent events: read as WHATWG's `EventSource` reads them, from bytes that come in pieces, and written. This module must not
//! know what the events mean.

use bytes::{Buf, Bytes, BytesMut};

/// A comment, which is no event.
pub(crate) const COMMENT: &[u8] = b": hookgate\n\n";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// The field `event`; empty if there is none.
    pub(crate) name: String,
    /// The lines of the fields `data`, joined by LF.
    pub(crate) data: String,
}

/// Why a stream can't be read on, in half a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// An event has more bytes than the decoder may hold.
    #[error("an event of the stream is too large")]
    TooLarge,
    /// A name or data is not UTF-8.
    #[error("an event of the stream is not UTF-8")]
    NotText,
}

/// Bytes in, events out. Take all events after each piece: what isn't taken is held.
#[derive(Debug)]
pub(crate) struct SseDecoder {
    max_event: usize,
    /// Begins with the current line.
    buffer: BytesMut,
    /// How much of the buffer has no line end, so that a line that comes in many pieces is looked through once.
    searched: usize,
    /// The last line ended with CR: an LF that follows belongs to the same line end.
    is_after_cr: bool,
    /// The byte order mark was skipped, or there is none.
    is_begun: bool,
    /// Bytes of the lines of the current event, each line end as one.
    size: usize,
    has_data: bool,
    event: SseEvent,
}

impl SseDecoder {
    /// A decoder for events of at most so many bytes, comments included.
    pub(crate) fn new(max_event: usize) -> Self {
        SseDecoder {
            max_event,
            buffer: BytesMut::new(),
            searched: 0,
            is_after_cr: false,
            is_begun: false,
            size: 0,
            has_data: false,
            event: SseEvent::default(),
        }
    }

    /// Takes the next bytes of the stream.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Bytes that are held.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len() + self.event.name.len() + self.event.data.len()
    }

    /// The next event that is complete. An event at the end of the stream that no blank line ends never is.
    ///
    /// # Errors
    /// The stream can't be read on; the same error comes again.
    pub(crate) fn next_event(&mut self) -> Result<Option<SseEvent>, SseError> {
        if !self.begin() {
            return Ok(None);
        }
        loop {
            if self.is_after_cr && !self.buffer.is_empty() {
                self.is_after_cr = false;
                if self.buffer.starts_with(b"\n") {
                    self.buffer.advance(1);
                }
            }
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(found) = unsearched.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.searched = self.buffer.len();
                let is_large = self.size + self.searched > self.max_event;
                return if is_large { Err(SseError::TooLarge) } else { Ok(None) };
            };
            let length = self.searched + found;
            // On an error the line stays, and so does the error.
            self.searched = length;
            let is_end = length == 0;
            if !is_end {
                self.read_line(length)?;
            }
            self.is_after_cr = self.buffer[length] == b'\r';
            self.buffer.advance(length + 1);
            self.searched = 0;
            if is_end && let Some(event) = self.end_event() {
                return Ok(Some(event));
            }
        }
    }

    /// Skips the byte order mark. Returns false as long as it isn't known whether there is one.
    fn begin(&mut self) -> bool {
        if !self.is_begun {
            if self.buffer.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(&self.buffer) {
                return false;
            }
            if self.buffer.starts_with(BYTE_ORDER_MARK) {
                self.buffer.advance(BYTE_ORDER_MARK.len());
            }
            self.is_begun = true;
        }
        true
    }

    /// Reads the line of `length` bytes that the buffer begins with. Changes nothing on an error.
    fn read_line(&mut self, length: usize) -> Result<(), SseError> {
        let size = self.size + length + 1;
        if size > self.max_event {
            return Err(SseError::TooLarge);
        }
        let line = &self.buffer[..length];
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[length..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || str::from_utf8(value).map_err(|_| SseError::NotText);
        match field {
            b"data" => {
                let text = text()?;
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(text);
                self.has_data = true;
            }
            b"event" => text()?.clone_into(&mut self.event.name),
            // Comments, and fields such as `id` and `retry`, which are for clients that connect again.
            _ => {}
        }
        self.size = size;
        Ok(())
    }

    /// The event that a blank line ends, if it has data.
    fn end_event(&mut self) -> Option<SseEvent> {
        self.size = 0;
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

/// Most text of one piece, in bytes.
pub(crate) const MAX_PIECE: usize = 16 << 10;

/// An event, with this name unless it is empty, whose data is JSON. Some clients end lines also at Unicode's line ends, so that text with one could forge
/// an event: such characters are escaped. Outside of strings JSON has none but CR and LF.
pub(crate) fn event(name: &str, json: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(json.len() + name.len() + 16);
    if !name.is_empty() {
        event.extend_from_slice(b"event: ");
        event.extend_from_slice(name.as_bytes());
        event.push(b'\n');
    }
    event.extend_from_slice(b"data: ");
    let mut rest = json;
    while let Some(next) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r' | 0xc2 | 0xe2)) {
        let (before, found) = rest.split_at(next);
        event.extend_from_slice(before);
        let (length, replacement): (usize, &[u8]) = match found {
            [b'\n' | b'\r', ..] => (1, b" "),
            [0xc2, 0x85, ..] => (2, b"\\u0085"),
            [0xe2, 0x80, 0xa8, ..] => (3, b"\\u2028"),
            [0xe2, 0x80, 0xa9, ..] => (3, b"\\u2029"),
            other => (1, &other[..1]),
        };
        event.extend_from_slice(replacement);
        rest = &found[length..];
    }
    event.extend_from_slice(rest);
    event.extend_from_slice(b"\n\n");
    event.into()
}

/// A text in pieces, at least one.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let (piece, after) = rest?.split_at(rest?.floor_char_boundary(MAX_PIECE));
        rest = Some(after).filter(|after| !after.is_empty());
        Some(piece)
    })
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
