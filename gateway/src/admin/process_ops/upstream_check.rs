//! Asks providers of models whether they can be used, with the process's own keys and network.

use crate::{
    admin::process_ops::{OperationReason, Upkeep, log},
    core::error::{Code, Error},
    llm::upstream_check::{UpstreamCheck, check_upstreams},
};

impl Upkeep {
    /// Checks the active upstreams of these names, or all if there are no names, when no other check runs. Dropping the future ends the
    /// requests.
    ///
    /// # Errors
    /// NOT_FOUND, with the first name that no active upstream has.
    pub async fn check_upstreams(
        &self,
        who: &OperationReason,
        names: &[String],
    ) -> Result<Vec<UpstreamCheck>, Error> {
        let llm = self.gateway.snapshots.current().llm.clone();
        let upstreams = llm.as_ref().map(|llm| llm.routes.upstreams()).unwrap_or_default();
        let is_active = |name: &String| upstreams.iter().any(|upstream| **upstream.name() == **name);
        if let Some(unknown) = names.iter().find(|name| !is_active(name)) {
            let detail = format!("There is no active upstream `{unknown}` in this process");
            return Err(Error::new(Code::NotFound, detail));
        }
        log(who, "check_upstreams", None);
        let _only = self.upstream_check.lock().await;
        match &llm {
            Some(llm) => Ok(check_upstreams(&llm.routes, names).await),
            None => Ok(Vec::new()),
        }
    }
}
