//! The extension points as values, and a plugin's offers.

use hookgate_proto::{plugin::v1 as wire, types::v1::ExtensionPoint};

/// One of the four places of an agent's loop at which plugins run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    /// Offers to inspect calls here and to cancel them. Patches are forbidden.
    pub const fn read(self) -> Offer {
        Offer { point: self, access: Access::Read, side_effects: false }
    }

    /// Offers to change payloads here, and to inspect and cancel calls.
    pub const fn modify(self) -> Offer {
        Offer { point: self, access: Access::Modify, side_effects: false }
    }

    const fn to_wire(self) -> ExtensionPoint {
        match self {
            Point::BeforeLlmRequest => ExtensionPoint::BeforeLlmRequest,
            Point::BeforeToolCall => ExtensionPoint::BeforeToolCall,
            Point::AfterToolResult => ExtensionPoint::AfterToolResult,
            Point::BeforeResponse => ExtensionPoint::BeforeResponse,
        }
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A plugin's access at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// May inspect and cancel; patches are forbidden.
    Read,
    /// May patch the payload too.
    Modify,
}

/// A point at which a plugin is called; created by [`Point::read`] and [`Point::modify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    pub(crate) point: Point,
    pub(crate) access: Access,
    pub(crate) side_effects: bool,
}

impl Offer {
    /// Declares that calls count, store or send something, so a gateway must neither skip them nor run them
    /// concurrently with others.
    #[must_use]
    pub const fn with_side_effects(mut self) -> Self {
        self.side_effects = true;
        self
    }

    pub(crate) fn to_wire(self) -> wire::PointOffer {
        let access = match self.access {
            Access::Read => wire::Access::Read,
            Access::Modify => wire::Access::Modify,
        };
        let side_effects = if self.side_effects { wire::SideEffects::Some } else { wire::SideEffects::None };
        wire::PointOffer {
            point: self.point.to_wire().into(),
            access: access.into(),
            side_effects: side_effects.into(),
        }
    }
}
