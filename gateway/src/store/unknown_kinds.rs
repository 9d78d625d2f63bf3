//! Deserialises stored lists whose objects may be of a kind that a later version added. Unknown kinds are
//! skipped; the other entries must be valid.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

use crate::{
    core::object::ObjectKind,
    store::{Change, Object},
};

/// The changes in `text`, without those of unknown kinds.
///
/// # Errors
/// If an entry of a known kind is invalid.
pub(super) fn changes(text: &str) -> serde_json::Result<Vec<Change>> {
    // Unknown kinds are rare.
    serde_json::from_str(text).or_else(|_| {
        let all: Vec<Value> = serde_json::from_str(text)?;
        all.into_iter().filter(is_known).map(serde_json::from_value).collect()
    })
}

/// The objects of a list, without those of unknown kinds.
pub(super) fn objects<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<Object>, D::Error> {
    let all = Vec::<Value>::deserialize(list)?;
    let known = all.into_iter().filter(is_known).map(serde_json::from_value);
    known.collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// Returns false for an entry of an unknown kind.
fn is_known(entry: &Value) -> bool {
    entry.get("kind").is_none_or(|kind| ObjectKind::deserialize(kind).is_ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Snapshot;

    #[test]
    fn what_a_later_version_wrote_of_other_kinds_is_left_out() {
        let tenant =
            json!({ "kind": "tenant", "name": "t", "after": { "owner": "api", "spec": { "n": 1.50 } } });
        let later = json!({ "kind": "quota", "name": "q", "after": { "owner": "robot", "spec": 1 } });
        let read = changes(&json!([tenant, later]).to_string()).unwrap();
        let [change] = read.as_slice() else { panic!("one change is known: {read:?}") };
        assert_eq!((change.kind, &*change.name), (ObjectKind::Tenant, "t"));
        // Entries of known kinds must be valid.
        assert!(changes(&json!([{ "kind": "tenant" }, later]).to_string()).is_err());
        assert!(changes(&json!([{ "name": "t" }]).to_string()).is_err());
        let object = json!({ "kind": "tenant", "name": "t", "version": 3, "owner": "api", "spec": {} });
        let snapshot = json!({ "revision": 4, "objects": [object, { "kind": "quota" }] });
        let snapshot: Snapshot = serde_json::from_value(snapshot).unwrap();
        assert_eq!((snapshot.revision, snapshot.objects.len()), (4, 1));
    }
}
