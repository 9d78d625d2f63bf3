//! Configuration: the file, its references, and the environment over it, read once at start. All mistakes are
//! found in one go, each with its line and what would be right (docs/protocol.md, section 7; the keys are in
//! docs/configuration.md).
//!
//! ```text
//! file -> tree (places) -> references -> environment -> JSON Schema -> draft -> checks -> Config
//! ```
//!
//! Plain data comes out of it; nothing here knows what uses it.

mod auth;
mod blot;
mod bypass;
mod check;
mod cidr;
mod consent;
mod development;
#[cfg(test)]
mod documentation;
mod draft;
mod effective;
mod environment;
mod excerpt;
#[cfg(test)]
mod fixtures;
mod listed;
mod load;
#[cfg(test)]
mod many_mistakes_tests;
mod model;
mod objects;
mod plugin;
mod policy;
mod problem;
mod reach;
mod reference;
mod restart;
mod schema;
mod tree;
mod units;
mod unreadable;
mod validate;

pub use auth::*;
pub use bypass::{Bypass, Until};
pub(crate) use check::{endpoint_flaw, is_name, socket_flaw};
pub use cidr::Cidr;
pub use consent::{Consent, Difference, OfferedPoints};
pub use development::DEVELOPMENT_ISSUER;
pub use effective::{Effective, Shown};
pub(crate) use environment::is_setting;
pub(crate) use listed::{Listed, Place, object};
pub(crate) use load::MAX_FILE;
pub use load::{Loaded, from_text, load};
pub use model::*;
pub(crate) use objects::{BINDINGS, PLUGINS, TENANTS};
pub use objects::{Objects, check as check_object, read};
pub use plugin::*;
pub(crate) use policy::Policy;
pub(crate) use problem::did_you_mean;
pub use problem::{Located, Problem, Problems};
pub use reach::{Egress, Reach, Secrets, Within};
pub use reference::{Resolved, resolve_references};
pub(crate) use reference::{is_reference, shown as shown_reference};
pub use schema::schema;
pub use units::{Rate, Size, Span};
pub(crate) use unreadable::unreadable;
