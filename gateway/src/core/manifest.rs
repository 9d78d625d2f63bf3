//! What an accepted plugin says it is (docs/protocol.md, section 2). Read from a `DescribeResponse` by
//! [`crate::upstream`]; knows nothing of the wire.

use std::sync::Arc;

use crate::core::point::Point;
pub use crate::core::point::{Access, PointAccess, SideEffects};

/// An accepted manifest.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Equals the registered name.
    pub name: Arc<str>,
    /// The plugin's own version.
    pub version: semver::Version,
    /// What it offers, by [`Point::index`].
    pub offers: [Option<PointAccess>; 4],
    /// What it asks of the gateway, within what is granted.
    pub capabilities: Vec<String>,
    /// Schema of the plugin-level config.
    pub config_schema: Option<Arc<jsonschema::Validator>>,
    /// Schema of the tenant-level config.
    pub tenant_config_schema: Option<Arc<jsonschema::Validator>>,
}

impl Manifest {
    /// What the plugin offers at `point`; none: it is not called there.
    pub fn offers(&self, point: Point) -> Option<PointAccess> {
        self.offers[point.index()]
    }
}
