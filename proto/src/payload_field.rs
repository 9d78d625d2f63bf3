//! The fields of payloads that can be large, and sets of them: a plugin says in its manifest which ones it reads.

use std::{fmt, num::NonZeroU16};

use crate::{Point, plugin::v1 as wire};

/// A field of a payload that can be large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum PayloadField {
    /// The user's text.
    Text,
    /// Images beside the text.
    Images,
    /// Files beside the text.
    Files,
    /// The system prompt.
    SystemPrompt,
    /// The conversation.
    Messages,
    /// The tools offered to the model.
    Tools,
    /// A tool's result.
    Result,
    /// A tool's arguments.
    Args,
    /// The answer's text.
    Content,
    /// The model's reasoning.
    Reasoning,
    /// Additional data for plugins.
    Extra,
}

impl PayloadField {
    /// All of them.
    pub const ALL: [PayloadField; 11] = [
        PayloadField::Text,
        PayloadField::Images,
        PayloadField::Files,
        PayloadField::SystemPrompt,
        PayloadField::Messages,
        PayloadField::Tools,
        PayloadField::Result,
        PayloadField::Args,
        PayloadField::Content,
        PayloadField::Reasoning,
        PayloadField::Extra,
    ];

    /// The name in the payload's message.
    pub const fn as_str(self) -> &'static str {
        match self {
            PayloadField::Text => "text",
            PayloadField::Images => "images",
            PayloadField::Files => "files",
            PayloadField::SystemPrompt => "system_prompt",
            PayloadField::Messages => "messages",
            PayloadField::Tools => "tools",
            PayloadField::Result => "result",
            PayloadField::Args => "args",
            PayloadField::Content => "content",
            PayloadField::Reasoning => "reasoning",
            PayloadField::Extra => "extra",
        }
    }

    /// The field of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        PayloadField::ALL.into_iter().find(|field| field.as_str() == name)
    }
}

impl fmt::Display for PayloadField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of [`PayloadField`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "Vec<PayloadField>", into = "Vec<PayloadField>")
)]
#[repr(Rust, packed)] // without padding around it, a step of a plan takes 32 bytes; there may be hundreds of thousands
pub struct PayloadFields(NonZeroU16);

/// Set in every set, so that an optional one takes no more memory.
const ALWAYS: NonZeroU16 = NonZeroU16::new(1 << 15).expect("it isn't zero");

impl PayloadFields {
    /// The set of `fields`.
    pub const fn new(fields: &[PayloadField]) -> Self {
        let (mut set, mut at) = (PayloadFields(ALWAYS), 0);
        while at < fields.len() {
            set = set.with(fields[at]);
            at += 1;
        }
        set
    }

    /// The set with `field` too.
    #[must_use]
    pub const fn with(self, field: PayloadField) -> Self {
        match NonZeroU16::new(self.0.get() | 1 << field as u16) {
            Some(bits) => PayloadFields(bits),
            None => self,
        }
    }

    /// The fields that can be large in the payload of `point`.
    pub const fn of(point: Point) -> Self {
        PayloadFields::new(match point {
            Point::BeforeLlmRequest => &[
                PayloadField::Text,
                PayloadField::Images,
                PayloadField::Files,
                PayloadField::SystemPrompt,
                PayloadField::Messages,
                PayloadField::Tools,
                PayloadField::Extra,
            ],
            Point::BeforeToolCall => &[PayloadField::Args, PayloadField::Extra],
            Point::AfterToolResult => &[PayloadField::Result, PayloadField::Args, PayloadField::Extra],
            Point::BeforeResponse => &[PayloadField::Content, PayloadField::Reasoning, PayloadField::Extra],
        })
    }

    /// Reads the names that a manifest gives for `point`.
    ///
    /// # Errors
    /// A name isn't that of a large field of the point, or is given twice.
    pub fn from_names(point: Point, names: &[String]) -> Result<Self, PayloadFieldsError> {
        let mut fields = PayloadFields::default();
        for name in names {
            let Some(field) =
                PayloadField::from_name(name).filter(|field| PayloadFields::of(point).contains(*field))
            else {
                return Err(PayloadFieldsError::Unknown { point, name: name.clone() });
            };
            if fields.contains(field) {
                return Err(PayloadFieldsError::Twice { point, field });
            }
            fields = fields.with(field);
        }
        Ok(fields)
    }

    /// Whether `field` is one of them.
    pub const fn contains(self, field: PayloadField) -> bool {
        self.0.get() & (1 << field as u16) != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0.get() == ALWAYS.get()
    }

    /// The fields, in the order of [`PayloadField::ALL`].
    pub fn iter(self) -> impl Iterator<Item = PayloadField> {
        PayloadField::ALL.into_iter().filter(move |field| self.contains(*field))
    }

    /// The set as messages have it.
    pub fn to_wire(self) -> wire::PayloadFields {
        wire::PayloadFields { names: self.iter().map(|field| field.as_str().to_owned()).collect() }
    }
}

impl Default for PayloadFields {
    fn default() -> Self {
        PayloadFields(ALWAYS)
    }
}

impl fmt::Display for PayloadFields {
    /// The names, separated by commas; `nothing` if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        f.write_str(&self.iter().map(PayloadField::as_str).collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Debug for PayloadFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<PayloadField> for PayloadFields {
    fn from_iter<I: IntoIterator<Item = PayloadField>>(fields: I) -> Self {
        fields.into_iter().fold(PayloadFields::default(), PayloadFields::with)
    }
}

impl From<Vec<PayloadField>> for PayloadFields {
    fn from(fields: Vec<PayloadField>) -> Self {
        fields.into_iter().collect()
    }
}

impl From<PayloadFields> for Vec<PayloadField> {
    fn from(fields: PayloadFields) -> Self {
        fields.iter().collect()
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for PayloadFields {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PayloadFields".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Fields of a payload that can be large.",
            "type": "array",
            "items": generator.subschema_for::<PayloadField>(),
            "uniqueItems": true,
        })
    }
}

/// Why names are not those of fields that a plugin may read at a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PayloadFieldsError {
    /// The payload has no large field of this name.
    Unknown {
        /// The point.
        point: Point,
        /// The name.
        name: String,
    },
    /// The field is named twice.
    Twice {
        /// The point.
        point: Point,
        /// The field.
        field: PayloadField,
    },
}

impl fmt::Display for PayloadFieldsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PayloadFieldsError::Unknown { point, name } => {
                let allowed = PayloadFields::of(*point);
                write!(f, "`reads` of {point} names `{name}`: choose from {allowed}")
            }
            PayloadFieldsError::Twice { point, field } => {
                let allowed = PayloadFields::of(*point);
                write!(f, "`reads` of {point} names `{field}` twice: name each of {allowed} at most once")
            }
        }
    }
}

impl std::error::Error for PayloadFieldsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn fields_are_read_from_their_names_and_written_in_one_order() {
        let fields = PayloadFields::from_names(Point::AfterToolResult, &names(&["extra", "result"]));
        let fields = fields.expect("fields of the point");
        assert_eq!(fields, PayloadFields::new(&[PayloadField::Result, PayloadField::Extra]));
        assert_eq!(fields.to_wire().names, ["result", "extra"]);
        assert_eq!(fields.to_string(), "result, extra");
        let none = PayloadFields::from_names(Point::AfterToolResult, &[]).expect("an empty list");
        assert!(none.is_empty());
        assert_eq!(none.to_string(), "nothing");
        for field in PayloadField::ALL {
            assert_eq!(PayloadField::from_name(field.as_str()), Some(field));
        }
    }

    #[test]
    fn a_name_that_the_point_does_not_have_and_one_given_twice_are_refused_with_the_names_to_choose_from() {
        for (point, given, said) in [
            (
                Point::BeforeToolCall,
                names(&["args", "text"]),
                "`reads` of before_tool_call names `text`: choose from args, extra",
            ),
            (
                Point::BeforeResponse,
                names(&["model"]),
                "`reads` of before_response names `model`: choose from content, reasoning, extra",
            ),
            (
                Point::AfterToolResult,
                names(&["args", "args"]),
                "`reads` of after_tool_result names `args` twice: name each of result, args, extra at most once",
            ),
        ] {
            let refused = PayloadFields::from_names(point, &given).expect_err("a mistake");
            assert_eq!(refused.to_string(), said);
        }
    }
}
