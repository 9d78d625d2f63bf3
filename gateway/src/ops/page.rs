//! The page at `/` of the ops port: the gateway's state at a glance. The port needs no token, so the page
//! shows only counts and times, and no name, address or tenant. It loads no resources and runs no scripts.

use std::sync::{Arc, LazyLock};

use axum::{
    extract::State,
    response::{Html, IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, header};
use sha2::{Digest, Sha256};

use crate::{
    ops::status::{ConfigurationReport, StatusSource, StatusView},
    snapshot::readiness::Waits,
};

/// Names in double braces are replaced by values.
const TEMPLATE: &str = include_str!("page.html");

/// Allows only the page's own style, and no framing.
static PAGE_CSP: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = between(TEMPLATE, "<style>", "</style>").map_or("", |(_, style, _)| style);
    let hash = STANDARD.encode(Sha256::digest(style));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).expect("base64 and ASCII make a header")
});

/// Answers `GET /`.
pub(crate) async fn page(State(overview): State<Arc<StatusSource>>) -> Response {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (header::CONTENT_SECURITY_POLICY, PAGE_CSP.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, Html(render(&overview.status()))).into_response()
}

fn render(status: &StatusView<'_>) -> String {
    fill(TEMPLATE, |name| match name {
        "class" => if status.ready { "ready" } else { "waits" }.to_owned(),
        "readiness" => readiness(status.waiting_for.as_ref()),
        "version" => status.version.to_owned(),
        "uptime" => duration(status.uptime_s),
        "instance" => status.instance.to_owned(),
        "revision" => status.revision.to_string(),
        "configuration" => configuration(&status.configuration),
        "tenants" => tenants(status),
        state => status.plugins.get(state).copied().unwrap_or_default().to_string(),
    })
}

/// The name of a missing plugin is not public, so only the kind of blocker is shown.
fn readiness(waiting_for: Option<&Waits>) -> String {
    waiting_for.map_or("ready".to_owned(), |waits| format!("not ready: {}", waits.what))
}

fn tenants(status: &StatusView<'_>) -> String {
    let tenants = &status.tenants;
    let others = if tenants.accepts_unlisted { "served" } else { "refused" };
    format!("{} listed, {} of them disabled; unlisted tenants are {others}", tenants.listed, tenants.disabled)
}

/// The errors in the file are not public.
fn configuration(configuration: &ConfigurationReport) -> String {
    match &configuration.rejected {
        None => format!("active for {}", duration(configuration.age_s)),
        Some(refused) => {
            let ago = duration(refused.age_s);
            format!("the file was rejected {ago} ago: see the log")
        }
    }
}

/// A duration such as `3 d 4 h 5 min`: the largest nonzero unit and all smaller ones.
pub fn duration(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let parts: Vec<_> = parts.iter().skip_while(|(number, _)| *number == 0).collect();
    if parts.is_empty() {
        return "0 s".to_owned();
    }
    parts.iter().map(|(number, unit)| format!("{number} {unit}")).collect::<Vec<_>>().join(" ")
}

/// Replaces names by escaped values in a single pass, so that names in values are not replaced.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut page = String::with_capacity(2 * template.len());
    let mut rest = template;
    while let Some((before, name, after)) = between(rest, "{{", "}}") {
        page.push_str(before);
        escape(&value(name), &mut page);
        rest = after;
    }
    page + rest
}

/// The text before `open`, between `open` and `close`, and after `close`.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, rest) = text.split_once(open)?;
    let (inside, after) = rest.split_once(close)?;
    Some((before, inside, after))
}

/// Escapes text for use in an element or in a quoted attribute.
fn escape(text: &str, page: &mut String) {
    for c in text.chars() {
        match c {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            other => page.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{ops::status::TenantsView, snapshot::reload_status::ReloadStatus, upstream};

    fn status(instance: &str) -> StatusView<'_> {
        let numbered = upstream::State::ALL.iter().enumerate();
        StatusView {
            store: None,
            version: "1.2.3",
            instance,
            uptime_s: 93_784,
            ready: false,
            waiting_for: Some(Waits { what: "draining", which: Some(Arc::new("a secret".into())) }),
            revision: 7,
            tenants: TenantsView { listed: 12, disabled: 3, accepts_unlisted: true },
            plugins: numbered.map(|(index, state)| (state.as_str(), 100 + index)).collect::<BTreeMap<_, _>>(),
            configuration: ConfigurationReport::of(
                &ReloadStatus::now(Vec::new()).but(vec!["a secret".into()]),
            ),
        }
    }

    #[test]
    fn the_page_says_all_that_the_status_says() {
        let page = render(&status("an-instance"));
        for said in [
            "1.2.3",
            "an-instance",
            "1 d 2 h 3 min 4 s",
            "not ready: draining",
            "rejected 0 s ago",
            "<td>7</td>",
            "12 listed, 3 of them",
        ] {
            assert!(page.contains(said), "{said}: {page}");
        }
        for (index, state) in upstream::State::ALL.iter().enumerate() {
            let row = format!("<th scope=\"row\">{state}</th><td>{}</td>", 100 + index);
            assert!(page.contains(&row), "{row}: {page}");
        }
        assert!(!page.contains("{{"), "{page}");
        assert!(!page.contains("a secret"), "{page}");
    }

    #[test]
    fn what_is_put_in_is_text_and_never_markup_or_a_name() {
        let page = render(&status("<script>'\"&{{version}}"));
        assert!(page.contains("&lt;script&gt;&#39;&quot;&amp;{{version}}"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn short_times_are_said_without_long_units() {
        for (seconds, said) in [(0, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (86_400, "1 d 0 h 0 min 0 s")] {
            assert_eq!(duration(seconds), said);
        }
    }
}
