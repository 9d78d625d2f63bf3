//! [`AnswerWay`]: when a model's words go out.

/// How the text of a streamed answer reaches the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerWay {
    /// As it comes: no plugin is asked about it.
    Pass,
    /// In windows: all steps that judge it take them. Observers get the whole answer in the end.
    Windows,
    /// When all of it has been judged.
    Whole,
}
