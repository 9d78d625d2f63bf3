//! The answer at a path of a model's API that isn't served. Most often the client's base URL is wrong, and its SDK shows little more than the
//! message: so the answer has the form of the client's API, and names the right base URL.

use axum::body::Body;
use http::{Response, request::Parts};

use crate::{
    core::{
        api_format::ApiFormat,
        error::{Code, Error},
    },
    dataplane::{
        call::Gateway,
        llm::reply::{self, Client},
    },
    edge::request_meta::RequestMeta,
    json::pointer::cut,
};

/// What clients of the APIs put behind their base URL.
const ENDS: [(&str, Option<ApiFormat>); 6] = [
    ("/chat/completions", Some(ApiFormat::Openai)),
    ("/responses", Some(ApiFormat::Openai)),
    ("/embeddings", Some(ApiFormat::Openai)),
    ("/messages", Some(ApiFormat::Anthropic)),
    ("/messages/count_tokens", Some(ApiFormat::Anthropic)),
    ("/models", None),
];

/// The segments of a path that can only be a part of a wrong base URL.
const BASE_SEGMENTS: [&str; 4] = ["", "v1", "openai", "anthropic"];

/// A header that all clients of Anthropic's API send.
const ANTHROPIC_VERSION: &str = "anthropic-version";

/// The answer to a request whose path no route has, unless it has nothing to do with models.
pub(in crate::dataplane) fn answer(gateway: &Gateway, head: &Parts) -> Option<Response<Body>> {
    let path = head.uri.path();
    let asked = api_of(path, head.headers.contains_key(ANTHROPIC_VERSION));
    let (api, is_base_wrong) = asked?;
    let snapshot = gateway.snapshots.current();
    let detail = detail(api, path, is_base_wrong, snapshot.llm.is_some());
    let client = Client { api, meta: &RequestMeta::now() };
    Some(reply::of_error(client, &Error::new(Code::NotFound, detail), snapshot.limits.detail))
}

/// The API whose client asks at `path`, and whether its base URL must be wrong. `None` for a path of neither.
fn api_of(path: &str, has_version: bool) -> Option<(ApiFormat, bool)> {
    let of_prefix = if path.starts_with("/anthropic/") {
        Some(ApiFormat::Anthropic)
    } else {
        path.starts_with("/openai/").then_some(ApiFormat::Openai)
    };
    let asked = if of_prefix.is_none() { path.trim_end_matches('/') } else { path };
    let ends = ENDS.iter().find_map(|(end, api)| Some((asked.strip_suffix(end)?, *api)));
    // Below the prefixes a path may be of a part that isn't served, such as `/openai/v1/threads/ID/messages`.
    let is_base =
        |base: &str| of_prefix.is_none() || base.split('/').all(|segment| BASE_SEGMENTS.contains(&segment));
    match ends.filter(|(base, _)| is_base(base)) {
        Some((_, of_end)) => {
            let of_header = if has_version { ApiFormat::Anthropic } else { ApiFormat::Openai };
            Some((of_end.or(of_prefix).unwrap_or(of_header), true))
        }
        None => of_prefix.map(|api| (api, false)),
    }
}

fn detail(api: ApiFormat, path: &str, is_base_wrong: bool, has_llm: bool) -> String {
    let path = cut(path);
    let path = path.escape_debug();
    match (has_llm, is_base_wrong) {
        (false, _) => format!(
            "There is no path `{path}`: this gateway serves no models, because its configuration has no `llm`"
        ),
        (true, true) => {
            let base = api.client_path();
            let without = match api {
                ApiFormat::Openai => "",
                ApiFormat::Anthropic => ", without `/v1`",
            };
            format!(
                "There is no path `{path}`. Set the client's base URL to the gateway's address with `{base}` at its end{without}"
            )
        }
        (true, false) => format!("There is no path `{path}`. {}", served(api)),
    }
}

const fn served(api: ApiFormat) -> &'static str {
    match api {
        ApiFormat::Openai => {
            "The gateway serves /openai/v1/chat/completions, /openai/v1/responses, /openai/v1/embeddings and /openai/v1/models only: what \
             passes elsewhere could not be judged"
        }
        ApiFormat::Anthropic => {
            "The gateway serves /anthropic/v1/messages, /anthropic/v1/messages/count_tokens and /anthropic/v1/models only: what passes \
             elsewhere could not be judged"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENAI: Option<(ApiFormat, bool)> = Some((ApiFormat::Openai, true));
    const ANTHROPIC: Option<(ApiFormat, bool)> = Some((ApiFormat::Anthropic, true));

    #[test]
    fn the_end_of_a_path_tells_the_client_and_that_its_base_url_is_wrong() {
        for (path, expected) in [
            ("/chat/completions", OPENAI),
            ("/v1/chat/completions", OPENAI),
            ("/v1/responses", OPENAI),
            ("/proxy/v1/embeddings", OPENAI),
            ("/openai/chat/completions", OPENAI),
            ("/openai/v1/v1/chat/completions", OPENAI),
            ("/anthropic/chat/completions", OPENAI),
            ("/v1/models", OPENAI),
            ("/openai/models", OPENAI),
            ("/v1/chat/completions/", OPENAI),
            ("/v1/messages", ANTHROPIC),
            ("/v1/messages/count_tokens", ANTHROPIC),
            ("/anthropic/v1/v1/messages", ANTHROPIC),
            ("/openai/v1/v1/messages", ANTHROPIC),
            ("/anthropic/v1/v1/models", ANTHROPIC),
        ] {
            assert_eq!(api_of(path, false), expected, "{path}");
        }
        assert_eq!(api_of("/v1/models", true), ANTHROPIC);
        assert_eq!(api_of("/v1/chat/completions", true), OPENAI, "the path says more than the header");
    }

    #[test]
    fn a_part_of_an_api_that_is_not_served_is_no_wrong_base_url() {
        for path in
            ["/openai/v1/files", "/openai/v1/threads/t/messages", "/openai/v1/responses/", "/openai/v2"]
        {
            assert_eq!(api_of(path, false), Some((ApiFormat::Openai, false)), "{path}");
        }
        assert_eq!(api_of("/anthropic/v1/files", false), Some((ApiFormat::Anthropic, false)));
    }

    #[test]
    fn a_path_of_no_model_is_of_neither_api() {
        for path in ["/", "/v1/before-tool-call/x", "/openai", "/v1/modelss", "/admin/v1/status"] {
            assert_eq!(api_of(path, true), None, "{path}");
        }
    }

    #[test]
    fn a_path_is_shown_in_part_and_without_what_a_terminal_would_obey() {
        let path = format!("/\u{202e}{}/v1/messages", "x".repeat(1000));
        let said = detail(ApiFormat::Anthropic, &path, true, true);
        assert!(said.starts_with(r"There is no path `/\u{202e}xxx") && said.len() < 300, "{said}");
    }
}
