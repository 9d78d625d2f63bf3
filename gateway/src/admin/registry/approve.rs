//! Records consent to a plugin's manifest. The operator sends back exactly what was shown, so that no other
//! manifest is approved by mistake (docs/decisions/0033-consent.md).

use serde::Deserialize;
use serde_json::Value;

use super::{
    super::{Admin, plugin::ActivePlugin},
    body::deserialize,
};
use crate::{
    config::{Consent, ManifestDiff},
    core::{
        error::{Code, Error, Violation},
        object::Owner,
    },
    snapshot::ConfigSnapshot,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Approval {
    accepted: Consent,
}

impl Admin {
    /// Checks the consent in `body`.
    ///
    /// # Errors
    /// PAYLOAD_INVALID; CONFLICT if the plugin `name`, as far as this process knows, now asks for something
    /// else or for nothing.
    pub(in crate::admin) async fn approved(
        &self,
        snapshot: &ConfigSnapshot,
        name: &str,
        body: Value,
    ) -> Result<Consent, Error> {
        let approval = deserialize(body);
        let Approval { accepted } = approval.map_err(|wrong: Violation| {
            let message = format!("Send `accepted` of an entry of `pending_manifests`: {}", wrong.message);
            Error::invalid(vec![Violation { message, ..wrong }])
        })?;
        let contents = self.contents().await?;
        // The write itself checks that the plugin exists and who owns it.
        let Some(plugin) = contents.plugin(name) else {
            return Ok(accepted);
        };
        if plugin.owner == Owner::File || plugin.accepted.as_ref() == Some(&accepted) {
            return Ok(accepted);
        }
        let wants =
            ActivePlugin::named(snapshot, name).map(|plugin| plugin.pending_manifests()).unwrap_or_default();
        if wants.iter().any(|wants| wants.accepted == accepted) {
            return Ok(accepted);
        }
        let Some(first) = wants.first() else {
            return Err(Error::new(
                Code::Conflict,
                format!("Plugin `{name}` needs no approval: see its `state` and `pending_manifests`"),
            ));
        };
        let detail = format!(
            "The manifest of plugin `{name}` has changed: compared with what was sent, version {} {}",
            first.version,
            ManifestDiff::between(&accepted, &first.accepted)
        );
        let violations = vec![Violation::new("/accepted", detail.clone())];
        Err(Error { violations, ..Error::new(Code::Conflict, detail) })
    }
}
