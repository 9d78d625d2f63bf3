//! The parts of docs/openapi.json that follow from the code's own tables, and the test that compares them: what every
//! extension point has, the error answers of every operation, the error codes, and the server of each path. Everything
//! else is written by hand in the same file. Knows nothing of how answers are checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use hookgate::core::{block_status::FIXED_BLOCK_STATUSES, error::Code, point::Point, step::Reason};
use hookgate_tests::repository;
use http::StatusCode;
use tonic::Code as Grpc;

use super::ordered_json::OrderedJson;

/// Codes that no answer to a call has: nothing is written on the data port, there are no records, nobody is left to
/// receive CANCELLED, and the others are for other paths and methods.
const NEVER_IN_A_CALL: [Code; 13] = [
    Code::Conflict,
    Code::ConfigInvalid,
    Code::RecordUnavailable,
    Code::Cancelled,
    Code::NotFound,
    Code::MethodNotAllowed,
    Code::ModelUnknown,
    Code::Unsupported,
    Code::UpstreamUnavailable,
    Code::UpstreamTimeout,
    Code::UpstreamCredential,
    Code::UpstreamBadAnswer,
    Code::AnswerTooLarge,
];

/// What an operator's operation can answer because it reads a body.
const BODY_ERRORS: [Code; 3] = [Code::PayloadTooLarge, Code::ContentType, Code::Overloaded];

/// Every point's operation, responses and schemas, with `POINT` and `OPERATION` for its names.
const POINT: &str = include_str!("point.json");

/// What `before_tool_call` has besides.
const TOOL_ANSWER: &str = include_str!("tool_answer.json");

/// An error answer that must not be cached.
const ERROR_RESPONSE: &str = include_str!("error_response.json");

/// Where the paths of the LLM proxy begin, and the error answers there: in the form of that API.
const MODEL_PATHS: [(&str, &str); 2] = [
    ("/openai/", include_str!("model_error_response.json")),
    ("/anthropic/", include_str!("messages_error_response.json")),
];

/// The operation of agents that is no point's and has errors of plugins.
const HOOK_PATH: &str = "/v1/hooks/{hook}";

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// The form of error answers to a path of the LLM proxy; `None` for another path.
fn model_error_form(path: &str) -> Option<&'static str> {
    MODEL_PATHS.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, form)| *form)
}

fn reference(kind: &str, name: &str) -> OrderedJson {
    OrderedJson::Object(vec![("$ref".to_owned(), format!("#/components/{kind}/{name}").into())])
}

/// The codes of `names`, in the order of the error table.
fn codes<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Code> {
    let known = |name| Code::from_name(name).unwrap_or_else(|| panic!("`x-errors`: there is no code {name}"));
    let listed: Vec<_> = names.into_iter().map(known).collect();
    Code::ALL.iter().copied().filter(|code| listed.contains(code)).collect()
}

fn names(codes: &[Code]) -> OrderedJson {
    codes.iter().map(|code| OrderedJson::from(code.as_str())).collect()
}

fn listed(codes: &[Code]) -> String {
    codes.iter().map(|code| code.as_str()).collect::<Vec<_>>().join(", ")
}

fn by_status(codes: &[Code]) -> BTreeMap<u16, Vec<Code>> {
    let mut statuses: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in codes {
        statuses.entry(code.http()).or_default().push(*code);
    }
    statuses
}

/// `before_tool_call` as `BeforeToolCall`.
fn type_name(point: Point) -> String {
    let capitalised = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    point.as_str().split('_').map(capitalised).collect()
}

fn point_path(point: Point) -> String {
    format!("/v1/{}", point.as_str().replace('_', "-"))
}

/// `x-servers` has the server of each port.
fn set_servers(document: &mut OrderedJson) {
    let servers = document.at(&["x-servers"]).clone();
    let of = |ports: &[&str]| ports.iter().map(|port| servers.at(&[port]).clone()).collect::<OrderedJson>();
    document.set("servers", of(&["data"]));
    for (path, item) in document.at_mut(&["paths"]).object_mut() {
        match path.as_str() {
            "/openapi.json" => item.set("servers", of(&["data", "ops"])),
            path if path.starts_with("/admin/") => item.set("servers", of(&["admin"])),
            path if path.starts_with("/v1/") || model_error_form(path).is_some() => {}
            _ => item.set("servers", of(&["ops"])),
        }
    }
}

fn set_error_table(schemas: &mut OrderedJson) {
    let mut explained =
        "Why there is no decision. The set is closed and its names are reserved.\n".to_owned();
    for code in Code::ALL {
        let (status, meaning, remedy) = (code.http(), code.meaning(), code.remedy());
        explained.push_str(&format!("\n- `{code}` ({status}): {meaning}. {remedy}."));
    }
    let mut code = OrderedJson::parse(r#"{ "type": "string" }"#);
    code.set("description", explained);
    code.set("enum", names(Code::ALL));
    schemas.set("ErrorCode", code);

    let pairs = by_status(Code::ALL).into_iter().map(|(status, codes)| {
        OrderedJson::parse(&format!(
            r#"{{
                "required": ["status", "code"],
                "properties": {{ "status": {{ "const": {status} }}, "code": {{ "enum": {} }} }}
            }}"#,
            names(&codes)
        ))
    });
    schemas.at_mut(&["Error"]).set("oneOf", pairs.collect::<OrderedJson>());

    let answers = [None, Some(Grpc::Unavailable), Some(Grpc::DeadlineExceeded), Some(Grpc::Internal)];
    let of_reason = |reason: &Reason| answers.map(|status| Code::for_step(*reason, status).as_str());
    let of_steps = codes(Reason::ALL.iter().flat_map(of_reason));
    let OrderedJson::Array(alternatives) = schemas.at_mut(&["Error", "anyOf"]) else {
        panic!("`anyOf` of an error is a list: a step failed at a point, at a hook, or none did");
    };
    for with_step in &mut alternatives[..2] {
        with_step.at_mut(&["properties", "code"]).set("enum", names(&of_steps));
    }
}

/// The error answers of a point's operation, by status.
fn point_errors(name: &str) -> Vec<(String, OrderedJson)> {
    let in_calls: Vec<_> = Code::ALL.iter().copied().filter(|code| !NEVER_IN_A_CALL.contains(code)).collect();
    let errors = by_status(&in_calls);
    let mut blocks: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for (code, status) in FIXED_BLOCK_STATUSES {
        blocks.entry(*status).or_default().push(code);
    }
    let statuses: BTreeSet<u16> = errors.keys().chain(blocks.keys()).copied().collect();
    let answer = |status: u16| {
        let component = match (status, errors.contains_key(&status)) {
            (401, _) => format!("{name}Unauthorized"),
            (503, _) => "Unavailable".to_owned(),
            (500.., _) => "Failed".to_owned(),
            (_, true) => format!("{name}Refused"),
            (_, false) => format!("{name}Blocked"),
        };
        let mut parts: Vec<String> = errors.get(&status).map(|codes| listed(codes)).into_iter().collect();
        parts.extend(blocks.get(&status).map(|codes| block_codes(status, codes)));
        let text = parts.join("; the ");
        let text = if errors.contains_key(&status) { text } else { format!("The {text}") };
        (status.to_string(), described(&component, format!("{text}.")))
    };
    let mut answers: Vec<_> = statuses.into_iter().map(answer).collect();
    let configured = "Block codes that `block_status` or `plugins[].block_status` gives another status.";
    let server_errors =
        answers.iter().position(|(status, _)| status.starts_with('5')).unwrap_or(answers.len());
    let blocked = described(&format!("{name}Blocked"), configured.to_owned());
    answers.insert(server_errors, ("4XX".to_owned(), blocked));
    answers
}

fn block_codes(status: u16, codes: &[&str]) -> String {
    let rest = if status == 403 { " and all others without a status of their own" } else { "" };
    let noun = if codes.len() > 1 || status == 403 { "block codes" } else { "block code" };
    format!("{noun} {}{rest}", codes.join(", "))
}

fn described(component: &str, description: String) -> OrderedJson {
    let mut response = reference("responses", component);
    response.set("description", description);
    response
}

/// Keeps the summary and the description of each point's operation and sets everything else.
fn set_points(document: &mut OrderedJson) {
    for point in Point::ALL {
        let name = type_name(point);
        let operation_id = name[..1].to_ascii_lowercase() + &name[1..];
        let parts = OrderedJson::parse(&POINT.replace("POINT", &name).replace("OPERATION", &operation_id));
        let mut operation = parts.at(&["operation"]).clone();
        let path = point_path(point);
        for text in ["summary", "description"] {
            operation.set(text, document.at(&["paths", &path, "post", text]).clone());
        }
        operation.at_mut(&["responses"]).object_mut().extend(point_errors(&name));
        *document.at_mut(&["paths", &path, "post"]) = operation;
        for kind in ["responses", "schemas"] {
            for (component, value) in parts.at(&[kind]).members() {
                document.at_mut(&["components", kind]).set(component, value.clone());
            }
        }
        if point == Point::BeforeToolCall {
            set_tool_answer(document, &path);
        }
        // Not every point has an example of an error.
        let error = format!("{name}Error");
        if document.at(&["components", "examples"]).get(&error).is_none() {
            let refused = ["components", "responses", &format!("{name}Refused"), "content"];
            let content = document.at_mut(&refused).at_mut(&["application/problem+json", "examples"]);
            content.object_mut().retain(|(example, _)| example != "error");
        }
    }
}

/// Adds the answers with a tool's result.
fn set_tool_answer(document: &mut OrderedJson, path: &str) {
    let parts = OrderedJson::parse(TOOL_ANSWER);
    *document.at_mut(&["paths", path, "post", "responses", "200"]) = parts.at(&["200"]).clone();
    let schemas = document.at_mut(&["components", "schemas"]);
    schemas.set("BeforeToolCallAnswer", parts.at(&["schema"]).clone());
    let request = schemas.at_mut(&["BeforeToolCallRequest", "properties"]);
    request.set("takes_results", parts.at(&["takes_results"]).clone());
}

/// The codes of an operation that is no point's: those of its security scheme, its own, and those of its body.
fn operation_codes(schemes: &OrderedJson, operation: &OrderedJson) -> Vec<Code> {
    let scheme = schemes.at(&[scheme(operation).expect("an operation with a token"), "x-errors"]);
    let own = operation.get("x-errors").map(OrderedJson::texts).unwrap_or_default();
    let of_body = operation.get("requestBody").map(|_| BODY_ERRORS.map(Code::as_str)).into_iter().flatten();
    codes(scheme.texts().into_iter().chain(own).chain(of_body))
}

/// The security scheme of an operation; `None` if it takes no token.
fn scheme(operation: &OrderedJson) -> Option<&str> {
    match operation.get("security") {
        Some(OrderedJson::Array(schemes)) => {
            schemes.first()?.members().first().map(|(name, _)| name.as_str())
        }
        _ => None,
    }
}

/// The name of the response for a status, such as `NotFound`.
fn response_name(status: u16) -> String {
    let status = StatusCode::from_u16(status).expect("statuses of the error table are valid");
    status.canonical_reason().expect("they all have names").replace(' ', "")
}

fn error_response(status: u16, codes: &[Code], examples: &OrderedJson) -> OrderedJson {
    let mut response = OrderedJson::parse(ERROR_RESPONSE);
    response.set("description", format!("{}.", listed(codes)));
    let header = match status {
        401 => Some(("WWW-Authenticate", "BearerChallenge")),
        403 => Some(("WWW-Authenticate", "Challenge")),
        // CONFLICT has it after too many concurrent writes.
        409 | 503 => Some(("Retry-After", "RetryAfter")),
        _ => None,
    };
    if let Some((name, component)) = header {
        response.at_mut(&["headers"]).set(name, reference("headers", component));
    }
    let known = codes.iter().map(|code| code.as_str()).filter(|code| examples.get(code).is_some());
    let known: Vec<_> = known.map(|code| (code.to_owned(), reference("examples", code))).collect();
    if !known.is_empty() {
        let content = response.at_mut(&["content", "application/problem+json"]);
        content.set("examples", OrderedJson::Object(known));
    }
    response
}

/// An error answer of the LLM proxy. Requests to models, which have a body, can be blocked by plugins.
fn model_error_response(form: &str, status: u16, codes: &[Code], can_be_blocked: bool) -> OrderedJson {
    let mut response = OrderedJson::parse(form);
    let is_block_status = can_be_blocked && matches!(status, 400 | 429);
    let or_a_block = if is_block_status { "; a block of a plugin" } else { "" };
    response.set("description", format!("{}{or_a_block}.", listed(codes)));
    let headers = response.at_mut(&["headers"]);
    if is_block_status {
        headers.set("Hookgate-Decision", reference("headers", "HookgateDecisionBlock"));
    }
    match status {
        401 => headers.set("WWW-Authenticate", reference("headers", "BearerChallenge")),
        403 => headers.set("WWW-Authenticate", reference("headers", "Challenge")),
        429 | 503 => headers.set("Retry-After", reference("headers", "RetryAfter")),
        _ => {}
    }
    response
}

/// The operations with a token that are no point's, by path and method.
fn operations(document: &OrderedJson) -> Vec<(String, &'static str, &OrderedJson)> {
    let points = Point::ALL.map(point_path);
    let paths = document.at(&["paths"]).members().iter().filter(|(path, _)| !points.contains(path));
    let all = paths.flat_map(|(path, item)| {
        METHODS.iter().filter_map(move |method| Some((path.clone(), *method, item.get(method)?)))
    });
    all.filter(|(_, _, operation)| scheme(operation).is_some()).collect()
}

/// Sets one response per status for what operators can be answered, and refers to it from every operation. An operation
/// with fewer or other codes names its own.
fn set_error_responses(document: &mut OrderedJson) {
    let schemes = document.at(&["components", "securitySchemes"]).clone();
    let mut of_operators = BTreeSet::new();
    let mut of_each = Vec::new();
    for (path, method, operation) in operations(document) {
        let codes = operation_codes(&schemes, operation);
        if scheme(operation) == Some("operator") {
            of_operators.extend(codes.iter().map(|code| code.as_str()));
        }
        let has_body = operation.get("requestBody").is_some();
        of_each.push((path, method, has_body, by_status(&codes)));
    }
    let shared = by_status(&codes(of_operators));
    let examples = document.at(&["components", "examples"]).clone();
    for (status, codes) in &shared {
        let response = error_response(*status, codes, &examples);
        document.at_mut(&["components", "responses"]).set(&response_name(*status), response);
    }
    for (path, method, has_body, statuses) in of_each {
        let responses = document.at_mut(&["paths", &path, method, "responses"]).object_mut();
        // Ranges are those of the providers' own errors.
        responses.retain(|(status, _)| status.starts_with('2') || status.ends_with("XX"));
        responses.extend(statuses.iter().map(|(status, codes)| {
            let name = response_name(*status);
            let has_other_example = |shared: &Vec<Code>| {
                shared.iter().any(|code| !codes.contains(code) && examples.get(code.as_str()).is_some())
            };
            let response = match (model_error_form(&path), shared.get(status)) {
                (Some(form), _) => model_error_response(form, *status, codes, has_body),
                _ if path == HOOK_PATH => {
                    let mut response = error_response(*status, codes, &examples);
                    // As answers to calls at points, they don't say how long they may be kept.
                    response.at_mut(&["headers"]).object_mut().retain(|(name, _)| name != "Cache-Control");
                    response
                }
                (None, Some(shared)) if shared == codes => reference("responses", &name),
                (None, Some(shared)) if !has_other_example(shared) => {
                    described(&name, format!("{}.", listed(codes)))
                }
                _ => error_response(*status, codes, &examples),
            };
            (status.to_string(), response)
        }));
    }
}

#[test]
fn the_generated_parts_are_what_the_code_says() {
    let file = repository::root().join("docs/openapi.json");
    let text = fs::read_to_string(&file).expect("docs/openapi.json can be read");
    let mut document = OrderedJson::parse(&text);
    set_servers(&mut document);
    set_error_table(document.at_mut(&["components", "schemas"]));
    set_points(&mut document);
    set_error_responses(&mut document);
    let generated = document.layout();
    if std::env::var_os("HOOKGATE_REGENERATE").is_some() {
        fs::write(&file, &generated).expect("docs can be written");
        return;
    }
    let same = text.lines().zip(generated.lines()).take_while(|(is, should_be)| is == should_be).count();
    assert!(
        text == generated,
        "docs/openapi.json is not what the code says, from line {}: run with HOOKGATE_REGENERATE=1",
        same + 1
    );
}
