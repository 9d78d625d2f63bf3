//! Whether an operator consented to what a plugin describes itself as, and what is asked of him otherwise
//! (docs/decisions/0033-consent.md). Pure: who asks him, and where the answer is kept, is not known here.

use std::sync::Arc;

use crate::{
    config::{self, Consent, ManifestDiff},
    core::manifest::Manifest,
    upstream::{manifest_validation::DescribeError, state::Why},
};

/// What an endpoint describes itself as that stays out for it.
#[derive(Debug, Clone)]
pub struct Wants {
    /// The plugin's name.
    pub name: Arc<str>,
    /// Its version.
    pub version: semver::Version,
    /// What would have to be consented to; as the entry's `accepted` says it.
    pub accepted: Consent,
    /// In what that is another than what is accepted now; everything, where nothing is.
    pub difference: ManifestDiff,
    /// What the plugin would be then.
    pub manifest: Arc<Manifest>,
}

impl PartialEq for Wants {
    /// Of equal manifests the accepted form is equal.
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.version, &self.accepted, &self.difference)
            == (&other.name, &other.version, &other.accepted, &other.difference)
    }
}

impl Wants {
    /// `before`: what is accepted now.
    pub(super) fn new(manifest: &Arc<Manifest>, accepted: Consent, before: Option<&Consent>) -> Arc<Self> {
        let nothing = Consent::default();
        let difference = ManifestDiff::between(before.unwrap_or(&nothing), &accepted);
        let (name, version) = (Arc::clone(&manifest.name), manifest.version.clone());
        Arc::new(Wants { name, version, accepted, difference, manifest: Arc::clone(manifest) })
    }
}

/// Passes what was consented to.
///
/// # Errors
/// What was not: nothing may be sent to whoever describes itself so.
pub(super) fn consented(
    registered: &config::Plugin,
    manifest: &Arc<Manifest>,
    shape: &Consent,
) -> Result<(), DescribeError> {
    let accepted = registered.accepted.as_ref();
    if !registered.needs_consent() || accepted == Some(shape) {
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
