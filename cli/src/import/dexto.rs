//! `hookgate import dexto`: from a Dexto agent's file to a folder with the files of a gateway and a runner.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::Args;
use hookgate_proto::Capability;

use hookgate::{
    auth::is_tenant_id,
    config::{ForeignDocument, ObjectsFile, Problem, Problems, registered_endpoint_flaw, socket_flaw},
};

use super::{
    agent_file::AgentFile,
    plan::{ImportPlan, PlannedPlugin, PluginSource},
    references::below_agent_dir,
    report::{Finding, FindingKind, ImportReport, NextCommand, PluginRow},
    written_files::{
        AuthSection, BindingEntry, GatewayFile, PluginEntry, RunnerEntry, RunnerFile, ServerSection,
        StoreSection, TenantEntry, TenantSection, text,
    },
};
use crate::{
    Exit, keygen,
    output::{self, Output, printable},
    shell_quote,
    starter::{self, NewFile, StarterError},
};

const GITIGNORE: &str = include_str!("gitignore");
const GATEWAY_COMMENTS: &[&str] = &[
    "Every key, with its default: docs/configuration.md of Hookgate's repository.",
    "The issuer is for development: `hookgate token mint` signs with dev.key. In production replace `keys` by",
    "`jwks_url: https://...`, so that only your identity provider can sign.",
    "With `tenants: { unknown: accept }` every tenant of a valid token is served; `list` names the ones that may call.",
];
/// The tenant of the printed commands, if bindings apply to all.
const SOME_TENANT: &str = "acme";

#[derive(Debug, Args)]
pub(crate) struct ImportDextoArgs {
    /// The agent's file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The folder to write, created if missing.
    #[arg(long, value_name = "DIR", default_value = "gateway")]
    out_dir: PathBuf,
    /// The tenant for whom the plugins run. Default: all, and the gateway serves every tenant of a valid token.
    #[arg(long, value_name = "ID", value_parser = tenant_id)]
    tenant: Option<String>,
    /// The runner's address: `unix:///path` or `http://host:port`. Default: the socket `runner.sock` in the folder.
    #[arg(long, value_name = "ADDRESS", value_parser = runner_address)]
    listen: Option<String>,
    /// A capability that each plugin with a module gets: `storage:read`, `storage:write` or `log`. The agent's file
    /// doesn't tell which ones a plugin uses. Repeatable.
    #[arg(long = "grant", value_name = "CAPABILITY", value_parser = dexto_capability)]
    grants: Vec<Capability>,
    /// Leaves out a plugin: `contentPolicy`, `responseSanitizer`, or the name or type in the agent's file. Repeatable.
    #[arg(long = "skip", value_name = "NAME")]
    skipped: Vec<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

fn runner_address(text: &str) -> Result<String, String> {
    let is_plain = !text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '$');
    let flaw = match text.strip_prefix("unix://") {
        _ if !is_plain => Some("an address has no white space and no `$`".to_owned()),
        Some(path) => socket_flaw(path),
        None if text.starts_with("http://") => {
            registered_endpoint_flaw(text).map(|_| "the gateway can't call this address".to_owned())
        }
        None => Some("the runner listens at a Unix socket or over HTTP".to_owned()),
    };
    match flaw {
        None => Ok(text.to_owned()),
        Some(flaw) => Err(format!(
            "{flaw}: write `unix:///path` or `http://host:port`; for TLS change the written file"
        )),
    }
}

/// A tenant's id that can be written as it is: a `$` could begin a reference.
fn tenant_id(text: &str) -> Result<String, String> {
    if text == "*" {
        return Err("`*` is not a tenant id: without this option the plugins run for all tenants".to_owned());
    }
    if !is_tenant_id(text) || text.contains('$') {
        return Err("a tenant id has 1 to 256 bytes, no control characters and no `$`".to_owned());
    }
    Ok(text.to_owned())
}

fn dexto_capability(text: &str) -> Result<Capability, String> {
    let known = [Capability::StorageRead, Capability::StorageWrite, Capability::Log];
    known
        .into_iter()
        .find(|capability| capability.as_str() == text)
        .ok_or_else(|| "plugins of Dexto can use `storage:read`, `storage:write` and `log`".to_owned())
}

pub(super) fn run(args: &ImportDextoArgs) -> Exit {
    match import(args) {
        Ok(report) => output::data(args.output, &report, || report.table(), Exit::ok()),
        Err(exit) => exit,
    }
}

fn import(args: &ImportDextoArgs) -> Result<ImportReport, Exit> {
    let (file, document) =
        ForeignDocument::load::<AgentFile>(&args.file).map_err(|wrong| Exit::problems(&wrong))?;
    let plan = ImportPlan::new(&file, &args.skipped);
    if let Some(name) = plan.unknown_skips().next() {
        return Err(Exit::usage(format!("--skip {}: the file has no such plugin", printable(name))));
    }
    if !plan.problems.is_empty() {
        return Err(Exit::problems(&document.render(&plan.problems)));
    }
    if plan.plugins.is_empty() {
        let nothing = Problem::new("/plugins", "no plugin is left to import");
        return Err(Exit::problems(&document.render(&[nothing])));
    }
    let folder = ImportFolder::new(args)?;
    let files = folder.write(&plan)?;
    let mut report = folder.report(plan, files);
    report.locate(&document);
    Ok(report)
}

/// The folder to write, and what its files refer to.
struct ImportFolder<'a> {
    args: &'a ImportDextoArgs,
    /// The absolute path.
    path: PathBuf,
    /// What `${{dexto.agent_dir}}` stands for.
    agent_dir: PathBuf,
    listen: String,
}

impl<'a> ImportFolder<'a> {
    fn new(args: &'a ImportDextoArgs) -> Result<Self, Exit> {
        let path = starter::nameable(&args.out_dir).map_err(Exit::failure)?;
        let agent_dir = agent_dir(&args.file).map_err(|error| {
            Exit::failure(format!("{}: {error}", printable(&args.file.display().to_string())))
        })?;
        let own = path.join("runner.sock").display().to_string();
        let remedy = "give a shorter path with --out-dir";
        if let Some(flaw) = socket_flaw(&own).filter(|_| args.listen.is_none() || !args.grants.is_empty()) {
            return Err(Exit::usage(format!("{}: {flaw}: {remedy}", printable(&own))));
        }
        let listen = args.listen.clone().unwrap_or_else(|| format!("unix://{own}"));
        Ok(ImportFolder { args, path, agent_dir, listen })
    }

    /// Writes all files or none, and returns their paths as given on the command line.
    fn write(&self, plan: &ImportPlan) -> Result<Vec<String>, Exit> {
        let (gateway, runner) = (self.gateway_text(plan)?, self.runner_text(plan)?);
        let key = keygen::random().map_err(Exit::failure)?;
        let mut files =
            vec![NewFile::new(".gitignore", GITIGNORE), NewFile { name: "dev.key", mode: 0o600, text: &key }];
        if let Some(text) = &runner {
            files.push(NewFile::new("runner.yaml", text));
        }
        // Only for its owner: a plugin's config may hold secrets in clear. It comes last, so that it exists only if the
        // others do.
        files.push(NewFile { name: "hookgate.yaml", mode: 0o600, text: &gateway });
        let there = starter::existing(&self.path, &files);
        if !there.is_empty() {
            return Err(self.taken(&there));
        }
        starter::write(&self.path, &files).map_err(|error| match error {
            StarterError::Taken(name) => self.taken(&[&name]),
            StarterError::System(error) => Exit::failure(starter::unwritable(&self.args.out_dir, &error)),
        })?;
        Ok(files.iter().map(|file| self.args.out_dir.join(file.name).display().to_string()).collect())
    }

    fn taken(&self, names: &[&str]) -> Exit {
        let paths = names.iter().map(|name| printable(&self.args.out_dir.join(name).display().to_string()));
        let (paths, exist) =
            (paths.collect::<Vec<_>>().join(", "), if names.len() == 1 { "exists" } else { "exist" });
        Exit::failure(format!(
            "nothing was written, because {paths} already {exist}: give another folder with --out-dir"
        ))
    }

    fn comments(&self, lines: &[&str]) -> Vec<String> {
        let agent = printable(&self.args.file.display().to_string());
        let first = format!("Written by `hookgate import dexto` from {agent}.");
        std::iter::once(first).chain(lines.iter().map(|line| (*line).to_owned())).collect()
    }

    /// The gateway's file, after the gateway's own reader has accepted its plugins and bindings.
    fn gateway_text(&self, plan: &ImportPlan) -> Result<String, Exit> {
        let text = text(&self.comments(GATEWAY_COMMENTS), &self.gateway_file(plan)).map_err(Exit::failure)?;
        let read = ObjectsFile::read(
            "hookgate.yaml, as the import would write it".to_owned(),
            &text,
            &no_variables(),
        );
        read.map_err(|wrong: Problems| Exit::problems(&wrong))?;
        Ok(text)
    }

    fn gateway_file(&self, plan: &ImportPlan) -> GatewayFile {
        let below = |name: &str| self.path.join(name).display().to_string();
        let has_host = !self.args.grants.is_empty() && plan.plugins.iter().any(is_module);
        let tenants = match &self.args.tenant {
            Some(id) => TenantSection::List([TenantEntry { id: id.clone() }]),
            None => TenantSection::Unknown("accept"),
        };
        let mut bindings: Vec<_> = plan.plugins.iter().map(|plugin| self.binding(plugin)).collect();
        bindings.sort_by_key(|binding| binding.priority);
        GatewayFile {
            server: has_host.then(|| ServerSection { host_socket: below("host.sock") }),
            store: has_host.then(|| StoreSection {
                url: format!("sqlite:{}", below("hookgate.db")),
                last_good: below("hookgate.last-good.json"),
            }),
            auth: AuthSection::with_key_file(&below("dev.key")),
            tenants,
            plugins: plan.plugins.iter().map(|plugin| self.plugin(plugin)).collect(),
            bindings,
        }
    }

    fn plugin(&self, plugin: &PlannedPlugin) -> PluginEntry {
        let entry = PluginEntry {
            name: plugin.name.clone(),
            enabled: (!plugin.enabled).then_some(false),
            config: plugin.config.clone(),
            ..PluginEntry::default()
        };
        match plugin.source {
            PluginSource::Builtin(name) => PluginEntry { builtin: Some(name), ..entry },
            PluginSource::Module(_) => PluginEntry {
                endpoint: Some(self.listen.clone()),
                // Dexto doesn't start without its plugins, blocking or not.
                required: plugin.enabled.then_some(true),
                grants: self.args.grants.clone(),
                ..entry
            },
        }
    }

    fn binding(&self, plugin: &PlannedPlugin) -> BindingEntry {
        BindingEntry {
            plugin: plugin.name.clone(),
            tenant: self.args.tenant.clone().unwrap_or_else(|| "*".to_owned()),
            priority: plugin.priority,
            blocking: plugin.blocking,
        }
    }

    /// The runner's file; `None` if no plugin has a module.
    fn runner_text(&self, plan: &ImportPlan) -> Result<Option<String>, Exit> {
        let entry = |plugin: &PlannedPlugin| match &plugin.source {
            PluginSource::Builtin(_) => None,
            PluginSource::Module(module) => Some(RunnerEntry {
                dialect: "dexto",
                module: module.clone(),
                name: plugin.name.clone(),
                enabled: (!plugin.enabled).then_some(false),
                capabilities: self.args.grants.clone(),
            }),
        };
        let plugins: Vec<_> = plan.plugins.iter().filter_map(entry).collect();
        if plugins.is_empty() {
            return Ok(None);
        }
        let comments = self.comments(&["Every key: docs/javascript-plugins.md of Hookgate's repository."]);
        let content = RunnerFile { agent_dir: self.agent_dir.display().to_string(), plugins };
        text(&comments, &content).map(Some).map_err(Exit::failure)
    }

    fn report(&self, plan: ImportPlan, files: Vec<String>) -> ImportReport {
        let next = self.next(&plan);
        let mut findings = plan.findings;
        if plan.plugins.iter().any(is_module) {
            findings.push(Finding::new(
                FindingKind::Different,
                "/plugins/custom",
                "plugins get no managers and caches of Dexto, each tenant has stored data of its own, and Dexto's stored \
                 data stays behind",
                "read the section Dexto of docs/javascript-plugins.md",
            ));
            findings.push(Finding::new(
                FindingKind::Different,
                "/plugins/custom",
                "of several images or files, Dexto gives a plugin the first; the runner refuses such a call",
                "set `first_medium_only: true` in runner.yaml for each plugin that needs only the first",
            ));
        }
        for plugin in plan.plugins.iter().filter(|plugin| plugin.enabled) {
            findings.extend(self.module_findings(plugin));
        }
        findings.push(Finding::new(
            FindingKind::ToCheck,
            "/plugins",
            "Dexto still runs these plugins itself",
            "remove `plugins` from the agent's file when the agent calls the gateway",
        ));
        let row = |plugin: PlannedPlugin| PluginRow {
            runs: if is_module(&plugin) { "in the runner" } else { "in the gateway" },
            name: plugin.name,
            pointer: plugin.pointer,
            priority: plugin.priority,
            blocking: plugin.blocking,
            enabled: plugin.enabled,
        };
        ImportReport {
            source: self.args.file.display().to_string(),
            files,
            plugins: plan.plugins.into_iter().map(row).collect(),
            findings,
            variables: plan.variables.into_iter().collect(),
            next,
        }
    }

    /// What the agent's file doesn't tell about a plugin with a module.
    fn module_findings(&self, plugin: &PlannedPlugin) -> Vec<Finding> {
        let PluginSource::Module(module) = &plugin.source else { return Vec::new() };
        let check = |pointer: String, message: String, remedy: &str| {
            Finding::new(FindingKind::ToCheck, pointer, message, remedy)
        };
        let mut findings = Vec::new();
        if self.args.grants.is_empty() {
            let message = format!(
                "`{}` gets no capability: `agent.storage` throws an error, and `logger` writes to the runner's stderr",
                plugin.name
            );
            let remedy = "if it uses them, import into another folder with `--grant storage:read --grant \
                          storage:write --grant log`";
            findings.push(check(plugin.pointer.clone(), message, remedy));
        }
        let path = match below_agent_dir(module) {
            Some(below) => PathBuf::from(format!("{}{below}", self.agent_dir.display())),
            None => PathBuf::from(module),
        };
        if !path.is_file() {
            let message = format!("there is no file {}", path.display());
            let remedy = "put the module there before you start the runner";
            findings.push(check(format!("{}/module", plugin.pointer), message, remedy));
        }
        findings
    }

    /// The next commands.
    fn next(&self, plan: &ImportPlan) -> Vec<NextCommand> {
        let hookgate = shell_quote::program();
        let below = |name: &str| shell_quote::quoted(&self.args.out_dir.join(name));
        let file = below("hookgate.yaml");
        let mut next = Vec::new();
        if plan.plugins.iter().any(|plugin| is_module(plugin) && plugin.enabled) {
            let listen = shell_quote::quoted(Path::new(&self.listen));
            next.push(NextCommand {
                purpose: "Start the runner, where @hookgate/runner is installed",
                command: format!(
                    "node_modules/.bin/hookgate-runner {} --listen {listen}",
                    below("runner.yaml")
                ),
            });
        }
        next.push(NextCommand {
            purpose: "Check the gateway's file, also against the plugins",
            command: format!("{hookgate} config check {file} --connect"),
        });
        next.push(NextCommand {
            purpose: "Start the gateway",
            command: format!("{hookgate} serve --config {file}"),
        });
        let tenant = self.args.tenant.as_deref().unwrap_or(SOME_TENANT);
        let tenant = shell_quote::quoted(Path::new(tenant));
        next.push(NextCommand {
            purpose: "Call it as an agent does",
            command: format!(
                "HOOKGATE_TOKEN=$({hookgate} token mint --config {file} --tenant {tenant}) {hookgate} call \
                 before_llm_request --text hello"
            ),
        });
        next
    }
}

fn is_module(plugin: &PlannedPlugin) -> bool {
    matches!(plugin.source, PluginSource::Module(_))
}

/// The folder of the path as given: if the file is a link, Dexto doesn't take the folder of its target.
fn agent_dir(file: &Path) -> io::Result<PathBuf> {
    let file = std::path::absolute(file)?;
    starter::resolved(file.parent().unwrap_or(Path::new("/")))
}

/// References in a plugin's `config` stay references. No other text of the plugins, bindings and tenants has a `$`:
/// names, addresses, folders and tenant ids with one are refused before.
fn no_variables() -> std::collections::BTreeMap<String, String> {
    std::collections::BTreeMap::new()
}
