//! [`GuardedPoints`]: what of an exchange plugins may block or change.

use crate::core::point::Point;

/// At which points a tenant's plan has steps that can block or change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GuardedPoints {
    /// `before_llm_request`
    pub(crate) request: bool,
    /// `before_tool_call`
    pub(crate) calls: bool,
    /// `after_tool_result`
    pub(crate) results: bool,
    /// `before_response`
    pub(crate) answer: bool,
}

impl GuardedPoints {
    /// The points at which plugins are asked about what a model said.
    pub(crate) const OF_ANSWERS: [Point; 2] = [Point::BeforeToolCall, Point::BeforeResponse];

    /// Those of which `is_guarded` says so.
    pub(crate) fn new(is_guarded: impl Fn(Point) -> bool) -> Self {
        GuardedPoints {
            request: is_guarded(Point::BeforeLlmRequest),
            calls: is_guarded(Point::BeforeToolCall),
            results: is_guarded(Point::AfterToolResult),
            answer: is_guarded(Point::BeforeResponse),
        }
    }

    /// Whether a step at `point` can block or change.
    pub(crate) fn has(self, point: Point) -> bool {
        match point {
            Point::BeforeLlmRequest => self.request,
            Point::BeforeToolCall => self.calls,
            Point::AfterToolResult => self.results,
            Point::BeforeResponse => self.answer,
        }
    }

    /// Whether something in an answer may be blocked or changed.
    pub(crate) fn has_answers(self) -> bool {
        self.calls || self.answer
    }
}
