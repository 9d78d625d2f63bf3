//! Which plugins run for whom, where and in which order: from the configuration and the manifests accepted so
//! far to an immutable [`RouteTable`] (docs/protocol.md, sections 3 and 7).
//!
//! Pure: no clock, no connection, and no lock but for the conditions that tables share, which no call takes. A table is built anew on every change and published whole; a call
//! takes one and keeps it. Whether a plugin can be reached is none of this module's business, so that no
//! binding leaves a plan because its plugin is down.

mod applicability;
mod binding;
mod bypass_index;
mod conditions;
mod plan;
mod rebuild;
mod table;
mod table_inputs;
mod tenant;
mod tenant_entry;
#[cfg(test)]
mod tests;

pub use crate::core::manifest::{Access, Manifest, PointAccess, SideEffects};
pub use crate::routing::applicability::{AbsenceReason, absent, stands};
pub use conditions::{Condition, ConditionOutcome, Conditions, MatchSubject};
pub use plan::{BindingDetails, Plan, Step, StepTemplate};
pub use table::{RouteTable, TenantPlans, TenantRoute};

/// `key` as one part of a JSON pointer.
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
