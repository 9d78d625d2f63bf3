//! The processes of a run: the gateways, the plugins, the floor, the bare path and Envoy, each its own process.
//! All are started before the first round and stay until the end, so that rounds can alternate between them.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    BenchError,
    caller::Target,
    certificates::CertificateFiles,
    envoy_process::EnvoyProcess,
    gateway_config::{self, POINTS, PluginAddress},
    gateway_process::GatewayProcess,
    litellm_process::LiteLlmProcess,
    payload::{Payload, TENANT},
    plugins::{ECHO_NAMES, PATCH_NAME, WAIT_NAMES, WINDOWS_NAME},
    process::RoleProcess,
    scenario::{GatewaySetup, Scenario, Subject},
};

/// The programs that are measured and that aren't this binary.
pub(crate) struct Binaries {
    pub(crate) gateway: PathBuf,
    /// Needed only for scenarios of Envoy.
    pub(crate) envoy: Option<PathBuf>,
    /// Needed only for scenarios of LiteLLM.
    pub(crate) litellm: Option<PathBuf>,
}

/// Every process that the scenarios need.
pub(crate) struct Rig {
    binaries: Binaries,
    directory: TempDir,
    tenants: usize,
    certificates: CertificateFiles,
    /// By name, those over TCP.
    plugins: HashMap<&'static str, RoleProcess>,
    tls_plugin: Option<RoleProcess>,
    /// By name, those on Unix sockets.
    unix_plugins: HashMap<&'static str, RoleProcess>,
    raw: Option<RoleProcess>,
    bare: HashMap<usize, RoleProcess>,
    gateways: HashMap<GatewaySetup, GatewayProcess>,
    /// The plugins of Envoy.
    ext_procs: Vec<RoleProcess>,
    envoys: HashMap<usize, EnvoyProcess>,
    llm_provider: Option<RoleProcess>,
    llm_floor: Option<RoleProcess>,
    litellm: Option<LiteLlmProcess>,
}

impl Rig {
    /// Starts what `scenarios` need. `tenants` is how many tenants the setup with many of them has.
    pub(crate) fn start(
        binaries: Binaries,
        tenants: usize,
        scenarios: &[Scenario],
    ) -> Result<Self, BenchError> {
        let directory = tempfile::Builder::new().prefix("hookgate-bench-").tempdir()?;
        let certificates = CertificateFiles::create(directory.path())?;
        let mut rig = Rig {
            binaries,
            directory,
            tenants,
            certificates,
            plugins: HashMap::new(),
            tls_plugin: None,
            unix_plugins: HashMap::new(),
            raw: None,
            bare: HashMap::new(),
            gateways: HashMap::new(),
            ext_procs: Vec::new(),
            envoys: HashMap::new(),
            llm_provider: None,
            llm_floor: None,
            litellm: None,
        };
        for scenario in scenarios {
            match scenario.subject {
                Subject::RawServer | Subject::RawClient => rig.start_raw()?,
                Subject::Bare(plugins) => rig.start_bare(plugins)?,
                Subject::Envoy(plugins) => rig.start_envoy(plugins)?,
                Subject::LlmFloor => rig.start_llm_floor()?,
                Subject::LiteLlm => rig.start_litellm()?,
                Subject::Gateway(setup) => rig.start_setup(setup)?,
            }
        }
        Ok(rig)
    }

    fn start_raw(&mut self) -> Result<(), BenchError> {
        if self.raw.is_none() {
            self.raw = Some(RoleProcess::start(&["raw-server"])?);
        }
        Ok(())
    }

    fn start_bare(&mut self, plugins: usize) -> Result<(), BenchError> {
        if !self.bare.contains_key(&plugins) {
            let addresses = self.tcp_plugins(&ECHO_NAMES[..plugins])?;
            let addresses = addresses.iter().map(|(_, address)| &**address);
            let arguments: Vec<_> = std::iter::once("bare").chain(addresses).collect();
            self.bare.insert(plugins, RoleProcess::start(&arguments)?);
        }
        Ok(())
    }

    fn start_envoy(&mut self, plugins: usize) -> Result<(), BenchError> {
        if self.envoys.contains_key(&plugins) {
            return Ok(());
        }
        while self.ext_procs.len() < plugins {
            self.ext_procs.push(RoleProcess::start(&["ext-proc"])?);
        }
        let addresses = self.ext_procs[..plugins].iter().map(|plugin| plugin.address.parse::<SocketAddr>());
        let ports = addresses.map(|address| Ok(address?.port())).collect::<Result<Vec<_>, BenchError>>()?;
        let binary = self.binaries.envoy.as_ref().ok_or("Envoy's binary is unknown")?;
        self.envoys.insert(plugins, EnvoyProcess::start(binary, &ports)?);
        Ok(())
    }

    fn start_llm_floor(&mut self) -> Result<(), BenchError> {
        if self.llm_floor.is_none() {
            let provider = self.llm_provider()?.to_owned();
            self.llm_floor = Some(RoleProcess::start(&["llm-floor", &provider])?);
        }
        Ok(())
    }

    fn start_litellm(&mut self) -> Result<(), BenchError> {
        if self.litellm.is_none() {
            let provider = self.llm_provider()?.to_owned();
            let binary = self.binaries.litellm.as_ref().ok_or("LiteLLM's binary is unknown")?;
            self.litellm = Some(LiteLlmProcess::start(binary, &provider)?);
        }
        Ok(())
    }

    /// The address of the provider of models.
    fn llm_provider(&mut self) -> Result<&str, BenchError> {
        if self.llm_provider.is_none() {
            self.llm_provider = Some(RoleProcess::start(&["llm-provider"])?);
        }
        Ok(&self.llm_provider.as_ref().ok_or("the provider was not started")?.address)
    }

    /// The name of a plugin and its address on a Unix socket. Starts it if it doesn't run.
    fn unix_plugin(&mut self, name: &'static str) -> Result<PluginAddress<'_>, BenchError> {
        if !self.unix_plugins.contains_key(name) {
            let address = format!("unix://{}/{name}.sock", self.directory.path().display());
            self.unix_plugins.insert(name, RoleProcess::start(&["plugin", name, &address])?);
        }
        Ok((name, &self.unix_plugins[name].address))
    }

    fn start_setup(&mut self, setup: GatewaySetup) -> Result<(), BenchError> {
        if !self.gateways.contains_key(&setup) {
            let config = self.config(setup)?;
            let gateway = self.start_gateway(&config)?;
            self.gateways.insert(setup, gateway);
        }
        Ok(())
    }

    /// The configuration of a setup. Starts what it refers to.
    pub(crate) fn config(&mut self, setup: GatewaySetup) -> Result<Value, BenchError> {
        Ok(match setup {
            GatewaySetup::Echo(plugins) => {
                gateway_config::chain(&borrowed(&self.tcp_plugins(&ECHO_NAMES[..plugins])?))
            }
            GatewaySetup::Patch => gateway_config::chain(&borrowed(&self.tcp_plugins(&[PATCH_NAME])?)),
            GatewaySetup::Wait(plugins) => {
                gateway_config::chain(&borrowed(&self.tcp_plugins(&WAIT_NAMES[..plugins])?))
            }
            GatewaySetup::Hook(plugins) => {
                gateway_config::hook(&borrowed(&self.tcp_plugins(&WAIT_NAMES[..plugins])?))
            }
            GatewaySetup::OneTenant => {
                let plugins = self.tcp_plugins(&ECHO_NAMES[..1])?;
                gateway_config::one_step_for_each_tenant(1, &borrowed(&plugins))
            }
            GatewaySetup::ManyTenants => {
                let plugins = self.tcp_plugins(&ECHO_NAMES)?;
                gateway_config::one_step_for_each_tenant(self.tenants, &borrowed(&plugins))
            }
            GatewaySetup::UnixPlugin => gateway_config::chain(&[self.unix_plugin(ECHO_NAMES[0])?]),
            GatewaySetup::Llm { points } => self.llm_config(ECHO_NAMES[0], &POINTS[..points])?,
            GatewaySetup::LlmWindows => self.llm_config(WINDOWS_NAME, &["before_response"])?,
            GatewaySetup::LlmResults => self.llm_config(ECHO_NAMES[0], &["after_tool_result"])?,
            GatewaySetup::Tls => {
                let [certificate, key] = [&self.certificates.certificate, &self.certificates.key]
                    .map(|path| path.display().to_string());
                let plugin = RoleProcess::start(&["tls-plugin", &certificate, &key])?;
                let plugin = self.tls_plugin.insert(plugin);
                gateway_config::tls_chain(&[(ECHO_NAMES[0], &plugin.address)], &self.certificates)
            }
        })
    }

    fn llm_config(&mut self, plugin: &'static str, points: &[&str]) -> Result<Value, BenchError> {
        let provider = self.llm_provider()?.to_owned();
        Ok(gateway_config::llm(&provider, self.unix_plugin(plugin)?, points))
    }

    pub(crate) fn gateway_binary(&self) -> &Path {
        &self.binaries.gateway
    }

    /// Starts a gateway that doesn't stay.
    pub(crate) fn start_gateway(&self, config: &Value) -> Result<GatewayProcess, BenchError> {
        GatewayProcess::start(&self.binaries.gateway, config)
    }

    /// The names and addresses of plugins over TCP. Starts those that don't run.
    pub(crate) fn tcp_plugins(
        &mut self,
        names: &[&'static str],
    ) -> Result<Vec<(&'static str, String)>, BenchError> {
        let mut addresses = Vec::with_capacity(names.len());
        for name in names {
            if !self.plugins.contains_key(name) {
                self.plugins.insert(name, RoleProcess::start(&["plugin", name, "http://127.0.0.1:0"])?);
            }
            addresses.push((*name, self.plugins[name].address.clone()));
        }
        Ok(addresses)
    }

    /// The address of the raw server.
    pub(crate) fn raw_address(&self) -> Result<&str, BenchError> {
        Ok(&self.raw.as_ref().ok_or("the raw server was not started")?.address)
    }

    /// The process that `scenario` measures.
    pub(crate) fn pid(&self, scenario: &Scenario) -> Result<u32, BenchError> {
        let pid = match scenario.subject {
            Subject::RawServer => self.raw.as_ref().map(RoleProcess::id),
            // It is started for each measurement.
            Subject::RawClient => None,
            Subject::Bare(plugins) => self.bare.get(&plugins).map(RoleProcess::id),
            Subject::Envoy(plugins) => self.envoys.get(&plugins).map(EnvoyProcess::id),
            Subject::LlmFloor => self.llm_floor.as_ref().map(RoleProcess::id),
            Subject::LiteLlm => self.litellm.as_ref().map(LiteLlmProcess::id),
            Subject::Gateway(setup) => self.gateways.get(&setup).map(GatewayProcess::id),
        };
        pid.ok_or_else(|| format!("{scenario}: the process was not started").into())
    }

    /// What the callers of `scenario` call.
    pub(crate) fn target(&self, scenario: &Scenario) -> Result<Target, BenchError> {
        let address = match scenario.subject {
            Subject::RawServer | Subject::RawClient => self.raw.as_ref().map(|raw| &raw.address),
            Subject::Bare(plugins) => self.bare.get(&plugins).map(|bare| &bare.address),
            Subject::Envoy(plugins) => self.envoys.get(&plugins).map(|envoy| &envoy.address),
            Subject::LlmFloor => self.llm_floor.as_ref().map(|floor| &floor.address),
            Subject::LiteLlm => self.litellm.as_ref().map(|proxy| &proxy.address),
            Subject::Gateway(setup) => self.gateways.get(&setup).map(|gateway| &gateway.data_addr),
        };
        let address = address.ok_or_else(|| format!("{scenario}: the process was not started"))?;
        let has_tls = scenario.subject == Subject::Gateway(GatewaySetup::Tls);
        let ca = has_tls.then(|| std::fs::read(&self.certificates.ca)).transpose()?;
        Ok(Target {
            address: address.trim_start_matches("http://").to_owned(),
            protocol: scenario.protocol,
            payload: scenario.payload,
            tokens: self.tokens(scenario)?,
            ca,
        })
    }

    fn tokens(&self, scenario: &Scenario) -> Result<Vec<String>, BenchError> {
        let token = |number| gateway_config::token(&gateway_config::tenant_id(number));
        match (scenario.payload, scenario.subject) {
            (Payload::EveryPoint, Subject::Gateway(GatewaySetup::ManyTenants)) => {
                (0..self.tenants).map(token).collect()
            }
            (Payload::EveryPoint, _) => Ok(vec![token(0)?]),
            _ => Ok(vec![gateway_config::token(TENANT)?]),
        }
    }
}

/// Plugins as a configuration takes them.
pub(crate) fn borrowed<'a>(plugins: &'a [(&'static str, String)]) -> Vec<PluginAddress<'a>> {
    plugins.iter().map(|(name, address)| (*name, &**address)).collect()
}
