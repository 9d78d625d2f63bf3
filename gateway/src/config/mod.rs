//! The configuration: a file, its references, and the environment that overrides it. All mistakes are found
//! at once, each with its line and a remedy (docs/protocol.md, section 7; the keys are in
//! docs/configuration.md).
//!
//! ```text
//! file -> tree (places) -> references -> environment -> JSON Schema -> partial config -> checks -> Config
//! ```
//!
//! The result is plain data; nothing here knows how it is used.

mod auth;
mod bypass;
mod check;
mod cidr;
mod consent;
mod dev_mode;
#[cfg(test)]
mod documentation;
mod effective;
mod egress_policy;
mod environment;
mod excerpt;
#[cfg(test)]
mod fixtures;
mod foreign_document;
mod llm;
mod load;
#[cfg(test)]
mod many_mistakes_tests;
mod model;
mod objects;
mod objects_file;
mod partial_config;
mod plugin;
mod policy;
mod problem;
mod reference;
mod restart;
mod schema;
mod secret_filter;
mod server;
mod tree;
mod units;
mod validate;

pub use crate::config::dev_mode::DEVELOPMENT_ISSUER;
pub use crate::config::egress_policy::{
    ApiPluginPolicy, Egress, ReferenceScope, Secrets, SelfRegistration, UnknownPlugins,
};
pub use crate::config::objects_file::{ObjectLocation, ObjectsFile, object};
pub(crate) use crate::fs::unreadable::unreadable;
pub use auth::*;
pub use bypass::{Bypass, Until};
pub use check::{endpoint_flaw, is_name, registered_endpoint_flaw, socket_flaw, unverified};
pub use cidr::Cidr;
pub use consent::{Consent, ManifestDiff, OfferedPoints};
pub use effective::{EffectiveValue, ValueWithOrigin};
pub use environment::environment_variables;
pub use foreign_document::ForeignDocument;
pub use hookgate_proto::Capability;
pub use llm::{
    BuiltinModel, LlmLimits, LlmProxy, ModelRule, ModelUpstream, ProviderKey, TenantCredentials, TenantLlm,
    default_model_name,
};
pub use load::MAX_FILE;
pub use load::{LoadedConfig, from_text, load, load_without_outgoing_secrets};
pub use model::*;
pub(crate) use objects::{BINDINGS, MODELS, PLUGINS, TENANTS, UPSTREAMS};
pub use objects::{ObjectSet, check as check_object, read};
pub use plugin::*;
pub(crate) use policy::{AddressRefusal, DialPolicy};
pub use problem::did_you_mean;
pub use problem::{LocatedProblem, Problem, Problems, RegistryPlace};
pub use reference::{ResolvedPluginConfig, resolve_references};
pub(crate) use reference::{is_reference, masked as shown_reference};
pub use schema::schema;
pub use server::{Server, ServerTls};
pub use units::{Rate, Size, Span};
