//! What property tests of streamed answers share.

use std::{borrow::Cow, iter::Cycle, slice};

use bytes::Bytes;
use proptest::sample::Index;

use super::format::FormatTextStream;

/// Random places, one after the other.
pub(super) struct Cuts<'a>(Cycle<slice::Iter<'a, Index>>);

impl<'a> Cuts<'a> {
    /// These places again and again. There must be one.
    pub(super) fn new(places: &'a [Index]) -> Self {
        Cuts(places.iter().cycle())
    }

    /// A number below `end`.
    pub(super) fn next(&mut self, end: usize) -> usize {
        self.0.next().expect("never empty").index(end)
    }

    /// A text in pieces, at least one.
    pub(super) fn text(&mut self, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        loop {
            let end = if pieces.is_empty() { 0 } else { 1 } + self.next(rest.len() + 1);
            let (piece, after) = rest.split_at(rest.ceil_char_boundary(end.min(rest.len())));
            pieces.push(piece.to_owned());
            rest = after;
            if rest.is_empty() {
                return pieces;
            }
        }
    }
}

/// A client that gets the first text of an answer while the rest still comes.
pub(super) struct TextClient<S> {
    stream: Option<S>,
    /// What it has got.
    pub(super) events: Vec<Bytes>,
    /// What it has got of the text.
    pub(super) text: String,
}

impl<S: FormatTextStream> TextClient<S> {
    /// A client that has got nothing.
    pub(super) fn new() -> Self {
        TextClient { stream: None, events: Vec::new(), text: String::new() }
    }

    /// Whether it has got any of the text.
    pub(super) fn has_begun(&self) -> bool {
        self.stream.is_some()
    }

    /// Gets a part of what is new in the first text, as far as that came. `begin` begins the stream.
    pub(super) fn read(
        &mut self,
        text: Option<Cow<'_, str>>,
        cuts: &mut Cuts<'_>,
        begin: impl FnOnce() -> (S, Vec<Bytes>),
    ) {
        let Some(text) = text else {
            assert!(!self.has_begun(), "a text stays");
            return;
        };
        assert!(!text.is_empty());
        let stream = self.stream.get_or_insert_with(|| {
            let (stream, events) = begin();
            self.events.extend(events);
            stream
        });
        let new = text.strip_prefix(&*self.text).expect("a text goes on");
        let (piece, _) = new.split_at(new.ceil_char_boundary(cuts.next(new.len() + 1)));
        if piece.is_empty() {
            self.events.push(stream.beat());
        } else {
            self.events.push(stream.text(piece));
            self.text.push_str(piece);
        }
    }

    /// Gets the rest of an answer, and returns all events. `None` if it isn't the answer of a stream that has begun.
    pub(super) fn finish(mut self, answer: &Bytes) -> Option<Vec<Bytes>> {
        let rest = self.stream?.rest(answer, true)?;
        self.events.extend(rest.answer.into_iter().chain(rest.end));
        Some(self.events)
    }
}
