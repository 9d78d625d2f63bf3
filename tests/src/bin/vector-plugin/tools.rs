//! The tools: what they do is in their names.

use std::collections::BTreeMap;

use hookgate_sdk::{Tool, ToolCall, ToolError, json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{VectorPlugin, script::Failure};

/// Arguments with any members.
#[derive(Deserialize, JsonSchema)]
struct AnyArgs(#[schemars(with = "BTreeMap<String, Value>")] json::Object);

/// Arguments of two types.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TypedArgs {
    count: u32,
    name: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RefusalArgs {
    message: String,
    code: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

type VectorCall<Args> = ToolCall<VectorPlugin, Args>;

pub(crate) fn all() -> Vec<Tool<VectorPlugin>> {
    vec![
        Tool::new("vectors.echo", "Returns its arguments.", echo),
        Tool::new("vectors.typed", "Returns its arguments, which have types.", typed),
        Tool::new("vectors.nothing", "Returns nothing.", nothing),
        Tool::new("vectors.refuse", "Refuses.", refuse),
        Tool::new("vectors.fail", "Fails.", fail),
    ]
}

async fn echo(call: VectorCall<AnyArgs>) -> Result<json::Object, ToolError> {
    Ok(call.args.0)
}

async fn typed(call: VectorCall<TypedArgs>) -> Result<TypedArgs, ToolError> {
    Ok(call.args)
}

async fn nothing(_: VectorCall<NoArgs>) -> Result<(), ToolError> {
    Ok(())
}

async fn refuse(call: VectorCall<RefusalArgs>) -> Result<(), ToolError> {
    let RefusalArgs { message, code } = call.args;
    Err(match code {
        Some(code) => ToolError::refused(code, message),
        None => ToolError::failed(message),
    })
}

async fn fail(call: VectorCall<Failure>) -> Result<(), ToolError> {
    Ok(call.args.fail()?)
}
