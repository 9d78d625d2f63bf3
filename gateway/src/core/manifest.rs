//! The accepted manifest of a plugin (docs/protocol.md, section 2). [`crate::upstream`] reads it from a
//! `DescribeResponse`.

use std::sync::Arc;

use crate::core::point::Point;
pub use crate::core::point::{Access, PointAccess, SideEffects};

#[derive(Debug, Clone)]
pub struct Manifest {
    /// Equal to the registered name.
    pub name: Arc<str>,
    /// The plugin's own version.
    pub version: semver::Version,
    /// The offer at each point, by [`Point::index`].
    pub offers: [Option<PointAccess>; 4],
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
}
