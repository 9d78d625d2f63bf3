//! [`EmbeddingsRequest`]: a view of a request's bytes.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use bytestring::ByteString;

use crate::{
    core::error::{Error, Violation},
    json::{self, ValueKind, pointer::JsonLocation},
    llm::{
        edits::span_in,
        format::{Conversation, FormatRequest},
        request_shape::{Member, expected, read_model, require_members, scanned},
        request_view::text_at,
        unit::{Unit, UnitKind},
        value::{ObjectMembers, kind, string},
    },
    payload::Findings,
};

/// Most texts, or lists of tokens, in one request: as many as OpenAI takes.
const MAX_TEXTS: usize = 2048;

const INPUT_FORMS: &str = "a string, a list of strings, a list of tokens, or a list of such lists";

/// A request of the right shape. Keeps the body and where its parts are.
#[derive(Debug)]
pub(crate) struct EmbeddingsRequest {
    body: ByteString,
    members: Vec<Member>,
    model: String,
    user: Option<String>,
    /// Where the strings of `input` are in the body.
    texts: Vec<Range<usize>>,
    /// One for each text, with its index as that of the message.
    units: Vec<Unit>,
    /// Whether `input` has tokens, and no text.
    has_tokens: bool,
}

impl FormatRequest for EmbeddingsRequest {
    const FORM: &'static str = "embeddings";

    fn parse(body: Bytes) -> Result<Self, Error> {
        read(body).map_err(Error::invalid)
    }

    fn model(&self) -> &str {
        &self.model
    }

    /// Whatever the request says.
    fn is_streamed(&self) -> bool {
        false
    }

    fn shows_usage(&self) -> bool {
        true
    }

    fn choices(&self) -> u32 {
        1
    }

    fn expects_json(&self) -> bool {
        false
    }

    fn conversation(&self) -> Conversation<'_> {
        Conversation { session: None, user: self.user.as_deref() }
    }

    fn first_user_message(&self) -> Cow<'_, str> {
        self.texts.first().map(|span| text_at(&self.body, span)).unwrap_or_default().into()
    }

    /// None: the model has answered none of the texts.
    fn older_units(&self) -> &[Unit] {
        &[]
    }

    fn current_units(&self) -> &[Unit] {
        &self.units
    }

    fn main_unit(&self) -> Option<&Unit> {
        self.units.last()
    }

    fn unit_json(&self, unit: &Unit) -> Bytes {
        self.text_span(unit).map(|span| self.body.as_bytes().slice(span)).unwrap_or_default()
    }

    fn results_have_calls(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl EmbeddingsRequest {
    pub(super) fn body(&self) -> &ByteString {
        &self.body
    }

    /// The members: name, and text of the value.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        self.members.iter().map(|member| (member.name.as_str(), text_at(&self.body, &member.value)))
    }

    pub(super) fn has_tokens(&self) -> bool {
        self.has_tokens
    }

    /// Where the string of a unit is in the body.
    pub(super) fn text_span(&self, unit: &Unit) -> Option<Range<usize>> {
        self.texts.get(unit.message()).cloned()
    }
}

/// Reads a body that nobody has checked before.
fn read(body: Bytes) -> Result<EmbeddingsRequest, Vec<Violation>> {
    let body = scanned(body)?;
    let text: &str = &body;
    let mut findings = Findings::default();
    let mut request = EmbeddingsRequest {
        body: body.clone(),
        members: Vec::new(),
        model: String::new(),
        user: None,
        texts: Vec::new(),
        units: Vec::new(),
        has_tokens: false,
    };
    let root = JsonLocation::Root("");
    let members = ObjectMembers::read(text);
    match kind(text) {
        ValueKind::Object => require_members(&members, &["model", "input"], &mut findings),
        _ => expected(&mut findings, &root, "an object", text),
    }
    for (name, value) in members.iter() {
        let place = JsonLocation::Key(&root, name);
        match name {
            "model" => request.model = read_model(value, &place, &mut findings),
            "user" => request.user = string(value).map(Cow::into_owned),
            "input" => {
                let texts = read_input(value, &place, &mut findings);
                request.has_tokens = texts.is_empty();
                request.texts = texts.into_iter().map(|each| span_in(text, each)).collect();
            }
            _ => {}
        }
        request.members.push(Member { value: span_in(text, value), name: name.to_owned() });
    }
    request.units = (0..request.texts.len()).map(|index| Unit::of_message(index, UnitKind::User)).collect();
    if findings.is_empty() { Ok(request) } else { Err(findings.into_violations()) }
}

/// The strings of `input`; none if it has tokens. The first element of a list says what all others must be.
fn read_input<'a>(input: &'a str, place: &JsonLocation<'_>, findings: &mut Findings) -> Vec<&'a str> {
    let first = json::elements(input).next().map(kind);
    match (kind(input), first) {
        (ValueKind::String, _) => return vec![input],
        (ValueKind::Array, None) => findings.add(place, "`input` must not be empty"),
        (ValueKind::Array, Some(ValueKind::String)) => {
            check_count(input, place, findings);
            let is_text = |each: &str| kind(each) == ValueKind::String;
            check_elements(input, is_text, "a string, like the first element", place, findings);
            return json::elements(input).take(MAX_TEXTS).collect();
        }
        (ValueKind::Array, Some(ValueKind::Number)) => check_tokens(input, place, findings),
        (ValueKind::Array, Some(ValueKind::Array)) => {
            check_count(input, place, findings);
            let is_list =
                |each: &str| kind(each) == ValueKind::Array && json::elements(each).next().is_some();
            check_elements(input, is_list, "a list of at least one token", place, findings);
            for (index, list) in json::elements(input).enumerate() {
                check_tokens(list, &JsonLocation::Index(place, index), findings);
            }
        }
        _ => expected(findings, place, INPUT_FORMS, input),
    }
    Vec::new()
}

fn check_count(list: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    let count = json::elements(list).count();
    if count > MAX_TEXTS {
        findings.add(place, format!("`input` has {count} elements, more than {MAX_TEXTS}"));
    }
}

fn check_tokens(list: &str, place: &JsonLocation<'_>, findings: &mut Findings) {
    let is_token = |each: &str| each.parse::<u64>().is_ok();
    check_elements(list, is_token, "the number of a token", place, findings);
}

fn check_elements(
    list: &str,
    is_right: impl Fn(&str) -> bool,
    wanted: &str,
    place: &JsonLocation<'_>,
    findings: &mut Findings,
) {
    for (index, each) in json::elements(list).enumerate().filter(|(_, each)| !is_right(each)) {
        expected(findings, &JsonLocation::Index(place, index), wanted, each);
    }
}
