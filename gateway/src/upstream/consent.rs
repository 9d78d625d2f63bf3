//! Checks an operator's consent to a plugin's manifest, and computes what to ask for if it is missing
//! (docs/decisions/0033-consent.md).
//!
//! Pure: this module doesn't know who asks, or where the answer is stored.

use std::sync::Arc;

use crate::{
    config::{self, Consent, ManifestDiff},
    core::manifest::Manifest,
    upstream::{manifest_validation::DescribeError, state::Why},
};

/// What an endpoint that lacks consent describes itself as.
#[derive(Debug, Clone)]
pub struct Wants {
    pub name: Arc<str>,
    pub version: semver::Version,
    /// What the operator would have to consent to, in the form of the entry's `accepted`.
    pub accepted: Consent,
    /// How this differs from what is accepted now; everything, if nothing is accepted.
    pub difference: ManifestDiff,
    /// The manifest that the plugin would have.
    pub manifest: Arc<Manifest>,
}

impl PartialEq for Wants {
    /// Equal manifests have equal accepted forms, so `manifest` isn't compared.
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.version, &self.accepted, &self.difference)
            == (&other.name, &other.version, &other.accepted, &other.difference)
    }
}

impl Wants {
    /// `before` is what is accepted now.
    pub(super) fn new(manifest: &Arc<Manifest>, accepted: Consent, before: Option<&Consent>) -> Arc<Self> {
        let nothing = Consent::default();
        let difference = ManifestDiff::between(before.unwrap_or(&nothing), &accepted);
        let (name, version) = (Arc::clone(&manifest.name), manifest.version.clone());
        Arc::new(Wants { name, version, accepted, difference, manifest: Arc::clone(manifest) })
    }
}

/// Returns `Ok` if the operator consented to this manifest of a plugin that needs consent.
///
/// # Errors
/// Consent is missing, so nothing may be sent to the plugin.
pub(super) fn consented(
    registered: &config::Plugin,
    manifest: &Arc<Manifest>,
    shape: &Consent,
) -> Result<(), DescribeError> {
    let accepted = registered.accepted.as_ref();
    if accepted == Some(shape) {
        return Ok(());
    }
    let wants = Wants::new(manifest, shape.clone(), accepted);
    let (difference, version) = (&wants.difference, &wants.version);
    let (why, detail) = match accepted {
        None => (Why::Approval, format!("version {version} is waiting for approval: it {difference}")),
        Some(_) if !difference.capabilities.added.is_empty() => (
            Why::UpgradePending,
            format!(
                "version {version} exceeds the accepted manifest, and is waiting for approval: it {difference}"
            ),
        ),
        Some(_) => (
            Why::ManifestMismatch,
            format!(
                "version {version} differs from the accepted manifest, and is waiting for approval: it \
                     {difference}"
            ),
        ),
    };
    Err(DescribeError::Out { why, detail, wants: Some(wants) })
}
