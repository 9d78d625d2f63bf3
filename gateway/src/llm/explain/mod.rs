//! Explains the LLM proxy for a tenant: how it streams answers, the models, and what it refuses.
//!
//! Without rules of its own: it reads the tables that refuse requests, and the routes that requests take. No provider is
//! asked. [`crate::invoke::explain`] adds the tenant's plans.

use crate::{
    config::LlmProxy,
    core::{answer_way::AnswerWay, api_format::ApiFormat, model_names::ModelNames, point::Point},
    llm::{
        chat::ChatCompletions,
        embeddings::Embeddings,
        format::Format,
        guarded_points::GuardedPoints,
        messages::{CountTokens, Messages},
        responses::Responses,
        routes::ModelRoutes,
        surface::{Row, Rule, STATE, SurfaceTable, Treatment, When, is_allowed},
    },
};

mod model;
#[cfg(test)]
mod tests;

pub use super::surface::AllowSwitch;
pub use model::{FormatReport, ModelReport, ProxyReport, RefusalReport, RefusalStatus, StreamWay};

/// What of a tenant matters to the proxy.
pub(crate) struct TenantRules<'a> {
    pub(crate) guarded: GuardedPoints,
    /// The points at which plugins are asked.
    pub(crate) asked: Vec<Point>,
    /// How the text of its streamed answers goes out.
    pub(crate) answer_way: AnswerWay,
    /// The models that the tenant may name; `None` is all.
    pub(crate) models: Option<&'a ModelNames>,
    /// The same as written.
    pub(crate) limited_to: Option<Vec<String>>,
}

/// Says what the proxy of `config`, with these routes, does for a tenant.
pub(crate) fn explain(config: &LlmProxy, routes: &ModelRoutes, tenant: TenantRules<'_>) -> ProxyReport {
    let reader = SurfaceReader { tenant: &tenant, allow: &config.allow };
    let models = [ApiFormat::Openai, ApiFormat::Anthropic].into_iter().flat_map(|api| {
        routes.named(api, tenant.models).into_iter().map(move |named| ModelReport {
            api,
            name: named.name.to_owned(),
            upstream: named.upstream.to_owned(),
            upstream_model: named.upstream_model.map(str::to_owned),
        })
    });
    ProxyReport {
        formats: vec![
            reader.format::<ChatCompletions>(),
            reader.format::<Responses>(),
            reader.format::<Embeddings>(),
            reader.format::<Messages>(),
            reader.format::<CountTokens>(),
        ],
        models: models.collect(),
        refused: reader.refusals(&SurfaceTable::SHARED),
        allow: config.allow.clone(),
        limited_to: tenant.limited_to,
    }
}

/// Reads the tables of what is refused, for one tenant.
struct SurfaceReader<'a> {
    tenant: &'a TenantRules<'a>,
    allow: &'a [String],
}

impl SurfaceReader<'_> {
    fn format<F: Format>(&self) -> FormatReport {
        let judged: &[Point] = if F::HAS_CHOICES && F::MAY_STREAM { &GuardedPoints::OF_ANSWERS } else { &[] };
        let held_for: Vec<_> =
            judged.iter().copied().filter(|point| self.tenant.asked.contains(point)).collect();
        let streams = match (F::MAY_STREAM, held_for.is_empty(), self.tenant.answer_way) {
            (false, ..) => StreamWay::Never,
            (true, true, _) => StreamWay::Pass,
            (true, false, AnswerWay::Pass) => StreamWay::Text,
            (true, false, AnswerWay::Windows) => StreamWay::Windows,
            (true, false, AnswerWay::Whole) => StreamWay::Whole,
        };
        let refused = self.refusals(F::SURFACE);
        FormatReport {
            api: F::API,
            path: format!("{}/{}", F::API.client_path(), F::PATH),
            streams,
            held_for,
            refused,
        }
    }

    fn refusals(&self, table: &SurfaceTable) -> Vec<RefusalReport> {
        let members = table.members.iter().filter_map(|row| self.row(row, ""));
        let inner = table.inner.iter().flat_map(|(object, rows)| {
            let place = format!(" in {object}");
            rows.iter().filter_map(move |row| self.row(row, &place))
        });
        let rules =
            table.rules.iter().copied().flatten().map(|rule| self.refusal(rule, rule.what.to_owned()));
        members.chain(inner).chain(rules).collect()
    }

    fn row(&self, (name, treatment): &Row, place: &str) -> Option<RefusalReport> {
        let (when, why) = match *treatment {
            Treatment::Refused(when, why) => (when, why),
            Treatment::StoredId => (When::Always, STATE),
            Treatment::Seen | Treatment::Settings => return None,
        };
        let rule = Rule { what: name, when, why, opened_by: AllowSwitch::Entry(name) };
        Some(self.refusal(&rule, format!("`{name}`{place}")))
    }

    fn refusal(&self, rule: &Rule, what: String) -> RefusalReport {
        let is_open = match rule.opened_by {
            AllowSwitch::Entry(entry) => is_allowed(self.allow, entry),
            AllowSwitch::ItsName | AllowSwitch::Nothing => false,
        };
        let status = match (rule.when.applies(self.tenant.guarded), is_open) {
            (false, _) => RefusalStatus::Passes,
            (true, true) => RefusalStatus::Allowed,
            (true, false) => RefusalStatus::Refused,
        };
        RefusalReport {
            what,
            why: rule.why.to_owned(),
            points: rule.when.points().to_vec(),
            opened_by: rule.opened_by.to_report(),
            status,
        }
    }
}
