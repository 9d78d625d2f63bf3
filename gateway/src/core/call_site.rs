//! Where plugins are called.

use std::fmt;

use hookgate_proto::{HookName, Point};

/// An extension point or a lifecycle hook. Their names are distinct.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallSite {
    Point(Point),
    Hook(HookName),
}

impl CallSite {
    /// The length of an array with an entry for each point, and one for all hooks together.
    pub const KINDS: usize = CallSite::HOOKS + 1;

    /// The position of the hooks in such an array.
    pub const HOOKS: usize = Point::ALL.len();

    /// The position in such an array.
    pub fn kind(&self) -> usize {
        match self {
            CallSite::Point(point) => point.index(),
            CallSite::Hook(_) => CallSite::HOOKS,
        }
    }

    /// The name used in configuration, metrics and logs.
    pub fn as_str(&self) -> &str {
        match self {
            CallSite::Point(point) => point.as_str(),
            CallSite::Hook(hook) => hook.as_str(),
        }
    }

    /// The point; `None` for a hook.
    pub fn point(&self) -> Option<Point> {
        match self {
            CallSite::Point(point) => Some(*point),
            CallSite::Hook(_) => None,
        }
    }

    /// The hook; `None` for a point.
    pub fn hook(&self) -> Option<&HookName> {
        match self {
            CallSite::Point(_) => None,
            CallSite::Hook(hook) => Some(hook),
        }
    }
}

impl From<Point> for CallSite {
    fn from(point: Point) -> Self {
        CallSite::Point(point)
    }
}

impl From<HookName> for CallSite {
    fn from(hook: HookName) -> Self {
        CallSite::Hook(hook)
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
