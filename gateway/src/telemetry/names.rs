//! Every name that telemetry uses: attributes, and metrics with their text in docs/metrics.md.
//!
//! Attributes without the prefix `hookgate.` are those of the OpenTelemetry semantic conventions (RPC as of
//! 1.44, a release candidate; HTTP stable). Values of attributes on metrics come from the configuration or
//! from closed sets, never from a call.

/// Instrumentation scope of the gateway's spans, metrics and log records.
pub const SCOPE: &str = "hookgate";

// Semantic conventions.
pub const DB_SYSTEM: &str = "db.system.name";
pub const ERROR_TYPE: &str = "error.type";
pub const HTTP_METHOD: &str = "http.request.method";
pub const HTTP_ROUTE: &str = "http.route";
pub const HTTP_STATUS: &str = "http.response.status_code";
pub const RPC_METHOD: &str = "rpc.method";
pub const RPC_STATUS: &str = "rpc.response.status_code";
pub const RPC_SYSTEM: &str = "rpc.system.name";
pub const SERVER_ADDRESS: &str = "server.address";
pub const SERVER_PORT: &str = "server.port";
pub const URL_SCHEME: &str = "url.scheme";

// Ours, on metrics and spans.
pub const BINDING: &str = "hookgate.binding.name";
pub const CERTIFICATE: &str = "hookgate.certificate";
pub const CODE: &str = "hookgate.code";
pub const DECISION: &str = "hookgate.decision";
/// The name of a lifecycle hook, beside [`POINT`] with the value [`AT_HOOK`].
pub const HOOK: &str = "hookgate.hook";
pub const ISSUER: &str = "hookgate.issuer";
pub const MODE: &str = "hookgate.mode";
pub const OUTCOME: &str = "hookgate.outcome";
pub const OUTPUT: &str = "hookgate.output";
pub const PLUGIN: &str = "hookgate.plugin.name";
pub const POINT: &str = "hookgate.point";
pub const REASON: &str = "hookgate.reason";
pub const STATE: &str = "hookgate.state";
/// Always on spans; on metrics only for the tenants in `telemetry.tenant_labels`.
pub const TENANT: &str = "hookgate.tenant.id";
/// The provider of a model, by its name in the configuration.
pub const UPSTREAM: &str = "hookgate.llm.upstream";

// Ours, on spans alone.
pub const OPERATOR: &str = "hookgate.operator.id";
pub const DRY_RUN: &str = "hookgate.dry_run";
pub const ENDPOINT: &str = "hookgate.plugin.endpoint";
pub const RELOAD_TRIGGER: &str = "hookgate.reload.trigger";
pub const REQUEST_ID: &str = "hookgate.request.id";
pub const REVISION: &str = "hookgate.revision";
pub const TEST: &str = "hookgate.test";

/// Value of [`POINT`] at lifecycle hooks.
pub const AT_HOOK: &str = "hook";

/// Value of an attribute with a closed set, for everything outside the set.
pub const OTHER: &str = "other";
/// Like [`OTHER`], as the semantic conventions spell it.
pub const CONVENTION_OTHER: &str = "_OTHER";

/// Buckets from the semantic conventions, in seconds, for whole calls.
pub const CALL_BOUNDS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Buckets for the gateway's own overhead, in seconds.
pub const OVERHEAD_BOUNDS: &[f64] =
    &[0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];
/// Buckets for plugins and for the wait for them, in seconds: local plugins answer in well under 5 ms.
pub const PLUGIN_BOUNDS: &[f64] =
    &[0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Buckets for requests to models, in seconds: up to the minutes of a long answer.
pub const LLM_BOUNDS: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstrumentKind {
    /// Only ever rises.
    Counter,
    /// A current value.
    Gauge,
    /// A count for each bucket of values.
    Histogram,
}

#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: InstrumentKind,
    /// In UCUM notation.
    pub unit: &'static str,
    /// Upper bounds of a histogram's buckets.
    pub bounds: &'static [f64],
    /// The attributes that a series may have.
    pub attributes: &'static [&'static str],
    /// Whether the tenants in `telemetry.tenant_labels` have their own series.
    pub by_tenant: bool,
    pub meaning: &'static str,
    pub alert: &'static str,
}

#[derive(Debug)]
pub struct SpanName {
    /// Markdown: a fixed name is in backticks.
    pub name: &'static str,
    pub parent: &'static str,
    /// Besides `error.type`.
    pub attributes: &'static [&'static str],
    pub meaning: &'static str,
}

/// Every kind of span.
pub const SPANS: &[SpanName] = &[
    SpanName {
        name: "method and path, such as `POST /v1/before-tool-call`",
        parent: "the agent's span",
        attributes: &[
            HTTP_METHOD,
            HTTP_ROUTE,
            HTTP_STATUS,
            URL_SCHEME,
            TENANT,
            OPERATOR,
            REQUEST_ID,
            POINT,
            HOOK,
            DECISION,
            CODE,
        ],
        meaning: "A request over HTTP on the data port.",
    },
    SpanName {
        name: "gRPC method, such as `hookgate.gateway.v1.ExtensionPointService/BeforeToolCall`",
        parent: "the agent's span",
        attributes: &[
            RPC_SYSTEM, RPC_METHOD, RPC_STATUS, TENANT, OPERATOR, REQUEST_ID, POINT, HOOK, DECISION, CODE,
        ],
        meaning: "A call over gRPC on the data port.",
    },
    SpanName {
        name: "gRPC method, such as `hookgate.host.v1.StorageService/Add`",
        parent: "the plugin's span",
        attributes: &[RPC_SYSTEM, RPC_METHOD, RPC_STATUS],
        meaning: "A plugin's request on the host port.",
    },
    SpanName {
        name: "gRPC method, such as `hookgate.plugin.v1.PluginService/BeforeToolCall`",
        parent: "the request's span",
        attributes: &[
            RPC_SYSTEM,
            RPC_METHOD,
            RPC_STATUS,
            SERVER_ADDRESS,
            SERVER_PORT,
            PLUGIN,
            POINT,
            HOOK,
            TEST,
        ],
        meaning: "A call to a plugin at an extension point or a hook.",
    },
    SpanName {
        name: "`config reload`",
        parent: "none",
        attributes: &[RELOAD_TRIGGER, OUTCOME, REVISION],
        meaning: "A reload, from the changed `file` or `registry` until the configuration is `active`, `unchanged`, `rejected`, \
                  `unavailable` (the store can't be reached) or `abandoned` for a later one. It includes the wait for plugins.",
    },
    SpanName {
        name: "`registry write`",
        parent: "the operator's span",
        attributes: &[OPERATOR, DRY_RUN, REVISION],
        meaning: "A write of an operator or of the file, with its validation. `hookgate.revision` is the new revision; without it \
                  nothing was written.",
    },
    SpanName {
        name: "`plugin handshake`",
        parent: "none",
        attributes: &[PLUGIN, ENDPOINT],
        meaning: "A connection to a plugin, from the dial until Initialize is answered. It includes the wait for plugins that are \
                  initialized earlier.",
    },
    SpanName {
        name: "gRPC method, such as `hookgate.plugin.v1.PluginService/Initialize`",
        parent: "`plugin handshake`; none for Release and Shutdown",
        attributes: &[RPC_SYSTEM, RPC_METHOD, RPC_STATUS],
        meaning: "Describe, Initialize, Release or Shutdown.",
    },
    SpanName {
        name: "`store migration`",
        parent: "none",
        attributes: &[DB_SYSTEM],
        meaning: "The migrations of a store at the start.",
    },
];

const fn metric(
    kind: InstrumentKind,
    name: &'static str,
    unit: &'static str,
    bounds: &'static [f64],
    attributes: &'static [&'static str],
) -> Metric {
    Metric { name, kind, unit, bounds, attributes, by_tenant: false, meaning: "", alert: "" }
}

const fn histogram(
    name: &'static str,
    bounds: &'static [f64],
    attributes: &'static [&'static str],
) -> Metric {
    metric(InstrumentKind::Histogram, name, "s", bounds, attributes)
}

const fn counter(name: &'static str, unit: &'static str, attributes: &'static [&'static str]) -> Metric {
    metric(InstrumentKind::Counter, name, unit, &[], attributes)
}

const fn gauge(name: &'static str, unit: &'static str, attributes: &'static [&'static str]) -> Metric {
    metric(InstrumentKind::Gauge, name, unit, &[], attributes)
}

impl Metric {
    const fn by_tenant(self) -> Self {
        Metric { by_tenant: true, ..self }
    }

    const fn says(self, meaning: &'static str, alert: &'static str) -> Self {
        Metric { meaning, alert, ..self }
    }
}

pub const RPC_SERVER: Metric = histogram(
    "rpc.server.call.duration",
    CALL_BOUNDS,
    &[RPC_SYSTEM, RPC_METHOD, RPC_STATUS, ERROR_TYPE],
)
.says(
    "Calls over gRPC on the data port and the host port, from the headers to the answer. An unknown method is `_OTHER`; health \
         and reflection are not measured. A block is `OK`: it is a decision.",
    "series with `error.type`: agents get no decision",
);
pub const HTTP_SERVER: Metric = histogram(
    "http.server.request.duration",
    CALL_BOUNDS,
    &[HTTP_METHOD, URL_SCHEME, HTTP_ROUTE, HTTP_STATUS, ERROR_TYPE],
)
.says(
    "Requests over HTTP on the data port, from the headers to the answer. Unknown paths have no `http.route`; a \
     caller that disconnected has no status.",
    "`http.response.status_code` of 500 and above",
);
pub const RPC_CLIENT: Metric = histogram(
    "rpc.client.call.duration",
    CALL_BOUNDS,
    &[RPC_SYSTEM, RPC_METHOD, RPC_STATUS, ERROR_TYPE, SERVER_ADDRESS, SERVER_PORT, PLUGIN],
)
.says(
    "Calls to plugins at extension points and hooks, observers included: finding or making a connection, sending, the reply. \
     Excludes the handshake's calls and the wait for a permit.",
    "series with `error.type`: a plugin fails",
);
pub const INVOCATION: Metric =
    histogram("hookgate.invocation.duration", CALL_BOUNDS, &[POINT, HOOK, DECISION, ERROR_TYPE]).by_tenant().says(
        "Invocations, including refused ones, from the headers to the decision. An answer that is judged in windows is one, and \
         lasts as long as it waited for plugins. `hookgate.decision` is `continue`, `block`, `answer`, `error` or \
         `cancelled`; `error.type` is the error code. At lifecycle hooks `hookgate.point` is `hook`, and \
         `hookgate.hook` the hook's name, or `_OTHER` if it is neither known nor bound.",
        "the share of `error`; the 99th percentile compared with your agents' timeouts",
    );
pub const OVERHEAD: Metric = histogram("hookgate.overhead.duration", OVERHEAD_BOUNDS, &[POINT, HOOK]).by_tenant().says(
    "The gateway's own time: the duration of an invocation less the time in which plugins were called, including \
     receiving the request. Only for invocations whose chain ran and whose caller stayed connected.",
    "the 99th percentile over 5 ms: the machine is too small, or callers send slowly",
);
pub const PLUGIN_CALL: Metric =
    histogram("hookgate.plugin.call.duration", PLUGIN_BOUNDS, &[PLUGIN, POINT, HOOK, OUTCOME])
        .by_tenant()
        .says(
            "Steps that called their plugin, less the wait for a permit.",
            "the 99th percentile near the step's timeout",
        );
pub const PLUGIN_QUEUE: Metric = histogram("hookgate.plugin.queue.duration", PLUGIN_BOUNDS, &[PLUGIN]).says(
    "The wait for a permit among a plugin's calls in flight (`limits.in_flight`).",
    "anything but the lowest bucket: the plugin is too slow or has too few permits",
);
pub const STEPS: Metric =
    counter("hookgate.steps", "{step}", &[PLUGIN, POINT, HOOK, OUTCOME, REASON]).by_tenant().says(
        "Steps by outcome. An observer counts once, when it has answered or was abandoned.",
        "outcome `failed`",
    );
pub const BLOCKS: Metric = counter("hookgate.blocks", "{block}", &[PLUGIN, POINT, CODE]).by_tenant().says(
    "Blocks. `hookgate.code` is a code of the protocol's table or of `block_status`, else `other`.",
    "a sudden change: a rule or an agent is new",
);
pub const FAILED_OPEN: Metric =
    counter("hookgate.failed_open", "{step}", &[PLUGIN, POINT, HOOK, REASON]).by_tenant().says(
        "Steps that were skipped because they failed or had too little time: a rule was not applied.",
        "any, if the rule matters",
    );
pub const BYPASSED: Metric = counter("hookgate.bypassed", "{call}", &[POINT, HOOK, BINDING])
    .by_tenant()
    .says("Calls whose plan lacked a bypassed binding: a rule was not applied.", "any unexpected one");
pub const BYPASSES: Metric = gauge("hookgate.bypasses", "{bypass}", &[]).says(
    "Active bypasses: bindings that operators have bypassed for a tenant for a limited time.",
    "any unexpected one: `hookgate binding list`",
);
pub const WOULD_BLOCK: Metric =
    counter("hookgate.would_block", "{step}", &[PLUGIN, POINT, MODE]).by_tenant().says(
        "Cancels that were ignored, because the binding's mode is advise or observe.",
        "none (read it before you switch a binding to enforce)",
    );
pub const AUTH_FAILURES: Metric = counter("hookgate.auth.failures", "{call}", &[REASON]).says(
    "Callers refused because of their token.",
    "rising `signature` or `issuer`: a possible attack; `keys_unavailable`: the issuer can't be reached",
);
pub const HOST_REFUSALS: Metric = counter("hookgate.host.refusals", "{call}", &[PLUGIN, REASON]).says(
    "Requests of plugins to the host services that were refused because of their token: `missing`, `invalid`, `expired`, \
     `capability`, `unregistered`, or `keys_unavailable` (the store could not be read yet). Without a valid token the \
     plugin is unknown.",
    "`invalid`: somebody forges tokens; `expired`: a plugin works on after its call",
);
pub const HOST_DROPPED: Metric = counter("hookgate.host.dropped", "{record}", &[PLUGIN, OUTPUT]).says(
    "Log lines (`log`) and events (`event`) of plugins that were dropped, because the plugin wrote more than the gateway \
     takes per second.",
    "any: a plugin writes too much",
);
pub const LLM_EXCHANGE: Metric =
    histogram("hookgate.llm.exchange.duration", LLM_BOUNDS, &[UPSTREAM, OUTCOME, ERROR_TYPE]).by_tenant().says(
        "Requests to models, including refused ones, from the headers to the answer. `hookgate.outcome` is `answer`, `block`, \
         `provider_error` (the client got an error of the provider), `error` or `cancelled`; `error.type` is the error code, or \
         the status of the provider's error.",
        "the share of `error` and `provider_error`",
    );
pub const LLM_UPSTREAM: Metric =
    histogram("hookgate.llm.upstream.duration", LLM_BOUNDS, &[UPSTREAM]).by_tenant().says(
        "The time from a request to a model's provider to the headers of its answer.",
        "a sudden rise: the provider is slow",
    );
pub const LLM_UNITS: Metric = counter("hookgate.llm.units", "{unit}", &[UPSTREAM, OUTCOME]).by_tenant().says(
    "Earlier messages and tool results in requests to models, by what was done: `remembered` (the verdict was known) or `replayed` \
     (plugins were asked again).",
    "a lasting share of `replayed`: conversations move between replicas, or outlive the memory of verdicts",
);
pub const LLM_WITHHELD: Metric = counter("hookgate.llm.withheld", "{member}", &[UPSTREAM]).by_tenant().says(
    "Members of models' answers that were left out, because they are unknown and may carry text. The log line has their names.",
    "any: the provider has something new",
);
pub const LLM_IN_FLIGHT: Metric = gauge("hookgate.llm.in_flight", "{exchange}", &[])
    .says("Requests to models in flight.", "near `llm.limits.exchanges`");
pub const IN_FLIGHT: Metric =
    gauge("hookgate.in_flight", "{call}", &[]).says("Calls in flight.", "near `limits.in_flight`");
pub const READY: Metric = gauge("hookgate.ready", "{process}", &[]).says(
    "1 while `/readyz` says that the process is ready for calls, else 0: during startup, without the store and a \
     last good table, while a plugin that the registry requires is missing, while an issuer has no keys, and while \
     draining.",
    "0 for more than five minutes; 0 in every replica: nobody is served",
);
pub const OBSERVER_DROPPED: Metric = counter("hookgate.observer.dropped", "{call}", &[PLUGIN]).says(
    "Calls that an observer never received, because its queue was full or ended.",
    "any: the observer is too slow",
);
pub const LOG_DROPPED: Metric = counter("hookgate.log.dropped", "{line}", &[]).says(
    "Lines of the log that were dropped, because standard error was not read, or too slowly. Calls wait for no reader.",
    "any: the log collector is too slow, or has stopped",
);
pub const PLUGIN_STATE: Metric = gauge("hookgate.plugin.state", "{plugin}", &[PLUGIN, STATE]).says(
    "1 for the state that a plugin is in, 0 for the others.",
    "`refused`, or `unhealthy` for more than a minute",
);
pub const PLUGIN_FAILS_CLOSED: Metric = gauge("hookgate.plugin.fails_closed", "{plugin}", &[PLUGIN]).says(
    "1 if an enabled binding of the plugin has `on_error: fail`, so that calls get no decision while it is \
     unavailable; else 0.",
    "none (use it to filter for fail-closed plugins)",
);
pub const ENDPOINTS: Metric = gauge("hookgate.plugin.endpoints", "{endpoint}", &[PLUGIN, STATE]).says(
    "Endpoints of a plugin in a state; a name counts as often as it has addresses.",
    "fewer in `ready` than there should be",
);
pub const BREAKER_OPEN: Metric = gauge("hookgate.breaker.open", "{endpoint}", &[PLUGIN]).says(
    "Endpoints of a plugin whose breaker is open or half-open: they can't be reached.",
    "any for more than a minute; as many as there are endpoints: every call fails at once",
);
pub const BREAKER_TENANTS: Metric = gauge("hookgate.breaker.tenants", "{breaker}", &[PLUGIN]).says(
    "Tenants whose own breakers are open or half-open at all endpoints of a plugin: these tenants' calls failed \
     there.",
    "many at once: the plugin fails, or is too slow; one: the tenant's payloads make it fail",
);
pub const TABLE_REVISION: Metric = gauge("hookgate.table.revision", "{revision}", &[])
    .says("Revision of the active routing table.", "replicas that differ for more than a minute");
pub const CONFIG_REJECTED: Metric = gauge("hookgate.config.rejected", "{configuration}", &[]).says(
    "1 while the configuration file is rejected, because it is invalid, a required plugin is missing, or the store \
     can't be reached to write it; else 0. The configuration before it stays active.",
    "1 for more than a minute: `hookgate config check`, and the event `config.rejected`",
);
pub const STORE_REVISION: Metric = gauge("hookgate.store.revision", "{revision}", &[]).says(
    "Revision of the registry in the store, as last read; absent without a store and before its first answer.",
    "above `hookgate.table.revision` for more than a minute: see `configuration` of the status",
);
pub const STORE_UP: Metric = gauge("hookgate.store.up", "{store}", &[]).says(
    "1 while the store answers, 0 while it doesn't; absent without a store.",
    "0 for more than a minute: calls continue, but nothing can be written, and a restart has only the last good \
     table",
);
pub const TABLE_STALE: Metric = gauge("hookgate.table.stale", "{table}", &[]).says(
    "1 while the active table is the last good table of a start without the store, not yet confirmed by the store; \
     else 0; absent without a store.",
    "1 for more than a minute",
);
pub const BUDGET_EXHAUSTED: Metric =
    counter("hookgate.budget_exhausted", "{invocation}", &[POINT, HOOK]).by_tenant().says(
        "Invocations whose budget ran out before the end of the chain: a step failed or was skipped because of it, \
         or the body came too late.",
        "any: timeouts and budget do not fit the chain",
    );
pub const JWKS_AGE: Metric = gauge("hookgate.jwks.age", "s", &[ISSUER]).says(
    "Time since an issuer's keys were fetched, for issuers that publish them; absent until they are first fetched.",
    "none (it rises to `jwks_ttl` each time)",
);
pub const JWKS_EXPIRY: Metric = gauge("hookgate.jwks.expiry", "s", &[ISSUER]).says(
    "Time until an issuer's keys expire, for issuers that publish them: `jwks_ttl` plus an hour after they were \
     fetched, then 0; 0 until they are first fetched.",
    "below 50 minutes: they should have been fetched again 10 minutes ago; at 0 all tokens of that issuer are \
     refused",
);

pub const CERTIFICATE_EXPIRY: Metric = gauge("hookgate.certificate.expiry", "s", &[CERTIFICATE, PLUGIN]).says(
    "Time until an active certificate expires, negative afterwards: `server`, the gateway's own; `client_ca`, the \
     callers' CA; with a plugin's name `client`, the gateway's client certificate, and `server_ca`, the plugin's CA. \
     For a CA file, the certificate that expires first.",
    "below a week: it is not being renewed",
);

/// All metrics, in the order of docs/metrics.md.
pub const METRICS: &[&Metric] = &[
    &INVOCATION,
    &OVERHEAD,
    &STEPS,
    &BLOCKS,
    &FAILED_OPEN,
    &BYPASSED,
    &BYPASSES,
    &WOULD_BLOCK,
    &BUDGET_EXHAUSTED,
    &AUTH_FAILURES,
    &HOST_REFUSALS,
    &HOST_DROPPED,
    &LLM_EXCHANGE,
    &LLM_UPSTREAM,
    &LLM_UNITS,
    &LLM_WITHHELD,
    &LLM_IN_FLIGHT,
    &IN_FLIGHT,
    &READY,
    &PLUGIN_CALL,
    &PLUGIN_QUEUE,
    &PLUGIN_STATE,
    &PLUGIN_FAILS_CLOSED,
    &ENDPOINTS,
    &BREAKER_OPEN,
    &BREAKER_TENANTS,
    &OBSERVER_DROPPED,
    &LOG_DROPPED,
    &TABLE_REVISION,
    &CONFIG_REJECTED,
    &STORE_REVISION,
    &STORE_UP,
    &TABLE_STALE,
    &JWKS_AGE,
    &JWKS_EXPIRY,
    &CERTIFICATE_EXPIRY,
    &HTTP_SERVER,
    &RPC_SERVER,
    &RPC_CLIENT,
];
