//! Client of the admin API for objects: joins pages into lists, and turns errors into exit codes.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::{Instant, sleep};

use crate::{
    Exit,
    client::{Answer, ApiClient},
    output::{self, Output, printable, text},
    registry::{ReadArgs, WriteArgs, render_write},
};
use hookgate::{
    config::Span,
    core::object::ObjectKind,
    registry::{document::plural, listing::MAX_PAGE_SIZE},
};

/// Longest wait for an answer: a write may wait for the database and then for the gateway to activate it, and two rounds of
/// checks of upstreams take 16 s.
const REQUEST_TIMEOUT: Span = Span(Duration::from_secs(20));
/// How long a removed plugin's last calls are waited for, and how often the gateway is asked.
const MAX_RELEASE_WAIT: Duration = Duration::from_secs(15);
const RELEASE_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Most pages of a list.
const MAX_PAGES: usize = 10_000;

/// A gateway's registry, and the output format.
pub(super) struct Registry {
    asker: ApiClient,
    pub(super) output: Output,
}

/// One write.
pub(super) struct Write {
    method: Method,
    path: String,
    body: Option<Value>,
    /// The precondition on the object's version; `None` if the path takes none.
    expected: Option<u64>,
    /// The precondition on the registry's revision, if there is one.
    revision: Option<u64>,
    /// Whether a plugin's bindings are removed with it.
    force: bool,
    /// How long a bypass lasts.
    lasts: Option<Span>,
    /// The command that shows the object.
    again: Option<String>,
}

impl Write {
    pub(super) fn put(kind: ObjectKind, name: &str, body: Value) -> Self {
        Write { method: Method::PUT, body: Some(body), ..Write::delete(kind, name) }
    }

    pub(super) fn patch(kind: ObjectKind, name: &str, body: Value) -> Self {
        Write { method: Method::PATCH, body: Some(body), ..Write::delete(kind, name) }
    }

    pub(super) fn delete(kind: ObjectKind, name: &str) -> Self {
        Write {
            method: Method::DELETE,
            path: path(kind, name),
            body: None,
            expected: None,
            revision: None,
            force: false,
            lasts: None,
            again: Some(format!("hookgate {kind} show {}", printable(name))),
        }
    }

    /// Starts a bypass of this duration, or ends it if `None`.
    pub(super) fn bypass(binding: &str, tenant: &str, lasts: Option<Span>) -> Self {
        let method = if lasts.is_some() { Method::PUT } else { Method::DELETE };
        let path = format!("{}/bypass/{}", path(ObjectKind::Binding, binding), encoded(tenant));
        Write { method, path, lasts, again: None, ..Write::delete(ObjectKind::Binding, binding) }
    }

    pub(super) fn switch(kind: ObjectKind, name: &str, on: bool) -> Self {
        match kind {
            ObjectKind::Plugin => {
                let how = if on { "enable" } else { "disable" };
                let path = format!("{}/{how}", path(kind, name));
                Write { method: Method::POST, path, ..Write::delete(kind, name) }
            }
            ObjectKind::Tenant
            | ObjectKind::Binding
            | ObjectKind::Upstream
            | ObjectKind::Model
            | ObjectKind::Bypass => Write::patch(kind, name, json!({ "enabled": on })),
        }
    }

    /// Approves a plugin's manifest.
    pub(super) fn approve(name: &str, accepted: &Value) -> Self {
        let path = format!("{}/approve", path(ObjectKind::Plugin, name));
        let body = Some(json!({ "accepted": accepted }));
        Write { method: Method::POST, path, body, ..Write::delete(ObjectKind::Plugin, name) }
    }

    /// Requires this version of the object; 0 means that it must not exist.
    pub(super) fn with_expected_version(self, version: u64) -> Self {
        Write { expected: Some(version), ..self }
    }

    /// Requires this revision of the registry.
    pub(super) fn with_expected_revision(self, revision: u64) -> Self {
        let again = self.again.or_else(|| Some("hookgate revision list".to_owned()));
        Write { revision: Some(revision), again, ..self }
    }

    /// Whether a plugin's bindings are removed with it.
    pub(super) fn with_bindings(self, force: bool) -> Self {
        Write { force, ..self }
    }

    /// A POST to a path that is not an object's.
    pub(super) fn post(path: String, body: Option<Value>) -> Self {
        let method = Method::POST;
        Write { method, path, body, expected: None, revision: None, force: false, lasts: None, again: None }
    }
}

impl Registry {
    /// Connects to the gateway that the arguments name.
    ///
    /// # Errors
    /// An argument or a profile is invalid.
    pub(super) async fn connect(asked: ReadArgs) -> Result<Self, Exit> {
        let otherwise = "create a profile with `hookgate profile set NAME --admin URL`";
        let asker = asked.gateway.asker(REQUEST_TIMEOUT, otherwise).await.map_err(Exit::usage)?;
        Ok(Registry { asker, output: asked.output })
    }

    /// GETs `path`, and returns the answer even if it is an error.
    ///
    /// # Errors
    /// No gateway answered.
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, Exit> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        self.asker.ask(method, path, body).await.map_err(Exit::failure)
    }

    /// GETs `path`.
    ///
    /// # Errors
    /// The gateway refused, or didn't answer.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, Exit> {
        let answer = self.ask(Method::GET, path, None).await?;
        if answer.status == 200 { Ok(answer) } else { Err(self.refusal_exit(&answer, None)) }
    }

    /// One object, or `None` if it does not exist.
    ///
    /// # Errors
    /// The gateway refused, or didn't answer.
    pub(super) async fn find(&self, kind: ObjectKind, name: &str) -> Result<Option<Answer>, Exit> {
        let answer = self.ask(Method::GET, &path(kind, name), None).await?;
        match answer.status {
            200 => Ok(Some(answer)),
            404 => Ok(None),
            _ => Err(self.refusal_exit(&answer, None)),
        }
    }

    /// One object that must exist.
    ///
    /// # Errors
    /// It does not exist, the gateway refused, or it didn't answer.
    pub(super) async fn existing(&self, kind: ObjectKind, name: &str) -> Result<Answer, Exit> {
        self.find(kind, name).await?.ok_or_else(|| {
            let shown = printable(name);
            Exit::failure(format!("there is no {kind} `{shown}`; see `hookgate {kind} list`"))
        })
    }

    /// All objects of a kind that match `query`, as one list.
    ///
    /// # Errors
    /// The gateway refused, or didn't answer.
    pub(super) async fn all(&self, kind: ObjectKind, query: &[(String, String)]) -> Result<Value, Exit> {
        let (members, mut cursor) = (plural(kind), None::<String>);
        let mut whole = json!({ members: [] });
        for _ in 0..MAX_PAGES {
            let mut path = format!("/admin/v1/{members}?limit={MAX_PAGE_SIZE}");
            path.extend(query.iter().map(|(key, value)| format!("&{}={}", encoded(key), encoded(value))));
            path.extend(cursor.iter().map(|cursor| format!("&cursor={}", encoded(cursor))));
            let Answer { mut body, .. } = self.get(&path).await?;
            if let (Some(all), Value::Array(page)) = (whole[members].as_array_mut(), body[members].take()) {
                all.extend(page);
            }
            // The first page's revision: later writes may be missing from this list.
            if whole.get("revision").is_none() {
                whole["revision"] = body["revision"].take();
            }
            cursor = body["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(whole)
    }

    /// The running bypasses that the caller may see. `active` says whether this gateway applies the bypass.
    ///
    /// # Errors
    /// The gateway refused, or didn't answer.
    pub(super) async fn bypasses(&self) -> Result<Vec<Value>, Exit> {
        let answer = self.ask(Method::GET, "/admin/v1/bypasses?limit=1", None).await?;
        match answer.status {
            200 => {}
            403 | 404 => return Ok(Vec::new()),
            _ => return Err(self.refusal_exit(&answer, None)),
        }
        let mut all = self.all(ObjectKind::Bypass, &[]).await?;
        let all = all["bypasses"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let now = OffsetDateTime::now_utc();
        let until = |bypass: &Value| OffsetDateTime::parse(bypass["until"].as_str()?, &Rfc3339).ok();
        let lasts = |bypass: &Value| until(bypass).is_none_or(|until| until > now);
        Ok(all.into_iter().filter(|bypass| bypass["active"] == true || lasts(bypass)).collect())
    }

    /// Writes, or previews the write with `dry_run`.
    ///
    /// # Errors
    /// The gateway refused, or didn't answer.
    pub(super) async fn write(&self, write: &Write, reason: &str, dry_run: bool) -> Result<Answer, Exit> {
        let answer = self.send(write, reason, dry_run).await?;
        if answer.status < 300 { Ok(answer) } else { Err(self.refusal_exit(&answer, write.again.as_deref())) }
    }

    /// Like [`Self::write`], but returns the answer even if it is an error.
    ///
    /// # Errors
    /// No gateway answered.
    pub(super) async fn send(&self, write: &Write, reason: &str, dry_run: bool) -> Result<Answer, Exit> {
        let mut path = format!("{}?dry_run={dry_run}", write.path);
        if !reason.is_empty() {
            path += &format!("&reason={}", encoded(reason));
        }
        path.extend(write.expected.map(|version| format!("&expected_version={version}")));
        path.extend(write.revision.map(|revision| format!("&expected_revision={revision}")));
        path.extend(write.lasts.map(|lasts| format!("&for={lasts}")));
        if write.force {
            path += "&force=true";
        }
        let mut answer = self.ask(write.method.clone(), &path, write.body.as_ref()).await?;
        if let Some(what) = self.waiting_for(&answer.body).await {
            answer.body["waiting_for"] = what.into();
            answer.text = answer.body.to_string();
        }
        Ok(answer)
    }

    /// Writes, or previews the write, and prints the result.
    ///
    /// # Errors
    /// The gateway refused, or didn't answer.
    pub(super) async fn done(&self, write: &Write, meant: &WriteArgs) -> Result<Exit, Exit> {
        let answer = self.write(write, &meant.reason, meant.dry_run).await?;
        Ok(answer.print(self.output, || render_write::table(&answer.body), render_write::exit(&answer.body)))
    }

    /// Deletes what a plugin stored. Returns how many entries there were. A plugin that was just removed may be in use
    /// for a moment longer, so it waits a little.
    ///
    /// # Errors
    /// The gateway refused, or didn't answer.
    pub(super) async fn delete_data(&self, plugin: &str, reason: &str) -> Result<u64, Exit> {
        let path = format!("{}/delete-data?reason={}", path(ObjectKind::Plugin, plugin), encoded(reason));
        let end = Instant::now() + MAX_RELEASE_WAIT;
        loop {
            let answer = self.ask(Method::POST, &path, None).await?;
            if let Some(entries) = answer.body["entries"].as_u64().filter(|_| answer.status < 300) {
                return Ok(entries);
            }
            let is_in_use = answer.status == 409 && text(&answer.body["detail"]).contains("still in use");
            if !is_in_use || Instant::now() >= end {
                return Err(self.refusal_exit(&answer, None));
            }
            sleep(RELEASE_POLL_INTERVAL).await;
        }
    }

    /// Makes the gateway check these upstreams, or all if there are no names.
    ///
    /// # Errors
    /// The gateway refused, or didn't answer.
    pub(super) async fn check_upstreams(
        &self,
        names: &[String],
        reason: Option<&str>,
    ) -> Result<Answer, Exit> {
        let names = (!names.is_empty()).then(|| format!("upstreams={}", encoded(&names.join(","))));
        let reason = reason.map(|reason| format!("reason={}", encoded(reason)));
        let query: Vec<_> = names.into_iter().chain(reason).collect();
        let path = format!("/admin/v1/check-upstreams?{}", query.join("&"));
        let answer = self.ask(Method::POST, &path, None).await?;
        if answer.status == 200 { Ok(answer) } else { Err(self.refusal_exit(&answer, None)) }
    }

    /// What the gateway is waiting for before it activates a write, if it says so.
    async fn waiting_for(&self, written: &Value) -> Option<String> {
        if written["revision"].is_null() || written["active"] == true {
            return None;
        }
        let status = self.get("/admin/v1/status").await.ok()?.body;
        status["configuration"]["waiting_for"].as_str().map(str::to_owned)
    }

    /// Prints a value that was joined from several answers.
    pub(super) fn print(&self, value: &Value, table: impl FnOnce() -> String) -> Exit {
        output::data(self.output, value, table, Exit::ok())
    }

    /// The exit for an error: 2 for an invalid request, else 1. `again` is the command that shows the object.
    pub(super) fn refusal_exit(&self, answer: &Answer, again: Option<&str>) -> Exit {
        let body = &answer.body;
        let detail = text(&body["detail"]);
        let lines = || render_write::mistakes(body);
        let exit = match body["code"].as_str().unwrap_or_default() {
            "CONFIG_INVALID" => {
                let lines = lines();
                let what = if lines.lines().count() == 1 { "a mistake" } else { "mistakes" };
                Exit::usage(format!("nothing was written because of {what}:\n{}", lines.trim_end()))
            }
            "CONFLICT" => {
                let is_overtaken = detail.contains("version") || detail.contains("is at revision");
                let again_by = again.filter(|_| is_overtaken);
                let again_by = again_by.map(|again| format!("; read it again: {again}")).unwrap_or_default();
                // A query parameter of the API is a flag here.
                let said = uncapitalised(&detail.replace("send `force=true`", "give --force"));
                Exit::failure(said + &again_by)
            }
            // A name in the path is an argument here.
            "NOT_FOUND" if detail.starts_with("There is no ") => Exit::failure(uncapitalised(&detail)),
            "PAYLOAD_INVALID" => Exit::usage(answer.error()),
            _ => Exit::failure(answer.error()),
        };
        answer.refuse(self.output, exit)
    }
}

/// The object's version, or 0 if it has none.
pub(super) fn version(object: &Value) -> u64 {
    object["version"].as_u64().unwrap_or_default()
}

pub(super) fn path(kind: ObjectKind, name: &str) -> String {
    format!("/admin/v1/{}/{}", plural(kind), encoded(name))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// `text` with a small first letter, to follow the program's name.
fn uncapitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}
