//! A look at the plugins without a gateway: each is dialled, described, accepted, initialised, asked for its health and let
//! go of, by the same code that serves calls. Nothing is listened on.

use std::{future::pending, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::{
    app::{App, drain},
    config::{self, Config, Problem},
    control::readiness_gate::{self, of_registry},
    core::{manifest::Manifest, object::Owner, point::Point},
    routing::RouteTable,
    upstream::{EndpointStatus, PluginClient, Refusal, State, Why},
};

/// One plugin as it was found.
pub struct PluginReport {
    /// Its name.
    pub plugin: String,
    /// Who owns its entry.
    pub owner: Owner,
    /// Whether a start fails without it.
    pub required: bool,
    /// Whether a start, as the plugin is, would serve and not be ready for want of it
    /// (docs/decisions/0037-what-the-registry-requires.md).
    pub holds_readiness: bool,
    /// What it says it is, once that was accepted.
    pub manifest: Option<Arc<Manifest>>,
    /// Where it was looked for; at least one.
    pub places: Vec<EndpointReport>,
}

impl PluginReport {
    /// Whether calls would reach it.
    pub fn is_ready(&self) -> bool {
        self.places.iter().any(|place| place.why == Why::Serving)
    }
}

/// One address of a plugin, or the name that brought none.
pub struct EndpointReport {
    /// As status has it.
    pub address: String,
    /// What came of it.
    pub why: Why,
    /// One sentence; empty where there is nothing to say.
    pub detail: String,
    /// The version that it described itself with.
    pub version: Option<String>,
}

/// What the plugins are, and what is wrong with the configuration now that this is known.
pub struct ConnectReport {
    /// Every plugin, in the order of the configuration.
    pub plugins: Vec<PluginReport>,
    /// Bindings and config that plugins which were reached don't take.
    pub problems: Vec<Problem>,
}

impl App {
    /// Connects to every plugin that is switched on, waits until each is ready or it is known why not, until `enough` at
    /// most, and lets go of them. It ends there: nothing is served.
    pub async fn connect(self, enough: impl Future<Output = ()>) -> ConnectReport {
        self.ask(|_| true, enough).await
    }

    /// The same of the built-in plugins alone: they are in this process, so nothing is dialled.
    pub async fn ask_builtins(self) -> ConnectReport {
        self.ask(|plugin| plugin.builtin.is_some(), pending()).await
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
        // Whoever isn't known by then is told of as it stands.
        tokio::select! {
            () = all_known => {}
            () = enough => {}
        }
        let config = self.config();
        let plugins = config.plugins.iter().zip(self.first.clients()).map(|(plugin, client)| PluginReport {
            plugin: plugin.name.clone(),
            owner: plugin.owner,
            required: self.first.requires(&plugin.name) && !of_registry(config, plugin),
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

/// Whether all that can be known of a plugin at once is.
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
            // One miss takes nothing out of use, but there is no time for more of them.
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

/// What is wrong with the configuration, by what the plugins say they are.
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
    let of = |plugin: &str| {
        let index = config.plugins.iter().position(|known| known.name == plugin)?;
        manifests[index].as_deref().filter(|_| config.plugins[index].enabled)
    };
    for (index, binding) in config.bindings.iter().enumerate().filter(|(_, binding)| binding.enabled) {
        let Some(manifest) = of(&binding.plugin) else { continue };
        let offered = Point::ALL.into_iter().filter(|point| manifest.offers(*point).is_some());
        let offered = offered.map(|point| format!("`{point}`")).collect::<Vec<_>>().join(", ");
        for (at, point) in binding.points.iter().flatten().enumerate() {
            if manifest.offers(*point).is_none() {
                let message =
                    format!("plugin `{}` doesn't offer `{point}`: its step there would fail", binding.plugin);
                let remedy = format!("it offers {offered}: name some of these, or omit `points` for all");
                problems.push(Problem::new(format!("/bindings/{index}/points/{at}"), message).remedy(remedy));
            }
        }
    }
    problems
}
