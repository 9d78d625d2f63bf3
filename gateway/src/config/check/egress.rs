//! Checks of what plugins of the admin API may reach: names and directories. The schema checks networks.

use std::{net::IpAddr, path::Path};

use super::ConfigChecker;
use crate::config::problem::item;

impl ConfigChecker<'_> {
    pub(super) fn egress(&mut self) {
        if let Some(egress) = &self.draft.egress {
            for (index, name) in egress.names.iter().enumerate() {
                if let Some(fault) = name_fault(name) {
                    let remedy = "write a host's name such as `guard.example.com`, or `*.example.com` for all below it";
                    self.report(item("/egress/names", index), format!("`{name}` {fault}"), remedy);
                }
            }
            for (index, dir) in egress.socket_dirs.iter().enumerate() {
                self.directory(item("/egress/socket_dirs", index), dir);
            }
        }
        if let Some(secrets) = &self.draft.secrets {
            self.directory("/secrets/dir".to_owned(), &secrets.dir);
        }
    }

    fn directory(&mut self, pointer: String, dir: &Path) {
        if !dir.is_absolute() || dir.components().any(|part| part == std::path::Component::ParentDir) {
            let message = format!("`{}` is not a directory's path from the root", dir.display());
            self.report(pointer, message, "write it from the root and without `..`, such as `/run/plugins`");
        }
    }
}

/// What is wrong with a name in `egress.names`.
fn name_fault(name: &str) -> Option<&'static str> {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if name.parse::<IpAddr>().is_ok() {
        return Some("is an address: list it in `cidrs`");
    }
    let exact = name.strip_prefix("*.").unwrap_or(name);
    (!exact.split('.').all(is_label)).then_some("is not a host name")
}
