//! Builds a call's request body from the command line: the payload from flags, a file or standard input, and the
//! context. JSON is kept byte for byte. The gateway's own checks run here too, so that mistakes are reported before
//! anything is called.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use hookgate_proto::{HookName, HookNameError};

use super::output::printable;
use hookgate::{
    config::did_you_mean,
    core::{error::Violation, point::Point},
    fs::read_limited,
    invoke::{AfterToolResult, AgentCall, BeforeLlmRequest, BeforeResponse, BeforeToolCall, Hook},
    json::{self, ValueKind},
    transcode::{self, ObjectWriter},
};

/// Largest payload, in bytes: the largest request that a gateway can be configured to accept.
const MAX_PAYLOAD_BYTES: u64 = 16 << 20;

/// Parses the name of a point, also with hyphens as in paths.
pub(super) fn points() -> impl TypedValueParser<Value = Point> {
    let hyphenated = |point| match point {
        Point::BeforeLlmRequest => "before-llm-request",
        Point::BeforeToolCall => "before-tool-call",
        Point::AfterToolResult => "after-tool-result",
        Point::BeforeResponse => "before-response",
    };
    let name = |point: Point| PossibleValue::new(point.as_str()).alias(hyphenated(point));
    PossibleValuesParser::new(Point::ALL.map(name))
        .map(|name| Point::from_name(&name.replace('-', "_")).expect("it is one of the listed points"))
}

/// Parses the name of a hook.
pub(super) fn hook(name: &str) -> Result<HookName, HookNameError> {
    HookName::new(name)
}

/// A payload. [`FLAGS`] says which flags belong to which point.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Payload")]
pub(super) struct Payload {
    /// The whole payload as a JSON object; `-` reads standard input.
    #[arg(long, value_name = "FILE|-", conflicts_with_all = FLAGS.map(|flag| flag.id))]
    payload: Option<PathBuf>,
    /// `before_llm_request`: the user's text.
    #[arg(long)]
    text: Option<String>,
    /// `before_llm_request`: the system prompt.
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,
    /// `before_llm_request`: the conversation, a JSON array.
    #[arg(long, value_name = "JSON")]
    messages: Option<String>,
    /// `before_llm_request`: the tools offered, a JSON array.
    #[arg(long, value_name = "JSON")]
    tools: Option<String>,
    /// Tool points: name of the tool.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Tool points: the arguments. Default at `before_tool_call`: {}.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Tool points: id of the call, chosen by the agent.
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
    /// `after_tool_result`: the tool's result.
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
    /// `after_tool_result`: whether the tool succeeded.
    #[arg(long, value_name = "true|false")]
    success: Option<bool>,
    /// `after_tool_result`: duration of the tool call, in milliseconds.
    #[arg(long, value_name = "MS")]
    duration_ms: Option<u64>,
    /// `before_response`: the answer.
    #[arg(long, value_name = "TEXT")]
    content: Option<String>,
    /// `before_response`: the model's reasoning.
    #[arg(long, value_name = "TEXT")]
    reasoning: Option<String>,
    /// All points: additional data, a JSON object.
    #[arg(long, value_name = "JSON")]
    extra: Option<String>,
}

/// A flag, the member that it sets, and the points that have it.
struct PayloadFlag {
    /// clap's id: the name of the field.
    id: &'static str,
    member: &'static str,
    points: &'static [Point],
    /// Whether a payload made of flags needs it.
    required: bool,
}

const LLM_POINTS: &[Point] = &[Point::BeforeLlmRequest];
const TOOL_POINTS: &[Point] = &[Point::BeforeToolCall, Point::AfterToolResult];
const RESULT_POINTS: &[Point] = &[Point::AfterToolResult];
const RESPONSE_POINTS: &[Point] = &[Point::BeforeResponse];
const ALL_POINTS: &[Point] =
    &[Point::BeforeLlmRequest, Point::BeforeToolCall, Point::AfterToolResult, Point::BeforeResponse];

const FLAGS: [PayloadFlag; 13] = [
    flag("text", "text", LLM_POINTS, false), // may be left out beside others
    flag("system_prompt", "system_prompt", LLM_POINTS, false),
    flag("messages", "messages", LLM_POINTS, false),
    flag("tools", "tools", LLM_POINTS, false),
    flag("tool", "tool_name", TOOL_POINTS, true),
    flag("result", "result", RESULT_POINTS, true),
    flag("success", "success", RESULT_POINTS, true),
    flag("args", "args", TOOL_POINTS, false),
    flag("call_id", "call_id", TOOL_POINTS, false),
    flag("duration_ms", "duration_ms", RESULT_POINTS, false),
    flag("content", "content", RESPONSE_POINTS, true),
    flag("reasoning", "reasoning", RESPONSE_POINTS, false),
    flag("extra", "extra", ALL_POINTS, false),
];

const fn flag(
    id: &'static str,
    member: &'static str,
    points: &'static [Point],
    required: bool,
) -> PayloadFlag {
    PayloadFlag { id, member, points, required }
}

impl PayloadFlag {
    fn name(&self) -> String {
        format!("--{}", self.id.replace('_', "-"))
    }
}

impl Payload {
    /// The payload at `point`, as JSON text.
    ///
    /// # Errors
    /// One sentence, which says where the input is invalid.
    pub(super) fn json(&self, point: Point) -> Result<Bytes, String> {
        self.payload
            .as_ref()
            .map_or_else(|| self.encode_flags(point), |path| object_in_file("the payload", path))
    }

    fn encode_flags(&self, point: Point) -> Result<Bytes, String> {
        let mut out = Vec::new();
        let mut wrong = None;
        let values = self.values(point);
        ObjectWriter::object(&mut out, |object| {
            for (flag, value) in FLAGS.iter().zip(&values) {
                wrong = wrong.take().or_else(|| put(flag, value.as_ref(), point, object).err());
            }
        });
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if point == Point::BeforeLlmRequest && values.iter().take(4).all(Option::is_none) {
            return Err(format!("{point} needs --text, or --payload with a file"));
        }
        Ok(out.into())
    }

    /// The given values, in the order of [`FLAGS`].
    fn values(&self, point: Point) -> [Option<FlagValue>; FLAGS.len()] {
        let text = |value: &Option<String>| value.clone().map(FlagValue::Text);
        let json = |value: &Option<String>| value.clone().map(FlagValue::Json);
        let raw = |value: Option<String>| value.map(FlagValue::Raw);
        let none = FlagValue::Json("{}".into());
        [
            text(&self.text),
            text(&self.system_prompt),
            json(&self.messages),
            json(&self.tools),
            text(&self.tool),
            json(&self.result),
            raw(self.success.map(|success| success.to_string())),
            json(&self.args).or_else(|| (point == Point::BeforeToolCall).then_some(none)),
            text(&self.call_id),
            raw(self.duration_ms.map(|millis| millis.to_string())),
            text(&self.content),
            text(&self.reasoning),
            json(&self.extra),
        ]
    }
}

/// The body of a hook.
#[derive(Debug, Args)]
#[command(next_help_heading = "Body")]
pub(super) struct HookBody {
    /// The body, a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}", conflicts_with = "body_file")]
    body: String,
    /// The body from a file; `-` reads standard input.
    #[arg(long, value_name = "FILE|-")]
    body_file: Option<PathBuf>,
}

impl HookBody {
    /// The body, as JSON text.
    ///
    /// # Errors
    /// One sentence, which says where the input is invalid.
    fn json(&self) -> Result<Bytes, String> {
        if let Some(path) = &self.body_file {
            return object_in_file("the body", path);
        }
        object("--body", self.body.as_bytes())?;
        Ok(self.body.trim_ascii().to_owned().into())
    }
}

/// The value of a flag.
enum FlagValue {
    Text(String),
    /// As the caller wrote it, not yet parsed.
    Json(String),
    /// JSON that clap has parsed.
    Raw(String),
}

fn put(
    flag: &PayloadFlag,
    value: Option<&FlagValue>,
    point: Point,
    object: &mut ObjectWriter<'_>,
) -> Result<(), String> {
    let belongs = flag.points.contains(&point);
    let Some(value) = value else {
        let missing = belongs && flag.required;
        return if missing {
            Err(format!("{point} needs {}, or --payload with a file", flag.name()))
        } else {
            Ok(())
        };
    };
    if !belongs {
        let known = FLAGS.iter().filter(|flag| flag.points.contains(&point)).map(PayloadFlag::name);
        let known = known.collect::<Vec<_>>();
        let near = did_you_mean(&flag.name(), known.iter().map(String::as_str));
        let remedy = near.unwrap_or_else(|| format!("it has {}", known.join(", ")));
        return Err(format!("{} doesn't belong to {point}: {remedy}", flag.name()));
    }
    match value {
        FlagValue::Text(text) => object.member(flag.member, text),
        FlagValue::Raw(json) => object.json(flag.member, json.as_bytes()),
        FlagValue::Json(text) => {
            scan(&flag.name(), text.as_bytes())?;
            object.json(flag.member, text.trim_ascii().as_bytes());
        }
    }
    Ok(())
}

/// Reads up to the size limit of a payload.
pub(super) fn read(input: impl Read) -> std::io::Result<Vec<u8>> {
    read_limited::read(input, MAX_PAYLOAD_BYTES)?
        .ok_or_else(|| std::io::Error::other("it is larger than 16 MiB"))
}

/// The kind of the JSON value `text`, which errors call `name`.
///
/// # Errors
/// One sentence, which says where the JSON is invalid.
pub(super) fn scan(name: &str, text: &[u8]) -> Result<ValueKind, String> {
    json::scan(text, json::MAX_DEPTH).map_err(|flaw| {
        let (line, column) = flaw.position(text);
        let bare = text.iter().find(|byte| !byte.is_ascii_whitespace());
        let hint = match bare {
            Some(first) if first.is_ascii_alphabetic() => "; put a text in double quotes: '\"...\"'",
            _ => "",
        };
        let message = printable(&flaw.message);
        format!("{name} is not valid JSON: {message} at line {line}, column {column}{hint}")
    })
}

/// The JSON object in a file, or in standard input for `-`. Errors call it `name`.
fn object_in_file(name: &str, path: &Path) -> Result<Bytes, String> {
    let (shown, read) = if path.as_os_str() == "-" {
        ("standard input".to_owned(), read(std::io::stdin().lock()))
    } else {
        let shown = format!("`{}`", printable(&path.display().to_string()));
        (shown, std::fs::File::open(path).and_then(read))
    };
    let bytes = read.map_err(|error| format!("{name} can't be read from {shown}: {error}"))?;
    if bytes.trim_ascii().is_empty() {
        return Err(format!("{shown} is empty: give a JSON object"));
    }
    object(&format!("{name} in {shown}"), &bytes)?;
    Ok(bytes.trim_ascii().to_vec().into())
}

/// Checks that `text`, which errors call `name`, is a JSON object.
pub(super) fn object(name: &str, text: &[u8]) -> Result<(), String> {
    match scan(name, text)? {
        ValueKind::Object => Ok(()),
        kind => Err(format!("{name} must be a JSON object, not {kind}")),
    }
}

/// The context of the call.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Context")]
pub(super) struct ContextArgs {
    /// Id of the conversation.
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Id of the agent's run.
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Id of the run that started this one.
    #[arg(long, value_name = "ID")]
    parent_run_id: Option<String>,
    /// Nesting depth of the run.
    #[arg(long, value_name = "NUMBER")]
    depth: Option<u32>,
    /// Id of the agent.
    #[arg(long, value_name = "ID")]
    agent_id: Option<String>,
    /// Path of the agent and its ancestors.
    #[arg(long, value_name = "PATH")]
    agent_path: Option<String>,
    /// Id of the project.
    #[arg(long, value_name = "ID")]
    project_id: Option<String>,
    /// Id of the end user.
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,
    /// Provider of the model in use.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Name of the model in use.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// A label; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
}

/// Parses `--label`.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = parts.ok_or("a label must be KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl ContextArgs {
    fn json(&self) -> Vec<u8> {
        let mut labels = Vec::new();
        ObjectWriter::object(&mut labels, |object| {
            for (key, value) in &self.labels {
                object.member(key, value);
            }
        });
        let mut out = Vec::new();
        ObjectWriter::object(&mut out, |object| {
            object.optional("session_id", self.session_id.as_ref());
            object.optional("run_id", self.run_id.as_ref());
            object.optional("parent_run_id", self.parent_run_id.as_ref());
            object.optional("depth", self.depth.map(u64::from).as_ref());
            object.optional("agent_id", self.agent_id.as_ref());
            object.optional("agent_path", self.agent_path.as_ref());
            object.optional("project_id", self.project_id.as_ref());
            object.optional("user_id", self.user_id.as_ref());
            object.optional("provider", self.provider.as_ref());
            object.optional("model", self.model.as_ref());
            object.json("labels", &labels);
        });
        out
    }
}

/// A request of an agent.
pub(super) struct Request {
    /// Its payload, a JSON object.
    pub(super) payload: Bytes,
    /// The whole body.
    pub(super) body: Bytes,
}

/// What the agent asks for besides the decision.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestOptions {
    /// The changes of each step.
    pub(super) trace: bool,
    /// A tool's result from a plugin; only at `before_tool_call`.
    pub(super) takes_results: bool,
}

/// The request at `point`.
///
/// # Errors
/// One message with everything that the gateway would refuse.
pub(super) fn request(
    point: Point,
    payload: &Payload,
    context: &ContextArgs,
    options: RequestOptions,
) -> Result<Request, String> {
    let payload = payload.json(point)?;
    let mut body = Vec::new();
    ObjectWriter::object(&mut body, |object| {
        object.json("context", &context.json());
        object.json("payload", &payload);
        if options.trace {
            object.member("trace", &true);
        }
        if options.takes_results {
            object.member("takes_results", &true);
        }
    });
    let body = Bytes::from(body);
    match point {
        Point::BeforeLlmRequest => decode::<BeforeLlmRequest>(&body).map(drop),
        Point::BeforeToolCall => decode::<BeforeToolCall>(&body).map(drop),
        Point::AfterToolResult => decode::<AfterToolResult>(&body).map(drop),
        Point::BeforeResponse => decode::<BeforeResponse>(&body).map(drop),
    }?;
    Ok(Request { payload, body })
}

/// The body of the request at `hook`.
///
/// # Errors
/// One message with everything that the gateway would refuse.
pub(super) fn hook_request(hook: &HookName, body: &HookBody, context: &ContextArgs) -> Result<Bytes, String> {
    let body = body.json()?;
    let mut request = Vec::new();
    ObjectWriter::object(&mut request, |object| {
        object.json("context", &context.json());
        object.json("body", &body);
    });
    let request = Bytes::from(request);
    decode_at::<Hook>(&request, Some(hook.as_str()))?;
    Ok(request)
}

/// Decodes the body of a request at a point.
///
/// # Errors
/// One message with everything that the gateway would refuse.
pub(super) fn decode<P: AgentCall>(body: &Bytes) -> Result<P::Request, String>
where
    P::Request: transcode::HttpRequestMessage,
{
    decode_at::<P>(body, None)
}

/// Decodes the body of a request, at `hook` unless it is at a point.
fn decode_at<P: AgentCall>(body: &Bytes, hook: Option<&str>) -> Result<P::Request, String>
where
    P::Request: transcode::HttpRequestMessage,
{
    transcode::decode_at::<P::Request>(body, hook).map_err(|violations| {
        let line = |wrong: &Violation| printable(&format!("{}: {}", wrong.pointer, wrong.message));
        match violations.as_slice() {
            [only] => line(only),
            several => {
                let lines = several.iter().map(|wrong| format!("\n  {}", line(wrong))).collect::<String>();
                format!("{} members are invalid{lines}", several.len())
            }
        }
    })
}
