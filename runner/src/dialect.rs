//! How programs are spoken to: what the gateway's calls are to a program, and what its output is to the gateway.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hookgate::{core::call_site::CallSite, transcode::WriteJson};
use hookgate_proto::plugin::v1::Call;
use tokio::sync::OwnedMutexGuard;
use tonic::Status;

use crate::{
    call_log::caller,
    call_messages,
    kaged::KagedPlugin,
    librefang::{LibrefangPlugin, LibrefangSidecar, Overrides, answers_request, is_object_line},
    plugin_entry::{PluginEntry, ProcessMode},
};

/// The dialect of a plugin's programs.
#[derive(Debug, Default)]
pub(crate) enum Dialect {
    /// Hookgate's own, of docs/writing-a-plugin-shell.md.
    #[default]
    Lines,
    /// Scripts of a LibreFang plugin.
    Librefang(Box<LibrefangPlugin>),
    /// A context engine of LibreFang in a process of its own.
    LibrefangSidecar(LibrefangSidecar),
    /// A plugin of kaged.
    Kaged(Arc<KagedPlugin>),
}

/// A call of the gateway.
pub(crate) struct CallParts<'a> {
    pub(crate) site: &'a CallSite,
    pub(crate) call: &'a Call,
    pub(crate) payload: &'a (dyn WriteJson + Send + Sync),
}

/// Who answers a call.
pub(crate) enum CallRouting<'a> {
    Program(ProgramRoute<'a>),
    /// A process that takes calls at the same time.
    Session(&'a Arc<KagedPlugin>),
    /// Nobody: the plugin doesn't want the call. This is the reply, as one of docs/writing-a-plugin-shell.md.
    Ignore(Bytes),
}

/// The program that answers a call, and how.
pub(crate) struct ProgramRoute<'a> {
    /// Calls with another key never get the same program.
    pub(crate) key: Arc<str>,
    pub(crate) command: &'a [String],
    pub(crate) format: CallFormat,
    /// Variables of the program that the runner's file doesn't set.
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) process: ProcessMode,
    /// Longest call, with all its attempts.
    pub(crate) time: Duration,
    /// How often a call is repeated that the program didn't answer.
    pub(crate) max_retries: u32,
    /// How long after the first attempt. Doubles with each other one.
    pub(crate) retry_delay: Duration,
    pub(crate) reply: ReplyLine,
    /// Whether a program that ended in its second call or later is started again for that call, however it ended.
    pub(crate) restarts: bool,
    /// The agent whose state the program has in a file, and the right to change it.
    pub(crate) state: Option<AgentState>,
}

/// How calls and replies are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallFormat {
    Lines,
    Librefang,
}

/// An agent's state file. Calls of the agent take turns.
pub(crate) struct AgentState {
    pub(crate) agent: String,
    pub(crate) _turn: OwnedMutexGuard<()>,
}

/// Which of a persistent program's lines is its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyLine {
    First,
    /// The first one that is a JSON object.
    FirstJson,
    /// The one with this `id`.
    WithId(u64),
}

impl ReplyLine {
    pub(crate) fn is_reply(self, line: &[u8]) -> bool {
        match self {
            ReplyLine::First => true,
            ReplyLine::FirstJson => is_object_line(line),
            ReplyLine::WithId(id) => answers_request(line, id),
        }
    }

    /// Whether what a program wrote before the call could be taken for its reply.
    pub(crate) fn may_be_in(self, early: &[u8]) -> bool {
        match self {
            ReplyLine::First => true,
            // The rest of a line that isn't whole could make it JSON.
            ReplyLine::FirstJson => {
                !early.ends_with(b"\n") || early.split(|byte| *byte == b'\n').any(is_object_line)
            }
            ReplyLine::WithId(_) => false,
        }
    }
}

/// A program's reply, as one of docs/writing-a-plugin-shell.md.
pub(crate) struct DialectReply {
    pub(crate) text: Bytes,
    /// What the program wants to be logged, or wrote beside its reply.
    pub(crate) log: Vec<String>,
    pub(crate) warning: Option<&'static str>,
    /// What the reply changes for later calls.
    pub(crate) overrides: Option<Overrides>,
}

impl Dialect {
    /// Whether an agent can change something for its later calls.
    pub(crate) fn has_overrides(&self) -> bool {
        matches!(self, Dialect::Librefang(plugin) if plugin.has_bootstrap())
    }

    /// The program for a call, or the reply if the plugin doesn't want the call.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the payload can't be read.
    pub(crate) async fn route<'a>(
        &'a self,
        entry: &'a PluginEntry,
        parts: &CallParts<'_>,
        overrides: &Overrides,
    ) -> Result<CallRouting<'a>, Status> {
        match self {
            Dialect::Lines => Ok(CallRouting::Program(ProgramRoute::from_entry(entry))),
            Dialect::Librefang(plugin) => plugin.route(entry, parts, overrides).await,
            Dialect::LibrefangSidecar(sidecar) => Ok(CallRouting::Program(ProgramRoute {
                reply: ReplyLine::WithId(sidecar.next_id()),
                restarts: true,
                format: CallFormat::Librefang,
                ..ProgramRoute::from_entry(entry)
            })),
            Dialect::Kaged(plugin) => Ok(CallRouting::Session(plugin)),
        }
    }
}

impl CallFormat {
    /// The call as a line.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the payload can't be read.
    pub(crate) fn line(
        self,
        parts: &CallParts<'_>,
        route: &ProgramRoute<'_>,
        config: &Bytes,
    ) -> Result<Vec<u8>, Status> {
        match self {
            CallFormat::Lines => Ok(call_messages::line(parts.site, parts.call, config, parts.payload)),
            CallFormat::Librefang => crate::librefang::line(parts, route.reply),
        }
    }

    /// # Errors
    /// If the output is no reply.
    pub(crate) fn reply(
        self,
        parts: &CallParts<'_>,
        route: &ProgramRoute<'_>,
        output: &Bytes,
    ) -> Result<DialectReply, Status> {
        match self {
            CallFormat::Lines => Ok(DialectReply::plain(output.clone())),
            CallFormat::Librefang => crate::librefang::reply(parts, route.reply, output),
        }
    }

    /// How the contract's reply in the program's output names its call.
    pub(crate) fn id_rule(self, process: ProcessMode) -> ProcessMode {
        match self {
            CallFormat::Lines => process,
            // LibreFang's replies don't name their call.
            CallFormat::Librefang => ProcessMode::PerCall,
        }
    }
}

impl DialectReply {
    pub(crate) fn plain(text: Bytes) -> Self {
        DialectReply { text, log: Vec::new(), warning: None, overrides: None }
    }
}

impl<'a> ProgramRoute<'a> {
    fn from_entry(entry: &'a PluginEntry) -> Self {
        ProgramRoute {
            key: Arc::from(""),
            command: &entry.command,
            format: CallFormat::Lines,
            variables: Vec::new(),
            process: entry.process(),
            time: entry.limits.time(),
            max_retries: 0,
            retry_delay: Duration::ZERO,
            reply: ReplyLine::First,
            restarts: false,
            state: None,
        }
    }
}

/// The agent of a call; empty if it doesn't say.
pub(crate) fn agent<'a>(parts: &CallParts<'a>) -> &'a str {
    parts.call.context.as_ref().and_then(|context| context.agent_id.as_deref()).unwrap_or_default()
}

/// The tenant of a call.
pub(crate) fn tenant<'a>(parts: &CallParts<'a>) -> &'a str {
    caller(parts.call).0
}
