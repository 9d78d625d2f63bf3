//! The demo's calls in order, and the expected answers. Only data: nothing here makes a call.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

use hookgate::core::point::Point;

/// An integer above 2^53, which a parser that uses doubles would change, beside an explicit null.
const ORDER_JSON: &str = r#"{"order": 9007199254740993, "coupon": null}"#;
const REFUND_JSON: &str = r#"{"order": 9007199254740993, "refunded": true, "error": null}"#;

/// Fields of a payload, each as JSON text.
pub(super) type PayloadFields = BTreeMap<String, Box<str>>;

/// A group of calls.
pub(super) struct Scene {
    pub(super) title: String,
    pub(super) calls: Vec<ScriptedCall>,
}

/// How a call is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallTransport {
    Http,
    Grpc,
}

/// One call and its expected answer.
pub(super) struct ScriptedCall {
    pub(super) tenant: &'static str,
    pub(super) point: Point,
    pub(super) via: CallTransport,
    /// A short description of the request.
    pub(super) what: &'static str,
    /// Fields of the payload in the order they are sent.
    pub(super) sent: Vec<(&'static str, Box<str>)>,
    /// The request's `context` as JSON text.
    pub(super) context: Option<&'static str>,
    /// Whether the token is signed with a secret that isn't the issuer's.
    pub(super) forged: bool,
    verdict: Verdict,
    /// HTTP status, or gRPC's.
    status: &'static str,
    /// Block or error code.
    code: &'static str,
    /// Fields of the answer that differ from the sent ones.
    changes: Vec<(&'static str, Box<str>)>,
}

/// The expected verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Continue,
    Block,
    NoDecision,
}

/// The predictable parts of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpectedAnswer {
    pub(super) verdict: Verdict,
    pub(super) status: String,
    pub(super) code: String,
    /// `None` if the answer has no payload.
    pub(super) payload: Option<PayloadFields>,
}

impl ScriptedCall {
    fn new(tenant: &'static str, point: Point, via: CallTransport, what: &'static str) -> Self {
        let status = if via == CallTransport::Http { "200" } else { "OK" };
        ScriptedCall {
            tenant,
            point,
            via,
            what,
            sent: Vec::new(),
            context: None,
            forged: false,
            verdict: Verdict::Continue,
            status,
            code: "",
            changes: Vec::new(),
        }
    }

    fn text(mut self, field: &'static str, text: &str) -> Self {
        self.sent.push((field, json(text)));
        self
    }

    fn json(mut self, field: &'static str, json: &str) -> Self {
        self.sent.push((field, json.into()));
        self
    }

    fn becomes(mut self, field: &'static str, text: &str) -> Self {
        self.changes.push((field, json(text)));
        self
    }

    fn answers(mut self, verdict: Verdict, status: &'static str, code: &'static str) -> Self {
        (self.verdict, self.status, self.code) = (verdict, status, code);
        self
    }

    fn forged(mut self) -> Self {
        self.forged = true;
        self
    }

    fn context(mut self, json: &'static str) -> Self {
        self.context = Some(json);
        self
    }

    /// The expected answer.
    pub(super) fn expected(&self) -> ExpectedAnswer {
        let fields = self.sent.iter().chain(&self.changes); // a later one replaces an earlier one
        let payload = fields.map(|(field, value)| ((*field).to_owned(), value.clone())).collect();
        ExpectedAnswer {
            verdict: self.verdict,
            status: self.status.to_owned(),
            code: self.code.to_owned(),
            payload: (self.verdict != Verdict::NoDecision).then_some(payload),
        }
    }

    /// Whether a chain runs for the call, so that observers see it whatever the result is.
    pub(super) fn is_observed(&self) -> bool {
        self.verdict != Verdict::NoDecision || self.code == "PLUGIN_UNAVAILABLE"
    }
}

fn json(text: &str) -> Box<str> {
    let json: Box<RawValue> = to_raw_value(text).expect("a text is a JSON string");
    json.into()
}

fn tool(tenant: &'static str, via: CallTransport, name: &'static str) -> ScriptedCall {
    ScriptedCall::new(tenant, Point::BeforeToolCall, via, name)
        .text("tool_name", name)
        .json("args", ORDER_JSON)
}

/// The calls before a plugin is killed.
pub(super) fn opening() -> Vec<Scene> {
    let run = vec![
        ScriptedCall::new("acme", Point::BeforeLlmRequest, CallTransport::Http, "an e-mail address")
            .text("text", "Refund my order and write to ada@example.com")
            .json("extra", ORDER_JSON)
            .becomes("text", "Refund my order and write to [EMAIL]"),
        tool("acme", CallTransport::Grpc, "orders.refund"),
        ScriptedCall::new("acme", Point::AfterToolResult, CallTransport::Grpc, "its result")
            .text("tool_name", "orders.refund")
            .json("result", REFUND_JSON)
            .json("success", "true"),
        ScriptedCall::new("acme", Point::BeforeResponse, CallTransport::Http, "a long answer")
            .text("content", "Your refund is on its way. Questions? Mail help@example.com, or call any time.")
            .json("extra", ORDER_JSON)
            .becomes("content", "Your refund is on its way. Questions? Mail [EMAIL]\n[Response truncated]"),
    ];
    let denied = |call: ScriptedCall, status| call.answers(Verdict::Block, status, "TOOL_NOT_ALLOWED");
    let tenants = vec![
        denied(tool("globex", CallTransport::Http, "orders.refund"), "403"),
        denied(tool("globex", CallTransport::Grpc, "orders.refund"), "OK"), // a block is an answer, not an error
        tool("acme", CallTransport::Http, "orders.refund"),
        tool("globex", CallTransport::Http, "catalog.search"),
    ];
    let refused =
        vec![
            ScriptedCall::new("acme", Point::BeforeLlmRequest, CallTransport::Http, "240 characters")
                .text("text", &"too long".repeat(30))
                .answers(Verdict::Block, "413", "INPUT_TOO_LONG"),
            tool("acme", CallTransport::Http, "forged signature").forged().answers(
                Verdict::NoDecision,
                "401",
                "TOKEN_INVALID",
            ),
            tool("globex", CallTransport::Http, "tenant in the body")
                .context(r#"{"tenant": "acme"}"#)
                .answers(Verdict::NoDecision, "400", "PAYLOAD_INVALID"),
        ];
    vec![
        Scene {
            title: "An agent of acme runs through all four points; its order number is never altered".into(),
            calls: run,
        },
        Scene { title: "Two tenants, two sets of tools".into(), calls: tenants },
        Scene { title: "Refused calls".into(), calls: refused },
    ]
}

/// The calls while tenant-auth is down.
pub(super) fn outage(pid: u32) -> Scene {
    let unavailable = |via, status| {
        tool("acme", via, "orders.refund").answers(Verdict::NoDecision, status, "PLUGIN_UNAVAILABLE")
    };
    let calls = vec![
        unavailable(CallTransport::Http, "503"),
        unavailable(CallTransport::Grpc, "UNAVAILABLE"),
        ScriptedCall::new("acme", Point::BeforeResponse, CallTransport::Grpc, "a short answer")
            .text("content", "One moment."),
    ];
    Scene {
        title: format!("tenant-auth is killed, pid {pid} is gone: an outage neither denies nor approves"),
        calls,
    }
}

/// The calls once it is back.
pub(super) fn return_of(pid: u32) -> Scene {
    let calls = vec![
        tool("acme", CallTransport::Http, "orders.refund"),
        tool("acme", CallTransport::Grpc, "orders.refund"),
    ];
    Scene { title: format!("tenant-auth is back, as pid {pid}"), calls }
}
