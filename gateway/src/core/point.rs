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
    /// Whether it also judges an answer in windows, while the model still writes it. Only at `before_response`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub windows: bool,
}

impl PointAccess {
    /// An offer that reads all fields, and only of whole payloads.
    pub const fn new(access: Access, side_effects: SideEffects) -> Self {
        PointAccess { access, side_effects, reads: None, windows: false }
    }
}

impl std::fmt::Display for PointAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, side effects: {}", self.access.as_str(), self.side_effects.as_str())?;
        if let Some(fields) = self.reads {
            write!(f, ", reads: {fields}")?;
        }
        f.write_str(if self.windows { ", windows" } else { "" })
    }
}
