//! The tools that a plugin provides (docs/protocol.md, section 10).

use std::{collections::BTreeSet, sync::Arc};

use hookgate_glob::InvalidGlob;
use hookgate_proto::types::v1 as types;
use regex::RegexSet;

/// A plugin's tools with one configuration, in the order of their names.
pub type Tools = Arc<[Arc<types::Tool>]>;

/// A set of tools' names, as globs.
#[derive(Debug, Clone, Default)]
pub struct ToolNames {
    globs: BTreeSet<String>,
    set: RegexSet,
}

impl ToolNames {
    /// Most globs in a manifest, a consent or a binding.
    pub const MAX_GLOBS: usize = 64;
    /// Longest glob there, in bytes.
    pub const MAX_GLOB_BYTES: usize = 128;

    /// The names that any of `globs` matches; `list` names them in the error.
    ///
    /// # Errors
    /// A glob is empty or broken, or all of them together are too large.
    pub fn new<'g>(list: &str, globs: impl IntoIterator<Item = &'g String>) -> Result<Self, InvalidGlob> {
        let globs: Vec<_> = globs.into_iter().cloned().collect();
        let set = hookgate_glob::compile(list, &globs)?;
        Ok(ToolNames { globs: globs.into_iter().collect(), set })
    }

    /// Whether the set has no glob, so no name.
    pub fn is_empty(&self) -> bool {
        self.globs.is_empty()
    }

    /// Whether a glob matches `name`.
    pub fn contains(&self, name: &str) -> bool {
        !self.is_empty() && self.set.is_match(name)
    }

    /// As written.
    pub fn globs(&self) -> &BTreeSet<String> {
        &self.globs
    }
}
