//! What a plugin sends beside responses and requests, as lines of the runner's log.

use std::sync::Arc;

use crate::{
    instances::Instance,
    output::{Admission, LineRate, MAX_LINE_BYTES, redacted},
};

/// The log of one plugin's process.
pub(super) struct MessageLog {
    plugin: Arc<str>,
    tenant: Arc<str>,
    instance: Arc<Instance>,
    rate: LineRate,
}

impl MessageLog {
    pub(super) fn new(plugin: Arc<str>, tenant: Arc<str>, instance: Arc<Instance>) -> Self {
        MessageLog { plugin, tenant, instance, rate: LineRate::default() }
    }

    pub(super) fn notification(&mut self, method: &str, params: &[u8]) -> Admission {
        let admission = self.admit();
        if admission.is_admitted() {
            let (plugin, tenant) = (&*self.plugin, &*self.tenant);
            let (method, params) = (self.text(method.as_bytes()), self.text(params));
            tracing::info!(plugin, tenant, method, params, "notification of the plugin");
        }
        admission
    }

    pub(super) fn noise(&mut self, line: &[u8]) {
        if self.admit().is_admitted() {
            let (plugin, tenant) = (&*self.plugin, &*self.tenant);
            tracing::warn!(plugin, tenant, stream = "stdout", "{}", self.text(line));
        }
    }

    pub(super) fn warning(&mut self, warning: &'static str) {
        if self.admit().is_admitted() {
            let (plugin, tenant) = (&*self.plugin, &*self.tenant);
            tracing::warn!(plugin, tenant, "{warning}");
        }
    }

    fn admit(&mut self) -> Admission {
        let (plugin, tenant) = (&*self.plugin, &*self.tenant);
        self.rate.admit(|dropped| {
            tracing::warn!(plugin, tenant, dropped, "messages of the plugin left out: too many in a second");
        })
    }

    fn text(&self, bytes: &[u8]) -> String {
        let end = bytes.len().min(MAX_LINE_BYTES as usize);
        redacted(&bytes[..end], end < bytes.len(), &self.instance.redaction)
    }
}
