//! Asks a tenant's plugins about one part of an exchange. Each question is a call of its own: with its own id, time budget, permits
//! and record.

use std::sync::Arc;

use hookgate_proto::gateway::v1::RequestContext;
use prost::Message as _;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

use crate::{
    core::{
        call_site::CallSite,
        context::{CallContext, ExchangePart, Identity, QuestionKind},
        error::{Code, Error},
        step::StepOutcome,
    },
    dataplane::call::Gateway,
    edge::request_meta::CallHeaders,
    invoke::{Block, ChainDecision, ExtensionPoint, StepReport},
    records::invocation::Invocation,
    routing::TenantPlans,
    snapshot::ConfigSnapshot,
};

/// How many questions of an exchange are asked at the same time.
pub(super) const MAX_QUESTIONS: usize = 8;

/// Who asks, and on whose behalf: the same for all questions of an exchange.
pub(super) struct Caller<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) snapshot: &'a ConfigSnapshot,
    pub(super) tenant: &'a TenantPlans,
    pub(super) identity: Arc<Identity>,
    pub(super) said: CallHeaders,
    /// What plugins are told about the agent.
    pub(super) request: RequestContext,
    /// The exchange's id.
    pub(super) exchange: Uuid,
}

/// What a tenant's plugins decided about a payload.
pub(super) struct Verdict<P: ExtensionPoint> {
    /// The payload as they left it.
    pub(super) payload: Arc<P::Payload>,
    /// Whether they changed it.
    pub(super) is_modified: bool,
    /// Whether all of them were asked that should have been.
    pub(super) is_complete: bool,
    /// Present if one of them blocked.
    pub(super) block: Option<Block>,
}

impl Caller<'_> {
    /// Whether plugins are asked at the point `P`: it has a step, or a call there isn't just let through.
    pub(super) fn asks<P: ExtensionPoint>(&self) -> bool {
        self.tenant.asks(&CallSite::Point(P::POINT))
    }

    /// Waits for the turn of a question: the exchange has been admitted, and its answer may have been paid for.
    pub(super) async fn turn<P: ExtensionPoint>(&self) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let Caller { gateway, snapshot, tenant, identity, said, .. } = self;
        let end = snapshot.invoker.budget(Instant::now(), said.deadline).end();
        let turn = gateway.admission.question(&identity.tenant, tenant.rate, said.depth);
        timeout_at(end, turn).await.map_err(|_| {
            let detail =
                format!("The tenant asks too many questions at once: none was asked at {}", P::POINT);
            Error::new(Code::BudgetExhausted, detail)
        })
    }

    /// Refuses a payload that is larger than plugins are shown.
    pub(super) fn check_size<P: ExtensionPoint>(&self, payload: &P::Payload) -> Result<(), Error> {
        let limit = self.snapshot.limits.request;
        if payload.encoded_len() <= limit {
            return Ok(());
        }
        let point = P::POINT;
        let detail =
            format!("What plugins are shown at {point} is larger than {limit} bytes (`limits.request`)");
        Err(Error::new(Code::PayloadTooLarge, detail))
    }

    /// Asks the plugins about `payload`.
    ///
    /// # Errors
    /// There is no decision, or no permit for the question.
    pub(super) async fn ask<P: ExtensionPoint>(
        &self,
        payload: P::Payload,
        kind: QuestionKind,
    ) -> Result<Verdict<P>, Error> {
        if !self.asks::<P>() {
            return Ok(Verdict {
                payload: Arc::new(payload),
                is_modified: false,
                is_complete: true,
                block: None,
            });
        }
        let Caller { snapshot, tenant, .. } = self;
        self.check_size::<P>(&payload)?;
        let _turn = self.turn::<P>().await?;
        let (mut invocation, ctx) = self.begin::<P>(&payload, kind);
        let result = {
            let facts = &mut invocation.facts;
            let (ctx, broken_off) = (facts.ctx.insert(ctx), &mut facts.broken_off);
            // In a box, because the futures of many questions are moved about before they are polled.
            Box::pin(snapshot.invoker.run::<P>(tenant, ctx, payload, None, broken_off)).await
        };
        invocation.ended(&result, |block| snapshot.statuses.status(&block.plugin, &block.code).as_u16());
        let ended = result?;
        let is_skipped =
            |step: &StepReport| matches!(step.outcome, StepOutcome::FailedOpen | StepOutcome::SkippedBudget);
        let is_complete = !ended.steps.iter().any(is_skipped);
        let block = match ended.result {
            Ok(ChainDecision::Continue) => None,
            Ok(ChainDecision::Block(block)) => Some(block),
            Ok(ChainDecision::Answer(_)) => {
                return Err(Error::new(Code::Internal, "a plugin answered where no result is taken"));
            }
            Err(error) => return Err(error),
        };
        Ok(Verdict { payload: ended.payload, is_modified: ended.modified, is_complete, block })
    }

    /// Begins a question about `payload`: its record, which lacks the context as yet, and its context.
    pub(super) fn begin<P: ExtensionPoint>(
        &self,
        payload: &P::Payload,
        kind: QuestionKind,
    ) -> (Invocation, CallContext) {
        let (request_id, received, site) = (Uuid::now_v7(), Instant::now(), CallSite::Point(P::POINT));
        let mut invocation = self.gateway.telemetry.invocation(P::point(), request_id, received);
        let facts = &mut invocation.facts;
        facts.identity = Some(Arc::clone(&self.identity));
        facts.correlation_id.clone_from(&self.said.correlation_id);
        let revision = self.snapshot.invoker.routes().table.revision();
        facts.describe::<P>(payload, &site, self.tenant, revision);
        let ctx = CallContext {
            site,
            identity: Arc::clone(&self.identity),
            request_id,
            correlation_id: self.said.correlation_id.clone(),
            request: self.request.clone(),
            received,
            deadline: self.said.deadline,
            depth: self.said.depth,
            trace: false,
            takes_results: false,
            exchange: Some(ExchangePart { id: self.exchange, kind }),
        };
        (invocation, ctx)
    }
}
