//! `hookgate errors`: docs/errors.md on the command line, from the same table.

use serde::Serialize;

use super::{
    Exit,
    output::{self, Output, columns},
};
use hookgate::{
    config::did_you_mean,
    core::{
        api_error,
        api_format::ApiFormat,
        block_status::{FIXED_BLOCK_STATUSES, TOOL_ANSWERED},
        error::{Code, grpc_name},
        step::Reason,
    },
    upstream::Why,
};

#[derive(Serialize)]
struct ErrorCodeRow {
    code: &'static str,
    /// The code that OpenAI's SDKs show, if it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    openai_code: Option<&'static str>,
    meaning: &'static str,
    http: u16,
    grpc: &'static str,
    who_failed: &'static str,
    what_to_do: &'static str,
}

impl From<Code> for ErrorCodeRow {
    fn from(code: Code) -> Self {
        ErrorCodeRow {
            code: code.as_str(),
            openai_code: Some(api_error::code(ApiFormat::Openai, code))
                .filter(|shown| *shown != code.as_str()),
            meaning: code.meaning(),
            http: code.http(),
            grpc: grpc_name(code.grpc()),
            who_failed: code.party().as_str(),
            what_to_do: code.remedy(),
        }
    }
}

pub(super) fn run(code: Option<&str>, output: Output) -> Exit {
    let Some(name) = code else {
        let rows: Vec<ErrorCodeRow> = Code::ALL.iter().copied().map(ErrorCodeRow::from).collect();
        return output::data(output, &rows, || overview(&rows), Exit::ok());
    };
    let wanted = name.to_uppercase();
    match api_error::code_named(&wanted) {
        Some(code) => {
            let row = ErrorCodeRow::from(code);
            output::data(output, &row, || one(&row), Exit::ok())
        }
        None => Exit::usage(no_error_code(name, &wanted)),
    }
}

/// What `name` is instead of an error code. `wanted` is the same in capitals.
fn no_error_code(name: &str, wanted: &str) -> String {
    if wanted == TOOL_ANSWERED {
        return format!(
            "`{wanted}` is the code of a block: a plugin gave the tool's result, and the agent's request had no \
             `takes_results`"
        );
    }
    if let Some((_, status)) = FIXED_BLOCK_STATUSES.iter().find(|(code, _)| *code == wanted) {
        return format!(
            "`{wanted}` is the code of a block, and no error code: a plugin stopped the call, which is HTTP {status}; the \
             block's message says why"
        );
    }
    let shown = output::printable(name);
    if api_error::is_error_type(name) {
        return format!(
            "`{shown}` is a kind of errors in the APIs of models, and no error code: the code is in `error.code`"
        );
    }
    if let Some(reason) = Reason::ALL.iter().find(|reason| reason.as_str().eq_ignore_ascii_case(name)) {
        let reason = reason.as_str();
        return format!(
            "`{reason}` is the reason why a step failed, and no error code: the error's `detail` says more, and \
             docs/failure-matrix.md has every reason"
        );
    }
    if let Some(why) = Why::all().find(|why| *why != Why::Serving && why.as_str().eq_ignore_ascii_case(name))
    {
        return format!(
            "`{}` is the reason why a plugin is {}, and no error code: `hookgate plugin show NAME` says more",
            why.as_str(),
            why.state()
        );
    }
    let near = did_you_mean(wanted, Code::ALL.iter().map(|code| code.as_str()));
    let remedy = near.unwrap_or_else(|| {
        "`hookgate errors` lists all of them; a code that is neither there nor in docs/errors.md comes from a plugin \
         that blocked, or from the provider of the model"
            .into()
    });
    format!("`{shown}` is not an error code: {remedy}")
}

fn overview(rows: &[ErrorCodeRow]) -> String {
    let mut table = vec![["CODE", "HTTP", "GRPC", "WHO FAILED", "MEANING"].map(str::to_owned)];
    table.extend(rows.iter().map(|row| {
        [row.code, &row.http.to_string(), row.grpc, row.who_failed, row.meaning].map(str::to_owned)
    }));
    columns(&table)
}

fn one(row: &ErrorCodeRow) -> String {
    let mut lines = vec![["code", row.code].map(str::to_owned)];
    lines.extend(row.openai_code.map(|code| ["in OpenAI's API", code].map(str::to_owned)));
    lines.extend([
        ["meaning", row.meaning].map(str::to_owned),
        ["HTTP", &row.http.to_string()].map(str::to_owned),
        ["gRPC", row.grpc].map(str::to_owned),
        ["who failed", row.who_failed].map(str::to_owned),
        ["what to do", row.what_to_do].map(str::to_owned),
    ]);
    columns(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str) -> String {
        no_error_code(name, &name.to_uppercase())
    }

    #[test]
    fn a_name_of_the_gateway_s_that_is_no_error_code_is_told_apart_from_others() {
        for (code, status) in FIXED_BLOCK_STATUSES.iter().filter(|(code, _)| *code != TOOL_ANSWERED) {
            let expected = format!("`{code}` is the code of a block, and no error code: ");
            let text = said(&code.to_lowercase());
            assert!(text.starts_with(&expected) && text.contains(&format!("HTTP {status};")), "{text}");
            assert!(api_error::code_named(code).is_none(), "{code} would be shown as an error code");
        }
        for reason in Reason::ALL {
            let expected = format!("`{reason}` is the reason why a step failed, ");
            assert!(said(reason.as_str()).starts_with(&expected), "{}", said(reason.as_str()));
        }
        let refused = "`NAME_MISMATCH` is the reason why a plugin is refused, and no error code: ";
        assert!(said("name_mismatch").starts_with(refused), "{}", said("name_mismatch"));
        assert!(said("insufficient_quota").contains("comes from a plugin"), "{}", said("insufficient_quota"));
        assert!(
            said("PLUGIN_TIMOUT").ends_with("did you mean `PLUGIN_TIMEOUT`?"),
            "{}",
            said("PLUGIN_TIMOUT")
        );
    }
}
