//! The data of what the LLM proxy does for a tenant.

use serde::{Deserialize, Serialize};

use crate::{
    core::{api_format::ApiFormat, point::Point},
    llm::surface::AllowSwitch,
};

/// What a tenant has of the LLM proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyReport {
    pub formats: Vec<FormatReport>,
    /// The tenant's `llm.models`. `None`: all that a rule serves.
    pub limited_to: Option<Vec<String>>,
    /// What the tenant may name.
    pub models: Vec<ModelReport>,
    /// `llm.allow`, which is for all tenants.
    pub allow: Vec<String>,
    /// What all formats refuse.
    pub refused: Vec<RefusalReport>,
}

/// A format of requests and answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatReport {
    pub api: ApiFormat,
    /// Where clients send requests.
    pub path: String,
    pub streams: StreamWay,
    /// The points because of which streamed answers are held. Those that only observe count too.
    pub held_for: Vec<Point>,
    /// What it refuses beside what all formats refuse.
    pub refused: Vec<RefusalReport>,
}

/// What is done with an answer that the client wants as a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamWay {
    /// It goes on as it comes: nobody is asked about answers.
    Pass,
    /// The text goes on as it comes, and the rest is held until the end and judged.
    Text,
    /// The text is judged in windows while it comes, and the rest is held until the end and judged.
    Windows,
    /// It is held until its end, judged, and then sent.
    Whole,
    /// Answers of this format are never streams.
    Never,
}

/// What a tenant may name, and the model that gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReport {
    /// The API whose clients reach it.
    pub api: ApiFormat,
    /// A name, or the glob of a rule.
    pub name: String,
    pub upstream: String,
    /// The model's name at the upstream. `None`: as the request names it.
    pub upstream_model: Option<String>,
}

/// Something that is refused by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalReport {
    pub what: String,
    pub why: String,
    /// The points at any of which a step must be able to block or change. Empty: it is refused for every tenant.
    pub points: Vec<Point>,
    pub opened_by: AllowSwitch<String>,
    pub status: RefusalStatus,
}

/// Whether something is refused for the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalStatus {
    /// It is refused; if it is opened by its own name, unless `llm.allow` has that name.
    Refused,
    /// `llm.allow` opens it.
    Allowed,
    /// It passes no plugin by that could block or change it.
    Passes,
}
