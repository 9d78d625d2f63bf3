//! Reference plugin: lets an HTTP service decide about a call, or learn of it.
//!
//! Each call is one POST, signed as Standard Webhooks describes. Where the request may go is checked on the address
//! that is dialled (`dial`). Everything but a valid answer fails the step, so that `on_error` of the binding decides.
//!
//! ```text
//!   payload ──► delivery ──► signature ──► client ──► service
//!                                            │  dial: which addresses
//!   reply ◄── decision ◄─────────────────────┘
//! ```
#![warn(missing_docs)]

mod client;
mod decision;
mod delivery;
mod dial;
mod settings;
mod signature;

use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Context, Host,
    InitError, Limits, NoConfig, Offer, Plugin, Point, Reply,
};

pub use settings::{AnswerUse, Config, EgressSettings};

use client::WebhookClient;
use decision::ServiceDecision;
use delivery::{Delivery, PayloadJson};

/// Sends calls to an HTTP service.
pub struct Webhook {
    client: WebhookClient,
    answer: AnswerUse,
    points: Vec<Point>,
    sends_payload: bool,
    limits: Limits,
}

impl Webhook {
    async fn ask<T: PayloadJson, P>(&self, ctx: &Context, payload: &T) -> Answer<P> {
        let is_told_again = ctx.is_replay() && self.answer == AnswerUse::Ignore;
        if !self.points.contains(&T::POINT) || is_told_again {
            return Ok(Reply::proceed());
        }
        let payload_json = self.sends_payload.then(|| payload.to_json()).transpose()?;
        let delivery = Delivery::new(T::POINT, ctx, payload.tool_name(), payload_json.as_deref())?;
        let failed = |error| self.client.to_plugin_error(error);
        match self.answer {
            AnswerUse::Ignore => {
                self.client.notify(ctx, delivery).await.map_err(failed)?;
                Ok(Reply::proceed())
            }
            AnswerUse::Decide => {
                let answer = self.client.ask(ctx, delivery).await.map_err(failed)?;
                let decision = ServiceDecision::from_answer(answer).map_err(failed)?;
                Ok(decision.into_reply()?.fit_notices(&self.limits))
            }
        }
    }
}

impl Plugin for Webhook {
    const NAME: &'static str = "webhook";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        // A service is told of each call, whether it decides or not. So calls to it aren't repeated, and it isn't asked
        // about calls that an earlier plugin refuses.
        Point::ALL.into_iter().map(|point| point.read().with_side_effects()).collect()
    }

    async fn initialize(config: Config, host: Host) -> Result<Self, InitError> {
        Ok(Webhook {
            client: WebhookClient::new(&config).await?,
            answer: config.answer,
            points: config.points()?,
            sends_payload: config.send_payload,
            limits: *host.limits(),
        })
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        _: &NoConfig,
        request: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        self.ask(ctx, &request).await
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        _: &NoConfig,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        self.ask(ctx, &call).await
    }

    async fn after_tool_result(
        &self,
        ctx: &Context,
        _: &NoConfig,
        result: AfterToolResultPayload,
    ) -> Answer<AfterToolResultPatch> {
        self.ask(ctx, &result).await
    }

    async fn before_response(
        &self,
        ctx: &Context,
        _: &NoConfig,
        response: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        self.ask(ctx, &response).await
    }
}

#[cfg(test)]
mod tests;
