//! `hookgate call POINT`: makes one call as an agent would, and shows the answer.

use clap::Args;
use http::Method;

use crate::{
    Exit,
    client::{self, DataPortArgs},
    output::Output,
    payload::{self, ContextArgs, Payload, RequestOptions},
};
use hookgate::{config::Span, core::point::Point};

mod decision;
mod render;
pub(crate) mod steps;

use decision::Decision;

/// The call, its payload and its credentials.
#[derive(Debug, Args)]
pub(super) struct CallArgs {
    /// Extension point of the call.
    #[arg(value_parser = payload::points())]
    point: Point,
    /// Shows the changes of each step.
    #[arg(long)]
    trace: bool,
    /// Accepts a tool's result from a plugin instead of running the tool. Only at before_tool_call.
    #[arg(long)]
    takes_results: bool,
    /// How long to wait for the answer, also sent to the gateway as the deadline; 1ms to 60s.
    #[arg(long, default_value = "15s", value_parser = client::patience)]
    timeout: Span,
    /// Output format; json prints the answer unchanged.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: DataPortArgs,
    #[command(flatten)]
    payload: Payload,
    #[command(flatten)]
    context: ContextArgs,
}

/// The path of a point: its name with hyphens.
pub(super) fn path(point: Point) -> String {
    format!("/v1/{}", point.as_str().replace('_', "-"))
}

pub(super) async fn run(call: &CallArgs) -> Exit {
    let options = RequestOptions { trace: call.trace, takes_results: call.takes_results };
    let request = payload::request(call.point, &call.payload, &call.context, options);
    let asked = match request {
        Ok(request) => call.gateway.asker(call.timeout).await.map(|asker| (request, asker)),
        Err(wrong) => Err(wrong),
    };
    let (request, asker) = match asked {
        Ok(asked) => asked,
        Err(wrong) => return Exit::usage(wrong),
    };
    let answer = match asker.ask(Method::POST, &path(call.point), Some(request.body.clone())).await {
        Ok(answer) => answer,
        Err(unanswered) => return Exit::no_decision(format!("no decision: {unanswered}")),
    };
    let exit = match Decision::from_answer(&answer) {
        Ok(Decision::Continue) => Exit::ok(),
        // Not 0: the tool must not run.
        Ok(Decision::Answer) => Exit::already_reported(5),
        Ok(Decision::Block) => Exit::already_reported(3),
        Err(why) => {
            let steps = steps::steps_so_far(&answer);
            return answer.refuse(call.output, Exit::no_decision(format!("no decision: {why}{steps}")));
        }
    };
    let table = || render::table(&answer, &request.payload, call.trace);
    answer.print(call.output, table, exit)
}
