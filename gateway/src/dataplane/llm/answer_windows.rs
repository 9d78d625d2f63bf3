//! [`AnswerWindows`]: the questions about the windows of one answer. For the log, the metrics and the observers they are one call.

use hookgate_proto::types::v1::BeforeResponsePayload;

use crate::{
    core::{
        context::QuestionKind,
        error::{Code, Error},
    },
    dataplane::llm::chains::Caller,
    invoke::{BeforeResponse, Block, ChainDecision, PassedText, Routes, WindowChain},
    records::invocation::Invocation,
    snapshot::ConfigSnapshot,
};

/// What was asked about an answer so far. If it is dropped, the caller went away.
pub(super) struct AnswerWindows<'a> {
    snapshot: &'a ConfigSnapshot,
    /// Until the end.
    open: Option<(WindowChain<'a, Routes>, Invocation)>,
}

impl AnswerWindows<'_> {
    /// Ends the questions, with a block or without one.
    pub(super) async fn end(self, block: Option<&Block>) {
        // The result is the given one.
        let _ = self.end_with(Ok(block.cloned().map_or(ChainDecision::Continue, ChainDecision::Block))).await;
    }

    /// Ends the questions with an error, and returns it.
    pub(super) async fn fail(self, error: Error) -> Error {
        match self.end_with(Err(error)).await {
            Err(error) => error,
            Ok(_) => Error::new(Code::Internal, "the end of windows has no error"),
        }
    }

    async fn end_with(mut self, result: Result<ChainDecision, Error>) -> Result<ChainDecision, Error> {
        let Some((chain, mut invocation)) = self.open.take() else { return result };
        invocation.has_lasted(chain.took());
        let revision = self.snapshot.invoker.routes().table.revision();
        let ended = Ok(chain.end(result, revision).await);
        let statuses = &self.snapshot.statuses;
        invocation.ended(&ended, |block| statuses.status(&block.plugin, &block.code).as_u16());
        ended.and_then(|ended| ended.result)
    }
}

impl Drop for AnswerWindows<'_> {
    fn drop(&mut self) {
        if let Some((chain, invocation)) = &mut self.open {
            invocation.has_lasted(chain.took());
            invocation.facts.broken_off = chain.reports();
        }
    }
}

impl<'a> Caller<'a> {
    /// Begins the questions about an answer, of which this is the first part.
    pub(super) fn windows(&'a self, part: &BeforeResponsePayload) -> AnswerWindows<'a> {
        let (mut invocation, ctx) = self.begin::<BeforeResponse>(part, QuestionKind::Main);
        invocation.facts.ctx = Some(ctx.clone());
        let chain = self.snapshot.invoker.windows(self.tenant, ctx);
        AnswerWindows { snapshot: self.snapshot, open: Some((chain, invocation)) }
    }

    /// Asks the plugins about the next part of an answer.
    ///
    /// # Errors
    /// There is no decision, or no permit for the question.
    pub(super) async fn judge_window(
        &self,
        windows: &mut AnswerWindows<'_>,
        part: BeforeResponsePayload,
        is_last: bool,
    ) -> Result<Result<PassedText, Block>, Error> {
        self.check_size::<BeforeResponse>(&part)?;
        let _turn = self.turn::<BeforeResponse>().await?;
        match &mut windows.open {
            Some((chain, _)) => chain.judge(part, is_last).await,
            None => Err(Error::new(Code::Internal, "a window is judged behind the last one")),
        }
    }
}
