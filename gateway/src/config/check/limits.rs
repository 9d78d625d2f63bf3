//! Checks of ranges of durations and sizes, and of listening addresses.

use std::time::Duration;

use super::{ConfigChecker, socket_flaw};
use crate::{
    config::{
        plugin::{Breaker, Health, PluginLimits},
        server::Server,
        units::{Size, Span},
    },
    json::pointer::child,
};

pub(super) const fn ms(millis: u64) -> Span {
    Span(Duration::from_millis(millis))
}

/// Range of a step's timeout and of the budget.
pub(super) const STEP_TIMEOUT_RANGE: (Span, Span) = (ms(10), ms(60_000));
/// The longest time to wait for anything.
pub(super) const HOUR: Span = ms(3_600_000);
const MIB: u64 = 1 << 20;

impl ConfigChecker<'_> {
    pub(super) fn limits(&mut self) {
        if let Some(limits) = &self.draft.limits {
            self.size("/limits/request", limits.request, 16 * MIB);
            self.size("/limits/bytes_in_flight", limits.bytes_in_flight, MIB * MIB);
            self.size("/limits/notice_bytes", limits.notice_bytes, 16 * MIB);
            self.size("/limits/details_bytes", limits.details_bytes, 16 * MIB);
            self.size("/limits/storage_bytes", limits.storage_bytes, MIB * MIB);
            self.span("/limits/budget", limits.budget, STEP_TIMEOUT_RANGE);
            if limits.bytes_in_flight < limits.request {
                self.report(
                    "/limits/bytes_in_flight",
                    format!(
                        "`bytes_in_flight` is below `request` ({}), so that no request of that size fits",
                        limits.request
                    ),
                    "raise it, or lower `limits.request`",
                );
            }
        }
        if let Some(drain) = &self.draft.drain {
            self.span("/drain/grace", drain.grace, (ms(0), HOUR));
            self.span("/drain/finish", drain.finish, (ms(0), HOUR));
        }
        if let Some(observers) = &self.draft.observers {
            self.size("/observers/bytes", observers.bytes, MIB * MIB);
        }
        if let Some(startup) = &self.draft.startup {
            self.span("/startup/wait", startup.wait, (ms(0), HOUR));
        }
        if let Some(server) = &self.draft.server {
            self.addresses(server);
            if let Some(flaw) =
                server.admin_socket.as_ref().and_then(|path| socket_flaw(&path.to_string_lossy()))
            {
                self.report("/server/admin_socket", flaw, "write it as /run/hookgate/admin.sock");
            }
            self.host(server);
        }
    }

    /// Checks that no two open ports have the same address.
    fn addresses(&mut self, server: &Server) {
        let issuers = self.draft.issuers.iter().filter_map(|item| item.value.as_ref());
        let admin = issuers.into_iter().any(|issuer| issuer.admin_audience.is_some());
        let opens = [
            (true, "data_addr", server.data_addr),
            (true, "ops_addr", server.ops_addr),
            (admin, "admin_addr", server.admin_addr),
        ];
        let host = server.host_addr.map(|address| (true, "host_addr", address));
        let opens: Vec<_> = opens
            .into_iter()
            .chain(host)
            .filter(|(opens, _, address)| *opens && address.port() != 0)
            .collect();
        for (index, (_, key, address)) in opens.iter().enumerate() {
            if let Some((_, other, _)) = opens[..index].iter().find(|(_, _, other)| other == address) {
                self.report(
                    format!("/server/{key}"),
                    format!("`{key}` is the same address as `{other}`"),
                    "use different ports",
                );
            }
        }
    }

    pub(super) fn plugin_limits(&mut self, pointer: &str, limits: &PluginLimits) {
        self.span(&child(pointer, "timeout"), limits.timeout, STEP_TIMEOUT_RANGE);
        self.span(&child(pointer, "connect"), limits.connect, (ms(1), ms(60_000)));
        self.span(&child(pointer, "initialize"), limits.initialize, (ms(1), ms(120_000)));
        self.span(&child(pointer, "shutdown"), limits.shutdown, (ms(1), ms(30_000)));
        if let Some(wait) = limits.queue_wait {
            self.span(&child(pointer, "queue_wait"), wait, (ms(0), ms(60_000)));
        }
    }

    pub(super) fn breaker(&mut self, pointer: &str, breaker: &Breaker) {
        self.span(&child(pointer, "open"), breaker.open, (ms(1), HOUR));
        self.span(&child(pointer, "max_open"), breaker.max_open, (breaker.open.min(HOUR), HOUR));
    }

    pub(super) fn health(&mut self, pointer: &str, health: &Health) {
        self.span(&child(pointer, "interval"), health.interval, (ms(10), HOUR));
        self.span(&child(pointer, "timeout"), health.timeout, (ms(1), ms(60_000)));
    }

    pub(super) fn span(&mut self, pointer: &str, span: Span, (least, most): (Span, Span)) {
        if !(least..=most).contains(&span) {
            let key = pointer.rsplit('/').next().unwrap_or_default();
            self.report(
                pointer,
                format!("`{key}` is out of range"),
                format!("write a duration from {least} to {most}"),
            );
        }
    }

    pub(super) fn size(&mut self, pointer: &str, size: Size, most: u64) {
        if !(1..=most).contains(&size.0) {
            let key = pointer.rsplit('/').next().unwrap_or_default();
            self.report(
                pointer,
                format!("`{key}` is out of range"),
                format!("write a size from 1B to {}", Size(most)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::fixtures::rest;

    #[test]
    fn the_admin_socket_is_written_from_the_root_and_fits_into_an_address() {
        let from_the_root = "the path of a Unix socket must be absolute";
        let long = format!("/{}", "x".repeat(107));
        for (path, wrong) in [
            ("admin.sock", from_the_root),
            ("/run/", from_the_root),
            (&long, "the path of a Unix socket has at most 107 bytes"),
        ] {
            let text = format!("server: {{ admin_socket: {path} }}\n");
            rest(&text, 2, wrong, "write it as /run/hookgate/admin.sock");
        }
    }
}
