//! Counts and logs observers' results, which are known only after the answer.

use hookgate_proto::HookName;

use crate::{
    core::{
        point::Point,
        step::{Mode, Reason, StepOutcome},
    },
    invoke::{Observation, ObserverSink},
};
use crate::{
    records::{invocation::InvocationMetrics, log_line::MAX_SENTENCE_BYTES},
    telemetry::{Telemetry, value::cut},
};

impl ObserverSink for Telemetry {
    fn observed(&self, observed: Observation<'_>) {
        let Observation { site, plugin, binding, tenant, request_id, outcome, reason, took, .. } = observed;
        let tenant_label = self.0.tenant_label(Some(tenant));
        let measured = InvocationMetrics::new(&self.0, Some(site), true, tenant_label);
        measured.outcome(plugin, Mode::Observe, outcome, reason, took);
        let (point, hook) = (site.point().map(Point::as_str), site.hook().map(HookName::as_str));
        let detail = cut(observed.detail, MAX_SENTENCE_BYTES);
        match (outcome, reason) {
            (StepOutcome::WouldBlock, _) => {
                tracing::info!(event = "decision.would_block", request_id, %tenant, point, hook, %plugin, %binding, mode = Mode::Observe.as_str(), code = detail, "an observer would block");
            }
            (StepOutcome::Failed, Some(Reason::Timeout)) => {
                tracing::warn!(event = "step.timeout", request_id, %tenant, point, hook, %plugin, %binding, detail, "an observer did not answer in time");
            }
            (StepOutcome::Failed, reason) => {
                let reason = reason.map(Reason::as_str);
                tracing::warn!(event = "step.failed", request_id, %tenant, point, hook, %plugin, %binding, reason, detail, "an observer failed");
            }
            _ => {}
        }
    }
}
