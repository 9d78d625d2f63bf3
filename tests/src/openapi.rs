//! Checks the gateway's HTTP answers against docs/openapi.json: status, headers, content type and body, and
//! the request of each successful call. It supports OpenAPI only as far as that document uses it.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex},
};

use hookgate::dataplane::http::OPENAPI;
use http::{HeaderMap, Method};
use jsonschema::{Draft, Registry, ValidationError, Validator, error::ValidationErrorKind};
use serde_json::{Map, Value, json};

use crate::agent::HttpAnswer;

/// The document.
pub static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(OPENAPI).expect("docs/openapi.json is JSON"));

/// HTTP's own headers, which the document doesn't describe.
const OF_HTTP: [&str; 5] = ["content-type", "content-length", "transfer-encoding", "date", "connection"];

/// The URI of the document in references.
const URI: &str = "urn:hookgate:openapi";

static REGISTRY: LazyLock<Registry<'static>> = LazyLock::new(|| {
    let registry = Registry::new().draft(Draft::Draft202012).add(URI, &*DOCUMENT);
    registry.and_then(|registry| registry.prepare()).expect("the document's references lead somewhere")
});

/// Compiled schemas, by their text.
static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// A port of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// For agents.
    Data,
    /// For probes and people.
    Ops,
    /// For operators with a token.
    Admin,
}

impl Port {
    /// All of them.
    pub const ALL: [Port; 3] = [Port::Data, Port::Ops, Port::Admin];

    /// Its name in `x-elsewhere`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Port::Data => "data",
            Port::Ops => "ops",
            Port::Admin => "admin",
        }
    }

    /// The configuration key that the description of its server names.
    const fn key(self) -> &'static str {
        match self {
            Port::Data => "`server.data_addr`",
            Port::Ops => "`server.ops_addr`",
            Port::Admin => "`server.admin_addr`",
        }
    }
}

/// A request that was sent.
#[derive(Debug, Clone)]
pub struct Asked {
    pub port: Port,
    pub method: Method,
    /// With the query.
    pub path: String,
    pub headers: HeaderMap,
    /// The body, if it was sent in one piece.
    pub body: Option<Vec<u8>>,
}

/// Compares an answer with the document, and also the request if the answer is a decision or another
/// success.
///
/// # Panics
/// If they differ, with the difference.
pub fn check(asked: &Asked, answer: &HttpAnswer) {
    if let Err(wrong) = compare(asked, answer) {
        let start = &answer.text[..answer.text.floor_char_boundary(2000)];
        panic!(
            "docs/openapi.json says otherwise: {} {} of the {} port, answered {}: {wrong}\n{:?}\n{start}",
            asked.method,
            asked.path,
            asked.port.as_str(),
            answer.status,
            answer.headers,
        );
    }
}

fn compare(asked: &Asked, answer: &HttpAnswer) -> Result<(), String> {
    let operation = operation(asked.port, &asked.method, &asked.path);
    let responses = match operation {
        Some(operation) => &operation["responses"],
        None => &DOCUMENT["x-elsewhere"][asked.port.as_str()],
    };
    let status = answer.status.to_string();
    let response = responses.get(&status).or_else(|| responses.get(format!("{}XX", &status[..1])));
    let response = resolve(response.ok_or("the status is not described")?);
    compare_headers(response, &answer.headers)?;
    if asked.method != Method::HEAD {
        compare_body(response, answer)?;
        agree(answer)?;
    }
    match operation {
        Some(operation) if answer.status == 200 || answer.headers.contains_key("hookgate-decision") => {
            compare_request(operation, asked).map_err(|wrong| format!("and yet in the request {wrong}"))
        }
        _ => Ok(()),
    }
}

/// The document's operation for a method and a path at a port. HEAD is answered like GET.
fn operation(port: Port, method: &Method, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap_or_default();
    let paths = DOCUMENT["paths"].as_object().expect("paths are an object");
    let (_, item) = paths.iter().find(|(template, item)| serves(port, item) && fits(template, path))?;
    let name = method.as_str().to_ascii_lowercase();
    item.get(&name).or_else(|| item.get("get").filter(|_| method == Method::HEAD && port != Port::Admin))
}

/// Whether a path exists at a port, by its own servers or by those of the document.
fn serves(port: Port, item: &Value) -> bool {
    let servers = item.get("servers").unwrap_or(&DOCUMENT["servers"]);
    let servers = servers.as_array().expect("servers are a list");
    servers.iter().any(|server| {
        let address = &server["variables"]["address"]["description"];
        address.as_str().is_some_and(|text| text.contains(port.key()))
    })
}

fn fits(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(name), Some(part)) if name.starts_with('{') || name == part => {}
            _ => return false,
        }
    }
}

/// Resolves a reference. A description beside the reference is for people.
pub fn resolve(value: &Value) -> &Value {
    let Some(reference) = value["$ref"].as_str() else { return value };
    let pointer = reference.strip_prefix('#').expect("references stay inside the document");
    DOCUMENT.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

fn compare_headers(response: &Value, headers: &HeaderMap) -> Result<(), String> {
    let none = Map::new();
    let described = response["headers"].as_object().unwrap_or(&none);
    for (name, header) in described {
        compare_value("header", name, resolve(header), headers)?;
    }
    for name in headers.keys().map(http::HeaderName::as_str).filter(|name| !OF_HTTP.contains(name)) {
        if !described.keys().any(|known| known.eq_ignore_ascii_case(name)) {
            return Err(format!("the header `{name}` is not described"));
        }
    }
    Ok(())
}

/// Checks one header, or one parameter in a header, against its description.
fn compare_value(kind: &str, name: &str, described: &Value, headers: &HeaderMap) -> Result<(), String> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        let required = described["required"] == json!(true);
        return if required { Err(format!("the {kind} `{name}` is missing")) } else { Ok(()) };
    };
    if values.next().is_some() {
        return Err(format!("the {kind} `{name}` is there twice"));
    }
    let text = value.to_str().map_err(|_| format!("the {kind} `{name}` is no ASCII"))?;
    let schema = &described["schema"];
    let value = match text.parse::<u64>() {
        Ok(number) if schema["type"] == "integer" => json!(number),
        _ => json!(text),
    };
    validate(schema, &value).map_err(|wrong| format!("the {kind} `{name}`: {wrong}"))
}

fn compare_body(response: &Value, answer: &HttpAnswer) -> Result<(), String> {
    let said = answer.headers.get("content-type").map(|value| value.to_str().unwrap_or_default());
    let Some(content) = response["content"].as_object() else {
        let empty = answer.text.is_empty() && said.is_none();
        return if empty { Ok(()) } else { Err("a body is not described".to_owned()) };
    };
    let said = said.ok_or("there is no content type")?;
    let essence = said.split(';').next().unwrap_or_default();
    let described = content.get(said).or_else(|| content.get(essence));
    let described = described.ok_or_else(|| format!("the content type {said} is not described"))?;
    let value = if essence.ends_with("json") {
        serde_json::from_str(&answer.text).map_err(|error| format!("the body is no JSON: {error}"))?
    } else {
        json!(answer.text)
    };
    validate(&described["schema"], &value).map_err(|wrong| format!("the body: {wrong}"))
}

/// Checks what no schema can express: that body, status and headers agree.
fn agree(answer: &HttpAnswer) -> Result<(), String> {
    let body = &answer.body;
    let header = |name| answer.header(name).map_or(Value::Null, |text| json!(text));
    for (member, other) in [("request_id", header("x-request-id")), ("decision", header("hookgate-decision"))]
    {
        if body.get("request_id").is_some() && body[member] != other {
            return Err(format!("`{member}` is {}, and the header has {other}", body[member]));
        }
    }
    match body.get("status") {
        Some(status) if *status != json!(answer.status) => Err(format!("`status` is {status}")),
        _ => Ok(()),
    }
}

fn compare_request(operation: &Value, asked: &Asked) -> Result<(), String> {
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let parameter = resolve(parameter);
        let name = parameter["name"].as_str().unwrap_or_default();
        if parameter["in"] == "header" {
            compare_value("header", name, parameter, &asked.headers)?;
        }
    }
    match (&asked.body, operation["requestBody"]["content"].get("application/json")) {
        (Some(body), Some(described)) => {
            let body =
                serde_json::from_slice(body).map_err(|error| format!("the body is no JSON: {error}"))?;
            validate(&described["schema"], &body).map_err(|wrong| format!("the body: {wrong}"))
        }
        _ => Ok(()),
    }
}

/// Checks a value against a schema of the document.
///
/// # Errors
/// All violations, each with its pointer.
pub fn validate(schema: &Value, value: &Value) -> Result<(), String> {
    let compiled = {
        let mut known = COMPILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let compiled = known.entry(schema.to_string()).or_insert_with(|| Arc::new(compile(schema)));
        Arc::clone(compiled)
    };
    let wrong: Vec<_> = compiled.iter_errors(value).map(|error| sentence(&error)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// An error without the surrounding values; for alternatives, the errors of each.
fn sentence(error: &ValidationError<'_>) -> String {
    let said = match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            let branch =
                |errors: &Vec<_>| format!("[{}]", errors.iter().map(sentence).collect::<Vec<_>>().join("; "));
            format!("fits none of {}", context.iter().map(branch).collect::<Vec<_>>().join(" "))
        }
        _ => error.masked().to_string(),
    };
    format!("at `{}`: {said}", error.instance_path())
}

/// References point into the document, which is parsed once. Otherwise each schema would include all
/// others.
fn compile(schema: &Value) -> Validator {
    let schema = schema.to_string().replace("\"$ref\":\"#", &format!("\"$ref\":\"{URI}#"));
    let schema = serde_json::from_str(&schema).expect("it was JSON before");
    let compiled = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_registry(&REGISTRY)
        .should_validate_formats(true)
        .build(&schema);
    compiled.unwrap_or_else(|error| panic!("docs/openapi.json holds a schema that is none: {error}"))
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
