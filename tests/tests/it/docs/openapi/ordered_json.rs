//! JSON whose members keep their order, and one layout for it. Knows nothing of OpenAPI.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// What fits into this width stands on one line.
const MAX_WIDTH: usize = 120;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OrderedJson {
    Object(Vec<(String, OrderedJson)>),
    Array(Vec<OrderedJson>),
    /// A string, a number, a boolean or null.
    Scalar(Value),
}

impl OrderedJson {
    /// # Panics
    /// If `text` is not JSON.
    pub(super) fn parse(text: &str) -> Self {
        serde_json::from_str(text).expect("the text is JSON")
    }

    /// The members of an object; none of anything else.
    pub(super) fn members(&self) -> &[(String, OrderedJson)] {
        match self {
            OrderedJson::Object(members) => members,
            OrderedJson::Array(_) | OrderedJson::Scalar(_) => &[],
        }
    }

    /// The texts of an array of texts; none of anything else.
    pub(super) fn texts(&self) -> Vec<&str> {
        match self {
            OrderedJson::Array(items) => items.iter().filter_map(OrderedJson::as_str).collect(),
            OrderedJson::Object(_) | OrderedJson::Scalar(_) => Vec::new(),
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            OrderedJson::Scalar(value) => value.as_str(),
            OrderedJson::Object(_) | OrderedJson::Array(_) => None,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&OrderedJson> {
        self.members().iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// The value at the end of `path`.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn at(&self, path: &[&str]) -> &OrderedJson {
        path.iter().fold(self, |value, name| {
            value.get(name).unwrap_or_else(|| panic!("{path:?}: there is no `{name}`"))
        })
    }

    /// As [`OrderedJson::at`].
    pub(super) fn at_mut(&mut self, path: &[&str]) -> &mut OrderedJson {
        path.iter().fold(self, |value, name| {
            let member = value.object_mut().iter_mut().find(|(member, _)| member == name);
            &mut member.unwrap_or_else(|| panic!("{path:?}: there is no `{name}`")).1
        })
    }

    /// The members of an object.
    ///
    /// # Panics
    /// If it is none.
    pub(super) fn object_mut(&mut self) -> &mut Vec<(String, OrderedJson)> {
        match self {
            OrderedJson::Object(members) => members,
            other => panic!("no object: {other}"),
        }
    }

    /// Sets a member of an object: in its place if it is there, otherwise at the end.
    pub(super) fn set(&mut self, name: &str, value: impl Into<OrderedJson>) {
        let members = self.object_mut();
        match members.iter_mut().find(|(member, _)| member == name) {
            Some((_, member)) => *member = value.into(),
            None => members.push((name.to_owned(), value.into())),
        }
    }

    /// The text of a file.
    pub(super) fn layout(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0, 0);
        text.push('\n');
        text
    }

    /// Writes the value `indent` columns from the left, behind a name of `before` columns.
    fn write(&self, text: &mut String, indent: usize, before: usize) {
        let compact = self.to_string();
        let width = indent + before + compact.chars().count() + ",".len();
        let members: Vec<(String, &OrderedJson)> = match self {
            OrderedJson::Object(members) if width > MAX_WIDTH => {
                members.iter().map(|(name, value)| (format!("{}: ", Value::from(&**name)), value)).collect()
            }
            OrderedJson::Array(items) if width > MAX_WIDTH => {
                items.iter().map(|item| (String::new(), item)).collect()
            }
            _ => return text.push_str(&compact),
        };
        let (first, last) = (&compact[..1], &compact[compact.len() - 1..]);
        text.push_str(first);
        for (number, (name, value)) in members.iter().enumerate() {
            let separator = if number == 0 { "\n" } else { ",\n" };
            text.push_str(separator);
            text.push_str(&" ".repeat(indent + 2));
            text.push_str(name);
            value.write(text, indent + 2, name.chars().count());
        }
        text.push('\n');
        text.push_str(&" ".repeat(indent));
        text.push_str(last);
    }
}

/// On one line.
impl fmt::Display for OrderedJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderedJson::Object(members) if members.is_empty() => f.write_str("{}"),
            OrderedJson::Object(members) => {
                let member =
                    |(name, value): &(String, OrderedJson)| format!("{}: {value}", Value::from(&**name));
                write!(f, "{{ {} }}", members.iter().map(member).collect::<Vec<_>>().join(", "))
            }
            OrderedJson::Array(items) => {
                write!(f, "[{}]", items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
            OrderedJson::Scalar(value) => write!(f, "{value}"),
        }
    }
}

impl From<&str> for OrderedJson {
    fn from(text: &str) -> Self {
        OrderedJson::Scalar(text.into())
    }
}

impl From<String> for OrderedJson {
    fn from(text: String) -> Self {
        OrderedJson::Scalar(text.into())
    }
}

impl FromIterator<OrderedJson> for OrderedJson {
    fn from_iter<I: IntoIterator<Item = OrderedJson>>(items: I) -> Self {
        OrderedJson::Array(items.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for OrderedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OrderedJsonVisitor)
    }
}

struct OrderedJsonVisitor;

impl<'de> Visitor<'de> for OrderedJsonVisitor {
    type Value = OrderedJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<OrderedJson, A::Error> {
        let mut members: Vec<(String, OrderedJson)> = Vec::new();
        while let Some((name, value)) = access.next_entry()? {
            if members.iter().any(|(member, _)| *member == name) {
                return Err(A::Error::custom(format!("`{name}` is there twice")));
            }
            members.push((name, value));
        }
        Ok(OrderedJson::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<OrderedJson, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(OrderedJson::Array(items))
    }

    fn visit_str<E>(self, text: &str) -> Result<OrderedJson, E> {
        Ok(OrderedJson::from(text))
    }

    fn visit_bool<E>(self, value: bool) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Scalar(value.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Scalar(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Scalar(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Scalar(number.into()))
    }

    fn visit_unit<E>(self) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Scalar(Value::Null))
    }
}
