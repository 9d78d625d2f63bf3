//! The payloads of the points as JSON members, by the names of the contract, and the patches by the same names.

use base64::{Engine, engine::general_purpose::STANDARD};
use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Media,
    PluginError, Reply, json, proto::types::v1::media::Source,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{json, value::RawValue};

/// A payload whose members a script names.
pub(crate) trait ScriptedPayload {
    type Patch;
    /// The members that a patch may have.
    const PATCHABLE: &'static [&'static str];

    /// The members that are present.
    fn members(&self) -> Result<json::Object, PluginError>;

    /// Sets a member of the patch.
    fn set(
        reply: Reply<Self::Patch>,
        member: &str,
        value: &RawValue,
    ) -> Result<Reply<Self::Patch>, PluginError>;
}

impl ScriptedPayload for BeforeLlmRequestPayload {
    type Patch = BeforeLlmRequestPatch;
    const PATCHABLE: &'static [&'static str] =
        &["text", "images", "files", "system_prompt", "messages", "tools", "extra"];

    fn members(&self) -> Result<json::Object, PluginError> {
        let mut members = json::Object::default();
        members.set("text", &self.text)?;
        members.set("images", &media_to_json(&self.images))?;
        members.set("files", &media_to_json(&self.files))?;
        put(&mut members, "system_prompt", self.system_prompt.as_ref())?;
        put_json(&mut members, "messages", &self.messages)?;
        put_json(&mut members, "tools", &self.tools)?;
        put_json(&mut members, "extra", &self.extra)?;
        Ok(members)
    }

    fn set(
        reply: Reply<Self::Patch>,
        member: &str,
        value: &RawValue,
    ) -> Result<Reply<Self::Patch>, PluginError> {
        match member {
            "text" => Ok(reply.text(read::<String>(value)?)),
            "images" => Ok(reply.images(media_from_json(value)?)),
            "files" => Ok(reply.files(media_from_json(value)?)),
            "system_prompt" => Ok(reply.system_prompt(read::<String>(value)?)),
            "messages" => reply.messages(value),
            "tools" => reply.tools(value),
            "extra" => reply.extra(value),
            _ => Err(no_member(member)),
        }
    }
}

impl ScriptedPayload for BeforeToolCallPayload {
    type Patch = BeforeToolCallPatch;
    const PATCHABLE: &'static [&'static str] = &["tool_name", "args", "extra"];

    fn members(&self) -> Result<json::Object, PluginError> {
        let mut members = json::Object::default();
        members.set("tool_name", &self.tool_name)?;
        put_json(&mut members, "args", &self.args)?;
        put(&mut members, "call_id", self.call_id.as_ref())?;
        put_json(&mut members, "extra", &self.extra)?;
        Ok(members)
    }

    fn set(
        reply: Reply<Self::Patch>,
        member: &str,
        value: &RawValue,
    ) -> Result<Reply<Self::Patch>, PluginError> {
        match member {
            "tool_name" => Ok(reply.tool_name(read::<String>(value)?)),
            "args" => reply.args(value),
            "extra" => reply.extra(value),
            _ => Err(no_member(member)),
        }
    }
}

impl ScriptedPayload for AfterToolResultPayload {
    type Patch = AfterToolResultPatch;
    const PATCHABLE: &'static [&'static str] = &["result", "extra"];

    fn members(&self) -> Result<json::Object, PluginError> {
        let mut members = json::Object::default();
        members.set("tool_name", &self.tool_name)?;
        put_json(&mut members, "result", &self.result)?;
        put(&mut members, "success", self.success)?;
        put_json(&mut members, "args", &self.args)?;
        put(&mut members, "call_id", self.call_id.as_ref())?;
        put(&mut members, "duration_ms", self.duration_ms)?;
        put_json(&mut members, "extra", &self.extra)?;
        Ok(members)
    }

    fn set(
        reply: Reply<Self::Patch>,
        member: &str,
        value: &RawValue,
    ) -> Result<Reply<Self::Patch>, PluginError> {
        match member {
            "result" => reply.result(value),
            "extra" => reply.extra(value),
            _ => Err(no_member(member)),
        }
    }
}

impl ScriptedPayload for BeforeResponsePayload {
    type Patch = BeforeResponsePatch;
    const PATCHABLE: &'static [&'static str] = &["content", "reasoning", "extra"];

    fn members(&self) -> Result<json::Object, PluginError> {
        let mut members = json::Object::default();
        members.set("content", &self.content)?;
        put(&mut members, "reasoning", self.reasoning.as_ref())?;
        put(&mut members, "provider", self.provider.as_ref())?;
        put(&mut members, "model", self.model.as_ref())?;
        put(&mut members, "router", self.router.as_ref())?;
        let usage = self.token_usage.as_ref();
        put(
            &mut members,
            "token_usage",
            usage.map(|usage| json!({ "input": usage.input, "output": usage.output })),
        )?;
        put(&mut members, "stop_reason", self.stop_reason.as_ref())?;
        put_json(&mut members, "extra", &self.extra)?;
        Ok(members)
    }

    fn set(
        reply: Reply<Self::Patch>,
        member: &str,
        value: &RawValue,
    ) -> Result<Reply<Self::Patch>, PluginError> {
        match member {
            "content" => Ok(reply.content(read::<String>(value)?)),
            "reasoning" => Ok(reply.reasoning(read::<String>(value)?)),
            "extra" => reply.extra(value),
            _ => Err(no_member(member)),
        }
    }
}

fn put<T: Serialize>(members: &mut json::Object, name: &str, value: Option<T>) -> Result<(), PluginError> {
    value.map_or(Ok(()), |value| members.set(name, &value))
}

/// Puts a JSON value, of which empty bytes mean that it is absent.
fn put_json(members: &mut json::Object, name: &str, text: &[u8]) -> Result<(), PluginError> {
    if text.is_empty() {
        return Ok(());
    }
    // An object is parsed one level deep and written again; other values keep their text.
    match json::Object::parse(text) {
        Ok(object) => members.set(name, &object),
        Err(_) => members.set(name, &json::parse::<Box<RawValue>>(text)?),
    }
}

fn read<T: DeserializeOwned>(value: &RawValue) -> Result<T, PluginError> {
    json::parse(value.get().as_bytes())
}

fn no_member(member: &str) -> PluginError {
    PluginError::internal(format!("a patch has no member {member} here"))
}

/// A medium as over HTTP.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct MediaJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    mime_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<String>,
}

fn media_to_json(media: &[Media]) -> Vec<MediaJson> {
    let to_json = |medium: &Media| {
        let Media { source, mime_type, filename } = medium.clone();
        let (data, url) = match source {
            Some(Source::Data(data)) => (Some(STANDARD.encode(data)), None),
            Some(Source::Url(url)) => (None, Some(url)),
            None => (None, None),
        };
        MediaJson { data, url, mime_type, filename }
    };
    media.iter().map(to_json).collect()
}

fn media_from_json(value: &RawValue) -> Result<Vec<Media>, PluginError> {
    let from_json = |MediaJson { data, url, mime_type, filename }| {
        let data = data.map(|data| STANDARD.decode(data)).transpose()?;
        let source = data.map(|data| Source::Data(data.into())).or(url.map(Source::Url));
        Ok(Media { source, mime_type, filename })
    };
    read::<Vec<MediaJson>>(value)?.into_iter().map(from_json).collect()
}
