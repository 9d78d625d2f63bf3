//! [`GuardedPoints`]: what of an exchange plugins may block or change.

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
    /// Whether something in an answer may be blocked or changed.
    pub(crate) fn has_answers(self) -> bool {
        self.calls || self.answer
    }
}
