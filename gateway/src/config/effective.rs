//! The effective config: the file, overridden by the environment, and the defaults. Each value comes with its
//! origin, and nothing that may be a secret is shown (docs/decisions/0019-what-config-show-hides.md). For
//! people; the gateway itself reads [`super::Config`].

use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::Value;

use super::{
    load::LoadedConfig,
    problem::ProblemSource,
    reference,
    schema::{self, Schema},
    tree::{Node, NodeKind, ValueOrigin},
};
use crate::json::pointer::child;

/// Replaces a value that is not shown.
const MASK: &str = "***";

/// A value of the effective config, without secrets.
#[derive(Debug, Clone, PartialEq)]
pub enum EffectiveValue {
    /// A scalar, or an empty list or mapping.
    Value(ValueWithOrigin),
    /// A list.
    List(Vec<EffectiveValue>),
    /// A mapping: the keys of the file in their order, then the defaults.
    Map(Vec<(String, EffectiveValue)>),
}

/// A value and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueWithOrigin {
    /// The value. References are shown as written, and what may be a secret as `***`.
    pub value: Value,
    /// `FILE:LINE`, `environment NAME` or `default`.
    pub origin: String,
}

impl Serialize for ValueWithOrigin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = serializer.serialize_struct("Shown", 2)?;
        shown.serialize_field("value", &self.value)?;
        shown.serialize_field("origin", &self.origin)?;
        shown.end()
    }
}

/// Writes every value as an object of `value` and `origin`.
impl Serialize for EffectiveValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            EffectiveValue::Value(shown) => shown.serialize(serializer),
            EffectiveValue::List(items) => serializer.collect_seq(items),
            EffectiveValue::Map(members) => {
                serializer.collect_map(members.iter().map(|(key, value)| (key, value)))
            }
        }
    }
}

impl EffectiveValue {
    /// Calls `visit` with every value and its path, such as `plugins[0].name`.
    pub fn values(&self, path: &str, visit: &mut impl FnMut(&str, &ValueWithOrigin)) {
        match self {
            EffectiveValue::Value(shown) => visit(path, shown),
            EffectiveValue::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.values(&format!("{path}[{index}]"), visit);
                }
            }
            EffectiveValue::Map(members) => {
                for (key, value) in members {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    value.values(&path, visit);
                }
            }
        }
    }
}

impl LoadedConfig {
    /// The effective config with defaults and without secrets.
    pub fn effective(&self) -> EffectiveValue {
        let schema = Schema::new();
        let walk = EffectiveWalk { schema: &schema, source: &self.source };
        self.source.root().map_or_else(|| EffectiveValue::Map(Vec::new()), |root| walk.node(root, ""))
    }
}

struct EffectiveWalk<'w> {
    schema: &'w Schema,
    source: &'w ProblemSource,
}

impl EffectiveWalk<'_> {
    fn node(&self, node: &Node, pointer: &str) -> EffectiveValue {
        match &node.kind {
            NodeKind::List(items) if !items.is_empty() => {
                let item = |(index, item)| self.node(item, &child(pointer, &usize::to_string(&index)));
                EffectiveValue::List(items.iter().enumerate().map(item).collect())
            }
            NodeKind::Map(written) => {
                let mut members: Vec<_> = written
                    .iter()
                    .map(|member| {
                        (member.key.clone(), self.node(&member.value, &child(pointer, &member.key)))
                    })
                    .collect();
                if let Some(place) = self.schema.at(pointer) {
                    let absent = |key: &str| !written.iter().any(|member| member.key == key);
                    members.extend(self.defaults(place, absent));
                }
                if members.is_empty() { self.value(node, pointer) } else { EffectiveValue::Map(members) }
            }
            _ => self.value(node, pointer),
        }
    }

    fn value(&self, node: &Node, pointer: &str) -> EffectiveValue {
        let origin = match &node.origin {
            ValueOrigin::File | ValueOrigin::Reference(_) => self.source.line(node.region.start.line),
            ValueOrigin::Variable(name) => format!("environment {name}"),
        };
        let shows = self.schema.shows(pointer);
        let value = match (&node.origin, &node.kind) {
            (ValueOrigin::Reference(written), _) => reference::masked(written, shows).into(),
            // References in a plugin's config stay unresolved until the plugin gets them.
            (_, NodeKind::Text(text)) if !shows && reference::is_reference(text) => {
                reference::masked(text, false).into()
            }
            (_, NodeKind::Text(_) | NodeKind::Number(_)) if !shows => MASK.into(),
            (_, NodeKind::Text(text)) => match reference::without_credentials(text) {
                Some(shown) => shown.into(),
                None => self.source.without_secrets(text).into(),
            },
            _ => node.to_json(),
        };
        EffectiveValue::Value(ValueWithOrigin { value, origin })
    }

    /// The keys of a mapping that are not written but have a default.
    fn defaults(&self, place: &Value, absent: impl Fn(&str) -> bool) -> Vec<(String, EffectiveValue)> {
        let properties = place["properties"].as_object().into_iter().flatten();
        let missing = properties.filter(|(key, _)| absent(key));
        missing.filter_map(|(key, property)| Some((key.clone(), self.default(property)?))).collect()
    }

    fn default(&self, property: &Value) -> Option<EffectiveValue> {
        let by_default =
            |value: Value| EffectiveValue::Value(ValueWithOrigin { value, origin: "default".into() });
        match &property["default"] {
            Value::Null => {}
            Value::Array(items) if !items.is_empty() => {
                return Some(EffectiveValue::List(items.iter().cloned().map(by_default).collect()));
            }
            value => return Some(by_default(value.clone())),
        }
        if property["anyOf"].is_array() {
            return None;
        }
        let place = self.schema.resolve(property);
        match schema::types(place).as_slice() {
            ["object"] if place["properties"].is_object() => {
                Some(EffectiveValue::Map(self.defaults(place, |_| true)))
                    .filter(|map| *map != EffectiveValue::Map(vec![]))
            }
            ["array"] => Some(by_default(Value::Array(Vec::new()))),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "effective_tests.rs"]
mod tests;
