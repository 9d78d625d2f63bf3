//! Computes which plugins run for which tenant, at which point and in which order: turns the configuration
//! and the accepted manifests into an immutable [`RouteTable`] (docs/protocol.md, sections 3 and 7).
//!
//! Pure: no clock, no connections, and only one lock, which guards the compiled patterns that tables share
//! and which no call takes. A table is rebuilt on every change and published whole; a call takes one and
//! keeps it. Whether a plugin is reachable has no effect here, so that no binding leaves a plan because its
//! plugin is down.

mod applicability;
mod binding;
mod bypass_index;
mod conditions;
mod groups;
mod pattern_pool;
mod plan;
mod plan_tools;
mod rebuild;
mod table;
mod table_inputs;
mod tenant;
mod tenant_entry;
#[cfg(test)]
mod tests;
mod unoffered;

pub use crate::core::manifest::{Access, Manifest, PointAccess, SideEffects};
pub use crate::routing::applicability::{AbsenceReason, absent, stands};
pub use conditions::{Condition, ConditionOutcome, Conditions, MatchSubject};
pub use groups::groups;
#[cfg(test)]
pub(crate) use groups::{form_groups, form_one_group};
pub use plan::{BindingDetails, Plan, Step, StepTemplate};
pub use plan_tools::{PlanTool, PlanTools};
pub use table::{RouteTable, TenantPlans, TenantRoute};
pub use unoffered::{UnofferedSite, unoffered_sites};
