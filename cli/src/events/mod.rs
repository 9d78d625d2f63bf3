//! `hookgate events`: shows recent events of a gateway's process and follows new ones, reconnecting when a connection
//! ends. Knows nothing of the kinds of events.

use std::{
    io::{self, ErrorKind, Write},
    time::Duration,
};

use clap::{Args, ValueEnum};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use tokio::time::{Instant, sleep};

use crate::{
    Exit,
    client::{self, AdminPortArgs, Answer, ApiClient, EventsResponse},
    output::{self, note, printable},
};
use hookgate::config::Span;

mod line;

/// Longest wait for a gateway's answer.
const REQUEST_TIMEOUT: Span = Span(Duration::from_secs(10));
/// Delay between two attempts to reconnect: the first and the longest.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The filters and the gateway.
#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Keeps showing new events until Ctrl-C. A lost connection is resumed after the last event.
    #[arg(long, short)]
    follow: bool,
    /// Name of an event, or a glob such as `plugin.*`; repeat it to match any of several.
    #[arg(long = "event", value_name = "GLOB")]
    events: Vec<String>,
    /// Only events about this plugin.
    #[arg(long)]
    plugin: Option<String>,
    /// Only events about this tenant's calls.
    #[arg(long)]
    tenant: Option<String>,
    /// Only events of this level or worse.
    #[arg(long, value_enum)]
    level: Option<EventLevel>,
    /// Only events of the last period, such as 10m, or after the event with this id. Default with --follow: only new
    /// events.
    #[arg(long, value_name = "TIME|ID")]
    since: Option<String>,
    /// At most this many events, the newest; 1 to 1000.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: Option<u16>,
    /// Output format: lines for people, or one JSON object per line as the gateway sent it.
    #[arg(long, value_enum, default_value_t)]
    output: EventFormat,
    #[command(flatten)]
    gateway: AdminPortArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EventLevel {
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum EventFormat {
    #[default]
    Table,
    Json,
}

pub(super) async fn run(asked: &EventsArgs) -> Exit {
    let asker = match asked.gateway.asker(REQUEST_TIMEOUT, "see its log").await {
        Ok(asker) => asker,
        Err(wrong) => return Exit::usage(wrong),
    };
    if !asked.follow {
        return look(asked, &asker).await;
    }
    tokio::select! {
        exit = follow(asked, &asker) => exit,
        // Ctrl-C is the normal end. If no handler can be installed, the signal ends the process itself.
        Ok(()) = tokio::signal::ctrl_c() => Exit::ok(),
    }
}

/// Shows the kept events.
#[derive(Deserialize)]
struct EventHistory {
    events: Vec<Box<RawValue>>,
    dropped: bool,
}

async fn look(asked: &EventsArgs, asker: &ApiClient) -> Exit {
    let answer = match asker.ask(Method::GET, &path(asked, asked.since.as_deref(), asked.limit), None).await {
        Ok(answer) => answer,
        Err(unanswered) => return Exit::failure(unanswered),
    };
    if answer.status != 200 {
        return refusal_exit(&answer);
    }
    let Ok(kept) = serde_json::from_str::<EventHistory>(&answer.text) else {
        return Exit::failure(asker.strange(answer.status));
    };
    if kept.dropped {
        note("some events of that period are no longer kept");
    }
    for event in kept.events {
        if let Some(exit) = asked.output.print(event.get()) {
            return exit;
        }
    }
    Exit::ok()
}

async fn follow(asked: &EventsArgs, asker: &ApiClient) -> Exit {
    let began = Instant::now();
    let (mut last, mut connected, mut wait) = (None::<String>, false, MIN_RETRY_DELAY);
    loop {
        // After a reconnect fetch everything that was missed, regardless of --limit.
        let limit = asked.limit.filter(|_| !connected);
        let path = path(asked, since(asked, connected, began).as_deref(), limit);
        let why = match asker.events(&path, last.as_deref()).await {
            Ok(EventsResponse::Events(mut events)) => {
                if connected {
                    note("connected again");
                }
                connected = true;
                match hear(&mut events, &mut last, &mut wait, asked.output).await {
                    Ok(why) => why,
                    Err(exit) => return exit,
                }
            }
            // An overloaded or draining gateway: another replica may accept.
            Ok(EventsResponse::Refused(answer)) if connected && answer.status >= 500 => answer.error(),
            Ok(EventsResponse::Refused(answer)) => return refusal_exit(&answer),
            Err(unanswered) if !connected => return Exit::failure(unanswered),
            Err(unanswered) => unanswered,
        };
        note(&format!("{why}; trying again in {}", Span(wait)));
        sleep(wait).await;
        wait = (wait * 2).min(MAX_RETRY_DELAY);
    }
}

/// Shows the events of one connection.
///
/// # Errors
/// The exit, if there must be no retry. Otherwise prints why the connection ended.
async fn hear(
    events: &mut client::Events,
    last: &mut Option<String>,
    wait: &mut Duration,
    shown: EventFormat,
) -> Result<String, Exit> {
    loop {
        let sent = match events.next().await {
            Ok(sent) => sent,
            Err(why) => return Ok(why),
        };
        let (name, data) = (sent.event.unwrap_or_default(), sent.data.unwrap_or_default());
        let said: Value = serde_json::from_str(&data).unwrap_or_default();
        match (name.as_str(), said["reason"].as_str().unwrap_or_default()) {
            ("events.dropped", _) => note(&match said["count"].as_u64() {
                Some(count) => {
                    format!("{count} events are missing here: they arrived faster than they were read")
                }
                None => "events may be missing here: they are no longer kept".to_owned(),
            }),
            ("events.ended", "draining") => return Ok("the gateway is shutting down".into()),
            ("events.ended", "token_expired") => {
                return Err(Exit::failure("the token has expired: get a new one from its issuer"));
            }
            ("events.ended", why) => {
                let why = printable(why);
                return Err(Exit::failure(format!("the gateway ended the stream: {why}")));
            }
            _ => {
                // Reset the delay only after an event, so that a connection that always ends at once isn't hammered.
                *wait = MIN_RETRY_DELAY;
                *last = sent.id.or(last.take());
                if let Some(exit) = shown.print(&data) {
                    return Err(exit);
                }
            }
        }
    }
}

/// The start of the next request. If a connection ends before its first event, nothing in between is skipped.
fn since(asked: &EventsArgs, connected: bool, began: Instant) -> Option<String> {
    if !connected {
        return asked.since.clone();
    }
    let before = match &asked.since {
        None => Duration::ZERO,
        Some(text) => match text.parse::<Span>() {
            Ok(span) => span.0,
            Err(_) => return Some(text.clone()),
        },
    };
    Some(format!("{}ms", (before + began.elapsed()).as_millis()))
}

fn path(asked: &EventsArgs, since: Option<&str>, limit: Option<u16>) -> String {
    let mut path = format!("/admin/v1/events?follow={}", asked.follow);
    let mut add = |name: &str, value: &str| {
        path += &format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
    };
    asked.events.iter().for_each(|glob| add("event", glob));
    asked.plugin.iter().for_each(|plugin| add("plugin", plugin));
    asked.tenant.iter().for_each(|tenant| add("tenant", tenant));
    since.iter().for_each(|since| add("since", since));
    limit.iter().for_each(|limit| add("limit", &limit.to_string()));
    let level = asked.level.map(|level| match level {
        EventLevel::Info => "info",
        EventLevel::Warn => "warn",
        EventLevel::Error => "error",
    });
    level.iter().for_each(|level| add("level", level));
    path
}

impl EventFormat {
    /// Prints one event. Returns the exit if that fails, or if the reader is gone.
    fn print(self, event: &str) -> Option<Exit> {
        let (mut stdout, text): (Box<dyn Write>, _) = match self {
            EventFormat::Json => (Box::new(io::stdout().lock()), event.to_owned()),
            EventFormat::Table => {
                let event = serde_json::from_str(event).unwrap_or_default();
                (Box::new(output::stdout()), line::format_line(&event))
            }
        };
        match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
            Ok(()) => None,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Some(Exit::ok()),
            Err(error) => Some(Exit::failure(format!("standard output can't be written: {error}"))),
        }
    }
}

/// The exit for an error instead of events: an invalid query is a usage error.
fn refusal_exit(answer: &Answer) -> Exit {
    match answer.status {
        400 => Exit::usage(answer.error()),
        401 | 403 => Exit::failure(
            answer.error()
                + "\n  = check the token with `hookgate token inspect`, or make one with `hookgate token mint \
                   --admin`",
        ),
        _ => Exit::failure(answer.error()),
    }
}
