//! For tests: files with one mistake each, and the only place where it may be reported.

use super::{Problems, load::from_text};

/// The smallest `auth`, in one line, so that the rest of a file begins in line 2.
pub(super) const AUTH: &str =
    "auth: { issuers: [{ issuer: i, audience: a, jwks_url: \"https://id/keys\", tenants: \"*\" }] }\n";

/// A plugin, a tenant and a binding, in lines 2 to 4.
pub(super) const REST: &str = "plugins: [{ name: p, endpoint: \"http://127.0.0.1:7000\" }]
tenants: { list: [{ id: acme }] }
bindings: [{ plugin: p, tenant: \"*\", priority: 1 }]
";

/// Adds a line with a tenant to `text`, unless it has `tenants` itself.
pub(super) fn served(text: &str) -> String {
    let says = text.lines().any(|line| line.starts_with("tenants:"));
    let more = if says { "" } else { "\ntenants: { list: [{ id: somebody }] }\n" };
    text.to_owned() + more
}

pub(super) fn problems(text: &str) -> Problems {
    from_text("f.yaml".into(), &served(text), [("SECRET".to_owned(), "x".to_owned())]).expect_err(text)
}

/// Position, message and remedy of the only mistake of a file.
pub(super) fn only(text: &str) -> (usize, String, String) {
    let problems = problems(text);
    assert_eq!(problems.count(), 1, "{text}\n{problems}");
    let located = problems.iter().next().unwrap();
    let (line, _) = located.position.unwrap_or_default();
    (line, located.problem.message.clone(), located.problem.remedy.clone().unwrap_or_default())
}

#[track_caller]
pub(super) fn refused(text: &str, line: usize, message: &str, remedy: &str) {
    let (at, said, advised) = only(text);
    assert_eq!((at, said.as_str(), advised.as_str()), (line, message, remedy), "{text}");
}

/// Like `refused`, with `AUTH` before `text`.
#[track_caller]
pub(super) fn rest(text: &str, line: usize, message: &str, remedy: &str) {
    refused(&format!("{AUTH}{text}"), line, message, remedy);
}

#[track_caller]
pub(super) fn issuer(text: &str, message: &str, remedy: &str) {
    refused(&format!("auth:\n  issuers:\n    - {{ issuer: i, audience: a, {text} }}\n"), 3, message, remedy);
}

#[track_caller]
pub(super) fn key(text: &str, message: &str, remedy: &str) {
    issuer(&format!("keys: [{{ {text} }}]"), message, remedy);
}

#[track_caller]
pub(super) fn plugin(text: &str, message: &str, remedy: &str) {
    rest(&format!("plugins:\n  - {{ {text} }}\n"), 3, message, remedy);
}

/// Like `rest`, for another binding in addition to that of `REST`.
#[track_caller]
pub(super) fn binding(text: &str, message: &str, remedy: &str) {
    let rest_of =
        REST.replace("bindings: [", &format!("bindings:\n  - {{ {text} }}\n  - ")).replace("}]\n", "}\n");
    let rest_of = rest_of.replace("7000\" }\n", "7000\" }]\n");
    rest(&rest_of, 5, message, remedy);
}
