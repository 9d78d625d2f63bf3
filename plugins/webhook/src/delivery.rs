//! The body of a request: who calls, where, and the payload, whose JSON values keep their bytes.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use hookgate_sdk::{
    AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload,
    CallContext, ChainResult, Context, Media, PluginError, Point,
    proto::types::v1::{Decision, media::Source},
};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

/// One request, not yet signed.
pub(crate) struct Delivery {
    /// Unique for each request (UUIDv7).
    pub(crate) id: String,
    /// When it was made, in seconds since 1970.
    pub(crate) timestamp: i64,
    pub(crate) body: Vec<u8>,
}

impl Delivery {
    pub(crate) fn new(
        point: Point,
        ctx: &Context,
        tool: Option<&str>,
        payload: Option<&RawValue>,
    ) -> Result<Self, PluginError> {
        let id = Uuid::now_v7().to_string();
        let now = OffsetDateTime::now_utc().replace_nanosecond(0)?;
        let caller = ctx.caller();
        let body = DeliveryBody {
            id: &id,
            timestamp: now.format(&Rfc3339)?,
            point: point.as_str(),
            tenant: ctx.tenant(),
            operator: ctx.operator(),
            request_id: ctx.request_id(),
            correlation_id: caller.correlation_id.as_deref(),
            exchange_id: caller.exchange_id.as_deref(),
            replay: ctx.is_replay(),
            part: ctx.is_part(),
            context: ContextJson::from_caller(caller),
            tool,
            payload,
            chain_result: ctx.chain_result().map(ChainResultJson::from_result),
        };
        let body = serde_json::to_vec(&body)?;
        Ok(Delivery { id, timestamp: now.unix_timestamp(), body })
    }
}

/// The body. Absent members are left out.
#[derive(Serialize)]
struct DeliveryBody<'a> {
    id: &'a str,
    /// RFC 3339, UTC: the same second as the header.
    timestamp: String,
    point: &'static str,
    tenant: &'a str,
    operator: &'a str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange_id: Option<&'a str>,
    /// The service has been asked about this part of a conversation before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replay: bool,
    /// Another request stands for the request to the model, or its answer, as a whole.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    part: bool,
    context: ContextJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chain_result: Option<ChainResultJson<'a>>,
}

/// What the agent says about itself, with the labels. Named as in a request to the gateway.
#[derive(Serialize)]
struct ContextJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    /// Sorted, so that equal calls have equal bodies.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'a str, &'a str>,
}

impl<'a> ContextJson<'a> {
    fn from_caller(caller: &'a CallContext) -> Self {
        ContextJson {
            session_id: caller.session_id.as_deref(),
            run_id: caller.run_id.as_deref(),
            parent_run_id: caller.parent_run_id.as_deref(),
            depth: caller.depth,
            agent_id: caller.agent_id.as_deref(),
            agent_path: caller.agent_path.as_deref(),
            project_id: caller.project_id.as_deref(),
            user_id: caller.user_id.as_deref(),
            provider: caller.provider.as_deref(),
            model: caller.model.as_deref(),
            labels: caller.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
        }
    }
}

/// How the chain ended, for observers.
#[derive(Serialize)]
struct ChainResultJson<'a> {
    /// `continue`, `block`, `answer`, or `none` if there was no decision.
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
}

impl<'a> ChainResultJson<'a> {
    fn from_result(result: &'a ChainResult) -> Self {
        let decision = match result.decision() {
            Decision::Continue => "continue",
            Decision::Block => "block",
            Decision::Answer => "answer",
            Decision::Unspecified => "none",
        };
        ChainResultJson { decision, plugin: result.plugin.as_deref(), code: result.code.as_deref() }
    }
}

/// A payload as JSON, with the members that it has over HTTP (docs/protocol.md, section 1).
pub(crate) trait PayloadJson {
    /// The point that has this payload.
    const POINT: Point;

    /// The tool of the call, at points that have one.
    fn tool_name(&self) -> Option<&str> {
        None
    }

    /// The payload as JSON text. Absent members are left out.
    fn to_json(&self) -> Result<Box<RawValue>, PluginError>;
}

/// A JSON value as the agent wrote it; `None` if it is absent.
fn raw(json: &[u8]) -> Result<Option<&RawValue>, PluginError> {
    if json.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(json)
        .map(Some)
        .map_err(|_| PluginError::invalid("a value of the payload isn't JSON"))
}

#[derive(Serialize)]
struct MediaJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    mime_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
}

fn media(list: &[Media]) -> Vec<MediaJson<'_>> {
    fn item(medium: &Media) -> MediaJson<'_> {
        let (data, url) = match &medium.source {
            Some(Source::Data(data)) => (Some(STANDARD.encode(data)), None),
            Some(Source::Url(url)) => (None, Some(url.as_str())),
            None => (None, None),
        };
        MediaJson { data, url, mime_type: &medium.mime_type, filename: medium.filename.as_deref() }
    }
    list.iter().map(item).collect()
}

impl PayloadJson for BeforeLlmRequestPayload {
    const POINT: Point = Point::BeforeLlmRequest;

    fn to_json(&self) -> Result<Box<RawValue>, PluginError> {
        #[derive(Serialize)]
        struct Members<'a> {
            text: &'a str,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            images: Vec<MediaJson<'a>>,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            files: Vec<MediaJson<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            system_prompt: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            messages: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tools: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            extra: Option<&'a RawValue>,
        }
        Ok(to_raw_value(&Members {
            text: &self.text,
            images: media(&self.images),
            files: media(&self.files),
            system_prompt: self.system_prompt.as_deref(),
            messages: raw(&self.messages)?,
            tools: raw(&self.tools)?,
            extra: raw(&self.extra)?,
        })?)
    }
}

impl PayloadJson for BeforeToolCallPayload {
    const POINT: Point = Point::BeforeToolCall;

    fn tool_name(&self) -> Option<&str> {
        Some(&self.tool_name)
    }

    fn to_json(&self) -> Result<Box<RawValue>, PluginError> {
        #[derive(Serialize)]
        struct Members<'a> {
            tool_name: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            args: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            call_id: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            extra: Option<&'a RawValue>,
        }
        Ok(to_raw_value(&Members {
            tool_name: &self.tool_name,
            args: raw(&self.args)?,
            call_id: self.call_id.as_deref(),
            extra: raw(&self.extra)?,
        })?)
    }
}

impl PayloadJson for AfterToolResultPayload {
    const POINT: Point = Point::AfterToolResult;

    fn tool_name(&self) -> Option<&str> {
        Some(&self.tool_name)
    }

    fn to_json(&self) -> Result<Box<RawValue>, PluginError> {
        #[derive(Serialize)]
        struct Members<'a> {
            tool_name: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            result: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            success: Option<bool>,
            #[serde(skip_serializing_if = "Option::is_none")]
            args: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            call_id: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            duration_ms: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            extra: Option<&'a RawValue>,
        }
        Ok(to_raw_value(&Members {
            tool_name: &self.tool_name,
            result: raw(&self.result)?,
            success: self.success,
            args: raw(&self.args)?,
            call_id: self.call_id.as_deref(),
            duration_ms: self.duration_ms,
            extra: raw(&self.extra)?,
        })?)
    }
}

impl PayloadJson for BeforeResponsePayload {
    const POINT: Point = Point::BeforeResponse;

    fn to_json(&self) -> Result<Box<RawValue>, PluginError> {
        #[derive(Serialize)]
        struct Usage {
            input: u64,
            output: u64,
        }
        #[derive(Serialize)]
        struct Members<'a> {
            content: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            reasoning: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            provider: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            model: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            router: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            token_usage: Option<Usage>,
            #[serde(skip_serializing_if = "Option::is_none")]
            stop_reason: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            extra: Option<&'a RawValue>,
        }
        Ok(to_raw_value(&Members {
            content: &self.content,
            reasoning: self.reasoning.as_deref(),
            provider: self.provider.as_deref(),
            model: self.model.as_deref(),
            router: self.router.as_deref(),
            token_usage: self.token_usage.map(|usage| Usage { input: usage.input, output: usage.output }),
            stop_reason: self.stop_reason.as_deref(),
            extra: raw(&self.extra)?,
        })?)
    }
}
