//! `hookgate upstream check`: whether a running gateway can use its providers of models. The gateway asks them, since it has the
//! keys and the network.

use clap::Args;
use serde_json::Value;

use crate::{
    Exit,
    output::{columns, text},
    registry::{ReadArgs, client::Registry},
};

/// The upstreams to check.
#[derive(Debug, Args)]
pub(crate) struct CheckUpstreamsArgs {
    /// Names of the upstreams. Default: all.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Reason, shown in the gateway's log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    asked: ReadArgs,
}

pub(super) async fn run(args: CheckUpstreamsArgs) -> Result<Exit, Exit> {
    let registry = Registry::connect(args.asked).await?;
    let answer = registry.check_upstreams(&args.names, args.reason.as_deref()).await?;
    let checks = list(&answer.body["upstreams"]);
    Ok(answer.print(registry.output, || table(checks), exit(checks)))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A line for each upstream, and a warning for each model that its provider doesn't list.
fn table(checks: &[Value]) -> String {
    if checks.is_empty() {
        return "There are no upstreams.\n".to_owned();
    }
    let mut rows = vec![["UPSTREAM", "RESULT", "TIME", "MODELS", "WHY NOT"].map(str::to_owned)];
    rows.extend(checks.iter().map(|check| {
        let millis = check["duration_us"].as_u64().unwrap_or_default() / 1000;
        let models = check["models"].as_u64().map_or_else(|| "-".to_owned(), |count| count.to_string());
        let result = text(&check["result"]).replace('_', " ");
        [text(&check["name"]), result, format!("{millis} ms"), models, text(&check["detail"])]
    }));
    let warnings = checks.iter().flat_map(|check| {
        list(&check["unlisted"]).iter().map(|unlisted| {
            let [rule, model] = ["rule", "model"].map(|member| text(&unlisted[member]));
            let upstream = text(&check["name"]);
            format!("warning: rule `{rule}` asks for model `{model}`, which `{upstream}` doesn't list\n")
        })
    });
    columns(&rows) + &warnings.collect::<String>()
}

fn exit(checks: &[Value]) -> Exit {
    match checks.iter().filter(|check| check["result"] != "ok").count() {
        0 => Exit::ok(),
        failed => Exit::failure(format!("{failed} of {} upstreams failed the check", checks.len())),
    }
}
