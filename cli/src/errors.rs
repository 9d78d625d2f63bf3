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
        block_status::TOOL_ANSWERED,
        error::{Code, grpc_name},
    },
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
        None => {
            if wanted == TOOL_ANSWERED {
                return Exit::usage(format!(
                    "`{wanted}` is the code of a block: a plugin gave the tool's result, and the agent's request had no \
                     `takes_results`"
                ));
            }
            if api_error::is_error_type(name) {
                return Exit::usage(format!(
                    "`{}` is a kind of errors in the APIs of models, and no error code: the code is in `error.code`",
                    output::printable(name)
                ));
            }
            let near = did_you_mean(&wanted, Code::ALL.iter().map(|code| code.as_str()));
            let remedy = near.unwrap_or_else(|| {
                "`hookgate errors` lists all of them; any other code comes from a plugin that blocked, or from the provider of the model"
                    .into()
            });
            Exit::usage(format!("`{}` is not an error code: {remedy}", output::printable(name)))
        }
    }
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
