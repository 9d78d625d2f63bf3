//! The accepted manifest of a plugin (docs/protocol.md, section 2). [`crate::upstream`] reads it from a
//! `DescribeResponse`.

use std::{collections::BTreeMap, sync::Arc};

use hookgate_proto::HookName;

pub use crate::core::point::{Access, PointAccess, SideEffects};
use crate::core::{
    call_site::CallSite,
    point::Point,
    tool::{ToolNames, Tools},
};

#[derive(Debug, Clone)]
pub struct Manifest {
    /// Equal to the registered name.
    pub name: Arc<str>,
    /// The plugin's own version.
    pub version: semver::Version,
    /// The offer at each point, by [`Point::index`].
    pub offers: [Option<PointAccess>; 4],
    /// The side effects at each hook that is offered.
    pub hooks: BTreeMap<HookName, SideEffects>,
    /// The names that the plugin's tools may have.
    pub tool_names: Arc<ToolNames>,
    /// Its tools. `None` while it has not been initialised.
    pub tools: Option<Tools>,
    /// The capabilities that the plugin asks for, all of which are granted.
    pub capabilities: Vec<String>,
    /// Schema of the plugin-level config.
    pub config_schema: Option<Arc<jsonschema::Validator>>,
    /// Schema of the tenant-level config.
    pub tenant_config_schema: Option<Arc<jsonschema::Validator>>,
}

impl Manifest {
    /// The offer at `point`. Returns `None` if the plugin is not called there.
    pub fn offers(&self, point: Point) -> Option<PointAccess> {
        self.offers[point.index()]
    }

    /// Whether the plugin is called at `site`, as a step or for its tools.
    pub fn is_called_at(&self, site: &CallSite) -> bool {
        let has_tools = || !self.tool_names.is_empty();
        self.offers_at(site).is_some() || (*site == CallSite::Point(Point::BeforeToolCall) && has_tools())
    }

    /// The offer at `site`. A hook has no payload to change, so the access there is read.
    pub fn offers_at(&self, site: &CallSite) -> Option<PointAccess> {
        match site {
            CallSite::Point(point) => self.offers(*point),
            CallSite::Hook(hook) => {
                self.hooks.get(hook).map(|&side_effects| PointAccess::new(Access::Read, side_effects))
            }
        }
    }
}
