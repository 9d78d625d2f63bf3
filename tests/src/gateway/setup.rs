//! Builds a gateway's configuration.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{Gateway, ProcessExit, binary, process::Process};
use crate::{
    fake::FakePlugin,
    token::{ADMIN_AUDIENCE, AUDIENCE, ISSUER, SECRET},
};

pub(super) const FILE: &str = "hookgate.yaml";

/// A gateway that is not started yet. It accepts the tokens of [`crate::token`] for every tenant, listens
/// on free ports, logs JSON, and stops without a grace period. Tenants, plugins and bindings are added.
#[derive(Debug, Clone)]
#[must_use = "a gateway does nothing before it is started"]
pub struct Setup {
    config: Config,
    environment: Vec<(String, String)>,
    /// A program with arguments that becomes the gateway; empty to start it directly.
    launcher: Vec<String>,
}

#[derive(Debug, Clone)]
enum Config {
    Built(Value),
    Written(String),
}

impl Setup {
    pub(super) fn new() -> Self {
        let issuer = json!({
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "keys": [{ "alg": "HS256", "secret": SECRET }],
            "tenants": "*",
        });
        let config = json!({
            "server": { "data_addr": "127.0.0.1:0", "ops_addr": "127.0.0.1:0" },
            "auth": { "issuers": [issuer] },
            "tenants": { "list": [] },
            "plugins": [],
            "bindings": [],
            "drain": { "grace": "0ms", "finish": "5s" },
            "log": { "format": "json", "level": "info" },
        });
        Setup { config: Config::Built(config), environment: Vec::new(), launcher: Vec::new() }
    }

    /// Uses this configuration file instead. It must set the addresses to port 0 and the log to JSON, so
    /// that the ports can be found.
    pub fn file(text: &str) -> Self {
        Setup { config: Config::Written(text.into()), environment: Vec::new(), launcher: Vec::new() }
    }

    /// Adds a tenant with nothing but its id.
    pub fn tenant(self, id: &str) -> Self {
        self.tenant_with(id, &json!({}))
    }

    /// Adds a tenant with these members besides its `id`.
    pub fn tenant_with(self, id: &str, members: &Value) -> Self {
        self.push("/tenants/list", &json!({ "id": id }), members)
    }

    /// Adds a plugin at the fake's endpoint, with the fake's name.
    pub fn plugin(self, plugin: &FakePlugin) -> Self {
        self.plugin_with(plugin, &json!({}))
    }

    /// Like [`Self::plugin`], with these members besides; null removes one.
    pub fn plugin_with(self, plugin: &FakePlugin, members: &Value) -> Self {
        let mut entry = json!({ "name": plugin.name(), "endpoint": plugin.endpoint() });
        if let Some(ca) = plugin.ca() {
            entry["tls"] = json!({ "ca_file": ca.file() });
        }
        self.push("/plugins", &entry, members)
    }

    /// Like [`Self::plugin`], but its breaker never opens.
    pub fn plugin_without_breaker(self, plugin: &FakePlugin) -> Self {
        self.plugin_with(plugin, &json!({ "breaker": { "failures": 1_000_000 } }))
    }

    /// Adds a built-in plugin with its own name and this config.
    pub fn builtin(self, name: &str, config: &Value) -> Self {
        self.push("/plugins", &json!({ "name": name, "builtin": name, "config": config }), &json!({}))
    }

    /// Adds a blocking binding for all tenants.
    pub fn binding(self, plugin: &str, priority: i64) -> Self {
        self.binding_with(plugin, priority, &json!({}))
    }

    /// Adds a binding with these members besides. It is for all tenants unless they name a tenant or a
    /// selector.
    pub fn binding_with(self, plugin: &str, priority: i64, members: &Value) -> Self {
        let mut entry = json!({ "plugin": plugin, "priority": priority });
        if members.get("tenant").is_none() && members.get("selector").is_none() {
            entry["tenant"] = json!("*");
        }
        self.push("/bindings", &entry, members)
    }

    /// Sets the member at a JSON pointer, and creates the objects on the way.
    pub fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let mut place = self.built();
        for name in pointer.split('/').skip(1) {
            if place.is_null() {
                *place = Value::Object(Map::new());
            }
            place = match place {
                Value::Array(list) => {
                    let index: usize = name.parse().expect("the pointer goes into a list by number");
                    &mut list[index]
                }
                other => &mut other[name],
            };
        }
        *place = value.into();
        self
    }

    /// Sets an environment variable of the gateway.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts it by this program, which gets the gateway's command as its last arguments and becomes the
    /// gateway.
    pub fn launched_by(mut self, program: &[&str]) -> Self {
        self.launcher = program.iter().map(|&part| part.to_owned()).collect();
        self
    }

    /// Stores plugins, tenants and bindings in the database at `url`, and the last good table in `folder`.
    pub fn store(self, url: &str, folder: &Path) -> Self {
        let last_good = folder.join("last-good.json").display().to_string();
        self.set("/store/url", url).set("/store/last_good", last_good)
    }

    /// Opens the admin port to the issuer's tokens with any scope.
    pub fn admin(self) -> Self {
        let scopes = ["invoke", "read", "admin", "plugin"].map(|scope| format!("hookgate:{scope}"));
        self.set("/server/admin_addr", "127.0.0.1:0")
            .set("/auth/issuers/0/admin_audience", ADMIN_AUDIENCE)
            .set("/auth/issuers/0/scopes", scopes.to_vec())
    }

    /// Starts it and waits until it is ready.
    pub async fn start(self) -> Gateway {
        let gateway = self.start_unready().await;
        gateway.wait_until_ready().await;
        gateway
    }

    /// Starts it and waits until it listens.
    pub async fn start_unready(self) -> Gateway {
        let (process, directory) = self.run().await;
        Gateway::listening(process, directory).await
    }

    /// Runs it until it exits, for configurations that it rejects.
    pub async fn run_to_the_end(self) -> ProcessExit {
        let (process, _directory) = self.run().await;
        process.exited().await
    }

    async fn run(self) -> (Process, TempDir) {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = directory.path().join(FILE);
        fs::write(&file, self.text()).expect("the directory is ours to write");
        let run = move || Process::spawn(command(file, self.environment, &self.launcher));
        let process = tokio::task::spawn_blocking(run).await;
        (process.expect("starting does not panic"), directory)
    }

    /// The file's text; every JSON document is a YAML document.
    pub fn text(&self) -> String {
        match &self.config {
            Config::Built(config) => {
                let mut config = config.clone();
                let tenants = &mut config["tenants"];
                // A file without any served tenant is rejected.
                if tenants["list"] == json!([]) && tenants.get("unknown").is_none() {
                    tenants["unknown"] = json!("accept");
                }
                format!("{config:#}")
            }
            Config::Written(text) => text.clone(),
        }
    }

    fn built(&mut self) -> &mut Value {
        match &mut self.config {
            Config::Built(config) => config,
            Config::Written(_) => panic!("a written file is not changed, write it as it should be"),
        }
    }

    fn push(mut self, list: &str, entry: &Value, members: &Value) -> Self {
        let mut entry = entry.clone();
        let members = members.as_object().expect("further members are an object");
        for (name, value) in members {
            entry[name] = value.clone();
        }
        entry.as_object_mut().expect("an entry is an object").retain(|_, value| !value.is_null());
        let list = self.built().pointer_mut(list).and_then(Value::as_array_mut);
        list.expect("the list is built in").push(entry);
        self
    }
}

fn command(file: PathBuf, environment: Vec<(String, String)>, launcher: &[String]) -> Command {
    let mut command = match launcher {
        [] => Command::new(binary::path()),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(binary::path());
            command
        }
    };
    command.args(["serve", "--config"]).arg(file).envs(environment);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_stands_in_the_file() {
        let setup = Setup::new()
            .tenant_with("acme", &json!({ "labels": { "plan": "pro" } }))
            .builtin("content-policy", &json!({ "redact_emails": true }))
            .binding("content-policy", 10)
            .binding_with("content-policy", 20, &json!({ "selector": { "plan": "pro" }, "name": "second" }))
            .set("/limits/budget", "1s")
            .set("/plugins/0/required", false);
        let file: Value = serde_json::from_str(&setup.text()).expect("it is JSON");
        assert_eq!(file["tenants"]["list"], json!([{ "id": "acme", "labels": { "plan": "pro" } }]));
        assert_eq!(file["plugins"][0]["required"], json!(false));
        assert_eq!(
            file["bindings"],
            json!([
                { "plugin": "content-policy", "priority": 10, "tenant": "*" },
                { "plugin": "content-policy", "priority": 20, "selector": { "plan": "pro" }, "name": "second" },
            ])
        );
        assert_eq!(file["limits"], json!({ "budget": "1s" }));
    }
}
