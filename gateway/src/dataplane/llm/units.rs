//! Judges a conversation on its way to the model. Agents send the whole of it again with every turn, as they wrote it. So what was
//! decided about its earlier parts is remembered and applied again: what was removed once stays removed.

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use hookgate_proto::types::v1::CancelScope;

use crate::{
    core::{context::QuestionKind, error::Error, point::Point},
    dataplane::llm::{
        chains::{MAX_QUESTIONS, Verdict},
        exchange::{Exchange, bad_patch},
        reply::RETRIED_BLOCKS,
    },
    invoke::{AfterToolResult, BeforeLlmRequest, Block},
    llm::{
        format::{Format, FormatDraft, FormatRequest, PatchError},
        memory::{RememberedVerdict, VerdictKey},
        surface,
        unit::{Unit, UnitKind},
    },
    records::exchange::ExchangeFacts,
};

/// How many parts are prepared at a time. Each takes memory before it is judged.
const CHUNK: usize = 8 * MAX_QUESTIONS;

/// What plugins decided about one part.
enum UnitVerdict {
    Kept,
    /// The message that takes its place.
    Replaced(Bytes),
    Blocked(Block),
}

/// A verdict, and whether it may be remembered.
struct JudgedUnit {
    verdict: UnitVerdict,
    /// Every plugin that should have been asked was.
    is_complete: bool,
}

impl<F: Format> Exchange<'_, F> {
    /// Judges the model and the parts of the conversation, and writes into `draft` what plugins made of them. Returns the block
    /// that ends the exchange.
    pub(super) async fn judge_conversation(
        &self,
        request: &F::Request,
        draft: &mut F::Draft<'_>,
        facts: &mut ExchangeFacts,
    ) -> Result<Option<Block>, Error> {
        surface::check_model(self.route.model, self.guarded, &self.llm.allow)?;
        let (asks_request, asks_results) =
            (self.caller.asks::<BeforeLlmRequest>(), self.caller.asks::<AfterToolResult>());
        if !asks_request && !asks_results {
            return Ok(None);
        }
        if self.guarded.results {
            request.results_have_calls()?;
        }
        let asks = |unit: &&Unit| match unit.kind() {
            UnitKind::User | UnitKind::System => asks_request,
            // Without its call a result has no tool to be judged by. Each of many results of one call would have its arguments.
            UnitKind::Result => asks_results && !unit.is_without_call() && !unit.is_second_result(),
        };
        let older: Vec<_> = request.older_units().iter().filter(asks).collect();
        self.judge_older(request, draft, &older, facts).await?;
        let main = request.main_unit();
        let is_main = |unit: &&Unit| main.is_some_and(|main| main.is_at(unit));
        let current = request.current_units().iter().filter(asks).filter(|unit| !is_main(unit));
        let current: Vec<_> = current.collect();
        for units in current.chunks(CHUNK) {
            for (unit, judged) in
                units.iter().zip(self.judge(request, draft, units, QuestionKind::Unit).await?)
            {
                if let Some(block) = apply_current(draft, unit, judged.verdict) {
                    return Ok(Some(block));
                }
            }
        }
        if self.guarded.request {
            draft.break_lines();
        }
        self.judge_request(request, draft).await
    }

    /// Applies what was decided about earlier parts. Plugins are asked again about those whose verdict isn't known.
    async fn judge_older(
        &self,
        request: &F::Request,
        draft: &mut F::Draft<'_>,
        units: &[&Unit],
        facts: &mut ExchangeFacts,
    ) -> Result<(), Error> {
        let mut unknown = Vec::new();
        for unit in units {
            match self.llm.memory.get(self.memory_key(request, unit)) {
                Some(remembered) => apply_older(draft, unit, remembered),
                None => unknown.push(*unit),
            }
        }
        facts.remembered += units.len() - unknown.len();
        facts.replayed += unknown.len();
        for units in unknown.chunks(CHUNK) {
            for (unit, judged) in
                units.iter().zip(self.judge(request, draft, units, QuestionKind::Replay).await?)
            {
                apply_older(draft, unit, remembered::<F>(&judged.verdict));
            }
        }
        Ok(())
    }

    /// The main question: about the request as a whole, with the parts that were judged before as plugins left them.
    async fn judge_request(
        &self,
        request: &F::Request,
        draft: &mut F::Draft<'_>,
    ) -> Result<Option<Block>, Error> {
        if !self.caller.asks::<BeforeLlmRequest>() {
            return Ok(None);
        }
        let before = draft.main_payload();
        let answer = self.caller.ask::<BeforeLlmRequest>(before.clone(), QuestionKind::Main).await?;
        if answer.block.is_some() {
            // Not remembered: the reason may be another than the text, such as a quota. On a later turn the text is judged by itself.
            return Ok(answer.block);
        }
        if let Some(main) = request.main_unit() {
            let patched = || draft.patched_unit(main, &before, &answer.payload);
            let verdict = unit_verdict(request, main, None, answer.is_modified, patched)?;
            self.remember(request, main, &JudgedUnit { verdict, is_complete: answer.is_complete });
        }
        if answer.is_modified {
            draft.apply_main(&before, &answer.payload).map_err(bad_patch)?;
        }
        Ok(None)
    }

    /// Judges `units`, several at a time, and returns the verdicts in their order.
    async fn judge(
        &self,
        request: &F::Request,
        draft: &F::Draft<'_>,
        units: &[&Unit],
        kind: QuestionKind,
    ) -> Result<Vec<JudgedUnit>, Error> {
        // None of them is polled before its turn.
        let judged: Vec<_> = units.iter().map(|unit| self.judge_unit(request, draft, unit, kind)).collect();
        stream::iter(judged).buffered(MAX_QUESTIONS).try_collect().await
    }

    async fn judge_unit(
        &self,
        request: &F::Request,
        draft: &F::Draft<'_>,
        unit: &Unit,
        kind: QuestionKind,
    ) -> Result<JudgedUnit, Error> {
        let judged = match unit.kind() {
            UnitKind::User | UnitKind::System => {
                let before = draft.unit_payload(unit);
                let Verdict { payload, is_modified, is_complete, block } =
                    self.caller.ask::<BeforeLlmRequest>(before.clone(), kind).await?;
                let patched = || draft.patched_unit(unit, &before, &payload);
                let verdict = unit_verdict(request, unit, block, is_modified, patched)?;
                JudgedUnit { verdict, is_complete }
            }
            UnitKind::Result => {
                let before = draft.result_payload(unit)?;
                let Verdict { payload, is_modified, is_complete, block } =
                    self.caller.ask::<AfterToolResult>(before, kind).await?;
                let patched = || Ok(draft.patched_result(unit, &payload.result));
                let verdict = unit_verdict(request, unit, block, is_modified, patched)?;
                JudgedUnit { verdict, is_complete }
            }
        };
        self.remember(request, unit, &judged);
        Ok(judged)
    }

    /// Remembers a verdict, unless a plugin was skipped, or the block is about a quota and not about the part.
    fn remember(&self, request: &F::Request, unit: &Unit, judged: &JudgedUnit) {
        let is_quota =
            |block: &Block| block.retry_after_ms.is_some() || RETRIED_BLOCKS.contains(&block.code.as_str());
        let asks_again = matches!(&judged.verdict, UnitVerdict::Blocked(block) if is_quota(block));
        if judged.is_complete && !asks_again {
            self.llm.memory.put(self.memory_key(request, unit), remembered::<F>(&judged.verdict));
        }
    }

    /// Everything that plugins are shown, but the ids of the request: a verdict is used only where they would be asked the same.
    fn memory_key(&self, request: &F::Request, unit: &Unit) -> VerdictKey {
        let (point, kind) = match unit.kind() {
            UnitKind::User => (Point::BeforeLlmRequest, "user"),
            UnitKind::System => (Point::BeforeLlmRequest, "system"),
            UnitKind::Result => (Point::AfterToolResult, "result"),
        };
        let (identity, said) = (&self.caller.identity, &self.caller.request);
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let labels = said.labels.iter().flat_map(|(name, value)| [name.clone(), value.clone()]);
        let parts = [
            F::Request::FORM.to_owned(),
            kind.to_owned(),
            self.caller.tenant.plan(point).digest.to_string(),
            identity.operator.to_string(),
            text(&said.session_id),
            text(&said.agent_id),
            text(&said.user_id),
            text(&said.model),
            text(&said.provider),
        ];
        let message = F::Request::lasting_json(request.unit_json(unit));
        let (tool, args_digest) = unit.call();
        let all = parts.into_iter().chain(labels).collect::<Vec<_>>();
        let parts = all.iter().map(String::as_bytes).chain([tool.as_bytes(), args_digest, &message]);
        self.llm.memory.key(&identity.tenant, parts)
    }
}

/// A change that changes no byte is none.
fn unit_verdict(
    request: &impl FormatRequest,
    unit: &Unit,
    block: Option<Block>,
    is_modified: bool,
    patched: impl FnOnce() -> Result<Bytes, PatchError>,
) -> Result<UnitVerdict, Error> {
    if let Some(block) = block {
        return Ok(UnitVerdict::Blocked(block));
    }
    let message = if is_modified { Some(patched().map_err(bad_patch)?) } else { None };
    let changed = message.filter(|message| *message != request.unit_json(unit));
    Ok(changed.map_or(UnitVerdict::Kept, UnitVerdict::Replaced))
}

/// A verdict for later turns, in which agents may send the part in a slightly different form.
fn remembered<F: Format>(verdict: &UnitVerdict) -> RememberedVerdict {
    match verdict {
        UnitVerdict::Kept => RememberedVerdict::Kept,
        UnitVerdict::Replaced(json) => RememberedVerdict::Replaced(F::Request::lasting_json(json.clone())),
        UnitVerdict::Blocked(Block { code, message, .. }) => {
            RememberedVerdict::Blocked { code: code.clone(), message: message.clone() }
        }
    }
}

/// A block of an older part doesn't end the conversation: the part is left out.
fn apply_older<'r>(draft: &mut impl FormatDraft<'r>, unit: &Unit, verdict: RememberedVerdict) {
    match verdict {
        RememberedVerdict::Kept => {}
        RememberedVerdict::Replaced(message) => draft.replace_unit(unit, &message),
        RememberedVerdict::Blocked { code, message } => {
            let note = match unit.kind() {
                UnitKind::User | UnitKind::System => format!("[removed: {code}]"),
                UnitKind::Result => message,
            };
            draft.remove_content(unit, &note);
        }
    }
}

/// A block of what a user says now ends the exchange. That of a tool's result takes the result's place, unless it ends the run.
fn apply_current<'r>(draft: &mut impl FormatDraft<'r>, unit: &Unit, verdict: UnitVerdict) -> Option<Block> {
    match verdict {
        UnitVerdict::Kept => {}
        UnitVerdict::Replaced(message) => draft.replace_unit(unit, &message),
        UnitVerdict::Blocked(block) if unit.kind() == UnitKind::Result && block.scope != CancelScope::Run => {
            draft.remove_content(unit, &block.message);
        }
        UnitVerdict::Blocked(block) => return Some(block),
    }
    None
}
