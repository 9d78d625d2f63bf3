//! `hookgate whoami`: a gateway's view of a token, and the steps of its calls.

use serde_json::Value;

use crate::{
    Exit,
    client::DataPortArgs,
    output::{Output, columns, text},
};
use hookgate::{
    auth::scope_name,
    config::{Scope, Span},
    core::point::Point,
    dataplane::whoami::PATH,
};

pub(super) async fn run(gateway: &DataPortArgs, timeout: Span, output: Output) -> Exit {
    gateway.show(timeout, output, PATH, |said| said["tenant"].is_string(), table).await
}

fn table(said: &Value) -> String {
    let scopes: Vec<_> = said["scopes"].as_array().into_iter().flatten().map(text).collect();
    let invoke = scope_name(Scope::Invoke);
    let scopes = match (scopes.is_empty(), scopes.iter().any(|scope| scope == invoke)) {
        (true, _) => format!("none: a call needs {invoke}"),
        (false, false) => format!("{}, but a call needs {invoke}", scopes.join(" ")),
        (false, true) => scopes.join(" "),
    };
    let head = ["tenant", "operator", "issuer", "expires"].map(|name| [name.to_owned(), text(&said[name])]);
    let scopes = ["scopes".to_owned(), scopes];
    let mut rows = vec![["POINT", "STEP", "BINDING", "PLUGIN", "MODE"].map(str::to_owned)];
    for point in Point::ALL {
        rows.extend(chain(point.as_str(), &said["points"][point.as_str()]));
    }
    for (hook, steps) in said["hooks"].as_object().into_iter().flatten() {
        rows.extend(chain(hook, steps));
    }
    format!("{}\n{}", columns(&[head.to_vec(), vec![scopes]].concat()), columns(&rows))
}

/// The rows of the chain at one point or hook.
fn chain(site: &str, chain: &Value) -> Vec<[String; 5]> {
    let steps = chain["steps"].as_array().map_or(&[][..], Vec::as_slice);
    if steps.is_empty() {
        let count = chain["step_count"].as_u64().unwrap_or_default();
        let told = if count == 0 { "none" } else { "not told" };
        return vec![[site, &count.to_string(), told, "", ""].map(str::to_owned)];
    }
    let row = |(at, step): (usize, &Value)| {
        let [binding, plugin, mode] = ["binding", "plugin", "mode"].map(|name| text(&step[name]));
        [site.to_owned(), (at + 1).to_string(), binding, plugin, mode]
    };
    steps.iter().enumerate().map(row).collect()
}
