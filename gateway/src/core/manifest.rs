//! The accepted manifest of a plugin (docs/protocol.md, section 2). [`crate::upstream`] reads it from a
//! `DescribeResponse`.

use std::{collections::BTreeMap, sync::Arc};

use hookgate_proto::HookName;

pub use crate::core::point::{Access, PointAccess, SideEffects};
use crate::core::{call_site::CallSite, point::Point};

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

    /// The offer at `site`. A hook has no payload to change, so the access there is read.
    pub fn offers_at(&self, site: &CallSite) -> Option<PointAccess> {
        match site {
            CallSite::Point(point) => self.offers(*point),
            CallSite::Hook(hook) => {
                self.hooks.get(hook).map(|&side_effects| PointAccess { access: Access::Read, side_effects })
            }
        }
    }
}
