//! Why a plugin is refused: nine stable reasons, each with a sentence that says what to change
//! (docs/protocol.md, section 2).

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The manifest's name is not the registered one, or the endpoint serves no plugin of that name.
    NameMismatch,
    /// The version is outside the registered range.
    VersionMismatch,
    /// The two sides have no protocol major in common.
    ProtocolMismatch,
    /// The manifest offers no point.
    NoExtensionPoint,
    /// The manifest asks for a capability that is not granted.
    CapabilityOverreach,
    /// The manifest is absent, can't be decoded or contradicts itself.
    BadManifest,
    /// The plugin-level configuration is invalid by the manifest's schema, or the plugin rejected it.
    ConfigRefused,
    /// Initialize failed.
    InitializeFailed,
    /// Initialize was not answered in time.
    InitializeTimeout,
}

impl Refusal {
    pub const ALL: &'static [Refusal] = &[
        Refusal::NameMismatch,
        Refusal::VersionMismatch,
        Refusal::ProtocolMismatch,
        Refusal::NoExtensionPoint,
        Refusal::CapabilityOverreach,
        Refusal::BadManifest,
        Refusal::ConfigRefused,
        Refusal::InitializeFailed,
        Refusal::InitializeTimeout,
    ];

    /// The name used in status, events and exit messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Refusal::NameMismatch => "NAME_MISMATCH",
            Refusal::VersionMismatch => "VERSION_MISMATCH",
            Refusal::ProtocolMismatch => "PROTOCOL_MISMATCH",
            Refusal::NoExtensionPoint => "NO_EXTENSION_POINT",
            Refusal::CapabilityOverreach => "CAPABILITY_OVERREACH",
            Refusal::BadManifest => "BAD_MANIFEST",
            Refusal::ConfigRefused => "CONFIG_REFUSED",
            Refusal::InitializeFailed => "INITIALIZE_FAILED",
            Refusal::InitializeTimeout => "INITIALIZE_TIMEOUT",
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal with the sentence that says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refusal}: {advice}")]
pub(super) struct RefusalDetail {
    pub(super) refusal: Refusal,
    /// For the operator; names members, never their values.
    pub(super) advice: String,
}

impl RefusalDetail {
    pub(super) fn new(refusal: Refusal, advice: impl Into<String>) -> Self {
        RefusalDetail { refusal, advice: advice.into() }
    }
}
