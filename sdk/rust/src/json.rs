//! JSON values as they are sent: bytes of JSON text.
//!
//! A value that a plugin doesn't touch keeps its bytes. To change one member of an object and leave the
//! others alone, use [`Object`]. Going through [`serde_json::Value`] would sort the keys and round numbers
//! that fit neither 64 bits nor a double.

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::PluginError;

/// Parses the value as your type, or as a [`serde_json::Value`]. Empty bytes mean an absent value and are
/// parsed as `null`.
///
/// # Errors
/// If the bytes are not JSON, or the value doesn't fit the type. The message names the member.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, PluginError> {
    let json = if json.is_empty() { b"null" } else { json };
    crate::config::parse(json).map_err(PluginError::invalid)
}

/// Serializes the value to JSON text.
///
/// # Errors
/// When the value can't be written as JSON, such as a map whose keys are not strings.
pub fn to_bytes<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, PluginError> {
    Ok(serde_json::to_vec(value)?.into())
}

/// A JSON object whose members keep their order, and keep their text until they are set.
#[derive(Debug, Clone, Default)]
pub struct Object {
    members: Vec<(String, Box<RawValue>)>,
}

impl Object {
    /// Parses an object. Empty bytes mean an absent value and give an empty object.
    ///
    /// # Errors
    /// When the bytes are not a JSON object.
    pub fn parse(json: &[u8]) -> Result<Self, PluginError> {
        if json.is_empty() { Ok(Object::default()) } else { parse(json) }
    }

    /// Parses a member as your type; `None` if there is no such member.
    ///
    /// # Errors
    /// When the member doesn't fit the type.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, PluginError> {
        let member = self.members.iter().find(|(key, _)| key == name);
        member.map(|(_, value)| parse(value.get().as_bytes())).transpose()
    }

    /// Sets a member. An existing one keeps its place; a new one is added at the end.
    ///
    /// # Errors
    /// When the value can't be written as JSON.
    pub fn set<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), PluginError> {
        let value = serde_json::value::to_raw_value(value)?;
        match self.members.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.members.push((name.to_owned(), value)),
        }
        Ok(())
    }

    /// Removes a member and returns whether it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.members.len();
        self.members.retain(|(key, _)| key != name);
        self.members.len() != before
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = Box<RawValue>> {
        self.members.into_iter().map(|(_, value)| value)
    }

    /// Names of the members, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(name, _)| name.as_str())
    }
}

impl Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.members.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> serde::de::Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object { members })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn untouched_members_survive_byte_for_byte() {
        let text = r#"{"z":9007199254740993,"a":123456789012345678901234567890.10,"n":null,"s":"\u00e9","o":{"b":1, "a":2}}"#;
        let mut object = Object::parse(text.as_bytes()).unwrap();
        object.set("n", &[1]).unwrap();
        object.set("new", "x").unwrap();
        assert!(object.remove("s") && !object.remove("s"));
        let expected = r#"{"z":9007199254740993,"a":123456789012345678901234567890.10,"n":[1],"o":{"b":1, "a":2},"new":"x"}"#;
        assert_eq!(to_bytes(&object).unwrap(), expected);
        assert_eq!(object.names().collect::<Vec<_>>(), ["z", "a", "n", "o", "new"]);
    }

    #[test]
    fn members_are_read_as_types() {
        let object = Object::parse(br#"{"n":9007199254740993,"s":"text","null":null}"#).unwrap();
        assert_eq!(object.get::<u64>("n").unwrap(), Some(9_007_199_254_740_993));
        assert_eq!(object.get::<String>("none").unwrap(), None);
        assert_eq!(object.get::<Value>("null").unwrap(), Some(Value::Null));
        assert!(object.get::<u64>("s").is_err());
    }

    #[test]
    fn an_absent_value_is_null_or_an_empty_object() {
        assert_eq!(parse::<Value>(b"").unwrap(), Value::Null);
        assert_eq!(Object::parse(b"").unwrap().names().count(), 0);
        for text in ["null", "[]", "{", "{} {}"] {
            assert!(Object::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
