//! `hookgate call-hook HOOK`: makes one call at a lifecycle hook as an agent would, and shows what plugins contribute.

use clap::Args;
use hookgate_proto::HookName;
use http::Method;

use crate::{
    Exit,
    call::steps,
    client::{self, DataPortArgs},
    output::Output,
    payload::{self, ContextArgs, HookBody},
};
use hookgate::config::Span;

mod render;

use render::HookResult;

/// The call, its body and its credentials.
#[derive(Debug, Args)]
pub(super) struct HookCallArgs {
    /// Lifecycle hook of the call, such as `recall` or `turn_end`.
    #[arg(value_parser = payload::hook)]
    hook: HookName,
    /// How long to wait for the answer, also sent to the gateway as the deadline; 1ms to 60s.
    #[arg(long, default_value = "15s", value_parser = client::patience)]
    timeout: Span,
    /// Output format; json prints the answer unchanged.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: DataPortArgs,
    #[command(flatten)]
    body: HookBody,
    #[command(flatten)]
    context: ContextArgs,
}

pub(super) async fn run(call: &HookCallArgs) -> Exit {
    let request = match payload::hook_request(&call.hook, &call.body, &call.context) {
        Ok(request) => request,
        Err(wrong) => return Exit::usage(wrong),
    };
    let asker = match call.gateway.asker(call.timeout).await {
        Ok(asker) => asker,
        Err(wrong) => return Exit::usage(wrong),
    };
    let path = format!("/v1/hooks/{}", call.hook);
    let answer = match asker.ask(Method::POST, &path, Some(request)).await {
        Ok(answer) => answer,
        Err(unanswered) => return Exit::no_decision(format!("no result: {unanswered}")),
    };
    match HookResult::from_answer(&answer) {
        Ok(result) => answer.print(call.output, || result.table(), Exit::ok()),
        Err(why) => {
            let steps = steps::steps_so_far(&answer);
            answer.refuse(call.output, Exit::no_decision(format!("no result: {why}{steps}")))
        }
    }
}
