//! A JSON-RPC connection with a plugin: requests in both directions, whose responses come in any order.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    task::JoinHandle,
};

use super::{
    message::{self, INVALID_PARAMS, INVALID_REQUEST, IncomingMessage, RpcError},
    message_log::MessageLog,
};

/// Most lines that wait until the plugin reads them.
const MAX_WAITING: usize = 4;
/// Most requests of a plugin that wait for their turn.
const MAX_REQUESTS: usize = 16;
/// The code for a request beyond that.
const TOO_MANY_REQUESTS: i64 = -32000;
/// Longest parameters of a plugin's request, in bytes.
const MAX_PARAMS_BYTES: usize = 1 << 20;

/// One end of a connection. Clones are the same end.
#[derive(Clone)]
pub(super) struct Connection(Arc<ConnectionInner>);

struct ConnectionInner {
    state: Mutex<ConnectionState>,
    lines: mpsc::Sender<OutgoingLine>,
}

#[derive(Default)]
struct ConnectionState {
    /// The id of the last request.
    last_id: u64,
    pending: HashMap<u64, oneshot::Sender<Result<Bytes, RpcError>>>,
    is_open: bool,
    has_ended: bool,
}

enum OutgoingLine {
    Message(Vec<u8>),
    /// The plugin's standard input ends.
    End,
}

/// A request of the plugin.
pub(super) struct PluginRequest {
    /// JSON text.
    pub(super) id: String,
    pub(super) method: String,
    /// JSON text; empty if there are none.
    pub(super) params: Bytes,
}

/// What comes from the plugin besides responses.
pub(super) struct PluginOutput {
    pub(super) requests: mpsc::Receiver<PluginRequest>,
    /// Why nothing comes any more.
    pub(super) end: JoinHandle<OutputEnd>,
    /// Ends when the plugin's standard input does.
    pub(super) input: JoinHandle<()>,
}

/// Why the output of a plugin ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputEnd {
    Closed,
    /// A line has more than so many bytes.
    TooLong(u64),
    /// It sent a message before it answered `initialize`.
    TooEarly,
}

/// The connection ended before a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectionEnd;

impl Connection {
    /// Connects with a plugin whose lines have up to `max_line` bytes.
    pub(super) fn new(
        stdin: impl AsyncWrite + Unpin + Send + 'static,
        stdout: impl AsyncRead + Unpin + Send + 'static,
        max_line: u64,
        log: MessageLog,
    ) -> (Self, PluginOutput) {
        let (lines, written) = mpsc::channel(MAX_WAITING);
        let (requests, received) = mpsc::channel(MAX_REQUESTS);
        let connection = Connection(Arc::new(ConnectionInner { state: Mutex::default(), lines }));
        let input = tokio::spawn(write(stdin, written));
        let reader = Reader { connection: connection.clone(), requests, log };
        let end = tokio::spawn(reader.read(stdout, max_line));
        (connection, PluginOutput { requests: received, end, input })
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the plugin has answered its first request, `initialize`. From then on, it may send requests and
    /// notifications.
    pub(super) fn is_open(&self) -> bool {
        self.state().is_open
    }

    /// Ends all requests. None can be made any more.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        state.pending.clear();
    }

    /// Makes a request. `params` is JSON text. Dropping it gives the response up.
    pub(super) async fn request(
        &self,
        method: &str,
        params: &[u8],
    ) -> Result<Result<Bytes, RpcError>, ConnectionEnd> {
        let (sender, response) = oneshot::channel();
        let id = {
            let mut state = self.state();
            if state.has_ended {
                return Err(ConnectionEnd);
            }
            state.last_id += 1;
            let id = state.last_id;
            state.pending.insert(id, sender);
            id
        };
        let _pending = PendingRequest { connection: self, id };
        self.send(OutgoingLine::Message(message::request(id, method, params))).await?;
        response.await.map_err(|_| ConnectionEnd)
    }

    /// `params` is JSON text.
    pub(super) async fn notify(&self, method: &str, params: &[u8]) -> Result<(), ConnectionEnd> {
        self.send(OutgoingLine::Message(message::notification(method, params))).await
    }

    /// Answers a request of the plugin.
    pub(super) async fn respond(
        &self,
        id: &str,
        outcome: &Result<Vec<u8>, RpcError>,
    ) -> Result<(), ConnectionEnd> {
        self.send(OutgoingLine::Message(message::response(id, outcome))).await
    }

    /// Ends the plugin's standard input after what was sent before.
    pub(super) async fn end_input(&self) -> Result<(), ConnectionEnd> {
        self.send(OutgoingLine::End).await
    }

    /// Sends a line, unless others wait. Who reads the plugin's output must not wait for the plugin.
    fn send_if_ready(&self, line: Vec<u8>) {
        let _ = self.0.lines.try_send(OutgoingLine::Message(line));
    }

    async fn send(&self, line: OutgoingLine) -> Result<(), ConnectionEnd> {
        self.0.lines.send(line).await.map_err(|_| ConnectionEnd)
    }
}

/// A request without a response.
struct PendingRequest<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.connection.state().pending.remove(&self.id);
    }
}

async fn write(mut stdin: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<OutgoingLine>) {
    while let Some(OutgoingLine::Message(line)) = lines.recv().await {
        if stdin.write_all(&line).await.and(stdin.flush().await).is_err() {
            return;
        }
    }
}

struct Reader {
    connection: Connection,
    requests: mpsc::Sender<PluginRequest>,
    log: MessageLog,
}

impl Reader {
    async fn read(mut self, stdout: impl AsyncRead + Unpin, max_line: u64) -> OutputEnd {
        let mut stdout = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            // One byte more, for the end of the line.
            let read = (&mut stdout).take(max_line.saturating_add(1)).read_until(b'\n', &mut line).await;
            match line.pop_if(|last| *last == b'\n') {
                Some(_) if read.is_ok() => {}
                None if line.len() as u64 > max_line => return OutputEnd::TooLong(max_line),
                _ => return OutputEnd::Closed,
            }
            let line = Bytes::from(line);
            let message = IncomingMessage::parse(&line);
            let is_allowed = matches!(message, IncomingMessage::Response { .. } | IncomingMessage::Noise);
            if !is_allowed && !self.connection.is_open() {
                return OutputEnd::TooEarly;
            }
            self.take(message, &line);
        }
    }

    fn take(&mut self, message: IncomingMessage, line: &[u8]) {
        match message {
            IncomingMessage::Response { id, outcome } => {
                // A response to a request that was given up is not needed any more.
                let pending = {
                    let mut state = self.connection.state();
                    let pending = state.pending.remove(&id);
                    state.is_open |= pending.is_some();
                    pending
                };
                if let Some(pending) = pending {
                    let _ = pending.send(outcome);
                }
            }
            IncomingMessage::Request { id, params, .. } if params.len() > MAX_PARAMS_BYTES => {
                self.refuse(&id, INVALID_PARAMS, "`params` may have up to 1 MiB");
            }
            IncomingMessage::Request { id, method, params } => {
                let request = PluginRequest { id, method, params };
                if let Err(TrySendError::Full(request)) = self.requests.try_send(request) {
                    self.refuse(&request.id, TOO_MANY_REQUESTS, "too many requests at the same time");
                }
            }
            IncomingMessage::Notification { method, params } => {
                if self.log.notification(&method, &params).is_first_dropped() {
                    self.connection.send_if_ready(message::notification("system.rate_limited", b"{}"));
                }
            }
            IncomingMessage::Batch => {
                self.log.warning("the plugin sent a batch, which kaged doesn't allow");
                self.refuse("null", INVALID_REQUEST, "batches are not allowed");
            }
            IncomingMessage::Invalid => {
                self.log.warning("the plugin sent an object that is no JSON-RPC message")
            }
            IncomingMessage::Noise if line.trim_ascii().is_empty() => {}
            IncomingMessage::Noise => self.log.noise(line),
        }
    }

    fn refuse(&self, id: &str, code: i64, message: &str) {
        let refusal = Err(RpcError { code, message: message.to_owned() });
        self.connection.send_if_ready(message::response(id, &refusal));
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
pub(super) mod tests;
