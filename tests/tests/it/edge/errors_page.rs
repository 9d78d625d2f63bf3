//! Checks that docs/errors.md is generated from the code's own tables.

use std::{fmt::Write, fs};

use hookgate::core::{
    block_status::FIXED_BLOCK_STATUSES,
    error::{Code, grpc_name},
};
use hookgate_tests::repository;

use crate::edge::support::assert_sentence;

const HEAD: &str = "\
# Errors and blocks

<!-- Written by `HOOKGATE_REGENERATE=1 cargo test -p hookgate-tests errors_page`; do not edit. -->

Every answer is one of four things, and they never look like one another:

| answer | HTTP | gRPC | what it means |
|---|---|---|---|
| continue | 200, `Hookgate-Decision: continue` | OK, `decision` is CONTINUE | go on with the returned payload |
| answer | 200, `Hookgate-Decision: answer` | OK, `decision` is ANSWER | only if you set `takes_results`: don't run the tool, go on with `result` |
| block | 4xx, `Hookgate-Decision: block` | OK, `decision` is BLOCK | a plugin said no: don't, and never retry it |
| error | 4xx or 5xx, no `Hookgate-Decision` | an error status | there is no decision: stop |

A client that gets no answer at all has no decision either.
";

const ERRORS: &str = "
## Error codes

The set is closed and its names are reserved: no block carries one. Over HTTP the code is the member `code` of an
`application/problem+json` body (RFC 9457), beside `detail`, `request_id` and `errors`, a list of `{pointer, message}`.
Over gRPC it is the `reason` of a `google.rpc.ErrorInfo` whose `domain` is `hookgate`; `BadRequest` holds as many of the
`errors` as fit into headers, `RetryInfo` what `Retry-After` says. A 401 of the gateway's own carries
`WWW-Authenticate: Bearer`.

Where a step ended the chain, the problem names it too: `plugin`, `binding`, `point`, `reason` (the step's, such as
`timeout` or `breaker_open`), and `steps`, what each step of the chain did. Over gRPC the first four are metadata of
`ErrorInfo`, with `step_reason` for `reason`, and the steps are a `hookgate.gateway.v1.ChainReport` among the details.
[protocol.md, section 4](protocol.md#a-call-without-a-decision) shows both. With `answer.detail: minimal` an error has
none of them.

| code | HTTP | gRPC | meaning | who failed | what the caller does |
|---|---|---|---|---|---|
";

const NOTES: &str = "
Over gRPC an unknown method or service answers UNIMPLEMENTED with the reason `NOT_FOUND`, because gRPC's own tools probe
for that. `CANCELLED` is a label in metrics and what observers are told; nobody is left to receive it.
";

const BLOCKS: &str = "
## Block codes

A plugin chooses the code of its block. The HTTP status follows from the code; over gRPC a block is an OK answer. Any
other code is 403, unless `block_status` or `plugins[].block_status` of the configuration gives it a status from 400 to
499, the plugin's over the global one. The statuses of this table are fixed. `Retry-After` is there when the plugin said
when to ask again; a 401 carries `WWW-Authenticate: Hookgate code=...`, never `Bearer`.

| code | HTTP |
|---|---|
";

fn page() -> String {
    let mut page = format!("{HEAD}{ERRORS}");
    for code in Code::ALL {
        let (http, grpc, party) = (code.http(), grpc_name(code.grpc()), code.party().as_str());
        let (meaning, remedy) = (code.meaning(), code.remedy());
        writeln!(page, "| `{code}` | {http} | {grpc} | {meaning} | {party} | {remedy} |").unwrap();
    }
    page.push_str(NOTES);
    page.push_str(BLOCKS);
    for (code, status) in FIXED_BLOCK_STATUSES {
        writeln!(page, "| `{code}` | {status} |").unwrap();
    }
    page
}

#[test]
fn the_errors_page_is_what_the_code_says() {
    let file = repository::root().join("docs/errors.md");
    let page = page();
    if std::env::var_os("HOOKGATE_REGENERATE").is_some() {
        fs::write(&file, &page).expect("docs can be written");
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(written == page, "docs/errors.md is not what the code says: run with HOOKGATE_REGENERATE=1");
}

#[test]
fn every_sentence_of_the_error_table_is_one() {
    for code in Code::ALL {
        assert_sentence(code.meaning());
        assert_sentence(code.remedy());
    }
}
