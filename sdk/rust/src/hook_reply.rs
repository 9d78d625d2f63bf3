//! A plugin's answer at a lifecycle hook: contributions and notices, without a verdict.

use serde::Serialize;

use crate::{Contribution, Notice, PluginError, json};

/// A plugin's answer at a lifecycle hook: what it contributes, and remarks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookReply {
    pub(crate) contributions: Vec<Contribution>,
    pub(crate) notices: Vec<Notice>,
}

impl HookReply {
    /// Contributes nothing.
    pub fn none() -> Self {
        HookReply::default()
    }

    /// Adds a contribution: at most 64, together not larger than
    /// [`Host::max_payload_bytes`](crate::Host::max_payload_bytes). The agent gets them in this order. `kind` matches
    /// `[a-z][a-z0-9_]{0,63}`, and `value` is any JSON value. A known hook takes only its own kinds, each with its own
    /// form (docs/protocol.md, section 9).
    ///
    /// # Errors
    /// When the value can't be written as JSON.
    pub fn contribute<T: Serialize + ?Sized>(
        mut self,
        kind: impl Into<String>,
        value: &T,
    ) -> Result<Self, PluginError> {
        self.contributions.push(Contribution { kind: kind.into(), value: json::to_bytes(value)? });
        Ok(self)
    }

    /// Adds a remark: at most 16, 8 KiB together.
    #[must_use]
    pub fn notice(mut self, notice: Notice) -> Self {
        self.notices.push(notice);
        self
    }

    /// The contributions, in order. Their values are JSON text.
    pub fn contributions(&self) -> &[Contribution] {
        &self.contributions
    }

    /// The remarks, in order.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}
