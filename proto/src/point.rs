//! The extension points as values, what a plugin offers at them, and what it may ask of a gateway.

use crate::{PayloadField, PayloadFields, plugin::v1 as wire, types::v1::ExtensionPoint};

/// One of the four places of an agent's loop at which plugins run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
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

    /// The point of this name.
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

    /// Offers to look at calls here and to cancel them; a patch is forbidden.
    pub const fn read(self) -> Offer {
        Offer::new(self, Access::Read)
    }

    /// Offers to change payloads here, besides reading and cancelling.
    pub const fn modify(self) -> Offer {
        Offer::new(self, Access::Modify)
    }

    /// Whether a plugin that gets these large fields of the payload here may get it in windows.
    ///
    /// # Errors
    /// What is wrong with the offer.
    pub fn check_windows(self, reads: Option<PayloadFields>) -> Result<(), String> {
        if self != Point::BeforeResponse {
            return Err(format!("`windows` is set at {self}: only before_response has windows"));
        }
        match reads {
            Some(fields) if !fields.contains(PayloadField::Content) => {
                Err("`windows` at before_response needs the text: add `content` to `reads`".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The point that a message names; `None` if it names none.
    pub const fn from_wire(point: ExtensionPoint) -> Option<Self> {
        match point {
            ExtensionPoint::Unspecified => None,
            ExtensionPoint::BeforeLlmRequest => Some(Point::BeforeLlmRequest),
            ExtensionPoint::BeforeToolCall => Some(Point::BeforeToolCall),
            ExtensionPoint::AfterToolResult => Some(Point::AfterToolResult),
            ExtensionPoint::BeforeResponse => Some(Point::BeforeResponse),
        }
    }

    /// The point as messages name it.
    pub const fn to_wire(self) -> ExtensionPoint {
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

/// What a plugin may do to the payload of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
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

    /// The value as messages have it.
    pub const fn to_wire(self) -> wire::SideEffects {
        match self {
            SideEffects::None => wire::SideEffects::None,
            SideEffects::Some => wire::SideEffects::Some,
        }
    }

    /// The value in a message; `None` if it is unspecified.
    pub const fn from_wire(side_effects: wire::SideEffects) -> Option<Self> {
        match side_effects {
            wire::SideEffects::Unspecified => None,
            wire::SideEffects::None => Some(SideEffects::None),
            wire::SideEffects::Some => Some(SideEffects::Some),
        }
    }
}

/// One point that a plugin answers at; made by [`Point::read`] and [`Point::modify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Where.
    pub point: Point,
    /// What it may do to the payload.
    pub access: Access,
    /// Whether a call has effects beyond its reply.
    pub side_effects: SideEffects,
    /// The large fields of the payload that it reads; `None` for all of them.
    pub reads: Option<PayloadFields>,
    /// Whether it also judges an answer in windows, while the model still writes it.
    pub windows: bool,
}

impl Offer {
    const fn new(point: Point, access: Access) -> Self {
        Offer { point, access, side_effects: SideEffects::None, reads: None, windows: false }
    }

    /// Declares that a call counts, stores or sends something, so that a gateway neither skips it nor runs it
    /// concurrently with others.
    #[must_use]
    pub const fn with_side_effects(mut self) -> Self {
        self.side_effects = SideEffects::Some;
        self
    }

    /// Declares that, of the fields that can be large, the plugin reads only `fields`: the gateway sends no others. With `&[]`
    /// it sends none of them. A gateway refuses a plugin that names a field of another point.
    #[must_use]
    pub const fn reading_only(mut self, fields: &[PayloadField]) -> Self {
        self.reads = Some(PayloadFields::new(fields));
        self
    }

    /// Declares that the plugin also judges an answer in windows: parts of its text, while the model still writes it. Only for
    /// [`Point::BeforeResponse`], and only with the field `content`; a gateway refuses any other offer.
    #[must_use]
    pub const fn in_windows(mut self) -> Self {
        self.windows = true;
        self
    }

    /// The offer as a manifest names it.
    pub fn to_wire(self) -> wire::PointOffer {
        let access = match self.access {
            Access::Read => wire::Access::Read,
            Access::Modify => wire::Access::Modify,
        };
        wire::PointOffer {
            point: self.point.to_wire().into(),
            access: access.into(),
            side_effects: self.side_effects.to_wire().into(),
            reads: self.reads.map(PayloadFields::to_wire),
            windows: self.windows,
        }
    }
}

/// What a plugin may ask of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Capability {
    /// Read the plugin's data (`hookgate.host.v1`, StorageService).
    #[cfg_attr(feature = "serde", serde(rename = "storage:read"))]
    StorageRead,
    /// Write the plugin's data (`hookgate.host.v1`, StorageService).
    #[cfg_attr(feature = "serde", serde(rename = "storage:write"))]
    StorageWrite,
    /// Write to the gateway's log (`hookgate.host.v1`, LogService).
    #[cfg_attr(feature = "serde", serde(rename = "log"))]
    Log,
    /// Emit events for operators (`hookgate.host.v1`, EventService).
    #[cfg_attr(feature = "serde", serde(rename = "emit"))]
    Emit,
}

impl Capability {
    /// All of them.
    pub const ALL: [Capability; 4] =
        [Capability::StorageRead, Capability::StorageWrite, Capability::Log, Capability::Emit];

    /// The capability of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Capability::ALL.into_iter().find(|capability| capability.as_str() == name)
    }

    /// The name in manifests and in a registration's `grants`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Capability::StorageRead => "storage:read",
            Capability::StorageWrite => "storage:write",
            Capability::Log => "log",
            Capability::Emit => "emit",
        }
    }

    /// What a plugin that has it may do, for an operator who decides about it: `reads its own data, …`.
    pub const fn meaning(self) -> &'static str {
        match self {
            Capability::StorageRead => {
                "reads its own data, which the gateway's database keeps for each tenant"
            }
            Capability::StorageWrite => "writes its own data in the gateway's database, for each tenant",
            Capability::Log => "writes lines to the gateway's log, up to 1,000 per second at each gateway",
            Capability::Emit => "emits events for operators, up to 100 per second at each gateway",
        }
    }
}
