//! What is measured: which process, called how, with how many calls in flight.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::{caller::Protocol, closed_loop::Measurement, payload::Payload};

/// The process whose CPU time and latency are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    RawServer,
    /// It is measured without callers: it calls the raw server itself.
    RawClient,
    /// The bare path with this many plugins.
    Bare(usize),
    /// Envoy with this many plugins.
    Envoy(usize),
    /// The floor of the LLM proxy.
    LlmFloor,
    /// LiteLLM's proxy with a guard that lets everything pass.
    LiteLlm,
    Gateway(GatewaySetup),
}

/// What a gateway is configured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum GatewaySetup {
    /// This many echo plugins.
    Echo(usize),
    Patch,
    /// This many waiting plugins.
    Wait(usize),
    /// This many waiting plugins at a hook.
    Hook(usize),
    OneTenant,
    ManyTenants,
    /// One echo plugin on a Unix socket.
    UnixPlugin,
    /// TLS on the data port and to one echo plugin.
    Tls,
    /// A provider of models, and one echo plugin on a Unix socket at as many of the points.
    Llm {
        points: usize,
    },
    /// A provider of models, and a plugin on a Unix socket that judges answers in windows.
    LlmWindows,
    /// A provider of models, and one echo plugin on a Unix socket that is asked about tools' results.
    LlmResults,
}

/// When callers make their calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LoadModel {
    /// Each makes its next call when it has an answer.
    Closed,
    /// The same, over one connection.
    OneConnection,
    /// At half of the rate that [`Scenario::CAPACITY`] had.
    HalfOfCapacity,
}

/// One thing that is measured once in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Scenario {
    pub(crate) subject: Subject,
    pub(crate) protocol: Protocol,
    pub(crate) payload: Payload,
    pub(crate) load: LoadModel,
    /// Calls in flight; in an open loop, connections.
    pub(crate) concurrency: usize,
}

impl Scenario {
    /// The scenario that says how many calls a second the gateway can take.
    pub(crate) const CAPACITY: Scenario = Scenario::new(Subject::Gateway(GatewaySetup::Echo(1)), 16);

    /// Tool calls over gRPC in a closed loop.
    pub(crate) const fn new(subject: Subject, concurrency: usize) -> Self {
        Scenario {
            subject,
            protocol: Protocol::Grpc,
            payload: Payload::ToolCall,
            load: LoadModel::Closed,
            concurrency,
        }
    }

    pub(crate) const fn gateway(setup: GatewaySetup, concurrency: usize) -> Self {
        Scenario::new(Subject::Gateway(setup), concurrency)
    }

    pub(crate) const fn envoy(plugins: usize, concurrency: usize) -> Self {
        let protocol = Protocol::GrpcToEnvoy;
        Scenario { protocol, ..Scenario::new(Subject::Envoy(plugins), concurrency) }
    }

    pub(crate) const fn with_payload(self, payload: Payload) -> Self {
        Scenario { payload, ..self }
    }

    pub(crate) const fn over_http(self) -> Self {
        Scenario { protocol: Protocol::Http, ..self }
    }

    /// Requests to a model over HTTP.
    pub(crate) const fn llm(subject: Subject, payload: Payload, concurrency: usize) -> Self {
        Scenario::new(subject, concurrency).with_payload(payload).over_http()
    }

    pub(crate) const fn over_one_connection(self) -> Self {
        Scenario { load: LoadModel::OneConnection, ..self }
    }

    pub(crate) const fn at_half_of_capacity(self) -> Self {
        Scenario { load: LoadModel::HalfOfCapacity, ..self }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            Subject::RawServer => write!(f, "raw server")?,
            Subject::RawClient => write!(f, "raw client")?,
            Subject::Bare(plugins) => write!(f, "bare path, plugins: {plugins}")?,
            Subject::Envoy(plugins) => write!(f, "Envoy, plugins: {plugins}")?,
            Subject::Gateway(GatewaySetup::Echo(plugins)) => write!(f, "gateway, plugins: {plugins}")?,
            Subject::Gateway(GatewaySetup::Patch) => write!(f, "gateway, patching plugin")?,
            Subject::Gateway(GatewaySetup::Wait(plugins)) => {
                write!(f, "gateway, waiting plugins: {plugins}")?
            }
            Subject::Gateway(GatewaySetup::Hook(plugins)) => {
                write!(f, "gateway, waiting plugins at a hook: {plugins}")?
            }
            Subject::Gateway(GatewaySetup::OneTenant) => write!(f, "gateway, one tenant")?,
            Subject::Gateway(GatewaySetup::ManyTenants) => write!(f, "gateway, many tenants")?,
            Subject::Gateway(GatewaySetup::UnixPlugin) => write!(f, "gateway, plugin on a Unix socket")?,
            Subject::LlmFloor => write!(f, "floor of the LLM proxy")?,
            Subject::LiteLlm => write!(f, "LiteLLM")?,
            Subject::Gateway(GatewaySetup::Llm { points }) => write!(f, "LLM proxy, points: {points}")?,
            Subject::Gateway(GatewaySetup::LlmWindows) => write!(f, "LLM proxy, windows")?,
            Subject::Gateway(GatewaySetup::LlmResults) => write!(f, "LLM proxy, tools' results")?,
            Subject::Gateway(GatewaySetup::Tls) => write!(f, "gateway, TLS")?,
        }
        match self.protocol {
            Protocol::Grpc | Protocol::GrpcToEnvoy => write!(f, ", gRPC")?,
            Protocol::Http => write!(f, ", HTTP")?,
        }
        match self.payload {
            Payload::ToolCall => write!(f, ", tool call")?,
            Payload::SmallContent => write!(f, ", content of 1 KiB")?,
            Payload::LargeContent => write!(f, ", content of 256 KiB")?,
            Payload::HugeContent => write!(f, ", content of 1 MiB")?,
            Payload::EveryPoint => write!(f, ", every point")?,
            Payload::Completion => write!(f, ", completion")?,
            Payload::History => write!(f, ", long conversation")?,
            Payload::Stream(shape) => write!(f, ", {} stream", shape.model())?,
            Payload::Hook { .. } => write!(f, ", hook")?,
        }
        match self.load {
            LoadModel::Closed => Ok(()),
            LoadModel::OneConnection => write!(f, ", one connection"),
            LoadModel::HalfOfCapacity => write!(f, ", open loop"),
        }
    }
}

impl Serialize for Scenario {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What one round found of a scenario.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    pub(crate) calls: u64,
    pub(crate) refused: u64,
    pub(crate) seconds: f64,
    pub(crate) calls_per_second: f64,
    /// The measured process's CPU time per call, user and system.
    pub(crate) cpu_us_per_call: f64,
    /// Absent for the raw client, which doesn't look at a clock.
    #[serde(flatten)]
    pub(crate) latency: Option<Latency>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}

impl Sample {
    pub(crate) fn new(measured: &Measurement) -> Self {
        let (calls, seconds) = (measured.micros.len(), measured.took.as_secs_f64());
        let latency = Latency {
            p50_us: measured.micros.value_at_quantile(0.5),
            p99_us: measured.micros.value_at_quantile(0.99),
            max_us: measured.micros.max(),
        };
        Sample {
            calls,
            refused: measured.refused,
            seconds,
            calls_per_second: calls as f64 / seconds,
            cpu_us_per_call: measured.cpu.as_secs_f64() * 1e6 / calls.max(1) as f64,
            latency: Some(latency),
        }
    }
}
