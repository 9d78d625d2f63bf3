//! The JSON Schema of the configuration, generated from the types, and queries on it: the keys of a mapping,
//! the type of a value, and how to describe what would be right.

use std::sync::{LazyLock, OnceLock};

use hookgate_proto::HookName;
use schemars::{JsonSchema, schema_for};
use serde_json::{Number, Value};

use super::{
    cidr::Cidr,
    model::Config,
    tree::NodeKind,
    units::{Rate, Size, Span},
};
use crate::json::pointer;

/// Identifies the schema; nothing is fetched from it.
const SCHEMA_ID: &str = "urn:hookgate:schema:hookgate.yaml";

/// A text format of a field.
struct TextFormat {
    /// The name in the schema's `format`.
    name: &'static str,
    /// The name in a sentence.
    words: &'static str,
    fits: fn(&str) -> bool,
}

/// The text formats that JSON Schema doesn't define.
const FORMATS: &[TextFormat] = &[
    TextFormat {
        name: "duration-text",
        words: "a duration: a whole number and `ms`, `s`, `m` or `h`, such as `500ms`",
        fits: |text| text.parse::<Span>().is_ok(),
    },
    TextFormat {
        name: "size-text",
        words: "a size: a whole number and `B`, `KiB`, `MiB` or `GiB`, such as `4MiB`",
        fits: |text| text.parse::<Size>().is_ok(),
    },
    TextFormat {
        name: "rate",
        words: "a rate: a whole number above 0, `/` and `s`, `m` or `h`, such as `100/s`",
        fits: |text| text.parse::<Rate>().is_ok(),
    },
    TextFormat {
        name: "socket-address",
        words: "an address and a port, such as `127.0.0.1:8080` or `[::1]:8080`",
        fits: |text| text.parse::<std::net::SocketAddr>().is_ok(),
    },
    TextFormat {
        name: "version-range",
        words: "a range of versions, such as `>=1.2, <2`",
        fits: |text| semver::VersionReq::parse(text).is_ok(),
    },
    TextFormat {
        name: "sha-256",
        words: "a SHA-256: 64 lower-case hexadecimal digits",
        fits: |text| text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')),
    },
    TextFormat {
        name: "hook-name",
        words: "the name of a hook, such as `turn_end`: lower-case letters, digits and `_`, and no point's name",
        fits: |text| HookName::new(text).is_ok(),
    },
    TextFormat {
        name: "network",
        words: "a network without bits after its prefix, such as `10.1.0.0/16` or `fd00::/8`, or one address",
        fits: |text| text.parse::<Cidr>().is_ok(),
    },
];

/// The JSON Schema (draft 2020-12) of `hookgate.yaml`. The formats `duration-text`, `size-text`, `rate`,
/// `socket-address`, `version-range`, `sha-256`, `hook-name` and `network` are our own.
pub fn schema() -> Value {
    let mut schema = schema_for!(Config).to_value();
    schema["$id"] = SCHEMA_ID.into();
    schema["title"] = "hookgate.yaml".into();
    schema
}

/// The schema, prepared for queries.
pub(super) struct Schema {
    root: Value,
    /// Compiled on first use.
    validator: OnceLock<jsonschema::Validator>,
}

impl Schema {
    pub(super) fn new() -> Self {
        Schema { root: schema(), validator: OnceLock::new() }
    }

    /// The schema of a type that is no configuration.
    pub(super) fn from_type<T: JsonSchema>() -> Self {
        Schema { root: schema_for!(T).to_value(), validator: OnceLock::new() }
    }

    /// A shared instance, because creating one takes longer than checking ten thousand objects.
    pub(super) fn shared() -> &'static Self {
        static SHARED: LazyLock<Schema> = LazyLock::new(Schema::new);
        &SHARED
    }

    pub(super) fn root(&self) -> &Value {
        &self.root
    }

    /// The compiled schema, which also checks our own formats.
    pub(super) fn validator(&self) -> &jsonschema::Validator {
        self.validator.get_or_init(|| {
            let mut options = jsonschema::options().should_validate_formats(true);
            for format in FORMATS {
                options = options.with_format(format.name, format.fits);
            }
            options.build(&self.root).expect("the schema comes from our own types")
        })
    }

    /// Follows `$ref`, and the only branch other than null of an optional value.
    pub(super) fn resolve<'s>(&'s self, mut schema: &'s Value) -> &'s Value {
        loop {
            schema = if let Some(target) = schema["$ref"].as_str() {
                self.root.pointer(target.trim_start_matches('#')).expect("the schema refers to itself alone")
            } else if let Some([one, null]) = schema["anyOf"].as_array().map(Vec::as_slice)
                && null["type"] == "null"
            {
                one
            } else {
                return schema;
            };
        }
    }

    /// The schema of the value at a JSON pointer. Returns `None` if the configuration has no such value, or
    /// accepts any value there.
    pub(super) fn at(&self, pointer: &str) -> Option<&Value> {
        let mut found = self.resolve(&self.root);
        for key in pointer::keys(pointer) {
            found = self.step(found, &key)?;
        }
        Some(found)
    }

    fn step<'s>(&'s self, schema: &'s Value, segment: &str) -> Option<&'s Value> {
        if let Some(branches) = schema["oneOf"].as_array() {
            return branches.iter().find_map(|branch| self.step(self.resolve(branch), segment));
        }
        let next = schema["properties"].get(segment).or_else(|| {
            let index = segment.bytes().all(|b| b.is_ascii_digit());
            let members = schema.get("additionalProperties").filter(|members| members.is_object());
            if index { schema.get("items").or(members) } else { members }
        })?;
        Some(self.resolve(next))
    }

    /// The keys of a mapping.
    pub(super) fn keys<'s>(&'s self, schema: &'s Value) -> Vec<&'s str> {
        let branches = schema["oneOf"].as_array().map(Vec::as_slice).unwrap_or_default();
        std::iter::once(schema)
            .chain(branches.iter().map(|branch| self.resolve(branch)))
            .filter_map(|schema| schema["properties"].as_object())
            .flat_map(|properties| properties.keys().map(String::as_str))
            .collect()
    }

    /// Whether the value at `pointer` may be shown: it is a scalar that the configuration knows, and isn't
    /// secret. Anything else may be a secret in the wrong place.
    pub(super) fn shows(&self, pointer: &str) -> bool {
        self.at(pointer).is_some_and(|schema| schema["writeOnly"] != true && is_scalar(schema))
    }
}

/// The types that a resolved schema allows.
pub(super) fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Whether a resolved schema accepts text, numbers or booleans.
pub(super) fn is_scalar(schema: &Value) -> bool {
    let scalar = ["string", "integer", "number", "boolean"];
    types(schema).iter().any(|name| scalar.contains(name))
        || schema.get("const").is_some()
        || schema["oneOf"].as_array().is_some_and(|branches| branches.iter().any(is_scalar))
}

/// The words that a resolved schema allows, if it lists them.
pub(super) fn words(schema: &Value) -> Option<Vec<&str>> {
    let listed = match (&schema["enum"], &schema["oneOf"]) {
        (Value::Array(listed), _) => listed.iter().map(Value::as_str).collect(),
        (_, Value::Array(branches)) => {
            let mut listed = Some(Vec::new());
            for branch in branches {
                let inner = match branch["const"].as_str() {
                    Some(word) => Some(vec![word]),
                    None if branch["enum"].is_array() => words(branch),
                    None => None,
                };
                listed = listed.zip(inner).map(|(listed, inner)| [listed, inner].concat());
            }
            listed
        }
        _ => None,
    };
    listed.filter(|listed: &Vec<&str>| !listed.is_empty())
}

/// What a value of this resolved schema must be, to continue a sentence after "must be".
pub(super) fn expected(schema: &Value) -> String {
    if let Some(title) = schema["title"].as_str().filter(|_| schema.get("oneOf").is_some()) {
        return title.into();
    }
    if let Some(words) = words(schema) {
        return alternatives(&words);
    }
    if let Some(format) = schema["format"].as_str().and_then(|name| FORMATS.iter().find(|f| f.name == name)) {
        return format.words.into();
    }
    match types(schema).first() {
        Some(&"object") => "a mapping".into(),
        Some(&"array") => "a list".into(),
        Some(&"boolean") => "`true` or `false`".into(),
        Some(&"integer") => whole_number(schema),
        Some(&"string") if schema["minLength"].as_u64().is_some_and(|least| least > 0) => {
            "text that is not empty".into()
        }
        Some(&"string") => "text".into(),
        _ => "something else".into(),
    }
}

fn whole_number(schema: &Value) -> String {
    match (&schema["minimum"], &schema["maximum"]) {
        (Value::Number(least), Value::Number(most)) => format!("a whole number from {least} to {most}"),
        (Value::Number(least), _) => format!("a whole number, at least {least}"),
        _ => "a whole number".into(),
    }
}

/// `a`, `b` or `c`.
pub(super) fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}

/// Converts text from outside YAML to a value of this schema: a number or a boolean if the schema asks for
/// one and the text is one, otherwise text.
pub(super) fn typed(text: &str, schema: Option<&Value>) -> NodeKind {
    let types = schema.map(types).unwrap_or_default();
    if types.contains(&"boolean")
        && let Ok(value) = text.parse::<bool>()
    {
        return NodeKind::Bool(value);
    }
    if types.contains(&"integer") {
        if let Ok(value) = text.parse::<u64>() {
            return NodeKind::Number(Number::from(value));
        }
        if let Ok(value) = text.parse::<i64>() {
            return NodeKind::Number(Number::from(value));
        }
    }
    NodeKind::Text(text.into())
}
