//! Calls in kaged's words: hooks and tools as methods, and their results as replies of the contract.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use hookgate::{core::call_site::CallSite, json, transcode::ObjectWriter};
use hookgate_proto::{Point, plugin::v1::CallContext};
use tonic::Status;

use super::{
    KagedPlugin,
    manifest::KagedHook,
    message::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, object, text},
};
use crate::{dialect::CallParts, home::folder_name, payload::Payload};

/// The code of a block whose tool could not do what it was asked for.
const TOOL_FAILED: &str = "TOOL_FAILED";
/// The code of a block whose tool got wrong arguments.
const TOOL_ARGS_INVALID: &str = "TOOL_ARGS_INVALID";
/// What kaged calls an agent without ancestors.
const PRIMARY: &str = "primary";
const UNKNOWN: &str = "unknown";

/// A call of the gateway.
#[derive(Debug)]
pub(super) struct KagedCall {
    pub(super) request: Arc<KagedRequest>,
    /// The ids of the messages that are to be compacted.
    message_ids: Vec<String>,
}

/// What the plugin is asked.
#[derive(Debug)]
pub(super) struct KagedRequest {
    pub(super) kind: CallKind,
    pub(super) method: String,
    /// JSON text.
    pub(super) params: Vec<u8>,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    Hook(KagedHook),
    Tool,
}

impl KagedCall {
    /// # Errors
    /// INVALID_ARGUMENT if the payload can't be read, UNIMPLEMENTED if the plugin has no such hook, NOT_FOUND if it has no
    /// such tool.
    pub(super) fn new(plugin: &KagedPlugin, parts: &CallParts<'_>) -> Result<Self, Status> {
        let payload = Payload::new(parts.payload)?;
        let context = parts.call.context.clone().unwrap_or_default();
        match KagedHook::at(parts.site.as_str()).filter(|hook| plugin.hooks().contains(hook)) {
            Some(hook) => Ok(Self::of_hook(plugin, hook, &payload, &context)),
            None if parts.call.run_tool && *parts.site == CallSite::Point(Point::BeforeToolCall) => {
                Self::of_tool(plugin, &payload, &context)
            }
            None => Err(Status::unimplemented(format!("the plugin does not answer at {}", parts.site))),
        }
    }

    fn of_hook(plugin: &KagedPlugin, hook: KagedHook, payload: &Payload, context: &CallContext) -> Self {
        let mut members = payload.members();
        let messages = members.remove("messages").unwrap_or("[]");
        let mut added = Vec::new();
        match hook {
            KagedHook::OnSessionStart => {}
            KagedHook::OnSessionIdle => added.push(("transcript", string(&transcript(messages)))),
            KagedHook::PreCompact | KagedHook::PostCompact => {
                // A compactor answers with messages, and an observer reads them.
                let (role, messages, none) = match plugin.is_compactor() {
                    true => ("compactor", messages.to_owned(), "[]"),
                    false => ("observer", string(&transcript(messages)), "\"\""),
                };
                added.push(("messages_being_compacted", messages));
                added.push(("messages_remaining", none.to_owned()));
                members.remove("role");
                added.push(("role", string(role)));
            }
        }
        added.retain(|(name, _)| !members.contains_key(*name));
        members.extend(added.iter().map(|(name, value)| (Cow::Borrowed(*name), value.as_str())));
        let message_ids = match members.get("messages_being_compacted") {
            Some(messages) if messages.starts_with('[') => message_ids(messages),
            _ => Vec::new(),
        };
        let (kind, method) = (CallKind::Hook(hook), hook.method().to_owned());
        let request = KagedRequest { kind, method, params: params(members, context) };
        KagedCall { request: Arc::new(request), message_ids }
    }

    fn of_tool(plugin: &KagedPlugin, payload: &Payload, context: &CallContext) -> Result<Self, Status> {
        let method = payload.text("tool_name").unwrap_or_default().into_owned();
        if !plugin.tool_names().any(|tool| tool == method) {
            return Err(Status::not_found(format!("the plugin has no tool `{method}`")));
        }
        let args = payload.members().get("args").copied().unwrap_or("{}");
        if !args.starts_with('{') {
            return Err(Status::invalid_argument("the arguments of a tool must be an object"));
        }
        let params = params(json::members(args).collect(), context);
        let request = KagedRequest { kind: CallKind::Tool, method, params };
        Ok(KagedCall { request: Arc::new(request), message_ids: Vec::new() })
    }

    /// The reply of the contract for what the plugin answered.
    ///
    /// # Errors
    /// If that is no answer.
    pub(super) fn reply(
        &self,
        plugin: &KagedPlugin,
        answer: &Result<Bytes, RpcError>,
    ) -> Result<Vec<u8>, Status> {
        let result = match answer {
            Ok(result) => str::from_utf8(result).map_err(|_| Status::internal("the result is not UTF-8"))?,
            Err(error) => return self.refusal(error),
        };
        match self.request.kind {
            CallKind::Tool => Ok(object(|reply| {
                let cancel = object(|cancel| cancel.json("result", result.as_bytes()));
                reply.json("cancel", &cancel);
            })),
            CallKind::Hook(KagedHook::OnSessionIdle) => Ok(b"{}".to_vec()),
            CallKind::Hook(hook) => {
                let result = HookResult::read(result).map_err(Status::internal)?;
                let contributions = result.contributions(hook, plugin, &self.message_ids);
                let contributions = contributions.map_err(Status::internal)?;
                Ok(object(|reply| reply.json("contributions", &contributions)))
            }
        }
    }

    /// The reply for an error. What a tool says of its arguments is for the model.
    fn refusal(&self, error: &RpcError) -> Result<Vec<u8>, Status> {
        let failure = |code: fn(String) -> Status| Err(code(format!("the plugin answered: {error}")));
        let code = match (self.request.kind, error.code) {
            (_, METHOD_NOT_FOUND) => return failure(Status::unimplemented),
            // What a call causes doesn't count against the plugin.
            (CallKind::Hook(_), INVALID_PARAMS) => return failure(Status::invalid_argument),
            (CallKind::Tool, INVALID_PARAMS) => TOOL_ARGS_INVALID,
            // Reserved by JSON-RPC for faults of the plugin itself.
            (_, ..=-32100) => return failure(Status::internal),
            (CallKind::Hook(_), _) => return failure(Status::aborted),
            (CallKind::Tool, _) => TOOL_FAILED,
        };
        let cancel = object(|cancel| {
            cancel.member("code", code);
            cancel.member("message", &error.message);
        });
        Ok(object(|reply| reply.json("cancel", &cancel)))
    }
}

/// A text as a JSON string.
fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Parameters with kaged's `_context`, which the agent can't set itself.
fn params(mut members: BTreeMap<Cow<'_, str>, &str>, context: &CallContext) -> Vec<u8> {
    members.remove("_context");
    object(|params| {
        members.iter().for_each(|(name, value)| params.json(name, value.as_bytes()));
        params.json("_context", &object(|object| put_context(object, context)));
    })
}

/// kaged gives the project, the agent and the session all or none. Plugins make names of files from them.
fn put_context(object: &mut ObjectWriter<'_>, context: &CallContext) {
    object.member("operator_id", &context.operator);
    let given = |id: &'_ Option<String>| id.clone().filter(|id| !id.is_empty());
    let agent = given(&context.agent_path).or_else(|| given(&context.agent_id));
    let (project, session) = (given(&context.project_id), given(&context.session_id));
    if agent.is_some() || project.is_some() || session.is_some() {
        object.member("project_id", &folder_name(project.as_deref().unwrap_or(&context.tenant)));
        object.member("agent_path", &agent_path(agent.as_deref().unwrap_or(PRIMARY)));
        object.member("session_id", &folder_name(session.as_deref().unwrap_or(UNKNOWN)));
    }
    object.member("request_id", &context.request_id);
}

/// An agent's path in kaged's form, such as `primary.subagents.research`. An agent with another one is a subagent of that
/// name.
fn agent_path(written: &str) -> String {
    let mut path = PRIMARY.to_owned();
    for name in subagents(written).unwrap_or_else(|| vec![written]) {
        path += ".subagents.";
        path += &folder_name(name);
    }
    path
}

/// The names in a path of kaged's form.
fn subagents(path: &str) -> Option<Vec<&str>> {
    let mut rest = path.strip_prefix(PRIMARY)?;
    let mut names = Vec::new();
    while !rest.is_empty() {
        let named = rest.strip_prefix(".subagents.")?;
        let end = named.find('.').unwrap_or(named.len());
        names.push(named.get(..end).filter(|name| !name.is_empty())?);
        rest = &named[end..];
    }
    Some(names)
}

/// Messages as kaged's plugins read them.
fn transcript(messages: &str) -> String {
    let message = |message: &str| {
        let (mut role, mut content) = (String::new(), String::new());
        for (name, value) in json::members(message) {
            match &*name {
                "role" => role = text(value).unwrap_or_default(),
                "content" => content = content_text(value),
                _ => {}
            }
        }
        let role = match &*role {
            "user" => "Operator",
            "assistant" => "Agent",
            other => other,
        };
        format!("**{role}:** {content}")
    };
    json::elements(messages).map(message).collect::<Vec<_>>().join("\n")
}

/// The text of a content: a string, or parts with a `text` each. Anything else stays JSON.
fn content_text(content: &str) -> String {
    let part =
        |part: &str| json::members(part).find(|(name, _)| name == "text").and_then(|(_, value)| text(value));
    match content.as_bytes().first() {
        Some(b'"') => text(content).unwrap_or_default(),
        Some(b'[') => json::elements(content).filter_map(part).collect::<Vec<_>>().join("\n"),
        _ => content.to_owned(),
    }
}

/// The ids of messages.
fn message_ids(messages: &str) -> Vec<String> {
    let id = |message| json::members(message).find(|(name, _)| name == "id").and_then(|(_, id)| text(id));
    json::elements(messages).filter_map(id).collect()
}

/// The result of a hook, whose members are JSON text.
#[derive(Debug, Default)]
struct HookResult<'a> {
    inject: Option<&'a str>,
    retain: Option<&'a str>,
    role: Option<&'a str>,
    messages: Option<&'a str>,
    superseded: Option<&'a str>,
}

impl<'a> HookResult<'a> {
    fn read(result: &'a str) -> Result<Self, String> {
        let mut read = HookResult::default();
        if result == "null" {
            return Ok(read);
        }
        if !result.starts_with('{') {
            return Err("the result of a hook must be an object or null".into());
        }
        for (name, value) in json::members(result).filter(|(_, value)| *value != "null") {
            match &*name {
                "inject" => read.inject = Some(value),
                "retain" => read.retain = Some(value),
                "role" => read.role = Some(value),
                "messages" => read.messages = Some(value),
                "superseded" => read.superseded = Some(value),
                _ => {}
            }
        }
        Ok(read)
    }

    /// The contributions as a JSON array.
    fn contributions(
        &self,
        hook: KagedHook,
        plugin: &KagedPlugin,
        message_ids: &[String],
    ) -> Result<Vec<u8>, String> {
        let mut contributions = Vec::new();
        let mut add = |kind: &str, value: &[u8]| {
            contributions.push(object(|contribution| {
                contribution.member("kind", kind);
                contribution.json("value", value);
            }));
        };
        if let Some(inject) = self.inject {
            let content = text(inject).ok_or("`inject` must be a string")?;
            if !content.is_empty() {
                add("inject", &object(|value| value.member("content", &content)));
            }
        }
        if hook != KagedHook::OnSessionStart {
            if let Some(retain) = self.retain.filter(|retain| !is_empty(retain)) {
                texts("retain", retain)?;
                add("retain", retain.as_bytes());
            }
            if let Some(messages) = self.compacted(hook, plugin, message_ids)? {
                add("messages", messages.as_bytes());
            }
        }
        let mut all = b"[".to_vec();
        all.extend(contributions.join(&b','));
        all.push(b']');
        Ok(all)
    }

    /// The messages of a compactor. Only such a plugin may give them, and only for messages that it got.
    fn compacted(
        &self,
        hook: KagedHook,
        plugin: &KagedPlugin,
        message_ids: &[String],
    ) -> Result<Option<&'a str>, String> {
        if self.role.and_then(text).as_deref() != Some("compactor") {
            return Ok(None);
        }
        if !plugin.is_compactor() || hook != KagedHook::PreCompact {
            return Err("the plugin answers as a compactor, but that isn't its role at this hook".into());
        }
        let messages = self.messages.filter(|messages| messages.starts_with('[') && !is_empty(messages));
        let messages =
            messages.ok_or("`messages` of a compactor must be a list with at least one message")?;
        let superseded = texts("superseded", self.superseded.unwrap_or("[]"))?;
        match superseded.iter().find(|id| !message_ids.contains(id)) {
            Some(id) => Err(format!("`superseded` names `{id}`, which is none of the messages to compact")),
            None => Ok(Some(messages)),
        }
    }
}

fn is_empty(array: &str) -> bool {
    array.starts_with('[') && json::elements(array).next().is_none()
}

/// The strings in an array.
fn texts(name: &str, array: &str) -> Result<Vec<String>, String> {
    let strings: Option<Vec<_>> =
        if array.starts_with('[') { json::elements(array).map(text).collect() } else { None };
    strings.ok_or_else(|| format!("`{name}` must be a list of strings"))
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
