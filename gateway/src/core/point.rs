//! The four extension points as values. The typed side, with a payload each, is [`crate::invoke`].

use serde::{Deserialize, Serialize};

/// One of the four places of an agent's loop at which plugins run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// The agent is about to send user input to a model.
    BeforeLlmRequest,
    /// The agent is about to run a tool.
    BeforeToolCall,
    /// The agent is about to hand a tool's result, or its failure, back to the model.
    AfterToolResult,
    /// The agent is about to show the answer to the user.
    BeforeResponse,
}

impl Point {
    /// All of them, in the order of an agent's loop.
    pub const ALL: [Point; 4] =
        [Point::BeforeLlmRequest, Point::BeforeToolCall, Point::AfterToolResult, Point::BeforeResponse];

    /// The name used in configuration, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Point::BeforeLlmRequest => "before_llm_request",
            Point::BeforeToolCall => "before_tool_call",
            Point::AfterToolResult => "after_tool_result",
            Point::BeforeResponse => "before_response",
        }
    }

    /// The one by this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Point::ALL.into_iter().find(|point| point.as_str() == name)
    }

    /// Position in [`Point::ALL`]; indexes per-point arrays.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the payload of this point names a tool.
    pub const fn names_a_tool(self) -> bool {
        matches!(self, Point::BeforeToolCall | Point::AfterToolResult)
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a plugin may do to the payload of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Looks and may cancel; a patch is forbidden.
    Read,
    /// May patch too.
    Modify,
}

impl Access {
    /// The name used in configuration and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Modify => "modify",
        }
    }
}

/// Whether a call of a plugin has effects beyond its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SideEffects {
    /// None.
    None,
    /// Some.
    Some,
}

impl SideEffects {
    /// The name used in configuration and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            SideEffects::None => "none",
            SideEffects::Some => "some",
        }
    }
}

/// What a plugin offers at one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Access to the payload.
    pub access: Access,
    /// Whether a call has effects beyond its reply.
    pub side_effects: SideEffects,
}

impl std::fmt::Display for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, side effects: {}", self.access.as_str(), self.side_effects.as_str())
    }
}
