//! Checks the plugins without serving: each is connected, described, accepted, initialised, health-checked
//! and shut down by the code that serves calls. No port is opened.

use std::{future::pending, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::{
    app::{App, drain},
    config::{self, Config, Problem},
    control::readiness_gate::{self, is_from_registry},
    core::{manifest::Manifest, object::Owner},
    routing::{RouteTable, UnofferedSite, unoffered_sites},
    upstream::{EndpointStatus, PluginClient, Refusal, State, Why},
};

/// The result for one plugin.
pub struct PluginReport {
    pub plugin: String,
    pub owner: Owner,
    /// Whether a start fails without it.
    pub required: bool,
    /// Whether a start would serve but stay not ready because of this plugin's state
    /// (docs/decisions/0037-what-the-registry-requires.md).
    pub holds_readiness: bool,
    /// Its manifest, once accepted.
    pub manifest: Option<Arc<Manifest>>,
    /// Its endpoints; at least one.
    pub places: Vec<EndpointReport>,
}

impl PluginReport {
    /// Whether calls would reach the plugin.
    pub fn is_ready(&self) -> bool {
        self.places.iter().any(|place| place.why == Why::Serving)
    }
}

/// One endpoint of a plugin, or a host name that resolved to no address.
pub struct EndpointReport {
    /// In the form that status uses.
    pub address: String,
    pub why: Why,
    /// One sentence, or empty.
    pub detail: String,
    /// The version in its manifest.
    pub version: Option<String>,
}

/// The plugins, and the problems that their manifests reveal in the configuration.
pub struct ConnectReport {
    /// In the order of the configuration.
    pub plugins: Vec<PluginReport>,
    /// Bindings and config that connected plugins don't accept.
    pub problems: Vec<Problem>,
}

impl App {
    /// Connects to every enabled plugin and waits until each is ready or has failed, but at most until
    /// `enough`. Then shuts them down.
    pub async fn connect(self, enough: impl Future<Output = ()>) -> ConnectReport {
        self.ask(|_| true, enough).await
    }

    /// Like [`Self::connect`], for the built-in plugins only, which run in this process.
    pub async fn ask_builtins(self) -> ConnectReport {
        let mut report = self.ask(|plugin| plugin.builtin.is_some(), pending()).await;
        report.problems.extend(refused_builtins(&report.plugins));
        report
    }

    async fn ask(
        self,
        whom: impl Fn(&config::Plugin) -> bool,
        enough: impl Future<Output = ()>,
    ) -> ConnectReport {
        let ended = CancellationToken::new();
        let of_plugins = self.config().plugins.iter().zip(self.first.clients());
        let asked: Vec<_> =
            of_plugins.filter(|(plugin, _)| whom(plugin)).map(|(_, client)| Arc::clone(client)).collect();
        asked.iter().for_each(|client| client.start(ended.clone()));
        let mut changes = self.workshop.shared.changes();
        let all_known = async {
            loop {
                changes.mark_unchanged();
                if asked.iter().all(|client| is_known(client)) || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        // Report the others with their current state.
        tokio::select! {
            () = all_known => {}
            () = enough => {}
        }
        let config = self.config();
        let plugins = config.plugins.iter().zip(self.first.clients()).map(|(plugin, client)| PluginReport {
            plugin: plugin.name.clone(),
            owner: plugin.owner,
            required: self.first.requires(&plugin.name) && !is_from_registry(config, plugin),
            holds_readiness: readiness_gate::holds_readiness(&self.first, plugin, client),
            manifest: client.status().manifest,
            places: places(client),
        });
        let plugins: Vec<_> = plugins.collect();
        let problems = problems(config, &plugins);
        drain::let_go(&self.first).await;
        ended.cancel();
        ConnectReport { plugins, problems }
    }
}

/// Whether the plugin's state won't change soon.
fn is_known(client: &PluginClient) -> bool {
    let is_settled = |endpoint: &EndpointStatus| match endpoint.state {
        State::Connecting => false,
        State::Ready => endpoint.health_answered.is_some(),
        State::Disabled | State::Pending | State::Unhealthy | State::Refused | State::Draining => true,
    };
    let names = client.names();
    names.iter().all(|name| name.trouble.is_some() || name.is_known)
        && client.endpoints().iter().all(is_settled)
}

fn places(client: &PluginClient) -> Vec<EndpointReport> {
    let endpoints = client.endpoints().into_iter().map(|endpoint| {
        let (why, detail) = match (endpoint.why, endpoint.health_answered) {
            // While serving, one missed health check ejects no endpoint, but here there is no time for a
            // second one.
            (Why::Serving, Some(false)) => {
                (Why::HealthUnanswered, "its health check was not answered".to_owned())
            }
            (Why::Serving, None) => {
                (Why::HealthUnanswered, "its health check has not been answered yet".to_owned())
            }
            (why, _) => (why, endpoint.detail),
        };
        let version = endpoint.version.map(|version| version.to_string());
        EndpointReport { address: endpoint.address, why, detail, version }
    });
    let names = client.names().into_iter().filter_map(|name| {
        let (why, detail) = match name.trouble {
            Some(trouble) => trouble,
            None if name.is_known => return None,
            None => (Why::NotDialled, "the name was not looked up in time".to_owned()),
        };
        Some(EndpointReport { address: name.address, why, detail, version: None })
    });
    endpoints.chain(names).collect()
}

/// The built-in plugins that a start refuses for another reason than their `config`, such as a missing `store`.
fn refused_builtins(plugins: &[PluginReport]) -> Vec<Problem> {
    let refused = plugins.iter().enumerate().filter_map(|(index, found)| {
        let is_refusal = |why| matches!(why, Why::Refused(refusal) if refusal != Refusal::ConfigRefused);
        let place = found.places.iter().find(|place| is_refusal(place.why))?;
        let message = format!("plugin `{}`: {}", found.plugin, place.detail);
        Some(Problem::new(format!("/plugins/{index}/builtin"), message))
    });
    refused.collect()
}

/// The problems that the manifests reveal in the configuration.
fn problems(config: &Config, plugins: &[PluginReport]) -> Vec<Problem> {
    let manifests: Vec<_> = plugins.iter().map(|found| found.manifest.clone()).collect();
    let mut problems = match RouteTable::build(config, &manifests, 0) {
        Ok(table) => table.config_problems().to_vec(),
        Err(problems) => problems,
    };
    for (index, found) in plugins.iter().enumerate() {
        let mut places = found.places.iter();
        if let Some(place) = places.find(|place| place.why == Why::Refused(Refusal::ConfigRefused)) {
            let message = format!("plugin `{}`: {}", found.plugin, place.detail);
            problems.push(Problem::new(format!("/plugins/{index}/config"), message));
        }
    }
    problems.extend(unoffered_sites(config, &manifests).iter().map(UnofferedSite::problem));
    problems
}
