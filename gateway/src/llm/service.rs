//! Everything that the LLM proxy has of one configuration.

use std::sync::Arc;

use crate::{
    config::{LlmProxy, Problem},
    llm::{memory::VerdictMemory, routes::ModelRoutes, upstream::UpstreamTimeouts},
};

/// The LLM proxy as it is configured.
#[derive(Debug)]
pub struct Llm {
    /// Where requests go.
    pub routes: ModelRoutes,
    /// Sizes, times and numbers of exchanges.
    pub limits: ExchangeLimits,
    /// Names of members of requests that are accepted although they are refused by default.
    pub allow: Vec<String>,
    /// The verdicts of this process, whatever the configuration.
    pub memory: Arc<VerdictMemory>,
}

/// Limits of exchanges with providers.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeLimits {
    /// Largest request, in bytes.
    pub request: usize,
    /// Largest answer, in bytes.
    pub answer: usize,
    /// Most exchanges in flight.
    pub exchanges: usize,
    /// Most exchanges in flight for one tenant.
    pub tenant_exchanges: usize,
    /// How long a provider may take.
    pub timeouts: UpstreamTimeouts,
}

impl Llm {
    /// The proxy of `config`. Keeps the clients of unchanged upstreams in `before`.
    ///
    /// # Errors
    /// As [`ModelRoutes::build`].
    pub fn build(
        config: &LlmProxy,
        before: &[&Llm],
        memory: &Arc<VerdictMemory>,
    ) -> Result<Self, Vec<Problem>> {
        let earlier: Vec<_> = before.iter().map(|llm| &llm.routes).collect();
        let limits = &config.limits;
        Ok(Llm {
            routes: ModelRoutes::build(config, &earlier)?,
            limits: ExchangeLimits {
                request: limits.request.in_memory(),
                answer: limits.answer.in_memory(),
                exchanges: limits.exchanges,
                tenant_exchanges: limits.tenant_exchanges,
                timeouts: UpstreamTimeouts {
                    first_byte: limits.first_byte.0,
                    idle: limits.idle.0,
                    total: limits.total.0,
                },
            },
            allow: config.allow.clone(),
            memory: Arc::clone(memory),
        })
    }
}
