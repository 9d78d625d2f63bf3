//! Where payloads have texts, and patches that replace them.
//!
//! `messages` has the agent's own format. So that it stays valid, the members that belong to the format are left
//! out: ids, roles, types, names, signatures and binary data. Of `images` and `files`, those are read whose data is text.

use std::{borrow::Cow, str::Utf8Chunk};

use bytes::Bytes;
use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Media, MediaList,
    PluginError, proto::types::v1::media::Source,
};

use schemars::JsonSchema;
use serde::Deserialize;

use super::json::{self, Text};

/// A longer string of base64 and nothing else is data, such as an image.
const MAX_KEY_BYTES: usize = 2048;

/// Base64 of fewer bytes in `data` may be a key. Hardly any image is so short.
const MIN_DATA_BYTES: usize = 64;

/// The lengths of lines of base64, in PEM and in MIME.
const WRAPPED_BYTES: [usize; 2] = [64, 76];

/// How many times JSON may be a string within JSON.
const MAX_NESTED_JSON: usize = 4;

/// Members of a conversation that belong to its format. Models sign what they thought, and accept no other text.
const FORMAT_MEMBERS: [&str; 14] = [
    "encrypted_content",
    "id",
    "media_type",
    "mimeType",
    "mime_type",
    "model",
    "name",
    "namespace",
    "role",
    "signature",
    "thinking",
    "thoughtSignature",
    "thought_signature",
    "type",
];

/// Members of `extra` with ids that the agent made, which may look random.
const ID_MEMBERS: [&str; 3] = ["prompt_cache_key", "safety_identifier", "user"];

/// Members of a conversation with values of tools. No format applies to what is in them.
const TOOL_MEMBERS: [&str; 4] = ["args", "arguments", "input", "response"];

/// The setting of what happens to a request to a model with a match in a [fixed](Text::is_fixed) text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolsAndExtra {
    /// The plugin cancels.
    Block,
    /// It passes.
    #[default]
    Ignore,
}

impl ToolsAndExtra {
    /// What `judge` says of the first fixed text of a payload about which it says anything, if they are looked at.
    ///
    /// # Errors
    /// As [`TextPayload::replace_texts`].
    pub fn first<T>(
        self,
        payload: &impl TextPayload,
        mut judge: impl FnMut(&Text<'_>) -> Option<T>,
    ) -> Result<Option<T>, PluginError> {
        let mut first = None;
        if self == ToolsAndExtra::Block {
            payload.look_at_fixed(&mut |text| {
                if first.is_none() {
                    first = judge(text);
                }
            })?;
        }
        Ok(first)
    }
}

/// Says what replaces a text.
type Replace<'a> = dyn FnMut(&Text<'_>) -> Option<String> + 'a;

/// A patch that replaces texts.
#[derive(Debug)]
pub struct Replaced<Patch> {
    /// The patch; `None` if nothing was replaced.
    pub patch: Option<Patch>,
    /// By how many bytes the replacements make the payload longer; negative if it gets shorter.
    pub growth: isize,
}

/// A payload whose texts can be looked at, and replaced.
pub trait TextPayload {
    /// The point's patch.
    type Patch: Default + PartialEq;

    /// Shows every text that a plugin may patch to `replace`, and collects the replacements of all but
    /// [`TextKind::Name`](crate::TextKind::Name).
    ///
    /// # Errors
    /// If a field isn't JSON, which no gateway sends.
    fn replace_texts(&self, replace: &mut Replace<'_>) -> Result<Replaced<Self::Patch>, PluginError>;

    /// Shows the [fixed](Text::is_fixed) texts, which only a request to a model has.
    ///
    /// # Errors
    /// As [`TextPayload::replace_texts`].
    fn look_at_fixed(&self, _: &mut dyn FnMut(&Text<'_>)) -> Result<(), PluginError> {
        Ok(())
    }
}

impl TextPayload for BeforeLlmRequestPayload {
    type Patch = BeforeLlmRequestPatch;

    fn replace_texts(&self, replace: &mut Replace<'_>) -> Result<Replaced<Self::Patch>, PluginError> {
        let mut fields = Fields { replace, growth: 0 };
        let patch = BeforeLlmRequestPatch {
            text: fields.text("text", &self.text),
            system_prompt: self.system_prompt.as_deref().and_then(|text| fields.text("system_prompt", text)),
            messages: fields.json("messages", &self.messages, is_content)?,
            images: fields.media("images", &self.images),
            files: fields.media("files", &self.files),
            ..Default::default()
        };
        Ok(fields.replaced(patch))
    }

    fn look_at_fixed(&self, look: &mut dyn FnMut(&Text<'_>)) -> Result<(), PluginError> {
        let mut keep = |text: &Text<'_>| {
            look(text);
            None
        };
        let mut fields = Fields { replace: &mut keep, growth: 0 };
        fields.json("tools", &self.tools, is_content)?;
        fields.json("extra", &self.extra, is_content)?;
        Ok(())
    }
}

impl TextPayload for BeforeToolCallPayload {
    type Patch = BeforeToolCallPatch;

    fn replace_texts(&self, replace: &mut Replace<'_>) -> Result<Replaced<Self::Patch>, PluginError> {
        let mut fields = Fields { replace, growth: 0 };
        let args = fields.json("args", &self.args, |_| true)?;
        Ok(fields.replaced(BeforeToolCallPatch { args, ..Default::default() }))
    }
}

impl TextPayload for AfterToolResultPayload {
    type Patch = AfterToolResultPatch;

    fn replace_texts(&self, replace: &mut Replace<'_>) -> Result<Replaced<Self::Patch>, PluginError> {
        let mut fields = Fields { replace, growth: 0 };
        let result = fields.json("result", &self.result, |_| true)?;
        Ok(fields.replaced(AfterToolResultPatch { result, ..Default::default() }))
    }
}

impl TextPayload for BeforeResponsePayload {
    type Patch = BeforeResponsePatch;

    fn replace_texts(&self, replace: &mut Replace<'_>) -> Result<Replaced<Self::Patch>, PluginError> {
        let mut fields = Fields { replace, growth: 0 };
        let patch = BeforeResponsePatch {
            content: fields.text("content", &self.content),
            reasoning: self.reasoning.as_deref().and_then(|text| fields.text("reasoning", text)),
            ..Default::default()
        };
        Ok(fields.replaced(patch))
    }
}

/// The fields of a payload, one after another.
struct Fields<'r, 'f> {
    replace: &'r mut Replace<'f>,
    growth: isize,
}

impl Fields<'_, '_> {
    fn text(&mut self, field: &str, text: &str) -> Option<String> {
        let new = replace_nested(&Text::from_field(field, text), self.replace, 0)?;
        self.count(text.len(), new.len());
        Some(new)
    }

    fn json(
        &mut self,
        field: &str,
        json: &Bytes,
        is_shown: fn(&Text<'_>) -> bool,
    ) -> Result<Option<Bytes>, PluginError> {
        if json.is_empty() {
            return Ok(None);
        }
        let mut replace = |text: &Text<'_>| {
            if is_data(text.text) || !is_shown(text) { None } else { replace_nested(text, self.replace, 0) }
        };
        let new = json::replace_texts(field, json, &mut replace)
            .map_err(|error| PluginError::invalid(format!("`{field}` isn't valid JSON: {error}")))?;
        self.count(json.len(), new.as_ref().map_or(json.len(), String::len));
        Ok(new.map(Bytes::from))
    }

    fn media(&mut self, field: &str, media: &[Media]) -> Option<MediaList> {
        let (mut items, mut is_changed) = (media.to_vec(), false);
        for (index, file) in items.iter_mut().enumerate() {
            let name = file.filename.as_deref();
            if let Some(name) = name.and_then(|name| self.member_of(field, index, "filename", name)) {
                (file.filename, is_changed) = (Some(name), true);
            }
            let new = text_of(file).and_then(|text| self.member_of(field, index, "data", &text));
            if let Some(data) = new {
                (file.source, is_changed) = (Some(Source::Data(data.into())), true);
            }
        }
        is_changed.then_some(MediaList { items })
    }

    fn member_of(&mut self, field: &str, index: usize, member: &str, text: &str) -> Option<String> {
        let new =
            json::with_element(field, index, member, text, |text| replace_nested(text, self.replace, 0))?;
        self.count(text.len(), new.len());
        Some(new)
    }

    fn count(&mut self, old: usize, new: usize) {
        self.growth = self.growth.saturating_add_unsigned(new).saturating_sub_unsigned(old);
    }

    fn replaced<Patch: Default + PartialEq>(self, patch: Patch) -> Replaced<Patch> {
        Replaced { patch: Some(patch).filter(|patch| *patch != Patch::default()), growth: self.growth }
    }
}

/// Replaces in a text, or in the texts of the JSON that it is.
fn replace_nested(text: &Text<'_>, replace: &mut Replace<'_>, depth: usize) -> Option<String> {
    let mut within = |inner: &Text<'_>| {
        if is_data(inner.text) { None } else { replace_nested(inner, &mut *replace, depth + 1) }
    };
    let nested = (depth < MAX_NESTED_JSON).then(|| json::replace_texts_within(text, &mut within)).flatten();
    nested.unwrap_or_else(|| replace(text))
}

/// Whether a text of a conversation is content, and not part of the format.
fn is_content(text: &Text<'_>) -> bool {
    let Some(member) = text.member() else { return true };
    let is_of_tool = text.members().rev().skip(1).any(|member| TOOL_MEMBERS.contains(&member));
    let is_format = match member {
        "data" => is_base64(text.text), // a document may have its text there
        _ if text.field() == "extra" && ID_MEMBERS.contains(&member) => true,
        _ => FORMAT_MEMBERS.contains(&member) || member.ends_with("_id"),
    };
    is_of_tool || !is_format
}

/// Whether the text is base64 with the padding that it needs, and long enough for data. It may be wrapped as in MIME and PEM.
fn is_base64(text: &str) -> bool {
    let lines: Vec<&str> =
        text.trim_end_matches(['\r', '\n']).split('\n').map(|line| line.trim_end_matches('\r')).collect();
    let is_wrapped = lines.split_last().is_some_and(|(last, full)| {
        full.iter().all(|line| {
            WRAPPED_BYTES.contains(&line.len()) && line.len() == full[0].len() && last.len() <= line.len()
        })
    });
    let base64 = lines.concat();
    let unpadded = base64.trim_end_matches('=');
    is_wrapped
        && base64.len() >= MIN_DATA_BYTES
        && base64.len().is_multiple_of(4)
        && base64.len() - unpadded.len() <= 2
        && unpadded.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
}

/// The text that a medium's data is, of the same length. Of a declared text, each byte that isn't UTF-8 is a question mark.
fn text_of(media: &Media) -> Option<Cow<'_, str>> {
    let Some(Source::Data(data)) = &media.source else { return None };
    let text = match str::from_utf8(data) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) if is_text_type(&media.mime_type) => {
            let shown = |chunk: Utf8Chunk<'_>| chunk.valid().to_owned() + &"?".repeat(chunk.invalid().len());
            Cow::Owned(data.utf8_chunks().map(shown).collect())
        }
        Err(_) => return None,
    };
    (!is_data(&text)).then_some(text)
}

fn is_text_type(mime_type: &str) -> bool {
    let mime_type = mime_type.to_ascii_lowercase();
    let essence = mime_type.split(';').next().unwrap_or_default().trim();
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    essence.starts_with("text/")
        || ["json", "xml", "yaml", "x-yaml", "csv", "javascript"].contains(&subtype)
        || subtype.ends_with("+json")
        || subtype.ends_with("+xml")
}

/// Whether the text is base64, perhaps in a `data:` URL, and too long for a key.
fn is_data(text: &str) -> bool {
    let is_media_type = |header: &str| {
        header.len() <= 100
            && header.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+/;=-".contains(&byte))
    };
    let base64 = match text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
        Some((header, base64)) if is_media_type(header) => base64,
        _ => text,
    };
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/_-=".contains(&byte);
    base64.len() > MAX_KEY_BYTES && base64.bytes().all(is_base64)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Detector, Redactor};

    /// What becomes of tool arguments, and the pointers to what was found.
    fn redacted(args: &Value) -> (Value, Vec<String>) {
        let redactor: Redactor =
            [Detector::Email, Detector::GithubToken, Detector::Card].into_iter().collect();
        let payload = BeforeToolCallPayload { args: args.to_string().into(), ..Default::default() };
        let mut pointers = Vec::new();
        let replaced = payload.replace_texts(&mut |text| {
            let found = redactor.find(text.text, text.member());
            found.iter().for_each(|_| pointers.push(text.pointer(str::to_owned)));
            (!found.is_empty()).then(|| redactor.mask(text.text, &found))
        });
        let patch = replaced.expect("the arguments are JSON").patch.and_then(|patch| patch.args);
        let new = patch.map_or(args.clone(), |args| serde_json::from_slice(&args).expect("it stays JSON"));
        (new, pointers)
    }

    #[test]
    fn json_within_a_string_stays_json_and_hides_nothing() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let inner = json!({ "env": format!("A=1\n{token}\n"), "to": "x\nada@example.com", "n": [1, "y"] })
            .to_string();
        for (text, path) in [(inner.clone(), "/args/call"), (json!([inner]).to_string(), "/args/call/0")] {
            let (new, pointers) = redacted(&json!({ "call": text }));
            let new = new["call"].as_str().expect("a string").to_owned();
            assert!(!new.contains("ghp_") && !new.contains("ada@"), "{new}");
            let read: Value = serde_json::from_str(&new).expect("it is JSON");
            let read = match &read {
                Value::Array(entries) => {
                    serde_json::from_str(entries[0].as_str().expect("text")).expect("JSON")
                }
                _ => read,
            };
            assert_eq!(read, json!({ "env": "A=1\n[REDACTED]\n", "to": "x\n[EMAIL]", "n": [1, "y"] }));
            assert_eq!(pointers, [format!("{path}/env"), format!("{path}/to")]);
        }
    }

    #[test]
    fn text_that_only_begins_like_json_is_text() {
        let (new, _) = redacted(&json!({ "a": "{ mail ada@example.com", "b": "[1] ada@example.com" }));
        assert_eq!(new, json!({ "a": "{ mail [EMAIL]", "b": "[1] [EMAIL]" }));
    }

    #[test]
    fn short_base64_may_be_a_key_and_long_base64_is_data() {
        for text in ["4111111111111111", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY00", "sk-proj-abcd", "a@b.cc"]
        {
            assert!(!is_base64(text), "{text}");
        }
        let data = "QUJD".repeat(19);
        for text in [format!("{data}QQ=="), format!("{data}\r\n{data}\r\nQUI=\r\n")] {
            assert!(is_base64(&text), "{text}");
        }
        let lines = |line: &str| [line; 4].join("\n");
        for text in [
            format!("{data}Q"),
            format!("{data}===="),
            lines("4111111111111111"),
            lines("AKIAIOSFODNN7EXAMPLE"),
            lines(&data[..60]),
        ] {
            assert!(!is_base64(&text), "{text}");
        }
        assert!(is_base64(&data[..64]) && !is_base64(&data[..60]));
    }

    #[test]
    fn only_a_media_type_makes_a_data_url() {
        let data = "A".repeat(MAX_KEY_BYTES + 1);
        assert!(is_data(&format!("data:image/png;charset=utf-8;base64,{data}")) && is_data(&data));
        assert!(!is_data(&format!("data:mail ada@example.com;base64,{data}")));
    }

    #[test]
    fn the_fraction_of_a_number_is_no_card() {
        let (new, pointers) = redacted(
            &json!({ "a": "0.4111111111111111", "b": "4111111111111111", "c": 0.411_111_111_111_111_1 }),
        );
        assert_eq!((new["a"].as_str(), new["b"].as_str()), (Some("0.4111111111111111"), Some("[CARD]")));
        assert_eq!(pointers, ["/args/b"]);
    }
}
