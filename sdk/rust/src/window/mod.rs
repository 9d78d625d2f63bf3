//! For plugins that judge an answer in windows: what a call shows of the answer's text, and how far it may be cut.
//!
//! A plugin is exact if what goes to the user doesn't depend on where the answer was cut. For that it keeps back whatever more text
//! may turn into a match. [`WindowPattern`] says from where on that is so; [`SafeCut`] adds up what several searches say.
//!
//! ```
//! use hookgate_sdk::{*, window::{AnswerText, WindowPattern}};
//!
//! struct CodeNames { pattern: WindowPattern }
//!
//! impl Plugin for CodeNames {
//!     const NAME: &'static str = "code-names";
//!     const VERSION: &'static str = "1.0.0";
//!     type Config = NoConfig;
//!     type TenantConfig = NoConfig;
//!
//!     fn points() -> Vec<Offer> {
//!         vec![Point::BeforeResponse.modify().reading_only(&[PayloadField::Content]).in_windows()]
//!     }
//!
//!     async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
//!         Ok(CodeNames { pattern: WindowPattern::new(r"(?i)\bproject \w+").expect("it is a pattern") })
//!     }
//!
//!     async fn before_response(
//!         &self,
//!         ctx: &Context,
//!         _: &NoConfig,
//!         response: BeforeResponsePayload,
//!     ) -> Answer<BeforeResponsePatch> {
//!         let text = AnswerText::new(ctx, &response.content);
//!         let found = self.pattern.find(&text);
//!         let masks = found.ranges.into_iter().map(|range| (range, "a project"));
//!         Ok(text.reply(found.open, masks))
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plugin = harness::TestPlugin::<CodeNames>::start(&NoConfig {}).await?;
//! let shown = plugin.answer_in_windows(&["We call it proj", "ect Blue", "bird."]).await?;
//! assert_eq!(shown.text, "We call it a project.");
//! # Ok(())
//! # }
//! ```
mod pattern;

use std::{borrow::Cow, ops::Range};

use crate::{BeforeResponsePatch, Context, Deadline, Reply, ResponseWindow};

pub use hookgate_proto::MAX_REST_BYTES;
pub use pattern::{WindowMatches, WindowPattern, WindowPatternError};

/// What a call shows of an answer's text: all of it, or a window with the characters before it.
#[derive(Debug, Clone)]
pub struct AnswerText<'a> {
    /// The characters before the window, and the window.
    text: Cow<'a, str>,
    start: usize,
    offset: u64,
    is_last: bool,
    deadline: Deadline,
}

impl<'a> AnswerText<'a> {
    /// The text that a call is about. `content` is that of the payload.
    pub fn new(ctx: &Context, content: &'a str) -> Self {
        match ctx.window() {
            None => AnswerText::whole(content),
            Some(window) => AnswerText::windowed(window, content),
        }
    }

    /// A whole answer.
    pub fn whole(content: &'a str) -> Self {
        AnswerText { text: content.into(), start: 0, offset: 0, is_last: true, deadline: Deadline::default() }
    }

    /// A window of an answer.
    pub fn windowed(window: &ResponseWindow, content: &'a str) -> Self {
        let text = match window.before.is_empty() {
            true => content.into(),
            false => format!("{}{content}", window.before).into(),
        };
        let (start, offset, is_last) = (window.before.len(), window.offset, window.last);
        AnswerText { text, start, offset, is_last, deadline: Deadline::default() }
    }

    /// A search in it ends at the [deadline](Context::deadline) of the call: then it finds nothing, and nothing may pass.
    #[must_use]
    pub fn until(self, deadline: Deadline) -> Self {
        AnswerText { deadline, ..self }
    }

    /// The characters before the window, and the window. Positions and ranges count its bytes.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where the window begins in [`text`](Self::text).
    pub fn start(&self) -> usize {
        self.start
    }

    /// The payload's content.
    pub fn content(&self) -> &str {
        &self.text[self.start..]
    }

    /// How many characters of the answer the plugin is done with.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the answer ends here.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// How many characters of the window are before `cut`.
    pub fn characters_before(&self, cut: usize) -> usize {
        self.text[self.start..cut].chars().count()
    }

    /// Lets the text before `cut` pass, with these ranges replaced, and keeps back the rest. `replacements` are in order, don't
    /// overlap and don't contain `cut`; those behind it come again with the rest. Nothing of the last window is kept back.
    pub fn reply<S: AsRef<str>>(
        &self,
        cut: usize,
        replacements: impl IntoIterator<Item = (Range<usize>, S)>,
    ) -> Reply<BeforeResponsePatch> {
        let (mut replaced, mut end) = (String::new(), self.start);
        for (range, replacement) in replacements.into_iter().filter(|(range, _)| range.end <= cut) {
            replaced.push_str(&self.text[end..range.start]);
            replaced.push_str(replacement.as_ref());
            end = range.end;
        }
        let reply = Reply::proceed().consumed(self.characters_before(cut));
        if end == self.start {
            return reply;
        }
        replaced.push_str(&self.text[end..cut]);
        reply.content(replaced)
    }
}

/// Where an answer's text may be cut: before everything that more text may turn into a match, and not within a match. A match that
/// a plugin has looked at and left alone counts too, because a search from within it may find something else.
#[derive(Debug, Clone)]
pub struct SafeCut {
    open: usize,
    spans: Vec<Range<usize>>,
}

impl SafeCut {
    /// Nothing speaks against a cut at the end.
    pub fn new(text: &AnswerText<'_>) -> Self {
        SafeCut { open: text.text().len(), spans: Vec::new() }
    }

    /// No cut after `at`: more text may make a match from there on.
    pub fn hold_from(&mut self, at: usize) {
        self.open = self.open.min(at);
    }

    /// No cut within `span`.
    pub fn keep_whole(&mut self, span: Range<usize>) {
        self.spans.push(span);
    }

    /// The last position at which the text may be cut.
    pub fn position(mut self) -> usize {
        // From the last end to the first, so that a cut that moves forward meets all spans that it may be within.
        self.spans.sort_by_key(|span| std::cmp::Reverse(span.end));
        self.spans.iter().fold(
            self.open,
            |cut, span| {
                if span.start < cut && cut < span.end { span.start } else { cut }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_before_all_that_is_open_and_within_nothing() {
        let text = AnswerText::whole("0123456789");
        let cut = |open: usize, spans: &[Range<usize>]| {
            let mut cut = SafeCut::new(&text);
            cut.hold_from(open);
            spans.iter().for_each(|span| cut.keep_whole(span.clone()));
            cut.position()
        };
        assert_eq!(cut(99, &[]), 10);
        assert_eq!(cut(7, &[0..7, 7..9]), 7);
        assert_eq!(cut(7, &[2..5, 4..8]), 2);
        assert_eq!(cut(7, &[3..9, 1..4, 5..6]), 1);
        assert_eq!(cut(4, &[2..9, 0..3]), 0);
    }

    #[test]
    fn a_reply_replaces_what_is_consumed_and_counts_characters() {
        let window = ResponseWindow { before: "é ".to_owned(), offset: 2, ..Default::default() };
        let text = AnswerText::windowed(&window, "日x本y");
        assert_eq!((text.content(), text.start(), text.offset()), ("日x本y", 3, 2));
        assert_eq!(text.reply(7, [(6..7, "--")]), Reply::proceed().consumed(2).content("日--"));
        assert_eq!(text.reply(6, [(6..7, "--")]), Reply::proceed().consumed(1));
        assert_eq!(text.reply(text.text().len(), [(0..0, ""); 0]), Reply::proceed().consumed(4));
    }
}
