//! The kinds of objects that a configuration lists and a registry stores, and who may write them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kinds of objects, ordered so that objects refer only to earlier kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// A plugin, by its name.
    Plugin,
    /// A tenant, by its id.
    Tenant,
    /// A binding, by its name.
    Binding,
    /// A provider of models, by its name.
    Upstream,
    /// A rule for models, by its name.
    Model,
    /// A binding that is temporarily suspended for a tenant.
    Bypass,
}

impl ObjectKind {
    pub const ALL: [ObjectKind; 6] = [
        ObjectKind::Plugin,
        ObjectKind::Tenant,
        ObjectKind::Binding,
        ObjectKind::Upstream,
        ObjectKind::Model,
        ObjectKind::Bypass,
    ];
    /// The kinds that a file lists.
    pub const LISTED: [ObjectKind; 5] = [
        ObjectKind::Plugin,
        ObjectKind::Tenant,
        ObjectKind::Binding,
        ObjectKind::Upstream,
        ObjectKind::Model,
    ];

    /// The name as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Plugin => "plugin",
            ObjectKind::Tenant => "tenant",
            ObjectKind::Binding => "binding",
            ObjectKind::Upstream => "upstream",
            ObjectKind::Model => "model",
            ObjectKind::Bypass => "bypass",
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who may write an object (docs/protocol.md, section 7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The configuration file.
    #[default]
    File,
    /// The admin API.
    Api,
}

impl Owner {
    /// The name as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Owner::File => "file",
            Owner::Api => "api",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
