//! The contents of an object as normalised JSON text. Parsed values would take several times as much memory
//! for each of tens of thousands of objects.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
use serde_json::{Value, value::RawValue};

/// JSON with sorted members and no white space, so that equal values have equal text.
#[derive(Clone, PartialEq, Eq)]
pub struct Spec(Arc<str>);

impl Spec {
    /// Parses and normalises JSON.
    ///
    /// # Errors
    /// If `text` isn't valid JSON.
    pub(super) fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<Value>(text).map(Spec::from)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parsed value. Parses on every call.
    pub fn value(&self) -> Value {
        // The text was produced from a value.
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Spec {
    // A plugin's config may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<Value> for Spec {
    fn from(value: Value) -> Self {
        Spec(value.to_string().into())
    }
}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Spec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Spec::from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        core::{digest::tests::values, object::Owner},
        store::ObjectContent,
    };

    proptest! {
        #[test]
        fn any_value_comes_back_and_is_read_out_of_any_form(value in values()) {
            let spec = Spec::from(value.clone());
            prop_assert_eq!(spec.value(), value.clone());
            let spread = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(&Spec::parse(&spread).unwrap(), &spec);
            // Revisions and the last good table store it this way.
            let content = ObjectContent { owner: Owner::Api, spec };
            let text = serde_json::to_string(&content).unwrap();
            prop_assert_eq!(&text, &json!({ "owner": "api", "spec": value }).to_string());
            prop_assert_eq!(&serde_json::from_str::<ObjectContent>(&text).unwrap(), &content);
            prop_assert_eq!(serde_json::to_value(&content).unwrap()["spec"].clone(), value);
        }
    }

    #[test]
    fn members_in_another_order_are_the_same() {
        let one = Spec::parse(r#"{ "b": 1, "a": [true, null] }"#).unwrap();
        assert_eq!(one, Spec::parse(r#"{"a":[true,null],"b":1}"#).unwrap());
        assert_eq!(one.as_str(), r#"{"a":[true,null],"b":1}"#);
        assert!(Spec::parse("{").is_err());
    }
}
