//! Having a plugin described again: because it was mended, or replaced behind the same address.

use std::{collections::BTreeSet, sync::Arc};

use tokio::{
    sync::mpsc,
    time::{Duration, Instant, timeout_at},
};

use crate::{
    admin::process_ops::{OperationReason, Upkeep, Wish, log},
    config::Plugin,
    control::reload_requests::ask,
    core::error::{Code, Error},
    snapshot::InForce,
    upstream::PluginClient,
};

/// How long he waits for all endpoints.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(15);

/// What came of describing one endpoint again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribeOutcome {
    /// The endpoint, or a name that brought no address.
    pub address: String,
    /// Why it was not; none: it was described, accepted and initialised anew.
    pub trouble: Option<String>,
}

impl Upkeep {
    /// Has every endpoint of the plugin `name` described and initialised again, one after the other. No call fails for
    /// it. An entry that the plugin refused is tried again.
    ///
    /// # Errors
    /// NOT_FOUND, CONFLICT for a plugin that is switched off, DRAINING.
    pub async fn describe_again(
        &self,
        who: &OperationReason,
        name: &str,
    ) -> Result<Vec<DescribeOutcome>, Error> {
        let before = self.dialled(name)?;
        log(who, "describe", Some(name));
        let by = Instant::now() + DESCRIBE_TIMEOUT;
        ask(&self.asks, Wish::Retry(name.to_owned()), by).await?;
        let client = self.dialled(name)?;
        if !Arc::ptr_eq(&before, &client) {
            // Another entry, whose endpoints were described for it just now.
            let all = client.endpoints().into_iter();
            return Ok(all
                .map(|endpoint| DescribeOutcome { address: endpoint.address, trouble: None })
                .collect());
        }
        let (tell, mut told) = mpsc::unbounded_channel();
        let describing = Arc::clone(&client);
        // Whoever hangs up leaves nothing half done.
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

    /// The plugin `name` as it is in force, and switched on.
    fn dialled(&self, name: &str) -> Result<Arc<PluginClient>, Error> {
        find(&self.gateway.snapshots.in_force(), name).map(|(_, client)| Arc::clone(client))
    }

    /// The client of the plugin `name` that calls go to now, if any may.
    pub(super) fn client(&self, name: &str) -> Option<Arc<PluginClient>> {
        self.dialled(name).ok()
    }
}

/// The plugin `name` as it is in force, and switched on.
///
/// # Errors
/// NOT_FOUND, or CONFLICT where it is disabled.
pub(super) fn find<'a>(
    in_force: &'a InForce,
    name: &str,
) -> Result<(&'a Plugin, &'a Arc<PluginClient>), Error> {
    let clients = &in_force.invoker.routes().clients;
    let found = in_force.config.plugins.iter().zip(clients).find(|(plugin, _)| plugin.name == name);
    match found {
        Some((plugin, client)) if plugin.enabled => Ok((plugin, client)),
        Some(_) => Err(Error::new(Code::Conflict, format!("Plugin `{name}` is disabled: enable it first"))),
        None => {
            Err(Error::new(Code::NotFound, format!("There is no active plugin `{name}` in this process")))
        }
    }
}
