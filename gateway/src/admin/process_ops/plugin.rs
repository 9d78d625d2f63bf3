//! Describes a plugin again, after it was repaired or replaced behind the same address.

use std::{collections::BTreeSet, sync::Arc};

use tokio::{
    sync::mpsc,
    time::{Duration, Instant, timeout_at},
};

use crate::{
    admin::process_ops::{OperationReason, ReloadCommand, Upkeep, log},
    config::Plugin,
    control::reload_requests::ask,
    core::error::{Code, Error},
    snapshot::ConfigSnapshot,
    upstream::PluginClient,
};

/// How long the operator waits for all endpoints.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(15);

/// The result for one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribeOutcome {
    /// The endpoint, or a host name that resolved to no address.
    pub address: String,
    /// Why it failed; `None` if the endpoint was described, accepted and initialised again.
    pub trouble: Option<String>,
}

impl Upkeep {
    /// Describes and initialises every endpoint of the plugin `name` again, one after the other. No call
    /// fails because of it. If the plugin rejected an entry, that entry is tried again.
    ///
    /// # Errors
    /// NOT_FOUND, CONFLICT if the plugin is switched off, DRAINING.
    pub async fn describe_again(
        &self,
        who: &OperationReason,
        name: &str,
    ) -> Result<Vec<DescribeOutcome>, Error> {
        let before = self.dialled(name)?;
        log(who, "describe", Some(name));
        let by = Instant::now() + DESCRIBE_TIMEOUT;
        ask(&self.asks, ReloadCommand::Retry(name.to_owned()), by).await?;
        let client = self.dialled(name)?;
        if !Arc::ptr_eq(&before, &client) {
            // A new entry is now active, and its endpoints have just been described.
            let all = client.endpoints().into_iter();
            return Ok(all
                .map(|endpoint| DescribeOutcome { address: endpoint.address, trouble: None })
                .collect());
        }
        let (tell, mut told) = mpsc::unbounded_channel();
        let describing = Arc::clone(&client);
        // Run as a task, so that a caller who hangs up doesn't leave it half done.
        tokio::spawn(async move {
            let tell = |described| {
                let _ = tell.send(described);
            };
            describing.describe_again(tell).await;
        });
        let mut tried = Vec::new();
        while let Ok(Some(described)) = timeout_at(by, told.recv()).await {
            tried.push(DescribeOutcome { address: described.address, trouble: described.trouble });
        }
        let known: BTreeSet<_> = tried.iter().map(|tried| tried.address.clone()).collect();
        let left = client.endpoints().into_iter().map(|endpoint| endpoint.address);
        tried.extend(left.filter(|address| !known.contains(address)).map(|address| {
            let trouble =
                format!("not done within {} s; it continues in the background", DESCRIBE_TIMEOUT.as_secs());
            DescribeOutcome { address, trouble: Some(trouble) }
        }));
        Ok(tried)
    }

    /// The client of the active plugin `name`, if the plugin is switched on.
    fn dialled(&self, name: &str) -> Result<Arc<PluginClient>, Error> {
        find(&self.gateway.snapshots.current(), name).map(|(_, client)| Arc::clone(client))
    }

    /// Like [`Self::dialled`], without the reason.
    pub(super) fn client(&self, name: &str) -> Option<Arc<PluginClient>> {
        self.dialled(name).ok()
    }
}

/// Finds the active plugin `name`.
///
/// # Errors
/// NOT_FOUND, or CONFLICT if it is switched off.
pub(super) fn find<'a>(
    snapshot: &'a ConfigSnapshot,
    name: &str,
) -> Result<(&'a Plugin, &'a Arc<PluginClient>), Error> {
    let clients = &snapshot.invoker.routes().clients;
    let found = snapshot.config.plugins.iter().zip(clients).find(|(plugin, _)| plugin.name == name);
    match found {
        Some((plugin, client)) if plugin.enabled => Ok((plugin, client)),
        Some(_) => Err(Error::new(Code::Conflict, format!("Plugin `{name}` is disabled: enable it first"))),
        None => {
            Err(Error::new(Code::NotFound, format!("There is no active plugin `{name}` in this process")))
        }
    }
}
