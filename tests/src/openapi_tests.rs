use super::*;

const ID: &str = "01a20179-4024-71a0-aaaa-29fb00285023";

fn asked(port: Port, method: Method, path: &str, body: Option<Value>) -> Asked {
    let body = body.map(|body| body.to_string().into_bytes());
    Asked { port, method, path: path.into(), headers: HeaderMap::new(), body }
}

fn call() -> Asked {
    let body = json!({ "payload": { "tool_name": "t", "args": null } });
    asked(Port::Data, Method::POST, "/v1/before-tool-call", Some(body))
}

fn answer(status: u16, headers: &[(&'static str, &str)], body: &Value) -> HttpAnswer {
    let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    HttpAnswer { status, headers: headers.collect(), text: body.to_string(), body: body.clone() }
}

const HEADERS: [(&str, &str); 4] = [
    ("content-type", "application/json"),
    ("hookgate-decision", "continue"),
    ("x-request-id", ID),
    ("server-timing", "total;dur=1.000, queue;dur=0.000, plugin-p;dur=0.500"),
];

fn continued() -> Value {
    json!({
        "decision": "continue", "payload": { "tool_name": "t", "args": null }, "modified": false, "notices": [],
        "steps": [{ "plugin": "p", "binding": "p", "outcome": "continued", "duration_us": 500 }],
        "plan_digest": "0".repeat(64), "revision": 1, "request_id": ID,
    })
}

fn error(status: u16, code: &str) -> Value {
    json!({
        "type": format!("urn:hookgate:error:{code}"), "title": "T", "status": status, "detail": "D", "code": code,
        "request_id": ID,
    })
}

/// The errors of an answer to [`call`].
fn wrong(status: u16, headers: &[(&'static str, &str)], body: &Value) -> String {
    compare(&call(), &answer(status, headers, body)).expect_err("it is not as the document has it")
}

/// `body` with the member at a pointer set; null removes it.
fn with(mut body: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(name)
    } else {
        parent.insert(name.into(), value)
    };
    body
}

#[test]
fn an_answer_as_the_document_has_it_is_taken() {
    compare(&call(), &answer(200, &HEADERS, &continued())).unwrap();
    let headers = [("content-type", "application/problem+json"), HEADERS[2], HEADERS[3]];
    compare(&call(), &answer(503, &headers, &error(503, "OVERLOADED"))).unwrap();
    let elsewhere = asked(Port::Data, Method::POST, "/v1/elsewhere", None);
    compare(&elsewhere, &answer(404, &headers, &error(404, "NOT_FOUND"))).unwrap();
}

#[test]
fn a_body_that_differs_in_anything_is_not_taken() {
    for (pointer, value) in [
        ("/surplus", json!(1)),
        ("/payload/surplus", json!(1)),
        ("/payload/tool_name", json!(null)),
        ("/steps/0/outcome", json!("else")),
        ("/steps/0/duration_us", json!(-1)),
        ("/plan_digest", json!("ABC")),
        ("/revision", json!(null)),
        ("/decision", json!("block")),
        ("/request_id", json!("01a20179-4024-71a0-aaaa-29fb00285024")),
    ] {
        let body = if pointer == "/steps/0/outcome" || pointer == "/steps/0/duration_us" {
            let mut body = continued();
            *body.pointer_mut(pointer).unwrap() = value;
            body
        } else {
            with(continued(), pointer, value)
        };
        wrong(200, &HEADERS, &body);
    }
    assert!(wrong(200, &HEADERS, &json!("text")).contains("body"));
}

#[test]
fn of_alternatives_each_is_said_to_be_wrong() {
    let headers = [HEADERS[0], HEADERS[2], HEADERS[3]].map(|(name, value)| match name {
        "content-type" => (name, "application/problem+json"),
        _ => (name, value),
    });
    let said = wrong(403, &headers, &with(error(403, "SCOPE_MISSING"), "/surplus", json!(1)));
    assert!(said.contains("surplus") && said.contains("decision"), "{said}");
}

#[test]
fn a_header_that_is_missing_wrong_or_unknown_is_seen() {
    let without = |name: &str| HEADERS.into_iter().filter(|(known, _)| *known != name).collect::<Vec<_>>();
    for name in ["content-type", "hookgate-decision", "x-request-id", "server-timing"] {
        wrong(200, &without(name), &continued());
        let mut other = without(name);
        other.push((name, "else"));
        wrong(200, &other, &continued());
    }
    let surplus = [&HEADERS[..], &[("x-powered-by", "us")]].concat();
    assert!(wrong(200, &surplus, &continued()).contains("x-powered-by"));
}

#[test]
fn a_status_and_a_code_belong_together() {
    let headers = [("content-type", "application/problem+json"), HEADERS[2], HEADERS[3]];
    wrong(418, &headers, &error(418, "OVERLOADED"));
    wrong(500, &headers, &error(503, "OVERLOADED"));
    wrong(503, &headers, &error(503, "INTERNAL"));
    wrong(503, &headers, &error(503, "NO_SUCH_CODE"));
    wrong(503, &HEADERS, &continued());
    wrong(404, &headers, &error(404, "NOT_FOUND")); // the point exists
    assert!(wrong(201, &HEADERS, &continued()).contains("status"));
    let elsewhere = asked(Port::Ops, Method::GET, "/v1/before-tool-call", None);
    let said = compare(&elsewhere, &answer(200, &HEADERS, &continued()));
    assert!(said.unwrap_err().contains("status"));
}

#[test]
fn a_request_that_is_let_through_must_be_one_that_is_described() {
    let good = answer(200, &HEADERS, &continued());
    for payload in [json!({ "tool_name": "t" }), json!({ "tool_name": "t", "args": 1, "tenant": "x" })] {
        let asked =
            asked(Port::Data, Method::POST, "/v1/before-tool-call", Some(json!({ "payload": payload })));
        assert!(compare(&asked, &good).unwrap_err().contains("request"));
    }
    let mut asked = call();
    asked.headers.insert("hookgate-timeout-ms", "60001".parse().unwrap());
    assert!(compare(&asked, &good).unwrap_err().contains("Hookgate-Timeout-Ms"));
}
