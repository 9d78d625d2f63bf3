//! The Hookgate contract: what a plugin implements, what an agent calls, what an operator calls, what a plugin may ask of
//! the gateway, and the messages they share.
//!
//! The code under `gen/` is generated from the `.proto` files and kept in git, so that building needs no
//! protobuf compiler. `tests/regenerate.rs` generates it again and fails on a difference; run it with
//! `HOOKGATE_REGENERATE=1` to write the new code.
#![warn(missing_docs)]

/// `hookgate.types.v1`: messages shared by the two sides.
pub mod types {
    /// Major version 1.
    #[allow(clippy::pedantic, clippy::large_enum_variant)]
    pub mod v1 {
        include!("gen/hookgate.types.v1.rs");
    }
}

/// `hookgate.plugin.v1`: what a plugin implements.
pub mod plugin {
    /// Major version 1.
    #[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines)] // written by the generator
    pub mod v1 {
        include!("gen/hookgate.plugin.v1.rs");
    }
}

/// `hookgate.gateway.v1`: what an agent calls.
pub mod gateway {
    /// Major version 1.
    #[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines)] // written by the generator
    pub mod v1 {
        include!("gen/hookgate.gateway.v1.rs");
    }
}

/// `hookgate.admin.v1`: what an operator calls.
pub mod admin {
    /// Major version 1.
    #[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines)] // written by the generator
    pub mod v1 {
        include!("gen/hookgate.admin.v1.rs");
    }
}

/// `hookgate.host.v1`: what a plugin may ask of the gateway.
pub mod host {
    /// Major version 1.
    #[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines)] // written by the generator
    pub mod v1 {
        include!("gen/hookgate.host.v1.rs");
    }
}

mod hook;
mod payload_field;
mod point;
mod select_fields;
mod tool;
mod window;
pub use hook::{HookName, HookNameError, HookOffer, is_lower_snake_case};
pub use payload_field::{PayloadField, PayloadFields, PayloadFieldsError};
pub use point::{Access, Capability, Offer, Point, SideEffects};
pub use select_fields::SelectFields;
pub use tool::{MAX_TOOLS_BYTES, check_tools};
pub use window::{ConsumedError, MAX_REST_BYTES, WindowedText, rest_of_window};

/// Encoded `google.protobuf.FileDescriptorSet` of all packages, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/descriptors.bin");

/// The contract itself, for other languages: the `.proto` files and buf's settings, each with its path below `proto/`.
pub const SOURCES: [(&str, &str); 6] = [
    ("buf.yaml", include_str!("../buf.yaml")),
    ("hookgate/admin/v1/admin.proto", include_str!("../hookgate/admin/v1/admin.proto")),
    ("hookgate/gateway/v1/gateway.proto", include_str!("../hookgate/gateway/v1/gateway.proto")),
    ("hookgate/host/v1/host.proto", include_str!("../hookgate/host/v1/host.proto")),
    ("hookgate/plugin/v1/plugin.proto", include_str!("../hookgate/plugin/v1/plugin.proto")),
    ("hookgate/types/v1/types.proto", include_str!("../hookgate/types/v1/types.proto")),
];
