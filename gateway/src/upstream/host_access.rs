//! What a plugin is told of the gateway's own services (`hookgate.host.v1`): where they are, and the tokens for them.

use std::{fmt, sync::Arc, time::Duration};

use crate::config::Config;

/// A call that a token is for.
#[derive(Debug, Clone, Copy)]
pub struct CallTokenRequest<'a> {
    pub plugin: &'a str,
    pub tenant: &'a str,
    /// The gateway's id of the invocation.
    pub request_id: &'a str,
    /// The plugin's capabilities, by name.
    pub capabilities: &'a [String],
    /// The time until the call's deadline.
    pub left: Duration,
}

/// The gateway's services, as plugins are told of them.
pub trait HostAccess: Send + Sync {
    /// The URL for a plugin that is on a Unix socket (`is_local`), or for another one. `None` if no listener is open.
    fn endpoint(&self, is_local: bool) -> Option<&str>;

    /// A token for the plugin outside of calls. Empty if none can be signed yet.
    fn plugin_token(&self, plugin: &str, capabilities: &[String]) -> String;

    /// A token for one call. Empty if none can be signed yet.
    fn call_token(&self, call: &CallTokenRequest<'_>) -> String;
}

const NO_LISTENER: &str = "plugins can't reach its services: set `server.host_addr` or `server.host_socket`";

/// What stands behind plugins' capabilities.
#[derive(Clone, Default)]
pub enum HostOffer {
    /// Nothing, but plugins may ask for them: a plugin is only tried.
    #[default]
    Untested,
    /// There is no database for plugins' data and for the keys of their tokens.
    NoStore,
    /// There is a database, and no listener for plugins that aren't built in.
    NoListener,
    Services(Arc<dyn HostAccess>),
}

impl fmt::Debug for HostOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HostOffer::Untested => "Untested",
            HostOffer::NoStore => "NoStore",
            HostOffer::NoListener => "NoListener",
            HostOffer::Services(_) => "Services",
        })
    }
}

impl HostOffer {
    /// What a gateway with this configuration would offer. Nothing is started.
    pub(crate) fn untested(config: &Config) -> Self {
        match (&config.store, config.server.host_addr, &config.server.host_socket) {
            (None, ..) => HostOffer::NoStore,
            (Some(_), None, None) => HostOffer::NoListener,
            (Some(_), ..) => HostOffer::Untested,
        }
    }

    /// The services, if the plugin has a capability for them. Each capability is for one.
    pub(super) fn services(&self, capabilities: &[String]) -> Option<&dyn HostAccess> {
        match self {
            HostOffer::Services(services) if !capabilities.is_empty() => Some(&**services),
            _ => None,
        }
    }

    /// What the configuration lacks for a plugin that wants any of them. `is_builtin` plugins need no listener.
    pub(super) fn lacks(&self, is_builtin: bool) -> Option<&'static str> {
        match self {
            HostOffer::Untested => None,
            HostOffer::NoStore => Some("the gateway has no database: set `store`"),
            HostOffer::NoListener if !is_builtin => Some(NO_LISTENER),
            HostOffer::Services(services) if !is_builtin && services.endpoint(true).is_none() => {
                Some(NO_LISTENER)
            }
            HostOffer::NoListener | HostOffer::Services(_) => None,
        }
    }
}
