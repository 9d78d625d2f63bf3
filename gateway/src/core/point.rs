//! The four extension points as values. [`crate::invoke`] has the typed side, with a payload for each.

pub use hookgate_proto::{Access, PayloadField, PayloadFields, Point, SideEffects};
use serde::{Deserialize, Serialize};

/// What a plugin may do at one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PointAccess {
    /// What it may do to the payload.
    pub access: Access,
    /// Whether a call has effects beyond its reply.
    pub side_effects: SideEffects,
    /// The large fields of the payload that it gets. Absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<PayloadFields>,
}

impl PointAccess {
    /// An offer that reads all fields.
    pub const fn new(access: Access, side_effects: SideEffects) -> Self {
        PointAccess { access, side_effects, reads: None }
    }
}

impl std::fmt::Display for PointAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, side effects: {}", self.access.as_str(), self.side_effects.as_str())?;
        match self.reads {
            Some(fields) => write!(f, ", reads: {fields}"),
            None => Ok(()),
        }
    }
}
