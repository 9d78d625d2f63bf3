//! Whether an operator consented to what a plugin describes itself as, and what is asked of him otherwise
//! (docs/decisions/0033-consent.md). Pure: who asks him, and where the answer is kept, is not known here.

use std::sync::Arc;

use super::{acceptance::Unaccepted, state::Why};
use crate::config::{self, Consent, Difference};

/// What an endpoint describes itself as that stays out for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wants {
    /// The plugin's name.
    pub name: Arc<str>,
    /// Its version.
    pub version: semver::Version,
    /// What would have to be consented to; as the entry's `accepted` says it.
    pub accepted: Consent,
    /// In what that is another than what is accepted now; everything, where nothing is.
    pub difference: Difference,
}

impl Wants {
    /// `before`: what is accepted now.
    pub(super) fn new(
        name: Arc<str>,
        version: semver::Version,
        accepted: Consent,
        before: Option<&Consent>,
    ) -> Arc<Self> {
        let nothing = Consent::default();
        let difference = Difference::between(before.unwrap_or(&nothing), &accepted);
        Arc::new(Wants { name, version, accepted, difference })
    }
}

/// Passes what was consented to.
///
/// # Errors
/// What was not: nothing may be sent to whoever describes itself so.
pub(super) fn consented(
    registered: &config::Plugin,
    name: &Arc<str>,
    version: &semver::Version,
    shape: &Consent,
) -> Result<(), Unaccepted> {
    let accepted = registered.accepted.as_ref();
    if !registered.needs_consent() || accepted == Some(shape) {
        return Ok(());
    }
    let wants = Wants::new(Arc::clone(name), version.clone(), shape.clone(), accepted);
    let difference = &wants.difference;
    let (why, detail) = match accepted {
        None => {
            (Why::Approval, format!("version {version} waits for an operator's approval: it {difference}"))
        }
        Some(_) if !difference.capabilities.added.is_empty() => (
            Why::UpgradePending,
            format!(
                "version {version} wants more than was accepted, and waits for approval: it {difference}"
            ),
        ),
        Some(_) => (
            Why::ManifestMismatch,
            format!("version {version} is not what was accepted, and waits for approval: it {difference}"),
        ),
    };
    Err(Unaccepted::Out { why, detail, wants: Some(wants) })
}
